"""Turns the JSON of a plan into the groups of replicas and the training jobs that launch files are written for."""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from providers.accelerators import Accelerator, resolve
from providers.errors import UnknownName, UsageError

MAX_BYTES: Final = 20_000_000
SCHEMA: Final = "costopt.plan"
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
    `checkpoint_interval_hours` is None where nothing interrupts the run.
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


def parse_plan(text: str, file: str) -> LaunchPlan:
    """The launchable content of `costopt plan -f json`. Raises UsageError for other files and for infeasible plans."""
    document = _document(text, file)
    try:
        purchases = tuple(_purchase(item) for item in document["instances"])
        groups = tuple(_groups(document, purchases))
        jobs = tuple(_jobs(document, purchases))
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise UsageError(f"{file}: not a whole plan: {type(error).__name__}: {error}; write it again") from None
    if not groups and not jobs:
        raise UsageError(f"{file}: the plan is {document.get('status')}: it has nothing to launch")
    totals = document.get("totals") or {}
    month, run = totals.get("usd_per_month"), totals.get("usd_total")
    return LaunchPlan(
        file=one_line(file),
        digest=hashlib.sha256(text.encode()).hexdigest()[:16],
        status=one_line(str(document.get("status"))),
        groups=groups,
        jobs=jobs,
        purchases=purchases,
        total=one_line(f"{month} USD per month of 730 h" if month is not None else f"{run} USD in all"),
        shares_by_shape=_differs_by_shape(document.get("routing") or ()),
        by_period=any("counts_by_period" in replicas for replicas in document["replicas"]),
    )


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


def _document(text: str, file: str) -> dict[str, Any]:
    if len(text) > MAX_BYTES:
        raise UsageError(f"{file} has {len(text):,} characters; at most {MAX_BYTES:,} are read")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON ({error}); write the plan with `costopt plan … -f json -o FILE`") from None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UsageError(f"{file} is no plan: its schema is not {SCHEMA}; write it with `costopt plan … -f json`")
    version = str(document.get("schema_version"))
    if version.split(".", maxsplit=1)[0] != "1":
        raise UsageError(f"{file} has schema version {version}; 1.x is read")
    return document


def _purchase(item: Mapping[str, Any]) -> Purchase:
    try:
        price = Decimal(str(item["usd_per_hour"]))
    except InvalidOperation:
        raise ValueError(f"price {item['usd_per_hour']!r}") from None
    return Purchase(
        provider=_text(item["provider"]),
        instance_type=_text(item["instance_type"]),
        region=_optional(item["region"]),
        zone=_optional(item["zone"]),
        purchase_option=_text(item["purchase_option"]),
        commitment=item.get("commitment"),
        accelerator=_text(item["accelerator"]),
        accelerators=float(item["accelerator_count"]),
        count=_whole(item["count"]),
        usd_per_hour=price,
        as_of=_optional(item["as_of"]),
        source=str(item["source"]),
    )


def _groups(document: Mapping[str, Any], purchases: Sequence[Purchase]) -> Iterator[ReplicaGroup]:
    workloads = {str(workload["name"]): workload for workload in document["workloads"]}
    keys = [_key(item) for item in document["replicas"]]
    for index, (item, key) in enumerate(zip(document["replicas"], keys, strict=True)):
        workload = workloads[str(item["workload"])]
        bought = tuple(purchase for purchase in purchases if purchase.key == key)
        if not bought:
            raise ValueError(f"replicas on {'/'.join(str(part) for part in key)}, of which no instance is bought")
        yield ReplicaGroup(
            name=slug(str(workload["name"]), f"-{index}" if len(keys) > 1 else ""),
            workload=one_line(str(workload["name"])),
            model=_text(workload["model"]),
            purchases=bought,
            precision=_text(item["precision"]),
            tensor_parallel=_whole(item["tensor_parallel"]),
            pipeline_parallel=_whole(item["pipeline_parallel"]),
            data_parallel=_whole(item.get("data_parallel", 1)),
            expert_parallel=_whole(item.get("expert_parallel", 1)),
            replicas=_whole(item["count"]),
            instances=sum(purchase.count for purchase in bought),
            instances_per_replica=_whole(item["instances_per_replica"]),
            batch=_whole(item["batch"]),
            context_tokens=_whole(workload["context_tokens"]),
            requests_per_s=float(item["requests_per_s"]),
            kv_precision=_kv_precision(item, workload),
            is_alone=keys.count(key) == 1,
            engine=_optional(item.get("engine")),
            memory_share=_share(item.get("gpu_memory_utilization")),
            memory=_memory(item.get("memory")),
            prefix_cache_hit=float(item.get("prefix_cache_hit", 0.0)),
        )


