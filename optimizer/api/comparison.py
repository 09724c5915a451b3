"""Turns what `compare` is asked with into the need, and the ways to meet it side by side."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from optimizer.api import choices, market_view, values
from optimizer.api.clock import now, today
from optimizer.api.sources import Source, read_text
from optimizer.report.capacity import HeldAccelerators, Need, ServedWorkload
from optimizer.report.comparison import Comparison, Wanted, comparison
from optimizer.report.extras import Extras, parse_extras
from optimizer.workload.workload import (
    DEFAULT_SHAPE,
    DEFAULT_SLO,
    SLO,
    InferenceWorkload,
    RequestShape,
    ShapeDemand,
)
from providers.accelerators import matches
from providers.errors import UsageError
from providers.offers import PurchaseOption

if TYPE_CHECKING:
    from optimizer.report.quotes import Quote


_OF_A_MODEL: Final = frozenset({"input_tokens", "output_tokens", "context", "ttft_ms", "tpot_ms", "precision"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareArguments:
    """What is wanted: a field for each flag of `costopt compare` that says so, under its name.

    Several words of a repeatable flag are a list; None where nothing was said.
    """

    model: str | None = None
    rate: float | None = None
    input_tokens: int = DEFAULT_SHAPE.input_tokens
    output_tokens: int = DEFAULT_SHAPE.output_tokens
    context: int | None = None
    ttft_ms: float = DEFAULT_SLO.ttft_ms
    tpot_ms: float = DEFAULT_SLO.tpot_ms
    precision: Sequence[str] | None = None
    count: int | None = None
    hours: float | None = None
    provider: Sequence[str] | None = None
    region: Sequence[str] | None = None
    gpu: Sequence[str] | None = None
    purchase: Sequence[str] | None = None
    include: Sequence[str] | None = None
    quotes: Source | None = None
    costs: Source | None = None
    as_of: str | None = None
    max_age: str = values.MAX_AGE
    offline: bool = False

    def __post_init__(self) -> None:
        values.check_whole_numbers(self)

    @property
    def job_hours(self) -> Decimal | None:
        """Hours of the one job; None for capacity that is always on. Raises InvalidValue."""
        return None if self.hours is None else Decimal(repr(values.hours("--hours", self.hours)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Needed:
    """What must be had, and what it costs beside the accelerators; `hosted` is the model whose token prices count."""

    title: str
    need: Need
    hosted: str | None
    extras: Extras


def needed(wanted: CompareArguments, given: Iterable[str]) -> Needed:
    """Accelerators, or a served model. Raises UsageError where neither is said, or both are.

    Of the `given` parameters none may speak of a served model where accelerators are wanted.
    """
    if wanted.count is not None:
        for name in given:
            if name in _OF_A_MODEL:
                raise UsageError(
                    f"{values.flag_of(name)} has no effect on --count: it is of a served model; leave it out"
                )
        title, need, hosted = _accelerators(wanted, wanted.count)
    else:
        title, need, hosted = _served_model(wanted)
    return Needed(title=title, need=need, hosted=hosted, extras=_extras(wanted.costs))


def comparison_of(wanted: CompareArguments, what: Needed) -> tuple[Comparison, int]:
    """The ways to meet the need, and how many offers pass the filters. Raises UsageError, NoUsablePrices."""
    job = wanted.job_hours
    market = market_view.load(
        market_view.MarketView(
            providers=choices.providers(wanted.provider),
            regions=frozenset(wanted.region or ()),
            gpus=tuple(wanted.gpu or ()),
            purchase_options=choices.purchase_options(wanted.purchase)
            if wanted.purchase
            else frozenset(PurchaseOption),
            include=tuple(wanted.include or ()),
            as_of=values.past_day("--as-of", wanted.as_of, today()),
            offline=wanted.offline,
        )
    )
    found = comparison(
        Wanted(
            title=what.title,
            need=what.need,
            offers=market.eligible,
            quotes=_quotes(wanted.quotes, what.extras),
            extras=what.extras,
            now=now(),
            model=what.hosted,
            hours=job,
            accelerators=choices.accelerators(wanted.gpu)[0],
            stale_days=int(values.duration_hours("--max-age", wanted.max_age) / 24),
            assumptions=market.remarks,
            warnings=market.warnings,
        )
    )
    return found, len(market.eligible)


def _accelerators(wanted: CompareArguments, count: int) -> tuple[str, Need, str | None]:
    if wanted.model or wanted.rate is not None:
        raise UsageError("--count compares accelerators, --model and --rate a served model: give one of them")
    names = list(wanted.gpu or ())
    if len(names) != 1:
        raise UsageError("--count needs one --gpu, like --gpu H100-SXM5-80GB --count 16")
    variants = matches(names[0])
    if len(variants) > 1:
        listed = ", ".join(variant.name for variant in variants)
        raise UsageError(f"--gpu {names[0]} means {listed}: name one, they are not the same")
    return f"{count} x {variants[0].name}", HeldAccelerators(variants[0], count), None


def _served_model(wanted: CompareArguments) -> tuple[str, Need, str | None]:
    if not wanted.model or wanted.rate is None:
        raise UsageError(
            "nothing to compare: give --model with --rate, like --model 70B --rate 5, or --gpu with --count"
        )
    architecture = choices.architecture(wanted.model)
    shape = RequestShape(input_tokens=wanted.input_tokens, output_tokens=wanted.output_tokens)
    workload = InferenceWorkload(
        name="workload",
        model=wanted.model,
        demands=(ShapeDemand(shape=shape, requests_per_s=values.rate("--rate", wanted.rate)),),
        slo=SLO(ttft_ms=wanted.ttft_ms, tpot_ms=wanted.tpot_ms),
        precisions=choices.precisions(wanted.precision),
        context_tokens=wanted.context,
    )
    title = (
        f"{architecture.hf_id} at {wanted.rate:g} requests/s of {shape.input_tokens:,} + {shape.output_tokens:,} tokens"
    )
    return title, ServedWorkload(workload, architecture), architecture.hf_id


def _extras(source: Source | None) -> Extras:
    from optimizer.workload.workload_file import MAX_BYTES

    return Extras() if source is None else parse_extras(read_text(source, "costs file", MAX_BYTES), str(source))


def _quotes(source: Source | None, extras: Extras) -> "tuple[Quote, ...]":
    if source is None:
        return ()
    from optimizer.report.quotes import parse_quotes

    return parse_quotes(read_text(source, "quotes file", market_view.MAX_FILE_BYTES), str(source), extras.rates)
