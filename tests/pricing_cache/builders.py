"""Builds offers, answers and adapters for the cache's tests, each with one field changed where a test says so."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from providers.base import Answer, Coverage, FetchContext, Limits
from providers.offers import Commitment, CommitmentKind, InstanceType, Offer, PurchaseOption

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
TODAY = NOW.date()
ON_DEMAND = (Coverage(purchase_option=PurchaseOption.ON_DEMAND),)
EVERYTHING = tuple(Coverage(purchase_option=option) for option in PurchaseOption)


def make_type(**over: Any) -> InstanceType:
    fields: dict[str, Any] = {
        "provider": "lambda",
        "name": "test_8x_h100",
        "accelerator": "H100-SXM5-80GB",
        "accelerator_count": 8,
        "link": "nvlink",
        "vcpus": 208.0,
        "memory_gib": 1800.0,
    }
    return InstanceType(**fields | over)


def make_offer(name: str = "test_8x_h100", usd: str = "23.92", **over: Any) -> Offer:
    fields: dict[str, Any] = {
        "instance_type": make_type(name=name, provider=over.pop("provider", "lambda")),
        "region": "us-west-1",
        "zone": None,
        "purchase_option": PurchaseOption.ON_DEMAND,
        "usd_per_hour": Decimal(usd),
        "observed_on": TODAY,
        "source": "GET /api/v1/instance-types",
        "row_ids": (f"row-of-{name}",),
    }
    return Offer(**fields | over)


def make_reserved(**over: Any) -> Offer:
    """A three-year commitment with a part paid upfront and a date from which it is charged."""
    commitment = Commitment(
        kind=CommitmentKind.SAVINGS_PLAN, term_months=36, upfront_usd=Decimal("1234.5000"), variant="partial upfront"
    )
    fields: dict[str, Any] = {
        "purchase_option": PurchaseOption.RESERVED_3Y,
        "commitment": commitment,
        "effective_from": date(2026, 11, 16),
        "in_stock": False,
        "notes": "a note",
    }
    return make_offer(usd="11.960000", **fields | over)


def make_answer(*offers: Offer, **over: Any) -> Answer:
    fields: dict[str, Any] = {
        "provider": "lambda",
        "offers": offers,
        "coverage": ON_DEMAND,
        "instance_types_seen": max(1, len({offer.instance_type.name for offer in offers})),
        "sources": ("GET /api/v1/instance-types",),
    }
    return Answer(**fields | over)


class FakeProvider:
    """An adapter that answers what it is given, or raises it."""

    def __init__(self, name: str, outcome: Answer | Exception | Callable[[FetchContext], Answer]) -> None:
        self.name = name
        self._outcome = outcome

    def fetch(self, context: FetchContext) -> Answer:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome if isinstance(self._outcome, Answer) else self._outcome(context)


def adapters(*fakes: FakeProvider) -> Callable[[str], FakeProvider]:
    by_name = {fake.name: fake for fake in fakes}
    return lambda name: by_name[name]


def make_context(name: str = "lambda", **over: Any) -> FetchContext:
    fields: dict[str, Any] = {"environment": {}, "now": NOW, "limits": Limits(total_s=60.0)}
    return FetchContext(**fields | over)


def repriced(offers: Iterable[Offer], factor: str) -> tuple[Offer, ...]:
    return tuple(replace(offer, usd_per_hour=offer.usd_per_hour * Decimal(factor)) for offer in offers)
