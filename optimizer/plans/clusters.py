"""Turns offers into the clusters that can run a training job, sized once for each kind of hardware, and priced."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from optimizer.plans.training_cost import START_HOURS, billed_hours, checkpoint_bytes, spot_overhead, storage_usd
from optimizer.plans.training_plan import ClusterChoice
from optimizer.program.problem import ProgramOffer, Quota
from optimizer.program.training import TrainingObjective
from optimizer.sizing.training.calibration import TIME, optimizer_states, product_factor
from optimizer.sizing.training.layouts import TrainingEstimate, best_layout, for_hardware, runs_on
from optimizer.sizing.training.setup import Cluster
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.accelerators import catalogue
from providers.interruptions import interruption_rate
from providers.networks import network_of, usual_domain
from providers.offers import InstanceType, Offer, PurchaseOption
from providers.units import GIB, SECONDS_PER_HOUR

NODE_COUNTS: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""Clusters that are looked at, in instances: powers of two, and the half-way points."""

MOST_ACCELERATORS: Final = 4096
"""Clusters beyond this are not bought from a price list."""

_IDEAL_SHARE: Final = 0.8
"""No stack reaches more of the 16-bit peak than this: clusters that would be too slow even so are not sized."""

_IN_TIME: Final = 2
"""Clusters of one hardware that meet the deadline, and are looked at: larger ones cost more for the same tokens."""

_LADDER: Final = 6
"""Sizes of a cluster that are looked at where there is no deadline."""

_WORTH_MORE_NODES: Final = 0.97
"""A larger cluster must be at least 3 % faster than the best before."""

_SIZES_WITHOUT_GAIN: Final = 3
"""In a row, after which no larger cluster is looked at. Two machines can be slower than one, and four faster."""

BEYOND_QUOTAS: Final = "hardware: every cluster that holds the job exceeds a quota"

