"""Sizes one workload on each hardware once, whoever sells it and however often it is asked."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from optimizer.sizing.candidates import Hardware, Layout, SizedCandidate, size_candidates
from optimizer.sizing.measured import MeasuredPoint
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.accelerators import catalogue
from providers.offers import InstanceType


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """One way to run a replica on a hardware: dtype, layout, and what it does with each of the workload's shapes.

    `by_shape` follows the workload's demands; None = the shape does not meet memory or SLO there.
    """

    precision: str
    layout: Layout
    by_shape: tuple[SizedCandidate | None, ...]

    @property
    def accelerators_per_replica(self) -> int:
        return self.layout.accelerators

    @property
    def any_shape(self) -> SizedCandidate:
        """The sizing of one of the shapes that are served: memory and notes are the same for all."""
        return next(sized for sized in self.by_shape if sized is not None)

    def requests_per_s(self, shape: int) -> float | None:
        """Capacity for one shape alone, before head-room."""
        sized = self.by_shape[shape]
        return None if sized is None else sized.planned_requests_per_s


@dataclass(slots=True)
class Sizer:
    """Replica kinds of one workload by instance type; counts the hardware that has none, by its first reason."""

    workload: InferenceWorkload
    architecture: Architecture
    engine: str = "vllm"
    gpu_memory_utilization: float | None = None
    prefix_cache_hit: float = 0.0
    confidence: float | None = None
    measured: Sequence[MeasuredPoint] = ()
    rejections: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    _sized: dict[tuple[str, tuple[str, ...]], list[ReplicaKind]] = field(default_factory=dict)

    def replica_kinds(self, kind: InstanceType, precisions: tuple[str, ...] = ()) -> list[ReplicaKind]:
        """What runs on the accelerators of one instance of that type; empty `precisions` are the workload's own."""
        key = (hardware_of(kind), precisions or self.workload.precisions)
        found = self._sized.get(key)
        if found is None:
            started = time.perf_counter()
            found = self._sized[key] = self._size(kind, key[1])
            self.seconds += time.perf_counter() - started
        return found

    def _size(self, kind: InstanceType, precisions: tuple[str, ...]) -> list[ReplicaKind]:
        """One sizing a shape, joined by dtype and layout."""
        hardware = Hardware(
            accelerator=catalogue()[kind.accelerator], count=int(kind.accelerator_count), link=kind.link
        )
        shapes = len(self.workload.demands)
        joined: dict[tuple[str, Layout], list[SizedCandidate | None]] = {}
        reasons: list[str] = []
        for index, demand in enumerate(self.workload.demands):
            candidates, rejections = size_candidates(
                self.architecture,
                hardware,
                shape=demand.shape,
                slo=self.workload.slo,
                precisions=precisions or None,
                kv_precision=self.workload.kv_precision,
                context_tokens=self.workload.needed_context_tokens,
                engine=self.engine,
                gpu_memory_utilization=self.gpu_memory_utilization,
                prefix_cache_hit=self.prefix_cache_hit,
                confidence=self.confidence,
                measured=self.measured,
            )
            reasons += [rejection.reason for rejection in rejections]
            for sized in candidates:
                joined.setdefault((sized.precision, sized.layout), [None] * shapes)[index] = sized
        if not joined and reasons:
            reason = min(reasons)
            self.rejections[reason] = self.rejections.get(reason, 0) + 1
        return [
            ReplicaKind(precision=precision, layout=layout, by_shape=tuple(by_shape))
            for (precision, layout), by_shape in joined.items()
        ]


def hardware_of(kind: InstanceType) -> str:
    """What sizing depends on: accelerator, count and link. Equal for every seller of the same machine."""
    found = _HARDWARE.get(id(kind))
    if found is None or found[0] is not kind:
        name = f"{int(kind.accelerator_count)}x {kind.accelerator}/{kind.link}"
        found = _HARDWARE[id(kind)] = (kind, name)
    return found[1]


_HARDWARE: dict[int, tuple[InstanceType, str]] = {}
"""Names by the identity of the instance type, which thousands of offers share."""
