"""Sizes one workload on each hardware once, whoever sells it and however often it is asked."""

import time
from dataclasses import dataclass, field

from optimizer.sizing.candidates import Hardware, SizedCandidate, size_candidates
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.accelerators import catalogue
from providers.offers import InstanceType


@dataclass(slots=True)
class Sizer:
    """Candidates of one workload by instance type; counts the hardware that has none, by its first reason."""

    workload: InferenceWorkload
    architecture: Architecture
    engine: str = "vllm"
    gpu_memory_utilization: float | None = None
    rejections: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    _sized: dict[tuple[str, tuple[str, ...]], list[SizedCandidate]] = field(default_factory=dict)
    _hardware: dict[int, tuple[InstanceType, str]] = field(default_factory=dict)

    def candidates(self, kind: InstanceType, precisions: tuple[str, ...] = ()) -> list[SizedCandidate]:
        """What runs on the accelerators of one instance of that type; empty `precisions` are the workload's own."""
        key = (self.hardware(kind), precisions or self.workload.precisions)
        found = self._sized.get(key)
        if found is None:
            started = time.perf_counter()
            found = self._sized[key] = self._size(kind, key[1])
            self.seconds += time.perf_counter() - started
        return found

    def hardware(self, kind: InstanceType) -> str:
        """What sizing depends on: accelerator, count and link. Equal for every seller of the same machine."""
        found = self._hardware.get(id(kind))
        if found is None:
            name = f"{int(kind.accelerator_count)}x {kind.accelerator}/{kind.link}"
            found = self._hardware[id(kind)] = (kind, name)
        return found[1]

    def _size(self, kind: InstanceType, precisions: tuple[str, ...]) -> list[SizedCandidate]:
        candidates, rejections = size_candidates(
            self.architecture,
            Hardware(accelerator=catalogue()[kind.accelerator], count=int(kind.accelerator_count), link=kind.link),
            shape=self.workload.demands[0].shape,
            slo=self.workload.slo,
            precisions=precisions or None,
            kv_precision=self.workload.kv_precision,
            context_tokens=self.workload.needed_context_tokens,
            engine=self.engine,
            gpu_memory_utilization=self.gpu_memory_utilization,
        )
        if not candidates and rejections:
            reason = min(rejection.reason for rejection in rejections)
            self.rejections[reason] = self.rejections.get(reason, 0) + 1
        return candidates
