"""Users' cases of wrong prices and misread machines, as far as the providers answer them: what was observed, what is
right. Prices in them are of realistic size, taken from the reports named beside each."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from providers.accelerators import catalogue, matches
from providers.aws.machines import Machines, parse_instance_types
from providers.aws.price_list import parse_products
from providers.azure import SPOT_NOTE, parse_prices
from providers.base import Answer
from providers.gcp import price_machines
from providers.gcp.machines import shipped_machines
from providers.gcp.rates import Part, Rates
from providers.offers import PurchaseOption, Trait
from providers.plausibility import implausible
from providers.runpod import parse_catalogue
from providers.specifications import specifications
from providers.tally import Tally
from tests.providers.conftest import NOW, NewTally
from tests.providers.contract import by_name
from tests.providers.test_aws import product
from tests.providers.test_azure import item
from tests.providers.test_gcp import machine, rates_of, sku
from tests.providers.test_runpod import gpu

ON_DEMAND, SPOT = PurchaseOption.ON_DEMAND, PurchaseOption.SPOT


@pytest.fixture
def aws(tally: NewTally) -> Callable[[list[Any]], Answer]:
    """Parses items of the price list with the hardware of the shipped table."""

    def parse(items: list[Any]) -> Answer:
        new = tally("aws")
        parse_products(items, Machines(specifications("aws"), new), "test", new)
        return new.answer([], [])

    return parse


def azure(rows: list[Any], new: Tally) -> Answer:
    parse_prices({"Items": rows}, None, NOW, new)
    return new.answer([], [])


def gcp(names: list[str], rates: Rates, new: Tally) -> Answer:
    price_machines([machine(name) for name in names], rates, (), new)
    return new.answer([], [])


def test_d47_a_price_a_thousand_times_too_low_is_kept_apart(aws: Callable[[list[Any]], Answer]) -> None:
    """opencost/opencost#2796: 0.0320 for 8 x A100; 21.96 since June 2025. The cache holds what is implausible."""
    wrong = product(instanceType="p4d.24xlarge", price="0.0320")
    right = product(instanceType="p4d.24xlarge", price="21.96", regionCode="us-east-2")
    verdicts = {
        offer.region: implausible(offer.usd_per_hour, offer.instance_type) for offer in aws([wrong, right]).offers
    }
    assert verdicts == {"us-east-1": "outside 0.01 to 60 USD per accelerator-hour", "us-east-2": None}


def test_d48_rows_that_follow_the_linux_price_do_not_overwrite_it(tally: NewTally) -> None:
    """opencost/opencost PR#3531."""
    rows = [
        item(),
        item(meterName="NC24ads A100 v4 Low Priority", skuName=None, retailPrice=Decimal("0.735")),
        item(productName="Virtual Machines NCads A100 v4 Series Windows", retailPrice=Decimal("4.777")),
        item(type="Reservation", reservationTerm="1 Year", retailPrice=Decimal("20600.0")),
    ]
    answer = azure(rows, tally("azure"))
    on_demand = by_name(answer, "Standard_NC24ads_A100_v4", purchase_option=ON_DEMAND)
    assert Decimal("3.67") <= on_demand.usd_per_hour <= Decimal("3.68")
    reserved = by_name(answer, "Standard_NC24ads_A100_v4", purchase_option=PurchaseOption.RESERVED_1Y)
    assert reserved.usd_per_hour == Decimal("2.351598")


def test_d49_a_type_that_is_sold_in_blocks_only_has_no_on_demand_offer(aws: Callable[[list[Any]], Answer]) -> None:
    """skypilot-org/skypilot#4657: p5e.48xlarge at 0."""
    prices = {"p5e.48xlarge": "0.0000000000", "p5en.48xlarge": "63.2960000000", "p5.48xlarge": "55.0400000000"}
    answer = aws([product(instanceType=name, price=price) for name, price in prices.items()])
    with_terabyte = [
        offer.instance_type.name
        for offer in answer.offers
        if offer.instance_type.accelerator_count * catalogue()[offer.instance_type.accelerator].memory_gib >= 1000
    ]
    assert with_terabyte == ["p5en.48xlarge"]
    assert answer.rejections == {"price of zero": 1}


def test_d50_the_bundled_ssd_makes_up_the_missing_percent(tally: NewTally) -> None:
    """dstackai/dstack#1355: europe-west4 spot, 14.8451 without the SSD, 15.10 with it (2024-06)."""
    [a2] = [found for found in shipped_machines() if found.name == "a2-ultragpu-8g"]
    assert a2.local_ssd_gib == 3000
    rates = rates_of(
        sku("Spot Preemptible A2 Instance Core running in Netherlands", "0.0137"),
        sku("Spot Preemptible A2 Instance Ram running in Netherlands", "0.0018"),
        sku("Nvidia Tesla A100 80GB GPU attached to Spot Preemptible VMs running in Netherlands", "1.3852375"),
        sku("SSD backed Local Storage attached to Spot Preemptible VMs", "0.062", unit="GiBy.mo", regions=["global"]),
    )
    offer = by_name(gcp(["a2-ultragpu-8g"], rates, tally("gcp")), "a2-ultragpu-8g")
    assert offer.usd_per_hour - Decimal("0.254795") == Decimal("14.8451")
    assert Decimal("15.05") <= offer.usd_per_hour <= Decimal("15.15")


