"""Google's adapter: SKUs, machine types and their join on recorded replies, and the fetch on a local server."""

import json
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.base import Answer, FetchContext
from providers.errors import CredentialsRefused, InvalidAnswer, MissingCredentials
from providers.gcp import ADAPTER, Gcp, SignIn, price_machines
from providers.gcp.machines import Machine, parse_machines, shipped_machines
from providers.gcp.rates import Part, Rates, classify, parse_skus
from providers.offers import CommitmentKind, PurchaseOption
from providers.tally import Tally
from tests.providers.conftest import NOW, ContextFor, Fetch, NewTally, Recorded, Serve
from tests.providers.contract import ProviderContract, by_name
from tests.providers.server import Asked, Script, Served

ON_DEMAND, SPOT = PurchaseOption.ON_DEMAND, PurchaseOption.SPOT
SKUS = "gcp/cloud_billing_skus.json"
MACHINES = "gcp/machine_types_aggregated_list.json"
CARDS = "gcp/accelerator_types_aggregated_list.json"


def sku(description: str, price: str, **over: Any) -> dict[str, Any]:
    """A SKU as the catalogue has it; the resource group follows from the description unless it is given."""
    units, _, nanos = price.partition(".")
    group = "CPU" if "Core" in description or "Cpu" in description else "RAM" if "Ram" in description else "GPU"
    spot = "Preemptible" in description
    money = {"currencyCode": over.pop("currency", "USD"), "units": units, "nanos": int(nanos.ljust(9, "0") or 0)}
    expression = {
        "usageUnit": over.pop("unit", "GiBy.h" if group == "RAM" else "h"),
        "tieredRates": over.pop("tiers", [{"startUsageAmount": 0, "unitPrice": money}]),
    }
    usage = over.pop("usage", "Preemptible" if spot else "OnDemand")
    return {
        "skuId": over.pop("sku_id", description[:20]),
        "description": description,
        "category": {"resourceFamily": "Compute", "resourceGroup": over.pop("group", group), "usageType": usage},
        "serviceRegions": over.pop("regions", ["us-central1"]),
        "pricingInfo": [{"pricingExpression": expression, "effectiveTime": "2026-07-30T06:13:17.000Z"}],
        **over,
    }


def rates_of(*skus: dict[str, Any]) -> Rates:
    rates = Rates()
    parse_skus({"skus": list(skus)}, NOW, rates)
    return rates


A2_HOST = (sku("A2 Instance Core running in Iowa", "0.031611"), sku("A2 Instance Ram running in Iowa", "0.004237"))
A100 = sku("Nvidia Tesla A100 GPU running in Iowa", "2.933908")


def machine(shipped: str, **over: Any) -> Machine:
    [known] = [machine for machine in shipped_machines() if machine.name == shipped]
    return replace(known, **{"regions": {"us-central1": ("us-central1-a",)}, **over})


def priced(machines: list[Machine], rates: Rates, tally: Tally) -> Answer:
    price_machines(machines, rates, (), tally)
    return tally.answer([], ["test"])


@pytest.fixture
def recorded_machines(recorded: Recorded, tally: NewTally) -> list[Machine]:
    return parse_machines([recorded(MACHINES)], [recorded(CARDS)], tally("gcp"))


@pytest.fixture
def answer_of_recordings(recorded: Recorded, recorded_machines: list[Machine], tally: NewTally) -> Answer:
    rates = Rates()
    parse_skus(recorded(SKUS), NOW, rates)
    return priced(recorded_machines, rates, tally("gcp"))


class GoogleServer:
    """The billing catalogue, machine types and accelerator types."""

    def __init__(self, skus: Any, machines: Any = None, cards: Any = None) -> None:
        self.replies = {"skus": skus, "machineTypes": machines, "acceleratorTypes": cards}

    def __call__(self, asked: Asked) -> Served:
        reply = self.replies[asked.path.rpartition("/")[2]]
        if reply is None:
            return Served.json({"error": {"code": 403, "message": "no permission"}}, status=403)
        return Served.json(_last(reply))


def _last(reply: Any) -> Any:
    return {**reply, "nextPageToken": ""}


def signed_in(_: Any) -> SignIn:
    from google.oauth2.credentials import Credentials

    return SignIn(Credentials(token="a-token"), "PROJECT")  # noqa: S106 - the token of a local server


