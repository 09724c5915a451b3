"""Users' cases of commitments and spot, and of request logs: each with the answer that turned out to be right.

Situations are in own words; sources are named. Prices and rates are those of the sources.
"""

import csv
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from optimizer.plans.plan import PlannedInstances
from optimizer.plans.planner import plan
from optimizer.plans.reasons import purchase_reasons
from optimizer.program.problem import Period, Problem, ProgramCandidate, ProgramOffer, ProgramWorkload, Solution
from optimizer.program.solve import solve
from providers.offers import Commitment, CommitmentKind, PurchaseOption
from tests.builders import make_offer, make_request
from tests.conftest import Command

DATA = Path(__file__).parent.parent / "data"


def unit_problem(*offers: ProgramOffer, rates: list[float], per_replica: float = 1.0, **over: Any) -> Problem:
    """One replica a unit, each serving `per_replica` requests/s; one period an hour."""
    return Problem(
        offers=offers,
        candidates=(
            ProgramCandidate(
                id="replica",
                workload="w",
                hardware="machine",
                accelerators_per_replica=1,
                requests_per_s={"b0": per_replica},
            ),
        ),
        workloads=(ProgramWorkload(id="w", shapes=("b0",), demand=tuple((rate,) for rate in rates)),),
        periods=tuple(Period(id=f"h{t:03}", hours=1.0) for t in range(len(rates))),
        utilisation=1.0,
        **over,
    )


def unit_offer(name: str, option: PurchaseOption, usd_per_hour: float, **over: Any) -> ProgramOffer:
    return ProgramOffer(
        id=name,
        hardware="machine",
        provider="aws",
        accelerator="H100-SXM5-80GB",
        accelerators_per_unit=1,
        purchase_option=option.value,
        usd_per_hour=usd_per_hour,
        instance_type=name,
        **over,
    )


def kept_and_bought(solution: Solution) -> tuple[dict[str, int], int]:
    return dict(solution.kept), sum(solution.bought.values())


@pytest.mark.parametrize(("used_of_20_hours", "chosen"), [(11, "on-demand"), (13, "committed")])
def test_a_commitment_pays_from_the_use_that_is_its_share_of_the_hourly_price(
    used_of_20_hours: int, chosen: str
) -> None:
    """1.00 by the hour against 0.60 committed: break-even at 60 % use (getnable.com/commitment-calculator.html)."""
    problem = unit_problem(
        unit_offer("on-demand", PurchaseOption.ON_DEMAND, 1.0),
        unit_offer("committed", PurchaseOption.RESERVED_1Y, 0.6, term_hours=8760.0),
        rates=[1.0] * used_of_20_hours + [0.0] * (20 - used_of_20_hours),
    )
    solution = solve(problem)
    bought = {offer for offer, _ in solution.bought}
    assert {*solution.kept, *bought} == {chosen}
    (reason,) = purchase_reasons(problem, solution)
    assert reason.break_even_share == pytest.approx(0.6, abs=0.001)
    assert reason.used_share == pytest.approx(used_of_20_hours / 20)
    assert "60% use" in reason.text


@pytest.mark.parametrize(
    ("reserved", "used", "rate", "recovered", "unused", "share", "lost"),
    [(12000, 8900, "4.80", "0.35", 3100, 0.7417, "9672"), (6000, 5700, "3.00", "0", 300, 0.95, "900")],
)
def test_reserved_hours_that_are_not_used_are_paid(
    reserved: int, used: int, rate: str, recovered: str, unused: int, share: float, lost: str
) -> None:
    """A commitment costs all its hours; what was recovered elsewhere comes off (calcsimpler.com, GPU breakage)."""
    offer = make_offer(usd=rate, purchase_option=PurchaseOption.RESERVED_1Y)
    line = PlannedInstances(offer=offer, kept=1)
    paid = line.usd_per_hour * reserved
    breakage = (paid - offer.usd_per_hour * used) * (1 - Decimal(recovered))
    assert (reserved - used, breakage) == (unused, Decimal(lost))
    hours = 100
    needed = round(hours * used / reserved)
    problem = unit_problem(
        unit_offer("reserved", PurchaseOption.RESERVED_1Y, float(rate), term_hours=8760.0, committed=1, maximum=1),
        rates=[1.0] * needed + [0.0] * (hours - needed),
    )
    solution = solve(problem)
    assert solution.usd_per_hour == pytest.approx(float(rate))
    (reason,) = purchase_reasons(problem, solution)
    assert reason.kind == "committed"
    assert reason.used_share == pytest.approx(share, abs=0.01)


def test_spot_is_not_taken_where_it_costs_more_than_on_demand() -> None:
    """0.402 spot against 0.384 on demand, as reported in aws/karpenter-provider-aws#3183."""
    firm = make_offer(usd="0.384", name="m")
    spot = make_offer(usd="0.402", name="m", purchase_option=PurchaseOption.SPOT)
    for offers in ((firm, spot), (spot, firm)):
        answer = plan(make_request(*offers, rate=0.5))
        assert answer.fleet is not None
        assert [item.offer.purchase_option for item in answer.fleet.instances] == [PurchaseOption.ON_DEMAND]
        assert answer.fleet.usd_per_hour == Decimal("0.384")