def test_d51_host_and_accelerator_are_added(tally: NewTally) -> None:
    """skypilot-org/skypilot-catalog#31: 0.94 is the host of a2-highgpu-1g; 4.05 with its A100."""
    core = (Decimal("0.94") - 85 * Decimal("0.005")) / 12
    rates = rates_of(
        sku("A2 Instance Core running in Iowa", f"{core:.9f}"),
        sku("A2 Instance Ram running in Iowa", "0.005"),
        sku("Nvidia Tesla A100 GPU running in Iowa", "3.11"),
    )
    offer = by_name(gcp(["a2-highgpu-1g"], rates, tally("gcp")), "a2-highgpu-1g")
    assert Decimal("4.0") <= offer.usd_per_hour <= Decimal("4.1")


def test_d52_a_secure_pod_is_quoted_at_the_secure_price(tally: NewTally) -> None:
    """dstackai/dstack#1886: 0.98 was shown for two A6000 and 1.52 billed."""
    row = gpu(id="NVIDIA RTX A6000", name="RTX A6000", memory=48)
    row["price"] = {"community": Decimal("0.49"), "secure": Decimal("0.76")}
    new = tally("runpod")
    for cloud in ("SECURE", "COMMUNITY"):
        parse_catalogue({"gpus": [row]}, cloud, 2, new)
    pods = new.answer([], []).offers
    secure = [pod for pod in pods if Trait.COMMUNITY not in pod.instance_type.traits]
    assert [pod.usd_per_hour for pod in secure] == [Decimal("1.52")]
    assert not [pod for pod in secure if pod.usd_per_hour <= 1]


def test_d53_azures_spot_list_price_says_that_it_can_be_far_off(tally: NewTally) -> None:
    """MicrosoftDocs/azure-docs#72349: 0.0168 listed, 0.1116 in the portal."""
    answer = azure([item(skuName="NC24ads A100 v4 Spot", retailPrice=Decimal("0.9"))], tally("azure"))
    assert by_name(answer, "Standard_NC24ads_A100_v4", purchase_option=SPOT).notes == SPOT_NOTE


def test_d54_licences_that_the_buyer_brings_are_another_product(aws: Callable[[list[Any]], Answer]) -> None:
    """aws/aws-sdk-js#1819, on a type with an accelerator: the Windows rows do not touch the Linux price."""
    rows = [
        product(operatingSystem="Windows", licenseModel="Bring your own license", price="55.04"),
        product(operatingSystem="Windows", licenseModel="No License required", price="63.872"),
        product(operatingSystem="Linux", licenseModel="No License required", price="55.04"),
    ]
    answer = aws(rows)
    assert [offer.usd_per_hour for offer in answer.offers] == [Decimal("55.04")]


def test_d55_the_pcie_and_the_sxm_card_are_kept_apart_and_every_price_has_its_day(tally: NewTally) -> None:
    """skypilot-org/skypilot#3794: a stale 4.49, and which H100 is meant?"""
    new = tally("runpod")
    rows = [
        gpu(id="NVIDIA H100 PCIe", name="H100 PCIe", memory=80, price={"secure": Decimal("2.89")}),
        gpu(id="NVIDIA H100 80GB HBM3", name="H100 SXM", memory=80, price={"secure": Decimal("3.99")}),
    ]
    parse_catalogue({"gpus": rows}, "SECURE", 1, new)
    answer = new.answer([], [])
    prices = {offer.instance_type.accelerator: offer.usd_per_hour for offer in answer.offers}
    assert prices == {"H100-PCIe-80GB": Decimal("2.89"), "H100-SXM5-80GB": Decimal("3.99")}
    assert {offer.observed_on for offer in answer.offers} == {NOW.date()}
    assert {found.form_factor for found in matches("H100-80GB")} == {"SXM", "PCIe"}


def test_d56_one_type_costs_what_each_region_says(aws: Callable[[list[Any]], Answer]) -> None:
    """dstackai/dstack PR#3264: 55.04 in us-east-1 and 68.80 in us-west-1, not 98.32."""
    answer = aws([product(), product(regionCode="us-west-1", price="68.8000000000")])
    prices = {offer.region: offer.usd_per_hour for offer in answer.offers}
    assert prices == {"us-east-1": Decimal("55.04"), "us-west-1": Decimal("68.8")}


