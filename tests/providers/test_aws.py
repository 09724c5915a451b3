"""AWS's adapter: its parsers on recorded replies, and both ways of fetching, boto3's real clients included, on a local
server."""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from providers.aws import ADAPTER
from providers.aws.machines import Machines, parse_instance_types
from providers.aws.market import (
    parse_capacity_blocks,
    parse_savings_rates,
    parse_spot_advisor,
    parse_spot_feed,
    parse_spot_history,
    parse_type_offerings,
)
from providers.aws.price_list import add_bulk_file, is_accelerated_line, parse_bulk_lines, parse_products
from providers.base import Answer, Limits
from providers.errors import InvalidAnswer, ProviderUnavailable
from providers.offers import CommitmentKind, PurchaseOption
from providers.specifications import specifications
from providers.tally import Tally
from tests.providers.aws_server import AwsServer, ec2_error, json_error
from tests.providers.conftest import NOW, RECORDINGS, ContextFor, Fetch, NewTally, Recorded, Serve
from tests.providers.contract import ProviderContract, by_name
from tests.providers.server import Served

ON_DEMAND, SPOT = PurchaseOption.ON_DEMAND, PurchaseOption.SPOT
ONE_YEAR, THREE_YEARS = PurchaseOption.RESERVED_1Y, PurchaseOption.RESERVED_3Y
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "a-secret-key"}
BULK = "/offers/v1.0/aws/AmazonEC2/20260716203612"
INDEX = "/offers/v1.0/aws/AmazonEC2/current/region_index.json"


def text_of(path: str) -> str:
    return (RECORDINGS / path).read_text(encoding="utf-8")


@pytest.fixture
def new(tally: NewTally) -> Tally:
    return tally("aws")


@pytest.fixture
def machines(new: Tally) -> Machines:
    """The machines of the shipped table, as a fetch without credentials uses them."""
    return Machines(specifications("aws"), new)


def product(**over: Any) -> dict[str, Any]:
    """A decoded item of the price list: p5.48xlarge in us-east-1 on demand, unless told otherwise."""
    item = json.loads(text_of("aws/pricelist_item_decoded_p5.json"))
    item["terms"] = over.pop("terms", {"OnDemand": {"S.T": on_demand(over.pop("price", "55.0400000000"))}})
    item["product"]["attributes"] |= over
    return item


def on_demand(price: str, currency: str = "USD", unit: str = "Hrs") -> dict[str, Any]:
    dimension = {"unit": unit, "rateCode": "S.T.R", "pricePerUnit": {currency: price}}
    return {"priceDimensions": {"S.T.R": dimension}, "effectiveDate": "2026-07-01T00:00:00Z", "termAttributes": {}}


def reserved(length: str, payment: str, *, hours: str | None, fee: str | None = None, cls: str = "standard") -> Any:
    dimensions = {}
    if hours is not None:
        dimensions["H"] = {"unit": "Hrs", "rateCode": "H", "pricePerUnit": {"USD": hours}}
    if fee is not None:
        dimensions["Q"] = {"unit": "Quantity", "rateCode": "Q", "pricePerUnit": {"USD": fee}}
    named = {"LeaseContractLength": length, "OfferingClass": cls, "PurchaseOption": payment}
    return {"priceDimensions": dimensions, "effectiveDate": "2026-07-01T00:00:00Z", "termAttributes": named}


def parsed(items: list[Any], machines: Machines, new: Tally) -> Answer:
    parse_products(items, machines, "test", new)
    return new.answer([], ["test"])


def decoded(recorded: Recorded, path: str) -> list[Any]:
    return [json.loads(text) for text in recorded(path)["PriceList"]]


class TestContractWithoutCredentials(ProviderContract):
    provider = "aws"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        return fetch(ADAPTER, public_server())


class TestContractWithAnAccount(ProviderContract):
    provider = "aws"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        return fetch(ADAPTER, account_server(recorded), **KEYS)


def public_server(**files: str) -> AwsServer:
    index = json.loads(text_of("aws/bulk_region_index.json"))
    listed = {
        INDEX: json.dumps(index),
        f"{BULK}/us-east-1/index.csv": text_of("aws/bulk_region_offer_head.csv"),
        f"{BULK}/us-west-2/index.csv": text_of("aws/bulk_region_offer_head.csv").replace("us-east-1", "us-west-2"),
        "/spot.json": text_of("aws/public_spot_feed.json"),
        "/spot-advisor-data.json": text_of("aws/public_spot_advisor.json"),
    }
    return AwsServer(files=listed | files)


