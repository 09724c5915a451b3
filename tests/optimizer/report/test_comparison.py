"""The comparison: total cost by hand, break-even, hardware, hosted tokens, and what is set apart."""

from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from optimizer.report.capacity import HeldAccelerators
from optimizer.report.comparison import Comparison, Wanted, comparison
from optimizer.report.extras import Extras, HardwareInputs, egress_gb, parse_extras, usd_per_gb_hour
from optimizer.report.price_tables import hardware_prices, hosted_prices, model_key
from optimizer.report.quotes import parse_quotes
from optimizer.report.ways import Way, break_even_month, break_even_utilization
from providers.accelerators import catalogue, resolve
from providers.errors import UsageError
from providers.offers import Commitment, CommitmentKind, PurchaseOption
from tests.builders import make_offer
from tests.optimizer.report.builders import (
    NOW,
    FixedNeed,
    committed_way,
    make_way,
    sample_comparison,
    sample_extras,
    usd,
)


def test_a_term_is_paid_to_its_end() -> None:
    three_years = committed_way(term_months=36, usd_per_hour=Decimal(6))
    found = three_years.tco(12)
    assert found is not None
    assert found.compute_usd == 36 * 730 * 6


def test_a_shorter_term_is_renewed() -> None:
    found = committed_way(upfront_usd=Decimal(1000)).tco(36)
    assert found is not None
    assert found.compute_usd == 3 * 1000 + 36 * 730 * 10


def test_hardware_costs_its_price_at_once_and_its_running_by_the_month() -> None:
    bought = make_way(
        by_use=False, upfront_usd=Decimal(100_000), term_months=36, usd_per_hour=Decimal(1), kind="hardware"
    )
    twelve, thirty_six = bought.tco(12), bought.tco(36)
    assert twelve is not None
    assert thirty_six is not None
    assert (twelve.compute_usd, thirty_six.compute_usd) == (108_760, 126_280)


def test_what_is_not_known_is_in_no_total() -> None:
    found = make_way(storage_usd_per_month=Decimal(5), support_share=usd("0.1")).tco(12)
    assert found is not None
    assert (found.storage_usd, found.egress_usd, found.support_usd) == (60, None, 8760)
    assert found.usd == 87600 + 60 + 8760


def test_break_even_is_where_paying_always_equals_paying_by_use() -> None:
    reference = make_way()
    assert break_even_utilization(committed_way(usd_per_hour=Decimal(6)), reference) == pytest.approx(0.6)
    assert break_even_utilization(committed_way(usd_per_hour=Decimal(11)), reference) is None
    assert break_even_utilization(make_way(usd_per_hour=Decimal(1)), reference) is None


def test_below_the_break_even_the_reference_is_cheaper_and_above_dearer() -> None:
    way, reference = committed_way(usd_per_hour=Decimal(6)), make_way()
    for share, cheaper in ((0.55, reference), (0.65, way)):
        month = {each: each.month_usd(share) or Decimal(0) for each in (way, reference)}
        assert min(month, key=lambda each: month[each]) is cheaper


def test_an_upfront_comes_back_in_the_month_where_the_lines_cross() -> None:
    bought = make_way(by_use=False, upfront_usd=Decimal(65_700), term_months=36, usd_per_hour=Decimal(1))
    assert break_even_month(bought, make_way()) == 10
    assert break_even_month(committed_way(), make_way()) is None
    assert break_even_month(replace(bought, upfront_usd=Decimal(10**9)), make_way()) is None


def test_tokens_cost_more_where_paid_hours_stand_still() -> None:
    tokens = Decimal(730_000_000)
    assert committed_way(tokens_per_month=tokens).usd_per_million_tokens(0.5) == usd("20.000000")
    assert make_way(tokens_per_month=tokens).usd_per_million_tokens(0.5) == usd("10.000000")


def wanted(**over: Any) -> Wanted:
    fields: dict[str, Any] = {
        "title": "t",
        "need": FixedNeed(),
        "offers": [make_offer(provider="lambda", name="8x", count=8, usd=32)],
        "quotes": (),
        "extras": Extras(),
        "now": NOW,
    }
    return Wanted(**(fields | over))


def by_name(found: Comparison) -> dict[str, Way]:
    return {way.name: way for way in (*found.ways, *found.apart)}


