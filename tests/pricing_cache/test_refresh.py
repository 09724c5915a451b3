"""Asking providers side by side: each outcome is its own, and what was good stays."""

from dataclasses import replace
from threading import Barrier, Event

import pytest

from pricing_cache import refresh as refreshing
from pricing_cache.current import load_current
from pricing_cache.location import CacheLocation, locate
from pricing_cache.observations import Outcome, read_runs, read_state
from pricing_cache.refresh import Changes, Result, refresh
from pricing_cache.snapshot import snapshot
from pricing_cache.stamp import read_stamp
from pricing_cache.store import open_for_reading
from providers.base import Answer, FetchContext, Limits
from providers.errors import CacheError, MissingCredentials, ProviderUnavailable
from providers.offers import Offer
from tests.pricing_cache.builders import (
    NOW,
    FakeProvider,
    adapters,
    make_answer,
    make_context,
    make_offer,
    repriced,
)

AWS = make_answer(make_offer("p_test", provider="aws"), provider="aws")
LAMBDA = make_answer(make_offer())


def ask(location: CacheLocation, *fakes: FakeProvider, accept: bool = False) -> tuple[Result, ...]:
    return refresh(
        location, [fake.name for fake in fakes], lambda _: make_context(), adapter_of=adapters(*fakes), accept=accept
    )


def lambda_prices(location: CacheLocation) -> list[str]:
    return [str(offer.usd_per_hour) for offer in load_current(location).offers if offer.provider == "lambda"]


def test_providers_are_asked_side_by_side_and_results_come_in_the_order_asked(location: CacheLocation) -> None:
    both_are_in = Barrier(2, timeout=10)

    def wait_for_the_other(answer: Answer) -> FakeProvider:
        def fetch(_: FetchContext) -> Answer:
            both_are_in.wait()
            return answer

        return FakeProvider(answer.provider, fetch)

    results = ask(location, wait_for_the_other(LAMBDA), wait_for_the_other(AWS))
    assert [(result.provider, result.outcome) for result in results] == [("lambda", "stored"), ("aws", "stored")]


def test_missing_credentials_skip_a_provider_and_say_what_to_set(location: CacheLocation) -> None:
    skipped, stored = ask(
        location,
        FakeProvider("runpod", MissingCredentials("runpod", "set RUNPOD_API_KEY")),
        FakeProvider("lambda", LAMBDA),
    )
    assert (skipped.outcome, skipped.message) == (Outcome.SKIPPED, "set RUNPOD_API_KEY")
    assert stored.outcome is Outcome.STORED


def test_a_provider_that_fails_leaves_its_prices_and_the_other_providers_alone(location: CacheLocation) -> None:
    ask(location, FakeProvider("lambda", LAMBDA))
    failed, stored = ask(
        location, FakeProvider("lambda", ProviderUnavailable("lambda", "timed out")), FakeProvider("aws", AWS)
    )
    assert (failed.outcome, failed.message) == (Outcome.FAILED, "timed out")
    assert stored.outcome is Outcome.STORED
    assert lambda_prices(location) == ["23.92"]


def test_a_fault_in_an_adapter_is_that_providers_failure_and_its_text_is_not_shown(location: CacheLocation) -> None:
    failed, stored = ask(
        location, FakeProvider("gcp", KeyError("https://host/?key=s3cret")), FakeProvider("lambda", LAMBDA)
    )
    assert failed.outcome is Outcome.FAILED
    assert failed.message.startswith("KeyError in builders.py:")
    assert "s3cret" not in failed.message
    assert stored.outcome is Outcome.STORED


def test_an_adapter_that_cannot_be_imported_is_that_providers_failure(location: CacheLocation) -> None:
    def broken(_: str) -> FakeProvider:
        raise ImportError("no SDK")

    (result,) = refresh(location, ["azure"], lambda _: make_context(), adapter_of=broken)
    assert result.outcome is Outcome.FAILED


def test_a_fetch_that_never_returns_is_given_up_after_its_deadline(
    location: CacheLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refreshing, "GRACE_S", 0.0)
    released = Event()

    def hang(_: FetchContext) -> Answer:
        released.wait()
        raise ProviderUnavailable("aws", "released by the test")

    results = refresh(
        location,
        ["aws", "lambda"],
        lambda _: make_context(limits=Limits(total_s=0.5)),
        adapter_of=adapters(FakeProvider("aws", hang), FakeProvider("lambda", LAMBDA)),
    )
    released.set()
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.STORED]
    assert results[0].message.startswith("no answer within")