def account_server(recorded: Recorded, **operations: Any) -> AwsServer:
    zones = [
        ("us-east-1f", "use1-az5", "availability-zone", "us-east-1"),
        ("us-east-1b", "use1-az2", "availability-zone", "us-east-1"),
    ]
    zones += [("us-east-1-atl-2a", "use1-atl2-az1", "local-zone", "us-east-1-atl-2")]
    named = [dict(zip(("ZoneName", "ZoneId", "ZoneType", "GroupName"), zone, strict=True)) for zone in zones]
    offered = ("p5.48xlarge", "g6e.xlarge", "g6f.xlarge", "trn2.48xlarge", "inf2.xlarge")
    types = recorded("aws/ec2_describe_instance_types.json")
    g6e = {
        "InstanceType": "g6e.xlarge",
        "GpuInfo": {"Gpus": [{"Name": "L40S", "Count": 1, "MemoryInfo": {"SizeInMiB": 45776}}]},
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 32768},
    }

    def products(fields: Mapping[str, Any]) -> dict[str, Any]:
        here = {"Field": "regionCode", "Value": "us-east-1", "Type": "TERM_MATCH"} in fields["Filters"]
        return {**recorded("aws/pricing_get_products.json"), "NextToken": ""} if here else {"PriceList": []}

    replies = {
        "DescribeRegions": {"Regions": [{"RegionName": "us-east-1"}]},
        "DescribeInstanceTypes": {"InstanceTypes": [*types["InstanceTypes"], g6e], "NextToken": ""},
        "DescribeAvailabilityZones": {"AvailabilityZones": named},
        "DescribeInstanceTypeOfferings": {
            "InstanceTypeOfferings": [{"InstanceType": name, "Location": "use1-az5"} for name in offered]
        },
        "DescribeSpotPriceHistory": recorded("aws/ec2_describe_spot_price_history.json"),
        "DescribeCapacityBlockOfferings": recorded("aws/ec2_describe_capacity_block_offerings.json"),
        "GetProducts": products,
        "DescribeSavingsPlansOfferingRates": recorded("aws/savingsplans_describe_offering_rates.json"),
    }
    return AwsServer(replies | operations)


@pytest.mark.trap("AWS-1", "AWS-2", "AWS-3")
def test_of_all_products_of_a_type_the_plain_one_gives_the_only_offer(
    recorded: Recorded, machines: Machines, new: Tally
) -> None:
    answer = parsed(decoded(recorded, "aws/pricing_get_products_unfiltered_traps.json"), machines, new)
    offer = by_name(answer, "p5.48xlarge", purchase_option=ON_DEMAND)
    assert offer.usd_per_hour == Decimal("55.04")
    assert offer.region == "us-east-1"
    assert answer.rejections == {}


@pytest.mark.trap("AWS-2")
@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("operatingSystem", "Windows"),
        ("tenancy", "Dedicated"),
        ("preInstalledSw", "SQL Std"),
        ("capacitystatus", "UnusedCapacityReservation"),
        ("capacitystatus", "AllocatedCapacityReservation"),
        ("marketoption", "CapacityBlock"),
        ("licenseModel", "Bring your own license"),
    ],
)
def test_a_product_that_differs_in_one_attribute_is_another_product(
    machines: Machines, new: Tally, attribute: str, value: str
) -> None:
    answer = parsed([product(), product(**{attribute: value}, price="1.0")], machines, new)
    assert [offer.usd_per_hour for offer in answer.offers] == [Decimal("55.04")]


@pytest.mark.trap("AWS-2")
def test_two_plain_prices_for_one_type_are_an_ambiguity(machines: Machines, new: Tally) -> None:
    answer = parsed([product(), product(price="54")], machines, new)
    assert not answer.offers
    assert answer.rejections == {"several prices for one offer": 2}


@pytest.mark.trap("AWS-1")
@pytest.mark.parametrize(
    ("term", "reason"),
    [
        (on_demand("0.0000000000"), "price of zero"),
        (on_demand("-1"), "negative price"),
        (on_demand("NaN"), "price is not a number"),
        (on_demand("free"), "price is not a number"),
        (on_demand("1e9"), "price of less than 0.000001 or more than 1000000 USD per hour"),
        (on_demand("55.04", unit="Days"), "price per Days"),
        ({**on_demand("1"), "priceDimensions": {}}, "no price"),
    ],
)
def test_a_price_that_cannot_be_one_is_counted_and_the_earlier_one_stays(
    machines: Machines, new: Tally, term: Any, reason: str
) -> None:
    answer = parsed([product(terms={"OnDemand": {"S.T": term}}), product(regionCode="us-west-2")], machines, new)
    assert [offer.region for offer in answer.offers] == ["us-west-2"]
    assert answer.rejections == {reason: 1}
    assert [key.region for key in answer.unreadable] == ["us-east-1"]


@pytest.mark.trap("AWS-7")
def test_a_price_in_yuan_is_rejected(machines: Machines, new: Tally) -> None:
    china = product(regionCode="cn-north-1", terms={"OnDemand": {"S.T": on_demand("380", currency="CNY")}})
    answer = parsed([product(), china], machines, new)
    assert [offer.region for offer in answer.offers] == ["us-east-1"]
    assert answer.rejections == {"price in CNY, not USD": 1}


