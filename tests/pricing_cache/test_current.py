"""The offers in use: cache over snapshot, and a compiled file that can never disagree with the database."""

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pricing_cache import current
from pricing_cache.compiled import OfferBook
from pricing_cache.current import current_book, load_as_of, load_current, rebuild
from pricing_cache.location import CacheLocation, locate
from pricing_cache.query import current_offers
from pricing_cache.refresh import keep_answer
from pricing_cache.snapshot import snapshot
from pricing_cache.store import open_for_reading, open_store
from providers.base import Coverage
from providers.errors import CacheError, NoUsablePrices
from providers.offers import Offer, PurchaseOption
from tests.pricing_cache.builders import EVERYTHING, NOW, ON_DEMAND, make_answer, make_offer

DAY = timedelta(days=1)


def keep(location: CacheLocation, *offers: Offer, at: datetime = NOW, **over: Any) -> None:
    with open_store(location) as store:
        keep_answer(store, make_answer(*offers, **over), at=at)


def from_database(location: CacheLocation) -> OfferBook:
    with open_for_reading(location) as store, store.reading() as connection:
        return current_book(connection)


def prices(book: OfferBook, name: str = "test_8x_h100") -> list[Decimal]:
    return [offer.usd_per_hour for offer in book.offers if offer.instance_type.name == name]


def shipped(provider: str = "lambda") -> list[Offer]:
    return [offer for offer in snapshot().offers if offer.provider == provider]


def of_provider(book: OfferBook, provider: str = "lambda") -> set[str]:
    return {str(offer.key) for offer in book.offers if offer.provider == provider}


def test_without_a_cache_the_snapshot_is_what_there_is(location: CacheLocation) -> None:
    assert load_current(location) == snapshot()
    assert not location.compiled.exists()


def test_after_a_refresh_the_cache_stands_over_the_snapshot_and_the_floor_is_labelled(location: CacheLocation) -> None:
    keep(location, make_offer())
    book = load_current(location)
    assert prices(book) == [Decimal("23.92")]
    assert of_provider(book, "aws") == of_provider(snapshot(), "aws")
    labels = {offer.source.startswith("shipped snapshot: ") for offer in book.offers if offer.provider == "aws"}
    assert labels == {True}
    assert book.header["from_snapshot"] == len(book.offers) - 1


def test_what_an_answer_covers_and_does_not_list_does_not_come_back_from_the_snapshot(location: CacheLocation) -> None:
    keep(location, make_offer())
    assert of_provider(load_current(location)) == {str(make_offer().key)}


def test_the_floor_stays_for_purchase_options_that_no_answer_covered(location: CacheLocation) -> None:
    spot = {str(offer.key) for offer in shipped("gcp") if offer.purchase_option is PurchaseOption.SPOT}
    offer = make_offer(provider="gcp")
    keep(location, offer, provider="gcp", coverage=ON_DEMAND)
    found = of_provider(load_current(location), "gcp")
    assert spot <= found
    assert not any(key.endswith("/on_demand") for key in found - {str(offer.key)})


def test_a_shipped_price_stays_in_use_while_the_live_one_is_held(location: CacheLocation) -> None:
    kept, lost = shipped()[:2]
    odd = replace(kept, usd_per_hour=Decimal(100_000))
    keep(location, odd)
    book = load_current(location)
    assert [o.usd_per_hour for o in book.offers if o.key == kept.key] == [kept.usd_per_hour]
    assert lost.key not in {offer.key for offer in book.offers}


def test_an_offer_that_is_gone_stays_gone_after_later_refreshes_of_other_parts(location: CacheLocation) -> None:
    gone = shipped("gcp")[0]
    keep(location, provider="gcp", coverage=EVERYTHING)
    narrow = (Coverage(purchase_option=gone.purchase_option, regions=frozenset({"elsewhere"})),)
    keep(location, provider="gcp", coverage=narrow)
    assert of_provider(load_current(location), "gcp") == set()


