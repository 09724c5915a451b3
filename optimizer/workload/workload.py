"""Says what must run: a request shape, its service level, and the workload around them."""

import math
from dataclasses import dataclass, field

from providers.errors import InvalidValue


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestShape:
    """Tokens of one request: `input_tokens` to read (>= 1), `output_tokens` to write (>= 1)."""

    input_tokens: int
    output_tokens: int

    def __post_init__(self) -> None:
        for what, value in (("input tokens", self.input_tokens), ("output tokens", self.output_tokens)):
            if value < 1:
                raise InvalidValue(what, value, "give a whole number of at least 1")

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __str__(self) -> str:
        return f"{self.input_tokens}+{self.output_tokens}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SLO:
    """Bounds on time to first token and on time per output token, in milliseconds. infinity = no bound."""

    ttft_ms: float = math.inf
    tpot_ms: float = math.inf

    def __post_init__(self) -> None:
        for what, value in (("TTFT bound in ms", self.ttft_ms), ("TPOT bound in ms", self.tpot_ms)):
            if not value > 0:
                raise InvalidValue(what, value, "give a number above 0")


DEFAULT_SHAPE = RequestShape(input_tokens=1000, output_tokens=300)
DEFAULT_SLO = SLO(ttft_ms=2000.0, tpot_ms=100.0)
DEFAULT_UTILIZATION = 0.8
"""Share of a replica's capacity that a plan loads at most, so that arrivals can bunch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeDemand:
    """A request shape and how many requests of it arrive per second; None where the rate is what is sought."""

    shape: RequestShape
    requests_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceWorkload:
    """One model to serve: the shapes of its requests, its SLO, and the dtypes its owner allows.

    `precisions` empty means `auto`: the model's native dtype, and FP8 for a 16-bit model where hardware has it.
    `context_tokens` is the longest request (input + output) that must fit; None = the longest shape.
    """

    name: str
    model: str
    demands: tuple[ShapeDemand, ...]
    slo: SLO = DEFAULT_SLO
    precisions: tuple[str, ...] = ()
    kv_precision: str | None = None
    context_tokens: int | None = None
    utilization: float = DEFAULT_UTILIZATION
    assumptions: tuple[str, ...] = field(default=())

    @property
    def needed_context_tokens(self) -> int:
        """Tokens of the longest request that must fit."""
        longest = max(demand.shape.total_tokens for demand in self.demands)
        return max(longest, self.context_tokens or 0)
