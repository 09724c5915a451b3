"""The database: what goes in comes out, history stays, transactions are whole, and foreign files are left alone."""

import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from sqlalchemy import Connection, func, insert, inspect, select, text, update

from pricing_cache import store as store_module
from pricing_cache.location import CacheLocation, locate
from pricing_cache.observations import Outcome, Run, append_run, read_runs, read_state
from pricing_cache.refresh import Changes, keep_answer
from pricing_cache.schema import CACHE, OBSERVATIONS, Migration, bring_up_to_date
from pricing_cache.stamp import read_stamp
from pricing_cache.store import Store, open_for_reading, open_store
from providers.base import Coverage
from providers.errors import CacheError
from providers.offers import Offer, OfferKey, PurchaseOption
from tests.pricing_cache.builders import EVERYTHING, NOW, make_answer, make_offer, make_reserved, make_type


def in_use(store: Store, provider: str = "lambda") -> dict[OfferKey, Offer]:
    with store.reading() as connection:
        return {key: quote.offer for key, quote in read_state(connection, provider=provider).quotes.items()}


def rows(store: Store) -> int:
    with store.reading() as connection:
        return connection.execute(select(func.count()).select_from(OBSERVATIONS)).scalar_one()


def test_an_offer_comes_back_as_it_was_put_in_to_the_last_digit(store: Store) -> None:
    offers = (make_offer(usd="0.100"), make_reserved(), make_offer("other", region=None, zone=None, observed_on=None))
    keep_answer(store, make_answer(*offers, coverage=EVERYTHING), at=NOW)
    assert in_use(store) == {offer.key: offer for offer in offers}
    assert str(in_use(store)[offers[0].key].usd_per_hour) == "0.100"


def test_each_refresh_appends_and_no_earlier_price_is_overwritten(store: Store) -> None:
    for usd in ("20", "21", "21"):
        keep_answer(store, make_answer(make_offer(usd=usd)), at=NOW)
    with store.reading() as connection:
        prices = connection.execute(select(OBSERVATIONS.c.usd_per_hour).order_by(OBSERVATIONS.c.run_id)).scalars().all()
    assert prices == [Decimal(20), Decimal(21), Decimal(21)]


def test_a_refresh_that_fails_half_way_leaves_nothing(store: Store) -> None:
    keep_answer(store, make_answer(make_offer()), at=NOW)
    with pytest.raises(RuntimeError, match="half way"), store.writing() as (connection, run_id):
        append_run(connection, Run(id=run_id, provider="lambda", at=NOW, outcome=Outcome.STORED))
        raise RuntimeError("half way")
    with store.reading() as connection:
        assert [run.id for run in read_runs(connection)] == [1]


def test_an_offer_that_is_not_listed_any_more_is_gone_and_one_that_returns_is_back(store: Store) -> None:
    stays, leaves = make_offer("stays"), make_offer("leaves")
    keep_answer(store, make_answer(stays, leaves), at=NOW)
    second = keep_answer(store, make_answer(stays), at=NOW)
    assert second.changes.gone == 1
    assert set(in_use(store)) == {stays.key}
    keep_answer(store, make_answer(stays, leaves), at=NOW)
    assert set(in_use(store)) == {stays.key, leaves.key}


def test_an_answer_says_nothing_about_options_and_regions_that_it_does_not_cover(store: Store) -> None:
    spot = make_offer(purchase_option=PurchaseOption.SPOT)
    east, west = make_offer(region="us-east-1"), make_offer(region="us-west-1")
    keep_answer(store, make_answer(spot, east, west, coverage=EVERYTHING), at=NOW)
    part = Coverage(purchase_option=PurchaseOption.ON_DEMAND, regions=frozenset({"us-east-1"}))
    keep_answer(store, make_answer(coverage=(part,)), at=NOW)
    assert set(in_use(store)) == {spot.key, west.key}


def test_what_an_answer_spoke_for_is_kept_whole(store: Store) -> None:
    parts = (
        Coverage(purchase_option=PurchaseOption.SPOT, regions=frozenset({"us-west-2"}), zoned=False),
        Coverage(purchase_option=PurchaseOption.ON_DEMAND, except_types=frozenset({"ct4p-hightpu-4t"})),
        Coverage(purchase_option=PurchaseOption.RESERVED_1Y, instance_types=frozenset({"a", "b"})),
    )
    keep_answer(store, make_answer(make_offer(), coverage=parts), at=NOW)
    with store.reading() as connection:
        assert set(read_state(connection, provider="lambda").coverage["lambda"]) == set(parts)


