"""Turns a YAML file of training jobs into their flags, or into errors that name the field, the value and the line.

jobs:
  - name: base
    model: 7B                  # size, alias, Hugging Face id, or a path to a config.json
    task: train                # train, finetune, lora or qlora
    tokens: 1T
    deadline: 60d              # from now: 12h, 30d, or a day
    earliest: 5d               # not before
    seq_len: 4096              # the other keys are those of the flags, with underscores
    global_batch_tokens: 4M
"""

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from optimizer.workload.workload_file import faults, load_yaml
from providers.errors import UsageError

MAX_JOBS: Final = 50

Text = Annotated[str, Field(min_length=1, max_length=200)]


class JobEntry(BaseModel):
    """One job as a file gives it; None where the flags or defaults decide."""

    model_config = ConfigDict(extra="forbid", frozen=True, coerce_numbers_to_str=True)

    name: Text
    model: Text
    task: Text = "train"
    tokens: Text
    deadline: Text | None = None
    earliest: Text | None = None
    seq_len: int | None = Field(default=None, ge=1)
    global_batch_tokens: Text | None = None
    precision: Text | None = None
    optimizer: Text | None = None
    master_weights: bool | None = None
    zero_stage: int | None = Field(default=None, ge=0, le=3)
    lora_rank: int = Field(default=16, ge=1, le=4096)
    lora_experts: bool | None = None
    micro_batch: int | None = Field(default=None, ge=1)
    recompute: Text | None = None
    offload: list[Text] = Field(default_factory=list)
    stack: Text | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    jobs: list[JobEntry] = Field(min_length=1, max_length=MAX_JOBS)


def parse_jobs(text: str, name: str) -> tuple[JobEntry, ...]:
    """The jobs of a YAML file. Raises UsageError with the field path, the value and the line of every fault."""
    content, lines = load_yaml(text, name)
    try:
        jobs = _File.model_validate(content).jobs
    except ValidationError as error:
        raise UsageError(f"{name}: {faults(error, lines, _File)}") from None
    seen: set[str] = set()
    for job in jobs:
        if job.name in seen:
            raise UsageError(f"{name}: two jobs are named {job.name!r}; give each a name of its own")
        seen.add(job.name)
    return tuple(jobs)
