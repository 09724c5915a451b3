"""Turns a need and everything that could meet it into one row a way: clouds, quotes, own hardware, hosted tokens."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final

from optimizer.report.capacity import HeldAccelerators, Met, Need, ServedWorkload, made_offer
from optimizer.report.extras import Extras, HardwareInputs, egress_gb
from optimizer.report.money import ZERO, cents
from optimizer.report.price_tables import HardwarePrice, hardware_prices, hosted_prices
from optimizer.report.quotes import Quote, differences
from optimizer.report.ways import Way, WayKind, break_even_month, break_even_utilization
from providers.accelerators import Accelerator, catalogue
from providers.offers import PROVIDERS, Offer, PurchaseOption
from providers.units import HOURS_PER_MONTH

_HOSTS_SHOWN: Final = 8
_HARDWARE_SHOWN: Final = 8
"""Of the hardware that could do it, the cheapest over three years; all of it where accelerators are named."""
_SERVER_SIZE: Final = 8
_W_PER_KW: Final = 1000
_INTERRUPTION: Final[Mapping[str, str]] = {
    "on_demand": "runs until it is ended",
    "spot": "the seller may take it away at short notice",
    "reserved_1y": "runs until it is ended; paid to the end of the term",
    "reserved_3y": "runs until it is ended; paid to the end of the term",
    "capacity_block": "ends with the block",
}
_CAPACITY: Final[Mapping[str, str]] = {
    "on_demand": "not reserved: may be sold out when asked for",
    "spot": "what is left over: may never be there",
    "savings_plan": "a price, not a reservation of capacity",
    "committed_use": "a price; capacity only with a reservation beside it",
    "reserved_instance": "a price; capacity only where it is bought for one zone",
    "capacity_block": "reserved for the block",
}


_OPTION_RISKS: Final[Mapping[str, tuple[str, ...]]] = {
    "spot": ("the price changes with the market",),
    "capacity_block": ("booked ahead for a stretch of days: months of it are block after block, if they can be had",),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A comparison to make: the need, what is for sale, private quotes, the buyer's inputs, and the day.

    `title` names the need; `hours` is set where it is one job of that length. `model` is the served model's name for
    hosted prices; None where the need is accelerators.
    """

    title: str
    need: Need
    offers: Sequence[Offer]
    quotes: Sequence[Quote]
    extras: Extras
    now: datetime
    model: str | None = None
    hours: Decimal | None = None
    accelerators: frozenset[str] = frozenset()
    stale_days: int = 30
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The ways that can be compared, cheapest first, those that cannot, and what they are held against."""

    title: str
    now: datetime
    hours: Decimal | None
    ways: tuple[Way, ...]
    apart: tuple[Way, ...]
    reference: Way | None
    quotes: tuple[Quote, ...]
    extras: Extras
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    def break_even_utilization(self, way: Way) -> float | None:
        """Against the reference, which is paid by use."""
        return None if self.reference is None else break_even_utilization(way, self.reference)

    def break_even_month(self, way: Way) -> int | None:
        """Against the reference."""
        return None if self.reference is None else break_even_month(way, self.reference)


def comparison(wanted: Wanted) -> Comparison:
    """Every way to meet the need. The reference is the cheapest that is paid by use and cannot be taken away."""
    found = [*_cloud_ways(wanted), *_quote_ways(wanted), *_hardware_ways(wanted), *_hosted_ways(wanted)]
    with_extras = [_with_extras(way, wanted) for way in _named_apart(found)]
    ways = sorted((way for way in with_extras if not way.gaps), key=lambda way: _rank(way, wanted.hours))
    apart = [way for way in with_extras if way.gaps]
    plain = [way for way in ways if way.by_use and way.kind in ("mixed plan", "provider", "quote")]
    plain = [way for way in plain if way.purchase_option == "on_demand"]
    return Comparison(
        title=wanted.title,
        now=wanted.now,
        hours=wanted.hours,
        ways=tuple(ways),
        apart=tuple(apart),
        reference=min(plain, key=lambda way: _rank(way, None), default=None),
        quotes=tuple(wanted.quotes),
        extras=wanted.extras,
        assumptions=(*wanted.assumptions, *_assumptions(wanted)),
        warnings=(*wanted.warnings, *differences(wanted.quotes), *_warnings(wanted, ways)),
    )


def _named_apart(ways: Iterable[Way]) -> Iterable[Way]:
    """The ways, with a number behind a name that an earlier one has."""
    seen: dict[str, int] = {}
    for way in ways:
        seen[way.name] = seen.get(way.name, 0) + 1
        yield way if seen[way.name] == 1 else replace(way, name=f"{way.name} ({seen[way.name]})")


def _rank(way: Way, hours: Decimal | None) -> tuple[Decimal, str, str]:
    """Cheapest first: by the job where there is one, else by 12 months; then by name."""
    if hours is not None:
        usd = way.job_usd(hours)
    else:
        found = way.tco(12)
        usd = None if found is None else found.usd
    return (Decimal("Infinity") if usd is None else usd, way.seller, way.name)


def _cloud_ways(wanted: Wanted) -> Iterable[Way]:
    """The mixed plan, then each provider x purchase option x term; the best single provider is named so."""
    on_demand = [offer for offer in wanted.offers if offer.purchase_option is PurchaseOption.ON_DEMAND]
    mixed = wanted.need.meet(on_demand) if on_demand else None
    groups: dict[tuple[str, str, str, str], list[Offer]] = {}
    for offer in wanted.offers:
        kind = offer.commitment.kind.value if offer.commitment else ""
        variant = offer.commitment.variant if offer.commitment else ""
        groups.setdefault((offer.provider, offer.purchase_option.value, kind, variant), []).append(offer)
    ways = []
    for (provider, option, kind, variant), offers in sorted(groups.items(), key=_order):
        met = wanted.need.meet(offers)
        if met is not None:
            words = " ".join(filter(None, (option.replace("_", " "), kind.replace("_", " "), variant)))
            ways.append(_cloud_way("provider", f"{provider} {words}", provider, option, met, wanted))
    single = [way for way in ways if way.purchase_option == "on_demand"]
    best = min(single, key=lambda way: _rank(way, wanted.hours), default=None)
    if mixed is not None:
        sellers = sorted({item.offer.provider for item in mixed.machines})
        yield _cloud_way("mixed plan", "mixed plan, on demand", " + ".join(sellers), "on_demand", mixed, wanted)
    for way in ways:
        yield replace(way, name=f"{way.name} (best single provider)") if way is best else way


def _order(item: tuple[tuple[str, str, str, str], list[Offer]]) -> tuple[int, tuple[str, ...]]:
    provider = item[0][0]
    return (PROVIDERS.index(provider) if provider in PROVIDERS else len(PROVIDERS), item[0])


def _cloud_way(kind: WayKind, name: str, seller: str, option: str, met: Met, wanted: Wanted) -> Way:
    offers = [item.offer for item in met.machines]
    commitment = next((offer.commitment for offer in offers if offer.commitment), None)
    term = commitment.term_months if commitment else None
    hourly = met.usd_per_hour
    if term:
        hourly -= met.upfront_usd / (term * HOURS_PER_MONTH)
    days = [offer.observed_on for offer in offers]
    return Way(
        kind=kind,
        name=name,
        seller=seller,
        purchase_option=option,
        how=met.how,
        accelerators=_listed(met),
        gpus=met.gpus,
        region=", ".join(sorted({offer.zone or offer.region or "any" for offer in offers})),
        term_months=term,
        upfront_usd=cents(met.upfront_usd),
        usd_per_hour=hourly,
        by_use=option in ("on_demand", "spot"),
        bound=bool(term),
        commitment_kind=commitment.kind.value if commitment else None,
        as_of=None if None in days else min(day for day in days if day),
        source="; ".join(sorted({offer.source for offer in offers})),
        interruption=_INTERRUPTION.get(option, ""),
        capacity=_CAPACITY.get(commitment.kind.value if commitment else option, ""),
        risks=(*_OPTION_RISKS.get(option, ()), *_price_risks(days, wanted)),
    )


def _listed(met: Met) -> str:
    return ", ".join(f"{item.count.normalize():f} x {item.offer.instance_type.name}" for item in met.machines) + (
        f" = {met.gpus} GPUs: " + ", ".join(sorted({item.offer.instance_type.accelerator for item in met.machines}))
    )


def _price_risks(days: Sequence[date | None], wanted: Wanted) -> Iterable[str]:
    limit = wanted.now.date() - timedelta(days=wanted.stale_days)
    if None in days:
        yield "price without a date: treat as stale"
    if any(day is not None and day < limit for day in days):
        yield f"price older than {wanted.stale_days} days"


def _quote_ways(wanted: Wanted) -> Iterable[Way]:
    for quote in wanted.quotes:
        yield _quote_way(quote, wanted)


def _quote_way(quote: Quote, wanted: Wanted) -> Way:
    gaps, risks = list(quote.blocked), []
    gpus: int | None = None
    how = ""
    if quote.valid_until is not None and quote.valid_until < wanted.now.date():
        risks.append(f"quote ended on {quote.valid_until}")
    if quote.accelerator is not None and quote.usd_per_gpu_hour is not None and not gaps:
        gpus, how = _gpus_of_quote(quote, quote.accelerator, wanted, gaps)
    if gpus is not None and quote.min_gpus and quote.min_gpus > gpus:
        risks.append(f"smallest order is {quote.min_gpus} GPUs: {quote.min_gpus - gpus} more than needed")
        gpus = quote.min_gpus
    term = quote.term_months or None
    option = "term not stated" if quote.term_months is None else "reserved" if term else "on_demand"
    hourly = None if gpus is None or quote.usd_per_gpu_hour is None else quote.usd_per_gpu_hour * gpus
    upfront = quote.upfront_usd_per_gpu or ZERO
    return Way(
        kind="quote",
        name=f"quote {quote.vendor}",
        seller=quote.vendor,
        purchase_option=option,
        how=how,
        accelerators=quote.accelerator.name if quote.accelerator else quote.gpu,
        gpus=gpus,
        region=quote.region,
        term_months=term,
        upfront_usd=cents(upfront * (gpus or 0)),
        usd_per_hour=hourly,
        by_use=quote.term_months == 0,
        bound=bool(term),
        usd_per_useful_gpu_hour=quote.usd_per_useful_gpu_hour,
        as_of=quote.quoted_on,
        source="private quote",
        interruption=quote.interruption or "",
        capacity=quote.capacity or "",
        risks=tuple(risks),
        flags=quote.flags,
        gaps=tuple(gaps),
    )


def _gpus_of_quote(quote: Quote, accelerator: Accelerator, wanted: Wanted, gaps: list[str]) -> tuple[int | None, str]:
    """GPUs that the need takes of a quote, in whole nodes; how a model runs on them."""
    if isinstance(wanted.need, HeldAccelerators):
        if accelerator.name != wanted.need.accelerator.name:
            gaps.append(f"{accelerator.name} is quoted, {wanted.need.accelerator.name} is needed")
            return None, ""
        size = quote.gpus_per_node or 1
        return -(-wanted.need.count // size) * size, ""
    if not quote.gpus_per_node:
        gaps.append("GPUs per node not stated: what fits on one machine is not known")
        return None, ""
    offer = made_offer(
        seller=quote.vendor,
        name=f"{quote.gpus_per_node} x {accelerator.name}",
        accelerator=accelerator,
        gpus=quote.gpus_per_node,
        usd_per_hour=Decimal(1),
    )
    met = wanted.need.meet([offer])
    if met is None:
        gaps.append(f"{quote.gpus_per_node} x {accelerator.name} does not serve it within its service level")
        return None, ""
    return met.gpus, met.how


def _hardware_ways(wanted: Wanted) -> list[Way]:
    """The newest price of each accelerator, as a card and as a server; used ones are not compared with new ones."""
    inputs = wanted.extras.hardware
    if inputs is None or inputs.amortization_months is None:
        return []
    found: list[Way] = []
    seen: set[tuple[str, str]] = set()
    for price in hardware_prices():
        key = (price.accelerator, price.kind)
        if key in seen or price.price_kind == "used" or price.accelerator not in catalogue():
            continue
        if wanted.accelerators and price.accelerator not in wanted.accelerators:
            continue
        seen.add(key)
        way = _hardware_way(price, catalogue()[price.accelerator], inputs, wanted)
        if way is not None:
            found.append(way)
    found.sort(key=lambda way: (way.paid_until(36) or ZERO, way.name))
    return found if wanted.accelerators else found[:_HARDWARE_SHOWN]


def _hardware_way(price: HardwarePrice, accelerator: Accelerator, inputs: HardwareInputs, wanted: Wanted) -> Way | None:
    if isinstance(wanted.need, HeldAccelerators):
        if accelerator.name != wanted.need.accelerator.name:
            return None
        size = price.accelerators
        gpus, how = -(-wanted.need.count // size) * size, ""
    else:
        offer = made_offer(
            seller="own hardware",
            name=f"server of {_SERVER_SIZE}",
            accelerator=accelerator,
            gpus=_SERVER_SIZE,
            usd_per_hour=Decimal(1),
        )
        met = wanted.need.meet([offer])
        if met is None:
            return None
        gpus, how = met.gpus, met.how
    missing: list[str] = []
    bought = _purchase(price, inputs, missing) * gpus
    power_w = _power_w(price, accelerator, inputs, missing)
    months = inputs.amortization_months or 1
    running = _running_per_month(power_w * gpus, inputs, missing)
    risks = [f"{price.price_kind} price", "delivery date, repairs and spares are not in it"]
    if price.usd_low != price.usd_high:
        risks.append(f"published as {price.usd_low:,} to {price.usd_high:,} USD: the upper end is used")
    return Way(
        kind="hardware",
        name=f"buy {price.item}",
        seller="own hardware",
        purchase_option=f"bought, over {months} months",
        how=how,
        accelerators=f"{gpus} x {accelerator.name}",
        gpus=gpus,
        region="own site",
        term_months=months,
        upfront_usd=cents(bought * (1 - inputs.residual_share)),
        usd_per_hour=running / HOURS_PER_MONTH,
        by_use=False,
        bound=False,
        as_of=price.observed_on,
        source=price.source,
        interruption="none by a seller",
        capacity="your own once delivered",
        risks=(*risks, *_price_risks([price.observed_on], wanted)),
        flags=tuple(f"{name} not given: not in the cost" for name in missing),
    )


def _purchase(price: HardwarePrice, inputs: HardwareInputs, missing: list[str]) -> Decimal:
    """USD per GPU: the accelerator, and where it is a card also its share of server and network."""
    usd = price.usd_high / price.accelerators
    if price.kind == "server":
        return usd
    for name, amount in (("server", inputs.server_usd_per_gpu), ("network", inputs.network_usd_per_gpu)):
        if amount is None:
            missing.append(f"price of the {name}")
        else:
            usd += amount
    return usd


def _power_w(price: HardwarePrice, accelerator: Accelerator, inputs: HardwareInputs, missing: list[str]) -> Decimal:
    """Watts per GPU at the wall, before PUE: the accelerator's own and the rest of the machine."""
    own = price.power_w or accelerator.tdp_w
    if own is None:
        missing.append("power of the accelerator")
    if inputs.server_power_w_per_gpu is None:
        missing.append("power of the server")
    return Decimal(repr(own or 0)) + (inputs.server_power_w_per_gpu or ZERO)


