"""Turns a provider's name into an adapter, and says what an adapter is given and what it answers."""

import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol, cast

from providers.errors import InvalidAnswer, UnknownName, nearest
from providers.offers import PROVIDERS, CommitmentKind, Offer, OfferKey, PurchaseOption

if TYPE_CHECKING:
    from providers.recorder import Recorder

_MODULES: Final = MappingProxyType(
    {name: f"providers.{name}" for name in PROVIDERS} | {"lambda": "providers.lambda_cloud"}
)
"""`lambda` is a keyword of the language, so its module has a longer name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Offers that an answer speaks for: what it does not list among them is no longer sold.

    None means every one: every commitment kind, every region, every instance type but `except_types`.
    `zoned` False leaves out offers of single zones: a price by region says nothing of them.
    """

    purchase_option: PurchaseOption
    commitment_kind: CommitmentKind | None = None
    regions: frozenset[str] | None = None
    instance_types: frozenset[str] | None = None
    except_types: frozenset[str] = frozenset()
    zoned: bool = True

    def includes(self, key: OfferKey) -> bool:
        return (
            key.purchase_option == self.purchase_option
            and (self.commitment_kind is None or key.commitment_kind == self.commitment_kind)
            and (self.regions is None or key.region in self.regions)
            and (self.instance_types is None or key.instance_type in self.instance_types)
            and key.instance_type not in self.except_types
            and (self.zoned or not key.zone)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one provider sells today, and what of its reply could not be used.

    `offers` have one row per key. `rejections` counts rows by reason; `unreadable` are keys of offers that the reply
    lists at a price that cannot be used: they are not gone, their last good price stays. `instance_types_seen`
    counts accelerator instance types, priced or not. `notes` are for the user, `sources` cite the calls and filters.
    """

    provider: str
    offers: tuple[Offer, ...]
    coverage: tuple[Coverage, ...]
    instance_types_seen: int
    rejections: Mapping[str, int] = field(default_factory=dict)
    unreadable: frozenset[OfferKey] = frozenset()
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()

    @property
    def covered(self) -> frozenset[PurchaseOption]:
        """The purchase options that the answer speaks for, at least in part."""
        return frozenset(part.purchase_option for part in self.coverage)

    def supersedes(self, key: OfferKey) -> bool:
        """Whether an older offer with this key is replaced, or gone when no offer of the answer has the key."""
        return key not in self.unreadable and any(part.includes(key) for part in self.coverage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one provider's fetch, in seconds, bytes and pages; a reply beyond them is an error, not cut."""

    total_s: float = 600.0
    connect_s: float = 10.0
    read_s: float = 60.0
    attempts: int = 5
    longest_wait_s: float = 60.0
    reply_bytes: int = 256 * 1024**2
    streamed_bytes: int = 8 * 1024**3
    pages: int = 1_000


Progress = Callable[[str], None]
"""Called with one short line when a fetch moves on; must be cheap and thread-safe."""


def no_progress(line: str) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchContext:
    """All that a fetch may know of the world: nothing is read from the process around it.

    `environment` holds credentials, `COSTOPT_<PROVIDER>_BASE_URL` and each SDK's own variables. `now` is an aware
    datetime: the day of the offers. `regions` narrows the fetch to these of the provider's regions (ids of other
    providers are passed over); empty = what the adapter reads by default.
    `monotonic` and `sleep` measure and wait for deadlines and retries.
    """

    environment: Mapping[str, str]
    now: datetime
    regions: tuple[str, ...] = ()
    progress: Progress = no_progress
    limits: Limits = Limits()
    recorder: "Recorder | None" = None
    monotonic: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


class Provider(Protocol):
    """One seller's adapter."""

    @property
    def name(self) -> str:
        """The name that offers carry: aws, gcp, azure, lambda, runpod."""

    def fetch(self, context: FetchContext) -> Answer:
        """Asks the seller's API what it sells now.

        Raises MissingCredentials (skipped, says what to set), ProviderUnavailable (network, status, deadline) or
        InvalidAnswer (the reply as a whole is not what the API promises). One bad row is a rejection, not an error.
        """


def own_regions(provider_name: str, regions: tuple[str, ...], form: re.Pattern[str]) -> tuple[str, ...]:
    """Those of `regions` that are written as the provider writes its own. Raises InvalidAnswer when none is left of
    some: then there is nothing to ask, which is not the same as to ask for everything."""
    own = tuple(region for region in regions if form.fullmatch(region))
    if regions and not own:
        raise InvalidAnswer(provider_name, f"none of these is one of its regions: {', '.join(regions)}")
    return own


def home(environment: Mapping[str, str]) -> Path:
    """The user's directory, where SDKs keep their profiles; one that cannot exist where the environment names none."""
    return Path(environment.get("HOME") or environment.get("USERPROFILE") or os.devnull)


def provider(name: str) -> Provider:
    """The adapter of that name; only its module is imported. Raises UnknownName."""
    if name not in _MODULES:
        raise UnknownName("provider", name, nearest(name, PROVIDERS), f"providers: {', '.join(PROVIDERS)}")
    return cast(Provider, import_module(_MODULES[name]).ADAPTER)


def all_providers() -> tuple[Provider, ...]:
    """Every adapter, in the order in which providers are shown; imports them all."""
    return tuple(provider(name) for name in PROVIDERS)
