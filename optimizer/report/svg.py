"""Turns a chart into inline SVG: labelled axes, marks with their values, colours from the page's style."""

import math
from collections.abc import Iterator
from html import escape
from typing import Final

from optimizer.report.page import Chart, Series

_WIDTH: Final = 720
_DRAWN_HEIGHT: Final = 210
_LEFT: Final = 72
_RIGHT: Final = 16
_TOP: Final = 34
_BOTTOM: Final = 56
_BOTTOM_SLANTED: Final = 128
_CHARACTER: Final = 7.0
"""Width of a character of a label; a little more than it is, so that labels keep apart."""
_TICKS: Final = 5
_MOST_LABELS: Final = 12
_COLOURS: Final = 6
_LONGEST_LABEL: Final = 26
_LEGEND_COLUMNS: Final = 3


def svg_chart(chart: Chart) -> str:
    """The chart as an SVG element with a title and a description for those who do not see it.

    Empty where there is no value to show.
    """
    values = [value for line in chart.series for value in line.values if value is not None]
    if not values:
        return ""
    scale = _Scale(min(0.0, *values), max(0.0, *values))
    bottom = _BOTTOM_SLANTED if _is_slanted(chart) else _BOTTOM
    height = _TOP + _DRAWN_HEIGHT + bottom + 18 * (_legend_rows(chart) - 1)
    marks = _bars(chart, scale) if chart.kind == "bar" else _lines(chart, scale)
    return "\n".join([*_head(chart, height), *_axes(chart, scale), *marks, *_legend(chart, height), "</svg>"])


class _Scale:
    """Maps values to heights, with round ticks."""

    def __init__(self, low: float, high: float) -> None:
        span = high - low or 1.0
        power = 10.0 ** math.floor(math.log10(span / _TICKS))
        self.step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if span / (power * factor) <= _TICKS)
        self.low = math.floor(low / self.step) * self.step
        self.high = max(math.ceil(high / self.step) * self.step, self.low + self.step)

    def y(self, value: float) -> float:
        return _TOP + _DRAWN_HEIGHT * (1 - (value - self.low) / (self.high - self.low))

    def ticks(self) -> list[float]:
        return [self.low + self.step * number for number in range(round((self.high - self.low) / self.step) + 1)]


def _head(chart: Chart, height: int) -> Iterator[str]:
    yield (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="{chart.id}-t {chart.id}-d">'
    )
    yield f'<title id="{chart.id}-t">{escape(chart.title)}</title>'
    names = ", ".join(line.name for line in chart.series)
    first, last = (chart.labels[0], chart.labels[-1]) if chart.labels else ("", "")
    yield f'<desc id="{chart.id}-d">{escape(f"{chart.unit}; {names}; from {first} to {last}")}</desc>'


def _axes(chart: Chart, scale: _Scale) -> Iterator[str]:
    for tick in scale.ticks():
        y = scale.y(tick)
        kind = "zero" if tick == 0 else "grid"
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text class="tick" x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{_short(tick, scale.step)}</text>'
    every = math.ceil(len(chart.labels) / _MOST_LABELS)
    for index, label in enumerate(chart.labels):
        if index % every == 0:
            yield _label(_middle(index, len(chart.labels)), label, slanted=_is_slanted(chart))
    yield f'<text class="tick" x="8" y="14">{escape(chart.unit)}</text>'


def _is_slanted(chart: Chart) -> bool:
    """Whether labels are too long to stand beside each other."""
    room = (_WIDTH - _LEFT - _RIGHT) / max(1, min(len(chart.labels), _MOST_LABELS))
    return max((len(label) for label in chart.labels), default=0) * _CHARACTER > room


def _label(x: float, text: str, *, slanted: bool) -> str:
    y = _TOP + _DRAWN_HEIGHT + 18
    turn = f' transform="rotate(-32 {x:.1f} {y})"' if slanted else ""
    anchor = "end" if slanted else "middle"
    return f'<text class="tick" x="{x:.1f}" y="{y}" text-anchor="{anchor}"{turn}>{escape(_clipped(text))}</text>'


def _lines(chart: Chart, scale: _Scale) -> Iterator[str]:
    count = len(chart.labels)
    for number, line in enumerate(chart.series):
        points = [(_middle(i, count), scale.y(v), i, v) for i, v in enumerate(line.values) if v is not None]
        path = "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y, _, _) in enumerate(points))
        dashed = " dashed" if line.dashed else ""
        yield f'<path class="line s{number % _COLOURS}{dashed}" d="{path}"/>'
        for x, y, index, value in points:
            yield (
                f'<circle class="mark s{number % _COLOURS}" cx="{x:.1f}" cy="{y:.1f}" r="2.6">'
                f"{_tip(line, chart.labels[index], value)}</circle>"
            )


def _bars(chart: Chart, scale: _Scale) -> Iterator[str]:
    count, rows = len(chart.labels), len(chart.series)
    room = (_WIDTH - _LEFT - _RIGHT) / max(count, 1) * 0.72
    width = min(room / rows, 48.0)
    for number, line in enumerate(chart.series):
        for index, value in enumerate(line.values):
            if value is None:
                continue
            x = _middle(index, count) - width * rows / 2 + number * width
            top, base = scale.y(max(value, 0.0)), scale.y(min(value, 0.0))
            yield (
                f'<rect class="bar s{number % _COLOURS}" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}" '
                f'height="{max(base - top, 0.8):.1f}">{_tip(line, chart.labels[index], value)}</rect>'
            )


def _legend(chart: Chart, height: int) -> Iterator[str]:
    """Names in rows of three, below the labels."""
    for number, line in enumerate(chart.series):
        x = _LEFT + (number % _LEGEND_COLUMNS) * (_WIDTH - _LEFT) / _LEGEND_COLUMNS
        y = height - 18 * (_legend_rows(chart) - number // _LEGEND_COLUMNS)
        yield f'<rect class="bar s{number % _COLOURS}" x="{x:.0f}" y="{y}" width="12" height="10"/>'
        yield f'<text class="tick" x="{x + 17:.0f}" y="{y + 9}">{escape(_clipped(line.name))}</text>'


def _legend_rows(chart: Chart) -> int:
    return math.ceil(len(chart.series) / _LEGEND_COLUMNS)


def _middle(index: int, count: int) -> float:
    return _LEFT + (index + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(count, 1)


def _tip(line: Series, label: str, value: float) -> str:
    return f"<title>{escape(f'{line.name}, {label}: {value:,.2f}')}</title>"


def _short(value: float, step: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.4g}M"
    if abs(value) >= 1e4:
        return f"{value / 1e3:,.4g}k"
    return f"{value:,.{max(0, min(4, -math.floor(math.log10(step))))}f}"


def _clipped(text: str) -> str:
    return text if len(text) <= _LONGEST_LABEL else text[: _LONGEST_LABEL - 1] + "…"
