"""Files for SkyPilot and dstack, read by their own parsers: what those understand is what the plan bought."""

import csv
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from optimizer.interop import targets
from optimizer.interop.launch_plan import LaunchPlan, Purchase
from pricing_cache.snapshot import snapshot
from providers.offers import Offer, PurchaseOption
from tests.optimizer.interop import builders, training_plans
from tests.parsers import run_parser

VERSION: Final = "v8"
"""Of SkyPilot's catalogues, as release 0.14 asks for it."""

_NAMES: Final = {
    "aws": (
        "A100-SXM4-40GB=A100; A100-SXM4-80GB=A100-80GB; A10G=A10G; B200=B200; B300=B300; H100-SXM5-80GB=H100; "
        "H200-SXM5-141GB=H200; L4=L4; L40S=L40S; T4=T4; V100-SXM2-16GB=V100; V100-SXM2-32GB=V100-32GB; "
        "RTX PRO 6000 Blackwell Server=RTXPRO6000"
    ),
    "azure": (
        "A10=A10; A100-PCIe-80GB=A100-80GB; A100-SXM4-40GB=A100; A100-SXM4-80GB=A100-80GB; H100-NVL-94GB=H100; "
        "H100-SXM5-80GB=H100; T4=T4; V100-PCIe-16GB=V100; V100-SXM2-32GB=V100-32GB"
    ),
    "gcp": (
        "A100-SXM4-40GB=A100; A100-SXM4-80GB=A100-80GB; H100-SXM5-80GB=H100; L4=L4; H200-SXM5-141GB=H200; "
        "T4=T4; P100-PCIe-16GB=P100; V100-SXM2-16GB=V100"
    ),
    "lambda": (
        "A10=A10; A100-PCIe-40GB=A100; A100-SXM4-40GB=A100; A100-SXM4-80GB=A100-80GB; B200=B200; "
        "GH200-96GB=GH200; H100-PCIe-80GB=H100; H100-SXM5-80GB=H100; Quadro RTX 6000=RTX6000; RTX A6000=A6000; "
        "V100-SXM2-16GB=V100"
    ),
    "runpod": (
        "A100-PCIe-80GB=A100-80GB; A100-SXM4-80GB=A100-80GB-SXM; A40=A40; B200=B200; L4=L4; "
        "H100-NVL-94GB=H100-NVL; H100-PCIe-80GB=H100; H100-SXM5-80GB=H100-SXM; L40=L40; "
        "H200-SXM5-141GB=H200-SXM; L40S=L40S; MI300X=MI300X; RTX 3090=RTX3090; RTX 4090=RTX4090; "
        "RTX 5090=RTX5090; RTX 6000 Ada=RTX6000-Ada; RTX A5000=RTXA5000; RTX A6000=RTXA6000; "
        "RTX A4000=RTXA4000; RTX A4500=RTXA4500; RTX 3080=RTX3080"
    ),
}
CATALOGUE_NAMES: Final[Mapping[str, Mapping[str, str]]] = {
    cloud: {one: name for one, _, name in (pair.strip().partition("=") for pair in text.split(";"))}
    for cloud, text in _NAMES.items()
}
"""AcceleratorName of skypilot-org/skypilot-catalog v8 and of SkyPilot's own fetchers for RunPod, by cloud."""

SHIPPED: Final = "shipped prices"
CLOUDS: Final = {"aws": "AWS", "azure": "Azure", "gcp": "GCP", "lambda": "Lambda", "runpod": "RunPod"}
COLUMNS: Final = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "Price", "SpotPrice")
PLACES: Final = ("Region", "AvailabilityZone", "GpuInfo")


@cache
def offers() -> tuple[Offer, ...]:
    """On-demand and spot offers of the shipped prices, on machines that SkyPilot's catalogues have."""
    return tuple(
        offer
        for offer in snapshot().offers
        if offer.instance_type.accelerator in CATALOGUE_NAMES[offer.provider]
        and offer.purchase_option in (PurchaseOption.ON_DEMAND, PurchaseOption.SPOT)
        and offer.instance_type.accelerator_count >= 1
    )