def test_every_run_is_noted_with_its_reason(location: CacheLocation) -> None:
    noted = replace(LAMBDA, rejections={"not in USD": 3}, notes=("shapes that ship were used",))
    ask(location, FakeProvider("lambda", noted), FakeProvider("gcp", ProviderUnavailable("gcp", "HTTP 503")))
    with open_for_reading(location) as store, store.reading() as connection:
        runs = {run.provider: run for run in read_runs(connection)}
    assert (runs["gcp"].outcome, runs["gcp"].message) == (Outcome.FAILED, "HTTP 503")
    assert runs["lambda"].at == NOW
    assert runs["lambda"].rejections == {"not in USD": 3}
    assert runs["lambda"].notes == ("shapes that ship were used",)
    assert runs["lambda"].sources == LAMBDA.sources


def test_a_first_refresh_is_compared_with_the_shipped_prices(location: CacheLocation) -> None:
    shipped = [offer for offer in snapshot().offers if offer.provider == "runpod"]
    same, dearer, gone = shipped[:5], repriced(shipped[5:8], "1.1"), shipped[8:]
    (result,) = ask(location, FakeProvider("runpod", make_answer(*same, *dearer, provider="runpod")))
    assert result.changes == Changes(new=0, changed=3, unchanged=5, gone=len(gone))


def test_an_empty_answer_is_refused_and_nothing_changes(location: CacheLocation) -> None:
    ask(location, FakeProvider("lambda", LAMBDA))
    before = read_stamp(location)
    (result,) = ask(location, FakeProvider("lambda", make_answer(instance_types_seen=0)))
    assert result.outcome is Outcome.REFUSED
    assert read_stamp(location) == before
    assert lambda_prices(location) == ["23.92"]


def test_a_small_answer_is_refused_kept_apart_and_can_be_accepted(location: CacheLocation) -> None:
    many: list[Offer] = [make_offer(f"machine-{number}") for number in range(10)]
    few = make_answer(*many[:2])
    ask(location, FakeProvider("lambda", make_answer(*many)))
    (refused,) = ask(location, FakeProvider("lambda", few))
    assert refused.outcome is Outcome.REFUSED
    assert len(lambda_prices(location)) == 10
    (taken,) = ask(location, FakeProvider("lambda", few), accept=True)
    assert taken.outcome is Outcome.STORED
    assert taken.changes == Changes(unchanged=2, gone=8)
    assert len(lambda_prices(location)) == 2


def test_no_capacity_anywhere_is_an_answer_and_not_a_refusal(location: CacheLocation) -> None:
    ask(location, FakeProvider("lambda", LAMBDA))
    sold_out = make_answer(make_offer(region=None, in_stock=False), instance_types_seen=1)
    (result,) = ask(location, FakeProvider("lambda", sold_out))
    assert result.outcome is Outcome.STORED
    assert result.changes == Changes(new=1, gone=1)


def test_a_held_price_is_kept_apart_again_and_again_until_a_person_takes_it(location: CacheLocation) -> None:
    dear = make_answer(make_offer(usd="100"))
    ask(location, FakeProvider("lambda", LAMBDA))
    for _ in range(2):
        (held,) = ask(location, FakeProvider("lambda", dear))
        assert len(held.held) == 1
        assert lambda_prices(location) == ["23.92"]
    (taken,) = ask(location, FakeProvider("lambda", dear), accept=True)
    assert len(taken.accepted) == 1
    assert lambda_prices(location) == ["100"]
    (after,) = ask(location, FakeProvider("lambda", dear))
    assert not after.held


def test_what_is_kept_apart_can_be_looked_at(location: CacheLocation) -> None:
    ask(location, FakeProvider("lambda", LAMBDA))
    ask(location, FakeProvider("lambda", make_answer(make_offer(usd="100"))))
    with open_for_reading(location) as store, store.reading() as connection:
        state = read_state(connection)
    assert state.held == {make_offer().key}
    assert [str(quote.offer.usd_per_hour) for quote in state.quotes.values()] == ["23.92"]


def test_a_provider_far_from_the_others_is_stored_with_a_warning(location: CacheLocation) -> None:
    (result,) = ask(location, FakeProvider("lambda", make_answer(make_offer(usd="8"))))
    assert result.outcome is Outcome.STORED
    assert [line.startswith("H100-SXM5-80GB on_demand: median 1.00 USD") for line in result.warnings] == [True]


def test_a_cache_that_cannot_be_kept_is_an_error_before_anybody_is_asked() -> None:
    def unexpected(_: FetchContext) -> Answer:
        raise AssertionError("asked although nothing can be kept")

    nowhere = locate({"COSTOPT_CACHE_URL": "sqlite:////proc/costopt/prices.sqlite"})
    with pytest.raises(CacheError, match="its directory cannot be made"):
        ask(nowhere, FakeProvider("lambda", unexpected))
