"""The database against a dictionary that does the same in memory: any order of answers leaves both with one state."""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pricing_cache import current, refresh
from pricing_cache.compiled import OfferBook
from pricing_cache.current import current_book
from pricing_cache.location import locate
from pricing_cache.observations import read_state
from pricing_cache.quarantine import judge
from pricing_cache.refresh import keep_answer
from pricing_cache.store import Store, open_store
from providers.base import Answer, Coverage
from providers.offers import Offer, OfferKey, PurchaseOption
from tests.pricing_cache.builders import NOW, make_answer, make_offer

OPTIONS = (PurchaseOption.ON_DEMAND, PurchaseOption.SPOT)
REGIONS = ("east", "west")
EVERY = [
    make_offer(name, region=region, purchase_option=option) for name in "ab" for region in REGIONS for option in OPTIONS
]
SHIPPED = OfferBook(
    origin="shipped snapshot",
    offers=tuple(replace(offer, usd_per_hour=Decimal(24), source="a price list") for offer in EVERY[::2]),
)

coverages = st.lists(
    st.builds(
        Coverage,
        purchase_option=st.sampled_from(OPTIONS),
        regions=st.sampled_from([None, frozenset({"east"}), frozenset({"west"})]),
        instance_types=st.sampled_from([None, frozenset({"a"})]),
    ),
    max_size=3,
)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """An answer whose offers and unreadable keys are among those that it speaks for; some prices are suspicious."""
    coverage = tuple(draw(coverages))
    covered = [offer for offer in EVERY if any(part.includes(offer.key) for part in coverage)]
    listed = draw(st.lists(st.sampled_from(covered), unique=True)) if covered else []
    unreadable = frozenset(offer.key for offer in listed if draw(st.integers(0, 4)) == 0)
    offers = [
        make_offer(
            offer.instance_type.name,
            usd=draw(st.sampled_from(["8", "20", "24", "25.5", "100", "9999"])),
            region=offer.region,
            purchase_option=offer.purchase_option,
        )
        for offer in listed
        if offer.key not in unreadable
    ]
    seen = draw(st.integers(0, 2))
    return make_answer(*offers, coverage=coverage, unreadable=unreadable, instance_types_seen=seen)


def prices(offers: Mapping[OfferKey, Offer]) -> dict[OfferKey, Decimal]:
    return {key: offer.usd_per_hour for key, offer in offers.items()}


class InMemory:
    """What the rules say, without a database: the offers in use, and those of them that a refresh brought."""

    def __init__(self) -> None:
        self.in_use = {offer.key: offer for offer in SHIPPED.offers}
        self.brought: dict[OfferKey, Offer] = {}
        self.last_types_seen: int | None = None

    def keep(self, answer: Answer, *, accept: bool) -> None:
        verdict = judge(answer, self.brought, self.last_types_seen, accept=accept)
        if verdict.refusal:
            return
        kept = verdict.usable.keys() | verdict.held.keys()
        for offers in (self.in_use, self.brought):
            for key in [key for key in offers if answer.supersedes(key) and key not in kept]:
                del offers[key]
            offers |= verdict.usable
        self.last_types_seen = answer.instance_types_seen


def states(store: Store) -> tuple[dict[OfferKey, Decimal], dict[OfferKey, Decimal]]:
    with store.reading() as connection:
        book = {offer.key: offer for offer in current_book(connection).offers}
        brought = {key: quote.offer for key, quote in read_state(connection).quotes.items()}
    return prices(book), prices(brought)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.tuples(answers(), st.booleans()), min_size=1, max_size=6))
def test_any_order_of_answers_leaves_the_offers_in_use_that_the_rules_say(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Answer, bool]]
) -> None:
    for module in (current, refresh):
        monkeypatch.setattr(module, "snapshot", lambda: SHIPPED)
    model = InMemory()
    past = []
    with open_store(locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path_factory.mktemp('cache')}/p.sqlite"})) as store:
        for answer, accept in steps:
            keep_answer(store, answer, at=NOW, accept=accept)
            model.keep(answer, accept=accept)
            assert states(store) == (prices(model.in_use), prices(model.brought))
            past.append(prices(model.brought))
        with store.reading() as connection:
            for run_id, expected in enumerate(past, start=1):
                quotes = read_state(connection, through=run_id).quotes
                assert {key: quote.offer.usd_per_hour for key, quote in quotes.items()} == expected
