"""The choice of clusters: solvable by hand, and against trying everything out."""

import itertools
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.program.problem import SolverOptions
from optimizer.program.training import (
    Job,
    JobOption,
    TrainingProblem,
    TrainingSolution,
    peak_accelerators,
    prune,
    solve_training,
    violations,
)
from providers.errors import InvalidValue


def option(job: str = "a", *, hours: float, usd: float, accelerators: int = 8, id_: str | None = None) -> JobOption:
    return JobOption(id=id_ or f"{job}-{hours}-{usd}", job=job, hours=hours, usd=usd, accelerators=accelerators)


def solved(problem: TrainingProblem) -> TrainingSolution:
    return solve_training(problem, SolverOptions())


SLOW = option(hours=100, usd=1000)
FAST = option(hours=30, usd=1500, accelerators=32)


@pytest.mark.parametrize(("deadline", "expected"), [(inf, SLOW), (100, SLOW), (99, FAST), (30, FAST)])
def test_the_cheapest_option_within_the_deadline_is_chosen(deadline: float, expected: JobOption) -> None:
    solution = solved(TrainingProblem(jobs=[Job(id="a", deadline_hours=deadline)], options=[SLOW, FAST]))
    assert solution.status == "optimal"
    assert solution.chosen["a"] == (expected, 0.0)
    assert solution.bound == pytest.approx(expected.usd)


@pytest.mark.parametrize(("budget", "expected"), [(1000.0, SLOW), (1499.0, SLOW), (1500.0, FAST)])
def test_the_fastest_option_within_the_budget_is_chosen(budget: float, expected: JobOption) -> None:
    problem = TrainingProblem(jobs=[Job(id="a")], options=[SLOW, FAST], budget_usd=budget, objective="min_time")
    solution = solved(problem)
    assert solution.chosen["a"][0] == expected
    assert solution.bound == pytest.approx(expected.hours, abs=1e-4)


def test_an_impossible_deadline_says_by_how_much() -> None:
    solution = solved(TrainingProblem(jobs=[Job(id="a", deadline_hours=20)], options=[SLOW, FAST]))
    assert solution.status == "infeasible"
    (shortfall,) = solution.shortfalls
    assert (shortfall.limit, shortfall.needed, shortfall.available, shortfall.unit) == ("deadline", 30, 20, "hours")


def test_a_budget_below_the_cheapest_in_time_says_by_how_much() -> None:
    problem = TrainingProblem(jobs=[Job(id="a", deadline_hours=50)], options=[SLOW, FAST], budget_usd=1200)
    (shortfall,) = solved(problem).shortfalls
    assert (shortfall.limit, shortfall.needed, shortfall.available) == ("budget", 1500, 1200)


def test_too_few_accelerators_say_how_many_it_takes() -> None:
    (shortfall,) = solved(TrainingProblem(jobs=[Job(id="a")], options=[SLOW, FAST], max_accelerators=4)).shortfalls
    assert (shortfall.limit, shortfall.needed, shortfall.available) == ("accelerators", 8, 4)


def test_a_job_without_any_cluster_is_said_to_have_none() -> None:
    (shortfall,) = solved(TrainingProblem(jobs=[Job(id="a")], options=[])).shortfalls
    assert shortfall.limit == "clusters that hold a"


def test_two_jobs_that_share_accelerators_run_one_after_the_other() -> None:
    options = [option(job, hours=10, usd=100, accelerators=8) for job in ("a", "b")]
    jobs = [Job(id="a", deadline_hours=48), Job(id="b", deadline_hours=48)]
    solution = solved(TrainingProblem(jobs=jobs, options=options, max_accelerators=8))
    starts = sorted(start for _, start in solution.chosen.values())
    assert starts[0] == 0
    assert starts[1] >= 10


def test_two_jobs_that_fit_side_by_side_start_together() -> None:
    options = [option(job, hours=10, usd=100, accelerators=8) for job in ("a", "b")]
    jobs = [Job(id="a", deadline_hours=48), Job(id="b", deadline_hours=48)]
    solution = solved(TrainingProblem(jobs=jobs, options=options, max_accelerators=16))
    assert [start for _, start in solution.chosen.values()] == [0, 0]


def test_a_shared_budget_takes_the_dearer_option_where_a_deadline_needs_it() -> None:
    options = [
        option("a", hours=10, usd=300),
        option("a", hours=40, usd=100),
        option("b", hours=10, usd=300),
        option("b", hours=40, usd=100),
    ]
    jobs = [Job(id="a", deadline_hours=20), Job(id="b", deadline_hours=50)]
    solution = solved(TrainingProblem(jobs=jobs, options=options, budget_usd=400))
    assert {job: found.usd for job, (found, _) in solution.chosen.items()} == {"a": 300, "b": 100}
    assert solved(TrainingProblem(jobs=jobs, options=options, budget_usd=399)).status == "infeasible"


def test_a_job_does_not_start_before_it_may() -> None:
    problem = TrainingProblem(jobs=[Job(id="a", earliest_hours=24, deadline_hours=60)], options=[SLOW, FAST])
    assert solved(problem).chosen["a"] == (FAST, 24)
    late = TrainingProblem(jobs=[Job(id="a", earliest_hours=40, deadline_hours=60)], options=[SLOW, FAST])
    assert solved(late).shortfalls[0].needed == 70