@pytest.mark.trap("AWS-4", "AWS-5")
def test_a_reservation_costs_its_hours_and_its_share_of_the_fee(machines: Machines, new: Tally) -> None:
    terms = {
        "1n": reserved("1yr", "No Upfront", hours="1.17243"),
        "1p": reserved("1yr", "Partial Upfront", hours="0.5583", fee="4891"),
        "1a": reserved("1yr", "All Upfront", hours="0.0", fee="9586"),
        "3n": reserved("3yr", "No Upfront", hours="0.804"),
        "3a": reserved("3yr", "All Upfront", hours="0", fee="19863"),
        "1c": reserved("1yr", "No Upfront", hours="1.3", cls="convertible"),
    }
    item = product(instanceType="g6e.xlarge", gpu="1", terms={"Reserved": terms})
    answer = parsed([item], machines, new)
    found = {
        (offer.purchase_option, offer.commitment.variant): (offer.usd_per_hour, offer.commitment.upfront_usd)
        for offer in answer.offers
        if offer.commitment is not None
    }
    assert found == {
        (ONE_YEAR, ""): (Decimal("1.17243"), 0),
        (ONE_YEAR, "partial upfront"): (Decimal("1.116633"), Decimal(4891)),
        (ONE_YEAR, "all upfront"): (Decimal("1.094292"), Decimal(9586)),
        (THREE_YEARS, ""): (Decimal("0.804"), 0),
        (THREE_YEARS, "all upfront"): (Decimal("0.755822"), Decimal(19863)),
    }
    one_year = [found[ONE_YEAR, variant][0] for variant in ("", "partial upfront", "all upfront")]
    assert one_year == sorted(one_year, reverse=True)
    assert one_year[-1] > one_year[0] * Decimal("0.9")


@pytest.mark.trap("AWS-4")
@pytest.mark.parametrize(
    ("years", "hours", "fee", "effective"),
    [("1yr", "0.06838", "595.68", "0.13638"), ("3yr", "0.0505", "1324.512", "0.1009")],
)
def test_the_published_example_of_a_partial_payment_adds_up(
    machines: Machines, new: Tally, years: str, hours: str, fee: str, effective: str
) -> None:
    terms = {"p": reserved(years, "Partial Upfront", hours=hours, fee=fee)}
    answer = parsed([product(instanceType="g4dn.xlarge", terms={"Reserved": terms})], machines, new)
    assert answer.offers[0].usd_per_hour == Decimal(effective)


@pytest.mark.trap("AWS-5")
@pytest.mark.parametrize(
    "term",
    [
        reserved("5yr", "No Upfront", hours="1"),
        reserved("1yr", "Some Upfront", hours="1"),
        reserved("1yr", "No Upfront", hours="1", fee="100"),
        reserved("1yr", "All Upfront", hours="1"),
    ],
)
def test_a_reservation_that_contradicts_itself_is_counted(machines: Machines, new: Tally, term: Any) -> None:
    answer = parsed([product(), product(terms={"Reserved": {"x": term}})], machines, new)
    assert len(answer.offers) == 1
    assert answer.rejections == {"reservation of an unknown term or payment": 1}


@pytest.mark.trap("AWS-8")
@pytest.mark.parametrize(
    ("code", "kind", "place"),
    [
        ("us-west-2", "AWS Region", ("us-west-2", None)),
        ("us-west-2-lax-1", "AWS Local Zone", ("us-west-2", "us-west-2-lax-1")),
        ("eu-west-3-wl1-cmn1", "AWS Wavelength Zone", ("eu-west-3", "eu-west-3-wl1-cmn1")),
        ("us-west-2", "AWS Outposts", None),
    ],
)
def test_a_local_zone_is_a_zone_of_its_parent(
    machines: Machines, new: Tally, code: str, kind: str, place: tuple[str, str | None] | None
) -> None:
    answer = parsed([product(), product(regionCode=code, locationType=kind, price="60.1")], machines, new)
    others = [(o.region, o.zone) for o in answer.offers if o.region != "us-east-1"]
    assert others == ([place] if place else [])


@pytest.mark.trap("AWS-9", "AWS-12")
def test_a_new_family_is_offered_when_ec2_describes_it_and_reported_when_nobody_does(new: Tally) -> None:
    row = {
        "InstanceType": "g9z.8xlarge",
        "GpuInfo": {"Gpus": [{"Name": "B300", "Count": 4, "MemoryInfo": {"SizeInMiB": 275040}}]},
        "VCpuInfo": {"DefaultVCpus": 96},
        "MemoryInfo": {"SizeInMiB": 1048576},
    }
    machines = Machines(parse_instance_types([row], new), new)
    items = [product(instanceType="g9z.8xlarge", price="30"), product(instanceType="g10.xlarge", price="2")]
    answer = parsed(items, machines, new)
    assert by_name(answer, "g9z.8xlarge").instance_type.accelerator == "B300"
    assert answer.rejections == {"instance type without a specification: g10.xlarge": 1}
    assert answer.instance_types_seen == 2


@pytest.mark.trap("AWS-10")
def test_regions_and_types_come_from_their_fields_not_from_display_text(machines: Machines, new: Tally) -> None:
    odd = product(location="EU (Ireland) p3.2xlarge us-west-1 Linux", regionCode="eu-west-1")
    [offer] = parsed([odd], machines, new).offers
    assert (offer.instance_type.name, offer.region) == ("p5.48xlarge", "eu-west-1")


