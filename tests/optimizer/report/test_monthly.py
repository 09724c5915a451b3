"""The monthly report: its totals, its forecasts, commitments used first, and what it says when it does not know."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from optimizer.report.budget import Discount, LineItem, PrivatePrice, privately_priced
from optimizer.report.monthly import UNASSIGNED, UNUSED
from optimizer.report.months import Month
from optimizer.report.planning import Planner
from providers.errors import UsageError
from providers.offers import PurchaseOption
from tests.builders import make_offer
from tests.optimizer.report.builders import (
    DECEMBER,
    MID_DECEMBER,
    make_actuals,
    make_budget,
    make_commitment,
    make_entry,
    make_group,
    make_report,
    sample_report,
    usd,
)


def test_without_a_bill_the_plan_is_the_forecast() -> None:
    report = make_report()
    assert report.method == "driver"
    assert report.total.forecast_usd == usd("40949.76")  # 744 h x 55.04
    assert report.total.actual_usd is None
    assert report.total.forecast.run_rate_usd is None


def test_a_bill_is_continued_at_its_rate() -> None:
    budget = make_budget(make_entry(matches=({"tag:app": "chat"},)), total_usd=usd(100000))
    bill = make_actuals(*(make_group(day=day, usd=100) for day in range(1, 11)))
    report = make_report(budget, now=MID_DECEMBER, actuals=bill)
    assert report.total.actual_usd == 1000
    assert report.total.forecast.run_rate_usd == usd("3100.00")
    assert report.total.forecast.trend_usd == usd("3100.00")
    assert report.total.forecast.driver_usd == usd("1000.00") + usd("27739.60") + usd("0.56")  # 504 h x 55.04
    assert report.total.forecast_usd == usd("3100.00")
    assert report.elapsed_hours == 240


def test_spend_is_extrapolated_from_the_end_of_the_bill_and_not_from_now() -> None:
    budget = make_budget(make_entry(matches=({"tag:app": "chat"},)))
    bill = make_actuals(make_group(usd=100), through=datetime(2026, 12, 2, tzinfo=UTC))
    report = make_report(budget, now=MID_DECEMBER, actuals=bill)
    assert report.total.forecast.run_rate_usd == usd("3100.00")
    assert any("last charge ends 9.0 days before now" in warning for warning in report.warnings)


def test_a_month_that_is_long_over_is_forecast_as_it_was_billed() -> None:
    budget = make_budget(make_entry(matches=({"tag:app": "chat"},)))
    bill = make_actuals(make_group(usd=100), through=datetime(2026, 12, 2, tzinfo=UTC))
    report = make_report(budget, now=datetime(2027, 1, 4, tzinfo=UTC), actuals=bill)
    assert report.total.forecast_usd == report.total.actual_usd == 100
    assert report.elapsed_hours == 744
    assert any("30.0 days before the month's end" in warning for warning in report.warnings)


def test_a_bill_of_a_month_that_has_not_begun_is_not_used() -> None:
    report = make_report(actuals=make_actuals(make_group(month="2026-11")))
    assert report.actuals is None
    assert any("has not begun" in warning for warning in report.warnings)


def test_a_workload_that_nothing_assigns_rows_to_is_forecast_as_planned() -> None:
    bill = make_actuals(make_group(workload=None, usd=70))
    report = make_report(now=MID_DECEMBER, actuals=bill)
    by_name = {row.name: row for row in report.groups["workload"]}
    assert by_name["chat"].actual_usd is None
    assert by_name["chat"].forecast_usd == usd("40949.76")
    assert by_name[UNASSIGNED].actual_usd == 70
    assert any("nothing says which rows" in warning for warning in report.warnings)


def test_every_dimension_adds_up_to_the_total() -> None:
    report = sample_report()
    for rows in report.groups.values():
        assert sum((row.forecast_usd for row in rows), Decimal(0)) == report.total.forecast_usd
        assert sum((row.plan_usd for row in rows), Decimal(0)) == report.total.plan_usd
        assert sum((row.actual_usd or Decimal(0) for row in rows), Decimal(0)) == report.total.actual_usd
        for method in ("run_rate", "trend", "driver"):
            assert sum((row.forecast.by(method) or Decimal(0) for row in rows), Decimal(0)) == (
                report.total.forecast.by(method)
            )


def test_capacity_that_is_paid_for_is_used_first_and_still_in_the_budget() -> None:
    """Five machines are needed, two are committed to: 3 x 55.04 more, 3 x 55.04 + 2 x 33 in all, per hour."""
    report = make_report(make_budget(make_entry(), commitments=(make_commitment(),)), instances={"chat": 5})
    used = {line.option: line.instances for line in report.plan.lines}
    assert used == {"committed": 2, "on_demand": 3}
    assert report.total.forecast_usd / DECEMBER.hours == usd("231.12")
    assert report.plan.loads[0].avoidable_usd / DECEMBER.hours == usd("165.12")


def test_an_unused_commitment_is_a_line_of_its_own() -> None:
    budget = make_budget(make_entry(), commitments=(make_commitment(),))
    report = make_report(budget, instances={"chat": 1})
    by_name = {row.name: row for row in report.groups["workload"]}
    assert by_name[UNUSED].forecast_usd == usd("24552.00")
    assert by_name["chat"].forecast_usd == usd("24552.00")
    (held,) = report.commitments
    assert (held.utilization, held.coverage, held.waste_usd) == (0.5, 1.0, usd("24552.00"))
    assert any(action.saving_usd == usd("24552.00") for action in report.actions)


def test_cash_shows_the_upfront_in_its_month() -> None:
    held = make_commitment(
        count=1, usd_per_hour=usd("0.5"), upfront_usd=usd(4380), start=date(2026, 12, 1), term_months=12
    )
    report = make_report(make_budget(make_entry(), commitments=(held,)))
    assert report.cash_usd == usd("4752.00")
    assert report.total.forecast_usd == usd("744.00")


@pytest.mark.parametrize(
    ("item", "amount"),
    [
        (LineItem(name="s", category="storage", usd_per_month=usd(500)), "500.00"),
        (LineItem(name="s", category="storage", quantity=usd(1000), usd_per_unit=usd("0.08")), "80.00"),
        (LineItem(name="s", category="service", usd_per_hour=usd("1.515"), count=2), "2254.32"),
        (LineItem(name="s", category="service", usd_per_hour=usd("1.515"), hours=usd(730)), "1105.95"),
        (LineItem(name="s", category="support", share_of_compute=0.03), "1228.49"),
    ],
)
def test_items_cost_what_their_kind_of_price_says(item: LineItem, amount: str) -> None:
    report = make_report(make_budget(make_entry(), items=(item,)))
    (line,) = [line for line in report.lines if line.key.category != "compute"]
    assert line.forecast_usd == usd(amount)


def test_the_burn_down_goes_from_the_budget_to_what_the_forecast_leaves() -> None:
    budget = make_budget(make_entry(matches=({"tag:app": "chat"},)), total_usd=usd(5000))
    bill = make_actuals(*(make_group(day=day, usd=100) for day in range(1, 11)))
    report = make_report(budget, now=MID_DECEMBER, actuals=bill)
    assert [day.budget_left_usd for day in report.days][9] == 4000
    assert report.days[-1].budget_left_usd == 5000 - report.total.forecast_usd
    assert report.days[9].actual_usd == report.days[9].forecast_usd == 1000
    assert report.days[10].actual_usd is None


def test_the_change_against_last_month_is_of_the_bill_where_it_has_both() -> None:
    groups = [make_group(month="2026-11", day=day, usd=1200) for day in range(1, 31)]
    groups += [make_group(day=day, usd=1320) for day in range(1, 11)]
    budget = make_budget(make_entry(matches=({"tag:app": "chat"},)))
    change = make_report(budget, now=MID_DECEMBER, actuals=make_actuals(*groups)).change
    assert change.before_usd == 36000
    assert change.after_usd == 40920  # 1,320 a day for 31 days
    assert change.volume_usd == 1200  # one more day
    assert change.price_usd == 3720  # 31 days at 120 more
    assert change.mix_usd == 0


def test_the_price_part_comes_from_the_price_history() -> None:
    thing = "aws/p5.48xlarge/us-east-1/on_demand"
    change = make_report(earlier_prices={thing: usd("6.00")}).change
    assert change.before_usd == cents_of(720 * 8 * usd("6.00"))
    assert change.price_usd == cents_of(744 * 8 * (usd("6.88") - usd("6.00")))
    assert change.price_usd + change.volume_usd + change.mix_usd == change.usd


def test_a_thing_whose_earlier_price_is_not_on_file_is_named() -> None:
    report = make_report(earlier_prices={"aws/other/us-east-1/on_demand": usd(1)})
    assert report.change.unpriced == ("aws/p5.48xlarge/us-east-1/on_demand",)
    assert report.change.price_usd == 0


def test_without_a_history_both_months_are_at_todays_prices() -> None:
    report = make_report()
    assert "both at today's prices" in report.change_basis
    assert (report.change.price_usd, report.change.unpriced) == (0, ())


def test_the_outlook_has_twelve_months_of_their_own_length() -> None:
    report = make_report(make_budget(make_entry(), total_usd=usd(38000)))
    assert [str(ahead.month) for ahead in report.outlook][::11] == ["2026-12", "2027-11"]
    assert report.outlook[0].usd == usd("40949.76")
    assert report.outlook[2].usd == usd("36986.88")  # February
    assert report.outlook[2].left_usd == usd("1013.12")


def test_unit_costs_divide_the_forecast_by_what_it_makes() -> None:
    (unit,) = make_report().unit_costs
    assert unit.requests == 2 * 3600 * 744
    assert unit.accelerator_hours == 8 * 744
    assert unit.usd_per_accelerator_hour == usd("6.880000")
    assert unit.usd_per_million_tokens == usd("5.880342")


def test_a_workload_pays_for_the_whole_machine() -> None:
    """One GPU of eight in use is billed as the machine of eight."""
    report = make_report(instances={"chat": 1})
    assert report.plan.lines[0].machine.accelerator_count == 8
    assert report.total.forecast_usd == cents_of(744 * usd("55.04"))


def test_two_workloads_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two workloads are named 'chat'"):
        make_report(make_budget(make_entry(), make_entry()))


def test_a_limit_of_an_owner_that_owns_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="owner 'sales' has a limit but nothing else"):
        make_report(make_budget(make_entry(), limits={"owner": {"sales": usd(1)}}))


def test_private_prices_replace_list_prices_and_discounts_come_off_them() -> None:
    offers = [make_offer(provider="aws", usd=10, name="p5"), make_offer(provider="gcp", usd=10)]
    budget = make_budget(
        private_prices=(
            PrivatePrice(
                provider="aws", instance_type="p5", purchase_option=PurchaseOption.ON_DEMAND, usd_per_hour=usd(8)
            ),
            PrivatePrice(
                provider="aws", instance_type="gone", purchase_option=PurchaseOption.ON_DEMAND, usd_per_hour=usd(1)
            ),
        ),
        discounts=(Discount(provider="aws", share=0.5), Discount(provider="gcp", share=0.07)),
    )
    priced, remarks = privately_priced(budget, offers)
    assert [offer.usd_per_hour for offer in priced] == [usd(8), usd("9.30")]
    assert "discount" in priced[1].source
    (remark,) = remarks
    assert remark.startswith("private price of aws gone on_demand in any region: no offer that may be bought is like")


def test_a_real_plan_uses_a_commitment_before_the_market() -> None:
    entry = make_entry(rate=1.0)
    machine = make_offer(name="g6e.xlarge", gpu="L40S", usd="1.86")
    held = make_commitment(instance_type="g6e.xlarge", count=1, usd_per_hour=usd("1.20"))
    budget = make_budget(entry, commitments=(held,))
    machines = {("aws", "g6e.xlarge"): machine.instance_type}
    plan = Planner(budget, [machine], machines).month(DECEMBER, DECEMBER)
    assert plan.lines[0].commitment == "p5 plan"
    assert plan.lines[0].usd_per_hour == usd("1.20")


def test_after_its_term_a_commitment_is_bought_on_the_market() -> None:
    entry = make_entry(rate=0.5)
    machine = make_offer(name="g6e.xlarge", gpu="L40S", usd="1.86")
    held = make_commitment(
        instance_type="g6e.xlarge", count=1, usd_per_hour=usd("1.20"), start=date(2025, 12, 16), term_months=12
    )
    machines = {("aws", "g6e.xlarge"): machine.instance_type}
    planner = Planner(make_budget(entry, commitments=(held,)), [machine], machines)
    lines = planner.month(DECEMBER, DECEMBER).lines
    assert [(line.commitment, line.hours) for line in lines] == [("p5 plan", 15 * 24), (None, 16 * 24)]
    assert [line.commitment for line in planner.month(Month(2027, 1), DECEMBER).lines] == [None]


def test_growth_counts_from_the_base_month() -> None:
    entry = make_entry(rate=1.0, growth_per_month=1.0)
    machine = make_offer(name="g6e.xlarge", gpu="L40S", usd="1.86")
    machines = {("aws", "g6e.xlarge"): machine.instance_type}
    planner = Planner(make_budget(entry, base_month=Month(2026, 11)), [machine], machines)
    (load,) = planner.month(DECEMBER, DECEMBER).loads
    assert load.requests_per_s == pytest.approx(2.0)


def test_a_workload_that_nothing_runs_is_said_and_costs_nothing() -> None:
    plan = Planner(make_budget(make_entry()), [], {}).month(DECEMBER, DECEMBER)
    assert plan.loads[0].usd == 0
    assert "no offer on file runs it" in plan.warnings[0]


def cents_of(amount: Decimal) -> Decimal:
    return amount.quantize(Decimal("0.01"))
