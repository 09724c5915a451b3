"""Turns prices over time into a small chart: of characters for a terminal, of SVG for a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from typing import Final

_MARKS: Final = "ox+*#@%&"
_COLOURS: Final = ("#1b6ca8", "#c8553d", "#2e7d32", "#8e44ad", "#b7791f", "#37474f", "#ad1457", "#00838f")
_ROWS: Final = 10
_COLUMNS: Final = 64
_WIDTH: Final = 760
_HEIGHT: Final = 320
_LEFT: Final = 64
_RIGHT: Final = 120
_TOP: Final = 16
_BOTTOM: Final = 32

Series = Mapping[str, Sequence[tuple[date, float]]]
"""Points in the order of their days, by the name of the line."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps days and values to shares of the chart's width and height, both from 0 to 1."""

    first: date
    last: date
    low: float
    high: float

    @classmethod
    def of(cls, series: Series) -> "_Scale":
        points = [point for line in series.values() for point in line]
        days, values = [day for day, _ in points], [value for _, value in points]
        return cls(min(days), max(days), min(0.0, *values), max(values))

    def x(self, day: date) -> float:
        span = (self.last - self.first).days
        return (day - self.first).days / span if span else 0.0

    def y(self, value: float) -> float:
        return (value - self.low) / (self.high - self.low) if self.high > self.low else 0.0


def text_chart(series: Series, unit: str) -> str:
    """The lines as marks on a grid, with the axes' ends written out. Empty without a point."""
    if not any(series.values()):
        return ""
    scale = _Scale.of(series)
    grid = [[" "] * _COLUMNS for _ in range(_ROWS)]
    for number, line in enumerate(series.values()):
        for day, value in line:
            row = _ROWS - 1 - round(scale.y(value) * (_ROWS - 1))
            grid[row][round(scale.x(day) * (_COLUMNS - 1))] = _MARKS[number % len(_MARKS)]
    labels = {0: f"{scale.high:,.2f}", _ROWS - 1: f"{scale.low:,.2f}"}
    width = max(len(label) for label in labels.values())
    rows = [f"{labels.get(number, ''):>{width}} |{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    days = f"{scale.first}{scale.last!s:>{_COLUMNS - 10}}" if scale.last > scale.first else f"{scale.first}"
    legend = "  ".join(f"{_MARKS[number % len(_MARKS)]} {name}" for number, name in enumerate(series))
    return "\n".join([unit, *rows, f"{'':>{width}} +{'-' * _COLUMNS}", f"{'':>{width}}  {days}", legend])


def svg_chart(series: Series, title: str, unit: str) -> str:
    """The lines as an SVG image that stands alone. Empty without a point."""
    if not any(series.values()):
        return ""
    scale = _Scale.of(series)
    bottom, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{right}" fill="none" stroke="#888"/>',
        f'<text x="{_LEFT - 6}" y="{_TOP + 8}" text-anchor="end">{scale.high:,.2f}</text>',
        f'<text x="{_LEFT - 6}" y="{bottom}" text-anchor="end">{scale.low:,.2f}</text>',
        f'<text x="{_LEFT + 6}" y="{_TOP + 4}">{escape(unit)}</text>',
        f'<text x="{_LEFT}" y="{_HEIGHT - 10}">{scale.first}</text>',
        f'<text x="{right}" y="{_HEIGHT - 10}" text-anchor="end">{scale.last}</text>',
    ]
    for number, (name, line) in enumerate(series.items()):
        parts += _svg_line(name, line, scale, _COLOURS[number % len(_COLOURS)], _TOP + 16 * (number + 1))
    return "\n".join([*parts, "</svg>"])


def _svg_line(name: str, line: Sequence[tuple[date, float]], scale: _Scale, colour: str, legend_y: int) -> list[str]:
    places = [
        (
            _LEFT + scale.x(day) * (_WIDTH - _RIGHT - _LEFT),
            _HEIGHT - _BOTTOM - scale.y(value) * (_HEIGHT - _BOTTOM - _TOP),
        )
        for day, value in line
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" fill="{colour}"/>' for x, y in places)
    legend = f'<text x="{_WIDTH - _RIGHT + 12}" y="{legend_y}" fill="{colour}">{escape(name)}</text>'
    return [f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>', dots, legend]