@pytest.mark.trap("ALL-55")
def test_every_offer_names_the_list_that_it_comes_from(fetch: Fetch) -> None:
    answer = fetch(ADAPTER, public_server())
    assert {offer.source for offer in answer.offers} == {
        "AWS bulk price list, AmazonEC2, us-east-1",
        "AWS bulk price list, AmazonEC2, us-west-2",
        "AWS public spot feed",
    }


def test_broken_items_do_not_lose_the_others(machines: Machines, new: Tally) -> None:
    without_terms = product()
    del without_terms["terms"]
    answer = parsed([product(), {}, {"product": None}, without_terms, "text"], machines, new)
    assert len(answer.offers) == 1
    assert answer.rejections == {"row of another shape": 4}


@pytest.mark.trap("AWS-11", "AWS-13", "AWS-14", "AWS-15")
@pytest.mark.parametrize(
    ("name", "accelerator", "count", "memory_gib"),
    [
        ("p5.48xlarge", "H100-SXM5-80GB", 8, 2048),
        ("g6f.xlarge", "L4", 0.125, 16),
        ("trn2.48xlarge", "Trainium2", 16, 2048),
        ("inf2.xlarge", "Inferentia2", 1, 16),
    ],
)
def test_recorded_types_are_what_they_are(
    recorded: Recorded, new: Tally, name: str, accelerator: str, count: float, memory_gib: float
) -> None:
    rows = recorded("aws/ec2_describe_instance_types.json")["InstanceTypes"]
    kind = Machines(parse_instance_types(rows, new), new).kind(name)
    assert kind is not None
    assert (kind.accelerator, kind.accelerator_count, kind.memory_gib) == (accelerator, count, memory_gib)


def ec2_row(name: str, **gpu: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"InstanceType": name, "VCpuInfo": {"DefaultVCpus": 4}, "MemoryInfo": {"SizeInMiB": 16384}}
    return row | ({"GpuInfo": {"Gpus": [gpu]}} if gpu else {})


@pytest.mark.trap("AWS-11")
def test_memory_is_per_device_and_in_mib(new: Tally) -> None:
    row = ec2_row("g6.48xlarge", Name="L4", Count=8, MemoryInfo={"SizeInMiB": 22888})
    specification = parse_instance_types([row], new)["g6.48xlarge"]
    assert specification.accelerator_memory_gib == pytest.approx(22.35, abs=0.01)
    kind = Machines({"g6.48xlarge": specification}, new).kind("g6.48xlarge")
    assert kind is not None
    assert (kind.accelerator, kind.accelerator_count) == ("L4", 8)


@pytest.mark.trap("AWS-12", "AWS-13")
@pytest.mark.parametrize(
    ("row", "accelerator", "count"),
    [
        (ec2_row("p5.4xlarge", Name="H100", Count=0, MemoryInfo={"SizeInMiB": 81920}), "H100-SXM5-80GB", 1),
        (ec2_row("g6f.large", Name="L4", Count=0, MemoryInfo={"SizeInMiB": 2861}), "L4", 0.125),
        (ec2_row("gr6f.4xlarge", Name="L4", Count=0, GpuPartitionSize=0.5, LogicalGpuCount=1), "L4", 0.5),
        (ec2_row("g6e.12xlarge", Name="", Count=4, MemoryInfo={"SizeInMiB": 0}), "L40S", 4),
        (ec2_row("g7e.2xlarge", Name="RTX PRO Server 6000", Count=1), "RTX PRO 6000 Blackwell Server", 1),
    ],
)
def test_empty_fields_of_ec2_fall_back_to_the_table(
    new: Tally, row: dict[str, Any], accelerator: str, count: float
) -> None:
    name = row["InstanceType"]
    kind = Machines(parse_instance_types([row], new), new).kind(name)
    assert kind is not None
    assert (kind.accelerator, kind.accelerator_count) == (accelerator, count)


@pytest.mark.trap("AWS-12")
def test_a_new_type_without_a_count_or_with_impossible_memory_is_not_ranked(new: Tally) -> None:
    rows = [
        ec2_row("g10.xlarge", Name="L4", Count=0),
        ec2_row("g11.xlarge", Name="L4", Count=1, MemoryInfo={"SizeInMiB": 999999}),
        ec2_row("m9.large"),
    ]
    machines = Machines(parse_instance_types(rows, new), new)
    assert "m9.large" not in machines
    assert machines.kind("g10.xlarge") is None
    assert machines.kind("g11.xlarge") is None
    assert new.answer([], []).rejections == {
        "instance type with an unknown number of accelerators: g10.xlarge": 1,
        "impossible accelerator count or memory": 1,
    }


@pytest.mark.trap("AWS-16")
def test_p3dn_has_the_large_v100(machines: Machines) -> None:
    large, small = machines.kind("p3dn.24xlarge"), machines.kind("p3.16xlarge")
    assert large is not None
    assert small is not None
    assert (large.accelerator, small.accelerator) == ("V100-SXM2-32GB", "V100-SXM2-16GB")