class TestContractWithMachineTypes(ProviderContract):
    provider = "gcp"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        server = GoogleServer(recorded(SKUS), recorded(MACHINES), recorded(CARDS))
        return fetch(Gcp(sign_in=signed_in), server)


class TestContractWithAKeyAlone(ProviderContract):
    provider = "gcp"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        return fetch(ADAPTER, GoogleServer(recorded(SKUS)), GCP_API_KEY="a-secret-key")


@pytest.mark.trap("GCP-24", "GCP-37")
def test_a_machine_costs_its_host_and_its_accelerators(answer_of_recordings: Answer) -> None:
    offer = by_name(answer_of_recordings, "a2-highgpu-1g", purchase_option=ON_DEMAND)
    assert offer.usd_per_hour == Decimal("3.673385")
    assert offer.instance_type.accelerator == "A100-SXM4-40GB"
    assert offer.effective_from == date(2026, 7, 30)
    assert len(offer.row_ids) == 3


def test_the_recorded_l4_machine_adds_up(answer_of_recordings: Answer) -> None:
    offer = by_name(answer_of_recordings, "g2-standard-4", purchase_option=ON_DEMAND)
    assert offer.usd_per_hour == Decimal("0.706832")


@pytest.mark.trap("GCP-26")
def test_the_bundled_ssd_is_part_of_the_price(tally: NewTally) -> None:
    gpu = sku("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Netherlands", "1.5")
    host = (
        sku("Spot Preemptible A2 Instance Core running in Netherlands", "0.0137"),
        sku("Spot Preemptible A2 Instance Ram running in Netherlands", "0.001126"),
    )
    ssd = sku("SSD backed Local Storage attached to Spot Preemptible VMs in Netherlands", "0.062", unit="GiBy.mo")
    ultra = machine("a2-ultragpu-8g")
    without = 8 * Decimal("1.5") + 96 * Decimal("0.0137") + 1360 * Decimal("0.001126")
    offer = by_name(priced([ultra], rates_of(gpu, *host, ssd), tally("gcp")), "a2-ultragpu-8g")
    assert ultra.local_ssd_gib == 3000
    assert offer.usd_per_hour - without == pytest.approx(Decimal("0.254795"), abs=Decimal("0.000001"))
    assert not priced([ultra], rates_of(gpu, *host), tally("gcp")).offers


@pytest.mark.trap("GCP-27", "GCP-38")
@pytest.mark.parametrize(
    ("description", "usage"),
    [
        ("Nvidia H100 80GB GPU attached to DWS Defined Duration VMs running in Americas", "OnDemand"),
        ("Reserved Nvidia H100 80GB Mega GPU in Americas in Calendar Mode", "OnDemand"),
        ("DWS Calendar Mode A3 Instance Core running in Americas", "OnDemand"),
        ("A3 Instance Core Flex-start running in Americas", "OnDemand"),
        ("Nvidia Tesla T4 Virtual Workstation GPU running in Americas", "OnDemand"),
        ("Nvidia Tesla T4 GPU attached to Sole Tenancy VMs running in Americas", "OnDemand"),
        ("Commitment v1: Nvidia Tesla A100 GPU running in Americas for 1 Year", "OnDemand"),
        ("Commitment v1: A2 Cpu in Americas for 5 Years", "Commit"),
        ("Commitment - dollar based v1: GCE for 3 Year", "OnDemand"),
        ("N1 Custom Instance Core running in Americas", "OnDemand"),
        ("N2 Instance Core running in Americas", "CmtCudPremium"),
    ],
)
def test_what_is_another_product_is_no_rate(description: str, usage: str) -> None:
    assert classify(description, "GPU", usage) is None


@pytest.mark.trap("GCP-27", "GCP-37")
def test_the_recorded_h100_costs_its_units_and_nanos_not_the_dws_price(recorded: Recorded) -> None:
    rates = Rates()
    parse_skus(recorded(SKUS), NOW, rates)
    rate = rates.get(Part("gpu", "nvidia-h100-80gb"), "us-central1", ON_DEMAND)
    assert rate is not None
    assert rate.usd_per_hour == Decimal("9.796553")


@pytest.mark.trap("GCP-28", "GCP-29")
def test_a_spot_slice_labelled_on_demand_is_spot(recorded: Recorded) -> None:
    rates = Rates()
    parse_skus(recorded(SKUS), NOW, rates)
    b200 = Part("slice", "nvidia-b200")
    prices = [rates.get(b200, "us-central1", option) for option in (ON_DEMAND, SPOT)]
    assert [rate and rate.usd_per_hour for rate in prices] == [Decimal("16.11"), Decimal("4.9542")]
    assert not rates.rejections


