"""Turns what a file asks for into an answer: does it work, what does it cost, what would be cheaper."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from optimizer.interop.asks import Ask, Fault, Wish
from optimizer.plans.plan import Fleet
from optimizer.sizing.dtypes import weight_bytes, weight_format
from optimizer.sizing.layout import Hardware, tensor_parallel_problem, valid_tensor_parallel
from optimizer.sizing.serving import ServingEstimate, size_serving
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand
from providers.errors import UsageError, nearest
from providers.instance_types import usual_link
from providers.offers import PROVIDERS, Offer, PurchaseOption
from providers.units import GIB, HOURS_PER_MONTH

UTILIZATION: Final = 0.8
"""Part of a replica's capacity that is counted on, as plans do."""

Planner = Callable[[InferenceWorkload, Architecture], Fleet | None]
"""The cheapest fleet for a workload; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is assumed of the requests, and what the file leaves open."""

    shape: RequestShape
    slo: SLO
    offers: Sequence[Offer]
    """That may be bought, on demand and spot."""
    on_file: Sequence[Offer]
    """All that are known, to say whether something is sold at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One of the accelerators that would do. `machines` instances run; costs are None where nothing sells it."""

    wish: Wish
    verdict: str | None
    sized: ServingEstimate | None
    offer: Offer | None
    machines: int
    requests_per_s: float | None
    faults: tuple[Fault, ...] = ()

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An ask with its options in the order of the file, and the cheapest fleet that serves as much as the cheapest."""

    ask: Ask
    model: Architecture | None
    options: tuple[Option, ...]
    faults: tuple[Fault, ...]
    cheaper: Fleet | None

    @property
    def works(self) -> bool:
        """Whether something works: one option of several is enough, and a fleet where the file leaves it open."""
        of_all = [fault for fault in self.faults if fault not in self.ask.faults]
        possible = any(option.works for option in self.options) if self.options else self.cheaper is not None
        return possible and not any(fault.fatal for fault in of_all)

    @property
    def cheapest(self) -> Option | None:
        """The option that works for the least money."""
        priced = [option for option in self.options if option.works and option.usd_per_hour is not None]
        return min(priced, key=lambda option: option.usd_per_hour or Decimal(0), default=None)


def answer(ask: Ask, model: Architecture | None, question: Question, planner: Planner) -> Answer:
    """Sizes and prices every option of an ask. `model` None = the file names none that is known."""
    wishes, faults = _wishes(ask, question)
    faults = [*ask.faults, *faults, *_place_faults(ask, question)]
    if model is not None:
        faults += _model_faults(ask, model)
    options = tuple(_option(ask, one, model, question) for one in wishes)
    found = Answer(ask=ask, model=model, options=options, faults=tuple(faults), cheaper=None)
    return replace(found, cheaper=_cheaper(found, question, planner))


def _wishes(ask: Ask, question: Question) -> tuple[tuple[Wish, ...], list[Fault]]:
    """The file's accelerators, or those of the instance type that it names."""
    if ask.wishes:
        return ask.wishes, []
    if ask.instance_type is None:
        named = [] if ask.faults else [Fault(line=None, what="the file names no accelerators", fix="give --gpu NAME")]
        return (), named
    kinds = {offer.instance_type.name: offer.instance_type for offer in question.on_file}
    kind = kinds.get(ask.instance_type)
    line = ask.lines.get("place")
    if kind is None:
        near = ", ".join(nearest(ask.instance_type, kinds)) or "`costopt offers` lists them"
        fix = f"known: {near}"
        return (), [Fault(line=line, what=f"instance type {ask.instance_type!r} is not on file", fix=fix)]
    from providers.accelerators import resolve

    count = ask.accelerators_per_machine or max(1, round(kind.accelerator_count))
    return (Wish(named=kind.name, accelerator=resolve(kind.accelerator), count=count, line=line),), []


def _place_faults(ask: Ask, question: Question) -> Iterator[Fault]:
    line = ask.lines.get("place")
    if ask.provider is not None and ask.provider not in (*PROVIDERS, "kubernetes", "k8s"):
        yield Fault(
            line=line,
            what=f"prices of {ask.provider} are not kept here",
            fix=f"known: {', '.join(PROVIDERS)}",
            fatal=False,
        )
    elif ask.region is not None:
        regions = {
            offer.region for offer in question.on_file if offer.region and ask.provider in (None, offer.provider)
        }
        if ask.region not in regions:
            near = ", ".join(nearest(ask.region, regions)) or "`costopt offers` lists them"
            yield Fault(line=line, what=f"no region {ask.region!r} is on file", fix=f"nearest: {near}", fatal=False)


