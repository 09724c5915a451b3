"""Holds what `size` is asked with, as the command line or a Python program gives it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from optimizer.api import choices
from optimizer.api.training_arguments import TrainingArguments, check_given, precision_of
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeArguments:
    """What is wanted: a field for each flag of `costopt size` that says so, under its name.

    None where nothing was said.
    """

    model: str
    gpu: str
    count: int = 1
    task: str = "infer"
    input_tokens: int = DEFAULT_SHAPE.input_tokens
    output_tokens: int = DEFAULT_SHAPE.output_tokens
    context: int | None = None
    concurrency: int | None = None
    ttft_ms: float = DEFAULT_SLO.ttft_ms
    tpot_ms: float = DEFAULT_SLO.tpot_ms
    precision: str = "auto"
    kv_precision: str | None = None
    tp: int | None = None
    pp: int | None = None
    engine: str | None = None
    gpu_memory_utilization: float | None = None
    prefix_cache_hit: float = 0.0
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
    offload: Sequence[str] | None = None
    stack: str | None = None
    host_memory: float | None = None

    def checked_task(self, given: Iterable[str]) -> str:
        """The task that is meant. Raises UnknownName, or UsageError for a `given` parameter that it does not take."""
        task = choices.one_of("task", self.task, choices.TASKS)
        check_given(given, task)
        return task

    @property
    def run(self) -> TrainingArguments:
        """What is said of a training run. Raises UsageError for several precisions."""
        return TrainingArguments(
            model=self.model,
            task=choices.one_of("task", self.task, choices.TASKS),
            tokens=self.tokens,
            seq_len=self.seq_len,
            deadline=self.deadline,
            global_batch_tokens=self.global_batch_tokens,
            optimizer=self.optimizer,
            master_weights=self.master_weights,
            zero_stage=self.zero_stage,
            lora_rank=self.lora_rank,
            micro_batch=self.micro_batch,
            recompute=self.recompute,
            offload=self.offload,
            stack=self.stack,
            precision=precision_of([self.precision]),
            tp=self.tp,
            pp=self.pp,
        )
