"""Groups offers into pools: units of one hardware class between which no limit and no workload can tell.

Replicas are counted per pool, so the program has one integer per candidate and pool, not one per candidate and offer.
"""

from collections.abc import Callable
from dataclasses import dataclass

from optimizer.program.problem import Problem, ProgramOffer
from providers.errors import InvalidValue

Place = tuple[str, str | None]
"""Provider and region: region ids are unique only within their provider."""

PoolKey = tuple[str, str, Place, bool, frozenset[str]]
"""Hardware, provider, place, spot, eligible workloads; "" or ("", None) where the problem does not tell them apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """Offers that serve alike, cheapest first."""

    hardware: str
    provider: str
    place: Place
    spot: bool
    eligible: frozenset[str]
    accelerators_per_unit: int
    offers: tuple[ProgramOffer, ...]


def pools_of(problem: Problem) -> tuple[Pool, ...]:
    """The problem's pools, in an order that does not depend on the order of its offers."""
    key_of = pool_key(problem)
    members: dict[PoolKey, list[ProgramOffer]] = {}
    for offer in sorted(problem.offers, key=preference(problem)):
        members.setdefault(key_of(offer), []).append(offer)
    pools = [
        Pool(
            hardware=key[0],
            provider=key[1],
            place=key[2],
            spot=key[3],
            eligible=key[4],
            accelerators_per_unit=_common_size(offers),
            offers=tuple(offers),
        )
        for key, offers in members.items()
    ]
    return tuple(sorted(pools, key=lambda pool: (pool.hardware, pool.offers[0].id)))


def pool_key(problem: Problem) -> Callable[[ProgramOffer], PoolKey]:
    """What the problem's limits and workloads can tell apart in an offer, as a key."""
    limits, workloads = problem.limits, problem.workloads
    by_place = any(workload.same_region or workload.minimum_replicas_by_region for workload in workloads)
    by_provider = by_place or limits.min_providers > 1 or _binds(limits.max_provider_share)
    by_spot = (
        _binds(limits.max_spot_share)
        or problem.spot_margin > 0
        or any(not workload.spot_allowed for workload in workloads)
    )
    known: dict[tuple[str | None, bool], frozenset[str]] = {}

    def key_of(offer: ProgramOffer) -> PoolKey:
        spot = offer.is_spot
        eligible = known.get((offer.region, spot))
        if eligible is None:
            eligible = known[offer.region, spot] = frozenset(
                workload.id
                for workload in workloads
                if (workload.regions is None or offer.region in workload.regions)
                and (workload.spot_allowed or not spot)
            )
        return (
            offer.hardware,
            offer.provider if by_provider else "",
            (offer.provider, offer.region) if by_place else ("", None),
            spot and by_spot,
            eligible,
        )

    return key_of


def preference(problem: Problem) -> Callable[[ProgramOffer], tuple[object, ...]]:
    """The order in which equal units are taken: price, then what already runs, then (provider, region, name)."""

    def order(offer: ProgramOffer) -> tuple[object, ...]:
        price = problem.effective_usd_per_hour(offer)
        return (price, -offer.running, offer.provider, offer.region or "", offer.instance_type, offer.id)

    return order


def _binds(share: float | None) -> bool:
    return share is not None and share < 1


def _common_size(offers: list[ProgramOffer]) -> int:
    sizes = {offer.accelerators_per_unit for offer in offers}
    if len(sizes) != 1:
        raise InvalidValue(
            f"accelerators per unit of {offers[0].hardware}", sorted(sizes), "one hardware class, one size"
        )
    return sizes.pop()
