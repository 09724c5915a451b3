"""Turns Azure's retail prices, and the sizes that a subscription may use, into offers of Linux machines."""

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urlsplit

from providers.base import Answer, Coverage, FetchContext, own_regions
from providers.errors import InvalidAnswer, ProviderError, ProviderUnavailable
from providers.http import Client
from providers.offers import Commitment, CommitmentKind, InstanceType, PurchaseOption
from providers.specifications import specifications
from providers.tally import Tally, usd
from providers.units import HOURS_PER_YEAR

if TYPE_CHECKING:
    from azure.core.credentials import TokenCredential

_PRICES_HOST: Final = "prices.azure.com"
_PRICES_URL: Final = f"https://{_PRICES_HOST}/api/retail/prices"
_API_VERSION: Final = "2023-01-01-preview"
"""The first version that answers with savings plans; its filter values are case-sensitive."""

_HOSTS: Final = frozenset({_PRICES_HOST, "management.azure.com", "login.microsoftonline.com"})
_ACCELERATED: Final = "serviceName eq 'Virtual Machines' and contains(armSkuName, 'Standard_N')"
"""Azure names every size with an accelerator N…; a size of that letter without a specification is reported."""

SOURCE: Final = "Azure Retail Prices API"
SPOT_NOTE: Final = "list price of spot: what is charged can be far from it"
_KINDS: Final = ("Consumption", "Reservation")
_TERM_YEARS: Final = {"1 Year": 1, "3 Years": 3}
_OPTIONS: Final = {1: PurchaseOption.RESERVED_1Y, 3: PurchaseOption.RESERVED_3Y}
_FROM_CONSUMPTION: Final = (
    (PurchaseOption.ON_DEMAND, None),
    (PurchaseOption.SPOT, None),
    (PurchaseOption.RESERVED_1Y, CommitmentKind.SAVINGS_PLAN),
    (PurchaseOption.RESERVED_3Y, CommitmentKind.SAVINGS_PLAN),
)
_FROM_RESERVATION: Final = (
    (PurchaseOption.RESERVED_1Y, CommitmentKind.RESERVED_INSTANCE),
    (PurchaseOption.RESERVED_3Y, CommitmentKind.RESERVED_INSTANCE),
)
_REGION: Final = re.compile(r"[a-z0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """What a subscription is told of a size in a region; `usable` is False where it may not be created at all."""

    vcpus: float | None
    memory_gib: float | None
    usable: bool


Sizes = Mapping[str, Mapping[str, Size]]
"""By region, then by size."""


class Azure:
    """The adapter of Azure. Prices need no credentials; with `AZURE_SUBSCRIPTION_ID` and a sign-in, sizes that the
    subscription may not use are left out. `credential` makes the sign-in from the environment."""

    name = "azure"

    def __init__(self, credential: "Callable[[Mapping[str, str], Client], TokenCredential] | None" = None) -> None:
        self._credential = credential or _credential

    def fetch(self, context: FetchContext) -> Answer:
        """On demand, spot, reservations and savings plans of every accelerator size, by region."""
        tally = Tally(self.name, context.now)
        regions = own_regions(self.name, context.regions, _REGION)
        with Client(self.name, context, _HOSTS) as client:
            sizes = self._sizes(client, context, regions, tally)
            self._prices(client, "Consumption", regions, sizes, context, tally)
            coverage = _coverage(regions, _FROM_CONSUMPTION)
            try:
                self._prices(client, "Reservation", regions, sizes, context, tally)
                coverage += _coverage(regions, _FROM_RESERVATION)
            except ProviderError as error:
                tally.note(f"reservations could not be read ({error}); earlier ones stay")
        return tally.answer(coverage, [f"{SOURCE} {_API_VERSION}, $filter={_filter(kind, regions)}" for kind in _KINDS])

    def _prices(
        self,
        client: Client,
        kind: str,
        regions: tuple[str, ...],
        sizes: Sizes | None,
        context: FetchContext,
        tally: Tally,
    ) -> None:
        for number, page in enumerate(client.pages(partial(_page, client, _filter(kind, regions))), start=1):
            context.progress(f"retail prices, {kind}, page {number}")
            parse_prices(page, sizes, context.now, tally)

    def _sizes(self, client: Client, context: FetchContext, regions: tuple[str, ...], tally: Tally) -> Sizes | None:
        """The sizes of the subscription; None, and a note, where they cannot be had."""
        subscription = context.environment.get("AZURE_SUBSCRIPTION_ID", "")
        if not subscription:
            tally.note("AZURE_SUBSCRIPTION_ID is not set: sizes that a subscription may not use are not left out")
            return None
        context.progress("sizes of the subscription")
        from azure.core.exceptions import AzureError

        logging.getLogger("azure").addHandler(logging.NullHandler())  # else its warnings go to stderr beside our note
        try:
            credential = self._credential(context.environment, client)
            return parse_sizes(_list_sizes(client, credential, subscription, regions, context.limits.pages), tally)
        except (AzureError, ProviderError) as error:
            tally.note(f"sizes of the subscription could not be listed ({type(error).__name__}): none is left out")
            return None


def parse_prices(data: Any, sizes: Sizes | None, now: datetime, tally: Tally) -> None:
    """Adds the offers of one page of retail prices to the tally.

    Kept are Linux virtual machines in effect at `now`, neither Low Priority nor promotional nor Cloud Services.
    `sizes` = None means that nothing is known of a subscription. Raises InvalidAnswer for another shape.
    """
    items = data.get("Items") if isinstance(data, Mapping) else None
    if not isinstance(items, list):
        raise InvalidAnswer(tally.provider, "the reply has no list `Items`")
    for item in items:
        try:
            if _is_wanted(item, now):
                _parse_item(item, sizes, tally)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


def parse_sizes(rows: Iterable[Mapping[str, Any]], tally: Tally) -> dict[str, dict[str, Size]]:
    """The virtual machine sizes of `resource_skus.list`; a row of another shape is counted in the tally."""
    sizes: dict[str, dict[str, Size]] = {}
    for row in rows:
        try:
            if row["resourceType"] == "virtualMachines":
                for region in row["locations"]:
                    sizes.setdefault(region.lower(), {})[row["name"]] = _size(row, region.lower())
        except (KeyError, TypeError, AttributeError, ValueError):
            tally.reject("row of another shape")
    return sizes


def _size(row: Mapping[str, Any], region: str) -> Size:
    able = {pair["name"]: pair["value"] for pair in row.get("capabilities") or ()}
    return Size(
        vcpus=_number(able.get("vCPUsAvailable") or able.get("vCPUs")),
        memory_gib=_number(able.get("MemoryGB")),
        usable=not _is_restricted(row, region),
    )


def _is_wanted(item: Mapping[str, Any], now: datetime) -> bool:
    """Whether the row is a current Linux price of an accelerator size."""
    name, product = item.get("armSkuName") or "", item["productName"]
    labels = (item.get("skuName") or "", item.get("meterName") or "")
    return (
        name.startswith("Standard_N")
        and not name.endswith("_Promo")
        and item["type"] in _KINDS
        and "Windows" not in product
        and "Cloud Services" not in product
        and "CloudServices" not in product
        and not any(label.endswith(" Low Priority") for label in labels)
        and item.get("isPrimaryMeterRegion") is not False
        and _is_in_effect(item, now)
    )


def _is_in_effect(item: Mapping[str, Any], now: datetime) -> bool:
    start, end = item.get("effectiveStartDate"), item.get("effectiveEndDate")
    return (not start or datetime.fromisoformat(start) <= now) and (not end or now < datetime.fromisoformat(end))


def _parse_item(item: Mapping[str, Any], sizes: Sizes | None, tally: Tally) -> None:
    name, region = item["armSkuName"], item["armRegionName"].lower()
    kind = _instance_type(name, region, sizes, tally)
    if kind is None:
        return
    if item["currencyCode"] != "USD":
        tally.reject(f"price in {item['currencyCode']}, not USD")
        return
    if not region:
        tally.reject("no region")
        return
    price = usd(item["retailPrice"])
    if item["type"] == "Reservation":
        years = _TERM_YEARS.get(item["reservationTerm"])
        hourly = None if price is None or years is None else price / (years * HOURS_PER_YEAR)
        _reserved(kind, hourly, years, CommitmentKind.RESERVED_INSTANCE, item, region, tally)
        return
    spot = any((item.get(label) or "").endswith(" Spot") for label in ("skuName", "meterName"))
    tally.offer(
        kind,
        price,
        PurchaseOption.SPOT if spot else PurchaseOption.ON_DEMAND,
        source=SOURCE,
        region=region,
        row_ids=_row_ids(item),
        effective_from=_effective_from(item),
        notes=SPOT_NOTE if spot else "",
    )
    for plan in () if spot else item.get("savingsPlan") or ():
        years = _TERM_YEARS.get(plan["term"])
        _reserved(kind, usd(plan["retailPrice"]), years, CommitmentKind.SAVINGS_PLAN, item, region, tally)


def _reserved(
    kind: InstanceType,
    hourly: Decimal | None,
    years: int | None,
    commitment: CommitmentKind,
    item: Mapping[str, Any],
    region: str,
    tally: Tally,
) -> None:
    """One commitment: `hourly` is the effective price per hour. Nothing is due upfront: Azure bills either by the
    month at the same total."""
    if years is None:
        tally.reject("commitment of another term than 1 or 3 years")
        return
    tally.offer(
        kind,
        hourly,
        _OPTIONS[years],
        source=SOURCE,
        region=region,
        commitment=Commitment(kind=commitment, term_months=12 * years),
        row_ids=_row_ids(item),
        effective_from=_effective_from(item),
    )


def _instance_type(name: str, region: str, sizes: Sizes | None, tally: Tally) -> InstanceType | None:
    """The size with its hardware from the shipped table: the API names neither the accelerator nor its memory, and
    counts a sixth of a device as one."""
    tally.see(name)
    size = None
    if sizes is not None and region in sizes:
        size = sizes[region].get(name)
        if size is None or not size.usable:
            tally.reject("size that the subscription may not use in that region")
            return None
    known = specifications(tally.provider).get(name)
    if known is None:
        tally.reject(f"size without a specification: {name}")
        return None
    if known.accelerator_count is None:
        tally.reject(f"size with an unknown number of accelerators: {name}")
        return None
    return tally.instance_type(
        name,
        known.accelerator,
        known.accelerator_count,
        accelerator_memory_gib=known.accelerator_memory_gib,
        vcpus=(size and size.vcpus) or known.vcpus,
        memory_gib=(size and size.memory_gib) or known.memory_gib,
    )


def _is_restricted(row: Mapping[str, Any], region: str) -> bool:
    """Whether the size may not be created in the region at all: the region is closed, or each of its zones is."""
    zones = {zone for place in row.get("locationInfo") or () for zone in place.get("zones") or ()}
    closed: set[str] = set()
    for restriction in row.get("restrictions") or ():
        if restriction.get("reasonCode") != "NotAvailableForSubscription":
            continue
        about = restriction.get("restrictionInfo") or {}
        places = {place.lower() for place in about.get("locations") or restriction.get("values") or ()}
        if region in places and restriction.get("type") == "Location":
            return True
        if region in places:
            closed |= set(about.get("zones") or ())
    return bool(zones) and zones <= closed


def _row_ids(item: Mapping[str, Any]) -> list[str]:
    return [str(item[key]) for key in ("skuId", "meterId") if item.get(key)]


def _effective_from(item: Mapping[str, Any]) -> date | None:
    start = item.get("effectiveStartDate")
    return datetime.fromisoformat(start).date() if start else None


def _number(text: str | None) -> float | None:
    return float(text) if text else None


def _filter(kind: str, regions: tuple[str, ...]) -> str:
    places = " or ".join(f"armRegionName eq '{region}'" for region in regions)
    return f"{_ACCELERATED} and priceType eq '{kind}'" + (f" and ({places})" if places else "")


def _coverage(
    regions: tuple[str, ...], parts: Iterable[tuple[PurchaseOption, CommitmentKind | None]]
) -> list[Coverage]:
    places = frozenset(regions) or None
    return [Coverage(purchase_option=option, commitment_kind=kind, regions=places) for option, kind in parts]


def _page(client: Client, text: str, token: str | None) -> tuple[Any, str | None]:
    """One page of prices and where the next one starts. Only `$skip` is taken from the link that the reply names;
    the API answers 400 to a start past the end."""
    params = [("api-version", _API_VERSION), ("currencyCode", "USD"), ("$filter", text)]
    if token is not None:
        params.append(("$skip", token))
    reply = client.send("GET", _PRICES_URL, params=params)
    if reply.status == 400 and token is not None:
        return {"Items": []}, None
    if reply.status != 200:
        raise ProviderUnavailable("azure", f"HTTP status {reply.status}")
    data = client.decode(reply)
    link = data.get("NextPageLink") if isinstance(data, Mapping) else None
    if not link:
        return data, None
    skip = parse_qs(urlsplit(str(link)).query).get("$skip")
    if not skip:
        raise InvalidAnswer("azure", "the link to the next page has no $skip")
    return data, skip[0]


def _list_sizes(
    client: Client, credential: "TokenCredential", subscription: str, regions: tuple[str, ...], most_pages: int
) -> list[Mapping[str, Any]]:
    """Asks Azure Resource Manager through its own SDK, over the bounded client."""
    from azure.core.pipeline.transport import RequestsTransport
    from azure.mgmt.compute import ComputeManagementClient

    transport = RequestsTransport(session=client.sdk_session(), session_owner=False)
    compute = ComputeManagementClient(credential, subscription, transport=transport, retry_total=0)
    only = {"filter": f"location eq '{regions[0]}'"} if len(regions) == 1 else {}
    rows: list[Mapping[str, Any]] = []
    pages = compute.resource_skus.list(include_extended_locations="false", **only).by_page()
    for number, page in enumerate(pages, start=1):
        if number > most_pages:
            raise InvalidAnswer("azure", f"paging does not end: more than {most_pages} pages")
        rows += [row.as_dict() for row in page]
    return rows


def _credential(environment: Mapping[str, str], client: Client) -> "TokenCredential":
    """A service principal where its variables are set, else whatever the SDK finds (az login, managed identity)."""
    from azure.core.pipeline.transport import RequestsTransport
    from azure.identity import ClientSecretCredential, DefaultAzureCredential

    names = ("AZURE_TENANT_ID", "AZURE_CLIENT_ID", "AZURE_CLIENT_SECRET")
    values = [environment.get(name, "") for name in names]
    if all(values):
        transport = RequestsTransport(session=client.sdk_session(), session_owner=False)
        return ClientSecretCredential(*values, transport=transport, retry_total=0)
    return DefaultAzureCredential(exclude_interactive_browser_credential=True)


ADAPTER: Final = Azure()
