"""Turns a listing of offers into what is printed: a table, JSON, CSV or Markdown."""

from collections.abc import Sequence
from typing import Final

from optimizer.api.json_text import json_text
from optimizer.api.listing import Listing, listing_document
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from providers.offers import Offer

_COLUMNS: Final = (
    "offer",
    "provider",
    "instance_type",
    "region",
    "zone",
    "purchase_option",
    "accelerator",
    "accelerator_count",
    "accelerator_memory_gib",
    "usd_per_hour",
    "usd_per_accelerator_hour",
    "as_of",
    "stale",
    "source",
)


def without_repeats(offers: Sequence[Offer]) -> list[Offer]:
    """The offers less those of a zone that cost what their region does."""
    regional = {_place(offer): offer.usd_per_hour for offer in offers if offer.zone is None}
    return [offer for offer in offers if offer.zone is None or regional.get(_place(offer)) != offer.usd_per_hour]


def _place(offer: Offer) -> tuple[object, ...]:
    """What an offer and that of its region have in common."""
    return (offer.provider, offer.instance_type.name, offer.region, offer.purchase_option, offer.commitment)


def render(listing: Listing, offers: Sequence[Offer], format_: str) -> str:
    """Those of the listing's offers in one of the formats."""
    document = listing_document(listing, offers)
    if format_ == "json":
        return json_text(document)
    if format_ == "csv":
        return csv_text(_COLUMNS, [[row[column] for column in _COLUMNS] for row in document["offers"]])
    parts: list[Table | str] = [
        _table(listing, offers),
        f"Prices: {listing.origin}. * = older than {listing.max_age_days:g} days, or without a date.",
    ]
    return terminal(parts) if format_ == "table" else markdown(parts)


def _table(listing: Listing, offers: Sequence[Offer]) -> Table:
    rows = [
        (
            offer.provider,
            offer.instance_type.name,
            offer.zone or offer.region or "any",
            f"{offer.instance_type.accelerator_count:g} x {offer.instance_type.accelerator}",
            offer.purchase_option.replace("_", " "),
            f"{offer.usd_per_hour:,.4f}",
            f"{offer.usd_per_accelerator_hour:,.4f}",
            f"{offer.observed_on or 'no date'}{'*' if listing.is_stale(offer) else ''}",
            ", ".join(
                [*sorted(offer.instance_type.traits), *(["fraction"] if offer.instance_type.is_fractional else [])]
            ),
        )
        for offer in offers
    ]
    columns = (
        "provider",
        "instance type",
        "region",
        "accelerators",
        "bought",
        "USD/h",
        "USD/GPU-h",
        "as of",
        "remarks",
    )
    return Table(title="Offers", columns=columns, rows=rows, right=frozenset({"USD/h", "USD/GPU-h"}))