def test_a_price_that_cannot_be_read_leaves_the_last_good_one_in_use(store: Store) -> None:
    offer = make_offer()
    keep_answer(store, make_answer(offer), at=NOW)
    result = keep_answer(store, make_answer(unreadable=frozenset({offer.key})), at=NOW)
    assert in_use(store) == {offer.key: offer}
    assert result.changes.gone == 0
    assert result.held[offer.key].reason == "the price in the reply cannot be used"


def test_changes_are_counted_against_what_was_in_use(store: Store) -> None:
    keep_answer(store, make_answer(make_offer("a"), make_offer("b"), make_offer("c")), at=NOW)
    result = keep_answer(store, make_answer(make_offer("a"), make_offer("b", usd="25"), make_offer("d")), at=NOW)
    assert result.changes == Changes(new=1, changed=1, unchanged=1, gone=1)


def test_a_machine_that_is_described_anew_keeps_its_offer_and_both_descriptions(store: Store) -> None:
    before = make_offer()
    after = replace(before, instance_type=make_type(vcpus=200.0))
    keep_answer(store, make_answer(before), at=NOW)
    keep_answer(store, make_answer(after), at=NOW)
    assert in_use(store) == {before.key: after}
    with store.reading() as connection:
        first = read_state(connection, through=1).quotes[before.key].offer
    assert first == before


def test_the_state_as_of_an_earlier_run_is_what_it_was(store: Store) -> None:
    keep_answer(store, make_answer(make_offer("a", usd="20"), make_offer("b")), at=NOW)
    keep_answer(store, make_answer(make_offer("a", usd="22")), at=NOW + timedelta(days=1))
    with store.reading() as connection:
        earlier = read_state(connection, through=1)
        now = read_state(connection)
    assert {key.instance_type: quote.offer.usd_per_hour for key, quote in earlier.quotes.items()} == {
        "a": Decimal(20),
        "b": Decimal("23.92"),
    }
    assert {key.instance_type for key in now.quotes} == {"a"}


def test_a_reader_does_not_wait_for_a_writer_and_sees_whole_runs_only(store: Store) -> None:
    keep_answer(store, make_answer(make_offer(usd="20")), at=NOW)
    with store.writing() as (connection, _):
        connection.execute(update(OBSERVATIONS).values(usd_per_hour=Decimal(1)))
        assert [offer.usd_per_hour for offer in in_use(store).values()] == [Decimal(20)]


def test_writers_queue_and_none_is_lost(location: CacheLocation) -> None:
    open_store(location)

    def write(number: int) -> None:
        with open_store(location) as store:
            for _ in range(5):
                keep_answer(store, make_answer(make_offer(f"machine-{number}")), at=NOW)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with open_for_reading(location) as store:
        assert rows(store) == 20
        with store.reading() as connection:
            assert [run.id for run in read_runs(connection)] == list(range(1, 21))
    stamp = read_stamp(location)
    assert stamp is not None
    assert stamp.generation == 20


def test_a_writer_that_waits_in_vain_says_that_another_process_writes(
    location: CacheLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "LONGEST_WAIT_S", 0.05)
    monkeypatch.setattr(store_module, "BUSY_TIMEOUT_S", 0.05)
    with open_store(location) as first, open_store(location) as second, first.writing():
        message = "another process has been writing to it for more than 0 s; try again"
        with pytest.raises(CacheError, match=message), second.writing():
            raise AssertionError("two writers at once")


def test_the_stamp_is_the_last_run_that_changed_prices(location: CacheLocation) -> None:
    assert read_stamp(location) is None
    with open_store(location) as store:
        keep_answer(store, make_answer(make_offer()), at=NOW)
        with store.writing() as (connection, run_id):
            append_run(connection, Run(id=run_id, provider="aws", at=NOW, outcome=Outcome.FAILED, message="down"))
    stamp = read_stamp(location)
    assert stamp is not None
    assert stamp.generation == 1