def test_d57_no_matching_sku_is_no_price(tally: NewTally) -> None:
    """infracost/infracost#2437: a machine whose T4 had no SKU came out at 0.00."""
    host = [sku(f"N1 Predefined Instance {part} running in Belgium", "0.03") for part in ("Core", "Ram")]
    for rates in (rates_of(), rates_of(*host)):
        answer = gcp(["n1-standard-8+nvidia-tesla-t4x1"], rates, tally("gcp"))
        assert not answer.offers
        assert sum(answer.rejections.values()) == 1
        assert next(iter(answer.rejections)).startswith("no price of ")


def test_d58_the_scheduler_product_is_not_the_g4s_price() -> None:
    """skypilot-org/skypilot PR#9634."""
    rates = rates_of(
        sku("Nvidia RTX 6000 96GB DWS Defined Duration in Americas", "1.1"),
        sku("Nvidia RTX 6000 96GB running in Americas", "2.0"),
    )
    rate = rates.get(Part("gpu", "nvidia-rtx-pro-6000"), "us-central1", ON_DEMAND)
    assert rate is not None
    assert Decimal("1.99") <= rate.usd_per_hour <= Decimal("2.01")
    assert rates.rejections == {}


@pytest.mark.parametrize(
    ("name", "gpu_name", "mib", "count"), [("p5.4xlarge", "H100", 81920, 1), ("g6f.large", "L4", 2861, 0.125)]
)
def test_d13_a_count_of_zero_beside_a_gpu_name_is_not_a_cpu_machine(
    tally: NewTally, name: str, gpu_name: str, mib: int, count: float
) -> None:
    """aws/karpenter-provider-aws#8368."""
    new = tally("aws")
    row = {
        "InstanceType": name,
        "GpuInfo": {"Gpus": [{"Name": gpu_name, "Count": 0, "MemoryInfo": {"SizeInMiB": mib}}]},
        "VCpuInfo": {"DefaultVCpus": 16},
        "MemoryInfo": {"SizeInMiB": 262144},
    }
    kind = Machines(parse_instance_types([row], new), new).kind(name)
    assert kind is not None
    assert kind.accelerator_count == count
    assert kind.is_fractional == (count < 1)


def test_d14_machines_that_are_priced_but_not_sold_on_demand_are_not_offered_so(tally: NewTally) -> None:
    """dstackai/gpuhunt PR#176: B200, and fewer than eight H100, on Google."""
    rates = rates_of(
        *[sku(f"A3 Instance {part} running in Iowa", "0.01") for part in ("Core", "Ram")],
        sku("Nvidia H100 80GB GPU running in Iowa", "9.796553"),
        sku("SSD backed Local Storage", "0.08", unit="GiBy.mo", regions=["global"]),
    )
    answer = gcp(["a3-highgpu-1g", "a3-highgpu-8g"], rates, tally("gcp"))
    assert [offer.instance_type.name for offer in answer.offers] == ["a3-highgpu-8g"]
    assert answer.rejections == {"listed on demand, sold as spot, flex start or reservation only": 1}


@pytest.mark.parametrize(("name", "mib"), [("L4", 22888), ("A10G", 24576)])
def test_d15_a_card_is_found_by_its_nominal_memory_whatever_ec2_reports(tally: NewTally, name: str, mib: int) -> None:
    """dstackai/gpuhunt#91, aws/aws-cli#8970."""
    new = tally("aws")
    row = {
        "InstanceType": "g6.xlarge",
        "GpuInfo": {"Gpus": [{"Name": name, "Count": 1, "MemoryInfo": {"SizeInMiB": mib}}]},
        "VCpuInfo": {"DefaultVCpus": 4},
        "MemoryInfo": {"SizeInMiB": 16384},
    }
    kind = Machines(parse_instance_types([row], new), new).kind("g6.xlarge")
    assert kind is not None
    accelerator = catalogue()[kind.accelerator]
    assert accelerator.memory_gib == 24
    assert 21.5 <= accelerator.usable_memory_gib <= 22.6


@pytest.mark.parametrize(
    ("provider", "name", "gpus", "total_gb"),
    [
        ("azure", "Standard_ND96amsr_A100_v4", 8, 640),
        ("aws", "g6e.xlarge", 1, 48),
        ("aws", "g6e.12xlarge", 4, 192),
        ("aws", "g6e.24xlarge", 4, 192),
        ("aws", "g6e.48xlarge", 8, 384),
    ],
)
def test_d16_and_d17_memory_is_that_of_all_devices(
    tally: NewTally, provider: str, name: str, gpus: int, total_gb: float
) -> None:
    """kaito-project/kaito PR#1098, vantage-sh/ec2instances.info#751."""
    known = specifications(provider)[name]
    kind = tally(provider).instance_type(
        name, known.accelerator, known.accelerator_count or 0, accelerator_memory_gib=known.accelerator_memory_gib
    )
    assert kind is not None
    assert kind.accelerator_count == gpus
    assert kind.accelerator_count * catalogue()[kind.accelerator].memory_gib == total_gb
    assert implausible(Decimal(gpus), kind) is None
