"""Collects the columns and rows of a mixed-integer linear program as plain numbers, free of any solver."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

Term = tuple[int, float]


@dataclass(slots=True, kw_only=True)
class Row:
    """lower <= sum of coefficient x column <= upper; one of the two is infinite, or both are equal."""

    terms: list[Term]
    lower: float
    upper: float


@dataclass(slots=True)
class LinearProgram:
    """minimise sum cost_j x_j subject to rows and lower_j <= x_j <= upper_j, x_j integer where `integer[j]`.

    `block[j]` is the period that a column belongs to, None if it belongs to all.
    """

    cost: list[float] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    integer: list[bool] = field(default_factory=list)
    block: list[int | None] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    contradictory: bool = False
    """Whether a row without terms asks for more than nothing: solvers disagree on such rows, so they are kept out."""

    def column(
        self,
        *,
        cost: float = 0.0,
        lower: float = 0.0,
        upper: float = inf,
        integer: bool = False,
        block: int | None = None,
    ) -> int:
        """Append a column; return its index."""
        self.cost.append(cost)
        self.lower.append(lower)
        self.upper.append(upper)
        self.integer.append(integer)
        self.block.append(block)
        return len(self.cost) - 1

    def at_least(self, terms: Iterable[Term], bound: float) -> None:
        self._add(terms, bound, inf)

    def at_most(self, terms: Iterable[Term], bound: float) -> None:
        self._add(terms, -inf, bound)

    def equal(self, terms: Iterable[Term], value: float) -> None:
        self._add(terms, value, value)

    def holds(self, values: Sequence[float], tolerance: float = 1e-6) -> bool:
        """Whether values are a feasible point, rows and bounds to a tolerance relative to their size."""
        for value, lower, upper in zip(values, self.lower, self.upper, strict=True):
            if not lower - tolerance <= value <= upper + tolerance:
                return False
        for row in self.rows:
            parts = [coefficient * values[column] for column, coefficient in row.terms]
            slack = tolerance * max(1.0, *map(abs, parts))
            if not row.lower - slack <= sum(parts) <= row.upper + slack:
                return False
        return not self.contradictory

    def _add(self, terms: Iterable[Term], lower: float, upper: float) -> None:
        if merged := _merged(terms):
            self.rows.append(Row(terms=merged, lower=lower, upper=upper))
        elif not lower <= 0 <= upper:
            self.contradictory = True


def _merged(terms: Iterable[Term]) -> list[Term]:
    """One term per column: solvers disagree on what a repeated column means."""
    total: dict[int, float] = {}
    for column, coefficient in terms:
        total[column] = total.get(column, 0.0) + coefficient
    return [(column, coefficient) for column, coefficient in total.items() if coefficient != 0.0]
