"""Turns the sizing of a training job into the JSON document `costopt.size`."""

from dataclasses import dataclass
from typing import Any, Final

from optimizer.sizing.document import SCHEMA, SCHEMA_VERSION, number
from optimizer.sizing.training.calibration import MEMORY, TIME_SPREAD
from optimizer.sizing.training.layouts import TrainingEstimate, choices_made
from optimizer.workload.architecture import Architecture
from optimizer.workload.training import TrainingRun


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSize:
    """What `costopt size` answers for a training job: the best layout, or the thriftiest where none fits."""

    run: TrainingRun
    estimate: TrainingEstimate
    min_gpus: int | None
    min_gpus_comfortable: int | None
    valid_tensor_parallel: tuple[int, ...]
    tokens_stated: bool
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def fits(self) -> bool:
        return self.estimate.memory.verdict != "does_not_fit"

    @property
    def meets_deadline(self) -> bool | None:
        """Whether the estimated hours are within the deadline; None without tokens or a deadline."""
        deadline = self.run.deadline_hours
        return None if deadline is None or not self.tokens_stated else self.estimate.hours <= deadline


def training_size_document(model: Architecture, sized: TrainingSize) -> dict[str, Any]:
    """The document's keys are those of schema version 1.0.

    `weights_gib`, `gradients_gib`, `optimizer_gib`, `activations_gib` and `overhead_gib` are summed over all
    accelerators, copies included; `per_gpu` has them for the fullest one, whose sum is `per_gpu_gib`.
    """
    estimate = sized.estimate
    setup, layout = estimate.setup, estimate.setup.layout
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "verdict": estimate.memory.verdict,
        "model": model.hf_id,
        "parameters": round(model.params_total),
        "task": setup.task,
        "accelerator": setup.cluster.accelerator.name,
        "count": setup.cluster.accelerators,
        "precision": setup.precision,
        "optimizer": setup.optimizer,
        "stack": setup.stack,
        "tensor_parallel": layout.tp,
        "pipeline_parallel": layout.pp,
        "context_parallel": layout.cp,
        "expert_parallel": layout.ep,
        "data_parallel": layout.dp,
        "zero_stage": setup.zero_stage,
        "micro_batch": setup.micro_batch,
        "recompute": setup.recompute,
        "seq_len": setup.seq_len,
        "global_batch_tokens": round(setup.global_batch_tokens),
        "headroom_tokens": None,
        "min_gpus": sized.min_gpus,
        "min_gpus_comfortable": sized.min_gpus_comfortable,
        "valid_tensor_parallel": list(sized.valid_tensor_parallel),
        "memory": _memory(estimate),
        "performance": _performance(sized),
        "assumptions": [*choices_made(sized.run, estimate), *sized.assumptions],
        "warnings": list(sized.warnings),
    }


def _memory(estimate: TrainingEstimate) -> dict[str, Any]:
    memory, ranks = estimate.memory, estimate.setup.layout.accelerators
    overhead = memory.buffers_gib + memory.context_gib + memory.fragmentation_gib
    activations = memory.activations_gib + memory.logits_gib
    parts: Final = {
        "weights_gib": memory.weights_gib,
        "gradients_gib": memory.gradients_gib,
        "optimizer_gib": memory.optimizer_gib,
        "activations_gib": activations,
        "overhead_gib": overhead,
    }
    return {
        "usable_gib_per_gpu": number(memory.usable_gib),
        **{name: number(value * ranks) for name, value in parts.items()},
        "kv_cache_gib": 0,
        "kv_bytes_per_token": None,
        "total_gib": number(memory.needed_gib * ranks),
        "per_gpu_gib": number(memory.needed_gib),
        "per_gpu_gib_low": number(memory.needed_gib / MEMORY.spread),
        "per_gpu_gib_high": number(memory.needed_gib * MEMORY.spread),
        "per_gpu": {
            **{name: number(value) for name, value in parts.items()},
            "logits_gib": number(memory.logits_gib),
            "gathered_gib": number(memory.buffers_gib),
        },
        "dominant": memory.dominant,
        "limiting": memory.limiting,
        "host_gib_per_node": number(memory.host_gib),
        "max_context_tokens": None,
        "max_concurrency": None,
    }


def _performance(sized: TrainingSize) -> dict[str, Any] | None:
    if not sized.fits:
        return None
    estimate = sized.estimate
    rate = estimate.step.tokens_per_s_per_accelerator
    return {
        "tokens_per_s": _around(rate * estimate.accelerators),
        "tokens_per_s_per_gpu": _around(rate),
        "mfu": number(estimate.step.mfu, digits=4),
        "step_s": _around(estimate.step.seconds),
        "hours": _around(estimate.hours) if sized.tokens_stated else None,
        "gpu_hours": _around(estimate.hours * estimate.accelerators) if sized.tokens_stated else None,
        "deadline_hours": number(sized.run.deadline_hours),
        "meets_deadline": sized.meets_deadline,
    }


def _around(value: float) -> dict[str, Any]:
    return {"value": number(value), "low": number(value / TIME_SPREAD), "high": number(value * TIME_SPREAD)}
