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
    lines = [
        _line("add", item.offer, item.mean_count, item.paid_hours_per_needed_hour)
        for item in fleet.instances
        if id(item.offer) not in held
    ]
    for key, holding in held.items():
        kept = sum((item.mean_count for item in fleet.instances if id(item.offer) == key), Decimal(0))
        if kept:
            lines.append(_line("keep", holding.offer, kept, Decimal(0)))
        if kept < holding.running:
            lines.append(_line("end", holding.offer, holding.running - kept, Decimal(-1)))
    return tuple(sorted(lines, key=lambda line: (_ORDER[line.kind], line.offer.key)))


def _line(kind: ChangeKind, offer: Offer, count: Decimal, times: Decimal) -> Change:
    """`times` the price of the average count is what changes per month."""
    whole = int(count.to_integral_value(rounding=ROUND_CEILING))
    return Change(kind=kind, offer=offer, count=whole, usd_per_month=times * count * offer.usd_per_month)
