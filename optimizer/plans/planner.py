"""Turns a request and the offers on the market into a plan with its alternatives, reasons and remedies."""

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from optimizer.plans.changes import changes
from optimizer.plans.desk import Desk, desk_of
from optimizer.plans.market import Choice, Holding
from optimizer.plans.plan import (
    Alternative,
    AlternativeKind,
    BindingLimit,
    Fleet,
    Plan,
    PlannedWorkload,
    Proof,
    PurchaseReason,
    age_warnings,
    price_dates,
)
from optimizer.plans.reasons import purchase_reasons
from optimizer.plans.remedies import limit_in_words, remedies
from optimizer.plans.request import Pool, Request
from optimizer.plans.sizer import Sizer
from optimizer.program.problem import Limits, Objective
from optimizer.program.reasons import marginal_values, runner_ups
from providers.errors import NoUsablePrices, UsageError
from providers.offers import Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_COMPARED_UNASKED: Final = 500
"""Variables of a program above which it is not solved again for every alternative, unless all are asked for."""

__all__ = ["LOSSY_PRECISIONS", "Pool", "Request", "plan", "rank_key"]

LOSSY_PRECISIONS: Mapping[str, str] = {
    "int8": "8-bit integer weights lose some quality: evaluate before use",
    "int4": "4-bit weights lose quality: evaluate before use",
    "fp4": "4-bit floating point loses quality: evaluate before use",
}
"""Formats that are only taken when asked for, and what to say of them."""


def plan(request: Request) -> Plan:
    """The cheapest plan for the workloads' rates, or the most requests/s for the budget where no rate is given.

    With neither rate nor budget: the cheapest fleet that runs everything at all. Raises NoUsablePrices when no offer
    passes the filters, UsageError when some workloads have a rate and others do not.
    """
    _check(request)
    started = time.perf_counter()
    desk = desk_of(request)
    sizers = desk.market.sizers
    main = desk.choose(request.offers)
    fleet = main.fleet
    limited = request.limits != Limits()
    rejections = {**request.rejections, **desk.too_dear(request.offers), **_sizing_rejections(sizers)}
    chosen = time.perf_counter()
    cheapest = desk.cheapest(request.offers) if request.budget_usd_per_month is not None or fleet is None else None
    compared_at_all = request.every_alternative or main.solution.variables <= _COMPARED_UNASKED
    alternatives = tuple(_alternatives(desk)) if request.alternatives and compared_at_all else ()
    compared = time.perf_counter()
    shortfalls, suggestions = ((), ()) if fleet else remedies(desk, main, cheapest, alternatives)
    return Plan(
        status=main.solution.status,
        objective=request.objective,
        workloads=tuple(
            PlannedWorkload(
                workload=workload, architecture=architecture, served=workload.name not in main.solution.unserved
            )
            for workload, architecture in request.workloads
        ),
        budget_usd_per_month=request.budget_usd_per_month,
        fleet=fleet,
        cheapest=cheapest,
        runner_up=_runner_up(alternatives, fleet, request.objective),
        proof=_proof(main, request),
        prices=price_dates(request.offers, request.offers_on_file, request.today, request.max_age_days),
        alternatives=alternatives,
        binding_limits=_binding_limits(main, request) if fleet and limited else (),
        reasons=_reasons(desk, main) if fleet else (),
        runner_ups=tuple(_without_each(desk, main)) if fleet and request.reasons else (),
        changes=changes(fleet, request.holdings) if fleet and request.holdings else (),
        rejections=rejections,
        assumptions=request.assumptions,
        warnings=(
            *request.warnings,
            *_unserved(main),
            *_not_ruled_out(main, request),
            *_warnings(fleet, request),
            *(
                ()
                if compared_at_all
                else ("alternatives are not compared for so large a program: --all compares them",)
            ),
        ),
        shortfalls=tuple(shortfalls),
        suggestions=tuple(suggestions),
        timing_s={
            "sizing_s": sum(sizer.seconds for sizer in sizers),
            "build_s": desk.market.build_s,
            "solve_s": desk.market.solve_s,
            "main_program_s": chosen - started,
            "alternatives_s": compared - chosen,
        },
    )


