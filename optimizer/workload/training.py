"""Says what must be trained: a model, a task, a number of tokens, and by when."""

import math
import re
from dataclasses import dataclass, field
from typing import Final

from providers.errors import InvalidValue, UnknownName, nearest

TASKS: Final = ("train", "finetune", "lora", "qlora")
"""train = pre-training, finetune = full fine-tuning; the others train adapters over a frozen base."""

DEFAULT_SEQ_LEN: Final = {"train": 4096, "finetune": 2048, "lora": 2048, "qlora": 2048}
DEFAULT_BATCH_TOKENS: Final = {"train": 4_194_304, "finetune": 262_144, "lora": 131_072, "qlora": 131_072}
"""Tokens of one optimizer step. Pre-training: 4 M, as Llama 2 and BLOOM; fine-tuning: 64 to 128 sequences of 2,048."""

_COUNT = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmbt]?)", re.IGNORECASE)
_SCALE: Final = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}
_MOST_TOKENS: Final = 1e18


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRun:
    """One model to train over `tokens` tokens in all (all epochs together), in sequences of `seq_len`.

    `global_batch_tokens` is one optimizer step. `deadline_hours` None = no deadline. `precision` is the arithmetic
    (bf16, fp16, fp8, fp4); `master_weights` says whether FP32 copies are kept, `lora_experts`
    whether experts of a mixture have adapters, too. None for `tp`, `pp`, `zero_stage`,
    `micro_batch` and `recompute` leaves them to the search for layouts. `offload` names what lives in host memory:
    optimizer, params, or activations. `stack` is the software (see `optimizer.sizing.training.calibration`), None =
    the task's usual one. Raises InvalidValue for values outside their domain.
    """

    name: str
    model: str
    task: str
    tokens: float
    seq_len: int
    global_batch_tokens: int
    deadline_hours: float | None = None
    precision: str = "bf16"
    optimizer: str = "adamw"
    lora_rank: int = 16
    lora_experts: bool = True
    master_weights: bool = True
    tp: int | None = None
    pp: int | None = None
    zero_stage: int | None = None
    micro_batch: int | None = None
    recompute: str | None = None
    offload: frozenset[str] = frozenset()
    stack: str | None = None
    assumptions: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.task not in TASKS:
            raise UnknownName("training task", self.task, nearest(self.task, TASKS), f"known: {', '.join(TASKS)}")
        for what, value in (
            ("sequence length", self.seq_len),
            ("global batch in tokens", self.global_batch_tokens),
            ("LoRA rank", self.lora_rank),
        ):
            if value < 1:
                raise InvalidValue(what, value, "give a whole number of at least 1")
        if not 1 <= self.tokens < _MOST_TOKENS:
            raise InvalidValue("training tokens", self.tokens, "give a number of tokens, like 1B or 1T")
        if self.deadline_hours is not None and not 0 < self.deadline_hours < math.inf:
            raise InvalidValue("deadline in hours", self.deadline_hours, "give a duration above 0, like 12h or 30d")
        if self.global_batch_tokens < self.seq_len:
            raise InvalidValue(
                "global batch in tokens",
                self.global_batch_tokens,
                f"must hold at least one sequence of {self.seq_len} tokens",
            )

    @property
    def sequences_per_step(self) -> int:
        """Whole sequences of one optimizer step."""
        return self.global_batch_tokens // self.seq_len

    @property
    def is_adapter(self) -> bool:
        """Whether the base is frozen."""
        return self.task in ("lora", "qlora")


def token_count(what: str, text: str) -> float:
    """Tokens of `1B`, `1.5T`, `300M`, `500k` or a plain number. Raises InvalidValue."""
    match = _COUNT.fullmatch(text.strip().replace(",", "").replace("_", ""))
    count = float(match[1]) * _SCALE[match[2].lower()] if match else 0.0
    if not 1 <= count < _MOST_TOKENS:
        raise InvalidValue(what, text, "write a number of tokens above 0, like 500M, 1B or 1.5T")
    return count