def _running_per_month(power_w: Decimal, inputs: HardwareInputs, missing: list[str]) -> Decimal:
    """power x PUE x 730 h x price + colocation by kW + staff, of all of it; what is not given is named."""
    usd, kw = ZERO, power_w / _W_PER_KW
    if inputs.usd_per_kwh is None:
        missing.append("price of power")
    elif inputs.pue is None:
        missing.append("PUE")
        usd += kw * HOURS_PER_MONTH * inputs.usd_per_kwh
    else:
        usd += kw * inputs.pue * HOURS_PER_MONTH * inputs.usd_per_kwh
    if inputs.colocation_usd_per_kw_month is None:
        missing.append("colocation")
    else:
        usd += kw * inputs.colocation_usd_per_kw_month
    if inputs.staff_usd_per_month is None:
        missing.append("staff")
    else:
        usd += inputs.staff_usd_per_month
    return usd


def _hosted_ways(wanted: Wanted) -> Iterable[Way]:
    """The cheapest hosts of that very model for the workload's tokens; none where the need is not a workload."""
    tokens = wanted.need.tokens_per_month
    if wanted.model is None or tokens is None:
        return
    inputs, outputs = tokens
    priced = []
    for price in hosted_prices(wanted.model):
        usd = (inputs * price.input_usd + outputs * price.output_usd) / 1_000_000
        priced.append((usd, price))
    for usd, price in sorted(priced, key=lambda pair: (pair[0], pair[1].provider, pair[1].model))[:_HOSTS_SHOWN]:
        risks = ["shared: rate limits and queues are the host's", "prompts leave to the host"]
        if price.precision:
            risks.append(f"served in {price.precision}")
        if price.deprecated_on is not None:
            risks.append(f"ends on {price.deprecated_on}")
        yield Way(
            kind="hosted API",
            name=f"{price.provider} {price.model}",
            seller=price.provider,
            purchase_option="per token",
            how=f"{price.input_usd} USD per million input, {price.output_usd} per million output tokens",
            accelerators="the host's",
            gpus=None,
            region=None,
            term_months=None,
            upfront_usd=ZERO,
            usd_per_hour=usd / HOURS_PER_MONTH,
            by_use=True,
            bound=False,
            as_of=price.observed_on,
            source=price.source,
            interruption="the host's service level; not stated here",
            capacity="shared with others",
            risks=tuple(risks),
            flags=("speed is not compared: time to first token and per token are the host's",),
        )