@pytest.mark.trap("GCP-29", "GCP-30")
def test_a_slice_holds_its_share_of_the_host_and_b200_is_not_sold_on_demand(
    recorded: Recorded, tally: NewTally
) -> None:
    rates = Rates()
    parse_skus(recorded(SKUS), NOW, rates)
    a4 = machine(
        "a3-ultragpu-8g",
        name="a4-highgpu-8g",
        accelerator="nvidia-b200",
        label="nvidia-b200",
        accelerator_memory_gib=None,
    )
    answer = priced([a4], rates, tally("gcp"))
    [offer] = answer.offers
    assert (offer.purchase_option, offer.usd_per_hour) == (SPOT, Decimal("39.6336"))
    assert answer.rejections == {"listed on demand, sold as spot, flex start or reservation only": 1}


@pytest.mark.trap("GCP-30")
def test_small_h100_machines_have_no_on_demand_offer(tally: NewTally) -> None:
    rates = rates_of(
        *[
            sku(f"{spot}A3 Instance {part} running in Iowa", "0.01")
            for part in ("Core", "Ram")
            for spot in ("", "Spot Preemptible ")
        ],
        sku("Nvidia H100 80GB GPU running in Iowa", "9.8"),
        sku("Nvidia H100 80GB GPU attached to Spot Preemptible VMs running in Iowa", "3.7"),
        sku("SSD backed Local Storage", "0.08", unit="GiBy.mo", regions=["global"]),
        sku("SSD backed Local Storage attached to Spot Preemptible VMs", "0.05", unit="GiBy.mo", regions=["global"]),
    )
    answer = priced([machine("a3-highgpu-1g"), machine("a3-highgpu-8g")], rates, tally("gcp"))
    assert {(offer.instance_type.name, offer.purchase_option.value) for offer in answer.offers} == {
        ("a3-highgpu-1g", "spot"),
        ("a3-highgpu-8g", "on_demand"),
        ("a3-highgpu-8g", "spot"),
    }


@pytest.mark.trap("GCP-31")
@pytest.mark.parametrize("name", ["H100 80GB Plus GPU", "H100 80GB Mega GPU", "H100 Mega 80GB GPU"])
def test_the_h100_of_a3_mega_is_known_by_each_of_its_names(name: str) -> None:
    known = classify(f"Nvidia {name} running in Iowa", "GPU", "OnDemand")
    assert known == (Part("gpu", "nvidia-h100-mega-80gb"), ON_DEMAND)
    assert machine("a3-megagpu-8g").parts(sliced=False)[0][0] == Part("core", "a3plus")


@pytest.mark.trap("GCP-40")
@pytest.mark.parametrize(
    ("description", "group", "usage", "part", "option"),
    [
        ("Nvidia L4 GPU running in Netherlands", "GPU", "OnDemand", "gpu nvidia-l4", "on_demand"),
        (
            "Nvidia L4 GPU attached to Spot Preemptible VMs running in Delhi",
            "GPU",
            "Preemptible",
            "gpu nvidia-l4",
            "spot",
        ),
        ("H200 141GB GPU running in Belgium", "GPU", "OnDemand", "gpu nvidia-h200-141gb", "on_demand"),
        ("RTX 6000 96GB running in Oregon", "GPU", "OnDemand", "gpu nvidia-rtx-pro-6000", "on_demand"),
        ("Nvidia Tesla A100 80GB GPU running in Iowa", "GPU", "OnDemand", "gpu nvidia-a100-80gb", "on_demand"),
        ("Nvidia R200 300GB GPU running in Iowa", "GPU", "OnDemand", "gpu nvidia-r200-300gb", "on_demand"),
        ("Commitment v1: A2 Ram in Americas for 3 Years", "RAM", "Commit3Yr", "ram a2", "reserved_3y"),
        ("Commitment v1: Cpu in Americas for 1 Year", "CPU", "Commit1Yr", "core n1", "reserved_1y"),
        ("Commitment v1: Local SSD in Iowa for 1 Year", "LocalSSD", "Commit1Yr", "ssd", "reserved_1y"),
        ("N1 Predefined Instance Core running in Iowa", "N1Standard", "OnDemand", "core n1", "on_demand"),
        ("SSD backed Local Storage in Paris", "LocalSSD", "OnDemand", "ssd", "on_demand"),
        ("SSD backed Local Storage attached to Spot Preemptible VMs in Paris", "LocalSSD", "OnDemand", "ssd", "spot"),
        ("A3Ultra Instance Ram running in Iowa", "RAM", "OnDemand", "ram a3ultra", "on_demand"),
        ("TpuV5e chip running in Iowa", "TPU", "OnDemand", "tpu v5e", "on_demand"),
        ("Preemptible TpuV6e running in Iowa", "TPU", "OnDemand", "tpu v6e", "spot"),
    ],
)
def test_a_description_says_what_is_priced_and_how(
    description: str, group: str, usage: str, part: str, option: str
) -> None:
    known = classify(description, group, usage)
    assert known is not None
    assert (str(known[0]), known[1].value) == (part, option)


