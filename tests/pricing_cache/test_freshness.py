"""How old and how complete prices are."""

from datetime import timedelta

import pytest

from pricing_cache.compiled import OfferBook
from pricing_cache.freshness import freshness, is_stale
from pricing_cache.observations import Outcome, Run
from tests.pricing_cache.builders import NOW, TODAY, make_offer


@pytest.mark.parametrize(("age_days", "stale"), [(0, False), (30, False), (31, True)])
def test_a_price_is_stale_when_it_is_older_than_the_most_days_allowed(age_days: int, stale: bool) -> None:
    assert is_stale(make_offer(observed_on=TODAY - timedelta(days=age_days)), TODAY, 30) is stale


def test_a_price_without_a_date_is_stale() -> None:
    assert is_stale(make_offer(observed_on=None), TODAY, 30)


def test_each_provider_has_an_entry_also_without_an_offer() -> None:
    entries = freshness(OfferBook(origin="price cache", offers=()), (), TODAY, 30)
    assert [entry.provider for entry in entries] == ["aws", "gcp", "azure", "lambda", "runpod"]
    assert {(entry.offers, entry.oldest, entry.last_run) for entry in entries} == {(0, None, None)}


def test_offers_are_counted_by_age_origin_and_reach() -> None:
    offers = (
        make_offer("a", region="us-west-1"),
        make_offer("b", observed_on=None, region=None),
        make_offer("c", observed_on=TODAY - timedelta(days=90), source="shipped snapshot: a price list"),
    )
    entry = freshness(OfferBook(origin="price cache", offers=offers), (), TODAY, 30)[3]
    assert (entry.offers, entry.shipped, entry.undated, entry.stale) == (3, 1, 1, 2)
    assert (entry.oldest, entry.newest) == (TODAY - timedelta(days=90), TODAY)
    assert (entry.instance_types, entry.accelerators, entry.regions) == (3, 1, 1)
    assert entry.by_purchase_option == {"on_demand": 3}


def test_a_failed_refresh_is_the_last_run_and_the_good_one_before_is_remembered() -> None:
    good = Run(id=1, provider="lambda", at=NOW, outcome=Outcome.STORED)
    bad = Run(id=2, provider="lambda", at=NOW, outcome=Outcome.FAILED)
    entry = freshness(OfferBook(origin="price cache", offers=()), (good, bad), TODAY, 30)[3]
    assert (entry.last_run, entry.last_stored) == (bad, good)
