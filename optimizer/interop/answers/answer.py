"""Turns what a file asks for into an answer: does it work, what does it cost, what would be cheaper."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from optimizer.interop.answers.buying import Bought, Market, bought, place_faults, wishes_of
from optimizer.interop.answers.serving import count_faults, layout_faults, model_faults, sized_service
from optimizer.interop.answers.training import SizedJob, cheapest_cluster, job_faults, sized_job
from optimizer.interop.asks import Ask, Fault, Wish
from optimizer.plans.plan import Fleet
from optimizer.plans.training_plan import ClusterChoice
from optimizer.sizing.serving import ServingEstimate
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand
from providers.accelerators import resolve
from providers.offers import Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

UTILIZATION: Final = 0.8
"""Part of a replica's capacity that is counted on, as plans do."""

Planner = Callable[[InferenceWorkload, Architecture, bool], Fleet | None]
"""The cheapest fleet for a workload, with or without spot; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is assumed of the requests, and of a training job that does not say its task or tokens."""

    shape: RequestShape
    slo: SLO
    market: Market
    trainable: tuple[Offer, ...] = ()
    """Offers that a training job may be moved to."""
    task: str | None = None
    tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of the accelerators that would do. `machines` instances run; costs are None where nothing sells it.

    `sized` is of a service, `job` of a training job; both None where it was not sized.
    """

    wish: Wish
    sized: ServingEstimate | None
    job: SizedJob | None
    offer: Offer | None
    machines: int
    requests_per_s: float | None
    faults: tuple[Fault, ...] = ()

    @property
    def verdict(self) -> str | None:
        """fits, tight or does_not_fit; None where it was not sized."""
        if self.job is not None:
            return self.job.estimate.memory.verdict
        return None if self.sized is None else self.sized.verdict

    @property
    def usd_per_hour(self) -> Decimal | None:
        return None if self.offer is None else self.offer.usd_per_hour * self.machines

    @property
    def usd_per_month(self) -> Decimal | None:
        hourly = self.usd_per_hour
        return None if hourly is None else hourly * HOURS_PER_MONTH

    @property
    def works(self) -> bool:
        """Whether it starts: it fits, and nothing fatal is wrong."""
        return self.verdict in ("fits", "tight") and not any(fault.fatal for fault in self.faults)

    @property
    def effort(self) -> Decimal | None:
        """What options are compared by: USD per hour of a service, per million tokens of a training job."""
        hourly = self.usd_per_hour
        return hourly if hourly is None or self.job is None else self.job.usd_per_million_tokens(hourly)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An ask with its options in the order of the file, and what does the same for the least: a fleet that serves as
    much as the cheapest option, or a cluster that trains as fast."""

    ask: Ask
    model: Architecture | None
    options: tuple[Option, ...]
    faults: tuple[Fault, ...]
    cheaper: Fleet | None = None
    cheaper_cluster: ClusterChoice | None = None

    @property
    def is_stopped(self) -> bool:
        """Whether something is wrong with all options; a name that is none leaves the file's other ones."""
        return any(fault.fatal for fault in self.faults if fault not in self.ask.faults)

    @property
    def works(self) -> bool:
        """Whether something works: one option of several is enough, and a fleet where the file leaves it open."""
        if self.options:
            return any(option.works for option in self.options) and not self.is_stopped
        return self.cheaper is not None and not any(fault.fatal for fault in self.faults)

    @property
    def cheapest(self) -> Option | None:
        """The cheapest option that works and has a price."""
        priced = [option for option in self.options if option.works and option.effort is not None]
        return min(priced, key=lambda option: option.effort or Decimal(0), default=None)

    @property
    def every_fault(self) -> tuple[Fault, ...]:
        """Those of the file and of its options, each once, in the order of their lines."""
        found = dict.fromkeys([*self.faults, *(fault for option in self.options for fault in option.faults)])
        return tuple(sorted(found, key=lambda fault: fault.line or 0))


def answer(ask: Ask, model: Architecture | None, question: Question, planner: Planner) -> Answer:
    """Sizes and prices every option of an ask. `model` None = the file names none that is known."""
    wishes, faults = wishes_of(ask, question.market)
    faults = [*ask.faults, *ask.flag_faults, *faults, *place_faults(ask, question.market)]
    if model is not None:
        # Degrees that follow a wish's count are that wish's.
        common = replace(ask, tensor_parallel=None) if any(one.degrees for one in wishes) else ask
        faults += job_faults(common, model) if ask.training is not None else model_faults(common, model)
    options = tuple(_option(ask, one, model, question) for one in wishes)
    found = Answer(ask=ask, model=model, options=options, faults=tuple(faults))
    return _with_cheaper(found, question, planner)


def _option(ask: Ask, one: Wish, model: Architecture | None, question: Question) -> Option:
    ask = ask.of(one)
    bargain: Bought = bought(ask, one, question.market)
    # A name may mean several variants: what is sized is what is bought.
    one = one if bargain.offer is None else replace(one, accelerator=resolve(bargain.offer.instance_type.accelerator))
    sized: ServingEstimate | None = None
    job: SizedJob | None = None
    faults: list[Fault] = []
    if model is None:
        faults = [] if ask.training is not None else list(count_faults(ask, one))
    elif ask.training is not None:
        job, faults = sized_job(ask, one, model, bargain.offer, task=question.task, tokens=question.tokens)
    else:
        sized, faults = sized_service(ask, one, model, question.shape, question.slo)
        if one.degrees:
            faults += layout_faults(ask, model)
    rate = None
    if sized is not None and sized.performance is not None:
        rate = sized.performance.requests_per_s.value * ask.data_parallel * ask.replicas
    return Option(
        wish=one,
        sized=sized,
        job=job,
        offer=bargain.offer,
        machines=bargain.machines,
        requests_per_s=rate,
        faults=(*bargain.faults, *faults),
    )


def _with_cheaper(found: Answer, question: Question, planner: Planner) -> Answer:
    """The answer with what does the same for the least, where that is known."""
    if found.model is None:
        return found
    if found.ask.training is not None:
        return replace(found, cheaper_cluster=_cheaper_cluster(found, found.model, question))
    best = found.cheapest
    ask = found.ask
    rate = None if best is None or best.requests_per_s is None else best.requests_per_s * UTILIZATION
    workload = InferenceWorkload(
        name=ask.name,
        model=found.model.hf_id,
        demands=(ShapeDemand(shape=question.shape, requests_per_s=rate),),
        slo=question.slo,
        precisions=() if ask.precision is None else (ask.precision,),
        kv_precision=ask.kv_precision,
        context_tokens=ask.context_tokens,
        utilization=UTILIZATION,
    )
    return replace(found, cheaper=planner(workload, found.model, ask.spot))


def _cheaper_cluster(found: Answer, model: Architecture, question: Question) -> ClusterChoice | None:
    best = found.cheapest or next((option for option in found.options if option.job is not None), None)
    if best is None or best.job is None:
        return None
    offers = [
        offer for offer in question.trainable if found.ask.spot or offer.purchase_option is not PurchaseOption.SPOT
    ]
    return cheapest_cluster(best.job, model, offers, works=best.works)