_MOST_RANKS_A_SEQUENCE: Final = 256
"""Ranks that can share one sequence: TP 8 x PP 32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareKey:
    """Machines that are sized alike, whoever sells them."""

    accelerator: str
    count: int
    link: str
    network_gbit_per_s: float | None
    host_memory_gib: float | None


@dataclass(slots=True)
class Desk:
    """Sizes each kind of cluster once for each run, whoever sells it, and prices it with every offer."""

    most_accelerators: int | None = None
    margin: float = 1.0
    quotas: Sequence[Quota] = ()
    rejections: dict[str, int] = field(default_factory=dict)
    _sized: dict[tuple[object, ...], TrainingEstimate | None] = field(default_factory=dict)

    def choices(
        self,
        run: TrainingRun,
        model: Architecture,
        offers: Iterable[Offer],
        *,
        objective: TrainingObjective = "min_cost",
        counted: bool = False,
        even_if_late: bool = False,
    ) -> list[ClusterChoice]:
        """Every cluster of one offer that holds the job; `counted` notes the hardware that none of them is of."""
        found: list[ClusterChoice] = []
        for group in _by_hardware(offers, host_need_gib(run, model), all_regions=bool(self.quotas)).values():
            kind = group[0].instance_type
            sized = list(self._ladder(run, model, kind, objective, even_if_late=even_if_late))
            allowed = [
                _priced(run, model, offer, nodes, one, margin=self.margin)
                for nodes, one in sized
                for offer in group
                if self._within_quotas(offer, nodes)
            ]
            found += allowed
            if counted and not sized:
                self._reject(self._why_not(run, model, kind))
            elif counted and not allowed:
                self._reject(BEYOND_QUOTAS)
        return found

    def _ladder(
        self,
        run: TrainingRun,
        model: Architecture,
        kind: InstanceType,
        objective: TrainingObjective,
        *,
        even_if_late: bool,
    ) -> Iterator[tuple[int, TrainingEstimate]]:
        """Instance counts with their sizing, from the first that can meet the deadline to where more bring little."""
        limit = min(self.most_accelerators or MOST_ACCELERATORS, MOST_ACCELERATORS)
        deadline = run.deadline_hours or math.inf
        best, yielded, in_time, without_gain = math.inf, 0, 0, 0
        for nodes in NODE_COUNTS if network_of(kind.provider, kind.name) else (1,):
            accelerators = nodes * int(kind.accelerator_count)
            if accelerators > limit or accelerators > run.sequences_per_step * _MOST_RANKS_A_SEQUENCE:
                return
            if not even_if_late and ideal_hours(run, model, kind, nodes) > deadline:
                continue
            sized = self.sized(run, model, kind, nodes)
            if sized is None:
                continue
            if sized.hours > best * _WORTH_MORE_NODES:
                without_gain += 1
                if without_gain == _SIZES_WITHOUT_GAIN:
                    return
                continue
            best, yielded, without_gain = sized.hours, yielded + 1, 0
            in_time += (sized.hours + START_HOURS) * self.margin <= deadline
            yield nodes, sized
            enough = in_time >= _IN_TIME if deadline < math.inf else yielded >= _LADDER
            if enough and objective == "min_cost" and not even_if_late:
                return

    def sized(self, run: TrainingRun, model: Architecture, kind: InstanceType, nodes: int) -> TrainingEstimate | None:
        """The best layout of the run on so many instances of that type; None where it does not fit."""
        key = (run, model, _hardware_key(kind, host_need_gib(run, model)), nodes)
        if key not in self._sized:
            accelerator = catalogue()[kind.accelerator]
            adapted, _ = for_hardware(run, accelerator)
            runs = runs_on(run, accelerator)
            self._sized[key] = best_layout(adapted, model, cluster_of(kind, nodes)) if runs else None
        return self._sized[key]

    def _within_quotas(self, offer: Offer, nodes: int) -> bool:
        """Whether so many instances of the offer keep to every quota that covers it."""
        if not self.quotas:
            return True
        unit = program_offer(offer)
        return all(nodes * quota.weight(unit) <= quota.maximum for quota in self.quotas if quota.covers(unit))

    def _reject(self, reason: str) -> None:
        self.rejections[reason] = self.rejections.get(reason, 0) + 1

    def _why_not(self, run: TrainingRun, model: Architecture, kind: InstanceType) -> str:
        most = NODE_COUNTS[-1] if network_of(kind.provider, kind.name) else 1
        late = ideal_hours(run, model, kind, most) > (run.deadline_hours or math.inf)
        what = "too slow for the deadline" if late else "does not hold the job"
        alone = "" if most > 1 else " (one machine: no documented network)"
        return f"hardware: {what}{alone}"


def cluster_of(kind: InstanceType, nodes: int) -> Cluster:
    """`nodes` instances of that type as a cluster, with the network that the seller documents."""
    network = network_of(kind.provider, kind.name)
    accelerator = catalogue()[kind.accelerator]
    domain = usual_domain(accelerator)
    hosts = nodes * kind.hosts
    return Cluster(
        accelerator=accelerator,
        nodes=hosts,
        node_accelerators=int(kind.accelerator_count) // kind.hosts,
        link=kind.link,
        network_gbit_per_s=network.gbit_per_s if network else None,
        domain=domain if domain > 8 and hosts > 1 else None,
        host_memory_gib=kind.memory_gib,
    )


def ideal_hours(run: TrainingRun, model: Architecture, kind: InstanceType, nodes: int) -> float:
    """Hours that no software undercuts: FLOPs over 80 % of the peak, of which FP8 and FP4 reach two thirds.

    Some parts run faster than their data sheet says.
    """
    accelerator = catalogue()[kind.accelerator]
    rates = accelerator.dense_tflops
    sixteen = rates.get("bf16") or rates["fp16"]
    peak = max(sixteen, rates.get(run.precision, 0.0) * 2 / 3) * 1e12 * kind.accelerator_count * nodes
    flops = (4.0 if run.is_adapter else 6.0) * model.params_active * 0.9 * run.tokens
    peak *= max(1.0, product_factor(accelerator))
    return flops / (peak * _IDEAL_SHARE * TIME.goodput) / SECONDS_PER_HOUR


def _priced(
    run: TrainingRun, model: Architecture, offer: Offer, nodes: int, sized: TrainingEstimate, *, margin: float
) -> ClusterChoice:
    hours, interruptions, rate = sized.hours + START_HOURS, 0.0, None
    if offer.purchase_option is PurchaseOption.SPOT:
        rate = interruption_rate(offer.provider, offer.instance_type.name, offer.region)
        hosts = nodes * offer.instance_type.hosts
        overhead, per_hour = spot_overhead(checkpoint_bytes(run, model), hosts, rate.per_hour)
        hours *= 1 + overhead
        interruptions = per_hour * hours
    return ClusterChoice(
        run=run,
        model=model,
        offer=offer,
        nodes=nodes,
        estimate=sized,
        hours=hours,
        billed_hours=billed_hours(offer, hours),
        interruptions=interruptions,
        interruption_rate=rate,
        usd_storage=storage_usd(run, model, offer.provider, hours),
        margin=margin,
    )


def host_need_gib(run: TrainingRun, model: Architecture) -> float:
    """The most host memory that any layout of the run can ask of a machine: loading, and offloaded states."""
    per_parameter = 18.0 if run.offload or optimizer_states(run.optimizer).paged else 2.0
    return per_parameter * model.params_total / GIB


def _hardware_key(kind: InstanceType, host_need: float) -> HardwareKey:
    """What sizing depends on; host memory only where there may be too little of it."""
    network = network_of(kind.provider, kind.name)
    short = kind.memory_gib is not None and kind.memory_gib < host_need
    return HardwareKey(
        accelerator=kind.accelerator,
        count=int(kind.accelerator_count),
        link=kind.link,
        network_gbit_per_s=network.gbit_per_s if network else None,
        host_memory_gib=kind.memory_gib if short else None,
    )


def program_offer(offer: Offer) -> ProgramOffer:
    """The offer as the program's quotas see it."""
    kind = offer.instance_type
    return ProgramOffer(
        id=str(offer.key),
        hardware=kind.accelerator,
        provider=kind.provider,
        accelerator=kind.accelerator,
        accelerators_per_unit=int(kind.accelerator_count),
        purchase_option=offer.purchase_option.value,
        usd_per_hour=float(offer.usd_per_hour),
        region=offer.region,
        zone=offer.zone,
        instance_type=kind.name,
    )


