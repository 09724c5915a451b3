"""Programs small enough to solve by hand, one rule of the model at a time."""

from dataclasses import replace

import pytest

from optimizer.program.problem import Limits, Period, Problem, Quota, Solution, SolverOptions
from optimizer.program.solve import least_peak, solve
from providers.errors import InvalidValue, UnknownName
from tests.optimizer.program.builders import make_candidate, make_offer, make_problem, make_workload


def total(solution: Solution, offer: str, period: str = "t0") -> int:
    return solution.units(offer, period)


def two_kinds(rate: float = 2.5, **over: object) -> Problem:
    """Small units serve 1 request/s for 1 USD, big ones 3 for 2.50."""
    return make_problem(
        [make_offer("small"), make_offer("big", hardware="H", usd_per_hour=2.5)],
        [make_candidate("s"), make_candidate("b", hardware="H", requests_per_s={"b": 3.0})],
        [make_workload(rates=(rate,))],
        **over,
    )


def test_two_and_a_half_requests_take_the_big_unit() -> None:
    solution = solve(two_kinds())
    assert solution.status == "optimal"
    assert solution.kept == {"big": 1}
    assert solution.usd_per_hour == 2.5
    assert solution.bound == pytest.approx(2.5)
    assert solution.flows == {("b", "b", "t0"): pytest.approx(2.5)}
    assert solution.utilisation == {("b", "t0"): pytest.approx(2.5 / 3)}


def test_four_requests_mix_a_big_and_a_small_unit() -> None:
    assert solve(two_kinds(4.0)).kept == {"big": 1, "small": 1}


def test_head_room_is_kept_free() -> None:
    assert solve(two_kinds(2.5, utilisation=0.8)).kept == {"big": 1, "small": 1}


def test_no_demand_needs_nothing() -> None:
    solution = solve(two_kinds(0.0))
    assert solution.status == "optimal"
    assert solution.usd_per_hour == 0
    assert solution.kept == {}


def test_equal_prices_are_settled_by_provider_region_and_name() -> None:
    offers = [
        make_offer("1", provider="z", region="a", instance_type="a"),
        make_offer("2", provider="b", region="b", instance_type="b"),
        make_offer("3", provider="b", region="a", instance_type="c"),
        make_offer("4", provider="b", region="a", instance_type="b"),
    ]
    for order in (offers, offers[::-1]):
        assert solve(make_problem(order, [make_candidate()], [make_workload()])).kept == {"4": 1}


def test_a_limited_cheap_offer_is_used_up_before_the_dear_one() -> None:
    offers = [make_offer("cheap", maximum=2), make_offer("dear", usd_per_hour=2.0)]
    assert solve(make_problem(offers, [make_candidate()], [make_workload(rates=(3.0,))])).kept == {
        "cheap": 2,
        "dear": 1,
    }


def test_a_minimum_order_is_bought_whole_or_not_at_all() -> None:
    offers = [make_offer("bulk", usd_per_hour=0.6, minimum_order=4), make_offer("single")]
    few = make_problem(offers, [make_candidate()], [make_workload(rates=(2.0,))])
    assert solve(few).kept == {"single": 2}
    many = make_problem(offers, [make_candidate()], [make_workload(rates=(3.0,))])
    assert solve(many).kept == {"bulk": 4}


def test_committed_units_are_kept_paid_and_used_first() -> None:
    offers = [
        make_offer("owned", purchase_option="reserved_1y", usd_per_hour=33.0, committed=2, maximum=2),
        make_offer("market", usd_per_hour=55.04),
    ]
    solution = solve(make_problem(offers, [make_candidate()], [make_workload(rates=(5.0,))]))
    assert solution.kept == {"owned": 2, "market": 3}
    assert solution.usd_per_hour == pytest.approx(3 * 55.04 + 2 * 33)


def test_a_four_and_two_two_accelerator_replicas_share_one_unit_of_eight() -> None:
    candidates = [
        make_candidate("four", workload="w", accelerators_per_replica=4),
        make_candidate("two", workload="v", accelerators_per_replica=2),
    ]
    problem = make_problem(
        [make_offer(accelerators_per_unit=8)], candidates, [make_workload("w"), make_workload("v", rates=(2.0,))]
    )
    solution = solve(problem)
    assert solution.kept == {"a": 1}
    assert solution.replicas == {("four", "t0"): 1, ("two", "t0"): 2}


def test_three_replicas_of_three_accelerators_do_not_fit_on_eight_and_one() -> None:
    """9 accelerators are needed and 16 would hold 5 replicas by counting: whole replicas go 2 to a unit of 8."""
    problem = make_problem(
        [make_offer(accelerators_per_unit=8)],
        [make_candidate(accelerators_per_replica=3)],
        [make_workload(rates=(5.0,))],
    )
    assert solve(problem).kept == {"a": 3}