@pytest.mark.trap("AWS-17", "AWS-18", "AWS-20", "AWS-21")
def test_the_newest_linux_price_of_each_zone_counts(recorded: Recorded, machines: Machines, new: Tally) -> None:
    rows = recorded("aws/ec2_describe_spot_price_history.json")["SpotPriceHistory"]
    for order in (rows, rows[::-1]):
        again = Tally("aws", new_now())
        parse_spot_history(order, "us-east-1", Machines(specifications("aws"), again), "test", again)
        found = {offer.zone: offer.usd_per_hour for offer in again.answer([], []).offers}
        assert found == {"use1-az5": Decimal("18.4062"), "use1-az2": Decimal("19.8627")}


def new_now() -> Any:

    return NOW


@pytest.mark.trap("AWS-20")
def test_a_zone_without_an_id_is_counted(machines: Machines, new: Tally) -> None:
    row = {
        "InstanceType": "p5.48xlarge",
        "ProductDescription": "Linux/UNIX",
        "SpotPrice": "18",
        "Timestamp": "2026-11-30T00:00:00Z",
    }
    machines.kind("p5.48xlarge")
    parse_spot_history([row, {**row, "AvailabilityZone": "us-east-1a"}], "us-east-1", machines, "test", new)
    assert new.answer([], []).rejections == {"row of another shape": 2}


@pytest.mark.trap("AWS-17", "AWS-18", "AWS-19", "AWS-22", "AWS-23")
def test_the_public_feed_is_read_by_region_for_linux(recorded: Recorded, machines: Machines, new: Tally) -> None:
    bands = parse_spot_advisor(recorded("aws/public_spot_advisor.json"))
    read = parse_spot_feed(recorded("aws/public_spot_feed.json"), bands, machines, "test", new)
    answer = new.answer([], [])
    assert read == {"ca-central-1", "us-west-2"}
    assert {(o.instance_type.name, o.region, o.usd_per_hour) for o in answer.offers} == {
        ("g6.xlarge", "ca-central-1", Decimal("0.3236")),
        ("p5.48xlarge", "ca-central-1", Decimal("63.296")),
        ("g5.xlarge", "us-west-2", Decimal("0.5237")),
        ("g6.12xlarge", "us-west-2", Decimal("1.3584")),
        ("p4de.24xlarge", "us-west-2", Decimal("22.2036")),
        ("p5.48xlarge", "us-west-2", Decimal("19.9678")),
    }
    assert {offer.zone for offer in answer.offers} == {None}
    assert answer.rejections == {}


@pytest.mark.trap("AWS-22")
@pytest.mark.parametrize(("price", "sold"), [("N/A*", False), ("N/A", False), ("9.0E-1", True), ("1.5", True)])
def test_the_feeds_numbers_are_read_as_written(machines: Machines, new: Tally, price: str, sold: bool) -> None:
    size = {"size": "g5.xlarge", "valueColumns": [{"name": "linux", "prices": {"USD": price}}]}
    entry = {"region": "us-east", "instanceTypes": [{"type": "gpuCurrentGen", "sizes": [size]}]}
    machines.kind("g5.xlarge")
    parse_spot_feed({"config": {"rate": "perhr", "regions": [entry, {"region": "x"}]}}, {}, machines, "test", new)
    answer = new.answer([], [])
    assert [offer.region for offer in answer.offers] == (["us-east-1"] if sold else [])
    assert answer.rejections == {"row of another shape": 1}


@pytest.mark.trap("AWS-23")
def test_the_interruption_index_is_a_band(recorded: Recorded) -> None:
    bands = parse_spot_advisor(recorded("aws/public_spot_advisor.json"))
    assert bands["us-east-1", "p5.48xlarge"] == "interrupted >20% a month"


@pytest.mark.parametrize("data", [{}, [], None, {"config": {}}, {"config": {"rate": "perday", "regions": []}}])
def test_a_feed_of_another_shape_is_refused(machines: Machines, new: Tally, data: Any) -> None:
    with pytest.raises(InvalidAnswer, match="no hourly prices"):
        parse_spot_feed(data, {}, machines, "test", new)


def test_savings_plans_are_effective_hourly_and_told_apart(recorded: Recorded, machines: Machines, new: Tally) -> None:
    rows = recorded("aws/savingsplans_describe_offering_rates.json")["searchResults"]
    upfront = json.loads(json.dumps(rows[0]))
    upfront["savingsPlanOffering"]["paymentOption"] = "All Upfront"
    upfront["rate"] = "1.25"
    windows = json.loads(json.dumps(rows[0]).replace("Linux/UNIX", "Windows"))
    odd = json.loads(json.dumps(rows[0]).replace('"Compute"', '"SageMaker"'))
    parse_savings_rates([*rows, upfront, windows, odd, {}], machines, "test", new)
    answer = new.answer([], [])
    found = {
        (offer.purchase_option, offer.commitment.variant): (offer.usd_per_hour, offer.commitment.upfront_usd)
        for offer in answer.offers
        if offer.commitment is not None
    }
    assert {offer.commitment.kind for offer in answer.offers if offer.commitment} == {CommitmentKind.SAVINGS_PLAN}
    assert found == {
        (ONE_YEAR, "compute"): (Decimal("1.34"), 0),
        (ONE_YEAR, "compute, all upfront"): (Decimal("1.25"), Decimal(10950)),
        (THREE_YEARS, ""): (Decimal("0.804"), 0),
    }
    assert answer.rejections == {"row of another shape": 1, "savings plan of an unknown kind, term or payment": 1}


