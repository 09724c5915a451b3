"""Where the cache lives, by environment."""

from pathlib import Path

import pytest

from pricing_cache.location import locate
from providers.errors import InvalidValue


def test_the_default_is_a_file_in_the_users_cache_directory(tmp_path: Path) -> None:
    assert locate({}).database == tmp_path / "user-cache" / "costopt" / "prices.sqlite"


def test_a_sqlite_url_names_the_file_and_the_compiled_file_stands_beside_it() -> None:
    found = locate({"COSTOPT_CACHE_URL": "sqlite:////srv/prices.sqlite"})
    assert found.database == Path("/srv/prices.sqlite")
    assert found.compiled == Path("/srv/prices.sqlite.offers.json")


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_the_usual_spellings_of_a_postgresql_url_are_one(scheme: str) -> None:
    found = locate({"COSTOPT_CACHE_URL": f"{scheme}://team@db.example/prices"})
    assert found.url == "postgresql://team@db.example/prices"
    assert found.database is None


def test_two_servers_have_two_compiled_files() -> None:
    first, second = (locate({"COSTOPT_CACHE_URL": f"postgresql://team@{host}/prices"}) for host in ("one", "two"))
    assert first.compiled != second.compiled


def test_a_password_is_in_no_message_and_in_no_file_name() -> None:
    found = locate({"COSTOPT_CACHE_URL": "postgresql://team:s3cret@db.example/prices"})
    assert str(found) == "postgresql://team@db.example/prices"
    assert found.compiled == locate({"COSTOPT_CACHE_URL": "postgresql://team@db.example/prices"}).compiled
    with pytest.raises(InvalidValue) as caught:
        locate({"COSTOPT_CACHE_URL": "mysql://team:s3cret@db.example/prices"})
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["mysql://db/prices", "prices.sqlite", "sqlite:///", "sqlite:///:memory:", "sqlite://x"]
)
def test_anything_else_is_refused_with_what_would_do(url: str) -> None:
    with pytest.raises(InvalidValue, match=r"give sqlite:////absolute/path\.sqlite or postgresql://"):
        locate({"COSTOPT_CACHE_URL": url})
