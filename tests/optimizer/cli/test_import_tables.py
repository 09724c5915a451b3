"""`costopt import` of quotes, cost exports and logs: prices, faults, what is cheaper, the next command."""

import gzip
import json
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

HEADER = (
    "BilledCost,BillingCurrency,ChargeCategory,ChargeDescription,ChargePeriodStart,ChargePeriodEnd,EffectiveCost,"
    "ListUnitPrice,PricingCategory,PricingQuantity,PricingUnit,ProviderName,RegionId"
)


def row(billed: str = "1.624", effective: str = "1.624", *, hours: str = "1", **over: str) -> str:
    """One hour of a g5.4xlarge of AWS on demand."""
    cells = {
        "billed": billed,
        "currency": "USD",
        "category": "Usage",
        "text": "$1.624 per On Demand Linux g5.4xlarge Instance Hour",
        "start": "2026-10-01T00:00:00Z",
        "end": "2026-10-01T01:00:00Z",
        "effective": effective,
        "price": "1.624",
        "pricing": "Standard",
        "hours": hours,
        "unit": "Hours",
        "provider": "AWS",
        "region": "us-east-1",
    }
    return ",".join((cells | over).values())


def export(*rows: str, name: str = "focus.csv") -> str:
    Path(name).write_text("\n".join([HEADER, *rows]) + "\n")
    return name


def imported(costopt: Command, file: str, *flags: str, code: int = 0) -> dict[str, Any]:
    outcome = costopt("import", file, *flags, "-f", "json")
    assert outcome.code == code, outcome.err
    document: dict[str, Any] = json.loads(outcome.out)
    return document


def test_a_cost_export_has_hours_cost_and_price_against_what_is_on_file(costopt: Command) -> None:
    document = imported(costopt, export(row(), row("0.812", "0.812", hours="0.5"), row(text="Amazon S3")))
    assert document["kind"] == "cost_export"
    assert (document["rows"], document["accelerator_rows"]) == (3, 2)
    (use,) = document["uses"]
    assert (use["instance_type"], use["accelerator"], use["region"]) == ("g5.4xlarge", "A10G", "us-east-1")
    assert use["hours"] == 1.5
    assert use["accelerator_hours"] == 1.5
    assert float(use["billed_usd"]) == 2.436
    assert float(use["usd_per_hour"]) == 1.624
    assert use["on_file"]["instance_type"] == "g5.4xlarge"
    assert use["cheaper"]
    assert all(float(offer["usd_per_gpu_hour"]) < 1.624 for offer in use["cheaper"])
    assert all(offer["accelerator"] == "A10G" for offer in use["cheaper"])


def test_an_effective_cost_that_was_spoiled_is_told_and_the_billed_one_is_used(costopt: Command) -> None:
    document = imported(costopt, export(row(effective="2"), row(effective="2")))
    assert any("EffectiveCost differs from BilledCost on 2 on-demand" in line for line in document["warnings"])
    assert document["effective_cost_differs"] == {"rows": 2, "usd": "0.752000"}
    assert float(document["effective_usd"]) == pytest.approx(3.248)


def test_rows_that_cannot_be_read_are_counted_by_reason(costopt: Command) -> None:
    document = imported(costopt, export(row(), row("much"), row(currency="EUR"), row(start="yesterday")))
    assert document["accelerator_rows"] == 1
    assert document["rejected"] == {
        "BilledCost is not a number": 1,
        "BillingCurrency is not USD": 1,
        "ChargePeriodStart is not a time": 1,
    }


def test_accelerators_that_are_charged_apart_from_their_machine_are_found_by_their_text(costopt: Command) -> None:
    gpu = "Nvidia Tesla A100 80GB GPU running in Americas"
    document = imported(costopt, export(row("3.93", "3.93", provider="Google Cloud", region="us-central1", text=gpu)))
    (use,) = document["uses"]
    assert (use["instance_type"], use["sku"], use["accelerator"]) == (None, gpu, "A100-SXM4-80GB")


