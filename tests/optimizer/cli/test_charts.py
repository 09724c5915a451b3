"""Small charts of prices over time."""

import xml.etree.ElementTree as ET
from datetime import date

from optimizer.cli.charts import svg_chart, text_chart

LINES = {
    "aws": [(date(2026, 1, 1), 4.0), (date(2026, 1, 31), 8.0)],
    "lambda <b>": [(date(2026, 1, 16), 2.0)],
}


def test_a_text_chart_puts_the_highest_at_the_top_and_the_last_day_at_the_right() -> None:
    lines = text_chart(LINES, "USD per hour").splitlines()
    assert lines[0] == "USD per hour"
    assert lines[1].startswith("8.00 |") and lines[1].endswith("o")
    assert lines[10].startswith("0.00 |")
    assert lines[12].split() == ["2026-01-01", "2026-01-31"]
    assert lines[13] == "o aws  x lambda <b>"


def test_a_chart_of_one_day_and_one_price_does_not_divide_by_nothing() -> None:
    one = {"aws": [(date(2026, 1, 1), 0.0)]}
    assert "2026-01-01" in text_chart(one, "USD")
    assert ET.fromstring(svg_chart(one, "t", "USD")).tag.endswith("svg")  # noqa: S314  (our own output)


def test_without_a_point_there_is_no_chart() -> None:
    assert text_chart({}, "USD") == svg_chart({}, "t", "USD") == ""


def test_an_svg_chart_is_well_formed_and_escapes_names() -> None:
    root = ET.fromstring(svg_chart(LINES, "H100 & friends", "USD"))  # noqa: S314  (our own output)
    assert len(root.findall("{http://www.w3.org/2000/svg}polyline")) == 2
    assert "lambda <b>" in [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