def _is_sized(kind: InstanceType) -> bool:
    """Whole machines, and slices of a TPU pod: their chips reach each other without a network."""
    slices = catalogue()[kind.accelerator].vendor == "Google"
    return not kind.is_fractional and (kind.hosts == 1 or slices)


def _hazard(offer: Offer) -> float:
    """Interruptions of an instance per hour; none unless it is spot."""
    if offer.purchase_option is not PurchaseOption.SPOT:
        return 0.0
    return interruption_rate(offer.provider, offer.instance_type.name, offer.region).per_hour


def _by_hardware(offers: Iterable[Offer], host_need: float, *, all_regions: bool) -> dict[HardwareKey, list[Offer]]:
    """Offers of the same hardware; of each, the cheapest of every provider and purchase option: no other can win.

    Of spot it is the cheapest at every rate of interruption. Where quotas differ by region, the cheapest of every
    region and machine is kept.
    """
    cheapest: dict[tuple[HardwareKey, str, PurchaseOption, int, float, str], Offer] = {}
    for offer in offers:
        if not _is_sized(offer.instance_type):
            continue
        term = offer.commitment.term_months if offer.commitment else 0
        place = f"{offer.region}/{offer.instance_type.name}" if all_regions else ""
        hardware = _hardware_key(offer.instance_type, host_need)
        key = (hardware, offer.provider, offer.purchase_option, term, _hazard(offer), place)
        known = cheapest.get(key)
        if known is None or (offer.usd_per_hour, offer.key) < (known.usd_per_hour, known.key):
            cheapest[key] = offer
    groups: dict[HardwareKey, list[Offer]] = {}
    for (hardware, *_), offer in cheapest.items():
        groups.setdefault(hardware, []).append(offer)
    return groups
