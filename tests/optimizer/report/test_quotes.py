"""Quotes in common units: what is stated is converted, what is missing is said and never filled in."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal

import pytest

from optimizer.report.quotes import Quote, Rate, differences, parse_quotes, useful_usd_per_hour
from providers.errors import UsageError
from tests.optimizer.report.builders import usd

EUR = {"EUR": Rate(usd=usd("1.10"), observed_on=date(2026, 11, 28), source="a bank")}


def one(header: str, row: str, rates: Mapping[str, Rate] | None = None) -> Quote:
    (quote,) = parse_quotes(f"{header}\n{row}\n", "q.csv", rates or {})
    return quote


@pytest.mark.parametrize(
    ("price", "unit", "per_gpu_hour"),
    [
        ("2", "gpu_hour", "2"),
        ("16", "node_hour", "2"),
        ("1460", "gpu_month", "2"),
        ("11680", "node_month", "2"),
        ("17520", "gpu_term", "2"),
        ("140160", "node_term", "2"),
    ],
)
def test_every_unit_becomes_usd_per_gpu_hour(price: str, unit: str, per_gpu_hour: str) -> None:
    header = "vendor,gpu,price,price_unit,currency,term_months,gpus_per_node"
    quote = one(header, f"A,H100 SXM,{price},{unit},USD,12,8")
    assert quote.usd_per_gpu_hour == usd(per_gpu_hour)
    assert quote.blocked == ()


def test_an_upfront_is_spread_over_the_term() -> None:
    header = "vendor,gpu,price,price_unit,currency,term_months,gpus_per_node,upfront"
    quote = one(header, "A,H100 SXM,8,node_hour,USD,12,8,70080")
    assert quote.upfront_usd_per_gpu == 8760
    assert quote.effective_usd_per_gpu_hour == 2


@pytest.mark.parametrize(
    ("row", "gap"),
    [
        ("A,H100,2,gpu_hour,USD,0,8", "variant not stated: H100 can be"),
        ("A,A100-80GB,2,gpu_hour,USD,0,8", "variant not stated"),
        ("A,X999,2,gpu_hour,USD,0,8", "accelerator 'X999' is not known"),
        ("A,,2,gpu_hour,USD,0,8", "accelerator not stated"),
        ("A,H100 SXM,,gpu_hour,USD,0,8", "price not stated"),
        ("A,H100 SXM,2,,USD,0,8", "unit of the price not stated"),
        ("A,H100 SXM,2,gpu_hour,,0,8", "currency not stated"),
        ("A,H100 SXM,2,gpu_hour,CHF,0,8", "currency CHF without a rate"),
        ("A,H100 SXM,2,node_hour,USD,0,", "GPUs per node not stated"),
        ("A,H100 SXM,2,gpu_term,USD,,8", "term not stated"),
    ],
)
def test_a_gap_that_keeps_it_from_being_compared_is_named(row: str, gap: str) -> None:
    quote = one("vendor,gpu,price,price_unit,currency,term_months,gpus_per_node", row)
    assert any(gap in blocked for blocked in quote.blocked)


def test_another_currency_is_converted_at_the_rate_given_and_says_so() -> None:
    quote = one("vendor,gpu,price,price_unit,currency", "A,H100 SXM,2,gpu_hour,eur", EUR)
    assert quote.usd_per_gpu_hour == usd("2.20")
    assert any("converted at 1.10 USD per EUR of 2026-11-28 (a bank)" in flag for flag in quote.flags)


def test_tax_in_a_price_is_taken_out() -> None:
    quote = one("vendor,gpu,usd_gpu_h,tax_included,tax_percent", "A,H100 SXM,2.38,yes,19")
    assert quote.usd_per_gpu_hour == 2
    assert "19 % tax taken out of the price" in quote.flags


def test_tax_at_an_unknown_rate_keeps_a_quote_from_being_compared() -> None:
    quote = one("vendor,gpu,usd_gpu_h,tax_included", "A,H100 SXM,2.38,yes")
    assert quote.usd_per_gpu_hour is None
    assert quote.blocked == ("tax is in the price at a rate not stated",)


def test_what_is_not_stated_is_asked_for() -> None:
    quote = one("vendor,gpu,usd_gpu_h", "A,H100 SXM,2")
    assert quote.term_months is None
    assert {"minimum term not stated", "tax not stated", "region not stated", "egress of A unknown"} <= set(quote.flags)


def test_metered_egress_is_no_price() -> None:
    quote = one("vendor,gpu,usd_gpu_h,egress_usd_gb", "B,H100 SXM,5,metered")
    assert quote.egress_usd_per_gb is None
    assert "egress of B unknown" in quote.flags


def test_free_egress_is_a_price() -> None:
    quote = one("vendor,gpu,usd_gpu_h,egress_usd_gb", "B,H100 SXM,5,0")
    assert quote.egress_usd_per_gb == 0
    assert "egress of B unknown" not in quote.flags


def test_differences_that_a_price_hides_are_listed() -> None:
    quotes = parse_quotes(
        "vendor,gpu,usd_gpu_h,interconnect,region\nA,H100 SXM,4,3200 Gbps IB,us\nB,H100 SXM,5,200 Gbps Eth,us\n",
        "q",
        {},
    )
    assert differences(quotes) == ("interconnect differs: A 3200 Gbps IB; B 200 Gbps Eth",)


@pytest.mark.parametrize(
    ("price", "loss", "addon", "useful"), [("4.00", "0.15", "0.25", "9.803922"), ("4.60", "0.05", "0.05", "8.473684")]
)
def test_useful_hours_cost_more_than_hours(price: str, loss: str, addon: str, useful: str) -> None:
    assert useful_usd_per_hour(usd(price), usd(loss), usd("0.60"), usd(addon)) == Decimal(useful)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("vendor,gpu,usd_gpu_h\nA,H100 SXM,cheap\n", "line 2, price: 'cheap' is not a number"),
        ("vendor,gpu,usd_gpu_h\nA,H100 SXM,-1\n", "line 2, price: '-1' is not between 0 and"),
        ("vendor,gpu,usd_gpu_h\nA,H100 SXM,NaN\n", "line 2, price: 'NaN' is not between"),
        ("vendor,gpu,usd_gpu_h\nA,H100 SXM,1,2\n", "line 2: more cells than columns"),
        ("vendor,gpu,price,price_unit\nA,H100 SXM,1,fortnight\n", "price_unit: 'fortnight' is none of gpu_hour"),
        ("vendor,gpu,usd_gpu_h,term_months\nA,H100 SXM,1,1.5\n", "term_months: '1.5' is not a whole number"),
        ("vendor,gpu,usd_gpu_h,quoted_on\nA,H100 SXM,1,May\n", "quoted_on: 'May' is not a day"),
        ("vendor,gpu\nA,H100 SXM\n", "no column price"),
        ("vendor,gpu,usd_gpu_h,colour\nA,H100 SXM,1,red\n", "unknown column 'colour'"),
        ("vendor,gpu,usd_gpu_h,price\nA,H100 SXM,1,1\n", "two columns mean the same"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_quotes(text, "q.csv", {})


def test_a_file_without_end_is_refused() -> None:
    with pytest.raises(UsageError, match="at most"):
        parse_quotes("vendor,gpu,usd_gpu_h\n" + "A,H100 SXM,1\n" * 500_000, "q.csv", {})
