"""A process that refreshes a cache again and again, to be killed or to run beside others: `URL PROVIDER OFFERS TIMES`.

Each refresh gives all its offers one price, one step above that of the refresh before, and is followed by a read of the
offers in use. It prints a line when it begins and `done` at its end.
"""

import sys
from decimal import Decimal

from pricing_cache.current import load_current
from pricing_cache.location import locate
from pricing_cache.observations import Outcome
from pricing_cache.refresh import refresh
from providers.offers import OfferKey
from tests.pricing_cache.builders import EVERYTHING, FakeProvider, adapters, make_answer, make_context, make_offer

LOWEST_USD = Decimal(20)
STEP_USD = Decimal("0.001")


def prices_in_use(url: str, provider: str) -> dict[OfferKey, Decimal]:
    book = load_current(locate({"COSTOPT_CACHE_URL": url}))
    return {
        offer.key: offer.usd_per_hour
        for offer in book.offers
        if offer.provider == provider and offer.instance_type.name.startswith("machine-")
    }


def main(url: str, provider: str, offers: int, times: int) -> None:
    print("begins", flush=True)
    price = max(prices_in_use(url, provider).values(), default=LOWEST_USD)
    for _ in range(times):
        price += STEP_USD
        listed = [make_offer(f"machine-{number}", usd=str(price), provider=provider) for number in range(offers)]
        answer = make_answer(*listed, provider=provider, coverage=EVERYTHING)
        (result,) = refresh(
            locate({"COSTOPT_CACHE_URL": url}),
            [provider],
            lambda _: make_context(),
            adapter_of=adapters(FakeProvider(provider, answer)),
        )
        if result.outcome is not Outcome.STORED:
            raise AssertionError(f"not stored: {result}")
        seen = set(prices_in_use(url, provider).values())
        if seen != {price}:
            raise AssertionError(f"stored at {price}, planned at {seen}")
    print("done", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
