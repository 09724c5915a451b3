"""Turns today's instances and a plan into what to keep, add and end, and what each change costs or saves."""

from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from typing import Final

from optimizer.plans.market import Holding
from optimizer.plans.plan import Change, ChangeKind, Fleet
from providers.offers import Offer

_ORDER: Final = {"keep": 0, "add": 1, "end": 2}


def changes(fleet: Fleet, holdings: Iterable[Holding]) -> tuple[Change, ...]:
    """One line for what stays, is added and is ended of each offer; counts are those of an average hour, rounded up.

    What stays changes nothing; an added instance adds its price, an ended one saves it. Committed instances stay.
    """
    held = {id(holding.offer): holding for holding in holdings}
    planned: dict[int, tuple[Offer, Decimal]] = {}
    for item in fleet.instances:
        before = planned.get(id(item.offer), (item.offer, Decimal(0)))[1]
        planned[id(item.offer)] = (item.offer, before + item.mean_count)
    lines = [_line("add", offer, count, 1) for key, (offer, count) in planned.items() if key not in held]
    for key, holding in held.items():
        kept = planned[key][1] if key in planned else Decimal(0)
        if kept:
            lines.append(_line("keep", holding.offer, kept, 0))
        if kept < holding.running:
            lines.append(_line("end", holding.offer, holding.running - kept, -1))
    return tuple(sorted(lines, key=lambda line: (_ORDER[line.kind], line.offer.key)))


def _line(kind: ChangeKind, offer: Offer, count: Decimal, sign: int) -> Change:
    whole = int(count.to_integral_value(rounding=ROUND_CEILING))
    return Change(kind=kind, offer=offer, count=whole, usd_per_month=sign * count * offer.usd_per_month)
