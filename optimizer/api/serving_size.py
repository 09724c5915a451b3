"""Turns what `size` is asked with into the sizing of a served model, and that into its document."""

from dataclasses import dataclass, replace
from typing import Any

from optimizer.api import choices, values
from optimizer.api.size_arguments import SizeArguments
from optimizer.sizing.document import size_document
from optimizer.sizing.layout import Hardware
from optimizer.sizing.serving import ServingEstimate, size_serving
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, RequestShape


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingSize:
    """The sizing of a model on hardware; the KV cache that is shown is that of `requests` at once."""

    model: Architecture
    hardware: Hardware
    estimate: ServingEstimate
    requests: int

    @property
    def document(self) -> dict[str, Any]:
        return size_document(self.model, self.hardware, self.estimate, self.requests)


def size_of(wanted: SizeArguments) -> ServingSize:
    """The sizing, at the variant that the accelerator's name usually means. Raises UsageError."""
    model = choices.architecture(wanted.model)
    hardware, remarks = choices.hardware(wanted.gpu, wanted.count)
    sized = size_serving(
        model,
        hardware,
        shape=RequestShape(input_tokens=wanted.input_tokens, output_tokens=wanted.output_tokens),
        slo=SLO(ttft_ms=wanted.ttft_ms, tpot_ms=wanted.tpot_ms),
        precision=wanted.precision,
        kv_precision=wanted.kv_precision,
        engine=wanted.engine,
        context_tokens=wanted.context,
        concurrency=wanted.concurrency,
        tp=wanted.tp,
        pp=wanted.pp,
        gpu_memory_utilization=values.share("--gpu-memory-utilization", wanted.gpu_memory_utilization),
        prefix_cache_hit=values.share("--prefix-cache-hit", wanted.prefix_cache_hit, zero=True) or 0.0,
    )
    return ServingSize(
        model=model,
        hardware=hardware,
        estimate=replace(sized, assumptions=(*remarks, *sized.assumptions)),
        requests=max(1, min(wanted.concurrency or 1, sized.max_concurrency)),
    )
