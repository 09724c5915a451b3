"""RunPod's adapter: both parsers on recorded replies, and the fetch with its fallback through a local server."""

from decimal import Decimal
from typing import Any

import pytest

from providers.base import Answer, FetchContext
from providers.errors import CredentialsRefused, InvalidAnswer, MissingCredentials
from providers.offers import PurchaseOption, Trait
from providers.runpod import ADAPTER, SOURCE_GRAPHQL, parse_catalogue, parse_gpu_types
from providers.tally import Tally
from tests.providers.conftest import RECORDINGS, ContextFor, Fetch, NewTally, Recorded, Serve
from tests.providers.contract import ProviderContract, by_name
from tests.providers.server import Asked, Script, Served

CATALOGUE = "runpod/v2.catalog.gpus.availability.200.json"
EDGE = "runpod/v2.catalog.gpus.edge-synthetic.200.json"
GRAPHQL = "runpod/graphql.gpuTypes.200.json"
GRAPHQL_EDGE = "runpod/graphql.gpuTypes.edge-synthetic.200.json"


def catalogue(data: Any, cloud: str, width: int, tally: Tally) -> Answer:
    parse_catalogue(data, cloud, width, tally)
    return tally.answer([], ["test"])


def gpu_types(data: Any, cloud: str, width: int, tally: Tally) -> Answer:
    parse_gpu_types(data, cloud, width, tally)
    return tally.answer([], ["test"])


def gpu(**over: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"id": "NVIDIA L4", "name": "L4", "memory": 24, "secure": True, "community": True}
    row |= {"price": {"secure": 0.39, "community": 0.29}, "maxCount": {"secure": 8, "community": 4}}
    return {**row, **over}


def graphql_gpu(**over: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"id": "NVIDIA L4", "displayName": "L4", "memoryInGb": 24}
    row |= {"secureCloud": True, "communityCloud": True, "securePrice": 0.39, "communityPrice": 0.29}
    row |= {"maxGpuCountSecureCloud": 8, "maxGpuCountCommunityCloud": 4}
    return {**row, "lowestPrice": {"uninterruptablePrice": 0.39, "stockStatus": "Low"}, **over}


class TestContract(ProviderContract):
    provider = "runpod"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        return fetch(ADAPTER, Script(Served.json(recorded(CATALOGUE))), RUNPOD_API_KEY="a-secret-key")


class TestContractThroughGraphQL(ProviderContract):
    provider = "runpod"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        def respond(asked: Asked) -> Served:
            return Served.json(recorded(GRAPHQL)) if asked.path == "/graphql" else Served.json({}, status=410)

        return fetch(ADAPTER, respond, RUNPOD_API_KEY="a-secret-key")


def recorded_text(path: str) -> str:

    return (RECORDINGS / path).read_text(encoding="utf-8")


@pytest.mark.trap("RUNPOD-1")
@pytest.mark.parametrize(
    ("cloud", "name"),
    [
        ("COMMUNITY", "1x_AMD_Instinct_MI300X_OAM_COMMUNITY"),
        ("SECURE", "1x_NVIDIA_A100-SXM4-40GB_SECURE"),
    ],
)
def test_a_price_in_a_cloud_that_does_not_sell_the_gpu_is_none(
    recorded: Recorded, tally: NewTally, cloud: str, name: str
) -> None:
    answer = catalogue(recorded(CATALOGUE), cloud, 1, tally("runpod"))
    assert name not in {offer.instance_type.name for offer in answer.offers}
    assert answer.offers


@pytest.mark.trap("RUNPOD-3")
def test_secure_and_community_are_different_offers(recorded: Recorded, tally: NewTally) -> None:
    both = tally("runpod")
    parse_catalogue(recorded(CATALOGUE), "SECURE", 1, both)
    parse_catalogue(recorded(CATALOGUE), "COMMUNITY", 1, both)
    answer = both.answer([], ["test"])
    secure = by_name(answer, "1x_NVIDIA_GeForce_RTX_4090_SECURE")
    community = by_name(answer, "1x_NVIDIA_GeForce_RTX_4090_COMMUNITY")
    assert (secure.usd_per_hour, community.usd_per_hour) == (Decimal("0.74"), Decimal("0.34"))
    assert Trait.COMMUNITY in community.instance_type.traits
    assert Trait.COMMUNITY not in secure.instance_type.traits


@pytest.mark.trap("RUNPOD-12")
def test_the_price_of_a_pod_is_that_of_its_gpus(recorded: Recorded, tally: NewTally) -> None:
    answer = catalogue(recorded(CATALOGUE), "SECURE", 8, tally("runpod"))
    eight = by_name(answer, "8x_NVIDIA_GeForce_RTX_4090_SECURE")
    assert eight.usd_per_hour == Decimal("5.92")
    assert eight.usd_per_accelerator_hour == Decimal("0.74")
    assert eight.instance_type.accelerator_count == 8


