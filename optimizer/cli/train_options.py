"""The training options that `plan` and `size` share, and what they mean together: a training run."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import typer

from optimizer.cli import values
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

NOMINAL_TOKENS: Final = 1e9
"""Stands in where only memory is asked for: nothing of it is shown."""

Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="N", help="Training: tokens in all, epochs included: 500M, 1B, 1.5T.")
]
SeqLen = Annotated[int | None, typer.Option("--seq-len", metavar="N", min=1, help="Training: tokens of a sequence.")]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="TIME", help="Training: when the run must be done: 12h, 30d or 2027-01-31."),
]
GlobalBatch = Annotated[
    str | None, typer.Option("--global-batch-tokens", metavar="N", help="Training: tokens of one optimizer step.")
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        help="Training: adamw, adamw-8bit, paged-adamw, paged-adamw-8bit, adafactor, muon, lion or sgd.",
    ),
]
MasterWeights = Annotated[
    bool | None,
    typer.Option(
        "--master-weights/--no-master-weights",
        help="Training: FP32 copies of the weights (mixed precision), or pure 16 bit.  [default: master weights]",
    ),
]
ZeroStage = Annotated[
    int | None,
    typer.Option(
        "--zero-stage", metavar="0-3", min=0, max=3, help="Training: states that data-parallel ranks shard; 3 = FSDP."
    ),
]
LoraRank = Annotated[int, typer.Option("--lora-rank", metavar="N", min=1, max=4096, help="Rank of LoRA adapters.")]
MicroBatch = Annotated[
    int | None, typer.Option("--micro-batch", metavar="N", min=1, help="Training: sequences of a rank at a time.")
]
Recompute = Annotated[
    str | None,
    typer.Option("--recompute", metavar="WHAT", help="Training: activations computed again: none, selective or full."),
]
Offload = Annotated[
    list[str] | None,
    typer.Option(
        "--offload", metavar="WHAT", help="Training: keep in host memory: optimizer, params, activations; repeatable."
    ),
]
StackName = Annotated[
    str | None,
    typer.Option(
        "--stack", metavar="NAME", help="Training software: megatron, nemo, fsdp, eager, hf or xla. Default: by task."
    ),
]


TRAINING_ONLY: Final = frozenset(
    {
        *("tokens", "seq_len", "deadline", "global_batch_tokens", "optimizer", "master_weights", "zero_stage"),
        *("lora_rank", "micro_batch", "recompute", "offload", "stack", "host_memory"),
    }
)
INFERENCE_ONLY: Final = frozenset(
    {
        *("rate", "input_tokens", "output_tokens", "context", "trace", "trace_rate", "trace_shapes", "ttft_ms"),
        *("tpot_ms", "kv_precision", "engine", "gpu_memory_utilization", "max_utilization", "max_spot_share"),
        *("min_providers", "max_provider_share", "spare_replicas", "current", "horizon", "boot_minutes"),
        *("min_hours_up", "spot_margin", "concurrency", "prefix_cache_hit", "measured", "melange", "sweep"),
    }
)
"""Parameters of `plan` and `size` that only one kind of task takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFlags:
    """The flags as given; None where nothing was said."""

    model: str
    task: str
    tokens: str | None = None
    seq_len: int | None = None
    deadline: str | None = None
    global_batch_tokens: str | None = None
    optimizer: str | None = None
    master_weights: bool | None = None
    zero_stage: int | None = None
    lora_rank: int = 16
    micro_batch: int | None = None
    recompute: str | None = None
    offload: Iterable[str] | None = None
    stack: str | None = None
    precision: str | None = None
    tp: int | None = None
    pp: int | None = None


def holds_jobs(path: str) -> bool:
    """Whether a workload file is one of training jobs, each of which names its own task."""
    try:
        with Path(path).open(encoding="utf-8-sig") as file:
            return any(line.startswith("jobs:") for line in islice(file, _LINES_BEFORE_JOBS))
    except (OSError, UnicodeDecodeError):
        return False


def check_flags(context: typer.Context, task: str) -> None:
    """Raises UsageError for a flag on the command line that the task does not take: nothing is ignored in silence."""
    others = TRAINING_ONLY if task == "infer" else INFERENCE_ONLY
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name not in others or source is None or source.name != "COMMANDLINE":
            continue
        flag = max(parameter.opts, key=len)
        if task == "infer":
            raise UsageError(f"{flag} is for training; add --task train, finetune, lora or qlora")
        raise UsageError(f"{flag} is for --task infer; a {task} run does not take it")


def training_run(flags: TrainingFlags, *, now: datetime, needs_tokens: bool) -> TrainingRun:
    """The run that the flags mean. Raises UsageError for values that make no run."""
    from optimizer.sizing.training.calibration import optimizer_name, stack_named
    from optimizer.sizing.training.setup import OFFLOADS, RECOMPUTE

    if needs_tokens and flags.tokens is None:
        raise UsageError(f"--task {flags.task} needs --tokens: how many tokens to train on, like --tokens 1B")
    optimizer = optimizer_name(flags.optimizer or "adamw")
    seq_len = flags.seq_len or DEFAULT_SEQ_LEN[flags.task]
    batch = flags.global_batch_tokens
    return TrainingRun(
        name="run",
        model=flags.model,
        task=_one_of("task", flags.task, TASKS),
        tokens=NOMINAL_TOKENS if flags.tokens is None else token_count("--tokens", flags.tokens),
        seq_len=seq_len,
        global_batch_tokens=int(token_count("--global-batch-tokens", batch))
        if batch is not None
        else max(DEFAULT_BATCH_TOKENS[flags.task], seq_len),
        deadline_hours=None if flags.deadline is None else deadline_hours(flags.deadline, now),
        precision=_one_of("training precision", flags.precision or "bf16", PRECISIONS),
        optimizer=optimizer,
        master_weights=flags.master_weights if flags.master_weights is not None else True,
        lora_rank=flags.lora_rank,
        tp=flags.tp,
        pp=flags.pp,
        zero_stage=flags.zero_stage,
        micro_batch=flags.micro_batch,
        recompute=None if flags.recompute is None else _one_of("recomputation", flags.recompute, RECOMPUTE),
        offload=frozenset(
            _one_of("offload", part.strip(), OFFLOADS) for word in flags.offload or () for part in word.split(",")
        ),
        stack=None if flags.stack is None else stack_named(flags.stack).name,
        assumptions=tuple(_assumptions(flags, seq_len)),
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
    """The one training precision that the flags name; None for `auto` or nothing. Raises UsageError for several."""
    chosen = [part.strip() for word in words or () for part in word.split(",") if part.strip() != "auto"]
    if len(set(chosen)) > 1:
        raise UsageError(f"training computes in one precision, not in {', '.join(chosen)}; give one of --precision")
    return chosen[0] if chosen else None


def _one_of(kind: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise UnknownName(kind, value, nearest(value, known), f"known: {', '.join(known)}")
    return value


def _assumptions(flags: TrainingFlags, seq_len: int) -> Iterable[str]:
    """What was taken where nothing was said."""
    if flags.seq_len is None:
        yield f"sequences of {seq_len:,} tokens, packed: no padding"
    if flags.global_batch_tokens is None:
        yield f"an optimizer step of {max(DEFAULT_BATCH_TOKENS[flags.task], seq_len):,} tokens"
    if flags.precision is None:
        yield "products in bf16 (fp16 where the hardware has no bf16)"
    if flags.optimizer is None:
        yield "optimizer AdamW"
    if flags.master_weights is None and flags.task in ("train", "finetune"):
        yield "mixed precision: FP32 master weights and moments (--no-master-weights for pure 16 bit)"
