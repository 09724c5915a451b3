"""Quota files and files of what runs: what they mean; each fault is answered with its field, value and line."""

from decimal import Decimal

import pytest

from optimizer.plans.market_files import parse_current, parse_quotas, quotas_without_effect
from providers.errors import UsageError
from providers.offers import CommitmentKind, PurchaseOption
from tests.builders import make_offer

ON_FILE = (
    make_offer(name="p5.48xlarge", count=8, usd="55.04"),
    make_offer(name="p5.48xlarge", count=8, usd="20", region="us-west-2", purchase_option=PurchaseOption.SPOT),
    make_offer(name="p5.48xlarge", count=8, usd="33", purchase_option=PurchaseOption.RESERVED_1Y),
)


def test_a_quota_of_an_accelerator_counts_accelerators() -> None:
    (quota,) = parse_quotas("quotas: [{accelerator: h100 sxm5 80gb, region: us-east-1, maximum: 16}]", "q.yaml")
    assert (quota.accelerator, quota.region, quota.maximum) == ("H100-SXM5-80GB", "us-east-1", 16)
    assert quota.unit == "accelerators"
    assert "us-east-1 H100-SXM5-80GB" in quota.id


def test_a_quota_of_a_machine_may_count_instances_of_one_purchase_option() -> None:
    text = "quotas: [{instance_type: p5.48xlarge, maximum: 2, unit: instances, purchase: reserved-1y, provider: aws}]"
    (quota,) = parse_quotas(text, "q.yaml")
    assert (quota.instance_type, quota.unit, quota.purchase_option, quota.provider) == (
        "p5.48xlarge",
        "instances",
        "reserved_1y",
        "aws",
    )


def test_a_quota_of_a_family_must_name_the_variant() -> None:
    with pytest.raises(UsageError, match=r"means .*H100-SXM5-80GB.*: name one of them"):
        parse_quotas("quotas: [{accelerator: H100, maximum: 16}]", "q.yaml")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{maximum: -1}", r"q\.yaml: line 2, quotas\.0\.maximum: .*value -1"),
        ("{region: x}", r"quotas\.0\.maximum: Field required"),
        ("{maximum: 1, unit: racks}", r"quotas\.0\.unit: .*value 'racks'"),
        ("{maximum: 1, acelerator: H100}", r"quotas\.0\.acelerator: Extra inputs .*did you mean accelerator\?"),
        ("{maximum: 1, purchase: monthly}", r"quotas\.0\.purchase: .*value 'monthly'"),
    ],
)
def test_a_faulty_quota_is_named_with_line_field_and_value(entry: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_quotas(f"quotas:\n  - {entry}\n", "q.yaml")


def test_an_unknown_accelerator_of_a_quota_is_refused() -> None:
    with pytest.raises(UsageError, match="H900"):
        parse_quotas("quotas: [{accelerator: H900, maximum: 1}]", "q.yaml")


def test_what_runs_takes_the_price_on_file() -> None:
    text = "running: [{provider: aws, instance_type: p5.48xlarge, region: us-east-1, count: 3}]"
    (holding,) = parse_current(text, "c.yaml", ON_FILE)
    assert (holding.running, holding.committed) == (3, 0)
    assert holding.offer.usd_per_hour == Decimal("55.04")
    assert holding.offer.purchase_option is PurchaseOption.ON_DEMAND


def test_a_price_of_its_own_and_a_commitment_are_kept() -> None:
    text = """
running:
  - provider: aws
    instance_type: p5.48xlarge
    region: us-east-1
    purchase: reserved-1y
    count: 2
    usd_per_hour: 31.5
    committed: true
"""
    (holding,) = parse_current(text, "c.yaml", ON_FILE)
    assert (holding.running, holding.committed) == (2, 2)
    assert holding.offer.usd_per_hour == Decimal("31.5")
    assert holding.offer.source == "c.yaml, line 3"


def test_what_is_not_on_file_that_way_needs_a_price() -> None:
    entry = "{provider: aws, instance_type: p5.48xlarge, region: eu-west-1, purchase: reserved-3y, count: 1}"
    with pytest.raises(UsageError, match=r"c\.yaml, line 2: no reserved-3y price of p5\.48xlarge in eu-west-1 on file"):
        parse_current(f"running:\n  - {entry}\n", "c.yaml", ON_FILE)
    priced = entry.replace("count: 1", "count: 1, usd_per_hour: 25")
    (holding,) = parse_current(f"running:\n  - {priced}\n", "c.yaml", ON_FILE)
    assert holding.offer.region == "eu-west-1"
    assert holding.offer.commitment is not None
    assert (holding.offer.commitment.kind, holding.offer.commitment.term_months) == (
        CommitmentKind.RESERVED_INSTANCE,
        36,
    )
    assert holding.offer.observed_on is None


def test_an_unknown_machine_is_answered_with_a_similar_one() -> None:
    with pytest.raises(UsageError, match=r"line 1: .*p5\.48xlrge.*p5\.48xlarge"):
        parse_current("running: [{provider: aws, instance_type: p5.48xlrge, count: 1}]", "c.yaml", ON_FILE)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{provider: aws, instance_type: p5.48xlarge, count: 0}", r"running\.0\.count: .*value 0"),
        ("{provider: aws, count: 1}", r"running\.0\.instance_type: Field required"),
        ("{provider: aws, instance_type: p5.48xlarge, count: 1, usd_per_hour: 0}", r"running\.0\.usd_per_hour"),
        ("{provider: aws, instance_type: p5.48xlarge, count: 1, usd_per_hour: .nan}", r"running\.0\.usd_per_hour"),
    ],
)
def test_a_faulty_line_of_what_runs_is_named(entry: str, message: str) -> None:
    with pytest.raises(UsageError, match=rf"c\.yaml: line 2, {message}"):
        parse_current(f"running:\n  - {entry}\n", "c.yaml", ON_FILE)