@pytest.mark.shipped_snapshot
def test_the_compiled_file_is_read_without_a_database_layer(sqlite_location: CacheLocation) -> None:
    keep(sqlite_location, make_offer())
    rebuild(sqlite_location)
    code = (
        "import sys; from pricing_cache.query import current_offers; book = current_offers();"
        "print(book.origin, 'sqlalchemy' in sys.modules)"
    )
    environment = {"COSTOPT_CACHE_URL": sqlite_location.url}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["price", "cache", "False"]


def test_the_compiled_file_gives_what_the_database_holds(location: CacheLocation) -> None:
    keep(location, make_offer(), make_offer("b", region=None, usd="1.10", in_stock=False), coverage=EVERYTHING)
    rebuild(location)
    as_compiled = [replace(offer, row_ids=(), effective_from=None) for offer in from_database(location).offers]
    assert list(load_current(location).offers) == as_compiled


def test_a_refresh_that_died_before_it_compiled_is_noticed(location: CacheLocation) -> None:
    keep(location, make_offer(usd="20"))
    rebuild(location)
    keep(location, make_offer(usd="21"))
    assert prices(load_current(location)) == [Decimal(21)]


def test_a_compiled_file_that_was_written_late_by_a_slower_process_is_noticed(location: CacheLocation) -> None:
    keep(location, make_offer(usd="20"))
    rebuild(location)
    late = location.compiled.read_bytes()
    keep(location, make_offer(usd="21"))
    rebuild(location)
    location.compiled.write_bytes(late)
    assert prices(load_current(location)) == [Decimal(21)]


def test_a_database_that_was_replaced_by_another_of_the_same_generation_is_noticed(tmp_path: Path) -> None:
    first, second = (locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path}/{name}.sqlite"}) for name in ("one", "two"))
    for place, usd in ((first, "20"), (second, "21")):
        keep(place, make_offer(usd=usd))
        rebuild(place)
    first.compiled.write_bytes(second.compiled.read_bytes())
    assert prices(load_current(first)) == [Decimal(20)]


