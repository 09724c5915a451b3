"""Turns the rows of a provider's reply into an Answer: one offer a key, and a count of every row without use."""

from collections import Counter
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Final, TypedDict, Unpack

from providers.base import Answer, Coverage
from providers.errors import InvalidAnswer, UnknownName
from providers.instance_types import describe
from providers.offers import Commitment, InstanceType, Offer, OfferKey, PurchaseOption, Trait
from providers.plausibility import not_a_price
from providers.units import USD_DECIMALS

_STEP: Final = Decimal(1).scaleb(-USD_DECIMALS)
_MOST_USD_PER_HOUR: Final = Decimal(1_000_000)
"""Beyond any machine: such a number is a fault of the reply, not a price to look at."""

_NOT_A_NUMBER: Final = Decimal("NaN")


class About(TypedDict, total=False):
    """What else a provider says of a machine, as `providers.instance_types.describe` takes it."""

    accelerator_memory_gib: float | None
    vcpus: float | None
    memory_gib: float | None
    network_gbit_per_s: float | None
    hosts: int
    traits: frozenset[Trait]


def usd(value: object) -> Decimal | None:
    """The exact price in a field of a reply; None when the field is absent or null, NaN when it is not a number."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float | Decimal):
        return _NOT_A_NUMBER
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return _NOT_A_NUMBER


def rounded(price: Decimal) -> Decimal:
    """A price per hour at the digits that are kept, without trailing zeros: 55.0400000000 is 55.04."""
    text = f"{price.quantize(_STEP):f}"
    return Decimal(text.rstrip("0").rstrip(".")) if "." in text else Decimal(text)


def require_texts(*values: object) -> None:
    """Raises ValueError for what is no text, or an empty one: a reply may hold anything where the API promises a name
    or an id, and the row is then counted by whoever catches this."""
    for value in values:
        if not isinstance(value, str) or not value:
            raise ValueError(f"{value!r} is no name")


class Tally:
    """Collects the offers of one answer. A key has one offer: the same row twice is counted, two prices for one key
    are an ambiguity that nobody resolves by taking the lower, the first or the last."""

    def __init__(self, provider: str, now: datetime) -> None:
        self.provider = provider
        self._today = now.date()
        self._offers: dict[OfferKey, Offer] = {}
        self._rejections: Counter[str] = Counter()
        self._unreadable: set[OfferKey] = set()
        self._ambiguous: set[OfferKey] = set()
        self._instance_types: set[str] = set()
        self._notes: dict[str, None] = {}

    @property
    def instance_types_seen(self) -> int:
        return len(self._instance_types)

    def reject(self, reason: str, rows: int = 1) -> None:
        self._rejections[reason] += rows

    def see(self, instance_type: str) -> None:
        """Counts an accelerator instance type as listed, whether or not it can be used."""
        self._instance_types.add(instance_type)

    def note(self, text: str) -> None:
        """Something that the user is told with the outcome; the same text is told once."""
        self._notes[text] = None

    def instance_type(
        self, name: str, accelerator_label: str, accelerator_count: float, **about: Unpack[About]
    ) -> InstanceType | None:
        """The accelerator machine of that name, counted as seen; None, and a rejection, when it cannot be described.
        Raises ValueError when the name is none."""
        require_texts(name, accelerator_label or "-")
        self.see(name)
        described = _described(self.provider, name, accelerator_label, accelerator_count, **about)
        if isinstance(described, InstanceType):
            return described
        self.reject(described)
        return None

    def offer(
        self,
        kind: InstanceType,
        price: Decimal | None,
        option: PurchaseOption,
        *,
        source: str,
        region: str | None,
        zone: str | None = None,
        commitment: Commitment | None = None,
        in_stock: bool | None = None,
        row_ids: Iterable[str] = (),
        effective_from: date | None = None,
        notes: str = "",
        problem: str = "",
    ) -> None:
        """Takes the offer, or counts why its price cannot be used; `problem` is what the caller saw wrong with it.

        A price that is implausible is taken too: the cache keeps it apart, where a person can look at it.
        Raises ValueError when a place or an id is no text.
        """
        ids = tuple(row_ids)
        require_texts(*ids, *(place for place in (region, zone) if place is not None))
        key = OfferKey(
            provider=kind.provider,
            instance_type=kind.name,
            region=region or "",
            zone=zone or "",
            purchase_option=option,
            commitment_kind=commitment.kind if commitment else "",
            commitment_variant=commitment.variant if commitment else "",
        )
        reason = problem or _why_not(price)
        if reason or price is None:
            self.unreadable(key, reason)
            return
        found = Offer(
            instance_type=kind,
            region=region,
            zone=zone,
            purchase_option=option,
            usd_per_hour=rounded(price),
            observed_on=self._today,
            source=source,
            commitment=commitment,
            in_stock=in_stock,
            row_ids=ids,
            effective_from=effective_from,
            notes=notes,
        )
        if key in self._ambiguous:
            self.reject("several prices for one offer")
        elif key not in self._offers:
            self._offers[key] = found
        elif self._offers[key].usd_per_hour == found.usd_per_hour:
            self.reject("same offer twice")
        else:
            del self._offers[key]
            self._ambiguous.add(key)
            self.unreadable(key, "several prices for one offer", rows=2)

    def unreadable(self, key: OfferKey, reason: str, rows: int = 1) -> None:
        """Counts rows of an offer that the provider lists, at a price that cannot be used."""
        self._unreadable.add(key)
        self.reject(reason, rows)

    def answer(self, coverage: Iterable[Coverage], sources: Iterable[str]) -> Answer:
        """All that was collected. Raises InvalidAnswer when the reply had no accelerator instance type at all."""
        if not self._instance_types:
            raise InvalidAnswer(self.provider, "the reply lists no accelerator instance type; earlier prices stay")
        return Answer(
            provider=self.provider,
            offers=tuple(offer for _, offer in sorted(self._offers.items())),
            coverage=tuple(coverage),
            instance_types_seen=len(self._instance_types),
            rejections=dict(sorted(self._rejections.items())),
            unreadable=frozenset(self._unreadable - self._offers.keys()),
            notes=tuple(self._notes),
            sources=tuple(sources),
        )


@lru_cache(maxsize=4096)
def _described(
    provider: str, name: str, accelerator_label: str, accelerator_count: float, **about: Unpack[About]
) -> InstanceType | str:
    """The machine, or why it cannot be described; kept, because a price list names it in every region."""
    try:
        return describe(provider, name, accelerator_label, accelerator_count, **about)
    except UnknownName:
        return f"accelerator without facts: {accelerator_label or 'not named'}"
    except ValueError:
        return "impossible accelerator count or memory"


def _why_not(price: Decimal | None) -> str:
    """Why there is no price to keep, or nothing."""
    if price is None:
        return "no price"
    reason = not_a_price(price)
    if reason:
        return reason
    if not _STEP <= price <= _MOST_USD_PER_HOUR:
        return f"price of less than {_STEP} or more than {_MOST_USD_PER_HOUR} USD per hour"
    return ""
