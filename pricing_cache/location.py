"""Turns `COSTOPT_CACHE_URL` into the places of the price cache: its database and its file of current offers."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from providers.errors import InvalidValue

VARIABLE: Final = "COSTOPT_CACHE_URL"
_SQLITE: Final = "sqlite:///"
_POSTGRESQL: Final = ("postgresql://", "postgres://", "postgresql+psycopg://")
_HINT: Final = "give sqlite:////absolute/path.sqlite or postgresql://user@host/database"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLocation:
    """Where one cache lives. `str()` names it for messages, without a password.

    `url` is libpq's and SQLAlchemy's, `database` the SQLite file (None for PostgreSQL), `compiled` the file of current
    offers that the planner reads.
    """

    url: str
    database: Path | None
    compiled: Path

    def __str__(self) -> str:
        return str(self.database) if self.database else _without_password(self.url)


def locate(environment: Mapping[str, str]) -> CacheLocation:
    """The cache that the environment names; without the variable a SQLite file in the user's cache directory.

    Raises InvalidValue for an URL that is neither SQLite's nor PostgreSQL's.
    """
    url = environment.get(VARIABLE, "").strip()
    if not url:
        return _sqlite(_user_cache() / "prices.sqlite")
    if url.startswith(_POSTGRESQL):
        return _postgresql("postgresql://" + url.split("://", 1)[1])
    path = url.removeprefix(_SQLITE)
    if path == url or not path or path.startswith((":memory:", "?")):
        raise InvalidValue(VARIABLE, _without_password(url), _HINT)
    return _sqlite(Path(path).expanduser())


def _sqlite(path: Path) -> CacheLocation:
    compiled = path.with_name(f"{path.name}.offers.json")
    return CacheLocation(url=f"{_SQLITE}{path}", database=path, compiled=compiled)


def _postgresql(url: str) -> CacheLocation:
    """The compiled file of a team's database stands in each user's own cache directory, under a name of its own."""
    import hashlib  # not on the way to a SQLite cache: start-up time

    digest = hashlib.sha256(_without_password(url).encode()).hexdigest()[:12]
    return CacheLocation(url=url, database=None, compiled=_user_cache() / f"postgresql-{digest}.offers.json")


def _user_cache() -> Path:
    from platformdirs import user_cache_path  # only where the default place is asked for: start-up time

    return user_cache_path("costopt", appauthor=False)


def _without_password(url: str) -> str:
    try:
        password = urlsplit(url).password
    except ValueError:
        return "(an URL that cannot be read)"
    return url.replace(f":{password}@", "@") if password else url