def test_a_damaged_compiled_file_is_made_again(location: CacheLocation) -> None:
    keep(location, make_offer())
    rebuild(location)
    whole = location.compiled.read_text(encoding="utf-8")
    for damaged in ("", "{", whole[: len(whole) // 2], "[]", '{"schema": 1}', "\x00"):
        location.compiled.write_text(damaged, encoding="utf-8")
        assert prices(load_current(location)) == [Decimal("23.92")]
        assert location.compiled.read_text(encoding="utf-8") == whole


def test_what_a_killed_process_left_half_written_is_swept_up_and_a_running_ones_file_is_not(
    sqlite_location: CacheLocation,
) -> None:
    keep(sqlite_location, make_offer())
    compiled = sqlite_location.compiled
    old, fresh = (compiled.with_name(f"{compiled.name}{name}.tmp") for name in ("old", "fresh"))
    for left_over in (old, fresh):
        left_over.write_text("half")
    os.utime(old, (0, 0))
    rebuild(sqlite_location)
    assert (old.exists(), fresh.exists()) == (False, True)


def test_a_new_release_with_another_snapshot_is_noticed(
    location: CacheLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(location, make_offer())
    rebuild(location)
    newer = OfferBook(origin="shipped snapshot", offers=(make_offer("shipped", provider="aws"),))
    monkeypatch.setattr(current, "snapshot", lambda: newer)
    monkeypatch.setattr(current, "snapshot_digest", lambda: "of a newer release")
    assert {offer.instance_type.name for offer in load_current(location).offers} == {"test_8x_h100", "shipped"}


steps = st.lists(
    st.sampled_from(["refresh", "compile", "keep a copy", "put the copy back", "damage", "remove"]), max_size=8
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_no_order_of_writes_copies_and_damage_makes_the_planner_read_other_than_the_database(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    monkeypatch.setattr(current, "snapshot", lambda: OfferBook(origin="shipped snapshot", offers=()))
    place = locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path_factory.mktemp('cache')}/prices.sqlite"})
    keep(place, make_offer(usd="20"))
    copy: bytes | None = None
    for number, step in enumerate(steps):
        match step:
            case "refresh":
                keep(place, make_offer(usd=f"{20 + number}"))
            case "compile":
                rebuild(place)
            case "keep a copy":
                copy = place.compiled.read_bytes() if place.compiled.exists() else None
            case "put the copy back":
                place.compiled.write_bytes(copy or b"")
            case "damage":
                place.compiled.write_bytes(b"{}")
            case "remove":
                place.compiled.unlink(missing_ok=True)
        assert prices(load_current(place)) == prices(from_database(place))


def test_a_folder_that_cannot_be_written_is_a_warning_and_prices_come_from_the_database(
    location: CacheLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(location, make_offer())

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(current, "write_offers", refuse)
    book = load_current(location)
    assert prices(book) == [Decimal("23.92")]
    assert ["cannot be written (Permission denied)" in line for line in book.header["warnings"]] == [True]


def test_a_place_where_no_cache_can_be_made_is_a_warning_and_prices_are_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    book = current_offers({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path}/file/prices.sqlite"})
    assert book.offers == snapshot().offers
    assert "prices are those of the shipped snapshot" in book.header["warnings"][0]


READ_BY_SOMEBODY_ELSE = """
import os
from pricing_cache import observations, store
from pricing_cache.query import current_offers
from pricing_cache.snapshot import snapshot, snapshot_digest
snapshot(), snapshot_digest()  # while the interpreter's own files can be read
if os.geteuid() == 0:
    os.seteuid(65534)  # root could write anywhere
book = current_offers()
print(book.header["generation"], "cannot be written" in book.header["warnings"][0])
"""


@pytest.mark.shipped_snapshot
def test_a_cache_in_a_folder_that_its_reader_cannot_write_is_read_with_a_warning() -> None:
    folder = Path(tempfile.mkdtemp(prefix="costopt-read-only-"))
    place = locate({"COSTOPT_CACHE_URL": f"sqlite:///{folder}/prices.sqlite"})
    keep(place, make_offer())
    (folder / "prices.sqlite").chmod(0o444)
    folder.chmod(0o555)
    try:
        done = subprocess.run(
            [sys.executable, "-c", READ_BY_SOMEBODY_ELSE],
            env={"COSTOPT_CACHE_URL": place.url},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)
    assert done.stdout == "1 True\n", done.stderr


def test_offline_the_last_compiled_prices_of_a_server_are_used_and_said_to_be(tmp_path: Path) -> None:
    away = locate({"COSTOPT_CACHE_URL": f"postgresql://team@/prices?host={tmp_path}"})
    with pytest.raises(CacheError, match="check the server"):
        load_current(away)
    assert load_current(away, offline=True).offers == snapshot().offers
    assert load_current(away, offline=True).header["warnings"]


def test_as_of_a_past_day_prices_are_those_known_on_that_day(location: CacheLocation) -> None:
    keep(location, make_offer(usd="20"), make_offer("gone later"), at=NOW - 10 * DAY)
    keep(location, make_offer(usd="22"), at=NOW)
    assert prices(load_as_of(location, (NOW - 10 * DAY).date())) == [Decimal(20)]
    assert prices(load_as_of(location, (NOW - DAY).date()), "gone later") == [Decimal("23.92")]
    assert prices(load_as_of(location, NOW.date())) == [Decimal(22)]
    assert prices(load_as_of(location, NOW.date()), "gone later") == []


def test_as_of_a_day_before_the_cache_the_snapshots_rows_of_that_time_are_used(location: CacheLocation) -> None:
    keep(location, make_offer(), at=NOW)
    day = date(2026, 8, 31)
    book = load_as_of(location, day)
    assert book.offers
    assert all(offer.observed_on is not None and offer.observed_on <= day for offer in book.offers)
    assert book.header["undated_left_out"] == sum(offer.observed_on is None for offer in snapshot().offers)


def test_as_of_a_day_on_which_nothing_was_known_there_are_no_usable_prices(location: CacheLocation) -> None:
    with pytest.raises(NoUsablePrices, match="no price is known as of 2020-01-01"):
        load_as_of(location, date(2020, 1, 1))
