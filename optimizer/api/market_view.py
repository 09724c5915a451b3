"""Turns market flags into the offers that may be bought, and those that other flags would add."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

from optimizer.api import values
from optimizer.api.choices import UNCALIBRATED, accelerators, includes, not_on_demand
from optimizer.api.sources import Source, read_text
from optimizer.plans.market import Holding, Terms
from optimizer.plans.planner import Pool
from optimizer.program.problem import Quota
from optimizer.sizing.calibration import is_calibrated
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from pricing_cache.query import (
    Filters,
    Selection,
    check_names,
    current_offers,
    only_when_asked_for,
    other_option,
    select,
)
from providers.accelerators import Accelerator, catalogue
from providers.errors import InvalidValue
from providers.offers import Offer, PurchaseOption, Trait
from providers.units import MINUTES_PER_HOUR

_FEW_WORKLOADS = 5
_MEDIUM_GAP = 0.001
_LARGE_GAP = 0.01
MAX_FILE_BYTES = 2_000_000
UNCALIBRATED_REASON = "accelerator without calibration, only taken when asked for"
_TRAIT_NOTES: Mapping[Trait, str] = {
    Trait.COMMUNITY: "hosts that the provider does not answer for",
    Trait.ARM64: "arm64 hosts: images must be built for them",
}
_OPTION_NOTES: Mapping[PurchaseOption, str] = {
    PurchaseOption.ON_DEMAND: "by the hour, without a term",
    PurchaseOption.SPOT: "can be taken away at short notice",
    PurchaseOption.RESERVED_1Y: "bound for one year",
    PurchaseOption.RESERVED_3Y: "bound for three years",
    PurchaseOption.CAPACITY_BLOCK: "for a fixed stretch of days, booked ahead",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MarketView:
    """The market flags as given."""

    providers: frozenset[str]
    regions: frozenset[str]
    gpus: tuple[str, ...]
    purchase_options: frozenset[PurchaseOption]
    include: tuple[str, ...]
    as_of: date | None = None
    offline: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """What may be bought, how many offers are on file, why the others may not, and what other flags would add."""

    eligible: Sequence[Offer]
    all_on_file: Sequence[Offer]
    rejections: Mapping[str, int]
    pools: Sequence[Pool]
    remarks: tuple[str, ...]
    warnings: tuple[str, ...]


def load(view: MarketView, *, calibrated: Callable[[Accelerator], bool] = is_calibrated) -> Offers:
    """Reads the offers on file through the view. Raises UnknownName for names that nothing on file has."""
    names, remarks = accelerators(view.gpus)
    traits, uncalibrated = includes(view.include)
    filters = Filters(
        providers=view.providers,
        regions=view.regions,
        accelerators=names,
        purchase_options=view.purchase_options,
        traits=traits,
        excluded_accelerators={} if uncalibrated else _uncalibrated(calibrated),
    )
    book = current_offers(as_of=view.as_of, offline=view.offline)
    check_names(book, filters)
    selection = select(book.offers, filters)
    return Offers(
        eligible=selection.offers,
        all_on_file=book.offers,
        rejections=selection.rejections,
        pools=tuple(_pools(selection, filters)),
        remarks=remarks,
        warnings=(
            *book.header.get("warnings", ()),
            *not_on_demand(view.providers, names, view.purchase_options),
        ),
    )


def terms(*, boot_minutes: float, spot_margin: float, horizon: str | None) -> Terms:
    """How capacity is bought and lost. Raises InvalidValue."""
    margin = values.share("--spot-margin", spot_margin, zero=True) or 0.0
    if margin == 1:
        raise InvalidValue("--spot-margin", spot_margin, "give a share below 1")
    hours = None if horizon is None else values.duration_hours("--horizon", horizon, months=True)
    return Terms(boot_hours=boot_minutes / MINUTES_PER_HOUR, spot_margin=margin, horizon_hours=hours)


def assumed_terms(
    view: MarketView,
    pairs: Sequence[tuple[InferenceWorkload, Architecture]],
    *,
    boot_minutes: float,
    spot_margin: float,
    horizon: str | None,
) -> Iterator[str]:
    """What is assumed of buying by the hour, of spot and of the need's length, where the plan can use either."""
    if horizon is not None:
        yield (
            f"the need lasts {horizon}: commitments are paid for whole terms, the last one to its end, within that time"
        )
    if any(workload.profile for workload, _ in pairs):
        yield f"an instance bought by the hour is paid for {boot_minutes:g} minutes before it serves"
    if PurchaseOption.SPOT in view.purchase_options:
        yield f"{spot_margin:.0%} of spot capacity is taken as lost to interruptions"


def usual_gap(pairs: Sequence[tuple[InferenceWorkload, Architecture]]) -> float:
    """The gap at which the solver may stop where none is asked for: 0, unless workloads or hours make it large."""
    by_hour = any(workload.profile for workload, _ in pairs)
    if by_hour and sum(len(workload.demands) for workload, _ in pairs) > 1:
        return _LARGE_GAP
    return _MEDIUM_GAP if by_hour or len(pairs) > _FEW_WORKLOADS else 0.0


def assumed_gap(gap: float) -> Iterator[str]:
    """What is said of a gap above 0."""
    if gap > 0:
        yield f"the solver may stop at a proven gap of {gap:.2%}; --gap 0 asks for the optimum"


def quotas(path: Source | None) -> tuple[Quota, ...]:
    """The limits of a quota file."""
    if path is None:
        return ()
    from optimizer.plans.market_files import parse_quotas

    return parse_quotas(read_text(path, "quota file", MAX_FILE_BYTES), str(path))


def holdings(path: Source | None, offers: Sequence[Offer]) -> tuple[Holding, ...]:
    """What runs today, of a file."""
    if path is None:
        return ()
    from optimizer.plans.market_files import parse_current

    return parse_current(read_text(path, "file of running instances", MAX_FILE_BYTES), str(path), offers)


def _uncalibrated(calibrated: Callable[[Accelerator], bool]) -> dict[str, str]:
    return {a.name: UNCALIBRATED_REASON for a in catalogue().values() if not calibrated(a)}


def _pools(selection: Selection, filters: Filters) -> Iterator[Pool]:
    """A pool for each purchase option, and each kind of machine, that was left out unasked."""
    for option, note in _OPTION_NOTES.items():
        found = selection.left_out.get(other_option(option), ())
        offers = select(found, replace(filters, purchase_options=frozenset({option}))).offers
        flag = f"--purchase {option.replace('_', '-')}"
        yield Pool(kind="purchase_option", name=option, flag=flag, offers=offers, note=note)
    for trait, note in _TRAIT_NOTES.items():
        wider = replace(filters, traits=filters.traits | {trait})
        yield _wider_pool(selection, only_when_asked_for(trait), wider, name=trait, note=note)
    note = "no published measurements to calibrate the estimate on"
    wider = replace(filters, excluded_accelerators={})
    yield _wider_pool(selection, UNCALIBRATED_REASON, wider, name=UNCALIBRATED, note=note)


def _wider_pool(selection: Selection, reason: str, wider: Filters, *, name: str, note: str) -> Pool:
    """The offers that pass and those that wider filters add; empty where they add none."""
    added = select(selection.left_out.get(reason, ()), wider).offers
    offers = (*selection.offers, *added) if added else ()
    return Pool(kind="include", name=name, flag=f"--include {name}", offers=offers, note=note)
