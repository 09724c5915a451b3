"""The small exact search agrees with enumeration and with the integer program."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.program.covering import Kind, cheapest_cover, largest_cover
from optimizer.program.problem import Limits, Problem, ProgramCandidate, ProgramOffer, ProgramWorkload
from optimizer.program.solve import solve
from providers.units import HOURS_PER_MONTH

kinds = st.lists(st.builds(Kind, st.integers(1, 40).map(float), st.integers(1, 30).map(float)), min_size=1, max_size=3)


def price(counts: tuple[int, ...], of: list[Kind]) -> float:
    return sum(n * kind.price for n, kind in zip(counts, of, strict=True))


def capacity(counts: tuple[int, ...], of: list[Kind]) -> float:
    return sum(n * kind.capacity for n, kind in zip(counts, of, strict=True))


@settings(deadline=None)
@given(kinds, st.integers(1, 40))
def test_the_cheapest_cover_is_that_of_enumeration(found: list[Kind], demand: int) -> None:
    counts = cheapest_cover(found, demand)
    assert counts is not None
    assert capacity(counts, found) >= demand
    ranges = [range(int(demand // kind.capacity) + 2) for kind in found]
    best = min(price(n, found) for n in product(*ranges) if capacity(n, found) >= demand)
    assert price(counts, found) == best


@settings(deadline=None)
@given(kinds, st.integers(1, 40))
def test_the_largest_cover_is_that_of_enumeration(found: list[Kind], budget: int) -> None:
    counts = largest_cover(found, budget)
    assert counts is not None
    assert price(counts, found) <= budget
    ranges = [range(int(budget // kind.price) + 1) for kind in found]
    best = max((capacity(n, found), -price(n, found)) for n in product(*ranges) if price(n, found) <= budget)
    assert (capacity(counts, found), -price(counts, found)) == best


@settings(max_examples=25, deadline=None)
@given(kinds, st.integers(1, 60), st.integers(50, 300))
def test_both_forms_agree_with_the_integer_program(found: list[Kind], demand: int, budget: int) -> None:
    offers = [
        ProgramOffer(
            id=f"o{i}", hardware=f"h{i}", provider="p", accelerator="a", accelerators_per_unit=1,
            purchase_option="on_demand", usd_per_hour=kind.price,
        )
        for i, kind in enumerate(found)
    ]  # fmt: skip
    candidates = [
        ProgramCandidate(
            id=f"c{i}", workload="w", hardware=f"h{i}", accelerators_per_replica=1, requests_per_s={"s": kind.capacity}
        )
        for i, kind in enumerate(found)
    ]
    workload = ProgramWorkload(id="w", shapes=("s",), demand=((float(demand),),))
    cheapest = solve(Problem(offers=offers, candidates=candidates, workloads=[workload], utilisation=1.0))
    counts = cheapest_cover(found, demand)
    assert counts is not None
    assert price(counts, found) == pytest.approx(cheapest.usd_per_hour)
    limits = Limits(budget_usd_per_month=float(budget) * HOURS_PER_MONTH)
    one = ProgramWorkload(id="w", shapes=("s",), demand=((1.0,),))
    most = solve(
        Problem(
            offers=offers, candidates=candidates, workloads=[one], utilisation=1.0, limits=limits,
            objective="max_throughput",
        )
    )  # fmt: skip
    filled = largest_cover(found, budget)
    assert filled is not None
    assert capacity(filled, found) == pytest.approx(most.scale or 0.0)


def test_no_capacity_at_all_is_an_error() -> None:
    with pytest.raises(ValueError, match="no kind has capacity"):
        cheapest_cover([Kind(1.0, 0.0)], 1.0)


def test_a_budget_below_every_price_buys_nothing() -> None:
    assert largest_cover([Kind(5.0, 1.0), Kind(7.0, 2.0)], 4.0) == (0, 0)


def test_a_huge_demand_is_met_within_one_unit_in_a_thousand_of_the_linear_bound() -> None:
    found = [Kind(2.39, 2.3), Kind(6.79, 6.9), Kind(1.89, 0.97)]
    counts = cheapest_cover(found, 1e9)
    assert counts is not None
    assert capacity(counts, found) >= 1e9 * (1 - 1e-9)
    bound = 1e9 * min(kind.price / kind.capacity for kind in found)
    assert price(counts, found) <= bound * 1.001
    filled = largest_cover(found, 1e9)
    assert filled is not None
    assert price(filled, found) <= 1e9 * (1 + 1e-9)
    assert capacity(filled, found) >= 0.999 * 1e9 * max(kind.capacity / kind.price for kind in found)
