"""Turns the JSON of a plan into the groups of replicas and the training jobs that launch files are written for."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from optimizer.interop.launch_plan import CardMemory, LaunchPlan, Purchase, ReplicaGroup, TrainingJob, one_line, slug
from providers.errors import UsageError

MAX_BYTES: Final = 20_000_000
SCHEMA: Final = "costopt.plan"


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
            lora_experts=_switch(run.get("lora_experts")),
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