@pytest.mark.trap("AWS-3")
def test_a_capacity_block_costs_its_fee_by_instance_and_hour(
    recorded: Recorded, machines: Machines, new: Tally
) -> None:
    rows = recorded("aws/ec2_describe_capacity_block_offerings.json")["CapacityBlockOfferings"]
    later = {**rows[0], "StartDate": "2026-12-05T11:30:00+00:00", "UpfrontFee": "20000"}
    other = {**rows[0], "AvailabilityZone": "us-east-2b", "CurrencyCode": "EUR"}
    parse_capacity_blocks([later, *rows, other, {}], "us-east-2", {"us-east-2a": "use2-az1"}, machines, "test", new)
    [offer] = new.answer([], []).offers
    assert offer.purchase_option is PurchaseOption.CAPACITY_BLOCK
    assert offer.usd_per_hour == Decimal("31.46")
    assert (offer.region, offer.zone) == ("us-east-2", "use2-az1")
    assert "2 for 168 h from 2026-12-02" in offer.notes
    assert new.answer([], []).rejections == {"price in EUR, not USD": 1, "row of another shape": 1}


def test_zones_of_a_region_are_not_its_local_zones(recorded: Recorded) -> None:
    offered = parse_type_offerings(recorded("aws/ec2_describe_instance_type_offerings.json")["InstanceTypeOfferings"])
    assert offered == {"p5.48xlarge": ("use1-az6",)}


def test_the_bulk_file_is_read_after_its_five_lines(machines: Machines, new: Tally) -> None:
    lines = text_of("aws/bulk_region_offer_head.csv").splitlines()
    add_bulk_file(parse_bulk_lines(lines, machines), machines, "test", new)
    answer = new.answer([], [])
    on_demand_offer = by_name(answer, "p5.48xlarge", purchase_option=ON_DEMAND)
    assert on_demand_offer.usd_per_hour == Decimal("55.04")
    assert on_demand_offer.instance_type.network_gbit_per_s == 3200
    assert on_demand_offer.effective_from == date(2026, 7, 1)
    assert by_name(answer, "p5.48xlarge", purchase_option=THREE_YEARS).usd_per_hour == Decimal("23.7773")


def bulk_rows(**over: str) -> tuple[list[str], dict[str, str]]:
    """The lines before the first row of the recorded bulk file, and that row by column with changes."""
    lines = text_of("aws/bulk_region_offer_head.csv").splitlines()
    header, row = csv.reader(lines[5:7])
    return lines[:6], dict(zip(header, row, strict=True)) | over


def bulk_line(cells: Mapping[str, str]) -> str:
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="").writerow(cells.values())
    return out.getvalue()


@pytest.mark.trap("AWS-4")
def test_the_two_rows_of_a_payment_are_one_price_however_far_apart(machines: Machines, new: Tally) -> None:
    head, base = bulk_rows(OfferTermCode="HU7G6KETJZ", TermType="Reserved", LeaseContractLength="1yr")
    base |= {"PurchaseOption": "Partial Upfront", "OfferingClass": "standard", "Instance Type": "g6e.xlarge"}
    hours = bulk_line(base | {"Unit": "Hrs", "PricePerUnit": "0.5583"})
    fee = bulk_line(base | {"Unit": "Quantity", "PricePerUnit": "4891"})
    between = bulk_line(bulk_rows()[1])
    add_bulk_file(parse_bulk_lines([*head, fee, between, hours], machines), machines, "test", new)
    offer = by_name(new.answer([], []), "g6e.xlarge")
    assert offer.usd_per_hour == Decimal("1.116633")


def test_one_broken_row_of_a_thousand_is_counted(machines: Machines, new: Tally) -> None:
    head, base = bulk_rows()
    rows = [bulk_line(base | {"SKU": f"SKU{n}", "Region Code": f"us-east-{n}"}) for n in range(1000)]
    rows[500] = rows[500].rpartition(",")[0]
    add_bulk_file(parse_bulk_lines([*head, *rows], machines), machines, "test", new)
    answer = new.answer([], [])
    assert len(answer.offers) == 999
    assert answer.rejections == {"row of another shape": 1}


def test_a_bulk_file_without_a_needed_column_is_refused(machines: Machines) -> None:
    head, _ = bulk_rows()
    with pytest.raises(InvalidAnswer, match="lacks the column CapacityStatus"):
        parse_bulk_lines([*head[:5], head[5].replace("CapacityStatus", "Capacity")], machines)
    with pytest.raises(InvalidAnswer, match="lacks the column"):
        parse_bulk_lines(["<html>"], machines)
    with pytest.raises(InvalidAnswer, match="is not CSV"):
        parse_bulk_lines([*head, f'"{"x" * 200_000}"'], machines)


def test_most_lines_of_the_bulk_file_are_passed_over_unparsed() -> None:
    _, base = bulk_rows()
    assert is_accelerated_line(bulk_line(base))
    assert is_accelerated_line(bulk_line(base | {"Instance Family": "Machine Learning ASIC Instances", "GPU": ""}))
    assert not is_accelerated_line(bulk_line(base | {"Operating System": "Windows"}))