@pytest.mark.trap("GCP-33", "GCP-40", "ALL-57")
@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_part_means_no_price_of_that_machine_only(tally: NewTally, missing: int) -> None:
    skus = [*A2_HOST, A100]
    name = skus.pop(missing)["description"]
    g2 = (
        sku("G2 Instance Core running in Iowa", "0.024988"),
        sku("G2 Instance Ram running in Iowa", "0.002927"),
        sku("Nvidia L4 GPU running in Iowa", "0.560048255"),
    )
    answer = priced([machine("a2-highgpu-1g"), machine("g2-standard-4")], rates_of(*skus, *g2), tally("gcp"))
    assert [offer.instance_type.name for offer in answer.offers] == ["g2-standard-4"], name
    assert sum(answer.rejections.values()) == 1
    assert not answer.unreadable


@pytest.mark.trap("GCP-34", "GCP-25")
def test_a_missing_spot_price_stays_missing(answer_of_recordings: Answer) -> None:
    options = {o.purchase_option for o in answer_of_recordings.offers if o.instance_type.name == "a2-highgpu-1g"}
    assert options == {ON_DEMAND}


@pytest.mark.trap("GCP-32", "GCP-41")
def test_machines_are_offered_where_they_are_sold_and_not_where_they_are_priced(
    recorded: Recorded, recorded_machines: list[Machine], answer_of_recordings: Answer
) -> None:
    priced_in = {region for row in recorded(SKUS)["skus"] for region in row["serviceRegions"]}
    assert {"us-east1", "us-west1"} <= priced_in
    assert {offer.region for offer in answer_of_recordings.offers} == {"us-central1"}
    [a2] = [found for found in recorded_machines if found.name == "a2-highgpu-1g"]
    assert a2.regions == {"us-central1": ("us-central1-a",)}


@pytest.mark.trap("GCP-41")
def test_a_zone_that_is_listed_on_two_pages_is_one(recorded: Recorded, tally: NewTally) -> None:
    page = recorded(MACHINES)
    twice = parse_machines([page, page], [recorded(CARDS)] * 2, tally("gcp"))
    assert twice == parse_machines([page], [recorded(CARDS)], tally("gcp"))


@pytest.mark.trap("GCP-35")
def test_a_tpu_without_a_price_has_none(tally: NewTally) -> None:
    rates = rates_of(
        sku("TpuV6e running in Iowa", "2.7", group="TPU"),
        sku("TpuV6e running in Oregon", "0", group="TPU", regions=["us-west1"]),
    )
    v6e = machine("ct6e-standard-4t", regions={"us-central1": (), "us-west1": (), "us-east1": ()})
    answer = priced([v6e], rates, tally("gcp"))
    assert [(offer.region, offer.usd_per_hour) for offer in answer.offers] == [("us-central1", Decimal("10.8"))]
    assert answer.rejections == {"no price": 1, "no price of tpu v6e": 1}


@pytest.mark.trap("GCP-36")
@pytest.mark.parametrize(
    ("name", "chips", "hosts", "price"),
    [("ct5p-hightpu-4t", 4, 1, "16.8"), ("v5p-16", 8, 2, "33.6"), ("v5p-256", 128, 32, "537.6")],
)
def test_tpus_are_priced_by_chip_whatever_their_name_counts(
    tally: NewTally, name: str, chips: int, hosts: int, price: str
) -> None:
    rates = rates_of(sku("TpuV5p running in Iowa", "4.2", group="TPU"))
    [offer] = priced([machine(name)], rates, tally("gcp")).offers
    assert (offer.instance_type.accelerator_count, offer.instance_type.hosts) == (chips, hosts)
    assert offer.usd_per_hour == Decimal(price)