def test_what_is_sold_by_region_takes_no_price_of_a_region_that_was_not_named() -> None:
    with pytest.raises(UsageError, match=r"line 1: p5\.48xlarge is sold by region; name its region: us-east-1"):
        parse_current("running: [{provider: aws, instance_type: p5.48xlarge, count: 1}]", "c.yaml", ON_FILE)


def test_what_is_sold_without_regions_needs_none() -> None:
    offer = make_offer(provider="runpod", name="1x_L40S", gpu="L40S", region=None, usd="0.9")
    text = "running: [{provider: runpod, instance_type: 1x_L40S, count: 1}]"
    (holding,) = parse_current(text, "c.yaml", (offer,))
    assert holding.offer.region is None
    assert holding.offer.usd_per_hour == Decimal("0.9")


@pytest.mark.parametrize(
    ("told", "committed"), [("", 2), (", committed: true", 2), (", committed: false", 0)], ids=["unsaid", "yes", "no"]
)
def test_a_reservation_is_committed_unless_it_is_said_not_to_be(told: str, committed: int) -> None:
    entry = f"{{provider: aws, instance_type: p5.48xlarge, region: us-east-1, purchase: reserved-1y, count: 2{told}}}"
    (holding,) = parse_current(f"running: [{entry}]", "c.yaml", ON_FILE)
    assert holding.committed == committed


def test_a_quota_of_an_unknown_provider_is_refused() -> None:
    with pytest.raises(UsageError, match=r"unknown provider 'awss'; did you mean aws"):
        parse_quotas("quotas: [{provider: awss, maximum: 1}]", "q.yaml")


def test_a_quota_of_a_place_or_machine_that_nothing_on_file_has_is_said_to_limit_nothing() -> None:
    text = """
quotas:
  - {region: us-east-11, maximum: 1}
  - {instance_type: p5.48xlarg, region: us-east-1, maximum: 1}
  - {instance_type: p5.48xlarge, region: us-east-1, maximum: 1}
"""
    place, machine = quotas_without_effect(parse_quotas(text, "q.yaml"), ON_FILE)
    assert (
        place == "quota of us-east-11 limits nothing: unknown region 'us-east-11'; did you mean us-east-1, us-west-2?"
    )
    assert "unknown instance type 'p5.48xlarg'; did you mean p5.48xlarge?" in machine
