"""Budget files: what they may say, and one readable message for each way to be wrong."""

from decimal import Decimal
from importlib.resources import files

import pytest

from optimizer.report.budget import Budget
from optimizer.report.budget_file import parse_budget
from optimizer.workload.architecture import resolve_model
from providers.errors import UsageError
from providers.offers import PurchaseOption


def parse(text: str) -> Budget:
    return parse_budget(text, "b.yaml", resolve_model)


def workload(extra: str = "") -> str:
    return f"name: b\nworkloads:\n  - name: chat\n    model: 8B\n    rate: 2\n{extra}"


def test_the_example_that_ships_is_a_budget() -> None:
    text = files("optimizer.report").joinpath("data/budget_example.yaml").read_text(encoding="utf-8")
    budget = parse(text)
    assert [entry.name for entry in budget.workloads] == ["search-answers", "ticket-triage"]
    assert budget.workloads[0].growth_per_month == pytest.approx(0.03)
    assert budget.workloads[1].growth_per_month == pytest.approx(0.05)
    assert budget.workloads[1].matches == ({"provider": "aws", "sub_account": "support-prod"},)
    assert budget.thresholds.actual == (0.5, 0.8, 1.0)
    assert budget.commitments[0].upfront_usd == 2000


def test_a_workload_is_what_a_workload_file_says() -> None:
    budget = parse(workload("    owner: a\n    slo: {ttft_ms: 500}\n    precisions: [fp8]\n"))
    (entry,) = budget.workloads
    assert (entry.owner, entry.workload.slo.ttft_ms, entry.workload.precisions) == ("a", 500, ("fp8",))


def test_numbers_keep_the_digits_that_were_written() -> None:
    budget = parse("name: b\nbudgets: {total_usd: 0.1, owners: {}}\n")
    assert budget.total_usd == Decimal("0.1")


def test_private_prices_and_discounts_are_read() -> None:
    text = (
        "private_prices:\n"
        "  - {provider: aws, instance_type: p5.48xlarge, usd_per_hour: 48.5, observed_on: 2026-11-15}\n"
        "discounts:\n  - {provider: gcp, share: 7%, purchase_options: [on_demand]}\n"
    )
    budget = parse(workload() + text)
    assert budget.private_prices[0].usd_per_hour == Decimal("48.5")
    assert budget.discounts[0].share == pytest.approx(0.07)
    assert budget.discounts[0].purchase_options == {PurchaseOption.ON_DEMAND}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (workload("    rat: 3\n"), r"line 6, workloads\.0\.rat: Extra inputs"),
        ("name: b\nworkloads:\n  - {name: c, model: 8B, rate: -5}\n", r"line 3, workloads\.0\.rate.*value -5"),
        ("name: b\nworkloads:\n  - {name: c, model: 8B}\n", r"line 3, workloads\.0: a budget needs the rate"),
        (
            "name: b\nworkloads:\n  - {name: c, model: 71B, rate: 1}\n",
            r"line 3, workloads\.0\.model: unknown model '71B'",
        ),
        ("name: b\ntime_zone: Mars\nbudgets: {total_usd: 1}\n", r"line 2, time_zone: time zone 'Mars'"),
        ("name: b\nbudgets: {total_usd: .nan}\n", r"line 2, budgets\.total_usd.*finite"),
        ("name: b\nbudgets: {total_usd: true}\n", r"line 2, budgets\.total_usd: write a number"),
        ("name: b\nbudgets: {total_usd: 1, alerts: {actual: [-1]}}\n", r"budgets\.alerts\.actual\.0.*value -1"),
        ("name: b\n", "no workloads, items, commitments or total budget"),
        ("- a\n", "must be keys with values"),
        ("name: [\n", "no valid YAML"),
        ("name: &a b\nitems: [*a]\n", "anchors and aliases"),
        ("name: !!python/object/apply:os.system [ls]\n", "no valid YAML|could not determine"),
        (workload("discounts: [{provider: awss, share: 5%}]\n"), r"discounts\.0\.provider: unknown provider 'awss'"),
        (workload("items: [{name: x, category: storage}]\n"), "give one of usd_per_month"),
        (workload("items: [{name: x, category: storage, quantity: 3}]\n"), "quantity and usd_per_unit go together"),
        (
            workload("commitments: [{name: c, provider: aws, instance_type: x, start: 2026-01-01, term_months: 12}]\n"),
            "give usd_per_hour, upfront_usd or both",
        ),
        (workload("    match: {}\n"), "give at least one of provider"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse(text)
    assert str(caught.value).startswith("b.yaml")


def test_a_file_of_bombs_is_refused_quickly() -> None:
    with pytest.raises(UsageError, match="at most"):
        parse("name: " + "x" * 3_000_000)
    with pytest.raises(UsageError, match=r"nested too deeply|no valid YAML"):
        parse("name: " + "[" * 20_000)
