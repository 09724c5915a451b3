"""Lambda's adapter: the parser on recorded replies, and the fetch through a local server."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from providers.base import Answer, FetchContext
from providers.errors import CredentialsRefused, InvalidAnswer, MissingCredentials, ProviderUnavailable
from providers.lambda_cloud import ADAPTER, parse_instance_types
from providers.offers import PurchaseOption, Trait
from providers.tally import Tally
from tests.providers.conftest import ContextFor, Fetch, Recorded, Serve, Waits
from tests.providers.contract import ProviderContract, by_name
from tests.providers.server import Script, Served


def parsed(tally: Tally, data: Any) -> Answer:
    parse_instance_types(data, tally)
    return tally.answer([], ["test"])


def entry(**over: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": "gpu_1x_a10",
        "gpu_description": "A10 (24 GB PCIe)",
        "price_cents_per_hour": 129,
        "specs": {"vcpus": 30, "memory_gib": 200, "gpus": 1},
    }
    regions = over.pop("regions", [])
    return {"instance_type": {**row, **over}, "regions_with_capacity_available": regions}


class TestContract(ProviderContract):
    provider = "lambda"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        reply = Served.json(recorded("lambda/instance-types.200.json"))
        return fetch(ADAPTER, Script(reply), LAMBDA_API_KEY="a-secret-key")


@pytest.fixture
def recent(tally: Callable[[str], Tally], recorded: Recorded) -> Answer:
    return parsed(tally("lambda"), recorded("lambda/instance-types.200.json"))


@pytest.fixture
def edge(tally: Callable[[str], Tally], recorded: Recorded) -> Answer:
    return parsed(tally("lambda"), recorded("lambda/instance-types.edge-synthetic.200.json"))


@pytest.mark.trap("LAMBDA-9", "ALL-56")
def test_the_price_is_that_of_the_whole_machine_in_dollars(recent: Answer) -> None:
    one = by_name(recent, "gpu_1x_h100_sxm5", region=None)
    eight = by_name(recent, "gpu_8x_h100_sxm5", region=None)
    assert one.usd_per_hour == Decimal("4.29")
    assert eight.usd_per_hour == Decimal("31.92")
    assert eight.usd_per_accelerator_hour == Decimal("3.99")


@pytest.mark.trap("LAMBDA-4")
@pytest.mark.parametrize(
    ("name", "accelerator"),
    [
        ("gpu_1x_a100_sxm4", "A100-SXM4-40GB"),
        ("gpu_1x_a100", "A100-PCIe-40GB"),
        ("gpu_8x_a100", "A100-SXM4-40GB"),
        ("gpu_8x_a100_80gb_sxm4", "A100-SXM4-80GB"),
        ("gpu_8x_v100", "V100-SXM2-16GB"),
        ("gpu_1x_b200_sxm6", "B200"),
        ("gpu_1x_a6000", "RTX A6000"),
    ],
)
def test_the_variant_comes_from_the_description(recent: Answer, name: str, accelerator: str) -> None:
    assert by_name(recent, name, region=None).instance_type.accelerator == accelerator


@pytest.mark.trap("LAMBDA-8")
def test_the_old_rtx_6000_is_not_taken_for_the_ada_card(recent: Answer) -> None:
    old = [offer.instance_type.accelerator for offer in recent.offers if "rtx6000" in offer.instance_type.name]
    assert "RTX 6000 Ada" not in old
    assert old or recent.rejections["accelerator without facts: RTX 6000"] == 1


@pytest.mark.trap("LAMBDA-5")
def test_gh200_is_arm64_with_and_without_the_field(recent: Answer, recorded: Recorded, tally: Any) -> None:
    data = recorded("lambda/instance-types.200.json")
    del data["data"]["gpu_1x_gh200"]["instance_type"]["architecture"]
    without = parsed(tally("lambda"), data)
    for answer in (recent, without):
        assert Trait.ARM64 in by_name(answer, "gpu_1x_gh200", region=None).instance_type.traits
    assert Trait.ARM64 not in by_name(recent, "gpu_1x_a10", region=None).instance_type.traits


@pytest.mark.trap("LAMBDA-3")
def test_only_places_with_capacity_are_named(recent: Answer) -> None:
    places = {(o.instance_type.name, o.region) for o in recent.offers if o.region is not None}
    assert places == {
        ("gpu_1x_a10", "us-west-1"),
        ("gpu_1x_a100_sxm4", "us-east-1"),
        ("gpu_1x_a100_sxm4", "us-west-2"),
        ("gpu_1x_gh200", "us-east-3"),
        ("gpu_8x_v100_n", "us-south-1"),
    }


@pytest.mark.trap("LAMBDA-2")
def test_no_capacity_anywhere_is_an_answer(recorded: Recorded, tally: Any) -> None:
    answer = parsed(tally("lambda"), recorded("lambda/instance-types.no-capacity.200.json"))
    assert answer.offers
    assert {offer.in_stock for offer in answer.offers} == {False}


@pytest.mark.trap("ALL-57")
def test_capacity_is_yes_no_or_unknown(tally: Any) -> None:
    unknown = entry()
    del unknown["regions_with_capacity_available"]
    data = {"data": {"yes": entry(regions=[{"name": "us-east-1"}]), "no": entry(), "unknown": unknown}}
    answer = parsed(tally("lambda"), data)
    stock = {name: by_name(answer, name, region=None).in_stock for name in ("yes", "no", "unknown")}
    assert stock == {"yes": True, "no": False, "unknown": None}


@pytest.mark.trap("LAMBDA-6", "LAMBDA-10")
def test_unknown_gpus_and_bad_prices_are_counted_and_the_rest_stays(edge: Answer) -> None:
    assert {offer.instance_type.name for offer in edge.offers} == {"gpu_1x_a10"}
    assert edge.rejections == {
        "accelerator without facts: R200 NVL": 1,
        "accelerator without facts: not named": 1,
        "no price": 1,
        "price of zero": 1,
    }


@pytest.mark.trap("LAMBDA-10")
def test_cpu_types_are_not_rows_of_interest(recent: Answer) -> None:
    assert "cpu_4x_general" not in {offer.instance_type.name for offer in recent.offers}
    assert not [reason for reason in recent.rejections if "N/A" in reason]


@pytest.mark.trap("LAMBDA-1")
@pytest.mark.parametrize("data", [{"data": []}, {"data": None}, [], "text", None, {"error": {}}])
def test_another_shape_is_not_an_empty_answer(tally: Any, data: Any) -> None:
    with pytest.raises(InvalidAnswer, match="keyed by instance type"):
        parse_instance_types(data, tally("lambda"))


def test_a_row_of_another_shape_is_counted(tally: Any) -> None:
    rows = {"good": entry(), "text": "x", "no specs": {"instance_type": {}}, "null": {"instance_type": None}}
    answer = parsed(tally("lambda"), {"data": rows})
    assert [offer.instance_type.name for offer in answer.offers] == ["good"]
    assert answer.rejections == {"row of another shape": 3}


def test_without_a_key_it_says_what_to_set(context: FetchContext) -> None:
    with pytest.raises(MissingCredentials, match="LAMBDA_API_KEY"):
        ADAPTER.fetch(context)


def test_the_key_goes_in_a_header(serve: Serve, context_for: ContextFor) -> None:
    server = serve(Script(Served.json({"data": {"gpu_1x_a10": entry()}})))
    ADAPTER.fetch(context_for("lambda", server, LAMBDA_API_KEY="a-secret-key"))
    [asked] = server.asked
    assert (asked.method, asked.path, asked.query) == ("GET", "/api/v1/instance-types", [])
    assert asked.headers["authorization"] == "Bearer a-secret-key"


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_named_without_being_shown(
    serve: Serve, context_for: ContextFor, recorded: Recorded, status: int
) -> None:
    server = serve(Script(Served.json(recorded(f"lambda/error.{status}.json"), status=status)))
    with pytest.raises(CredentialsRefused, match="check LAMBDA_API_KEY") as refused:
        ADAPTER.fetch(context_for("lambda", server, LAMBDA_API_KEY="a-secret-key"))
    assert "a-secret-key" not in str(refused.value)


@pytest.mark.trap("LAMBDA-7")
def test_the_request_limit_is_met_by_waiting(serve: Serve, context_for: ContextFor, waits: Waits) -> None:
    busy = Served.json({"error": {"code": "global/rate-limited"}}, status=429, Retry_After="3")
    server = serve(Script(busy, Served.json({"data": {"gpu_1x_a10": entry()}})))
    answer = ADAPTER.fetch(context_for("lambda", server, LAMBDA_API_KEY="a-secret-key"))
    assert len(answer.offers) == 1
    assert waits.waited == [3]


def test_an_upstream_fault_is_tried_again_and_then_reported(
    serve: Serve, context_for: ContextFor, recorded: Recorded, waits: Waits
) -> None:
    server = serve(Script(Served.json(recorded("lambda/error.provider-unavailable.json"), status=503)))
    with pytest.raises(ProviderUnavailable, match=r"HTTP status 503 \(5 attempts\)"):
        ADAPTER.fetch(context_for("lambda", server, LAMBDA_API_KEY="a-secret-key"))
    assert waits.waited == [1, 2, 4, 8]


def test_only_on_demand_is_covered(recent: Answer) -> None:
    assert {offer.purchase_option for offer in recent.offers} == {PurchaseOption.ON_DEMAND}