def test_no_pod_is_wider_than_the_largest_machine(tally: NewTally) -> None:
    narrow = tally("runpod")
    parse_catalogue({"gpus": [gpu()]}, "COMMUNITY", 4, narrow)
    parse_catalogue({"gpus": [gpu()]}, "COMMUNITY", 8, narrow)
    assert [offer.instance_type.accelerator_count for offer in narrow.answer([], []).offers] == [4]


@pytest.mark.trap("ALL-57", "RUNPOD-5")
@pytest.mark.parametrize(("word", "stock"), [("HIGH", True), ("LOW", True), ("NONE", False), (None, None)])
def test_stock_is_yes_no_or_unknown(tally: NewTally, word: str | None, stock: bool | None) -> None:
    answer = catalogue({"gpus": [gpu(availability=word)]}, "SECURE", 1, tally("runpod"))
    assert answer.offers[0].in_stock is stock


@pytest.mark.trap("RUNPOD-5")
@pytest.mark.parametrize("word", ["High", "Medium", "Low"])
def test_the_older_api_writes_stock_in_other_letters(tally: NewTally, word: str) -> None:
    row = graphql_gpu(lowestPrice={"uninterruptablePrice": 0.39, "stockStatus": word})
    answer = gpu_types({"data": {"gpuTypes": [row]}}, "SECURE", 1, tally("runpod"))
    assert answer.offers[0].in_stock is True


@pytest.mark.trap("RUNPOD-2")
@pytest.mark.parametrize(
    "lowest",
    [
        None,
        {"uninterruptablePrice": None, "stockStatus": None},
        {"uninterruptablePrice": 0.39, "stockStatus": None},
        {"uninterruptablePrice": None, "stockStatus": "Low"},
        {"uninterruptablePrice": 0.39, "stockStatus": "None"},
    ],
)
def test_null_means_no_stock_and_keeps_the_price(tally: NewTally, lowest: Any) -> None:
    row = graphql_gpu(lowestPrice=lowest)
    answer = gpu_types({"data": {"gpuTypes": [row]}}, "SECURE", 2, tally("runpod"))
    assert answer.offers[0].in_stock is False
    assert answer.offers[0].usd_per_hour == Decimal("0.78")


@pytest.mark.trap("RUNPOD-7")
def test_unknown_gpus_slices_and_missing_prices_do_not_lose_the_others(recorded: Recorded, tally: NewTally) -> None:
    edge = catalogue(recorded(EDGE), "SECURE", 1, tally("runpod"))
    assert edge.rejections["accelerator without facts: NVIDIA R200 NVL"] == 1
    assert edge.rejections["no price"] == 1
    assert by_name(edge, "1x_NVIDIA_B300_SXM6_AC_SECURE").usd_per_hour == Decimal("7.89")
    assert by_name(edge, "1x_NVIDIA_RTX_A4500_SECURE").row_ids == ("NVIDIA RTX  A4500",)
    recent = catalogue(recorded(CATALOGUE), "SECURE", 1, tally("runpod"))
    [slice_reason] = [reason for reason in recent.rejections if "MIG" in reason]
    assert recent.rejections[slice_reason] == 1


@pytest.mark.trap("RUNPOD-7")
def test_an_absent_price_key_of_an_unsold_cloud_is_no_fault(recorded: Recorded, tally: NewTally) -> None:
    edge = catalogue(recorded(EDGE), "COMMUNITY", 1, tally("runpod"))
    assert "row of another shape" not in edge.rejections
    assert {offer.instance_type.accelerator for offer in edge.offers} == {"L4", "RTX A4500"}


