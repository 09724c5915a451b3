"""Answers one request for any offers and dtypes: by the integer program, or by an exact search where that will do."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from optimizer.plans.comparison import Undecided, affordable, cheapest_of_each, compare, is_simple, most_usd_per_hour
from optimizer.plans.market import Choice, Market
from optimizer.plans.plan import Fleet
from optimizer.plans.request import Request
from optimizer.plans.sizer import Sizer
from optimizer.program.problem import Limits, Objective
from providers.offers import Offer

_COMPARISON_GAP: Final = 0.01


@dataclass(frozen=True, slots=True)
class Desk:
    """Answers one request's question for any offers and dtypes, by the program or by the exact search."""

    request: Request
    market: Market

    @property
    def limits(self) -> Limits:
        budget = self.request.budget_usd_per_month
        return replace(self.request.limits, budget_usd_per_month=None if budget is None else float(budget))

    @property
    def rough(self) -> Market:
        """The market for comparisons, which need no closer proof than a percent."""
        options = self.market.solver_options
        return replace(self.market, solver_options=replace(options, gap=max(options.gap, _COMPARISON_GAP)))

    @property
    def is_simple(self) -> bool:
        return is_simple(self.market, self.limits)

    def asked(self, request: Request) -> "Desk":
        """A desk for another request of the same models, whose sizing is not done again."""
        pairs = zip(self.market.sizers, request.workloads, strict=True)
        sizers = [replace(sizer, workload=workload) for sizer, (workload, _) in pairs]
        return Desk(request, replace(self.market, sizers=sizers, holdings=request.holdings))

    def choose(self, offers: Iterable[Offer]) -> Choice:
        """The answer, from the program. Where nothing limits places or counts, offers that never win are not put in."""
        if not self.is_simple:
            return self.market.choose(offers, self.request.objective, self.limits)
        able = affordable(offers, self.request.objective, self.limits)
        choice = self.market.choose(able, self.request.objective, self.limits)
        if choice.fleet is None:  # what is too dear says by how much the budget is short
            return self.market.choose(cheapest_of_each(offers), self.request.objective, self.limits)
        return choice

    def too_dear(self, offers: Iterable[Offer]) -> dict[str, int]:
        """How many offers cost more each than the whole budget, under the reason."""
        most = most_usd_per_hour(self.request.objective, self.limits)
        count = 0 if most is None else sum(1 for offer in offers if offer.usd_per_hour > most)
        return {"one instance costs more than the whole budget": count} if count else {}

    def compare(self, offers: Sequence[Offer], precisions: tuple[str, ...] = ()) -> tuple[Fleet | None, bool]:
        """The answer with other offers or dtypes, and whether it is within the budget: the cheapest if nothing is."""
        budget = self.request.budget_usd_per_month
        fleet = self._best(offers, self.request.objective, self.limits, precisions)
        if fleet is None and budget is not None:
            fleet = self.cheapest(offers, precisions)
        return fleet, fleet is None or budget is None or fleet.usd_per_month <= budget

    def cheapest(self, offers: Sequence[Offer], precisions: tuple[str, ...] = ()) -> Fleet | None:
        """The cheapest fleet for the rates, or that runs everything at all, whatever the budget."""
        at_all = self.request.objective == "max_throughput"
        return self._best(offers, "min_cost", self.request.limits, precisions, at_all=at_all)

    def _best(
        self,
        offers: Sequence[Offer],
        objective: Objective,
        limits: Limits,
        precisions: tuple[str, ...],
        *,
        at_all: bool = False,
    ) -> Fleet | None:
        try:
            return compare(self.market, offers, objective, limits, precisions=precisions, at_all=at_all)
        except Undecided:
            return self.rough.choose(offers, objective, limits, precisions=precisions, at_all=at_all).fleet


def desk_of(request: Request) -> Desk:
    """The desk of a request, with every workload still to be sized."""
    sizers = [
        Sizer(
            workload,
            architecture,
            request.engine,
            request.gpu_memory_utilization,
            request.prefix_cache_hit,
            request.confidence,
            request.measured,
        )
        for workload, architecture in request.workloads
    ]
    return Desk(request, Market(sizers, request.terms, request.solver_options, request.holdings))
