"""What an adapter is given and answers, and how it is found by name."""

import subprocess
import sys
from dataclasses import replace

import pytest

from providers.base import Answer, Coverage, all_providers, own_regions, provider
from providers.errors import InvalidAnswer, UnknownName
from providers.offers import PROVIDERS, CommitmentKind, OfferKey, PurchaseOption
from providers.specifications import specifications

KEY = OfferKey(
    provider="aws",
    instance_type="p5.48xlarge",
    region="us-east-1",
    zone="",
    purchase_option=PurchaseOption.RESERVED_1Y,
    commitment_kind=CommitmentKind.RESERVED_INSTANCE,
    commitment_variant="",
)


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_provider_has_an_adapter_of_its_name(name: str) -> None:
    assert provider(name).name == name


def test_all_adapters_come_in_the_order_in_which_providers_are_shown() -> None:
    assert tuple(adapter.name for adapter in all_providers()) == PROVIDERS


def test_an_unknown_provider_is_an_error_with_suggestions() -> None:
    with pytest.raises(UnknownName, match=r"did you mean azure\?"):
        provider("azur")


def test_no_adapter_loads_an_sdk_before_it_fetches() -> None:
    heavy = ["azure", "boto3", "botocore", "google.auth", "google.cloud", "grpc", "pydantic", "requests", "sqlalchemy"]
    code = "import sys; from providers.base import all_providers; all_providers();"
    code += f"print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("over", "included"),
    [
        ({}, True),
        ({"commitment_kind": CommitmentKind.RESERVED_INSTANCE}, True),
        ({"commitment_kind": CommitmentKind.SAVINGS_PLAN}, False),
        ({"regions": frozenset({"us-east-1"})}, True),
        ({"regions": frozenset({"us-west-2"})}, False),
        ({"regions": frozenset()}, False),
        ({"instance_types": frozenset({"p5.48xlarge"})}, True),
        ({"instance_types": frozenset({"p4d.24xlarge"})}, False),
        ({"except_types": frozenset({"p5.48xlarge"})}, False),
        ({"zoned": False}, True),
        ({"purchase_option": PurchaseOption.RESERVED_3Y}, False),
    ],
)
def test_an_answer_speaks_for_what_it_covers(over: dict[str, object], included: bool) -> None:
    part = replace(Coverage(purchase_option=PurchaseOption.RESERVED_1Y), **over)  # type: ignore[arg-type] # any field
    assert part.includes(KEY) is included
    answer = Answer(provider="aws", offers=(), coverage=(part,), instance_types_seen=1)
    assert answer.supersedes(KEY) is included


def test_a_price_by_region_says_nothing_of_its_zones() -> None:
    part = Coverage(purchase_option=PurchaseOption.RESERVED_1Y, zoned=False)
    assert not part.includes(replace(KEY, zone="use1-az1"))


def test_an_offer_that_is_listed_at_an_unusable_price_is_not_gone() -> None:
    part = Coverage(purchase_option=PurchaseOption.RESERVED_1Y)
    answer = Answer(provider="aws", offers=(), coverage=(part,), instance_types_seen=1, unreadable=frozenset({KEY}))
    assert not answer.supersedes(KEY)
    assert answer.covered == {PurchaseOption.RESERVED_1Y}


def test_regions_of_other_providers_are_passed_over() -> None:
    import re

    form = re.compile(r"[a-z0-9]+")
    assert own_regions("azure", ("eastus", "us-east-1"), form) == ("eastus",)
    assert own_regions("azure", (), form) == ()
    with pytest.raises(InvalidAnswer, match="none of these is one of its regions: us-east-1"):
        own_regions("azure", ("us-east-1",), form)


@pytest.mark.parametrize("name", ["aws", "azure", "gcp"])
def test_shipped_specifications_name_what_they_come_from(name: str) -> None:
    known = specifications(name)
    assert len(known) > 50
    assert all(row.source and row.accelerator for row in known.values())
    assert all(row.accelerator_count is None or row.accelerator_count > 0 for row in known.values())
    assert all(bool(row.regions) == (name == "gcp") for row in known.values())


def test_providers_whose_api_states_the_hardware_have_no_specifications() -> None:
    assert not specifications("lambda")
    assert not specifications("runpod")