def _with_extras(way: Way, wanted: Wanted) -> Way:
    """The way with storage, egress and support at its seller's prices, and what the capacity makes."""
    extras, need = wanted.extras, wanted.need
    tokens = need.tokens_per_month
    made = None if tokens is None else sum(tokens, Decimal(0))
    if way.kind == "hosted API":
        return replace(way, tokens_per_month=made)
    prices = extras.of(way.seller)
    quote = next((q for q in wanted.quotes if way.kind == "quote" and q.vendor == way.seller), None)
    storage_price = _first(quote.storage_usd_per_gb_month if quote else None, prices.storage_usd_per_gb_month)
    egress_price = _first(quote.egress_usd_per_gb if quote else None, prices.egress_usd_per_gb)
    support = _first(quote.support_share if quote else None, prices.support_share)
    gb = leaving_gb(extras, need)
    flags = list(way.flags)
    if extras.storage_gb is not None and storage_price is None:
        flags.append("storage price not known: not in the cost")
    if gb is not None and egress_price is None:
        flags.append("egress price not known: not in the cost")
    return replace(
        way,
        storage_usd_per_month=_product(extras.storage_gb, storage_price),
        egress_usd_per_month=_product(gb, egress_price),
        support_share=support,
        tokens_per_month=made,
        flags=tuple(dict.fromkeys(flags)),
    )


