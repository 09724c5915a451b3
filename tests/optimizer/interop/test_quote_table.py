"""Sellers' tables of quotes: any column names and separators, faults by line, and what is cheaper on file."""

from datetime import date
from decimal import Decimal

import pytest

from optimizer.interop.readers.quote_table import QuotedRow, QuoteTable, is_quote_header, read_quotes
from providers.offers import Offer, PurchaseOption
from tests.pricing_cache.builders import make_offer, make_reserved

TODAY = date(2026, 11, 30)


def offers() -> list[Offer]:
    """H100 on demand at 4.00 a GPU, as spot at 1.50, for three years at 3.00."""
    return [
        make_offer(usd="32"),
        make_offer(usd="12", purchase_option=PurchaseOption.SPOT),
        make_reserved(usd_per_hour=Decimal(24)),
    ]


def read(text: str) -> QuoteTable:
    return read_quotes(text, "quotes.csv", offers(), TODAY)


def only(text: str) -> QuotedRow:
    (row,) = read(text).rows
    return row


def said(row: QuotedRow) -> str:
    return " | ".join(str(fault) for fault in row.faults)


@pytest.mark.parametrize(
    ("term", "months"),
    [("12-month", 12), ("annual", 12), ("month-to-month", 0), ("3-year", 36), ("quarterly", 3), ("2 yrs", 24)],
)
def test_terms_in_words_are_months(term: str, months: int) -> None:
    (row,) = read(f"vendor,gpu,usd_gpu_h,term\nA,H100 SXM5 80GB,2.49,{term}\n").rows
    assert row.quote is not None
    assert row.quote.term_months == months


def test_a_number_before_the_accelerator_is_that_of_a_machine() -> None:
    (row,) = read("vendor,gpu,usd_per_node_hour,term\nA,8x H100 SXM,20,12\n").rows
    assert row.quote is not None
    assert (row.quote.gpus_per_node, row.usd_per_gpu_hour) == (8, Decimal("2.5"))


def test_a_quote_in_the_columns_of_compare_has_price_order_and_whole() -> None:
    row = only("vendor,gpu,usd_gpu_h,commit_months,min_gpus\nA,H100 SXM5 80GB,4.00,24,128\n")
    assert row.is_comparable
    assert row.line == 2
    assert row.usd_per_gpu_hour == 4
    assert row.usd_per_month == 4 * 128 * 730
    assert row.usd_total == 4 * 128 * 730 * 24


@pytest.mark.parametrize(
    ("header", "cells", "hourly"),
    [
        ("Vendor;GPU model;Price per GPU/hr;Term", "A;H100 SXM5 80GB;$2,49;12 months", "2.49"),
        ("seller\taccelerator\tprice\tunit\tcurrency", "A\tH100 SXM5 80GB\t2.49\tper GPU hour\tUSD", "2.49"),
        ("provider,gpu,price", "A,H100 SXM5 80GB,USD 2.49/GPU/h", "2.49"),
        ("provider,gpu,price,gpus per node", "A,H100 SXM5 80GB,19.92 USD per node hour,8", "2.49"),
        ("provider,gpu,$/GPU-hr", "A,H100 SXM5 80GB,2.49", "2.49"),
        ("provider,gpu,price", 'A,H100 SXM5 80GB,"USD 1,817.70 per GPU month"', "2.49"),
        ("provider;gpu;monthly price;unit;currency", "A;H100 SXM5 80GB;1.817,70;GPU month;USD", "2.49"),
    ],
)
def test_every_way_to_write_a_price_comes_to_the_same(header: str, cells: str, hourly: str) -> None:
    row = only(f"{header}\n{cells}\n")
    assert row.is_comparable, said(row)
    assert row.usd_per_gpu_hour == Decimal(hourly)


@pytest.mark.parametrize(
    ("term", "months"),
    [("12", 12), ("12 months", 12), ("1 year", 12), ("3yr", 36), ("on demand", 0), ("month to month", 0)],
)
def test_every_way_to_write_a_term_is_months(term: str, months: int) -> None:
    row = only(f"vendor,gpu,usd_gpu_h,term\nA,H100 SXM5 80GB,2.49,{term}\n")
    assert row.quote is not None
    assert row.quote.term_months == months


def test_an_accelerator_that_does_not_exist_is_told_with_its_line_and_near_names() -> None:
    text = "vendor,gpu,usd_gpu_h\nA,H100 SXM5 80GB,2.49\nB,H1000,2.10\n"
    fault = next(fault for fault in read(text).rows[1].faults if fault.fatal)
    assert fault.line == 3
    assert "'H1000' is not known" in fault.what
    assert "H100" in fault.fix