def test_sizes_that_do_not_divide_each_other_are_packed_exactly() -> None:
    """5 + 3 fill a unit of 8; 3 x 5 and 3 x 3 are 24 accelerators on 3 units, but 4 x 5 and 1 x 3 (23) take 4."""
    candidates = [
        make_candidate("five", workload="w", accelerators_per_replica=5),
        make_candidate("three", workload="v", accelerators_per_replica=3),
    ]
    offer = make_offer(accelerators_per_unit=8)
    for fives, threes, units in ((3.0, 3.0, 3), (4.0, 1.0, 4), (1.0, 3.0, 2), (1.0, 4.0, 3)):
        workloads = [make_workload("w", rates=(fives,)), make_workload("v", rates=(threes,))]
        assert solve(make_problem([offer], candidates, workloads)).kept == {"a": units}


def test_a_replica_over_two_instances_takes_the_bundle() -> None:
    offers = [
        make_offer("one", accelerators_per_unit=8, usd_per_hour=8.0),
        make_offer("pair", hardware="2h", accelerators_per_unit=16, instances_per_unit=2, usd_per_hour=16.0),
    ]
    candidates = [make_candidate(hardware="2h", accelerators_per_replica=16)]
    assert solve(make_problem(offers, candidates, [make_workload()])).kept == {"pair": 1}


def test_long_requests_go_to_big_units_and_short_ones_to_small() -> None:
    problem = make_problem(
        [make_offer("small"), make_offer("big", hardware="H", usd_per_hour=4.0)],
        [
            make_candidate("s", requests_per_s={"short": 2.0}),
            make_candidate("b", hardware="H", requests_per_s={"short": 4.0, "long": 2.0}),
        ],
        [make_workload(shapes=("short", "long"), demand=((3.0, 1.5),))],
    )
    solution = solve(problem)
    assert solution.kept == {"big": 1, "small": 1}
    assert solution.flows["b", "long", "t0"] == pytest.approx(1.5)
    assert solution.utilisation["s", "t0"] == pytest.approx(1.0)


class TestPeriods:
    """12 quiet hours at 1 request/s, 12 busy ones at 3, on demand for 1 USD, reserved for 0.60."""

    def day(self, **over: object) -> Problem:
        offers = [make_offer("demand"), make_offer("reserved", purchase_option="reserved_1y", usd_per_hour=0.6)]
        return make_problem(
            offers,
            [make_candidate(boot_hours=float(over.pop("boot_hours", 0.0)))],  # type: ignore[arg-type]
            [make_workload(rates=(1.0, 3.0))],
            **{"periods": (Period(id="t0", hours=12), Period(id="t1", hours=12)), **over},
        )

    def test_the_base_is_reserved_and_the_peak_bought_on_demand(self) -> None:
        solution = solve(self.day())
        assert solution.kept == {"reserved": 1}
        assert solution.bought == {("demand", "t1"): 2}
        assert solution.usd_per_hour == pytest.approx(0.6 + 2 * 0.5)

    def test_a_peak_longer_than_the_break_even_is_reserved_too(self) -> None:
        longer = self.day(periods=(Period(id="t0", hours=9), Period(id="t1", hours=15)))
        assert solve(longer).kept == {"reserved": 3}

    def test_starts_are_paid(self) -> None:
        solution = solve(self.day(boot_hours=1.0))
        assert solution.usd_per_hour == pytest.approx(0.6 + 2 * (12 + 1) / 24)

    def test_starts_too_dear_keep_units_up(self) -> None:
        assert solve(self.day(boot_hours=3.0)).kept == {"reserved": 3}

    def test_minimum_hours_up_longer_than_the_peak_keep_units_up(self) -> None:
        solution = solve(self.day(limits=Limits(minimum_hours_up=13)))
        assert solution.kept == {"reserved": 3}

    def test_a_commitment_longer_than_the_need_is_paid_to_its_end(self) -> None:
        problem = self.day(horizon_hours=8760 / 2)
        offers = [problem.offers[0], replace(problem.offers[1], term_hours=8760.0)]
        solution = solve(replace(problem, offers=offers))
        assert solution.kept == {"demand": 1}
        assert solution.usd_per_hour == pytest.approx(2.0)

    def test_a_need_longer_than_a_term_pays_the_second_term_to_its_end(self) -> None:
        offer = make_offer(purchase_option="reserved_1y", usd_per_hour=0.5, term_hours=8760.0)
        problem = make_problem([offer], [make_candidate()], [make_workload()], horizon_hours=13 * 730.0)
        assert problem.effective_usd_per_hour(offer) == pytest.approx(0.5 * 24 / 13)
        assert solve(replace(problem, horizon_hours=24 * 730.0)).usd_per_hour == pytest.approx(0.5)

    def test_an_upfront_payment_is_spread_over_the_term(self) -> None:
        offer = make_offer(purchase_option="reserved_1y", usd_per_hour=0.5, upfront_usd=4380.0, term_hours=8760.0)
        problem = make_problem([offer], [make_candidate()], [make_workload()])
        assert problem.effective_usd_per_hour(offer) == pytest.approx(1.0)
        assert solve(problem).usd_per_hour == pytest.approx(1.0)