def test_without_credentials_regions_without_a_file_and_the_choice_are_told(fetch: Fetch) -> None:
    answer = fetch(ADAPTER, public_server())
    assert "the public price list has no file for us-east-2" in answer.notes
    assert any("COSTOPT_AWS_REGIONS=all" in note for note in answer.notes)
    on_demand_offers = [offer for offer in answer.offers if offer.purchase_option is ON_DEMAND]
    assert {offer.region for offer in on_demand_offers} == {"us-east-1", "us-west-2"}
    key = on_demand_offers[0].key
    assert answer.supersedes(key)
    assert not answer.supersedes(replace(key, region="eu-west-1"))
    assert not answer.supersedes(replace(key, purchase_option="reserved_1y", commitment_kind="savings_plan"))


@pytest.mark.trap("AWS-18")
def test_the_feeds_price_by_region_does_not_replace_prices_by_zone(fetch: Fetch) -> None:
    answer = fetch(ADAPTER, public_server())
    key = next(offer.key for offer in answer.offers if offer.purchase_option is SPOT)
    assert answer.supersedes(key)
    assert not answer.supersedes(replace(key, zone="usw2-az1"))


@pytest.mark.parametrize(("named", "read"), [("all", {"us-east-1", "us-west-2"}), ("us-west-2", {"us-west-2"})])
def test_the_variable_names_the_regions_to_read(named: str, read: set[str], fetch: Fetch) -> None:
    answer = fetch(ADAPTER, public_server(), COSTOPT_AWS_REGIONS=named)
    assert {offer.region for offer in answer.offers if offer.purchase_option is ON_DEMAND} == read
    assert not any("COSTOPT_AWS_REGIONS" in note for note in answer.notes)


def test_a_region_that_fails_is_a_note_and_the_others_land(fetch: Fetch) -> None:
    html = public_server(**{f"{BULK}/us-west-2/index.csv": "<html>"})
    answer = fetch(ADAPTER, html, COSTOPT_AWS_REGIONS="all")
    assert any(note.startswith("the price list of us-west-2 could not be read") for note in answer.notes)
    assert {offer.region for offer in answer.offers if offer.purchase_option is ON_DEMAND} == {"us-east-1"}
    assert not any(part.includes(answer.offers[0].key) for part in answer.coverage if part.regions == {"us-west-2"})


def test_when_no_region_can_be_read_the_failure_is_raised(serve: Serve, context_for: ContextFor) -> None:
    server = serve(AwsServer(files={INDEX: text_of("aws/bulk_region_index.json")}))
    with pytest.raises(ProviderUnavailable, match="HTTP status 404"):
        ADAPTER.fetch(context_for("aws", server))


def test_without_a_spot_feed_earlier_spot_prices_stay(fetch: Fetch) -> None:
    server = public_server()
    del server.files["/spot.json"], server.files["/spot-advisor-data.json"]
    answer = fetch(ADAPTER, server)
    assert SPOT not in answer.covered
    assert {"spot feed", "spot advisor"} <= {
        word for word in ("spot feed", "spot advisor") for n in answer.notes if word in n
    }


def test_an_index_that_leads_elsewhere_is_not_followed(serve: Serve, context_for: ContextFor) -> None:
    index = {"regions": {"us-east-1": {"currentVersionUrl": "https://elsewhere.example/index.json"}}}
    server = serve(public_server(**{INDEX: json.dumps(index)}))
    with pytest.raises(InvalidAnswer, match="no price list"):
        ADAPTER.fetch(context_for("aws", server))


@pytest.fixture
def of_account(recorded: Recorded, fetch: Fetch) -> Answer:
    return fetch(ADAPTER, account_server(recorded), **KEYS)


def test_with_an_account_boto3_brings_every_purchase_option(of_account: Answer) -> None:
    assert of_account.covered == frozenset(PurchaseOption)
    assert by_name(of_account, "p5.48xlarge", purchase_option=ON_DEMAND).usd_per_hour == Decimal("55.04")
    assert by_name(of_account, "p5.48xlarge", purchase_option=ON_DEMAND).notes == "offered in use1-az5"
    assert by_name(of_account, "p5.48xlarge", purchase_option=SPOT, zone="use1-az5").usd_per_hour == Decimal("18.4062")
    assert by_name(of_account, "p5.48xlarge", purchase_option=PurchaseOption.CAPACITY_BLOCK)
    g6e = [o for o in of_account.offers if o.instance_type.name == "g6e.xlarge" and o.commitment]
    assert {o.commitment.kind.value for o in g6e if o.commitment} == {"reserved_instance", "savings_plan"}
    assert of_account.notes == ()