def test_there_is_a_row_for_each_provider_option_and_term() -> None:
    names = set(by_name(sample_comparison()))
    assert {
        "mixed plan, on demand",
        "lambda on demand (best single provider)",
        "aws on demand",
        "aws reserved 1y savings plan",
        "gcp spot",
        "quote Acme",
        "quote Gamma",
    } <= names


def test_ways_are_in_the_order_of_their_cost() -> None:
    costs = [cost.usd for way in sample_comparison().ways if (cost := way.tco(12))]
    assert costs == sorted(costs)


def test_the_reference_can_be_given_back_and_cannot_be_taken_away() -> None:
    reference = sample_comparison().reference
    assert reference is not None
    assert (reference.by_use, reference.purchase_option) == (True, "on_demand")


def test_a_quote_with_a_gap_is_set_apart_with_the_reason() -> None:
    (apart,) = sample_comparison().apart
    assert apart.seller == '=HYPERLINK("x")'
    assert "variant not stated" in apart.gaps[0]


def test_an_upfront_of_a_commitment_is_not_counted_twice() -> None:
    commitment = Commitment(kind=CommitmentKind.RESERVED_INSTANCE, term_months=12, upfront_usd=Decimal(8760))
    offer = make_offer(count=8, usd=3, purchase_option=PurchaseOption.RESERVED_1Y, commitment=commitment)
    (way,) = comparison(wanted(offers=[offer])).ways
    assert way.upfront_usd == 17520  # two machines
    assert way.usd_per_hour == 4  # 2 x (3 - 1)
    assert way.effective_usd_per_hour == 6


def test_storage_and_egress_are_at_the_sellers_prices() -> None:
    ways = by_name(sample_comparison())
    aws = ways["aws on demand"].tco(12)
    assert aws is not None
    assert (aws.storage_usd, aws.egress_usd) == (usd("480.00"), usd("3.24"))  # 500 GB x 0.08, 3 GB x 0.09, x 12
    assert ways["mixed plan, on demand"].storage_usd_per_month is None
    assert "storage price not known: not in the cost" in ways["mixed plan, on demand"].flags


def test_hardware_is_its_price_with_server_and_network_and_its_power() -> None:
    way = by_name(sample_comparison())["buy H100-SXM (estimate)"]
    assert way.gpus == 16
    assert way.upfront_usd == 16 * (30000 + 6000 + 2500) * usd("0.9")
    kw = Decimal(16 * (700 + 250)) / 1000
    power, colocation = kw * usd("1.3") * 730 * usd("0.12"), kw * 150
    assert way.usd_per_hour is not None
    assert way.usd_per_hour * 730 == pytest.approx(power + colocation)
    assert "staff not given: not in the cost" in way.flags


def test_hardware_without_inputs_is_not_compared() -> None:
    found = comparison(wanted())
    assert not [way for way in found.ways if way.kind == "hardware"]
    assert any("own hardware is not compared" in line for line in found.assumptions)


def test_used_hardware_is_not_compared_with_new() -> None:
    inputs = HardwareInputs(amortization_months=36)
    found = comparison(wanted(extras=Extras(hardware=inputs), accelerators=frozenset({"H100-SXM5-80GB"})))
    assert all("used" not in way.name for way in found.ways if way.kind == "hardware")
    assert [way for way in found.ways if way.kind == "hardware"]


def test_hosted_tokens_are_priced_by_input_and_output() -> None:
    way = by_name(sample_comparison())["hyperbolic meta-llama/Meta-Llama-3.1-70B-Instruct"]
    assert way.usd_per_month == usd("330.00")  # 1,500 M x 0.12 + 500 M x 0.30
    assert way.usd_per_million_tokens() == usd("0.165000")


def test_a_model_that_no_host_lists_gets_no_token_price() -> None:
    found = comparison(wanted(model="my-local-model"))
    assert not [way for way in found.ways if way.kind == "hosted API"]
    assert any("priced by GPU hours, not per token" in line for line in found.warnings)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("accounts/fireworks/models/llama-v3p1-70b-instruct", "llama-3.1-70b"),
        ("@cf/meta/llama-3.1-8b-instruct-fp8", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3.1-70B-Instruct-Turbo", "llama-3.1-70b"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen-2.5-72b"),
        ("mistralai/Mistral-Small-24B-Instruct-2501", "mistral-small-24b-2501"),
    ],
)
def test_a_served_name_means_one_model(name: str, key: str) -> None:
    assert model_key(name) == key


