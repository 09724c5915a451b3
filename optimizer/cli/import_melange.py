"""Turns a Melange problem into its mix, what one kind alone would cost, and the mix at the prices that are on file."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from optimizer.api.json_text import json_text
from optimizer.api.market_view import Offers
from optimizer.cli import melange
from optimizer.cli.tables import Table, markdown, terminal
from optimizer.plans.document import offer_document
from optimizer.program.melange import melange_problem
from optimizer.program.problem import Problem, Solution, SolverOptions
from optimizer.program.solve import solve
from providers.accelerators import matches
from providers.errors import UnknownName
from providers.offers import Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_MOST_KINDS = 12
"""Kinds that are each solved for alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MelangeAnswer:
    """The file's mix; each kind alone; and both mixes at the prices on file. `on_file` is per accelerator.

    `repriced` is None where no kind is on file.
    """

    problem: Problem
    solution: Solution
    alone: Mapping[str, Solution]
    on_file: Mapping[str, Offer]
    repriced: Solution | None

    @property
    def works(self) -> bool:
        return self.solution.status != "infeasible"

    def at_prices_on_file(self) -> Decimal | None:
        """USD per hour of the file's own mix at the prices on file; None where one of its kinds is not there."""
        if not self.works or any(name not in self.on_file for name in self.solution.kept):
            return None
        return sum(
            (self.on_file[name].usd_per_accelerator_hour * count for name, count in self.solution.kept.items()),
            Decimal(0),
        )


def answered(path: str, offers: Offers) -> MelangeAnswer:
    """Solves the file's problem, and what it is compared with. Raises UsageError for a file that is none."""
    options = SolverOptions()
    problem, solution = melange.solved(path, None, options)
    content = melange.content_of(path)
    kinds: Mapping[str, Any] = content["gpu_info"]
    on_file = {name: offer for name in kinds if (offer := _cheapest(name, offers)) is not None}
    repriced = {
        name: {**info, "cost": float(on_file[name].usd_per_accelerator_hour)}
        for name, info in kinds.items()
        if name in on_file
    }
    return MelangeAnswer(
        problem=problem,
        solution=solution,
        alone={
            name: solve(melange_problem({**content, "gpu_info": {name: info}}), options)
            for name, info in list(kinds.items())[:_MOST_KINDS]
        },
        on_file=on_file,
        repriced=solve(melange_problem({**content, "gpu_info": repriced}), options) if repriced else None,
    )


def render(found: MelangeAnswer, format_: str) -> str:
    """The answer in one of the formats."""
    if format_ == "csv":
        return melange.render(found.problem, found.solution, format_)
    if format_ == "json":
        return json_text(_document(found))
    parts = [*melange.parts(melange.document(found.problem, found.solution)), *_comparison(found)]
    return terminal(parts) if format_ == "table" else markdown(parts)


def _cheapest(name: str, offers: Offers) -> Offer | None:
    """The cheapest on-demand offer of the accelerator that a kind is named after, by accelerator-hour."""
    try:
        variants = {variant.name for variant in matches(name)}
    except UnknownName:
        return None
    found = [
        offer
        for offer in offers.eligible
        if offer.purchase_option is PurchaseOption.ON_DEMAND and offer.instance_type.accelerator in variants
    ]
    return min(found, key=lambda offer: (offer.usd_per_accelerator_hour, offer.key), default=None)


def _document(found: MelangeAnswer) -> dict[str, Any]:
    """The plan document's keys, and what import adds."""
    own = found.at_prices_on_file()
    prices = {offer.id: offer.usd_per_hour for offer in found.problem.offers}
    return {
        **melange.document(found.problem, found.solution),
        "kind": "melange",
        "works": found.works,
        "kinds": [
            {
                "instance_type": name,
                "usd_per_hour": f"{usd:g}",
                "usd_per_gpu_hour_on_file": _hourly(found.on_file[name]) if name in found.on_file else None,
                "offer": offer_document(found.on_file[name]) if name in found.on_file else None,
            }
            for name, usd in prices.items()
        ],
        "one_kind": [
            {
                "instance_type": name,
                "count": alone.kept.get(name),
                "usd_per_hour": None if alone.usd_per_hour is None else f"{alone.usd_per_hour:.6g}",
            }
            for name, alone in found.alone.items()
        ],
        "at_prices_on_file": {
            "usd_per_hour_of_this_mix": None if own is None else f"{own.normalize():f}",
            "usd_per_hour": _cost(found.repriced),
            "instances": [] if found.repriced is None else _mix(found.repriced),
        },
    }


def _mix(solution: Solution) -> list[dict[str, Any]]:
    return [{"instance_type": name, "count": count} for name, count in sorted(solution.kept.items()) if count]


def _cost(solution: Solution | None) -> str | None:
    return None if solution is None or solution.usd_per_hour is None else f"{solution.usd_per_hour:.6g}"


def _hourly(offer: Offer) -> str:
    return f"{offer.usd_per_accelerator_hour:.6g}"


def _comparison(found: MelangeAnswer) -> Iterator[Table | str]:
    prices = {offer.id: offer.usd_per_hour for offer in found.problem.offers}
    rows = []
    for name, usd in prices.items():
        alone, offer = found.alone.get(name), found.on_file.get(name)
        rows.append(
            (
                name,
                f"{usd:g}",
                "" if offer is None else _hourly(offer),
                ""
                if offer is None
                else f"{offer.provider} {offer.instance_type.name} ({offer.observed_on or 'no date'})",
                "" if alone is None else _cost(alone) or "cannot",
                "" if alone is None or alone.usd_per_hour is None else f"{alone.kept.get(name, 0)}",
            )
        )
    columns = ("GPU", "USD/h in the file", "on file", "cheapest on demand", "alone, USD/h", "count")
    right = frozenset({"USD/h in the file", "on file", "alone, USD/h", "count"})
    yield Table(title="Kinds", columns=columns, rows=rows, right=right)
    best, repriced = found.solution.usd_per_hour, found.repriced
    single = min((one.usd_per_hour for one in found.alone.values() if one.usd_per_hour is not None), default=None)
    if best is not None and single is not None and single > best:
        yield f"The mix is {1 - best / single:.0%} cheaper than the cheapest single kind ({single:g} USD/h)."
    own = found.at_prices_on_file()
    if repriced is not None and repriced.usd_per_hour is not None:
        mix = ", ".join(f"{row['count']} x {row['instance_type']}" for row in _mix(repriced))
        now = "" if own is None else f"; the file's mix costs {own:.6g} there"
        month = Decimal(repr(repriced.usd_per_hour)) * HOURS_PER_MONTH
        cost = f"{repriced.usd_per_hour:.6g} USD/h, {month:,.2f} a month"
        yield f"At prices on file the cheapest mix is {mix}: {cost}{now}."
        yield "A name that means several variants is priced as the cheapest of them; the rates are the file's."