class TestSpot:
    """Spot at 0.40 beside on demand at 1."""

    def fleet(self, rate: float = 4.0, **over: object) -> Problem:
        offers = [make_offer("firm"), make_offer("spot", purchase_option="spot", usd_per_hour=0.4)]
        return make_problem(offers, [make_candidate()], [make_workload(rates=(rate,))], **over)

    def test_cheaper_spot_is_taken(self) -> None:
        assert solve(self.fleet()).kept == {"spot": 4}

    def test_spot_that_is_not_cheaper_is_never_taken(self) -> None:
        offers = [
            make_offer("firm", usd_per_hour=0.384),
            make_offer("spot", purchase_option="spot", usd_per_hour=0.402),
        ]
        assert solve(make_problem(offers, [make_candidate()], [make_workload()])).kept == {"firm": 1}

    def test_half_of_the_load_stays_without_spot(self) -> None:
        assert solve(self.fleet(limits=Limits(max_spot_share=0.5))).kept == {"spot": 2, "firm": 2}

    def test_a_margin_for_interruptions_buys_more_spot(self) -> None:
        assert solve(self.fleet(spot_margin=0.2)).kept == {"spot": 5}

    def test_idle_machines_of_another_kind_do_not_hide_a_spot_fleet(self) -> None:
        problem = self.fleet(limits=Limits(max_spot_share=0.5))
        idle = make_offer("idle", hardware="tiny", accelerators_per_unit=8, usd_per_hour=0.01)
        helper = make_candidate("t", hardware="tiny", requests_per_s={"b": 0.001})
        wider = replace(problem, offers=[*problem.offers, idle], candidates=[*problem.candidates, helper])
        solution = solve(wider)
        assert total(solution, "firm") >= 2

    def test_a_workload_may_refuse_spot(self) -> None:
        problem = self.fleet(1.0)
        careful = replace(problem, workloads=[replace(problem.workloads[0], spot_allowed=False)])
        assert solve(careful).kept == {"firm": 1}


class TestLimits:
    def test_a_regional_quota_sends_the_rest_elsewhere(self) -> None:
        offers = [make_offer("near"), make_offer("far", region="s", usd_per_hour=1.5)]
        quota = Quota(id="q", maximum=2, region="r")
        problem = make_problem(
            offers, [make_candidate()], [make_workload(rates=(3.0,))], limits=Limits(quotas=(quota,))
        )
        assert solve(problem).kept == {"near": 2, "far": 1}

    def test_too_few_accelerators_for_small_units_force_better_ones(self) -> None:
        problem = two_kinds(3.0, limits=Limits(max_accelerators=1))
        assert solve(
            replace(problem, offers=[problem.offers[0], replace(problem.offers[1], usd_per_hour=9.0)])
        ).kept == {"big": 1}

    def test_two_providers_are_used_when_asked_for(self) -> None:
        offers = [make_offer("a"), make_offer("b", provider="q", usd_per_hour=1.2)]
        problem = make_problem(
            offers, [make_candidate()], [make_workload(rates=(3.0,))], limits=Limits(min_providers=2)
        )
        assert solve(problem).kept == {"a": 2, "b": 1}

    def test_no_provider_carries_more_than_its_share(self) -> None:
        offers = [make_offer("a"), make_offer("b", provider="q", usd_per_hour=1.2)]
        problem = make_problem(
            offers, [make_candidate()], [make_workload(rates=(4.0,))], limits=Limits(max_provider_share=0.5)
        )
        assert solve(problem).kept == {"a": 2, "b": 2}

    def test_a_spare_unit_survives_the_loss_of_the_largest_instance(self) -> None:
        problem = make_problem(
            [make_offer(accelerators_per_unit=8)],
            [make_candidate(accelerators_per_replica=4)],
            [make_workload(rates=(2.0,))],
            limits=Limits(spare_replicas=1),
        )
        solution = solve(problem)
        assert solution.kept == {"a": 2}
        assert solution.replicas == {("c", "t0"): 4}

    def test_replicas_stay_in_the_allowed_regions(self) -> None:
        offers = [
            make_offer("us", region="us"),
            make_offer("eu", region="eu", usd_per_hour=2.0),
            make_offer("?", region=None),
        ]
        workload = make_workload(regions=frozenset({"eu"}))
        assert solve(make_problem(offers, [make_candidate()], [workload])).kept == {"eu": 1}

    def test_replicas_of_one_region_do_not_use_two_cheap_ones(self) -> None:
        offers = [
            make_offer("r1", maximum=1),
            make_offer("s1", region="s", maximum=1),
            make_offer("t2", region="t", usd_per_hour=1.5),
        ]
        workload = make_workload(rates=(2.0,))
        assert solve(make_problem(offers, [make_candidate()], [workload])).kept == {"r1": 1, "s1": 1}
        together = replace(workload, same_region=True)
        assert solve(make_problem(offers, [make_candidate()], [together])).kept == {"t2": 2}

    def test_each_region_gets_its_minimum_of_replicas(self) -> None:
        offers = [make_offer("r1"), make_offer("s1", region="s", usd_per_hour=3.0)]
        workload = make_workload(minimum_replicas_by_region={"s": 1}, minimum_replicas=3)
        assert solve(make_problem(offers, [make_candidate()], [workload])).kept == {"r1": 2, "s1": 1}