def test_near_models_are_other_models() -> None:
    hosts = hosted_prices("meta-llama/Llama-3.1-70B")
    assert hosts
    assert not [price for price in hosts if "405" in price.model or "3.3" in price.model or "nemotron" in price.model]


def test_hardware_prices_name_accelerators_by_their_canonical_name() -> None:
    prices = hardware_prices()
    assert len(prices) > 40
    assert sum(price.accelerator in catalogue() for price in prices) > 40
    assert all(0 < price.usd_low <= price.usd_high for price in prices)


def test_a_number_of_accelerators_is_bought_in_whole_machines() -> None:
    offers = [make_offer(count=8, usd=30, name="8x"), make_offer(count=1, usd=5, name="1x")]
    met = HeldAccelerators(resolve("H100-SXM5-80GB"), 10).meet(offers)
    assert met is not None
    assert {m.offer.instance_type.name: m.count for m in met.machines} == {"8x": 1, "1x": 2}


def test_a_quote_of_whole_nodes_and_a_smallest_order_is_more_than_needed() -> None:
    text = "vendor,gpu,usd_gpu_h,gpus_per_node,min_gpus,commit_months\nA,H100 SXM,2,8,64,12\n"
    found = comparison(wanted(quotes=parse_quotes(text, "q", {})))
    way = by_name(found)["quote A"]
    assert way.gpus == 64
    assert any("48 more than needed" in risk for risk in way.risks)


def test_a_quote_that_has_ended_says_so() -> None:
    text = "vendor,gpu,usd_gpu_h,gpus_per_node,valid_until,commit_months\nA,H100 SXM,2,8,2026-11-01,0\n"
    way = by_name(comparison(wanted(quotes=parse_quotes(text, "q", {}))))["quote A"]
    assert "quote ended on 2026-11-01" in way.risks


def test_a_quote_without_a_term_is_no_way_to_pay_by_use() -> None:
    text = "vendor,gpu,usd_gpu_h,gpus_per_node\nA,H100 SXM,2,8\n"
    way = by_name(comparison(wanted(quotes=parse_quotes(text, "q", {}))))["quote A"]
    assert (way.by_use, way.bound, way.purchase_option) == (False, False, "term not stated")


def test_old_and_undated_prices_are_risks() -> None:
    old = make_offer(provider="lambda", count=8, usd=32, observed_on=date(2026, 1, 1))
    undated = make_offer(provider="aws", count=8, usd=40, observed_on=None)
    risks = {way.seller: way.risks for way in comparison(wanted(offers=[old, undated])).ways}
    assert "price older than 30 days" in risks["lambda"]
    assert "price without a date: treat as stale" in risks["aws"]


def test_egress_and_storage_in_units_that_bills_use() -> None:
    assert egress_gb(Decimal(30_000_000), Decimal(2000)) == 60
    assert usd_per_gb_hour(usd("0.10")) == pytest.approx(Decimal("0.000136986"), abs=Decimal("1e-9"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("storage_gb: -1\n", "line 1, storage_gb.*value -1"),
        ("hardware: {pue: 0.5}\n", r"hardware\.pue"),
        ("sellers: {aws: {egress: 1}}\n", r"sellers\.aws\.egress: Extra inputs"),
        ("rates: {EUR: {usd: 1.1}}\n", r"rates\.EUR\.observed_on"),
        ("storage_gb: .inf\n", "storage_gb"),
    ],
)
def test_a_wrong_cost_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_extras(text, "costs.yaml")


def test_the_example_that_ships_is_read() -> None:
    from importlib.resources import files

    text = files("optimizer.report").joinpath("data/costs_example.yaml").read_text(encoding="utf-8")
    extras = parse_extras(text, "costs.yaml")
    assert extras.of("lambda").egress_usd_per_gb == 0
    assert extras.of("nobody").support_share == usd("0.03")
    assert extras.hardware is not None
    assert extras.hardware.residual_share == usd("0.1")


def test_the_sample_has_the_extras_that_the_tests_count_on() -> None:
    assert sample_extras().hardware is not None
    assert datetime(2026, 11, 30, 12, tzinfo=UTC) == NOW