@pytest.mark.trap("AWS-2", "AWS-8")
def test_the_price_list_is_asked_with_all_filters_for_the_region_and_its_local_zones(
    recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(account_server(recorded))
    ADAPTER.fetch(context_for("aws", server, **KEYS))
    asked = [json.loads(a.body) for a in server.asked if a.headers.get("x-amz-target", "").endswith("GetProducts")]
    filters = [{f["Field"]: f["Value"] for f in body["Filters"]} for body in asked]
    assert [fields["regionCode"] for fields in filters] == ["us-east-1", "us-east-1-atl-2"]
    assert filters[0] | {"regionCode": ""} == {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "licenseModel": "No License required",
        "regionCode": "",
    }


def test_a_type_that_no_zone_offers_is_priced_but_not_sold(recorded: Recorded, fetch: Fetch) -> None:
    server = account_server(recorded, DescribeInstanceTypeOfferings={"InstanceTypeOfferings": []})
    answer = fetch(ADAPTER, server, **KEYS)
    assert ON_DEMAND not in {offer.purchase_option for offer in answer.offers}
    assert answer.rejections["priced in a region that does not offer it"] > 0


@pytest.mark.parametrize(
    ("operation", "reply", "option"),
    [
        ("DescribeSpotPriceHistory", ec2_error("UnauthorizedOperation"), SPOT),
        ("DescribeCapacityBlockOfferings", ec2_error("InvalidParameterValue", 400), PurchaseOption.CAPACITY_BLOCK),
    ],
)
def test_a_part_that_the_account_may_not_read_is_a_note_and_not_spoken_for(
    recorded: Recorded, operation: str, reply: Any, option: PurchaseOption, fetch: Fetch
) -> None:
    answer = fetch(ADAPTER, account_server(recorded, **{operation: reply}), **KEYS)
    assert option not in answer.covered
    assert ON_DEMAND in answer.covered
    assert "could not be read" in answer.notes[0]


@pytest.mark.parametrize(
    ("operation", "reply"),
    [
        ("GetProducts", json_error("AccessDeniedException")),
        ("DescribeRegions", ec2_error("AuthFailure", 401)),
        ("DescribeInstanceTypes", ec2_error("UnauthorizedOperation")),
    ],
)
def test_an_account_that_may_not_read_prices_leaves_the_public_lists(
    recorded: Recorded, operation: str, reply: Any, fetch: Fetch
) -> None:
    server = account_server(recorded, **{operation: reply})
    server.files = public_server().files
    answer = fetch(ADAPTER, server, **KEYS)
    assert "the public lists were read instead" in answer.notes[0]
    assert by_name(answer, "p5.48xlarge", purchase_option=ON_DEMAND, region="us-east-1")
    assert "a-secret-key" not in " ".join(answer.notes)


@pytest.mark.parametrize("failure", [ec2_error("UnauthorizedOperation"), ec2_error("InternalError", 400)])
def test_a_region_that_fails_or_may_not_be_read_leaves_the_others(
    recorded: Recorded, fetch: Fetch, failure: Served
) -> None:
    both = {"Regions": [{"RegionName": "ap-south-1"}, {"RegionName": "us-east-1"}]}
    types = recorded("aws/ec2_describe_instance_types.json") | {"NextToken": ""}
    replies = iter([failure, types])
    server = account_server(recorded, DescribeRegions=both, DescribeInstanceTypes=lambda _: next(replies))
    answer = fetch(ADAPTER, server, **KEYS)
    assert by_name(answer, "p5.48xlarge", purchase_option=ON_DEMAND).region == "us-east-1"
    assert any(note.startswith("ap-south-1 could not be read") for note in answer.notes)
    assert not any(part.regions and "ap-south-1" in part.regions for part in answer.coverage)


def test_a_profile_that_does_not_exist_leaves_the_public_lists(fetch: Fetch) -> None:
    answer = fetch(ADAPTER, public_server(), AWS_PROFILE="no-such-profile")
    assert "ProfileNotFound" in answer.notes[0]
    assert answer.offers


def test_pages_of_boto3_are_followed_and_bounded(
    recorded: Recorded, serve: Serve, context_for: ContextFor, fetch: Fetch
) -> None:
    rows = recorded("aws/ec2_describe_instance_types.json")["InstanceTypes"]
    count = iter(range(10_000))

    def two_pages(fields: Mapping[str, str]) -> Any:
        second = "NextToken" in fields
        return {"InstanceTypes": rows[1:] if second else rows[:1], "NextToken": "" if second else "more"}

    def endless(_: Mapping[str, str]) -> Any:
        return {"InstanceTypes": rows, "NextToken": f"page{next(count)}"}

    answer = fetch(ADAPTER, account_server(recorded, DescribeInstanceTypes=two_pages), **KEYS)
    assert answer.instance_types_seen >= 2
    server = serve(account_server(recorded, DescribeInstanceTypes=endless))
    context = replace(context_for("aws", server, **KEYS), limits=Limits(pages=10))
    with pytest.raises(InvalidAnswer, match="paging does not end"):
        ADAPTER.fetch(context)


def test_credentials_are_looked_for_in_the_environment_and_the_profile_file(tmp_path: Path) -> None:
    from providers.aws.account import has_credentials

    assert not has_credentials({"HOME": str(tmp_path)})
    assert has_credentials(KEYS)
    assert has_credentials({"AWS_PROFILE": "work"})
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text("[default]\n")
    assert has_credentials({"HOME": str(tmp_path)})
