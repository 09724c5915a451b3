"""Turns replicas of several sizes into the units that hold them: by counting where that is enough."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise


def counting_is_exact(sizes: Iterable[int], unit: int) -> bool:
    """Whether sum of sizes <= unit x units already means that the replicas fit on the units.

    True if each size divides the next larger one and the largest divides the unit: largest first, every replica then
    ends where the next can start, so free accelerators are never in pieces too small.
    """
    ordered = sorted(set(sizes))
    return all(large % small == 0 for small, large in pairwise([*ordered, unit]))


@cache
def patterns(sizes: tuple[int, ...], unit: int) -> tuple[tuple[int, ...], ...]:
    """Every maximal way to fill one unit: how many replicas of each size, such that none more fits."""
    ordered = tuple(sorted(sizes, reverse=True))

    def fill(index: int, free: int) -> list[tuple[int, ...]]:
        if index == len(ordered):
            return [()] if not ordered or free < min(ordered) else []
        size = ordered[index]
        return [
            (count, *rest) for count in range(free // size, -1, -1) for rest in fill(index + 1, free - count * size)
        ]

    place = [ordered.index(size) for size in sizes]
    return tuple(tuple(pattern[position] for position in place) for pattern in fill(0, unit))


def fits(replicas: Mapping[int, int], unit: int, units: int) -> bool:
    """Whether `replicas` by size fit on so many units: exact, by counting, by largest-first, or by trying all ways."""
    present = {size: count for size, count in sorted(replicas.items()) if count}
    if sum(size * count for size, count in present.items()) > unit * units:
        return False
    if counting_is_exact(present, unit):
        return True
    if len(pack([(size, size, count) for size, count in present.items()], unit)) <= units:
        return True
    return len(present) > 1 and _fits_some_way(tuple(present), tuple(present.values()), unit, units)


@cache
def _fits_some_way(sizes: tuple[int, ...], counts: tuple[int, ...], unit: int, units: int) -> bool:
    if not any(counts):
        return True
    if sum(size * count for size, count in zip(sizes, counts, strict=True)) > unit * units:
        return False
    lefts = {
        tuple(max(0, count - slots) for count, slots in zip(counts, pattern, strict=True))
        for pattern in patterns(sizes, unit)
    }
    return any(left != counts and _fits_some_way(sizes, left, unit, units - 1) for left in sorted(lefts))


def pack(items: Iterable[tuple[object, int, int]], unit: int) -> list[dict[object, int]]:
    """Put (key, size, count) largest first, each into the fullest unit that has room: content of each unit by key."""
    open_units: dict[int, list[dict[object, int]]] = {}
    filled: list[dict[object, int]] = []
    for key, size, count in sorted(items, key=lambda item: -item[1]):
        for _ in range(count):
            free = min((room for room, units in open_units.items() if units and room >= size), default=None)
            if free is None:
                content: dict[object, int] = {}
                filled.append(content)
                free = unit
            else:
                content = open_units[free].pop()
            content[key] = content.get(key, 0) + 1
            open_units.setdefault(free - size, []).append(content)
    return filled


def pack_by_patterns(
    items: Sequence[tuple[object, int, int]], chosen: Mapping[tuple[int, ...], int], sizes: Sequence[int]
) -> list[dict[object, int]]:
    """Fill units by the patterns that the program chose; slots that no replica needs stay empty."""
    waiting: dict[int, list[tuple[object, int]]] = {size: [] for size in sizes}
    for key, size, count in items:
        if count:
            waiting[size].append((key, count))
    filled = []
    for pattern, count in sorted(chosen.items(), reverse=True):
        for _ in range(count):
            content: dict[object, int] = {}
            for size, slots in zip(sizes, pattern, strict=True):
                _take(waiting[size], slots, content)
            filled.append(content)
    return filled


def _take(waiting: list[tuple[object, int]], slots: int, content: dict[object, int]) -> None:
    while slots and waiting:
        key, count = waiting.pop()
        taken = min(slots, count)
        content[key] = content.get(key, 0) + taken
        slots -= taken
        if count > taken:
            waiting.append((key, count - taken))
