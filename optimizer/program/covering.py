"""Solves the program's simplest form exactly without a solver: unlimited kinds of unit, one demand, no further limits.

Then the program is a covering knapsack, or with a budget an unbounded knapsack, over the kinds of unit. Depth-first
branch and bound with the linear bound takes well under a millisecond for the few kinds that dominance leaves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf
from typing import Final

_MAX_NODES: Final = 20_000
_SEARCHED_UNITS: Final = 1000
"""Units up to which the search is exact; beyond, the answer is at most one unit in so many from the best."""
_TOLERANCE: Final = 1e-9
"""Relative slack of the comparisons, far below the precision of any price or capacity."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of unit that can be bought in any number: its price and what one serves."""

    price: float
    capacity: float


Counts = tuple[int, ...]


def cheapest_cover(kinds: Sequence[Kind], demand: float) -> Counts | None:
    """Counts n >= 0 with sum(capacity n) >= demand and the least sum(price n); None if the search grows too large.

    Of a demand beyond _SEARCHED_UNITS of the kind with the best price per capacity, all but the last so many are of
    that kind; the rest is searched. Raises ValueError when no kind has capacity.
    """
    if not any(kind.capacity > 0 for kind in kinds):
        raise ValueError("no kind has capacity")
    order = _undominated(kinds)
    best = kinds[order[0]]
    before = max(0, floor(demand / best.capacity) - _SEARCHED_UNITS)
    search = _Cover([kinds[i] for i in order], demand - before * best.capacity)
    return _spread(search.run(), order, len(kinds), before)


def largest_cover(kinds: Sequence[Kind], budget: float) -> Counts | None:
    """Counts n >= 0 with sum(price n) <= budget and the most sum(capacity n), of those the cheapest; as above."""
    order = _undominated([kind if kind.price <= budget * (1 + _TOLERANCE) else Kind(inf, 0.0) for kind in kinds])
    if not order:
        return (0,) * len(kinds)
    best = kinds[order[0]]
    before = max(0, floor(budget / best.price) - _SEARCHED_UNITS)
    search = _Fill([kinds[i] for i in order], budget - before * best.price)
    return _spread(search.run(), order, len(kinds), before)


def _undominated(kinds: Sequence[Kind]) -> list[int]:
    """Indices of kinds that no whole number of another replaces at no higher price, best price per capacity first.

    Exact for both forms: j of the other in the place of one serve as much and cost no more.
    """
    useful = [i for i, kind in enumerate(kinds) if kind.capacity > 0 and kind.price < inf]
    useful.sort(key=lambda i: (kinds[i].price / kinds[i].capacity, kinds[i].price, i))
    kept: list[int] = []
    for i in useful:
        mine = kinds[i]
        for j in kept:
            copies = ceil(mine.capacity / kinds[j].capacity * (1 - _TOLERANCE))
            if copies * kinds[j].price <= mine.price * (1 + _TOLERANCE):
                break
        else:
            kept.append(i)
    return kept


def _spread(counts: list[int] | None, order: Sequence[int], size: int, before: int) -> Counts | None:
    """Counts by the caller's index, with the units of the best kind that were taken before the search."""
    if counts is None:
        return None
    spread = [0] * size
    for index, count in zip(order, counts, strict=True):
        spread[index] = count
    spread[order[0]] += before
    return tuple(spread)


class _Cover:
    """Least price that covers a demand; kinds come with the best price per capacity first."""

    def __init__(self, kinds: Sequence[Kind], demand: float) -> None:
        self.kinds = kinds
        self.demand = demand
        self.best_price = inf
        self.best: list[int] = []
        self.counts = [0] * len(kinds)
        self.nodes = 0

    def run(self) -> list[int] | None:
        self._descend(0, self.demand * (1 - _TOLERANCE), 0.0)
        return None if self.nodes > _MAX_NODES else self.best

    def _descend(self, index: int, missing: float, price: float) -> None:
        """Bound: what is missing costs at least the best remaining price per capacity."""
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            return
        if missing <= 0:
            if price < self.best_price:
                self.best_price, self.best = price, self.counts.copy()
            return
        if index == len(self.kinds):
            return
        kind = self.kinds[index]
        if price + missing * kind.price / kind.capacity >= self.best_price * (1 - _TOLERANCE):
            return
        for count in range(ceil(missing / kind.capacity), -1, -1):
            if self.nodes > _MAX_NODES:
                return
            self.counts[index] = count
            self._descend(index + 1, missing - count * kind.capacity, price + count * kind.price)
        self.counts[index] = 0


class _Fill:
    """Most capacity within a budget; kinds come with the best price per capacity first."""

    def __init__(self, kinds: Sequence[Kind], budget: float) -> None:
        self.kinds = kinds
        self.budget = budget * (1 + _TOLERANCE)
        self.best_capacity = 0.0
        self.best_price = 0.0
        self.counts = [0] * len(kinds)
        self.best = self.counts.copy()
        self.nodes = 0

    def run(self) -> list[int] | None:
        self._descend(0, self.budget, 0.0)
        return None if self.nodes > _MAX_NODES else self.best

    def _descend(self, index: int, left: float, capacity: float) -> None:
        """Bound: what is left buys at most the best remaining capacity per price."""
        self.nodes += 1
        if self.nodes > _MAX_NODES:
            return
        better = capacity > self.best_capacity * (1 + _TOLERANCE)
        as_good = capacity > self.best_capacity * (1 - _TOLERANCE) and self.budget - left < self.best_price
        if better or as_good:
            self.best_capacity, self.best_price, self.best = capacity, self.budget - left, self.counts.copy()
        if index == len(self.kinds):
            return
        kind = self.kinds[index]
        if capacity + left * kind.capacity / kind.price < self.best_capacity * (1 - _TOLERANCE):
            return
        for count in range(floor(left / kind.price), -1, -1):
            if self.nodes > _MAX_NODES:
                return
            self.counts[index] = count
            self._descend(index + 1, left - count * kind.price, capacity + count * kind.capacity)
        self.counts[index] = 0