def _model_faults(ask: Ask, model: Architecture) -> Iterator[Fault]:
    if ask.tensor_parallel is not None:
        problem = tensor_parallel_problem(model, ask.tensor_parallel)
        if problem:
            valid = ", ".join(str(tp) for tp in valid_tensor_parallel(model, max(8, ask.tensor_parallel)))
            yield Fault(
                line=ask.lines.get("tensor_parallel"),
                what=f"tensor parallelism over {ask.tensor_parallel} cannot work for {model.hf_id}: {problem}",
                fix=f"use one of {valid}",
            )
    longest = model.max_position * model.rope_factor
    if ask.context_tokens is not None and ask.context_tokens > longest:
        yield Fault(
            line=ask.lines.get("context"),
            what=f"{ask.context_tokens:,} tokens are more than the {longest:,} positions of {model.hf_id}",
            fix=f"use at most {longest}",
        )


def _option(ask: Ask, one: Wish, model: Architecture | None, question: Question) -> Option:
    offer, machines, faults = _bought(ask, one, question)
    sized: ServingEstimate | None = None
    if model is not None and not any(True for _ in _impossible_layout(ask, model)):
        try:
            sized = _sized(ask, one, model, question)
        except UsageError as error:
            faults.append(Fault(line=one.line, what=str(error), fix="change the layout or the count"))
    if sized is not None and model is not None:
        faults += _sizing_faults(ask, one, model, sized)
    rate = None
    if sized is not None and sized.performance is not None:
        rate = sized.performance.requests_per_s.value * ask.data_parallel * ask.replicas
    return Option(
        wish=one,
        verdict=None if sized is None else sized.verdict,
        sized=sized,
        offer=offer,
        machines=machines,
        requests_per_s=rate,
        faults=tuple(faults),
    )


def _impossible_layout(ask: Ask, model: Architecture) -> Iterator[Fault]:
    return (fault for fault in _model_faults(ask, model) if fault.line == ask.lines.get("tensor_parallel"))


def _sized(ask: Ask, one: Wish, model: Architecture, question: Question) -> ServingEstimate:
    """One replica: on the layout that the flags give (engines take one accelerator unless told), or the widest."""
    count = one.count * ask.nodes
    tensor, pipeline = ask.tensor_parallel, ask.pipeline_parallel
    if ask.engine is not None and tensor is None:
        tensor = 1
    if ask.data_parallel > 1:
        count = (tensor or 1) * (pipeline or 1)
    shape = question.shape
    return size_serving(
        model,
        Hardware(
            accelerator=one.accelerator,
            count=count,
            link=usual_link(one.accelerator, count),
            machines=ask.nodes if count % ask.nodes == 0 else 1,
        ),
        shape=shape,
        slo=question.slo,
        precision=ask.precision or _checkpoint_precision(model, one),
        kv_precision=ask.kv_precision,
        engine=ask.engine,
        context_tokens=ask.context_tokens,
        tp=tensor,
        pp=pipeline,
        gpu_memory_utilization=ask.memory_share,
    )


def _checkpoint_precision(model: Architecture, one: Wish) -> str:
    """An engine without a flag loads the checkpoint as it is; hardware without bf16 takes fp16."""
    if model.native_dtype == "bf16" and "bf16" not in one.accelerator.dense_tflops:
        return "fp16"
    return model.native_dtype


def _sizing_faults(ask: Ask, one: Wish, model: Architecture, sized: ServingEstimate) -> Iterator[Fault]:
    weights = weight_bytes(model, weight_format(sized.precision)).total / GIB
    if sized.verdict == "does_not_fit":
        memory = sized.memory
        used = sized.layout.accelerators
        least = f"from {sized.min_gpus} {one.accelerator.name} on it fits" if sized.min_gpus else "take larger cards"
        yield Fault(
            line=one.line,
            what=(
                f"{model.hf_id} in {sized.precision} does not fit on {used} x {one.accelerator.name}: weights "
                f"{weights:,.0f} GiB, and {sized.context_tokens:,} tokens of cache, on {used} x "
                f"{memory.budget_gib:.1f} GiB that the engine may take"
            ),
            fix=f"{least}, or take a smaller format",
        )
    elif sized.verdict == "tight":
        yield Fault(
            line=one.line,
            what=f"tight on {sized.layout.accelerators} x {one.accelerator.name}: room for {sized.max_concurrency} "
            f"requests of {sized.context_tokens:,} tokens",
            fix=f"comfortable from {sized.min_gpus_comfortable or 'more than was tried'}",
            fatal=False,
        )
    used = sized.layout.accelerators * ask.data_parallel
    if ask.engine is not None and used < one.count * ask.nodes:
        yield Fault(
            line=ask.lines.get("tensor_parallel") or ask.lines.get("command") or one.line,
            what=f"{used} of {one.count * ask.nodes} accelerators are used: the others idle and are paid",
            fix="set --tensor-parallel-size (or --data-parallel-size), or ask for fewer",
            fatal=False,
        )