@pytest.mark.trap("GCP-37")
@pytest.mark.parametrize(
    ("money", "price"),
    [
        ({"units": "9", "nanos": 796553000}, "9.796553"),
        ({"nanos": 560048255}, "0.560048255"),
        ({"units": "3"}, "3"),
        ({"units": "", "nanos": 5}, "0.000000005"),
    ],
)
def test_units_and_nanos_both_count_and_either_may_be_absent(money: dict[str, Any], price: str) -> None:
    rates = rates_of(sku("Nvidia L4 GPU running in Iowa", "0", tiers=[{"unitPrice": {"currencyCode": "USD", **money}}]))
    rate = rates.get(Part("gpu", "nvidia-l4"), "us-central1", ON_DEMAND)
    assert rate is not None
    assert rate.usd_per_hour == Decimal(price)


@pytest.mark.trap("GCP-37")
def test_a_free_first_tier_is_not_the_price() -> None:
    free = {"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}}
    paid = {"startUsageAmount": 100, "unitPrice": {"currencyCode": "USD", "units": "1", "nanos": 0}}
    rates = rates_of(sku("Nvidia L4 GPU running in Iowa", "0", tiers=[free, paid]))
    rate = rates.get(Part("gpu", "nvidia-l4"), "us-central1", ON_DEMAND)
    assert rate is not None
    assert rate.usd_per_hour == 1


@pytest.mark.trap("GCP-39")
def test_memory_billed_by_decimal_gigabyte_costs_more_per_gib() -> None:
    rates = rates_of(sku("A2 Instance Ram running in Iowa", "0.004", unit="GBy.h"))
    rate = rates.get(Part("ram", "a2"), "us-central1", ON_DEMAND)
    assert rate is not None
    assert rate.usd_per_hour == Decimal("0.004") * Decimal("1.073741824")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"currency": "EUR"}, "price in EUR, not USD"),
        ({"unit": "GiBy.d"}, "price per GiBy.d"),
        ({"tiers": []}, "price of zero"),
        ({"tiers": [{"unitPrice": {"currencyCode": "USD", "units": "-1"}}]}, "negative price"),
        ({"tiers": [{"unitPrice": {"currencyCode": "USD", "units": "many"}}]}, "price is not a number"),
        ({"tiers": [{"unitPrice": None}]}, "row of another shape"),
    ],
)
def test_a_rate_that_cannot_be_used_is_counted_and_earlier_prices_stay(
    tally: NewTally, change: dict[str, Any], reason: str
) -> None:
    bad = sku("Nvidia Tesla A100 GPU running in Iowa", "2.9", **change)
    rates = rates_of(*A2_HOST, bad)
    assert rates.rejections == {reason: 1}
    answer = priced([machine("a2-highgpu-1g")], rates, tally("gcp"))
    assert not answer.offers
    if reason != "row of another shape":
        assert [key.instance_type for key in answer.unreadable] == ["a2-highgpu-1g"]


def test_two_prices_for_one_part_are_an_ambiguity(tally: NewTally) -> None:
    rates = rates_of(*A2_HOST, A100, sku("Nvidia Tesla A100 GPU running in Iowa", "3.1"))
    answer = priced([machine("a2-highgpu-1g")], rates, tally("gcp"))
    assert not answer.offers
    assert rates.rejections == {"several prices for one part": 2}


def test_a_price_that_has_not_begun_is_not_the_current_one() -> None:
    later = sku("Nvidia L4 GPU running in Iowa", "0.7")
    info = later["pricingInfo"][0]
    later["pricingInfo"] = [info, {**sku("x GPU", "0.1")["pricingInfo"][0], "effectiveTime": "2027-01-01T00:00:00Z"}]
    rate = rates_of(later).get(Part("gpu", "nvidia-l4"), "us-central1", ON_DEMAND)
    assert rate is not None
    assert rate.usd_per_hour == Decimal("0.7")


