"""Says what must run: a request shape, its service level, and the workload around them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from providers.errors import InvalidValue
from providers.units import HOURS_PER_DAY, HOURS_PER_WEEK


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
PROFILE_LENGTHS = (0, HOURS_PER_DAY, HOURS_PER_WEEK)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeDemand:
    """A request shape and how many requests of it arrive per second, averaged over the profile.

    `requests_per_s` None: the rate is what is sought. `share` is the shape's part of the workload's requests.
    """

    shape: RequestShape
    requests_per_s: float | None = None
    share: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceWorkload:
    """One model to serve: the shapes of its requests, their rates over time, its SLO, and what its owner allows.

    profile             hourly factors on the rates, with a mean of 1: () = constant, 24 of a day, 168 of a week
    precisions          allowed dtypes; () = `auto`: the native dtype, and FP8 for a 16-bit model where hardware has it
    context_tokens      longest request (input + output) that must fit; None = the longest shape
    minimum_replicas    replicas at all times, whatever the load
    regions             where replicas may run (data residency); None = anywhere, also where the region is not known
    priority            1 is served first where a budget does not cover all workloads
    """

    name: str
    model: str
    demands: tuple[ShapeDemand, ...]
    owner: str | None = None
    slo: SLO = DEFAULT_SLO
    profile: tuple[float, ...] = ()
    precisions: tuple[str, ...] = ()
    kv_precision: str | None = None
    context_tokens: int | None = None
    utilization: float = DEFAULT_UTILIZATION
    minimum_replicas: int = 1
    minimum_replicas_by_region: Mapping[str, int] = field(default_factory=dict)
    regions: frozenset[str] | None = None
    same_region: bool = False
    spot_allowed: bool = True
    priority: int = 1

    def __post_init__(self) -> None:
        if not self.demands:
            raise InvalidValue(f"shapes of {self.name}", 0, "give at least one")
        if not 0 < self.utilization <= 1:
            raise InvalidValue(f"utilization of {self.name}", self.utilization, "give a share above 0, at most 1")
        if len(self.profile) not in PROFILE_LENGTHS:
            raise InvalidValue(f"profile of {self.name}", len(self.profile), "give 24 or 168 hourly numbers")
        if any(not 0 <= factor < math.inf for factor in self.profile) or (self.profile and not any(self.profile)):
            raise InvalidValue(f"profile of {self.name}", self.profile, "give numbers of 0 or more, not all 0")

    @property
    def needed_context_tokens(self) -> int:
        """Tokens of the longest request that must fit."""
        longest = max(demand.shape.total_tokens for demand in self.demands)
        return max(longest, self.context_tokens or 0)

    @property
    def requests_per_s(self) -> float | None:
        """Of all shapes, averaged over the profile; None where the rate is sought."""
        rates = [demand.requests_per_s for demand in self.demands]
        return None if None in rates else sum(rate for rate in rates if rate is not None)

    def factors(self, periods: int) -> tuple[float, ...]:
        """The profile's factor in each of 1, 24 or 168 hourly periods; a shorter profile repeats."""
        if periods == 1 or not self.profile:
            return (1.0,) * periods
        mean = sum(self.profile) / len(self.profile)
        return tuple(self.profile[t % len(self.profile)] / mean for t in range(periods))
