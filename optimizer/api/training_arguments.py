"""Turns what is said of a training run, on a command line or in Python, into the run that it means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Final

from optimizer.api import values
from optimizer.api.sources import Content, Source, path_of
from optimizer.api.values import flag_of
from optimizer.workload.training import (
    DEFAULT_BATCH_TOKENS,
    DEFAULT_SEQ_LEN,
    TASKS,
    TrainingRun,
    token_count,
)
from providers.errors import InvalidValue, UnknownName, UsageError, nearest

PRECISIONS: Final = ("bf16", "fp16", "fp8", "fp4")
_LINES_BEFORE_JOBS: Final = 200
"""Comments at the head of a jobs file."""

_JOBS: Final = re.compile(r"""(\{\s*)?(["']?)jobs\2\s*:""")

NOMINAL_TOKENS: Final = 1e9
"""Stands in where only memory is asked for: nothing of it is shown."""

TRAINING_ONLY: Final = frozenset(
    {
        *("tokens", "seq_len", "deadline", "global_batch_tokens", "optimizer", "master_weights", "zero_stage"),
        *("lora_rank", "lora_experts", "micro_batch", "recompute", "offload", "stack", "host_memory"),
    }
)
INFERENCE_ONLY: Final = frozenset(
    {
        *("rate", "input_tokens", "output_tokens", "context", "trace", "trace_rate", "trace_shapes", "ttft_ms"),
        *("tpot_ms", "kv_precision", "engine", "gpu_memory_utilization", "max_utilization", "max_spot_share"),
        *("min_providers", "max_provider_share", "spare_replicas", "current", "horizon", "boot_minutes"),
        *("min_hours_up", "spot_margin", "concurrency", "prefix_cache_hit", "measured", "melange", "sweep"),
        "same_region",
    }
)
"""Parameters of `plan` and `size` that only one kind of task takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """What is said of how to train, whatever the model; None where nothing is."""

    tokens: str | None = None
    seq_len: int | None = None
    deadline: str | None = None
    global_batch_tokens: str | None = None
    optimizer: str | None = None
    master_weights: bool | None = None
    zero_stage: int | None = None
    lora_rank: int = 16
    lora_experts: bool | None = None
    micro_batch: int | None = None
    recompute: str | None = None
    offload: Iterable[str] | None = None
    stack: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingArguments(RunOptions):
    """What is said of a run; None where nothing is."""

    model: str
    task: str
    precision: str | None = None
    tp: int | None = None
    pp: int | None = None

    @classmethod
    def of(cls, options: RunOptions, *, model: str, task: str, precision: Iterable[str] | None) -> "TrainingArguments":
        """A run of the model with those options. Raises UsageError for several precisions."""
        said = {field.name: getattr(options, field.name) for field in fields(RunOptions)}
        return cls(model=model, task=task, precision=precision_of(precision), **said)


def holds_jobs(source: Source) -> bool:
    """Whether a workload file is one of training jobs, each of which names its own task."""
    if isinstance(source, Content):
        return any(map(_JOBS.match, source.text.splitlines()[:_LINES_BEFORE_JOBS]))
    try:
        with path_of(source).open(encoding="utf-8-sig") as file:
            return any(map(_JOBS.match, islice(file, _LINES_BEFORE_JOBS)))
    except (OSError, UnicodeDecodeError):
        return False


def check_given(names: Iterable[str], task: str) -> None:
    """Raises UsageError for one of the named parameters that the task does not take: nothing is ignored in silence."""
    others = TRAINING_ONLY if task == "infer" else INFERENCE_ONLY
    for name in names:
        if name in ("lora_rank", "lora_experts") and task in ("train", "finetune"):
            raise UsageError(f"{flag_of(name)} is for --task lora or qlora; a {task} run has no adapters")
        if name not in others:
            continue
        if task == "infer":
            raise UsageError(f"{flag_of(name)} is for training; add --task train, finetune, lora or qlora")
        raise UsageError(f"{flag_of(name)} is for --task infer; a {task} run does not take it")


def training_run(said: TrainingArguments, *, now: datetime, needs_tokens: bool) -> TrainingRun:
    """The run that the arguments mean. Raises UsageError for values that make no run."""
    from optimizer.sizing.training.calibration import optimizer_name, stack_named
    from optimizer.sizing.training.setup import OFFLOADS, RECOMPUTE

    task = _one_of("task", said.task, TASKS)
    if needs_tokens and said.tokens is None:
        raise UsageError(f"--task {said.task} needs --tokens: how many tokens to train on, like --tokens 1B")
    optimizer = optimizer_name(said.optimizer or "adamw")
    seq_len = said.seq_len or DEFAULT_SEQ_LEN[task]
    batch = said.global_batch_tokens
    return TrainingRun(
        name="run",
        model=said.model,
        task=task,
        tokens=NOMINAL_TOKENS if said.tokens is None else token_count("--tokens", said.tokens),
        seq_len=seq_len,
        global_batch_tokens=int(token_count("--global-batch-tokens", batch))
        if batch is not None
        else max(DEFAULT_BATCH_TOKENS[task], seq_len),
        deadline_hours=None if said.deadline is None else deadline_hours(said.deadline, now),
        precision=_one_of("training precision", said.precision or "bf16", PRECISIONS),
        optimizer=optimizer,
        master_weights=said.master_weights if said.master_weights is not None else True,
        lora_rank=said.lora_rank,
        lora_experts=said.lora_experts is not False,
        tp=said.tp,
        pp=said.pp,
        zero_stage=said.zero_stage,
        micro_batch=said.micro_batch,
        recompute=None if said.recompute is None else _one_of("recomputation", said.recompute, RECOMPUTE),
        offload=frozenset(
            _one_of("offload", part.strip(), OFFLOADS) for word in said.offload or () for part in word.split(",")
        ),
        stack=None if said.stack is None else stack_named(said.stack).name,
        assumptions=tuple(_assumptions(said, seq_len)),
    )


def deadline_hours(text: str, now: datetime) -> float:
    """Hours until the deadline: a duration like 12h or 30d, or the end of a day in UTC. Raises InvalidValue."""
    last = values.day("--deadline", text.strip()) if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text.strip()) else None
    if last is None:
        return values.duration_hours("--deadline", text)
    end = datetime(last.year, last.month, last.day, tzinfo=UTC) + timedelta(days=1)
    hours = (end - now).total_seconds() / 3600
    if hours <= 0:
        raise InvalidValue("--deadline", text, f"lies in the past (now is {now:%Y-%m-%d %H:%M} UTC)")
    return hours


def precision_of(words: Iterable[str] | None) -> str | None:
    """The one training precision that the words name; None for `auto` or nothing. Raises UsageError for several."""
    chosen = [part.strip() for word in words or () for part in word.split(",") if part.strip() != "auto"]
    if len(set(chosen)) > 1:
        raise UsageError(f"training computes in one precision, not in {', '.join(chosen)}; give one of --precision")
    return chosen[0] if chosen else None


def _one_of(kind: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UnknownName(kind, value, nearest(value, known), f"known: {', '.join(known)}")
    return value


def _assumptions(said: TrainingArguments, seq_len: int) -> Iterable[str]:
    """What was taken where nothing was said."""
    if said.seq_len is None:
        yield f"sequences of {seq_len:,} tokens, packed: no padding"
    if said.global_batch_tokens is None:
        yield f"an optimizer step of {max(DEFAULT_BATCH_TOKENS[said.task], seq_len):,} tokens"
    if said.precision is None:
        yield "products in bf16 (fp16 where the hardware has no bf16)"
    if said.optimizer is None:
        yield "optimizer AdamW"
    if said.master_weights is None and said.task in ("train", "finetune"):
        yield "mixed precision: FP32 master weights and moments (--no-master-weights for pure 16 bit)"
