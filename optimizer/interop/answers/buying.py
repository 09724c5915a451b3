"""Turns the accelerators that a file asks for into the offer that they are bought as, and what keeps them from it."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final

from optimizer.interop.asks import CLUSTERS, Ask, Fault, Wish
from providers.accelerators import resolve
from providers.errors import nearest
from providers.networks import network_of
from providers.offers import PROVIDERS, InstanceType, Offer, PurchaseOption

_WITHOUT_SPOT: Final = frozenset({"lambda"})
"""Providers that sell everything on demand or reserved only (Lambda's documentation of instances, read 2026-11-30)."""

_PLACES_NAMED: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Market:
    """Offers that may be bought, on demand and spot, and all that are on file, to say what is sold at all."""

    offers: Sequence[Offer]
    on_file: Sequence[Offer]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bought:
    """The cheapest offer that has the accelerators, how many instances of it run, and what is wrong with it."""

    offer: Offer | None
    machines: int
    faults: tuple[Fault, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Whether something keeps them from being bought."""
        return any(fault.fatal for fault in self.faults)

    @property
    def usd_per_hour(self) -> Decimal:
        """Of all machines; 0 where no offer is known."""
        return Decimal(0) if self.offer is None else self.offer.usd_per_hour * self.machines


def wishes_of(ask: Ask, market: Market) -> tuple[tuple[Wish, ...], list[Fault]]:
    """The file's accelerators, or those of the instance type that it names; a type that does not have them is told."""
    kind, faults = _named_type(ask, market)
    if ask.wishes:
        if kind is not None:
            faults += _type_faults(ask, kind)
        return ask.wishes, faults
    if ask.instance_type is None:
        if not any(fault.fatal for fault in ask.faults):
            faults.append(Fault(line=None, what="the file names no accelerators", fix="give --gpu NAME"))
        return (), faults
    if kind is None:
        return (), faults
    count = ask.accelerators_per_machine or max(1, round(kind.accelerator_count))
    line = ask.lines.get("instance_type") or ask.lines.get("place")
    return (Wish(named=kind.name, accelerator=resolve(kind.accelerator), count=count, line=line),), faults


def place_faults(ask: Ask, market: Market) -> Iterator[Fault]:
    """What is wrong with the provider and the region that the file names."""
    line = ask.lines.get("place")
    if ask.provider is not None and ask.provider not in (*PROVIDERS, *CLUSTERS):
        near = nearest(ask.provider, PROVIDERS)
        known = f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(PROVIDERS)}"
        yield Fault(line=line, what=f"prices of {ask.provider} are not kept here", fix=known, fatal=False)
    elif ask.region is not None:
        regions = {
            place
            for offer in market.on_file
            if ask.provider in (None, offer.provider)
            for place in (offer.region, offer.zone)
            if place
        }
        if ask.region not in regions:
            near = nearest(ask.region, regions)
            fix = f"nearest: {', '.join(near)}" if near else "`costopt offers` lists them"
            yield Fault(line=line, what=f"no region {ask.region!r} is on file", fix=fix, fatal=False)


def bought(ask: Ask, one: Wish, market: Market) -> Bought:
    """How the accelerators are bought: in the cheapest of the wish's places, or in the file's.

    What keeps them from being bought in another place is a note where one place has them.
    """
    if not one.places:
        return _bought(ask, one, market)
    found = [_bought_at(ask.at(place), one, market) for place in one.places]
    best = min(found, key=lambda each: (each.is_stopped, each.offer is None, each.usd_per_hour))
    others = (fault for each in found if each is not best for fault in each.faults if fault.fatal)
    notes = others if best.is_stopped else (replace(fault, fatal=False) for fault in others)
    return replace(best, faults=tuple(dict.fromkeys([*best.faults, *notes])))


def _bought_at(ask: Ask, one: Wish, market: Market) -> Bought:
    """How they are bought in one of several places, with what is wrong with the place itself."""
    kind, faults = _named_type(ask, market)
    if kind is not None:
        faults += _type_faults(replace(ask, wishes=(one,)), kind)
    found = _bought(ask, one, market)
    return replace(found, faults=(*place_faults(ask, market), *faults, *found.faults))


def _bought(ask: Ask, one: Wish, market: Market) -> Bought:
    """The cheapest offer of the fewest accelerators that are enough.

    Several machines are bought where the seller documents a network between them, if any does.
    """
    names = {variant.name for variant in one.variants} or {one.accelerator.name}
    machines = ask.nodes * ask.replicas
    anywhere = [offer for offer in market.on_file if offer.instance_type.accelerator in names]
    sold = [offer for offer in anywhere if _is_of_seller(ask, offer)]
    there = [offer for offer in sold if _is_there(ask, offer)]
    if not there:
        return Bought(offer=None, machines=machines, faults=(_not_sold(ask, one, anywhere, sold),))
    option = PurchaseOption.SPOT if ask.spot else PurchaseOption.ON_DEMAND
    buyable = [
        offer
        for offer in market.offers
        if offer.purchase_option is option
        and offer.instance_type.accelerator in names
        and _is_of_seller(ask, offer)
        and _is_there(ask, offer)
    ]
    if ask.instance_type is not None:
        buyable = [offer for offer in buyable if offer.instance_type.name == ask.instance_type] or buyable
    if not buyable:
        return Bought(offer=None, machines=machines, faults=(_no_price(ask, one, option, sold, market),))
    enough = [offer for offer in buyable if offer.instance_type.accelerator_count >= one.count]
    if not enough:
        return Bought(offer=None, machines=machines, faults=(_none_as_large(ask, one, buyable),))
    least = min(offer.instance_type.accelerator_count for offer in enough)
    fitting = enough if ask.packs else [o for o in enough if o.instance_type.accelerator_count == least]
    joined = [o for o in fitting if network_of(o.provider, o.instance_type.name)] if ask.nodes > 1 else fitting
    offer = min(joined or fitting, key=lambda o: (_machines(ask, one, o) * o.usd_per_hour, o.key))
    return Bought(
        offer=offer, machines=_machines(ask, one, offer), faults=tuple(_remarks(ask, one, offer, fitting, joined))
    )


def _none_as_large(ask: Ask, one: Wish, buyable: Sequence[Offer]) -> Fault:
    most = max(offer.instance_type.accelerator_count for offer in buyable)
    what = f"no instance has {one.count} x {one.named}: the largest has {most:g}"
    fix = f"ask for {most:g} on each of {math.ceil(one.count * ask.nodes / max(1, most))} machines"
    return Fault(line=one.line, what=what, fix=fix)


def _remarks(ask: Ask, one: Wish, offer: Offer, fitting: Sequence[Offer], joined: Sequence[Offer]) -> Iterator[Fault]:
    """In what the offer is not quite what was asked for; `joined` are those of the fitting ones with a network."""
    if not joined:
        what = f"{offer.provider} documents no network between its {offer.instance_type.name}"
        fix = "ask for machines that have one: speed is that of the vendor's reference network"
        yield Fault(line=one.line, what=what, fix=fix, fatal=False)
    least = offer.instance_type.accelerator_count
    if least > one.count and not ask.packs:
        what = f"no instance has exactly {one.count} x {one.named}: the smallest has {least:g}"
        yield Fault(line=one.line, what=what, fix=f"use {least:g}, they are paid", fatal=False)
    kinds = sorted({o.instance_type.accelerator for o in joined or fitting})
    if len(kinds) > 1:
        what = f"{one.named} is sold as {', '.join(kinds)}: taken as the cheapest, {offer.instance_type.accelerator}"
        yield Fault(line=one.line, what=what, fix="name the one that is meant", fatal=False)


def place_of(offer: Offer) -> str:
    """Seller and, where there is one, region."""
    return " ".join(part for part in (offer.provider, offer.region) if part)


def _named_type(ask: Ask, market: Market) -> tuple[InstanceType | None, list[Fault]]:
    """The instance type that the file names; a fault for one that is not on file of a provider that is."""
    if ask.instance_type is None:
        return None, []
    kinds = {
        offer.instance_type.name: offer.instance_type
        for offer in market.on_file
        if ask.provider in (None, offer.provider) or ask.provider not in PROVIDERS
    }
    kind = kinds.get(ask.instance_type)
    if kind is not None:
        return kind, []
    near = nearest(ask.instance_type, kinds)
    seller = f" of {ask.provider}" if ask.provider in PROVIDERS else ""
    fault = Fault(
        line=ask.lines.get("instance_type") or ask.lines.get("place"),
        what=f"no instance type {ask.instance_type!r}{seller} with accelerators is on file",
        fix=f"did you mean {', '.join(near)}?" if near else "`costopt offers` lists them",
        fatal=ask.provider in (None, *PROVIDERS),
    )
    return None, [fault]


def _type_faults(ask: Ask, kind: InstanceType) -> Iterator[Fault]:
    """Accelerators that the named instance type does not have."""
    line = ask.lines.get("instance_type") or ask.lines.get("place")
    has = f"{kind.name} has {kind.accelerator_count:g} x {kind.accelerator}"
    fitting = [one for one in ask.wishes if kind.accelerator in {v.name for v in (one.accelerator, *one.variants)}]
    if not fitting:
        asked = ", ".join(one.named for one in ask.wishes)
        yield Fault(line=line, what=f"{has}, not {asked}", fix=f"ask for {kind.accelerator}, or name another type")
    elif all(one.count > kind.accelerator_count for one in fitting):
        most = max(one.count for one in fitting)
        yield Fault(line=line, what=f"{has}, not {most}", fix=f"ask for {kind.accelerator_count:g}")


def _is_of_seller(ask: Ask, offer: Offer) -> bool:
    return ask.provider in (None, offer.provider) or ask.provider not in PROVIDERS


def _is_there(ask: Ask, offer: Offer) -> bool:
    return ask.region in (None, offer.region, offer.zone)


def _not_sold(ask: Ask, one: Wish, anywhere: Iterable[Offer], sold: Iterable[Offer]) -> Fault:
    """Where else the accelerators are sold: by the same provider first."""
    line = one.line if one.line is not None else ask.lines.get("place")
    continent = (ask.region or "").split("-")[0]
    elsewhere = list(dict.fromkeys([*_places(sold, continent), *_places(anywhere, continent)]))
    if not elsewhere:
        what = f"none of {', '.join(PROVIDERS)} sells {one.named}"
        return Fault(line=line, what=what, fix="the cost is not known", fatal=False)
    where = "/".join(part for part in (ask.provider, ask.region) if part)
    more = len(elsewhere) - _PLACES_NAMED
    fix = f"sold in {', '.join(elsewhere[:_PLACES_NAMED])}{f' and {more} more' if more > 0 else ''}"
    return Fault(line=line, what=f"{one.named} is not sold in {where}", fix=fix)


def _no_price(ask: Ask, one: Wish, option: PurchaseOption, sold: Iterable[Offer], market: Market) -> Fault:
    """Sold there, but not under that option; a provider without any spot cannot be asked for it."""
    line = ask.lines.get("spot") if ask.spot else one.line
    where = "/".join(part for part in (ask.provider, ask.region) if part)
    asked = option.replace("_", " ")
    if ask.spot and ask.provider in _WITHOUT_SPOT:
        sellers = sorted({o.provider for o in market.on_file if o.purchase_option is PurchaseOption.SPOT})
        what = f"{ask.provider} sells no spot instances"
        return Fault(line=line or one.line, what=what, fix=f"ask for on demand, or one of {', '.join(sellers)}")
    others = [offer for offer in sold if offer.purchase_option is option]
    traits = sorted({trait for offer in others for trait in offer.instance_type.traits})
    if others and all(offer.instance_type.traits for offer in others):
        what = f"{one.named} is sold {asked} only as {', '.join(traits)}, which are left out: the cost is not known"
        return Fault(line=line or one.line, what=what, fix=f"--include {','.join(traits)} counts them", fatal=False)
    if others:
        fix = f"{asked} in {', '.join(_places(others)[:_PLACES_NAMED])}"
    else:
        options = sorted({offer.purchase_option.replace("_", " ") for offer in sold})
        fix = f"on file: {', '.join(options)}"
    what = f"no {asked} price of {one.named}{f' in {where}' if where else ''} is on file: the cost is not known"
    return Fault(line=line or one.line, what=what, fix=fix, fatal=False)


def _places(offers: Iterable[Offer], continent: str = "") -> list[str]:
    """Where the offers are, those whose region begins like the one that was asked for first."""
    found = {place_of(offer): offer.region or "" for offer in offers}
    return sorted(found, key=lambda place: (not continent or not found[place].startswith(continent), place))


def _machines(ask: Ask, one: Wish, offer: Offer) -> int:
    """Instances that run: several replicas share one where a scheduler packs them."""
    if not ask.packs or ask.nodes > 1:
        return ask.nodes * ask.replicas
    return math.ceil(ask.replicas / max(1, int(offer.instance_type.accelerator_count // one.count)))
