"""Prices over time and changes between two moments, on both databases."""

from datetime import date, timedelta
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from pricing_cache.history import Sighting, by_day, cached_sightings, changes, kept_apart, shipped_sightings
from pricing_cache.refresh import keep_answer
from pricing_cache.store import Store
from providers.offers import Offer
from tests.pricing_cache.builders import NOW, TODAY, make_answer, make_offer, make_type

DAY = timedelta(days=1)


def sighting(usd: str, *, day: date = TODAY, run_id: int | None = 1, name: str = "a", count: float = 8) -> Sighting:
    key = make_offer(name).key
    return Sighting(key=key, day=day, accelerator_count=count, usd_per_hour=Decimal(usd), run_id=run_id)


def test_a_day_has_the_lowest_and_the_median_per_accelerator_hour() -> None:
    (day,) = by_day([sighting("8", name="a"), sighting("16", name="b"), sighting("32", name="c", count=4)])
    assert (day.lowest, day.median, day.offers) == (Decimal(1), Decimal(2), 3)
    assert day.lowest_offer == make_offer("a").key


def test_a_day_with_several_refreshes_has_the_last_ones_prices() -> None:
    (day,) = by_day([sighting("8", run_id=1), sighting("16", run_id=2)])
    assert day.lowest == Decimal(2)


def test_the_shipped_snapshot_counts_only_for_days_without_a_refresh() -> None:
    earlier, later = by_day(
        [sighting("8", run_id=None), sighting("16", run_id=2), sighting("8", day=TODAY - DAY, run_id=None)]
    )
    assert (earlier.shipped, later.shipped) == (True, False)
    assert later.lowest == Decimal(2)


def test_a_shipped_price_without_a_date_is_no_point_in_time() -> None:
    assert shipped_sightings([make_offer(observed_on=None)]) == []


def test_the_cache_remembers_every_price_of_an_accelerator_and_no_other(store: Store) -> None:
    other = make_offer("other", instance_type=make_type(name="other", accelerator="A10"))
    for number, usd in enumerate(("20", "21")):
        offer = make_offer(usd=usd, observed_on=TODAY + number * DAY)
        keep_answer(store, make_answer(offer, other), at=NOW + number * DAY)
    with store.reading() as connection:
        found = cached_sightings(connection, accelerators=frozenset({"H100-SXM5-80GB"}))
    assert [(seen.day, seen.usd_per_hour, seen.run_id) for seen in found] == [
        (TODAY, Decimal(20), 1),
        (TODAY + DAY, Decimal(21), 2),
    ]


def test_a_price_without_a_date_is_of_the_day_of_its_refresh(store: Store) -> None:
    keep_answer(store, make_answer(make_offer(observed_on=None)), at=NOW)
    with store.reading() as connection:
        (seen,) = cached_sightings(connection, keys=frozenset({make_offer().key}))
    assert seen.day == TODAY


def test_the_history_of_an_offer_says_when_it_was_gone_and_back(store: Store) -> None:
    offer, other = make_offer(), make_offer("other")
    for number, listed in enumerate(([offer, other], [other], [offer, other])):
        keep_answer(store, make_answer(*listed), at=NOW + number * DAY)
    with store.reading() as connection:
        found = cached_sightings(connection, keys=frozenset({offer.key}))
    assert [seen.usd_per_hour for seen in found] == [Decimal("23.92"), None, Decimal("23.92")]


def test_what_is_kept_apart_is_what_the_newest_answer_had(store: Store) -> None:
    keep_answer(store, make_answer(make_offer(usd="20")), at=NOW)
    keep_answer(store, make_answer(make_offer(usd="100")), at=NOW)
    with store.reading() as connection:
        (entry,) = kept_apart(connection)
    assert (entry.usd_per_hour, entry.last_good_usd_per_hour) == (Decimal(100), Decimal(20))
    keep_answer(store, make_answer(make_offer(usd="21")), at=NOW)
    with store.reading() as connection:
        assert kept_apart(connection) == ()


def test_a_refused_answer_is_kept_apart_as_a_whole(store: Store) -> None:
    many = [make_offer(f"machine-{number}") for number in range(4)]
    keep_answer(store, make_answer(*many), at=NOW)
    keep_answer(store, make_answer(many[0]), at=NOW)
    with store.reading() as connection:
        (entry,) = kept_apart(connection)
    assert entry.reason == "the answer has 1 instance types, the last good one had 4"
    assert entry.usd_per_hour == many[0].usd_per_hour


def test_changes_are_up_down_new_and_gone() -> None:
    before = [make_offer("up", usd="10"), make_offer("down", usd="10"), make_offer("gone"), make_offer("same")]
    after = [make_offer("up", usd="11"), make_offer("down", usd="8"), make_offer("new"), make_offer("same")]
    found = {change.offer.instance_type.name: change for change in changes(before, after)}
    assert {name: change.kind for name, change in found.items()} == {
        "up": "up",
        "down": "down",
        "gone": "gone",
        "new": "new",
    }
    assert found["up"].ratio == Decimal("1.1")
    assert found["gone"].ratio is None


offers = st.lists(
    st.builds(make_offer, st.sampled_from("abcd"), st.sampled_from(["8.10", "9.20", "10.30"])),
    unique_by=lambda offer: offer.key,
)


@given(before=offers, after=offers)
def test_changes_read_backwards_are_the_opposite(before: list[Offer], after: list[Offer]) -> None:
    opposite = {"up": "down", "down": "up", "new": "gone", "gone": "new"}
    forwards = {change.offer.key: change.kind for change in changes(before, after)}
    backwards = {change.offer.key: change.kind for change in changes(after, before)}
    assert backwards == {key: opposite[kind] for key, kind in forwards.items()}
