"""Builders of small problems, and random ones of every kind."""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from optimizer.program.problem import (
    Limits,
    Period,
    Problem,
    ProgramCandidate,
    ProgramOffer,
    ProgramWorkload,
    Quota,
)


def make_offer(name: str = "a", **over: Any) -> ProgramOffer:
    fields: dict[str, Any] = {
        "id": name,
        "hardware": "h",
        "provider": "p",
        "region": "r",
        "accelerator": "H100",
        "accelerators_per_unit": 1,
        "purchase_option": "on_demand",
        "usd_per_hour": 1.0,
        "instance_type": name,
    }
    return ProgramOffer(**{**fields, **over})


def make_candidate(name: str = "c", **over: Any) -> ProgramCandidate:
    fields: dict[str, Any] = {
        "id": name,
        "workload": "w",
        "hardware": "h",
        "accelerators_per_replica": 1,
        "requests_per_s": {"b": 1.0},
    }
    return ProgramCandidate(**{**fields, **over})


def make_workload(name: str = "w", *, rates: Sequence[float] = (1.0,), **over: Any) -> ProgramWorkload:
    fields: dict[str, Any] = {"id": name, "shapes": ("b",), "demand": tuple((rate,) for rate in rates)}
    return ProgramWorkload(**{**fields, **over})


def make_problem(
    offers: Sequence[ProgramOffer],
    candidates: Sequence[ProgramCandidate],
    workloads: Sequence[ProgramWorkload],
    **over: Any,
) -> Problem:
    periods = tuple(Period(id=f"t{t}", hours=1.0) for t in range(len(workloads[0].demand)))
    fields: dict[str, Any] = {"periods": periods, "utilisation": 1.0}
    return Problem(offers=offers, candidates=candidates, workloads=workloads, **{**fields, **over})


def random_problem(seed: int) -> Problem:
    """A small problem with a random selection of everything that the program knows."""
    rnd = Random(seed)
    kinds = [(f"h{k}", rnd.choice((1, 2, 2, 3, 4))) for k in range(rnd.choice((1, 2, 2, 3)))]
    periods = rnd.choice((1, 1, 1, 2, 3))
    shapes = ("b", "d") if rnd.random() < 0.3 else ("b",)
    offers = [_random_offer(rnd, f"o{i}", kinds) for i in range(rnd.choice((2, 3, 3, 4) if periods < 3 else (2, 3)))]
    names = ["w"] if rnd.random() < 0.7 else ["w", "v"]
    candidates = [
        _random_candidate(rnd, f"{name}-{hardware}-{i}", name, hardware, size, shapes)
        for name in names
        for hardware, size in kinds
        for i in range(rnd.choice((1, 1, 2)))
    ]
    workloads = [_random_workload(rnd, name, shapes, periods) for name in names]
    return Problem(
        offers=offers,
        candidates=candidates,
        workloads=workloads,
        periods=tuple(Period(id=f"t{t}", hours=rnd.choice((1.0, 2.0, 4.0))) for t in range(periods)),
        limits=_random_limits(rnd, periods),
        utilisation=rnd.choice((1.0, 0.8)),
        spot_margin=rnd.choice((0.0, 0.0, 0.25)),
    )


def _random_offer(rnd: Random, name: str, kinds: Sequence[tuple[str, int]]) -> ProgramOffer:
    hardware, size = rnd.choice(kinds)
    option = rnd.choice(("on_demand", "on_demand", "spot", "reserved_1y"))
    maximum = rnd.choice((None, 1, 2, 2, 3))
    discount = {"on_demand": 1.0, "spot": 0.5, "reserved_1y": 0.7}[option]
    return make_offer(
        name,
        hardware=hardware,
        provider=rnd.choice("pq"),
        region=rnd.choice(("r", "s", None)),
        accelerator=hardware.upper(),
        accelerators_per_unit=size,
        purchase_option=option,
        usd_per_hour=round(size * discount * rnd.uniform(0.5, 2.0), 2),
        maximum=maximum,
        minimum_order=2 if rnd.random() < 0.1 and maximum != 1 else 1,
        committed=1 if rnd.random() < 0.1 and maximum != 0 else 0,
    )


def _random_candidate(
    rnd: Random, name: str, workload: str, hardware: str, size: int, shapes: Sequence[str]
) -> ProgramCandidate:
    accelerators = rnd.randint(1, size)
    served: Mapping[str, float] = {
        shape: round(accelerators * rnd.uniform(0.6, 1.5), 2) for shape in shapes if rnd.random() < 0.9
    }
    return make_candidate(
        name,
        workload=workload,
        hardware=hardware,
        accelerators_per_replica=accelerators,
        requests_per_s=served,
        boot_hours=rnd.choice((0.0, 0.0, 0.5)),
    )


def _random_workload(rnd: Random, name: str, shapes: Sequence[str], periods: int) -> ProgramWorkload:
    return ProgramWorkload(
        id=name,
        shapes=tuple(shapes),
        demand=tuple(tuple(round(rnd.uniform(0, 2.2), 1) for _ in shapes) for _ in range(periods)),
        minimum_replicas=rnd.choice((0, 0, 0, 1, 2)),
        minimum_replicas_by_region={"r": 1} if rnd.random() < 0.07 else {},
        regions=frozenset({"r"}) if rnd.random() < 0.07 else None,
        spot_allowed=rnd.random() > 0.1,
        same_region=rnd.random() < 0.1,
    )


def _random_limits(rnd: Random, periods: int) -> Limits:
    quotas = []
    if rnd.random() < 0.15:
        quotas.append(Quota(id="q-provider", maximum=rnd.randint(0, 4), provider="p"))
    if rnd.random() < 0.15:
        quotas.append(Quota(id="q-region", maximum=rnd.randint(0, 2), unit="instances", region="r"))
    return Limits(
        max_accelerators=rnd.randint(2, 8) if rnd.random() < 0.15 else None,
        max_spot_share=rnd.choice((0.0, 0.5, 0.7)) if rnd.random() < 0.2 else None,
        max_provider_share=rnd.choice((0.5, 0.7)) if rnd.random() < 0.12 else None,
        min_providers=2 if rnd.random() < 0.1 else 0,
        spare_replicas=1 if rnd.random() < 0.15 else 0,
        minimum_hours_up=rnd.choice((0.0, 0.0, 3.0)) if periods > 1 else 0.0,
        quotas=tuple(quotas),
    )