def _kv_precision(item: Mapping[str, Any], workload: Mapping[str, Any]) -> str | None:
    """The cache's own precision; None where it is the model's 16 bits."""
    name = _optional(item.get("kv_precision", workload.get("kv_precision")))
    return None if name in ("auto", "16-bit", "bf16", "fp16") else name


def _share(value: Any) -> float | None:
    if value is not None and not 0 < float(value) <= 1:
        raise ValueError(f"memory share {value!r}")
    return None if value is None else float(value)


def _memory(item: Mapping[str, Any] | None) -> CardMemory | None:
    """None also where a measurement stands for the estimate, which has no room for the cache."""
    if item is None:
        return None
    memory = CardMemory(
        usable_gib=float(item["usable_gib_per_gpu"]),
        weights_gib=float(item["weights_gib"]),
        activations_gib=float(item["activations_gib"]),
        overhead_gib=float(item["overhead_gib"]),
        cache_gib=float(item["kv_room_gib"]),
    )
    if not 0 < memory.usable_gib < math.inf or not 0 < memory.of_card <= 1.001:
        raise ValueError(f"memory {dict(item)!r}")
    return memory if memory.cache_gib > 0 else None


def _jobs(document: Mapping[str, Any], purchases: Sequence[Purchase]) -> Iterator[TrainingJob]:
    runs = {str(workload["name"]): workload for workload in document["workloads"]}
    names = [slug(str(item["workload"])) for item in document.get("jobs", ())]
    for index, item in enumerate(document.get("jobs", ())):
        run = runs[str(item["workload"])]
        bought = [purchase for purchase in purchases if purchase.key == _key(item)]
        yield TrainingJob(
            name=names[index] if names.count(names[index]) == 1 else slug(f"{index}-{names[index]}"),
            model=_text(run["model"]),
            task=_text(run["task"]),
            purchase=next(purchase for purchase in bought if purchase.count == item["count"]),
            tokens=float(run["tokens"]),
            seq_len=_whole(run["seq_len"]),
            global_batch_tokens=_whole(item["global_batch_tokens"]),
            optimizer=_text(run["optimizer"]),
            precision=_text(item["precision"]),
            lora_rank=None if run["lora_rank"] is None else _whole(run["lora_rank"]),
            tensor_parallel=_whole(item["tensor_parallel"]),
            pipeline_parallel=_whole(item["pipeline_parallel"]),
            context_parallel=_whole(item["context_parallel"]),
            expert_parallel=_whole(item["expert_parallel"]),
            data_parallel=_whole(item["data_parallel"]),
            zero_stage=int(item["zero_stage"]),
            micro_batch=_whole(item["micro_batch"]),
            recompute=_text(item["recompute"]),
            stack=_text(item["stack"]),
            hours=float(item["hours"]),
            offload=None if item.get("offload") is None else frozenset(map(_text, item["offload"])),
            master_weights=_switch(item.get("master_weights")),
            checkpoint_interval_hours=_hours(item.get("checkpoint_interval_hours")),
        )


def _key(item: Mapping[str, Any]) -> tuple[str, str, str | None, str]:
    return item["provider"], item["instance_type"], item["region"], item["purchase_option"]


def _differs_by_shape(routing: Sequence[Mapping[str, Any]]) -> bool:
    """Whether some group gets another share of one shape than of another shape of the same workload."""
    shapes: dict[str, set[tuple[Any, Any]]] = {}
    shares: dict[tuple[str, Any], list[float]] = {}
    for route in routing:
        shapes.setdefault(route["workload"], set()).add((route["input_tokens"], route["output_tokens"]))
        shares.setdefault((route["workload"], route["replica_group"]), []).append(float(route["share"]))
    return any(
        len(parts) < len(shapes[workload]) or max(parts) - min(parts) > 0.01 for (workload, _), parts in shares.items()
    )


def _text(value: Any) -> str:
    """A name as the plan has it. Raises ValueError for one that a command line would take for an option."""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise ValueError(f"name {value!r}")
    if value.startswith("-"):
        raise ValueError(f"name {value!r} starts with a hyphen: a command would take it for an option")
    return value


def _switch(value: Any) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"switch {value!r}")
    return value


def _hours(value: Any) -> float | None:
    if value is None:
        return None
    hours = float(value)
    if not 0 < hours < math.inf:
        raise ValueError(f"hours {value!r}")
    return hours


def _optional(value: Any) -> str | None:
    return None if value is None else _text(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 1:
        raise ValueError(f"count {value!r}")
    return int(value)