def write_catalogues(home: Path, bought: list[Purchase]) -> None:
    """Catalogues as SkyPilot keeps them: the shipped offers, and machines of plans that are not on file."""
    rows: dict[str, dict[tuple[str, str, str], dict[str, Any]]] = {cloud: {} for cloud in CATALOGUE_NAMES}
    for offer in offers():
        kind = offer.instance_type
        key = (kind.name, offer.region or "any", offer.zone or "")
        row = rows[offer.provider].setdefault(key, _row(kind.name, offer.provider, kind.accelerator, *key[1:]))
        row["AcceleratorCount"] = float(kind.accelerator_count)
        row["vCPUs"], row["MemoryGiB"] = kind.vcpus or 8, kind.memory_gib or 64
        row["SpotPrice" if offer.purchase_option is PurchaseOption.SPOT else "Price"] = float(offer.usd_per_hour)
    for one in bought:
        key = (one.instance_type, one.region or "any", one.zone or "")
        row = rows[one.provider].setdefault(key, _row(one.instance_type, one.provider, one.accelerator, *key[1:]))
        row |= {"AcceleratorCount": one.accelerators, "vCPUs": 8, "MemoryGiB": 64, "SpotPrice": float(one.usd_per_hour)}
        row["Price"] = float(one.usd_per_hour)
    for cloud, of_cloud in rows.items():
        _spread(of_cloud)
        folder = home / ".sky/catalogs" / VERSION / cloud
        folder.mkdir(parents=True)
        _write(folder / "vms.csv", [*COLUMNS, *PLACES], list(_apart(of_cloud.values())))
        _write(folder / "images.csv", ["Tag", "Region", "OS", "OSVersion", "ImageId", "CreationDate"], [])
        _write(folder / "instance_quota_mapping.csv", ["InstanceType", "SpotInstanceCode", "OnDemandInstanceCode"], [])
    common = home / ".sky/catalogs" / VERSION / "common"
    common.mkdir()
    sold: dict[str, set[str]] = {"H100-MEGA": {"GCP"}}
    for cloud, names in CATALOGUE_NAMES.items():
        for name in names.values():
            sold.setdefault(name, set()).add(CLOUDS[cloud])
    known = [{"AcceleratorName": name, "Clouds": str(sorted(clouds))} for name, clouds in sorted(sold.items())]
    _write(common / "accelerators.csv", ["AcceleratorName", "Clouds"], known)
    _write(common / "metadata.csv", ["GPU", "MemoryGB", "Manufacturer"], [])


def _spread(rows: dict[tuple[str, str, str], dict[str, Any]]) -> None:
    """Zones have the price of their region; the row of a region without a zone goes where there are zones."""
    for (name, region, zone), row in list(rows.items()):
        zones = [other for other in rows if other[:2] == (name, region) and other[2]]
        if not zone and zones:
            del rows[name, region, zone]
            for other in zones:
                rows[other]["Price"] = row.get("Price") or rows[other].get("Price")


