"""Turns a request that nothing fits into the limits that are short, and the flags that would make it fit."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from types import MappingProxyType
from typing import Final

from optimizer.plans.desk import Desk, desk_of
from optimizer.plans.market import Choice
from optimizer.plans.plan import Alternative, Fleet, Suggestion
from optimizer.plans.request import Request
from optimizer.program.diagnose import diagnose
from optimizer.program.problem import Problem, Quota, Shortfall
from optimizer.workload.workload import InferenceWorkload

_MAX_SUGGESTIONS: Final = 3
_UNSERVED: Final = "no candidate serves "


def remedies(
    desk: Desk, main: Choice, cheapest: Fleet | None, alternatives: Iterable[Alternative]
) -> tuple[list[Shortfall], list[Suggestion]]:
    """Which limit is too tight by how much, and what would fit, cheapest first: up to three other choices, or a budget,
    and the smallest relaxation of each limit that is short.
    """
    request = desk.request
    budget = request.budget_usd_per_month
    found = main.solution.shortfalls or diagnose(_at_any_rate(main.problem), request.solver_options)
    shortfalls = [*_too_long(request)] or list(dict.fromkeys(_in_words(shortfall) for shortfall in found))
    if not shortfalls and cheapest is not None and budget is not None and cheapest.usd_per_month > budget:
        shortfalls = [
            Shortfall(limit="budget", needed=float(cheapest.usd_per_month), available=float(budget), unit="USD/month")
        ]
    ways = [
        Suggestion(flag=a.flag, usd_per_month=a.fleet.usd_per_month, note=a.note)
        for a in alternatives
        if a.fleet is not None and a.within_budget and a.kind in ("purchase_option", "precision", "include")
    ]
    if cheapest is None:
        ways += _slower(request)
    ways = sorted(ways, key=_by_cost)[:_MAX_SUGGESTIONS]
    if cheapest is not None and budget is not None:
        needed = Suggestion(flag=f"--budget {math.ceil(cheapest.usd_per_month)}", usd_per_month=cheapest.usd_per_month)
        return shortfalls, [*ways[: _MAX_SUGGESTIONS - 1], needed]
    relaxed = sorted(_relaxed(desk, found), key=_by_cost)[:_MAX_SUGGESTIONS]
    return shortfalls, sorted([*ways, *relaxed], key=_by_cost)


def _too_long(request: Request) -> Iterator[Shortfall]:
    """Workloads whose longest request has more tokens than the model has positions: no hardware helps."""
    for workload, model in request.workloads:
        needed = workload.needed_context_tokens
        if needed > model.max_position:
            limit = f"context of {model.hf_id} for {workload.name}"
            yield Shortfall(limit=limit, needed=float(needed), available=float(model.max_position), unit="tokens")


def _at_any_rate(problem: Problem) -> Problem:
    """The program to diagnose. Where throughput is sought, demand is a mix and no rate: what is short is what keeps
    every workload from running at all."""
    if problem.objective == "min_cost":
        return problem
    idle = [
        replace(workload, demand=tuple(tuple(0.0 for _ in row) for row in workload.demand))
        for workload in problem.workloads
    ]
    return replace(problem, workloads=idle, objective="min_cost")


def _by_cost(way: Suggestion) -> tuple[Decimal, str]:
    return way.usd_per_month, way.flag


def _in_words(shortfall: Shortfall) -> Shortfall:
    """The shortfall with the program's ids replaced by what a user knows."""
    if shortfall.limit.startswith(_UNSERVED):
        return replace(shortfall, limit="hardware that serves the requests within memory and SLO")
    return replace(shortfall, limit=limit_in_words(shortfall.limit))


def limit_in_words(limit: str) -> str:
    """The program's name of a limit as a user knows it, with its flag."""
    return _LIMIT_WORDS.get(limit, limit)


_LIMIT_WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "max_accelerators": "accelerators in all (--max-gpus)",
        "max_spot_share": "share of spot (--max-spot-share)",
        "max_provider_share": "share of one provider (--max-provider-share)",
        "min_providers": "providers that take part (--min-providers)",
        "spare_replicas": "instances whose loss is survived (--spare-replicas)",
    }
)


def _relaxed(desk: Desk, shortfalls: Sequence[Shortfall]) -> Iterator[Suggestion]:
    """One suggestion for each limit that alone would do, with the plan that it allows; else all of them at once.

    Each is planned: nothing is suggested that would not fit, and the cost is that of the plan, within the budget.
    """
    steps = [step for shortfall in shortfalls if (step := _step(desk.request, shortfall)) is not None]
    found = [way for flag, change in steps if (way := _planned(desk, flag, (change,))) is not None]
    if not found and len(steps) > 1:
        together = _planned(desk, " and ".join(flag for flag, _ in steps), tuple(change for _, change in steps))
        found = [] if together is None else [together]
    yield from found