def test_committed_use_needs_every_part_and_says_what_else_it_needs(tally: NewTally) -> None:
    parts = [
        sku("Commitment v1: A2 Cpu in Americas for 1 Year", "0.0199", usage="Commit1Yr"),
        sku("Commitment v1: A2 Ram in Americas for 1 Year", "0.0026", usage="Commit1Yr"),
        sku("Commitment v1: Nvidia Tesla A100 GPU running in Americas for 1 Year", "1.848362", usage="Commit1Yr"),
    ]
    [offer] = priced([machine("a2-highgpu-1g")], rates_of(*parts), tally("gcp")).offers
    assert offer.purchase_option is PurchaseOption.RESERVED_1Y
    assert offer.commitment is not None
    assert offer.commitment.kind is CommitmentKind.COMMITTED_USE
    assert "attached reservation" in offer.notes
    assert not priced([machine("a2-highgpu-1g")], rates_of(*parts[1:]), tally("gcp")).offers


def test_cards_are_attached_where_the_shape_and_the_card_are(recorded: Recorded, tally: NewTally) -> None:
    n1 = {"name": "n1-standard-8", "guestCpus": 8, "memoryMb": 30720}
    page = {"items": {"zones/us-central1-a": {"machineTypes": [n1]}, "zones/us-west8-a": {"machineTypes": [n1]}}}
    names = {found.name: found for found in parse_machines([page], [recorded(CARDS)], tally("gcp"))}
    assert set(names) == {"n1-standard-8+nvidia-tesla-t4x1", "n1-standard-8+nvidia-tesla-v100x1"}
    assert names["n1-standard-8+nvidia-tesla-t4x1"].regions == {"us-central1": ("us-central1-a",)}
    rates = rates_of(
        sku("N1 Predefined Instance Core running in Iowa", "0.031611"),
        sku("N1 Predefined Instance Ram running in Iowa", "0.004237"),
        sku("Nvidia Tesla T4 GPU running in Iowa", "0.35"),
    )
    answer = priced([names["n1-standard-8+nvidia-tesla-t4x1"]], rates, tally("gcp"))
    assert answer.offers[0].usd_per_hour == Decimal("0.729998")


def test_deprecated_machines_and_broken_rows_do_not_lose_the_others(tally: NewTally) -> None:
    good = {"name": "g2-standard-4", "guestCpus": 4, "memoryMb": 16384}
    good["accelerators"] = [{"guestAcceleratorType": "nvidia-l4", "guestAcceleratorCount": 1}]
    gone = {**good, "name": "g2-standard-8", "deprecated": {"state": "DEPRECATED"}}
    counted = tally("gcp")
    page = {"items": {"zones/us-central1-a": {"machineTypes": [good, gone, {"name": "g2-standard-12"}, "text"]}}}
    assert [found.name for found in parse_machines([page], [{"items": {}}], counted)] == ["g2-standard-4"]
    price_machines([machine("g2-standard-4")], Rates(), (), counted)
    assert counted.answer([], []).rejections["row of another shape"] == 2


def test_a_new_machine_with_an_unknown_accelerator_is_reported(tally: NewTally) -> None:
    new = machine("a3-ultragpu-8g", name="a5-highgpu-8g", accelerator="nvidia-r200", label="nvidia-r200")
    assert priced([new], Rates(), tally("gcp")).rejections == {"accelerator without facts: nvidia-r200": 1}


@pytest.mark.parametrize("data", [{}, {"skus": None}, [], None])
def test_another_shape_is_refused(data: Any) -> None:
    with pytest.raises(InvalidAnswer, match="no list `skus`"):
        parse_skus(data, NOW, Rates())


