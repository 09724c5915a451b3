"""Turns a solved choice into the reasons for each purchase: kept, by the hour or spot, and from which use each pays."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from optimizer.plans.plan import PurchaseReason
from optimizer.program.problem import Problem, ProgramOffer, Solution
from optimizer.program.reasons import break_even_share


@dataclass(frozen=True, slots=True)
class _Use:
    """Of one offer: units needed in each period, those kept, and those bought by the period."""

    offer: ProgramOffer
    needed: tuple[int, ...]
    kept: int
    bought: tuple[int, ...]


def purchase_reasons(problem: Problem, solution: Solution) -> tuple[PurchaseReason, ...]:
    """One reason for each offer that is kept and for each that is bought by the period, dearest first.

    Break-even: price kept / price by the hour, the share of hours from which keeping pays; `used_share` is the share
    of hours in which the unit that is used least is used. Rivals are of the same hardware.
    """
    rivals: dict[str, list[ProgramOffer]] = {}
    for offer in problem.offers:
        rivals.setdefault(offer.hardware, []).append(offer)
    found: list[PurchaseReason] = []
    for use in _uses(problem, solution):
        others = [offer for offer in rivals[use.offer.hardware] if offer.id != use.offer.id and offer.maximum != 0]
        if use.kept:
            found.append(_kept(problem, use, others))
        if any(use.bought):
            found.append(_by_period(problem, use, others))
    return tuple(sorted(found, key=lambda one: (-one.usd_per_hour * one.count, one.instance_type, one.region or "")))


def _uses(problem: Problem, solution: Solution) -> Iterable[_Use]:
    size = {candidate.id: candidate.accelerators_per_replica for candidate in problem.candidates}
    taken: dict[tuple[str, str], int] = {}
    for placement in solution.placements:
        key = (placement.offer, placement.period)
        taken[key] = taken.get(key, 0) + placement.replicas * size[placement.candidate]
    for offer in problem.offers:
        bought = tuple(solution.bought.get((offer.id, period.id), 0) for period in problem.periods)
        kept = solution.kept.get(offer.id, 0)
        if kept or any(bought):
            needed = tuple(
                ceil(taken.get((offer.id, period.id), 0) / offer.accelerators_per_unit) for period in problem.periods
            )
            yield _Use(offer, needed, kept, bought)


def _kept(problem: Problem, use: _Use, others: Sequence[ProgramOffer]) -> PurchaseReason:
    used = _share(problem, [needed >= use.kept for needed in use.needed])
    if use.offer.committed >= use.kept:
        return _reason(problem, use, "committed", use.kept, used, None, None, "committed already: paid in every case")
    if use.offer.is_spot:
        return _spot(problem, use, others, use.kept)
    hourly = _cheapest(problem, (offer for offer in others if offer.by_period and not offer.is_spot))
    if use.offer.by_period:
        longer = _cheapest(problem, (offer for offer in others if not offer.by_period))
        if longer is None:
            text = "runs in every hour; nothing on offer that binds for a term is of the same hardware"
            return _reason(problem, use, "always_on", use.kept, used, None, None, text)
        share = break_even_share(problem, longer, use.offer)
        text = f"runs in every hour; {_named(longer)} would {_pay(share)}"
        return _reason(problem, use, "always_on", use.kept, used, share, longer, text)
    if hourly is None:
        text = "bound for a term; nothing on offer by the hour is of the same hardware"
        return _reason(problem, use, "term", use.kept, used, None, None, text)
    share = break_even_share(problem, use.offer, hourly)
    text = f"against {_named(hourly)} by the hour it will {_pay(share)}; it is used {used:.0%} of the time"
    return _reason(problem, use, "term", use.kept, used, share, hourly, text)


def _by_period(problem: Problem, use: _Use, others: Sequence[ProgramOffer]) -> PurchaseReason:
    most = max(use.bought)
    used = _share(problem, [count > 0 for count in use.bought])
    if use.offer.is_spot:
        return _spot(problem, use, others, most)
    kept = _cheapest(problem, (offer for offer in (*others, use.offer) if not offer.is_spot))
    if kept is None or kept is use.offer:
        text = f"by the hour: the busiest of them runs {used:.0%} of the time, keeping it would pay from 100% on"
        return _reason(problem, use, "by_the_hour", most, used, 1.0, use.offer, text)
    share = break_even_share(problem, kept, use.offer)
    text = f"by the hour: the busiest of them runs {used:.0%} of the time, {_named(kept)} would {_pay(share)}"
    return _reason(problem, use, "by_the_hour", most, used, share, kept, text)


def _spot(problem: Problem, use: _Use, others: Sequence[ProgramOffer], units: int) -> PurchaseReason:
    used = _share(problem, [use.kept + more > 0 for more in use.bought])
    hourly = _cheapest(problem, (offer for offer in others if not offer.is_spot and offer.by_period))
    firm = hourly or _cheapest(problem, (offer for offer in others if not offer.is_spot))
    if firm is None:
        text = "spot; nothing else on offer is of the same hardware"
        return _reason(problem, use, "spot", units, used, None, None, text)
    price = problem.effective_usd_per_hour(use.offer) / (1 - problem.spot_margin)
    against = problem.effective_usd_per_hour(firm)
    text = f"spot at {price:,.4f} USD per hour that is not interrupted, against {against:,.4f} of {_named(firm)}"
    return _reason(problem, use, "spot", units, used, price / against, firm, text)


def _pay(share: float) -> str:
    return f"pay from {share:.0%} use on" if share <= 1 else "not pay at its price, whatever the use"


def _reason(
    problem: Problem,
    use: _Use,
    kind: str,
    units: int,
    used: float,
    break_even: float | None,
    against: ProgramOffer | None,
    text: str,
) -> PurchaseReason:
    offer = use.offer
    return PurchaseReason(
        kind=kind,
        provider=offer.provider,
        instance_type=offer.instance_type,
        region=offer.zone or offer.region,
        purchase_option=offer.purchase_option,
        count=units * offer.instances_per_unit,
        usd_per_hour=problem.effective_usd_per_hour(offer) / offer.instances_per_unit,
        used_share=used,
        break_even_share=None if break_even == inf else break_even,
        against=None if against is None else _named(against),
        text=text,
    )


def _share(problem: Problem, holds: Sequence[bool]) -> float:
    """Share of the hours in which something holds."""
    return sum(period.hours for period, held in zip(problem.periods, holds, strict=True) if held) / problem.cycle_hours


def _cheapest(problem: Problem, offers: Iterable[ProgramOffer]) -> ProgramOffer | None:
    ranked: Mapping[tuple[float, str], ProgramOffer] = {
        (problem.effective_usd_per_hour(offer), offer.id): offer for offer in offers
    }
    return ranked[min(ranked)] if ranked else None


def _named(offer: ProgramOffer) -> str:
    place = offer.zone or offer.region or "any region"
    return f"{offer.provider} {offer.instance_type} ({place}, {offer.purchase_option})"
