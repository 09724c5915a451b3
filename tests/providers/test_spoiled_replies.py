"""Recorded replies with anything in any place: a parser counts what it cannot read or refuses the reply, and never
fails in another way; what it offers is always a whole offer."""

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from providers.aws.machines import Machines, parse_instance_types
from providers.aws.market import (
    parse_capacity_blocks,
    parse_savings_rates,
    parse_spot_feed,
    parse_spot_history,
)
from providers.aws.price_list import add_bulk_file, parse_bulk_lines, parse_products
from providers.azure import parse_prices
from providers.errors import InvalidAnswer
from providers.gcp import price_machines
from providers.gcp.machines import parse_machines, shipped_machines
from providers.gcp.rates import Rates, parse_skus
from providers.lambda_cloud import parse_instance_types as parse_lambda
from providers.runpod import parse_catalogue, parse_gpu_types
from providers.specifications import specifications
from providers.tally import Tally
from tests.providers.conftest import NOW, RECORDINGS


def aws(tally: Tally) -> Machines:
    return Machines(specifications("aws"), tally)


def price_gcp(data: Any, tally: Tally) -> None:
    rates = Rates()
    parse_skus(data, NOW, rates)
    price_machines(shipped_machines(), rates, ("us-central1",), tally)


def machines_of(data: Any, tally: Tally) -> None:
    parse_machines([data], [json.loads((RECORDINGS / "gcp/accelerator_types_aggregated_list.json").read_text())], tally)


def types_of(data: Any, tally: Tally) -> None:
    machines = Machines(parse_instance_types(data, tally), tally)
    for row in data:
        machines.kind(str(row.get("InstanceType")) if isinstance(row, dict) else "")


PARSERS: dict[str, tuple[str, str, Callable[[Any, Tally], None]]] = {
    "lambda": ("lambda/instance-types.200.json", "", parse_lambda),
    "runpod": ("runpod/v2.catalog.gpus.availability.200.json", "", lambda d, t: parse_catalogue(d, "SECURE", 1, t)),
    "runpod graphql": ("runpod/graphql.gpuTypes.200.json", "", lambda d, t: parse_gpu_types(d, "SECURE", 1, t)),
    "azure": ("azure/retail_prices_page1.json", "", lambda d, t: parse_prices(d, None, NOW, t)),
    "gcp": ("gcp/cloud_billing_skus.json", "", price_gcp),
    "gcp machines": ("gcp/machine_types_aggregated_list.json", "", machines_of),
    "aws product": ("aws/pricelist_item_decoded_p5.json", "-", lambda d, t: parse_products([d], aws(t), "s", t)),
    "aws types": ("aws/ec2_describe_instance_types.json", "InstanceTypes", types_of),
    "aws spot": (
        "aws/ec2_describe_spot_price_history.json",
        "SpotPriceHistory",
        lambda d, t: parse_spot_history(d, "us-east-1", aws(t), "s", t),
    ),
    "aws feed": ("aws/public_spot_feed.json", "", lambda d, t: void(parse_spot_feed(d, {}, aws(t), "s", t))),
    "aws savings": (
        "aws/savingsplans_describe_offering_rates.json",
        "searchResults",
        lambda d, t: parse_savings_rates(d, aws(t), "s", t),
    ),
    "aws blocks": (
        "aws/ec2_describe_capacity_block_offerings.json",
        "CapacityBlockOfferings",
        lambda d, t: parse_capacity_blocks(d, "us-east-2", {}, aws(t), "s", t),
    ),
}
PROVIDER_OF = {name: name.split()[0] for name in PARSERS}


def void(_: object) -> None:
    """What a parser returns beside the tally is of no interest here."""


junk = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.decimals(),
    st.sampled_from(["", "N/A*", "1e999", "2026-13-45", "\x00", "Standard_N", "é" * 50, "0", "-1"]),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*at, key)
        yield from places(child, (*at, key))


def spoil(value: Any, place: tuple[Any, ...], by: Any) -> Any:
    spoiled = deepcopy(value)
    inner = spoiled
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = by
    return spoiled


def recorded(name: str) -> Any:
    path, key, _ = PARSERS[name]
    data = json.loads((RECORDINGS / path).read_text(encoding="utf-8"), parse_float=Decimal)
    return data[key] if key not in ("", "-") else data


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_anything_in_any_place_is_counted_or_refused(name: str, data: st.DataObject) -> None:
    reply = recorded(name)
    place = data.draw(st.sampled_from(sorted(places(reply), key=str)), label="place")
    spoiled = spoil(reply, place, data.draw(junk, label="junk"))
    tally = Tally(PROVIDER_OF[name], NOW)
    try:
        PARSERS[name][2](spoiled, tally)
        answer = tally.answer([], ["test"])
    except InvalidAnswer:
        return
    for offer in answer.offers:
        assert offer.usd_per_hour > 0
        assert offer.source
        assert offer.key not in answer.unreadable


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1800), st.binary(max_size=30))
def test_anything_in_the_bulk_file_is_counted_or_refused(at: int, junk_bytes: bytes) -> None:
    text = (RECORDINGS / "aws/bulk_region_offer_head.csv").read_text(encoding="utf-8")
    lines = (text[:at] + junk_bytes.decode("latin-1") + text[at + len(junk_bytes) :]).splitlines()
    tally = Tally("aws", NOW)
    machines = aws(tally)
    try:
        add_bulk_file(parse_bulk_lines(lines, machines), machines, "test", tally)
        offers = tally.answer([], ["test"]).offers
    except InvalidAnswer:
        return
    assert all(offer.usd_per_hour > 0 for offer in offers)
