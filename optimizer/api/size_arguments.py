"""Holds what `size` is asked with, as the command line or a Python program gives it."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from optimizer.api import choices, values
from optimizer.api.training_arguments import RunOptions, TrainingArguments, check_given
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeArguments(RunOptions):
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
    host_memory: float | None = None

    def __post_init__(self) -> None:
        values.check_whole_numbers(self)

    def checked_task(self, given: Iterable[str]) -> str:
        """The task that is meant. Raises UnknownName, or UsageError for a `given` parameter that it does not take."""
        task = choices.one_of("task", self.task, choices.TASKS)
        check_given(given, task)
        return task

    @property
    def run(self) -> TrainingArguments:
        """What is said of a training run. Raises UsageError for several precisions."""
        task = choices.one_of("task", self.task, choices.TASKS)
        run = TrainingArguments.of(self, model=self.model, task=task, precision=[self.precision])
        return replace(run, tp=self.tp, pp=self.pp)