def test_an_older_schema_is_migrated_with_its_rows(store: Store) -> None:
    keep_answer(store, make_answer(make_offer()), at=NOW)

    def add_column(connection: Connection) -> None:
        connection.execute(text("ALTER TABLE costopt_runs ADD COLUMN machine VARCHAR"))

    steps = (Migration(version=1, apply=unexpected), Migration(version=2, apply=add_column))
    with store.writing() as (connection, _):
        bring_up_to_date(connection, migrations=steps, version=2)
        columns = {column["name"] for column in inspect(connection).get_columns("costopt_runs")}
        assert "machine" in columns
        assert connection.execute(select(CACHE.c.schema_version)).scalar_one() == 2
        assert connection.execute(select(func.count()).select_from(OBSERVATIONS)).scalar_one() == 1


def unexpected(connection: Connection) -> None:
    raise AssertionError("a step that the database already has was applied again")


def test_a_newer_schema_is_refused_and_says_so(location: CacheLocation) -> None:
    with open_store(location) as store, store.writing() as (connection, _):
        connection.execute(update(CACHE).values(schema_version=99))
    for use in (open_store, read_stamp):
        with pytest.raises(CacheError, match="its schema is 99, and this costopt knows 1"):
            use(location)


Break = Callable[[Path], None]


def not_a_database(path: Path) -> None:
    path.write_text("prices, but in a text file\n" * 100)


def another_programs(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()


@pytest.mark.parametrize("fill", [not_a_database, another_programs])
def test_a_file_that_is_no_cache_is_left_alone_and_the_error_names_the_way_out(
    sqlite_location: CacheLocation, fill: Break
) -> None:
    path = sqlite_location.database
    assert path is not None
    path.parent.mkdir(parents=True)
    fill(path)
    before = path.read_bytes()
    for use in (open_store, read_stamp):
        with pytest.raises(CacheError, match=r"prices\.sqlite: .*move the file away .* or set COSTOPT_CACHE_URL"):
            use(sqlite_location)
    assert path.read_bytes() == before


def test_a_path_may_hold_what_means_something_in_an_url(tmp_path: Path) -> None:
    location = locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path}/a b?c=d#e%20f/prices.sqlite"})
    with open_store(location) as store:
        keep_answer(store, make_answer(make_offer()), at=NOW)
    assert (tmp_path / "a b?c=d#e%20f" / "prices.sqlite").exists()
    with open_for_reading(location) as store:
        assert len(in_use(store)) == 1
    assert read_stamp(location) is not None


def test_a_database_that_was_damaged_is_an_error_with_the_way_out(sqlite_location: CacheLocation) -> None:
    path = sqlite_location.database
    assert path is not None
    with open_store(sqlite_location) as store:
        keep_answer(store, make_answer(*(make_offer(f"machine-{number}") for number in range(500))), at=NOW)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CacheError, match="malformed; move the file away"), open_store(sqlite_location) as store:
        in_use(store)


def test_other_tables_in_a_teams_database_do_not_matter(postgresql_location: CacheLocation) -> None:
    import psycopg

    with psycopg.connect(postgresql_location.url) as connection:
        connection.execute("CREATE TABLE offers (id INTEGER)")
    with open_store(postgresql_location) as store:
        keep_answer(store, make_answer(make_offer()), at=NOW)
        assert len(in_use(store)) == 1


def test_a_server_that_does_not_answer_is_an_error_without_the_password(tmp_path: Path) -> None:
    location = locate({"COSTOPT_CACHE_URL": f"postgresql://team:s3cret@/prices?host={tmp_path}"})
    for use in (open_store, read_stamp):
        with pytest.raises(CacheError, match="check the server and COSTOPT_CACHE_URL") as caught:
            use(location)
        assert "s3cret" not in str(caught.value)


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    location = locate({"COSTOPT_CACHE_URL": f"sqlite:///{tmp_path}/file/prices.sqlite"})
    with pytest.raises(CacheError, match="its directory cannot be made"):
        open_store(location)


def test_rows_refer_only_to_rows_that_are_there(store: Store) -> None:
    from sqlalchemy.exc import IntegrityError

    keep_answer(store, make_answer(make_offer()), at=NOW)
    row = {"offer_id": 999, "run_id": 1, "instance_type_id": 1, "citation_id": 1, "usd_per_hour": Decimal(1)}
    with pytest.raises(IntegrityError), store.writing() as (connection, _):
        connection.execute(insert(OBSERVATIONS).values(**row))