def test_spot_and_committed_rows_are_apart_from_those_on_demand(costopt: Command) -> None:
    document = imported(
        costopt, export(row(), row("0.7", "0.7", pricing="Dynamic"), row("1", "1", pricing="Committed"))
    )
    assert {use["purchase_option"] for use in document["uses"]} == {"on_demand", "spot", "committed"}


def test_an_export_with_semicolons_a_mark_and_other_line_ends_is_read(costopt: Command) -> None:
    text = "\r\n".join([HEADER, row()]).replace(",", ";") + "\r\n"
    Path("focus.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + text.encode()))
    assert imported(costopt, "focus.csv.gz")["accelerator_rows"] == 1


def test_quotes_have_a_price_per_gpu_hour_faults_by_line_and_what_is_cheaper(costopt: Command) -> None:
    Path("quotes.csv").write_text(
        "vendor,gpu,usd_gpu_h,commit_months,min_gpus\nA,H100 SXM5 80GB,9.00,24,128\nB,H1000,2.10,0,8\n"
    )
    document = imported(costopt, "quotes.csv")
    first, second = document["quotes"]
    assert document["kind"] == "quotes"
    assert float(first["usd_per_gpu_hour"]) == 9
    assert float(first["usd_total"]) == 9 * 128 * 730 * 24
    assert float(first["cheaper_on_file"]["usd_per_gpu_hour"]) < 9
    assert second["faults"][0]["line"] == 3
    assert not second["comparable"]


def test_a_table_in_which_nothing_can_be_compared_is_not_feasible(costopt: Command) -> None:
    Path("quotes.csv").write_text("vendor,gpu,price\nA,H100,2.10\n")
    assert not imported(costopt, "quotes.csv", code=3)["works"]


@pytest.mark.parametrize("format_", ["table", "csv", "md"])
def test_every_format_of_tables_has_the_figures_and_runs_no_formula(costopt: Command, format_: str) -> None:
    Path("quotes.csv").write_text('vendor,gpu,usd_gpu_h\n"=HYPERLINK(""x"")",H100 SXM5 80GB,2.49\n')
    outcome = costopt("import", "quotes.csv", "-f", format_)
    assert outcome.code == 0, outcome.err
    assert "2.490" in outcome.out
    if format_ == "csv":
        assert "'=HYPERLINK" in outcome.out
    outcome = costopt("import", export(row()), "-f", format_)
    assert outcome.code == 0, outcome.err
    assert "g5.4xlarge" in outcome.out
    assert "1.624" in outcome.out


LOG = "t_s,input_tokens,output_tokens\n" + "".join(f"{t},{4000 + t % 2 * 2000},10\n" for t in range(120))


def test_a_log_has_percentiles_volumes_shares_over_limits_and_the_next_command(costopt: Command) -> None:
    Path("log.csv").write_text(LOG)
    trace = imported(costopt, "log.csv", "--context", "5000")["trace"]
    assert trace["requests"] == 120
    assert trace["share_over_context"] == 0.5
    assert trace["share_over_tokens"] == {
        "4096": 0.5,
        "5000": 0.5,
        "8192": 0,
        "16384": 0,
        "32768": 0,
        "131072": 0,
    }
    assert trace["prefill_bound"]
    assert trace["input_tokens_p99"] == 6000
    assert trace["requests_in_30_days"] == pytest.approx(120 / 119 * 86400 * 30, rel=1e-4)
    outcome = costopt("import", "log.csv", "--trace-out", "my trace.csv")
    assert "costopt plan --model NAME --trace 'my trace.csv'" in outcome.out
    assert "Prefill-bound" in outcome.out


def test_columns_of_a_log_may_be_named(costopt: Command) -> None:
    Path("log.csv").write_text("a,b,c\n0,10,2\n1,30,4\n")
    assert costopt("import", "log.csv").code == 2
    trace = imported(costopt, "log.csv", "--columns", "a, b, c")["trace"]
    assert (trace["requests"], trace["input_tokens_mean"]) == (2, 20)
    assert "name three" in costopt("import", "log.csv", "--columns", "a,b").err


def test_standard_input_is_read_as_a_file(costopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(LOG.encode())))
    assert imported(costopt, "-")["trace"]["requests"] == 120