def test_a_partial_upfront_is_spread_over_its_term() -> None:
    """4,380 at once and 0.50 an hour for a year is 1.00 an hour (FOCUS specification, purchase scenario 3)."""
    commitment = Commitment(
        kind=CommitmentKind.RESERVED_INSTANCE, term_months=12, upfront_usd=Decimal(4380), variant="partial upfront"
    )
    offer = make_offer(usd="1.00", purchase_option=PurchaseOption.RESERVED_1Y, commitment=commitment)
    answer = plan(make_request(offer, rate=0.5))
    assert answer.fleet is not None
    assert answer.fleet.usd_per_hour == Decimal(1)
    (line,) = answer.fleet.instances
    assert line.upfront_usd == 4380
    recurring = line.usd_per_hour - line.upfront_usd / (12 * 730)
    assert recurring == pytest.approx(Decimal("0.5"))
    first_month = line.upfront_usd + recurring * 744
    assert 4751 <= first_month <= 4753
    assert answer.proof.bound == pytest.approx(730)


def test_capacity_that_is_paid_for_is_used_first_and_stays_in_the_budget() -> None:
    """Two machines committed at 33.00, five needed, 55.04 on demand (skypilot-org/skypilot#3895 and #3852)."""
    problem = unit_problem(
        unit_offer("held", PurchaseOption.RESERVED_1Y, 33.0, committed=2, running=2, maximum=2, term_hours=8760.0),
        unit_offer("on-demand", PurchaseOption.ON_DEMAND, 55.04),
        rates=[5.0],
    )
    solution = solve(problem)
    assert kept_and_bought(solution)[0].get("held") == 2
    assert solution.units("on-demand", "h000") == 3
    assert solution.usd_per_hour == pytest.approx(231.12)
    without = solve(unit_problem(*problem.offers, rates=[0.0]))
    assert without.usd_per_hour == pytest.approx(66.0)
    assert (solution.usd_per_hour or 0) - (without.usd_per_hour or 0) == pytest.approx(165.12)


def test_following_the_load_saves_against_buying_the_peak() -> None:
    """Two weeks of a hosted model's hours, ten requests/s a replica at 10 USD/h (alibaba/ServeGen, m-large)."""
    with (DATA / "servegen_m-large_hourly_rps.csv").open(encoding="utf-8") as lines:
        rates = [float(row["max_10min_rps"]) for row in csv.DictReader(lines)]
    offer = unit_offer("by-the-hour", PurchaseOption.ON_DEMAND, 10.0)
    following = solve(unit_problem(offer, rates=rates, per_replica=10.0))
    hours = len(rates)
    assert hours == 336
    counts = [following.units("by-the-hour", f"h{t:03}") for t in range(hours)]
    assert (sum(counts), max(counts)) == (7773, 59)
    assert (following.usd_per_hour or 0) * hours == pytest.approx(77_730)
    static = solve(unit_problem(offer, rates=[max(rates)], per_replica=10.0))
    assert static.units("by-the-hour", "h000") * hours == 19_824
    saving = 1 - (following.usd_per_hour or 0) / (static.usd_per_hour or 1)
    assert saving == pytest.approx(0.608, abs=0.001)


def planned(costopt: Command, name: str, *flags: str) -> dict[str, Any]:
    outcome = costopt("plan", "--model", "70B", "--trace", DATA / name, *flags, "--format", "json")
    assert outcome.code == 0, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_an_hour_of_chat_traffic_says_its_rates_lengths_and_monthly_volume(costopt: Command) -> None:
    """Azure's chat log of 2023 (Azure/AzurePublicDataset, CC BY 4.0), with a context limit of 4,096 tokens."""
    document = planned(costopt, "azure_llm_2023_conv.csv.gz", "--context", "4096")
    said = " ".join(document["assumptions"])
    assert "19,366 requests in 3,502 s, 5.530 requests/s on average, 8.4" in said
    assert "input tokens 1155 on average (1020 median), output 211 (129)" in said
    assert any(line.startswith("8.3% of the requests are longer than 4,096 tokens") for line in document["warnings"])
    assert document["workloads"][0]["context_tokens"] == 4096
    trace = document["trace"]
    assert (trace["requests"], trace["input_tokens_p50"], trace["output_tokens_p50"]) == (19_366, 1020, 129)
    assert 5.52 <= trace["mean_requests_per_s"] <= 5.54
    assert 8.4 <= trace["peak_minute_requests_per_s"] <= 8.5
    assert 0.083 <= trace["share_over_context"] <= 0.0835
    assert trace["longest_tokens"] == 14_089
    assert 14.3e6 <= trace["requests_in_30_days"] <= 14.4e6
    assert 16.5e9 <= trace["input_tokens_in_30_days"] <= 16.6e9
    assert 3.02e9 <= trace["output_tokens_in_30_days"] <= 3.03e9
    assert document["totals"]["requests_per_s"] == pytest.approx(8.45 * (1 - 0.0833), rel=0.08)


def test_code_completion_is_bound_by_its_prompts_and_its_busiest_minute(costopt: Command) -> None:
    """Azure's code log of 2023: 73 input tokens for each output token, four times the mean in the busiest minute."""
    document = planned(costopt, "azure_llm_2023_code.csv.gz")
    said = " ".join(document["assumptions"])
    assert "8,819 requests in 3,436 s, 2.567 requests/s on average, 10.53 in the busiest minute" in said
    assert "(1469 median), output 28 (13)" in said
    assert "4.10 x the mean" in said
    assert any(line.startswith("prefill-bound: 73 input tokens per output token") for line in document["warnings"])
    assert document["totals"]["requests_per_s"] == pytest.approx(10.53, abs=0.01)
    assert document["trace"]["prefill_bound"]
    assert 73 <= document["trace"]["input_over_output"] <= 74