def test_a_missing_currency_a_missing_term_and_an_open_variant_are_told() -> None:
    row = only("vendor,gpu,price,price_unit\nA,H100,2.10,gpu_hour\n")
    assert not row.is_comparable
    assert "currency not stated" in said(row)
    assert "minimum term not stated" in said(row)
    assert "variant not stated" in said(row)


@pytest.mark.parametrize(
    ("price", "told"), [("0.09", "implausible"), ("36", "a price per node"), ("2900", "a price per month")]
)
def test_a_price_far_from_those_on_file_is_told_with_what_may_be_meant(price: str, told: str) -> None:
    row = only(f"vendor,gpu,usd_gpu_h\nA,H100 SXM5 80GB,{price}\n")
    assert told in said(row)
    assert not row.is_plausible


def test_an_implausible_price_is_not_the_cheapest_quote() -> None:
    found = read("vendor,gpu,usd_gpu_h\nA,H100 SXM5 80GB,0.01\nB,H100 SXM5 80GB,2.49\n").cheapest
    assert found is not None
    assert found.line == 3


def test_the_list_prices_for_the_same_term_on_demand_and_spot_stand_beside_it() -> None:
    on_file = only("vendor,gpu,usd_gpu_h,term_months\nA,H100 SXM5 80GB,5,36\n").on_file
    assert on_file is not None
    assert on_file.same_term is not None
    assert on_file.same_term.purchase_option is PurchaseOption.RESERVED_3Y
    assert on_file.cheapest is on_file.same_term
    assert on_file.spot is not None
    assert on_file.spot.usd_per_accelerator_hour == Decimal("1.5")


def test_a_quote_that_has_ended_is_told() -> None:
    assert "until 2026-11-01" in said(only("vendor,gpu,usd_gpu_h,valid until\nA,H100 SXM5 80GB,2.49,2026-11-01\n"))


def test_a_cell_that_is_no_number_keeps_its_line_and_the_other_rows() -> None:
    rows = read('vendor,gpu,usd_gpu_h\nA,"H100\nSXM5 80GB",2.49\nB,H100 SXM5 80GB,cheap\nC,H100 SXM5 80GB,2.2\n').rows
    assert [row.line for row in rows] == [2, 4, 5]
    assert rows[1].quote is None
    assert "'cheap' is not a number" in said(rows[1])
    assert rows[2].is_comparable


def test_columns_that_mean_nothing_here_are_named() -> None:
    assert read("vendor,gpu,usd_gpu_h,colour\nA,H100 SXM5 80GB,2.49,red\n").ignored == ("colour",)


@pytest.mark.parametrize(
    ("header", "is_quotes"),
    [
        ("vendor,gpu,price", True),
        ("Seller;Accelerator;EUR per GPU hour", True),
        ("gpu,hourly rate", True),
        ("timestamp,input_tokens,output_tokens", False),
        ("resources:", False),
        ("vllm serve model, price", False),
    ],
)
def test_a_header_of_quotes_is_known_by_a_price_and_whose_it_is(header: str, is_quotes: bool) -> None:
    assert is_quote_header(header) == is_quotes


def test_d70_what_differs_beside_the_price_is_told() -> None:
    """www.computetape.com/learn/gpu-cloud-quote-comparison-checklist: the networks differ, egress of one is open."""
    found = read(
        "vendor,gpu,usd_gpu_h,commit_months,min_gpus,interconnect,egress_usd_gb,region\n"
        "A,H100 SXM,4.00,24,128,3200 Gbps IB,0.05,us-east\nB,H100 SXM,5.00,0,0,200 Gbps Eth,metered,us-west\n"
    )
    assert any("interconnect differs" in line for line in found.differences)
    assert "egress of B unknown" in said(found.rows[1])
    assert "egress" not in said(found.rows[0])
    assert found.rows[0].usd_total == Decimal("8970240")


def test_what_no_column_of_the_table_can_say_is_told_once() -> None:
    found = read("vendor,gpu,usd_gpu_h,region\nA,H100 SXM5 80GB,2.49,\nB,H100 SXM5 80GB,2.59,us\n")
    assert {"interconnect", "egress", "tax"} <= set(found.missing)
    assert "region" not in found.missing
    assert "region not stated" in said(found.rows[0])
    assert "interconnect" not in said(found.rows[0])