def rank_key(fleet: Fleet, objective: Objective) -> tuple[float, Decimal]:
    """Best first: by requests/s then cost when throughput is sought, by cost otherwise."""
    if objective == "max_throughput":
        return -fleet.requests_per_s, fleet.usd_per_hour
    return 0.0, fleet.usd_per_hour


def _check(request: Request) -> None:
    if not request.offers and not request.holdings:
        reasons = ", ".join(f"{count} × {reason}" for reason, count in request.rejections.items())
        why = (f"no offer passes the filters ({reasons or 'none on file'})", *request.warnings)
        raise NoUsablePrices("; ".join((*why, "loosen one of them")))
    rated = [workload.name for workload, _ in request.workloads if workload.requests_per_s is not None]
    if rated and len(rated) < len(request.workloads):
        others = ", ".join(workload.name for workload, _ in request.workloads if workload.name not in rated)
        raise UsageError(f"workloads {others} have no rate while {', '.join(rated)} have one: give all or none")


def _alternatives(desk: Desk) -> Iterable[Alternative]:
    """The best plan of each provider and each accelerator alone, under each other flag, and in each lossy dtype.

    Where each takes a program of its own, accelerators and dtypes are only looked at when every alternative is wanted.
    """
    request = desk.request
    thorough = desk.is_simple or request.every_alternative
    for kind, name, flag, offers in _partitions(request.offers):
        if thorough or kind == "provider":
            yield _alternative(_of_its_own(desk, kind, name), Pool(kind=kind, name=name, flag=flag, offers=offers))
    for pool in request.pools:
        if pool.offers and (thorough or pool.kind == "purchase_option"):
            yield _alternative(desk, pool)
    if thorough and not any(workload.precisions for workload, _ in request.workloads):
        for precision, note in LOSSY_PRECISIONS.items():
            pool = Pool(
                kind="precision", name=precision, flag=f"--precision {precision}", offers=request.offers, note=note
            )
            yield _alternative(desk, pool, (precision,))


def _of_its_own(desk: Desk, kind: AlternativeKind, name: str) -> Desk:
    """The desk without instances that run today with others; what is committed stays, since it is paid anyway."""

    def belongs(holding: Holding) -> bool:
        machine = holding.offer.instance_type
        return holding.committed > 0 or name == (machine.provider if kind == "provider" else machine.accelerator)

    held = tuple(holding for holding in desk.request.holdings if belongs(holding))
    return desk if held == tuple(desk.request.holdings) else desk.asked(replace(desk.request, holdings=held))


def _partitions(offers: Sequence[Offer]) -> Iterable[tuple[AlternativeKind, str, str, list[Offer]]]:
    by_provider: dict[str, list[Offer]] = {}
    by_accelerator: dict[str, list[Offer]] = {}
    for offer in offers:
        by_provider.setdefault(offer.provider, []).append(offer)
        by_accelerator.setdefault(offer.instance_type.accelerator, []).append(offer)
    for provider, found in by_provider.items():
        yield "provider", provider, f"--provider {provider}", found
    for accelerator, found in sorted(by_accelerator.items()):
        yield "accelerator", accelerator, f"--gpu '{accelerator}'", found


def _alternative(desk: Desk, pool: Pool, precisions: tuple[str, ...] = ()) -> Alternative:
    fleet, within_budget = desk.compare(pool.offers, precisions)
    note = pool.note
    if fleet is not None:
        names = [workload.name for workload, _ in desk.request.workloads if workload.name not in fleet.served]
        note = "; ".join(filter(None, [f"does not serve {', '.join(names)}" if names else "", note]))
    return Alternative(
        kind=pool.kind, name=pool.name, flag=pool.flag, fleet=fleet, within_budget=within_budget, note=note
    )


def _reasons(desk: Desk, main: Choice) -> tuple[PurchaseReason, ...]:
    """Why each is bought as it is, against all that may be bought of the same hardware."""
    problem = replace(main.problem, offers=desk.market.rivals(main, desk.request.offers))
    return purchase_reasons(problem, main.solution)