def _bought(ask: Ask, one: Wish, question: Question) -> tuple[Offer | None, int, list[Fault]]:
    """The cheapest offer that has the accelerators, how many of it run, and what is wrong with buying so."""
    names = {variant.name for variant in one.variants} or {one.accelerator.name}

    def is_sold(offer: Offer) -> bool:
        seller = ask.provider in (None, offer.provider) or ask.provider not in PROVIDERS
        return seller and offer.instance_type.accelerator in names

    def is_there(offer: Offer) -> bool:
        return is_sold(offer) and ask.region in (None, offer.region, offer.zone)

    sold = [offer for offer in question.on_file if is_sold(offer)]
    there = [offer for offer in sold if is_there(offer)]
    option = PurchaseOption.SPOT if ask.spot else PurchaseOption.ON_DEMAND
    buyable = [offer for offer in question.offers if offer.purchase_option is option and is_there(offer)]
    if ask.instance_type is not None:
        buyable = [offer for offer in buyable if offer.instance_type.name == ask.instance_type] or buyable
    enough = [offer for offer in buyable if offer.instance_type.accelerator_count >= one.count]
    line = one.line
    where = "/".join(part for part in (ask.provider, ask.region) if part)
    machines = ask.nodes * ask.replicas
    if not there:
        elsewhere = sorted({f"{offer.provider} {offer.region or ''}".strip() for offer in sold})[:6]
        fix = f"sold in {', '.join(elsewhere)}" if elsewhere else "`costopt offers` lists what is sold where"
        return None, machines, [Fault(line=line, what=f"{one.named} is not sold in {where or 'any place'}", fix=fix)]
    if not enough:
        most = max((offer.instance_type.accelerator_count for offer in buyable), default=0)
        if not most:
            what = f"no {option.replace('_', ' ')} price of {one.named} {f'in {where} ' if where else ''}is on file"
            return None, machines, [Fault(line=line, what=what, fix="the cost is not known", fatal=False)]
        what = f"no instance has {one.count} x {one.named}: the largest has {most:g}"
        return None, machines, [Fault(line=line, what=what, fix=f"ask for {most:g} on several machines")]
    least = min(offer.instance_type.accelerator_count for offer in enough)
    fitting = enough if ask.packs else [o for o in enough if o.instance_type.accelerator_count == least]
    offer = min(fitting, key=lambda o: (_machines(ask, one, o) * o.usd_per_hour, o.key))
    faults = []
    if offer.instance_type.accelerator_count > one.count and not ask.packs:
        what = f"no instance has exactly {one.count} x {one.named}: the smallest has {least:g}"
        faults.append(Fault(line=line, what=what, fix=f"use {least:g}, they are paid", fatal=False))
    return offer, _machines(ask, one, offer), faults


def _machines(ask: Ask, one: Wish, offer: Offer) -> int:
    """Instances that run: several replicas share one where a scheduler packs them."""
    if not ask.packs or ask.nodes > 1:
        return ask.nodes * ask.replicas
    return math.ceil(ask.replicas / max(1, int(offer.instance_type.accelerator_count // one.count)))


def _cheaper(found: Answer, question: Question, planner: Planner) -> Fleet | None:
    """The cheapest fleet for what the cheapest working option serves; None where that is not known."""
    best = found.cheapest
    if best is None or found.model is None or best.requests_per_s is None:
        return None
    ask = found.ask
    workload = InferenceWorkload(
        name=ask.name,
        model=found.model.hf_id,
        demands=(ShapeDemand(shape=question.shape, requests_per_s=best.requests_per_s * UTILIZATION),),
        slo=question.slo,
        precisions=() if ask.precision is None else (ask.precision,),
        kv_precision=ask.kv_precision,
        context_tokens=ask.context_tokens,
        utilization=UTILIZATION,
    )
    return planner(workload, found.model)