@pytest.mark.parametrize("text", [LOG, "vendor\tgpu\tusd_gpu_h\nA\tH100 SXM5 80GB\t2.49\n", f"{HEADER}\n{row()}\n"])
@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_encodings_and_line_ends_make_no_difference(costopt: Command, text: str, encoding: str, line_end: str) -> None:
    Path("file").write_bytes(text.replace("\n", line_end).encode(encoding))
    Path("plain").write_text(text)
    found, plain = imported(costopt, "file"), imported(costopt, "plain")
    assert {**found, "file": ""} == {**plain, "file": ""}


DATA = Path(__file__).parents[2] / "data"


def test_d75_eight_hours_whose_effective_cost_was_rounded_away(costopt: Command) -> None:
    """Rows of the public FOCUS 1.0 sample (FinOps-Open-Cost-and-Usage-Spec/FOCUS-Sample-Data)."""
    parts = ["1"] * 5 + ["0.296111", "0.683889", "0.303056"]
    effective = ["2"] * 5 + ["0", "1", "0"]
    rows = [row(str(1.624 * float(part)), cost, hours=part) for part, cost in zip(parts, effective, strict=True)]
    document = imported(costopt, export(*rows))
    (use,) = document["uses"]
    assert use["rows"] == 8
    assert 6.28 <= use["hours"] <= 6.29
    assert 10.2 <= float(use["billed_usd"]) <= 10.21
    assert 1.623 <= float(use["usd_per_hour"]) <= 1.625
    assert float(document["effective_usd"]) + float(document["effective_cost_differs"]["usd"]) == pytest.approx(11)
    assert any("EffectiveCost differs from BilledCost" in line for line in document["warnings"])


def test_d76_an_hour_of_chat_traffic(costopt: Command) -> None:
    """github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_conv.csv (CC BY)."""
    trace = imported(costopt, str(DATA / "azure_llm_2023_conv.csv.gz"), "--context", "4096")["trace"]
    assert trace["requests"] == 19366
    assert 5.52 <= trace["mean_requests_per_s"] <= 5.54
    assert 8.4 <= trace["peak_minute_requests_per_s"] <= 8.5
    assert 1154 <= trace["input_tokens_mean"] <= 1156
    assert (trace["input_tokens_p50"], trace["output_tokens_p50"]) == (1020, 129)
    assert 211 <= trace["output_tokens_mean"] <= 212
    assert 0.083 <= trace["share_over_context"] <= 0.0835
    assert trace["longest_tokens"] == 14089
    assert 14.3e6 <= trace["requests_in_30_days"] <= 14.4e6
    assert 16.5e9 <= trace["input_tokens_in_30_days"] <= 16.6e9
    assert 3.02e9 <= trace["output_tokens_in_30_days"] <= 3.03e9


def test_d77_an_hour_of_code_completion_is_prefill_bound(costopt: Command) -> None:
    """github.com/Azure/AzurePublicDataset, AzureLLMInferenceTrace_code.csv (CC BY)."""
    trace = imported(costopt, str(DATA / "azure_llm_2023_code.csv.gz"))["trace"]
    assert trace["requests"] == 8819
    assert 2.56 <= trace["mean_requests_per_s"] <= 2.58
    assert 10.4 <= trace["peak_minute_requests_per_s"] <= 10.6
    assert 73 <= trace["input_over_output"] <= 74
    assert (trace["input_tokens_p50"], trace["output_tokens_p50"]) == (1469, 13)
    assert trace["prefill_bound"]