def _without_each(desk: Desk, main: Choice) -> Iterable[Alternative]:
    """The best plan without each accelerator that the plan uses, by the same program."""
    for found in runner_ups(main.problem, main.solution, desk.rough.solver_options):
        flag = f"without {found.without}"
        fleet = desk.market.fleet(main.problem, found.solution, main.runs)
        yield Alternative(kind="without", name=found.without, flag=flag, fleet=fleet)


def _runner_up(alternatives: Iterable[Alternative], fleet: Fleet | None, objective: Objective) -> Alternative | None:
    """The best plan on one other accelerator than those chosen."""
    if fleet is None:
        return None
    chosen = {item.offer.instance_type.accelerator for item in fleet.instances}
    others = [a for a in alternatives if a.kind == "accelerator" and a.name not in chosen and a.within_budget]
    ranked = [(rank_key(a.fleet, objective), a) for a in others if a.fleet and a.fleet.served == fleet.served]
    return min(ranked, key=lambda pair: (*pair[0], pair[1].name))[1] if ranked else None


def _binding_limits(choice: Choice, request: Request) -> tuple[BindingLimit, ...]:
    """What one step more of each limit would save, or how many more requests/s it would bring."""
    share = sum(demand.share for workload, _ in request.workloads for demand in workload.demands)
    return tuple(
        BindingLimit(
            limit=limit_in_words(value.limit),
            change=value.change,
            unit=value.unit,
            saving_usd_per_month=Decimal(value.usd_per_month),
            more_requests_per_s=value.scale * share,
        )
        for value in marginal_values(choice.problem, choice.solution, request.solver_options)
    )


def _proof(choice: Choice, request: Request) -> Proof:
    """The bound in the plan's unit: USD/month, or requests/s of all workloads."""
    solution = choice.solution
    bound = solution.bound
    if bound is not None:
        if request.objective == "min_cost":
            bound *= HOURS_PER_MONTH
        else:
            bound *= sum(demand.share for workload, _ in request.workloads for demand in workload.demands)
    return Proof(
        bound=bound,
        gap=solution.gap,
        solver=solution.solver,
        variables=solution.variables,
        constraints=solution.constraints,
    )


def _sizing_rejections(sizers: Iterable[Sizer]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for sizer in sizers:
        for reason, count in sizer.rejections.items():
            counts[f"hardware: {reason}"] = counts.get(f"hardware: {reason}", 0) + count
    return dict(sorted(counts.items()))


def _not_ruled_out(main: Choice, request: Request) -> Iterable[str]:
    """Where the solver stopped before it had proven that no plan keeps to the budget."""
    solution, budget = main.solution, request.budget_usd_per_month
    if solution.status != "infeasible" or request.objective != "min_cost" or solution.bound is None or budget is None:
        return
    least = Decimal(solution.bound) * HOURS_PER_MONTH
    if least <= budget and solution.usd_per_hour is not None:
        yield (
            f"not proven: a plan from {least:,.2f} USD/month on, within the budget, is not ruled out; --gap 0 or more "
            "--max-nodes search further"
        )


def _unserved(main: Choice) -> Iterable[str]:
    if main.solution.unserved:
        yield f"not served within the budget: {', '.join(main.solution.unserved)}"


def _warnings(fleet: Fleet | None, request: Request) -> Iterable[str]:
    """What a buyer must know of the chosen offers: age of the prices, doubtful spot prices, unknown stock."""
    if fleet is None:
        return
    for item in fleet.instances:
        offer = item.offer
        yield from age_warnings(offer, request.today, request.max_age_days)
        if offer.purchase_option is PurchaseOption.SPOT:
            yield f"{offer.key}: spot can be taken away at short notice, and its price moves"
    for group in fleet.replicas:
        if group.kind.machines > 1:
            yield (
                f"one replica of {group.workload.name} spans {group.kind.machines} instances of "
                f"{group.offer.instance_type.name}: order them close together, on one network"
            )
    if any(item.offer.in_stock is None for item in fleet.instances):
        yield "availability of the chosen instances is not known: a price is not a promise of capacity"