def test_with_a_key_alone_the_shipped_shapes_are_used_and_said_to_be(
    recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(GoogleServer(recorded(SKUS)))
    answer = ADAPTER.fetch(context_for("gcp", server, GCP_API_KEY="a-secret-key"))
    assert "the machine shapes and regions that ship with the project were used" in answer.notes[0]
    assert by_name(answer, "a2-highgpu-1g", region="us-central1").usd_per_hour == Decimal("3.673385")
    [asked] = server.asked
    assert asked.headers["x-goog-api-key"] == "a-secret-key"
    assert asked.param("key") is None
    assert (asked.param("currencyCode"), asked.param("pageSize")) == ("USD", "5000")


def test_what_the_shipped_shapes_do_not_have_is_not_said_to_be_gone(
    recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(GoogleServer(recorded(SKUS)))
    answer = ADAPTER.fetch(context_for("gcp", server, GCP_API_KEY="a-secret-key"))
    key = by_name(answer, "a2-highgpu-1g", region="us-central1").key
    assert answer.supersedes(key)
    assert answer.supersedes(replace(key, purchase_option="spot"))
    assert not answer.supersedes(replace(key, region="mars-north1"))
    assert not answer.supersedes(replace(key, instance_type="a9-highgpu-1g"))
    assert not answer.supersedes(replace(key, instance_type="ct4p-hightpu-4t", region="us-central2"))


def test_pages_of_the_catalogue_are_followed(recorded: Recorded, serve: Serve, context_for: ContextFor) -> None:
    first = {"skus": recorded(SKUS)["skus"][:2], "nextPageToken": "next"}
    second = {"skus": recorded(SKUS)["skus"][2:], "nextPageToken": ""}
    server = serve(Script(*[Served.json(page) for page in (first, second)]))
    answer = ADAPTER.fetch(context_for("gcp", server, GCP_API_KEY="a-secret-key"))
    assert [asked.param("pageToken") for asked in server.asked] == [None, "next"]
    assert by_name(answer, "a2-highgpu-1g", region="us-central1").usd_per_hour == Decimal("3.673385")


def test_signed_in_googles_own_client_lists_the_machine_types(
    recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(GoogleServer(recorded(SKUS), recorded(MACHINES), recorded(CARDS)))
    answer = Gcp(sign_in=signed_in).fetch(context_for("gcp", server))
    paths = [asked.path for asked in server.asked]
    assert "/compute/v1/projects/PROJECT/aggregated/machineTypes" in paths
    assert "/compute/v1/projects/PROJECT/aggregated/acceleratorTypes" in paths
    assert {asked.headers["authorization"] for asked in server.asked} == {"Bearer a-token"}
    assert answer.notes == ()
    assert by_name(answer, "a2-highgpu-1g").notes == "sold in us-central1-a"


def test_machine_types_that_may_not_be_listed_are_a_note(recorded: Recorded, fetch: Fetch) -> None:
    answer = fetch(Gcp(sign_in=signed_in), GoogleServer(recorded(SKUS)))
    assert answer.offers
    assert "machine types could not be listed" in answer.notes[0]


def test_without_credentials_it_says_what_to_set(context: FetchContext) -> None:
    with pytest.raises(MissingCredentials, match="GCP_API_KEY"):
        ADAPTER.fetch(context)


def test_a_refused_key_is_reported_without_being_shown(serve: Serve, context_for: ContextFor) -> None:
    server = serve(Script(Served.json({"error": {"message": "API key not valid"}}, status=403)))
    with pytest.raises(CredentialsRefused, match="check GCP_API_KEY") as refused:
        ADAPTER.fetch(context_for("gcp", server, GCP_API_KEY="a-secret-key"))
    assert "a-secret-key" not in str(refused.value)


def test_a_credentials_file_of_gcloud_is_found(
    tmp_path: Path, serve: Serve, recorded: Recorded, context_for: ContextFor
) -> None:
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    user = {"type": "authorized_user", "client_id": "id", "client_secret": "s", "refresh_token": "r"}
    (folder / "application_default_credentials.json").write_text(json.dumps(user))
    google = GoogleServer(recorded(SKUS), recorded(MACHINES), recorded(CARDS))

    def respond(asked: Asked) -> Served:
        if asked.path == "/token":
            return Served.json({"access_token": "fresh-token", "expires_in": 3600, "token_type": "Bearer"})
        return google(asked)

    server = serve(respond)
    answer = ADAPTER.fetch(context_for("gcp", server, GOOGLE_CLOUD_PROJECT="a-project"))
    assert answer.notes == ()
    assert server.asked[-1].headers["authorization"] == "Bearer fresh-token"
    assert "/compute/v1/projects/a-project/aggregated/machineTypes" in {asked.path for asked in server.asked}


@pytest.mark.parametrize("text", ["{}", "not json", '{"type": "odd"}'])
def test_a_broken_credentials_file_is_named(tmp_path: Path, context: FetchContext, text: str) -> None:
    path = tmp_path / "key.json"
    path.write_text(text)
    environment = {"GOOGLE_APPLICATION_CREDENTIALS": str(path)}
    with pytest.raises(MissingCredentials, match=r"key\.json holds no usable credentials"):
        ADAPTER.fetch(replace(context, environment=environment))