@pytest.mark.trap("RUNPOD-8")
@pytest.mark.parametrize(
    ("gpu_id", "name", "memory", "accelerator"),
    [
        ("NVIDIA B200", "B200", 180, "B200"),
        ("NVIDIA H200", "H200 SXM", 141, "H200-SXM5-141GB"),
        ("NVIDIA H200 NVL", "H200 NVL", 143, "H200-NVL-141GB"),
        ("NVIDIA B300 SXM6 AC", "B300", 288, "B300"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM", 80, "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100 PCIe", 80, "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100 NVL", 94, "H100-NVL-94GB"),
        ("AMD Instinct MI300X OAM", "MI300X", 192, "MI300X"),
    ],
)
def test_a_gpu_is_known_by_its_sellers_name_and_memory(
    tally: NewTally, gpu_id: str, name: str, memory: int, accelerator: str
) -> None:
    row = gpu(id=gpu_id, name=name, memory=memory, price={"secure": Decimal("3.5")})
    answer = catalogue({"gpus": [row]}, "SECURE", 1, tally("runpod"))
    assert answer.offers[0].instance_type.accelerator == accelerator


@pytest.mark.trap("RUNPOD-6")
def test_moving_cpu_and_memory_values_do_not_make_another_offer(recorded: Recorded, tally: NewTally) -> None:
    first, second = recorded(GRAPHQL), recorded(GRAPHQL)
    for row in second["data"]["gpuTypes"]:
        if row["lowestPrice"]:
            row["lowestPrice"] |= {"minVcpu": 99, "minMemory": 999}
    one = gpu_types(first, "SECURE", 1, tally("runpod"))
    other = gpu_types(second, "SECURE", 1, tally("runpod"))
    assert one.offers == other.offers


@pytest.mark.trap("RUNPOD-4")
def test_no_spot_is_offered_although_graphql_names_bids(recorded: Recorded, tally: NewTally) -> None:
    answer = gpu_types(recorded(GRAPHQL), "COMMUNITY", 1, tally("runpod"))
    assert {offer.purchase_option for offer in answer.offers} == {PurchaseOption.ON_DEMAND}


@pytest.mark.trap("RUNPOD-1")
def test_graphql_prices_count_by_the_flag_too(recorded: Recorded, tally: NewTally) -> None:
    answer = gpu_types(recorded(GRAPHQL_EDGE), "COMMUNITY", 1, tally("runpod"))
    assert [offer.instance_type.accelerator for offer in answer.offers] == ["L40"]


@pytest.mark.trap("RUNPOD-11")
def test_an_error_with_status_200_is_an_error(tally: NewTally) -> None:
    with pytest.raises(InvalidAnswer, match="GraphQL reports an error"):
        parse_gpu_types({"errors": [{"message": "x"}], "data": None}, "SECURE", 1, tally("runpod"))


@pytest.mark.trap("RUNPOD-10", "RUNPOD-13")
def test_each_cloud_and_width_is_asked_of_the_current_api(serve: Serve, context_for: ContextFor) -> None:
    server = serve(Script(Served.json({"gpus": [gpu()]})))
    ADAPTER.fetch(context_for("runpod", server, RUNPOD_API_KEY="a-secret-key"))
    assert {asked.path for asked in server.asked} == {"/v2/catalog/gpus"}
    asked_for = [(asked.param("cloud"), asked.param("count"), asked.param("product")) for asked in server.asked]
    assert asked_for == [(cloud, n, "POD") for cloud in ("SECURE", "COMMUNITY") for n in ("1", "2", "4", "8")]
    assert {asked.param("include") for asked in server.asked} == {"AVAILABILITY"}


@pytest.mark.trap("RUNPOD-13")
@pytest.mark.parametrize(
    "v2",
    [
        Served.json({"title": "Gone"}, status=410),
        Served(b"<html>", 200, {"Content-Type": "text/html"}),
        Served.json({"gpus": "none"}),
    ],
)
def test_graphql_is_the_fallback_and_the_answer_says_so(v2: Served, fetch: Fetch) -> None:
    def respond(asked: Asked) -> Served:
        return Served.json({"data": {"gpuTypes": [graphql_gpu()]}}) if asked.path == "/graphql" else v2

    answer = fetch(ADAPTER, respond, RUNPOD_API_KEY="a-secret-key")
    assert answer.sources == (SOURCE_GRAPHQL,)
    assert "GraphQL was asked instead" in answer.notes[0]
    assert by_name(answer, "8x_NVIDIA_L4_SECURE").usd_per_hour == Decimal("3.12")


@pytest.mark.trap("RUNPOD-9")
def test_without_a_key_it_says_what_to_set(context: FetchContext) -> None:
    with pytest.raises(MissingCredentials, match="RUNPOD_API_KEY"):
        ADAPTER.fetch(context)


def test_a_refused_key_is_not_tried_on_the_other_api(serve: Serve, context_for: ContextFor, recorded: Recorded) -> None:
    server = serve(Script(Served.json(recorded("runpod/v2.error.401.json"), status=401)))
    with pytest.raises(CredentialsRefused, match="check RUNPOD_API_KEY"):
        ADAPTER.fetch(context_for("runpod", server, RUNPOD_API_KEY="a-secret-key"))
    assert len(server.asked) == 1


def test_a_row_of_another_shape_is_counted(tally: NewTally) -> None:
    rows = [gpu(), "text", {"id": "NVIDIA L4"}, gpu(id=None), gpu(price=None)]
    answer = catalogue({"gpus": rows}, "SECURE", 1, tally("runpod"))
    assert len(answer.offers) == 1
    assert answer.rejections == {"row of another shape": 4}