def leaving_gb(extras: Extras, need: Need) -> Decimal | None:
    """GB that leave in a month: as given, or requests x bytes of a response; None where neither is known."""
    if extras.egress_gb_per_month is not None:
        return extras.egress_gb_per_month
    requests = need.requests_per_month
    if extras.response_bytes is None or requests is None:
        return None
    return egress_gb(requests, extras.response_bytes)


def _first(own: Decimal | None, other: Decimal | None) -> Decimal | None:
    return other if own is None else own


def _product(quantity: Decimal | None, price: Decimal | None) -> Decimal | None:
    return None if quantity is None or price is None else cents(quantity * price)


def _assumptions(wanted: Wanted) -> Iterable[str]:
    yield "a month has 730 hours; amounts are in USD, without tax unless a quote says else"
    yield (
        "TCO: the capacity is needed in every hour; commitments are paid in whole terms, so a term longer than the "
        "months looked at is paid to its end"
    )
    yield "break-even against the cheapest on-demand way, which is given back in hours that do not need it"
    yield "utilisation: share of the hours in which the capacity is needed; what is paid by use costs nothing else"
    if wanted.extras.storage_gb is None and leaving_gb(wanted.extras, wanted.need) is None:
        yield "storage and egress are not given (`--costs`): they are in no total"
    if wanted.extras.hardware is None:
        yield "own hardware is not compared: its inputs are not given (`--costs`)"
    if isinstance(wanted.need, ServedWorkload):
        yield "machines, speed and tokens are estimates of costopt's sizing"


def _warnings(wanted: Wanted, ways: Sequence[Way]) -> Iterable[str]:
    for quote in wanted.quotes:
        for gap in quote.blocked:
            yield f"vendor {quote.vendor}: {gap}"
        unknown = [flag for flag in quote.flags if flag.startswith("egress of")]
        yield from unknown
    if wanted.model is not None and not hosted_prices(wanted.model):
        yield f"{wanted.model}: no host's token price is on file; it is priced by GPU hours, not per token"
    if not ways:
        yield "nothing that is on sale meets the need; see what is set apart"
