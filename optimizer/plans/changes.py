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

    What stays changes nothing but for the hours in which it is not needed; an added instance adds its price, an ended
    one saves it. Committed instances stay.
    """
    held = {id(holding.offer): holding for holding in holdings}
    lines = [
        _line("add", item.offer, _whole(item.mean_count), item.mean_count * item.paid_hours_per_needed_hour)
        for item in fleet.instances
        if id(item.offer) not in held
    ]
    for key, holding in held.items():
        kept = sum((item.mean_count for item in fleet.instances if id(item.offer) == key), Decimal(0))
        staying = min(_whole(kept), holding.running)
        if staying:
            lines.append(_line("keep", holding.offer, staying, kept - staying))
        if staying < holding.running:
            lines.append(_line("end", holding.offer, holding.running - staying, Decimal(staying - holding.running)))
    return tuple(sorted(lines, key=lambda line: (_ORDER[line.kind], line.offer.key)))


def _whole(count: Decimal) -> int:
    return int(count.to_integral_value(rounding=ROUND_CEILING))


def _line(kind: ChangeKind, offer: Offer, count: int, more: Decimal) -> Change:
    """`more` is how many instances are paid for in an average hour beyond those of today."""
    return Change(kind=kind, offer=offer, count=count, usd_per_month=more * offer.usd_per_month)
