"""Turns today's offers into the table that guides print: model size x way of using it -> accelerators, cost, limit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from optimizer.sizing import serving
from optimizer.sizing.dtypes import unsupported_reason, weight_format
from optimizer.sizing.engines import engine_profile
from optimizer.sizing.layout import Hardware
from optimizer.sizing.serving import size_serving
from optimizer.sizing.training.layouts import best_layout, for_hardware, resized, smallest_counts
from optimizer.sizing.training.setup import Cluster
from optimizer.workload.architecture import Architecture, resolve_model
from optimizer.workload.training import DEFAULT_BATCH_TOKENS, DEFAULT_SEQ_LEN, TrainingRun
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO
from providers.accelerators import Accelerator, catalogue
from providers.instance_types import usual_link
from providers.networks import network_of, usual_domain, usual_network_gbit
from providers.offers import Offer

SIZES: Final = ("1B", "7B", "13B", "34B", "70B", "180B", "405B", "671B", "1T")
INFERENCE: Final[Mapping[str, str]] = {"inference 16 bit": "bf16", "inference 8 bit": "fp8", "inference 4 bit": "int4"}
TRAINING: Final[Mapping[str, str]] = {
    "QLoRA": "qlora",
    "LoRA": "lora",
    "full fine-tuning": "finetune",
    "pre-training": "train",
}
CONTEXT_TOKENS: Final = 4096
"""What an inference must have room for, several at once: the usual length of guides."""

TRAINED_TOKENS: Final = 1e9
_MACHINE: Final = 8
_MOST_TRAINED_ON: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class GuideRow:
    """The cheapest machines that do it comfortably; `offer` None = nothing on file does, and `limit` says why.

    `count` accelerators in all, on `machines` instances. `hours` is of 10^9 training tokens.
    """

    size: str
    model: str
    way: str
    accelerator: str | None
    count: int
    offer: Offer | None
    machines: int
    hours: float | None
    limit: str

    @property
    def usd_per_hour(self) -> Decimal | None:
        return None if self.offer is None else self.offer.usd_per_hour * self.machines


def guide(offers: Sequence[Offer], sizes: Sequence[str] = SIZES) -> tuple[GuideRow, ...]:
    """A row for each size and way, on the offers that are given."""
    market = _market(offers)
    return tuple(row for size in sizes for row in _rows(size, resolve_model(size), market))


Market = Mapping[str, Sequence[Offer]]
"""Offers by accelerator, cheapest first."""


def _market(offers: Sequence[Offer]) -> Market:
    found: dict[str, list[Offer]] = {}
    for offer in sorted(offers, key=lambda offer: (offer.usd_per_hour, offer.key)):
        if offer.instance_type.accelerator_count >= 1:
            found.setdefault(offer.instance_type.accelerator, []).append(offer)
    return found


def _rows(size: str, model: Architecture, market: Market) -> Iterator[GuideRow]:
    for way, precision in INFERENCE.items():
        yield _cheapest(size, model, way, _serving_options(model, precision, market))
    for way, task in TRAINING.items():
        yield _cheapest(size, model, way, _training_options(model, task, market))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Option:
    accelerator: str
    count: int
    offer: Offer
    machines: int
    hours: float | None
    limit: str

    @property
    def rank(self) -> tuple[Decimal, int, str]:
        return self.offer.usd_per_hour * self.machines, self.count, self.accelerator


def _cheapest(size: str, model: Architecture, way: str, options: Iterator[_Option]) -> GuideRow:
    best = min(options, key=lambda option: option.rank, default=None)
    if best is None:
        limit = f"nothing on file holds it on up to {_MOST_TRAINED_ON:,} accelerators of one kind"
        return GuideRow(
            size=size,
            model=model.hf_id,
            way=way,
            accelerator=None,
            count=0,
            offer=None,
            machines=0,
            hours=None,
            limit=limit,
        )
    return GuideRow(
        size=size,
        model=model.hf_id,
        way=way,
        accelerator=best.accelerator,
        count=best.count,
        offer=best.offer,
        machines=best.machines,
        hours=best.hours,
        limit=best.limit,
    )


def _serving_options(model: Architecture, precision: str, market: Market) -> Iterator[_Option]:
    """Each accelerator at the smallest count that holds the model comfortably and meets the usual SLO."""
    fmt = weight_format(precision)
    context = min(CONTEXT_TOKENS, model.max_position)
    for name in market:
        accelerator = catalogue()[name]
        if precision == "fp8" and unsupported_reason(accelerator, fmt):
            continue
        alone = Hardware(accelerator=accelerator, count=1, link="none")
        _, least = serving.smallest_counts(model, alone, fmt, 2.0, engine_profile("vllm"), context, None)
        if least is None:
            continue
        missed = ""
        for count in sorted({least, *(count for count in (2, 4, _MACHINE) if count > least)}):
            bought = _bought(market[name], count)
            if bought is None:
                break
            sized = _served(model, accelerator, count, bought[1], precision, context)
            memory = sized.memory
            found = _missed(sized)
            if found is None:
                limit = missed or f"memory: weights {memory.weights_gib:,.1f} of {memory.budget_gib:,.1f} GiB on each"
                yield _Option(
                    accelerator=name, count=count, offer=bought[0], machines=bought[1], hours=None, limit=limit
                )
                break
            missed = f"{found} on {count}"


def _served(
    model: Architecture, accelerator: Accelerator, count: int, machines: int, precision: str, context: int
) -> serving.ServingEstimate:
    return size_serving(
        model,
        Hardware(accelerator=accelerator, count=count, link=usual_link(accelerator, count), machines=machines),
        shape=DEFAULT_SHAPE,
        slo=DEFAULT_SLO,
        precision=precision,
        context_tokens=context,
    )


def _missed(sized: serving.ServingEstimate) -> str | None:
    """What keeps it from the usual SLO, with its figure; None where nothing does."""
    performance = sized.performance
    if performance is None or sized.verdict != "fits":
        return "memory: tight"
    for name, found, limit in (
        ("TTFT", performance.ttft_ms.value, DEFAULT_SLO.ttft_ms),
        ("TPOT", performance.tpot_ms.value, DEFAULT_SLO.tpot_ms),
    ):
        if found > limit:
            return f"{name}: {found:,.0f} ms of {limit:,.0f}"
    return None


def _training_options(model: Architecture, task: str, market: Market) -> Iterator[_Option]:
    """Each accelerator at the smallest count that holds the job comfortably."""
    run = TrainingRun(
        name=task,
        model=model.hf_id,
        task=task,
        tokens=TRAINED_TOKENS,
        seq_len=min(DEFAULT_SEQ_LEN[task], model.max_position),
        global_batch_tokens=DEFAULT_BATCH_TOKENS[task],
    )
    for name in market:
        accelerator = catalogue()[name]
        fitted, _ = for_hardware(run, accelerator)
        cluster = _cluster(accelerator)
        _, count = smallest_counts(fitted, model, cluster, _MOST_TRAINED_ON)
        bought = None if count is None else _bought(market[name], count)
        sized = None if count is None else best_layout(fitted, model, resized(cluster, count))
        if count is None or bought is None or sized is None:
            continue
        offer, machines = bought
        memory = sized.memory
        limit = f"memory: {memory.needed_gib:,.1f} of {memory.usable_gib:,.1f} GiB on each, mostly {memory.dominant}"
        yield _Option(accelerator=name, count=count, offer=offer, machines=machines, hours=sized.hours, limit=limit)


def _cluster(accelerator: Accelerator) -> Cluster:
    domain = usual_domain(accelerator)
    return Cluster(
        accelerator=accelerator,
        nodes=1,
        node_accelerators=4 if domain > _MACHINE else _MACHINE,
        link=usual_link(accelerator, _MACHINE),
        network_gbit_per_s=usual_network_gbit(accelerator),
        domain=domain if domain > _MACHINE else None,
    )


def _bought(offers: Sequence[Offer], count: int) -> tuple[Offer, int] | None:
    """The cheapest way to so many: one instance with at least that, or equal ones whose seller has a network."""
    ways = []
    for offer in offers:
        each = int(offer.instance_type.accelerator_count)
        if each >= count:
            ways.append((offer.usd_per_hour, offer.key, offer, 1))
        elif each == _MACHINE and count % each == 0 and network_of(offer.provider, offer.instance_type.name):
            ways.append((offer.usd_per_hour * (count // each), offer.key, offer, count // each))
    if not ways:
        return None
    _, _, offer, machines = min(ways, key=lambda way: way[:2])
    return offer, machines