class TestThroughput:
    def test_the_budget_buys_the_most_requests(self) -> None:
        """5.10 USD/h buy two big units (6 requests/s), not five small ones."""
        limits = Limits(budget_usd_per_month=730 * 5.1)
        solution = solve(two_kinds(1.0, objective="max_throughput", limits=limits))
        assert solution.scale == pytest.approx(6.0)
        assert solution.kept == {"big": 2}
        assert solution.bound == pytest.approx(6.0)

    def test_money_that_buys_nothing_more_is_not_spent(self) -> None:
        problem = two_kinds(1.0, objective="max_throughput", limits=Limits(budget_usd_per_month=730 * 50.0))
        capped = replace(problem, offers=[replace(offer, maximum=1) for offer in problem.offers])
        idle = make_offer("idle", usd_per_hour=7.0)
        assert solve(capped).usd_per_hour == pytest.approx(3.5)
        no_use = replace(capped, offers=[*capped.offers, replace(idle, hardware="other")])
        assert solve(no_use).usd_per_hour == pytest.approx(3.5)

    def test_a_mix_without_demand_is_refused(self) -> None:
        with pytest.raises(InvalidValue):
            solve(two_kinds(0.0, objective="max_throughput", limits=Limits(budget_usd_per_month=1000)))


class TestInfeasible:
    def test_a_budget_below_the_cheapest_plan_says_by_how_much_and_gives_the_plan(self) -> None:
        solution = solve(two_kinds(limits=Limits(budget_usd_per_month=1000)))
        assert solution.status == "infeasible"
        (shortfall,) = solution.shortfalls
        assert (shortfall.limit, shortfall.available, shortfall.unit) == ("budget", 1000, "USD/month")
        assert shortfall.needed == pytest.approx(2.5 * 730)
        assert solution.kept == {"big": 1}

    def test_a_shape_that_nobody_serves_is_named(self) -> None:
        problem = make_problem([make_offer()], [make_candidate(requests_per_s={})], [make_workload()])
        solution = solve(problem)
        assert solution.status == "infeasible"
        assert solution.shortfalls[0].limit == "no candidate serves w/b"

    def test_the_least_that_a_quota_needs_is_found(self) -> None:
        quota = Quota(id="q", maximum=0)
        assert least_peak(two_kinds(4.0), quota) == pytest.approx(2)


class TestSolvers:
    def test_cbc_finds_the_same_plan(self) -> None:
        pytest.importorskip("pulp")
        try:
            solution = solve(two_kinds(4.0), SolverOptions(solver="cbc"))
        except UnknownName:
            pytest.skip("this PuLP brings no CBC")
        assert solution.kept == {"big": 1, "small": 1}
        assert solution.status == "optimal"

    def test_an_unknown_solver_is_refused_with_suggestions(self) -> None:
        with pytest.raises(UnknownName, match="highs"):
            solve(two_kinds(), SolverOptions(solver="hihgs"))

    def test_nothing_is_written_to_standard_output(self, capfd: pytest.CaptureFixture[str]) -> None:
        solve(two_kinds(4.0))
        assert capfd.readouterr().out == ""
