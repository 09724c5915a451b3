"""The JSON document of a plan: the promised keys, money re-added in decimal, nulls for what is not known."""

import json
from decimal import Decimal

from optimizer.plans.document import plan_document
from optimizer.plans.planner import plan
from providers.offers import PurchaseOption
from tests.builders import make_offer, make_request

TOP = [
    *("schema", "schema_version", "status", "objective", "prices", "workloads", "instances", "replicas"),
    *("totals", "proof", "alternatives", "rejections", "assumptions", "warnings"),
]
PRICES = {"as_of_oldest", "as_of_newest", "offers_considered", "stale"}
WORKLOAD = {"name", "model", "parameters", "task"}
INSTANCE = {
    *("provider", "instance_type", "region", "zone", "purchase_option", "commitment", "accelerator"),
    *("accelerator_count", "count", "usd_per_hour", "usd_per_month", "as_of", "source"),
}
REPLICA = {
    *("workload", "instance_type", "provider", "precision", "tensor_parallel", "pipeline_parallel", "count"),
    *("requests_per_s", "output_tokens_per_s", "ttft_ms", "tpot_ms", "memory_gib_per_gpu", "utilization"),
}
TOTALS = {"usd_per_hour", "usd_per_month", "usd_per_million_output_tokens", "requests_per_s", "gpus"}
PROOF = {"gap", "solver", "variables", "constraints"}


def test_a_plan_for_a_rate_has_the_promised_keys() -> None:
    document = plan_document(plan(make_request(make_offer(), rate=1)))
    assert list(document)[:2] == ["schema", "schema_version"]
    assert (document["schema"], document["schema_version"]) == ("costopt.plan", "1.0")
    assert set(TOP) <= set(document)
    assert [key for key in document if key in TOP] == TOP
    assert (document["status"], document["objective"]) == ("optimal", "min_cost")
    assert document["prices"].keys() >= PRICES
    assert document["workloads"][0].keys() >= WORKLOAD
    assert document["instances"][0].keys() >= INSTANCE
    assert document["replicas"][0].keys() >= REPLICA
    assert document["totals"].keys() >= TOTALS
    assert PROOF | {"bound_usd_per_month"} <= document["proof"].keys()
    assert "shortfalls" not in document


def test_a_plan_for_a_budget_has_its_bound_in_requests() -> None:
    document = plan_document(plan(make_request(make_offer(), budget=3000)))
    assert document["objective"] == "max_throughput"
    assert document["proof"]["bound_requests_per_s"] >= document["totals"]["requests_per_s"] * (1 - 1e-6)
    assert "bound_usd_per_month" not in document["proof"]


def test_an_infeasible_plan_says_what_is_short_and_what_would_do() -> None:
    document = plan_document(plan(make_request(make_offer(usd="2"), rate=1, budget=100)))
    assert (document["status"], document["instances"], document["replicas"]) == ("infeasible", [], [])
    assert document["totals"] is None
    (shortfall,) = document["shortfalls"]
    assert shortfall.keys() == {"limit", "needed", "available", "unit"}
    assert (shortfall["limit"], shortfall["needed"], shortfall["available"]) == ("budget", 1460, 100)
    assert document["suggestions"] == [{"flag": "--budget 1460", "usd_per_month": "1460.00", "note": ""}]


def test_totals_are_the_sum_of_the_instances_to_the_last_digit() -> None:
    offers = (
        make_offer(gpu="H100", usd="2.123456", name="a"),
        make_offer(gpu="L4", usd="0.333333", name="b"),
        make_offer(gpu="A10G", usd="0.777777", name="c"),
    )
    document = plan_document(plan(make_request(*offers, budget="9000.55")))
    hourly = sum(Decimal(i["usd_per_hour"]) * i["count"] for i in document["instances"])
    assert Decimal(document["totals"]["usd_per_hour"]) == hourly
    assert Decimal(document["totals"]["usd_per_month"]) == (hourly * 730).quantize(Decimal("0.01"))
    assert Decimal(document["totals"]["usd_per_month"]) <= Decimal("9000.55")
    assert document["totals"]["gpus"] == sum(i["accelerator_count"] * i["count"] for i in document["instances"])


def test_replicas_add_up_to_the_totals() -> None:
    document = plan_document(plan(make_request(make_offer(gpu="L4"), make_offer(gpu="H100"), budget=9000)))
    requests = sum(group["requests_per_s"] for group in document["replicas"])
    assert abs(requests / document["totals"]["requests_per_s"] - 1) < 1e-4
    tokens = sum(group["output_tokens_per_s"] for group in document["replicas"])
    price = Decimal(document["totals"]["usd_per_hour"]) / Decimal(tokens * 3600) * 1_000_000
    assert abs(Decimal(document["totals"]["usd_per_million_output_tokens"]) / price - 1) < Decimal("0.001")


def test_money_is_text_and_quantities_are_numbers() -> None:
    document = plan_document(plan(make_request(make_offer(), make_offer(gpu="L4"), rate=1, budget=5000)))

    def check(value: object, key: str) -> None:
        if isinstance(value, dict):
            for name, item in value.items():
                check(item, name)
        elif isinstance(value, list):
            for item in value:
                check(item, key)
        elif "usd" in key:
            assert value is None or isinstance(value, str)
        elif key.endswith(("_s", "_ms", "gib_per_gpu", "count", "utilization", "gpus")):
            assert value is None or isinstance(value, (int, float))

    check(document, "")
    assert json.loads(json.dumps(document, allow_nan=False)) == document


def test_a_commitment_is_written_out() -> None:
    offer = make_offer(purchase_option=PurchaseOption.RESERVED_3Y)
    (instance,) = plan_document(plan(make_request(offer, rate=1)))["instances"]
    assert instance["purchase_option"] == "reserved_3y"
    assert instance["commitment"] == {"kind": "savings_plan", "term_months": 36, "upfront_usd": "0"}


def test_what_is_not_known_is_null() -> None:
    offer = make_offer(region=None, observed_on=None)
    document = plan_document(plan(make_request(offer, rate=1)))
    (instance,) = document["instances"]
    assert (instance["region"], instance["zone"], instance["as_of"]) == (None, None, None)
    assert (document["prices"]["as_of_oldest"], document["prices"]["as_of_newest"]) == (None, None)


def test_timing_is_there_when_it_was_asked_for() -> None:
    from dataclasses import replace

    answer = replace(plan(make_request(make_offer(), rate=1)), timing_s={"solve_s": 0.5})
    assert plan_document(answer)["timing"] == {"solve_s": 0.5}
