"""Turns a replica's step costs and its load into request times: batch, rate, TTFT, TPOT in steady state."""

from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.sizing.steps import StepCosts

_MOST_BUSY = 0.98
"""Prefill utilisation at which the waiting time is cut off: beyond it no steady state exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """One replica with `batch` requests running for good: seconds per decode step, and of one request's life."""

    batch: float
    step_s: float
    prompt_share_s: float
    prefill_s: float
    life_s: float
    output_tokens: float
    lanes: int

    @property
    def requests_per_s(self) -> float:
        """Requests that finish per second: batch / life (Little's law)."""
        return self.batch / self.life_s

    @property
    def tpot_s(self) -> float:
        """Seconds between two tokens of one request: its life without its own prompt, per output token."""
        return (self.life_s - self.prompt_share_s) / max(1.0, self.output_tokens)

    @property
    def others(self) -> float:
        """Requests of the same lane beside one's own."""
        return max(0.0, self.batch / self.lanes - 1)

    @property
    def reading_s(self) -> float:
        """Seconds of one's own prompt: alone, or in a step that also writes a token of every running request."""
        return max(self.prefill_s, self.prompt_share_s + self.step_s) if self.batch > 1 else self.prefill_s

    def open_wait_s(self) -> float:
        """Mean wait of a prompt that arrives at random: half a step, and the prompts in front of it."""
        half_step = 0.5 * self.step_s if self.batch > 1 else 0.0
        return half_step + queued_prompts(self.prompt_share_s * self.requests_per_s / self.lanes) * self.prompt_share_s


def queued_prompts(busy: float) -> float:
    """Mean number of prompts that a random arrival finds in front, at the utilisation `busy` of reading.

    Pollaczek-Khinchine for constant service: busy / 2 (1 - busy).
    """
    busy = min(_MOST_BUSY, busy)
    return busy / (2 * (1 - busy))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What one prompt takes, whatever the batch: seconds alone, and seconds that it adds to running steps."""

    prefill_s: float
    share_s: float


def prompt_of(costs: StepCosts, input_tokens: float, cached_tokens: float = 0.0) -> Prompt:
    """The prompt of `input_tokens`, of which `cached_tokens` are in the prefix cache."""
    read_tokens = input_tokens - cached_tokens
    return Prompt(
        prefill_s=costs.prefill_s(read_tokens, cached_tokens), share_s=costs.prompt_share_s(read_tokens, cached_tokens)
    )


def steady(
    costs: StepCosts,
    input_tokens: float,
    output_tokens: float,
    batch: float,
    cached_tokens: float = 0.0,
    prompt: Prompt | None = None,
) -> Steady:
    """Continuous batching with `batch` requests running; `cached_tokens` of each prompt are in the prefix cache.

    A request lives for its output steps and, between them, for the prompts of the others that start meanwhile:
    life = out x step(batch) + batch / lanes x prompt share, the cache read at the mean length in + out / 2.
    `prompt` spares its computation where many batches are tried.
    """
    prompt = prompt or prompt_of(costs, input_tokens, cached_tokens)
    step = costs.decode_s(batch, input_tokens + output_tokens / 2)
    return Steady(
        batch=batch,
        step_s=step,
        prompt_share_s=prompt.share_s,
        prefill_s=prompt.prefill_s,
        life_s=output_tokens * step + max(1.0, batch / costs.lanes) * prompt.share_s,
        output_tokens=output_tokens,
        lanes=costs.lanes,
    )


def served_overhead_s(input_tokens: float, known: Mapping[str, float]) -> float:
    """HTTP, tokenising and scheduling before a first token: a fixed time and one per prompt token."""
    return known["serving.first_token_ms"] * 1e-3 + known["serving.prompt_token_us"] * 1e-6 * input_tokens
