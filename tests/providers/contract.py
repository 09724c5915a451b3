"""What every provider's answer must satisfy: a test class inherits this and supplies `answer`."""

from decimal import Decimal
from pathlib import Path
from typing import ClassVar

import pytest

from pricing_cache.location import locate
from pricing_cache.observations import read_state
from pricing_cache.refresh import keep_answer
from pricing_cache.store import open_store
from providers.accelerators import catalogue
from providers.base import Answer
from providers.offers import Offer
from providers.plausibility import implausible
from tests.providers.conftest import NOW, Fetch, Recorded


class ProviderContract:
    """The invariants of an answer."""

    provider: str
    _answers: ClassVar[dict[type, Answer]] = {}

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        """The provider's answer to recorded replies."""
        raise NotImplementedError("a provider's tests say how it is asked")

    @pytest.fixture
    def answer(self, fetch: Fetch, recorded: Recorded) -> Answer:
        """Asked once for all tests of a class."""
        if type(self) not in self._answers:
            self._answers[type(self)] = self.ask(fetch, recorded)
        return self._answers[type(self)]

    def test_it_has_offers_of_that_provider_only(self, answer: Answer) -> None:
        assert answer.provider == self.provider
        assert answer.offers
        assert {offer.provider for offer in answer.offers} == {self.provider}

    def test_a_key_has_one_offer(self, answer: Answer) -> None:
        keys = [offer.key for offer in answer.offers]
        assert len(keys) == len(set(keys))

    def test_offers_come_in_the_order_of_their_keys(self, answer: Answer) -> None:
        assert list(answer.offers) == sorted(answer.offers, key=lambda offer: offer.key)

    def test_every_price_is_plausible_and_exact(self, answer: Answer) -> None:
        for offer in answer.offers:
            assert isinstance(offer.usd_per_hour, Decimal)
            assert implausible(offer.usd_per_hour, offer.instance_type) is None

    @pytest.mark.trap("AWS-6")
    def test_every_price_has_its_day_and_its_source(self, answer: Answer) -> None:
        assert {offer.observed_on for offer in answer.offers} == {NOW.date()}
        assert all(offer.source and offer.row_ids for offer in answer.offers)
        assert answer.sources

    def test_every_accelerator_is_in_the_catalogue(self, answer: Answer) -> None:
        assert {offer.instance_type.accelerator for offer in answer.offers} <= set(catalogue())

    @pytest.mark.trap("ALL-54")
    def test_the_price_per_accelerator_is_the_price_divided_by_the_count_once(self, answer: Answer) -> None:
        for offer in answer.offers:
            count = Decimal(str(offer.instance_type.accelerator_count))
            assert offer.usd_per_accelerator_hour * count == pytest.approx(offer.usd_per_hour)

    def test_every_offer_is_one_that_the_answer_speaks_for(self, answer: Answer) -> None:
        assert all(answer.supersedes(offer.key) for offer in answer.offers)

    def test_the_seen_types_are_at_least_the_priced_ones(self, answer: Answer) -> None:
        assert answer.instance_types_seen >= len({offer.instance_type.name for offer in answer.offers})

    def test_reserved_offers_name_their_commitment_and_keep_the_upfront_apart(self, answer: Answer) -> None:
        for offer in answer.offers:
            if offer.commitment is not None:
                assert offer.commitment.term_months == offer.purchase_option.term_months
                assert bool(offer.commitment.upfront_usd) == ("upfront" in offer.commitment.variant)

    def test_the_cache_gives_every_offer_back_as_it_was(self, answer: Answer, tmp_path: Path) -> None:
        location = locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path}/prices.sqlite"})
        with open_store(location) as store:
            result = keep_answer(store, answer, at=NOW)
            with store.reading() as connection:
                kept = {quote.offer for quote in read_state(connection).quotes.values()}
        assert (result.outcome, len(result.held)) == ("stored", len(answer.unreadable))
        assert kept == set(answer.offers)

    def test_a_rejection_names_its_reason_and_counts_rows(self, answer: Answer) -> None:
        assert all(reason and rows > 0 for reason, rows in answer.rejections.items())


def by_name(answer: Answer, name: str, **wanted: object) -> Offer:
    """The one offer of an instance type whose attributes are as wanted."""
    found = [
        offer
        for offer in answer.offers
        if offer.instance_type.name == name and all(getattr(offer, key) == value for key, value in wanted.items())
    ]
    assert len(found) == 1, f"{len(found)} offers of {name} with {wanted}: {[str(o.key) for o in found]}"
    return found[0]
