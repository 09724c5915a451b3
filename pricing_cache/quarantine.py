"""Turns a provider's answer and its last good prices into a verdict: what may be used, and what is kept apart."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from statistics import median
from typing import Final

from providers.base import Answer
from providers.offers import Offer, OfferKey
from providers.plausibility import implausible

LARGEST_PRICE_FACTOR: Final = 3
"""A price further from the same offer's last good one than this factor is a fault until a person says otherwise."""

SMALLEST_SHARE_OF_TYPES: Final = Decimal("0.5")
"""An answer with a smaller share of the last good answer's instance types is taken for a broken one."""

LARGEST_FACTOR_OFF_OTHERS: Final = 3
"""Only a warning: sellers differ truly (RunPod's community H100 is a quarter of the hyperscalers' median)."""

AMBIGUOUS: Final = "listed twice at different prices"
UNREADABLE: Final = "the price in the reply cannot be used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One price kept apart: why, the offer at that price (None = unreadable), and the price that stays in use."""

    reason: str
    offer: Offer | None
    last_good_usd_per_hour: Decimal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What becomes of an answer.

    `refusal` is the reason why nothing of it is used, or empty. `usable` has the offers to use, `held` those kept
    apart one by one. `accepted` has the reasons, by offer or for the whole answer, that a person overrode.
    """

    refusal: str
    usable: Mapping[OfferKey, Offer]
    held: Mapping[OfferKey, Held]
    accepted: tuple[str, ...] = ()


def judge(
    answer: Answer, last_good: Mapping[OfferKey, Offer], last_types_seen: int | None, *, accept: bool = False
) -> Verdict:
    """The verdict on an answer, given the prices in use from earlier answers and the types that the last one had.

    `last_types_seen` None = there is no earlier answer. Of its instance types only those count that this answer speaks
    for: one that was asked for fewer regions is no broken one. `accept` takes what the rules hold; what cannot be read
    stays out in any case.
    """
    listed, ambiguous = _by_key(answer.offers)
    suspicious = {key: found for key, offer in listed.items() if (found := _suspicion(offer, last_good.get(key)))}
    unusable = ambiguous | {key: Held(reason=UNREADABLE, offer=None) for key in answer.unreadable}
    spoken_for = len({key.instance_type for key in last_good if answer.supersedes(key)})
    refusal = _refusal(answer.instance_types_seen, min(last_types_seen or 0, spoken_for))
    held = unusable if accept else suspicious | unusable
    overridden = [f"{key}: {entry.reason}" for key, entry in suspicious.items() if key not in unusable]
    return Verdict(
        refusal="" if accept else refusal,
        usable={key: offer for key, offer in listed.items() if key not in held},
        held=held,
        accepted=tuple(filter(None, [refusal, *overridden])) if accept else (),
    )


def far_off_others(offers: Iterable[Offer], others: Iterable[Offer]) -> tuple[str, ...]:
    """Warnings on accelerators that one provider sells far from what the others ask under the same purchase option.

    Compares medians per accelerator-hour; says nothing where no other provider sells the same.
    """
    own, market = _prices_by_product(offers), _prices_by_product(others)
    warnings = []
    for (accelerator, option), prices in sorted(own.items()):
        if (accelerator, option) not in market:
            continue
        ours, theirs = median(prices), median(market[accelerator, option])
        if max(ours / theirs, theirs / ours) > LARGEST_FACTOR_OFF_OTHERS:
            warnings.append(
                f"{accelerator} {option}: median {ours:.2f} USD per accelerator-hour, other providers {theirs:.2f}"
            )
    return tuple(warnings)


def _by_key(offers: Iterable[Offer]) -> tuple[dict[OfferKey, Offer], dict[OfferKey, Held]]:
    """Offers by key, and the keys that have more than one price: which of them is right cannot be known."""
    listed: dict[OfferKey, Offer] = {}
    ambiguous: dict[OfferKey, Held] = {}
    for offer in offers:
        first = listed.setdefault(offer.key, offer)
        if first.usd_per_hour != offer.usd_per_hour:
            ambiguous[offer.key] = Held(reason=AMBIGUOUS, offer=offer)
    return listed, ambiguous


def _refusal(types_seen: int, types_before: int) -> str:
    if types_seen == 0:
        return "the answer has no accelerator instance type at all"
    if types_seen < SMALLEST_SHARE_OF_TYPES * types_before:
        return f"the answer has {types_seen} instance types, the last good one had {types_before}"
    return ""


def _suspicion(offer: Offer, last_good: Offer | None) -> Held | None:
    """Why an offer's price is held, or None. A person's earlier acceptance of an odd price holds for its like."""
    kind, price = offer.instance_type, offer.usd_per_hour
    if last_good is None:
        reason = implausible(price, kind)
        return Held(reason=reason, offer=offer) if reason else None
    before = last_good.usd_per_hour
    reason = None
    if price > before * LARGEST_PRICE_FACTOR:
        reason = f"more than {LARGEST_PRICE_FACTOR} x above its last good price"
    elif price * LARGEST_PRICE_FACTOR < before:
        reason = f"more than {LARGEST_PRICE_FACTOR} x below its last good price"
    elif not implausible(before, last_good.instance_type):
        reason = implausible(price, kind)
    return Held(reason=reason, offer=offer, last_good_usd_per_hour=before) if reason else None


def _prices_by_product(offers: Iterable[Offer]) -> dict[tuple[str, str], list[Decimal]]:
    prices: dict[tuple[str, str], list[Decimal]] = defaultdict(list)
    for offer in offers:
        prices[offer.instance_type.accelerator, offer.purchase_option].append(offer.usd_per_accelerator_hour)
    return prices