_Change = Callable[[Request], Request]


def _step(request: Request, shortfall: Shortfall) -> tuple[str, _Change] | None:
    """The flag, or the change of a file, that gives a limit what it needs; None where none does."""
    limit, needed = shortfall.limit, shortfall.needed
    if not math.isfinite(needed):
        return None
    if limit in _FLAGS:
        flag, field, whole = _FLAGS[limit]
        value = int(needed) if whole else needed
        return f"{flag} {value:g}", partial(_with_limits, changes={field: value})
    for quota in request.limits.quotas:
        if quota.id == limit:
            return f"{limit}: {int(needed)} {quota.unit}", partial(_with_quota, quota=quota, maximum=int(needed))
    for workload, _ in request.workloads:
        for rule, (words, changes) in _RULES.items():
            if limit == f"{rule} of {workload.name}":
                name = workload.name
                return f"workload {name}: {words}", partial(_with_workload, name=name, changes=changes)
    return None


_FLAGS: Final[Mapping[str, tuple[str, str, bool]]] = MappingProxyType(
    {
        "max_accelerators": ("--max-gpus", "max_accelerators", True),
        "max_spot_share": ("--max-spot-share", "max_spot_share", False),
        "max_provider_share": ("--max-provider-share", "max_provider_share", False),
        "min_providers": ("--min-providers", "min_providers", True),
        "spare_replicas": ("--spare-replicas", "spare_replicas", True),
    }
)
"""The program's limits: flag, field, and whether its value is whole."""

_RULES: Final[Mapping[str, tuple[str, Mapping[str, object]]]] = MappingProxyType(
    {
        "allowed regions": ("any region", {"regions": None}),
        "one region for all replicas": ("same_region: false", {"same_region": False}),
        "no spot": ("spot: true", {"spot_allowed": True}),
        "minimum replicas by region": ("no minimum_replicas_by_region", {"minimum_replicas_by_region": {}}),
    }
)
"""The program's rules of a workload: in a file's words, and what lifting them changes."""


def _with_limits(request: Request, *, changes: Mapping[str, object]) -> Request:
    limits = replace(request.limits, **changes)  # type: ignore[arg-type]  # fields are named above
    return replace(request, limits=limits)


def _with_quota(request: Request, *, quota: Quota, maximum: int) -> Request:
    wider = replace(quota, maximum=maximum)
    quotas = tuple(wider if other == quota else other for other in request.limits.quotas)
    return replace(request, limits=replace(request.limits, quotas=quotas))


def _with_workload(request: Request, *, name: str, changes: Mapping[str, object]) -> Request:
    def lifted(workload: InferenceWorkload) -> InferenceWorkload:
        return replace(workload, **changes) if workload.name == name else workload  # type: ignore[arg-type]  # fields are named above

    return replace(request, workloads=[(lifted(workload), model) for workload, model in request.workloads])


def _planned(desk: Desk, flag: str, changes: Sequence[_Change]) -> Suggestion | None:
    request = desk.request
    for change in changes:
        request = change(request)
    fleet, within_budget = desk.asked(request).compare(request.offers)
    return Suggestion(flag=flag, usd_per_month=fleet.usd_per_month) if fleet is not None and within_budget else None


def _slower(request: Request) -> Iterable[Suggestion]:
    """For one workload that nothing on offer serves: the latency of what would, with one bound lifted at a time."""
    if len(request.workloads) > 1:
        return
    workload, architecture = request.workloads[0]
    for flag, slo in (
        ("--ttft-ms", replace(workload.slo, ttft_ms=math.inf)),
        ("--tpot-ms", replace(workload.slo, tpot_ms=math.inf)),
    ):
        lifted = replace(request, workloads=((replace(workload, slo=slo), architecture),))
        fleet, within_budget = desk_of(lifted).compare(lifted.offers)
        if fleet is None or not within_budget:
            continue
        sized = [s for group in fleet.replicas for s in group.kind.by_shape if s is not None]
        latencies = [s.ttft_ms.value if flag == "--ttft-ms" else s.tpot_ms.value for s in sized]
        if latencies:
            note = "the latency that the cheapest hardware then has"
            yield Suggestion(flag=f"{flag} {math.ceil(max(latencies))}", usd_per_month=fleet.usd_per_month, note=note)