def _apart(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Machines, and on rows of their own GPUs that are attached to machines."""
    for row in rows:
        machine, _, attached = str(row["InstanceType"]).partition("+")
        if attached:
            yield row | {"InstanceType": machine, "AcceleratorName": "", "AcceleratorCount": ""}
            yield row | {"InstanceType": ""}
        else:
            yield row


def _row(name: str, cloud: str, accelerator: str, region: str, zone: str) -> dict[str, Any]:
    known = CATALOGUE_NAMES[cloud][accelerator]
    if name.startswith("a3-megagpu"):
        known = "H100-MEGA"
    return {"InstanceType": name, "AcceleratorName": known, "Region": region, "AvailabilityZone": zone or region}


def _write(path: Path, columns: list[str], rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns, restval="")
        writer.writeheader()
        writer.writerows(rows)


def one_of_each() -> Iterator[tuple[str, LaunchPlan]]:
    """A plan on the cheapest machine of every accelerator that a cloud sells, on demand."""
    cheapest: dict[tuple[str, str, bool], Offer] = {}
    for offer in offers():
        kind = offer.instance_type
        key = (offer.provider, kind.accelerator, kind.name.startswith("a3-megagpu"))
        if offer.purchase_option is PurchaseOption.ON_DEMAND and not (
            key in cheapest and (cheapest[key].usd_per_hour, cheapest[key].key) <= (offer.usd_per_hour, offer.key)
        ):
            cheapest[key] = offer
    for (provider, accelerator, mega), offer in sorted(cheapest.items()):
        kind = offer.instance_type
        machine = {"provider": provider, "instance_type": kind.name, "region": offer.region, "accelerator": accelerator}
        count = int(kind.accelerator_count)
        price = str(offer.usd_per_hour)
        bought = builders.make_instances(**machine, accelerator_count=count, usd_per_hour=price, source=SHIPPED)
        plan = builders.make_plan([bought], [builders.make_replicas(**machine, tensor_parallel=count)])
        yield f"{provider} {accelerator}{' mega' if mega else ''}", plan


def all_plans() -> dict[str, LaunchPlan]:
    plans = {f"serving {name}": build() for name, build in builders.PLANS.items()}
    plans |= {
        f"training {name}": training_plans.make_training_plan(**over) for name, over in training_plans.PLANS.items()
    }
    return plans


def written(folder: Path, plans: Mapping[str, LaunchPlan], target: str) -> dict[str, tuple[LaunchPlan, Purchase]]:
    """The files of the plans, by name, with what each was bought for."""
    folder.mkdir()
    found = {}
    for index, plan in enumerate(plans.values()):
        for name, text in targets.export(plan, target).files.items():
            (folder / f"{index}-{name}").write_text(text)
            parts = [*plan.groups, *plan.jobs]
            part = next(part for part in parts if f"-{part.name}." in name)
            found[f"{index}-{name}"] = (plan, part.purchase)
    return found


def test_skypilot_finds_the_machines_that_the_plan_bought(tmp_path: Path) -> None:
    plans = all_plans() | dict(one_of_each())
    files = written(tmp_path / "files", plans, "skypilot")
    (tmp_path / "home").mkdir()
    write_catalogues(tmp_path / "home", [bought for _, bought in files.values()])
    read = json.loads(run_parser("orchestrators", "read_skypilot", tmp_path / "files", home=tmp_path / "home"))
    assert read.keys() == files.keys()
    for name, (plan, bought) in files.items():
        found = read[name]
        assert found["cloud"] == bought.provider
        assert (found["region"], found["zone"]) == (bought.region, bought.zone_name)
        assert list(found["accelerators"].values()) == [bought.accelerators]
        assert found["use_spot"] == (bought.purchase_option == "spot")
        if bought.provider != "runpod":
            assert found["instance_type"] == bought.machine_type
        if bought.provider not in ("runpod", "gcp") and bought.source == SHIPPED:
            assert found["usd_per_hour"] == float(bought.usd_per_hour)
        for job in plan.jobs:
            assert found["nodes"] == job.nodes
        for group in plan.groups:
            if f"-{group.name}." in name:
                assert found["nodes"] * found["replicas"] == group.instances


def test_dstack_understands_the_machines_that_the_plan_bought(tmp_path: Path) -> None:
    plans = all_plans() | dict(one_of_each())
    files = written(tmp_path / "files", plans, "dstack")
    read = json.loads(run_parser("orchestrators", "read_dstack", tmp_path / "files"))
    assert read.keys() == files.keys()
    for name, (plan, bought) in files.items():
        found = read[name]
        assert found["backends"] == [bought.provider]
        assert found["count"] == bought.accelerators
        assert found["spot_policy"] == ("spot" if bought.purchase_option == "spot" else "on-demand")
        assert found["max_price"] >= float(bought.usd_per_hour)
        for job in plan.jobs:
            assert (found["type"], found["nodes"]) == ("task", job.nodes)
        for group in plan.groups:
            if f"-{group.name}." in name:
                assert (found["type"], found["replicas"]) == ("service", group.instances)


LEADER_WORKER_FIELDS: Final = {
    "spec": {"replicas", "leaderWorkerTemplate", "rolloutStrategy", "startupPolicy", "networkConfig"},
    "leaderWorkerTemplate": {"leaderTemplate", "workerTemplate", "size", "restartPolicy", "subGroupPolicy"},
}
"""Fields of leaderworkerset.x-k8s.io/v1 that exports may use (kubernetes-sigs/lws, api/leaderworkerset/v1)."""


def test_templates_of_a_leaderworkerset_are_pods() -> None:
    validator = pytest.importorskip("kubernetes_validate", exc_type=ImportError)
    (text,) = targets.export(builders.over_two_machines(), "kubernetes").files.values()
    (found,) = (one for one in yaml.safe_load_all(text) if one["kind"] == "LeaderWorkerSet")
    group = found["spec"]["leaderWorkerTemplate"]
    assert found["spec"].keys() <= LEADER_WORKER_FIELDS["spec"]
    assert group.keys() <= LEADER_WORKER_FIELDS["leaderWorkerTemplate"]
    assert group["restartPolicy"] in ("RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None")
    for template in (group["leaderTemplate"], group["workerTemplate"]):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": template["spec"]}
        validator.validate(pod, "1.32", strict=True)
