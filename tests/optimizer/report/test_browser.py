"""The HTML in a real browser: no errors, no requests, charts with marks, tables that sort, two widths, two themes.

Needs chromium, chromedriver and axe-core (npm). Where REQUIRE_TEST_TOOLS is set, as in CI, a missing one is a failure.
Screenshots are left in the folder that TEST_ARTEFACTS names, else in pytest's own.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from optimizer.report.comparison_page import comparison_page
from optimizer.report.html import html_text
from optimizer.report.monthly_page import monthly_page
from tests.optimizer.report.builders import sample_comparison, sample_report
from tests.tools import FOLDER, needed, program

AXE = FOLDER / "node_modules/axe-core/axe.min.js"
WIDTHS, THEMES = (390, 1440), ("light", "dark")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    chromium, driver = program("chromium"), program("chromedriver")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield session
    session.quit()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Both documents, with hostile names in them, as files."""
    folder = tmp_path_factory.mktemp("pages")
    texts = {
        "report": html_text(monthly_page(sample_report())),
        "compare": html_text(comparison_page(sample_comparison())),
    }
    for name, text in texts.items():
        (folder / f"{name}.html").write_text(text, encoding="utf-8")
    return {name: folder / f"{name}.html" for name in texts}


def shown(browser: Any, file: Path, width: int = 1440, theme: str = "light") -> Any:
    """Opens the file in a window of that width and colour scheme."""
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(file.as_uri())
    return browser


@pytest.mark.parametrize("name", ["report", "compare"])
def test_nothing_is_logged_and_nothing_leaves_the_file(browser: Any, files: dict[str, Path], name: str) -> None:
    page = shown(browser, files[name])
    assert page.get_log("browser") == []
    messages = (entry["message"] for entry in page.get_log("performance"))
    requests = [message for message in messages if "Network.requestWillBeSent" in message]
    assert requests
    assert all(files[name].as_uri() in message or '"url":"data:' in message for message in requests)
    loaded = page.execute_script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert all(name.startswith("data:") for name in loaded)


@pytest.mark.parametrize("name", ["report", "compare"])
def test_charts_have_marks_and_labels(browser: Any, files: dict[str, Path], name: str) -> None:
    page = shown(browser, files[name])
    charts = page.execute_script(
        "return [...document.querySelectorAll('svg.chart')].map(c => ["
        "c.querySelectorAll('.mark, rect.bar title').length, c.querySelectorAll('text').length,"
        "c.querySelector('title').textContent, c.getBoundingClientRect().height])"
    )
    assert len(charts) == 3 if name == "report" else len(charts) == 4
    for marks, labels, title, height in charts:
        assert marks >= 4
        assert labels >= 6
        assert title
        assert height > 100


def test_a_table_sorts_by_number_both_ways(browser: Any, files: dict[str, Path]) -> None:
    page = shown(browser, files["compare"])
    column = "return [...document.querySelectorAll('#way-list tbody tr')].map(r => r.cells[2].dataset.value)"
    press = "document.querySelectorAll('#way-list th button')[2].click()"
    page.execute_script(press)
    rising = [float(value) for value in page.execute_script(column) if value]
    assert rising == sorted(rising)
    assert len(set(rising)) > 5
    page.execute_script(press)
    falling = [float(value) for value in page.execute_script(column) if value]
    assert falling == rising[::-1]
    assert page.execute_script("return document.querySelectorAll('#way-list th')[2].ariaSort") == "descending"


def test_a_table_sorts_by_text_and_keeps_its_total_last(browser: Any, files: dict[str, Path]) -> None:
    page = shown(browser, files["report"])
    page.execute_script("document.querySelector('#by-workload th button').click()")
    names = page.execute_script(
        "return [...document.querySelectorAll('#by-workload tbody tr')].map(r => r.cells[0].textContent)"
    )
    expected = page.execute_script("return arguments[0].slice().sort((a, b) => a.localeCompare(b))", names)
    assert names == expected
    last = page.execute_script("return document.querySelector('#by-workload tfoot').textContent")
    assert last.strip().startswith("Total")


@pytest.mark.parametrize(("name", "width", "theme"), list(itertools.product(("report", "compare"), WIDTHS, THEMES)))
def test_it_fits_the_window_and_axe_finds_nothing_serious(
    browser: Any, files: dict[str, Path], tmp_path: Path, name: str, width: int, theme: str
) -> None:
    needed("axe-core", AXE.exists())
    page = shown(browser, files[name], width, theme)
    folder = Path(os.environ.get("TEST_ARTEFACTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    page.save_screenshot(str(folder / f"{name}-{width}-{theme}.png"))
    assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    background = page.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert background == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 29)"}[theme]
    # The page forbids foreign scripts; the driver's protocol may run one all the same.
    page.execute_cdp_cmd("Runtime.evaluate", {"expression": AXE.read_text(encoding="utf-8")})
    found = page.execute_async_script(
        "const done = arguments[arguments.length - 1];"
        "axe.run({resultTypes: ['violations']}).then(r => done(r.violations), e => done([{id: String(e)}]))"
    )
    serious = [
        (rule["id"], rule.get("nodes", [{}])[0].get("html"))
        for rule in found
        if rule.get("impact") in ("serious", "critical", None)
    ]
    assert serious == []


@pytest.mark.parametrize("name", ["report", "compare"])
def test_every_control_is_reached_by_the_keyboard(browser: Any, files: dict[str, Path], name: str) -> None:
    from selenium.webdriver.common.keys import Keys

    page = shown(browser, files[name])
    body = page.find_element("tag name", "body")
    body.send_keys(Keys.TAB)
    assert page.execute_script("return document.activeElement.className") == "skip"
    seen = set()
    for _ in range(40):
        page.switch_to.active_element.send_keys(Keys.TAB)
        seen.add(page.execute_script("return document.activeElement.tagName"))
    assert {"A", "DIV", "BUTTON"} <= seen
    first = page.find_element("css selector", "th button")
    first.send_keys(Keys.ENTER)
    assert page.execute_script("return document.querySelector('th').ariaSort") == "ascending"


@pytest.mark.parametrize("name", ["report", "compare"])
def test_it_prints_without_scroll_bars_and_in_light_colours(browser: Any, files: dict[str, Path], name: str) -> None:
    page = shown(browser, files[name], theme="dark")
    printed = page.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert len(printed["data"]) > 20_000
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    styles = (
        "return [getComputedStyle(document.querySelector('.scroll')).overflowX,"
        " getComputedStyle(document.querySelector('nav')).display]"
    )
    assert page.execute_script(styles) == ["visible", "none"]
    assert page.execute_script("return getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