def test_jobs_that_cannot_take_turns_say_how_many_accelerators_they_need_at_once() -> None:
    options = [option(job, hours=10, usd=100, accelerators=size) for job, size in (("a", 8), ("b", 16), ("c", 8))]
    jobs = [Job(id=job, deadline_hours=15) for job in ("a", "b", "c")]
    (shortfall,) = solved(TrainingProblem(jobs=jobs, options=options, max_accelerators=20)).shortfalls
    assert (shortfall.limit, shortfall.needed, shortfall.available) == ("accelerators", 32, 20)


def test_a_budget_that_only_taking_turns_breaks_says_what_it_takes() -> None:
    """Side by side on the large clusters they are too many, one after the other the second is late on the cheap one."""
    options = [
        option(job, hours=hours, usd=usd, accelerators=8) for job in ("a", "b") for hours, usd in ((10, 100), (5, 150))
    ]
    jobs = [Job(id="a", deadline_hours=12), Job(id="b", deadline_hours=12)]
    found = {
        s.limit: s
        for s in solved(TrainingProblem(jobs=jobs, options=options, budget_usd=250, max_accelerators=8)).shortfalls
    }
    assert found["budget"].needed == 300
    assert found["accelerators"].needed == 16


@pytest.mark.parametrize(
    ("chosen", "fault"),
    [
        ({}, "does not run"),
        ({"a": (FAST, 0.0)}, "none of its options"),
        ({"a": (SLOW, 1.0)}, "at the earliest 2"),
        ({"a": (SLOW, 60.0)}, "deadline 150"),
        ({"a": (SLOW, 2.0)}, "at most 999"),
    ],
)
def test_an_answer_that_breaks_a_limit_is_found_out(chosen: dict[str, tuple[JobOption, float]], fault: str) -> None:
    problem = TrainingProblem(
        jobs=[Job(id="a", earliest_hours=2, deadline_hours=150)], options=[SLOW], budget_usd=999, max_accelerators=8
    )
    assert any(fault in found for found in violations(problem, chosen))


def test_the_most_accelerators_at_once_are_those_that_overlap() -> None:
    chosen = {"a": (option(hours=10, usd=1), 0.0), "b": (option("b", hours=10, usd=1), 10.0)}
    assert peak_accelerators(chosen) == 8
    assert peak_accelerators(chosen | {"c": (option("c", hours=2, usd=1, accelerators=4), 9.0)}) == 12


def test_jobs_of_the_same_name_are_refused() -> None:
    with pytest.raises(InvalidValue, match="name of its own"):
        TrainingProblem(jobs=[Job(id="a"), Job(id="a")], options=[])


def test_an_option_that_is_slower_dearer_and_larger_is_pruned() -> None:
    worse = option(hours=110, usd=1100, accelerators=16)
    assert prune([worse, SLOW, FAST]) == [SLOW, FAST]


OPTION = st.tuples(st.integers(1, 100).map(float), st.integers(1, 1000).map(float), st.sampled_from([8, 16, 32]))


@settings(max_examples=60, deadline=None)
@given(
    own=st.lists(st.lists(OPTION, min_size=1, max_size=5), min_size=1, max_size=3),
    deadline=st.integers(1, 120),
    budget=st.integers(50, 2500),
    fastest=st.booleans(),
)
def test_no_choice_is_better_than_the_solver_s(
    own: list[list[tuple[float, float, int]]], deadline: int, budget: int, fastest: bool
) -> None:
    """All jobs start at once: every combination of options is tried out."""
    jobs = [Job(id=str(index), deadline_hours=deadline) for index in range(len(own))]
    options = [
        option(str(index), hours=hours, usd=usd, accelerators=size, id_=f"{index}-{number}")
        for index, found in enumerate(own)
        for number, (hours, usd, size) in enumerate(found)
    ]
    solution = solved(
        TrainingProblem(jobs=jobs, options=options, budget_usd=budget, objective="min_time" if fastest else "min_cost")
    )
    combinations = [
        combination
        for combination in itertools.product(*own)
        if all(hours <= deadline for hours, _, _ in combination) and sum(usd for _, usd, _ in combination) <= budget
    ]
    if not combinations:
        assert solution.status == "infeasible"
        return
    chosen = [found for found, _ in solution.chosen.values()]
    if fastest:
        best = min(max(hours for hours, _, _ in combination) for combination in combinations)
        assert max(found.hours for found in chosen) == pytest.approx(best)
    else:
        best = min(sum(usd for _, usd, _ in combination) for combination in combinations)
        assert sum(found.usd for found in chosen) == pytest.approx(best)
    assert solution.status == "optimal"


@settings(max_examples=25, deadline=None)
@given(own=st.lists(st.tuples(st.integers(1, 20), st.sampled_from([8, 16])), min_size=2, max_size=4))
def test_the_calendar_never_holds_more_than_its_accelerators(own: list[tuple[int, int]]) -> None:
    jobs = [Job(id=str(index), deadline_hours=96) for index in range(len(own))]
    options = [option(str(i), hours=hours, usd=10, accelerators=size) for i, (hours, size) in enumerate(own)]
    solution = solved(TrainingProblem(jobs=jobs, options=options, max_accelerators=16))
    assert solution.chosen
    runs = [(start, start + found.hours, found.accelerators) for found, start in solution.chosen.values()]
    for start, _, _ in runs:
        assert sum(size for begin, end, size in runs if begin <= start < end) <= 16
    assert all(end <= 96 for _, end, _ in runs)
