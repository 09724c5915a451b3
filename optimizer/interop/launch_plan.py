"""Says what a plan launches, groups of replicas and training jobs on purchases, and where a file comes from."""

import itertools
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from providers.accelerators import Accelerator, resolve
from providers.errors import UnknownName

_NAME_LENGTH: Final = 40
_ZONE_ID: Final = re.compile(r"[a-z]+\d+-az\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Purchase:
    """Equal instances that the plan buys: `count` of them, each at `usd_per_hour` as of a day."""

    provider: str
    instance_type: str
    region: str | None
    zone: str | None
    purchase_option: str
    commitment: Mapping[str, Any] | None
    accelerator: str
    accelerators: float
    count: int
    usd_per_hour: Decimal
    as_of: str | None
    source: str

    @property
    def machine_type(self) -> str:
        """The seller's name of the machine: Google's prices with attached GPUs are kept as MACHINE+GPUxCOUNT."""
        return self.instance_type.partition("+")[0]

    @property
    def zone_name(self) -> str | None:
        """The zone where its name means the same to everybody: AWS has other names in each account for an id."""
        return None if self.zone is not None and _ZONE_ID.fullmatch(self.zone) else self.zone

    @property
    def attached(self) -> str | None:
        """Google's name of GPUs that are attached to the machine; None where they are part of it."""
        return self.instance_type.partition("+")[2].rpartition("x")[0] or None

    @property
    def key(self) -> tuple[str, str, str | None, str]:
        """What a group of replicas names of its instances."""
        return self.provider, self.instance_type, self.region, self.purchase_option


@dataclass(frozen=True, slots=True, kw_only=True)
class CardMemory:
    """What the plan put on one accelerator, in GiB; `cache_gib` is the room for the KV cache."""

    usable_gib: float
    weights_gib: float
    activations_gib: float
    overhead_gib: float
    cache_gib: float

    @property
    def of_card(self) -> float:
        """The part of the card that everything takes together."""
        return (self.weights_gib + self.activations_gib + self.overhead_gib + self.cache_gib) / self.usable_gib

    @property
    def static(self) -> float:
        """The part of the card that weights and cache take."""
        return (self.weights_gib + self.cache_gib) / self.usable_gib

    @property
    def of_free(self) -> float:
        """The part that the cache takes of what is free beside the rest."""
        free = self.usable_gib - self.weights_gib - self.activations_gib - self.overhead_gib
        return self.cache_gib / free


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaGroup:
    """Equal replicas on equal instances. `name` is fit for DNS, files and Terraform, and unique in the plan.

    `batch` is the running requests that the plan counted on; `instances` all that the group's replicas may use, and
    `is_alone` whether no other group runs on them. `per_instance` replicas share one instance. `engine`, its
    `memory_share` and `memory` are None in plans that do not say them; `prefix_cache_hit` is the part of a prompt that
    the cache saves.
    """

    name: str
    workload: str
    model: str
    purchases: tuple[Purchase, ...]
    precision: str
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: int
    replicas: int
    instances: int
    instances_per_replica: int
    batch: int
    context_tokens: int
    requests_per_s: float
    kv_precision: str | None
    is_alone: bool
    engine: str | None
    memory_share: float | None
    memory: CardMemory | None
    prefix_cache_hit: float

    @property
    def purchase(self) -> Purchase:
        """The first of the purchases, which differ in zone and price only."""
        return self.purchases[0]

    @property
    def accelerators_per_replica(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def per_instance(self) -> int:
        """Replicas that each instance runs: spread evenly, at least one; 1 where a replica spans several instances."""
        if self.instances_per_replica > 1:
            return 1
        return max(1, math.ceil(self.replicas / self.instances))

    @property
    def is_spot(self) -> bool:
        return self.purchase.purchase_option == "spot"


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One training run on one cluster, as the plan laid it out.

    `offload` and `master_weights` are None where the plan's file is of a version that does not say them.
    `lora_experts` says whether experts of a mixture have adapters, too; None where there are none, or the file does
    not say. `checkpoint_interval_hours` is None where nothing interrupts the run.
    """

    name: str
    model: str
    task: str
    purchase: Purchase
    tokens: float
    seq_len: int
    global_batch_tokens: int
    optimizer: str
    precision: str
    lora_rank: int | None
    tensor_parallel: int
    pipeline_parallel: int
    context_parallel: int
    expert_parallel: int
    data_parallel: int
    zero_stage: int
    micro_batch: int
    recompute: str
    stack: str
    hours: float
    offload: frozenset[str] | None = None
    master_weights: bool | None = None
    checkpoint_interval_hours: float | None = None
    lora_experts: bool | None = None

    @property
    def nodes(self) -> int:
        return self.purchase.count

    @property
    def accelerators_per_node(self) -> int:
        return round(self.purchase.accelerators)

    @property
    def ranks(self) -> int:
        """Accelerators of the job."""
        return self.nodes * self.accelerators_per_node

    @property
    def is_spot(self) -> bool:
        return self.purchase.purchase_option == "spot"

    @property
    def is_adapter(self) -> bool:
        """Whether the base is frozen."""
        return self.task in ("lora", "qlora")

    @property
    def counts_expert_adapters(self) -> bool:
        """Whether the plan's memory has adapters on experts, as far as the plan has any."""
        return self.is_adapter and self.lora_experts is not False

    @property
    def splits(self) -> bool:
        """Whether the model is split over accelerators, not only its states."""
        degrees = (self.tensor_parallel, self.pipeline_parallel, self.context_parallel, self.expert_parallel)
        return max(degrees) > 1

    @property
    def gradient_accumulation(self) -> int:
        """Micro-batches of one optimizer step: step tokens / (tokens of a micro-batch x data-parallel ranks)."""
        return max(1, round(self.global_batch_tokens / (self.micro_batch * self.seq_len * self.data_parallel)))

    @property
    def checkpoint_steps(self) -> int | None:
        """Optimizer steps between checkpoints; None where nothing interrupts the run."""
        if self.checkpoint_interval_hours is None:
            return None
        return max(1, round(self.steps * self.checkpoint_interval_hours / self.hours))

    @property
    def steps(self) -> int:
        return math.ceil(self.tokens / self.global_batch_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What is to be launched, and where the figures come from."""

    file: str
    digest: str
    status: str
    groups: tuple[ReplicaGroup, ...]
    jobs: tuple[TrainingJob, ...]
    purchases: tuple[Purchase, ...]
    total: str
    shares_by_shape: bool
    """Whether shapes of a workload are routed differently: weights by group cannot say that."""
    by_period: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """Files by name, and what the target cannot express."""

    files: Mapping[str, str]
    warnings: tuple[str, ...] = field(default=())


def provenance(plan: LaunchPlan, purchases: Sequence[Purchase] | None = None) -> Iterator[str]:
    """Lines, without any comment sign, that say which plan, which prices and which dates a file comes from."""
    yield f"From plan {plan.file} (sha256 {plan.digest}…, {plan.status}), {plan.total}, written by costopt."
    for bought in purchases if purchases is not None else plan.purchases:
        place = " zone ".join(part for part in (bought.region, bought.zone) if part) or "any region"
        yield one_line(
            f"Instances: {bought.count} x {bought.provider} {bought.instance_type} "
            f"({bought.accelerators:g} x {bought.accelerator}), {place}, {bought.purchase_option}: "
            f"{bought.usd_per_hour} USD/h each as of {bought.as_of or 'no date'}, source {bought.source[:160]}"
        )
    yield "Speed and memory are estimates: measure before you rely on them."


def comment(lines: Iterator[str] | Sequence[str], sign: str = "#") -> str:
    """The lines as comments."""
    return "".join(f"{sign} {line}\n" for line in lines)


def one_line(text: str) -> str:
    """Text without line breaks and control characters: it cannot end a comment."""
    return "".join(character if character.isprintable() else " " for character in text)


def device(purchase: Purchase) -> Accelerator | None:
    """The facts of the accelerator; None where the plan names one that is not in the table."""
    try:
        return resolve(purchase.accelerator)
    except UnknownName:
        return None


def slug(text: str, ending: str = "") -> str:
    """Lower-case letters, digits and hyphens, as DNS labels allow, starting with a letter; the ending is never cut."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    words = words if words[:1].isalpha() else f"w-{words}"
    return words[: _NAME_LENGTH - len(ending)].strip("-") + ending


def distinct_slugs(names: Iterable[str]) -> Mapping[str, str]:
    """A slug for each name; names whose slugs would be the same are numbered."""
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        endings = itertools.chain([""], (f"-{number}" for number in itertools.count(2)))
        found[name] = next(one for ending in endings if (one := slug(name, ending)) not in found.values())
    return found
