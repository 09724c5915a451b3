"""Sizes one workload on each hardware once, whoever sells it and however often it is asked."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from optimizer.sizing.candidates import Hardware, Layout, SizedCandidate, size_candidates
from optimizer.sizing.measured import MeasuredPoint
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import InferenceWorkload
from providers.accelerators import catalogue
from providers.networks import network_of
from providers.offers import InstanceType
from providers.units import BITS_PER_BYTE

BUNDLE_SIZES: Final = (2, 3, 4, 6, 8)
"""Instances over which one replica may be spread."""

_SIZES_TRIED: Final = 2
"""The smallest bundle that holds a replica, and the next: more room for its cache can serve more per accelerator."""

_MOST_OF_NETWORK: Final = 0.5
"""Part of the network between instances that a replica may use at full load, so that bursts do not queue."""

_TOO_SMALL: Final = frozenset({"weights do not fit", "KV cache of one request does not fit"})
"""Reasons that more instances can cure."""

NO_NETWORK: Final = "one replica takes several instances, and no network between them is documented"
SLOW_NETWORK: Final = "one replica takes several instances, and the network between them is too slow"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaKind:
    """One way to run a replica on a hardware: dtype, layout, and what it does with each of the workload's shapes.

    `by_shape` follows the workload's demands; None = the shape does not meet memory or SLO there. `machines` whole
    instances of one kind hold one replica, where it is larger than an instance.
    """

    precision: str
    layout: Layout
    by_shape: tuple[SizedCandidate | None, ...]
    machines: int = 1

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
    _rejected: set[tuple[str, str]] = field(default_factory=set)
    _sized: dict[tuple[str, tuple[str, ...]], list[ReplicaKind]] = field(default_factory=dict)
    _too_small: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)

    def replica_kinds(
        self, kind: InstanceType, precisions: tuple[str, ...] = (), *, machines: int = 1
    ) -> list[ReplicaKind]:
        """What runs on the accelerators of one instance of that type; empty `precisions` are the workload's own.

        With more `machines`: replicas that take all accelerators of so many instances, where one holds none and the
        seller documents a network between them that carries what goes from one to the next.
        """
        key = (hardware_of(kind, machines), precisions or self.workload.precisions)
        found = self._sized.get(key)
        if found is None:
            started = time.perf_counter()
            found = self._sized[key] = self._size(kind, key[1], machines)
            self.seconds += time.perf_counter() - started
        return found

    def bundle_sizes(self, kind: InstanceType, precisions: tuple[str, ...] = ()) -> tuple[int, ...]:
        """How many instances of that type one replica may take: one, or the two smallest numbers that hold it."""
        if self.replica_kinds(kind, precisions):
            return (1,)
        if (hardware_of(kind), precisions or self.workload.precisions) not in self._too_small:
            return ()
        if network_gbit_per_s(kind) is None:
            self.reject(NO_NETWORK, kind)
            return ()
        found = (machines for machines in BUNDLE_SIZES if self.replica_kinds(kind, precisions, machines=machines))
        return tuple(islice(found, _SIZES_TRIED))

    def reject(self, reason: str, kind: InstanceType) -> None:
        """Counts hardware once by a reason."""
        if (reason, hardware_of(kind)) not in self._rejected:
            self._rejected.add((reason, hardware_of(kind)))
            self.rejections[reason] = self.rejections.get(reason, 0) + 1

    def _size(self, kind: InstanceType, precisions: tuple[str, ...], machines: int) -> list[ReplicaKind]:
        """One sizing a shape, joined by dtype and layout."""
        hardware = Hardware(
            accelerator=catalogue()[kind.accelerator],
            count=int(kind.accelerator_count) * machines,
            link=kind.link,
            machines=machines,
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
        if not joined and reasons and machines == 1:
            self.reject(min(reasons), kind)
            if _TOO_SMALL & set(reasons):
                self._too_small.add((hardware_of(kind), precisions))
        found = [
            ReplicaKind(precision=precision, layout=layout, by_shape=tuple(by_shape), machines=machines)
            for (precision, layout), by_shape in joined.items()
        ]
        if machines == 1:
            return found
        carried = [one for one in found if self._crossing_gbit_per_s(one) <= _allowed_gbit_per_s(kind)]
        if found and not carried:
            self.reject(SLOW_NETWORK, kind)
        return carried

    def _crossing_gbit_per_s(self, kind: ReplicaKind) -> float:
        """What passes from one instance to the next at full load: requests/s x tokens x hidden size x 2 bytes.

        A pipeline hands the hidden state of each token over, in 16 bit; within a rack's fast link nothing counts.
        """
        if kind.layout.pp == 1:
            return 0.0
        tokens_per_s = max(
            sized.requests_per_s.value * demand.shape.total_tokens
            for sized, demand in zip(kind.by_shape, self.workload.demands, strict=True)
            if sized is not None
        )
        return tokens_per_s * self.architecture.hidden_size * 2 * BITS_PER_BYTE / 1e9


def network_gbit_per_s(kind: InstanceType) -> float | None:
    """What the seller documents between instances of that type; None = nothing."""
    network = network_of(kind.provider, kind.name)
    return kind.network_gbit_per_s if network is None else network.gbit_per_s


def _allowed_gbit_per_s(kind: InstanceType) -> float:
    return (network_gbit_per_s(kind) or 0.0) * _MOST_OF_NETWORK


def hardware_of(kind: InstanceType, machines: int = 1) -> str:
    """What sizing depends on: accelerator, count and link. Equal for every seller of the same machine.

    Of several machines also the network between them.
    """
    if machines > 1:
        return f"{machines} machines of {hardware_of(kind)} at {network_gbit_per_s(kind):g} Gbit/s"
    found = _HARDWARE.get(id(kind))
    if found is None or found[0] is not kind:
        name = f"{int(kind.accelerator_count)}x {kind.accelerator}/{kind.link}"
        found = _HARDWARE[id(kind)] = (kind, name)
    return found[1]


_HARDWARE: dict[int, tuple[InstanceType, str]] = {}
"""Names by the identity of the instance type, which thousands of offers share."""
