"""Turns the hours of a training run into what is paid: instances however they are bought, checkpoints, storage."""

import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from optimizer.sizing.training.calibration import optimizer_states
from optimizer.sizing.training.memory import adapter_parameters
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun
from providers.offers import Offer, PurchaseOption
from providers.units import GB, HOURS_PER_DAY, HOURS_PER_MONTH, SECONDS_PER_HOUR

CHECKPOINT_BYTES_PER_S: Final = 1e9
"""Per instance, to network storage: what clouds' network file systems and object stores sustain for one writer."""

START_HOURS: Final = 0.25
"""Paid at the start and after each interruption: boot, image, loading of the checkpoint (assumed: 15 minutes)."""

CHECKPOINTS_KEPT: Final = 2
_BYTES_PER_STORED_TOKEN: Final = 4
"""Token ids of vocabularies above 65,536 are stored in 32 bits."""

STORAGE_USD_PER_GB_MONTH: Final[Mapping[str, Decimal]] = {
    "aws": Decimal("0.023"),  # S3 Standard, us-east-1, list price 2026
    "gcp": Decimal("0.020"),  # Cloud Storage Standard, us regions, list price 2026
    "azure": Decimal("0.018"),  # Blob Storage hot LRS, East US, list price 2026
    "lambda": Decimal("0.20"),  # persistent filesystem, list price 2026
    "runpod": Decimal("0.07"),  # network volume, list price 2026
}


def checkpoint_bytes(run: TrainingRun, model: Architecture) -> float:
    """A checkpoint: 16-bit weights, FP32 master and moments of what is trained."""
    trained = model.params_total
    if run.is_adapter:
        trained = adapter_parameters(model, run.lora_rank, experts=run.lora_experts)
    states = optimizer_states(run.optimizer)
    return trained * (2.0 + (4.0 + states.mixed_bytes if run.master_weights else states.pure_bytes))


def spot_overhead(
    checkpoint: float, nodes: int, hazard_per_hour: float, *, restart_hours: float = START_HOURS
) -> tuple[float, float]:
    """Extra time of a job on spot as a share, and interruptions per hour: any instance that goes stops the job.

    M = 1 / (nodes x hazard); checkpoints of d hours every t = sqrt(2 d M) (Young, 1974); lost per interruption t / 2
    and the restart: overhead = d / t + (t / 2 + R) / M.
    """
    rate = nodes * hazard_per_hour
    interval = checkpoint_interval(checkpoint, nodes, hazard_per_hour)
    return _writing_hours(checkpoint, nodes) / interval + (interval / 2 + restart_hours) * rate, rate


def checkpoint_interval(checkpoint: float, nodes: int, hazard_per_hour: float) -> float:
    """Hours from one checkpoint to the next that lose the least on spot, at least a minute: t = sqrt(2 d M)."""
    return max(math.sqrt(2 * _writing_hours(checkpoint, nodes) / (nodes * hazard_per_hour)), 1 / 60)


def _writing_hours(checkpoint: float, nodes: int) -> float:
    return checkpoint / (nodes * CHECKPOINT_BYTES_PER_S) / SECONDS_PER_HOUR


def billed_hours(offer: Offer, hours: float) -> float:
    """What is paid for: the run, whole days of a capacity block, at least the whole term of a reservation."""
    if offer.purchase_option is PurchaseOption.CAPACITY_BLOCK:
        return math.ceil(hours / HOURS_PER_DAY) * float(HOURS_PER_DAY)
    if offer.commitment is not None:
        return max(hours, float(offer.commitment.term_months * HOURS_PER_MONTH))
    return hours


def stored_gb(run: TrainingRun, model: Architecture) -> float:
    """GB of training data and of the checkpoints that are kept."""
    return (run.tokens * _BYTES_PER_STORED_TOKEN + CHECKPOINTS_KEPT * checkpoint_bytes(run, model)) / GB


def storage_usd(run: TrainingRun, model: Architecture, provider: str, hours: float) -> Decimal:
    """Training data and the last checkpoints for the time of the run."""
    months = Decimal(repr(hours)) / HOURS_PER_MONTH
    return (STORAGE_USD_PER_GB_MONTH[provider] * Decimal(repr(stored_gb(run, model))) * months).quantize(
        Decimal("0.01")
    )
