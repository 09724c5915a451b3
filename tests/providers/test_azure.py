"""Azure's adapter: the parsers on recorded replies, and the fetch with the SDK's own client, on a local server."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from providers.azure import ADAPTER, Sizes, parse_prices, parse_sizes
from providers.base import Answer, FetchContext, Limits
from providers.errors import InvalidAnswer, ProviderUnavailable
from providers.offers import CommitmentKind, PurchaseOption
from providers.tally import Tally
from tests.providers.conftest import NOW, ContextFor, Fetch, NewTally, Recorded, Serve
from tests.providers.contract import ProviderContract, by_name
from tests.providers.server import Asked, Script, Served

PAGE = "azure/retail_prices_page1.json"
TRAPS = "azure/retail_prices_traps.json"
LAST = "azure/retail_prices_last_page.json"
SIGN_IN = {
    "AZURE_SUBSCRIPTION_ID": "00000000-0000-0000-0000-000000000000",
    "AZURE_TENANT_ID": "11111111-1111-1111-1111-111111111111",
    "AZURE_CLIENT_ID": "22222222-2222-2222-2222-222222222222",
    "AZURE_CLIENT_SECRET": "a-client-secret",
}


def item(**over: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "currencyCode": "USD",
        "retailPrice": Decimal("3.673"),
        "armRegionName": "eastus",
        "effectiveStartDate": "2022-06-01T00:00:00Z",
        "meterName": "NC24ads A100 v4",
        "skuId": "SKU/1",
        "productName": "Virtual Machines NCads A100 v4 Series",
        "skuName": "NC24ads A100 v4",
        "type": "Consumption",
        "armSkuName": "Standard_NC24ads_A100_v4",
    }
    return {**row, **over}


def parsed(data: Any, tally: Tally, sizes: Sizes | None = None) -> Answer:
    parse_prices(data if isinstance(data, Mapping) else {"Items": data}, sizes, NOW, tally)
    return tally.answer([], ["test"])


def is_sign_in(asked: Asked) -> bool:
    return any(part in asked.path for part in ("/oauth2/v2.0/token", "openid-configuration", "discovery/instance"))


class AzureServer:
    """Retail prices, sign-in and resource SKUs of Azure, as far as the adapter asks for them."""

    def __init__(self, consumption: Any, reservation: Any, skus: Any = None) -> None:
        self.pages = {"Consumption": consumption, "Reservation": reservation}
        self.skus = skus

    def __call__(self, asked: Asked) -> Served:
        if asked.path == "/api/retail/prices":
            kind = "Reservation" if "'Reservation'" in (asked.param("$filter") or "") else "Consumption"
            return Served.json(self.pages[kind])
        if asked.path.endswith("/oauth2/v2.0/token"):
            return Served.json({"token_type": "Bearer", "expires_in": 3600, "access_token": "a-token"})
        if "openid-configuration" in asked.path:
            here = "https://login.microsoftonline.com/" + SIGN_IN["AZURE_TENANT_ID"]
            ends = {"authorization_endpoint": f"{here}/a", "token_endpoint": f"{here}/oauth2/v2.0/token"}
            return Served.json({**ends, "issuer": f"{here}/v2.0"})
        if "discovery/instance" in asked.path:
            return Served.json({"tenant_discovery_endpoint": "https://login.microsoftonline.com/x", "metadata": []})
        return Served.json(self.skus) if self.skus is not None else Served.json({}, status=403)


@pytest.fixture
def page(recorded: Recorded) -> Any:
    """The recorded first page without its link to more pages."""
    return recorded(PAGE) | {"NextPageLink": None}


class TestContract(ProviderContract):
    provider = "azure"

    def ask(self, fetch: Fetch, recorded: Recorded) -> Answer:
        page = recorded(PAGE) | {"NextPageLink": None}
        return fetch(ADAPTER, AzureServer(page, recorded(LAST)))


@pytest.mark.trap("AZURE-42")
def test_the_linux_price_wins_over_the_windows_row_of_the_same_name(page: Any, tally: NewTally) -> None:
    offer = by_name(parsed(page, tally("azure")), "Standard_ND96isr_H100_v5", purchase_option=PurchaseOption.ON_DEMAND)
    assert offer.usd_per_hour == Decimal("98.32")
    assert offer.instance_type.accelerator == "H100-SXM5-80GB"
    assert offer.instance_type.accelerator_count == 8
    assert offer.effective_from == date(2023, 8, 1)


@pytest.mark.trap("AZURE-43", "AZURE-51", "GCP-25")
def test_spot_is_its_own_offer_and_says_that_it_is_a_list_price(page: Any, tally: NewTally) -> None:
    answer = parsed(page, tally("azure"))
    spot = by_name(answer, "Standard_ND96isr_H100_v5", purchase_option=PurchaseOption.SPOT)
    assert spot.usd_per_hour == Decimal("18.169536")
    assert "list price" in spot.notes
    without = [o for o in answer.offers if o.instance_type.name == "Standard_NC24ads_A100_v4"]
    assert PurchaseOption.SPOT not in {offer.purchase_option for offer in without}


@pytest.mark.trap("AZURE-43")
def test_low_priority_and_spot_never_reach_on_demand(tally: NewTally) -> None:
    rows = [
        item(),
        item(skuName="NC24ads A100 v4 Low Priority", retailPrice=Decimal("0.735")),
        item(skuName=None, meterName="NC24ads A100 v4 Low Priority", retailPrice=Decimal("0.735")),
        item(skuName="NC24ads A100 v4 Spot", retailPrice=Decimal("1.1")),
    ]
    answer = parsed(rows, tally("azure"))
    assert {(o.purchase_option.value, o.usd_per_hour) for o in answer.offers} == {
        ("on_demand", Decimal("3.673")),
        ("spot", Decimal("1.1")),
    }


@pytest.mark.trap("AZURE-44", "AZURE-45", "AZURE-47")
def test_of_all_rows_of_a_size_only_the_current_plain_one_counts(recorded: Recorded, tally: NewTally) -> None:
    answer = parsed(recorded(TRAPS), tally("azure"))
    [offer] = answer.offers
    assert (offer.usd_per_hour, offer.purchase_option) == (Decimal("3.673"), PurchaseOption.ON_DEMAND)
    assert answer.rejections == {"price of zero": 1}


@pytest.mark.trap("AZURE-45")
@pytest.mark.parametrize(
    ("start", "end", "counts"),
    [
        ("2026-11-30T12:00:00Z", None, True),
        ("2026-11-30T12:00:01Z", None, False),
        ("2026-01-01T00:00:00Z", "2026-11-30T12:00:00Z", False),
        ("2026-01-01T00:00:00Z", "2026-11-30T12:00:01Z", True),
    ],
)
def test_a_price_counts_from_its_start_until_its_end(
    tally: NewTally, start: str, end: str | None, counts: bool
) -> None:
    new = tally("azure")
    parse_prices({"Items": [item(effectiveStartDate=start, effectiveEndDate=end)]}, None, NOW, new)
    assert new.instance_types_seen == int(counts)


@pytest.mark.trap("AZURE-46")
def test_a_reservation_is_the_total_of_its_term_and_a_savings_plan_is_hourly(tally: NewTally) -> None:
    plans = [
        {"term": "3 Years", "retailPrice": Decimal("2.2659")},
        {"term": "1 Year", "retailPrice": Decimal("3.0574")},
    ]
    rows = [
        item(savingsPlan=plans),
        item(type="Reservation", reservationTerm="1 Year", retailPrice=Decimal("20600.0")),
        item(type="Reservation", reservationTerm="3 Years", retailPrice=Decimal("4594.0")),
        item(type="Reservation", reservationTerm="5 Years", retailPrice=Decimal("70000.0")),
    ]
    answer = parsed(rows, tally("azure"))
    prices = {
        (o.purchase_option.value, o.commitment and o.commitment.kind.value): o.usd_per_hour for o in answer.offers
    }
    assert prices == {
        ("on_demand", None): Decimal("3.673"),
        ("reserved_1y", "reserved_instance"): Decimal("2.351598"),
        ("reserved_3y", "reserved_instance"): Decimal("0.17481"),
        ("reserved_1y", "savings_plan"): Decimal("3.0574"),
        ("reserved_3y", "savings_plan"): Decimal("2.2659"),
    }
    assert answer.rejections == {"commitment of another term than 1 or 3 years": 1}


@pytest.mark.trap("AZURE-46")
def test_the_recorded_savings_plan_is_found(page: Any, tally: NewTally) -> None:
    answer = parsed(page, tally("azure"))
    plan = by_name(answer, "Standard_NC24ads_A100_v4", purchase_option=PurchaseOption.RESERVED_3Y)
    assert plan.usd_per_hour == Decimal("2.2659")
    assert plan.commitment is not None
    assert plan.commitment.kind is CommitmentKind.SAVINGS_PLAN


@pytest.mark.trap("AZURE-47")
@pytest.mark.parametrize(
    ("price", "reason"),
    [
        (0, "price of zero"),
        (Decimal("NaN"), "price is not a number"),
        (Decimal("Infinity"), "price is not a number"),
        (-3, "negative price"),
        (None, "no price"),
        ("three", "price is not a number"),
        (Decimal("1e400"), "price of less than 0.000001 or more than 1000000 USD per hour"),
    ],
)
def test_a_price_that_cannot_be_one_is_counted(tally: NewTally, price: Any, reason: str) -> None:
    answer = parsed([item(retailPrice=price), item(armRegionName="westus")], tally("azure"))
    assert [offer.region for offer in answer.offers] == ["westus"]
    assert answer.rejections == {reason: 1}
    assert [key.region for key in answer.unreadable] == ["eastus"]


@pytest.mark.trap("AZURE-48")
def test_promotional_sizes_are_not_offered(tally: NewTally) -> None:
    answer = parsed([item(), item(armSkuName="Standard_NC6_Promo", skuName="NC6 Promo")], tally("azure"))
    assert [offer.instance_type.name for offer in answer.offers] == ["Standard_NC24ads_A100_v4"]
    assert answer.rejections == {}


@pytest.mark.trap("AZURE-49")
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Standard_NV6ads_A10_v5", 1 / 6),
        ("Standard_NV12ads_A10_v5", 1 / 3),
        ("Standard_NV18ads_A10_v5", 0.5),
        ("Standard_NV36ads_A10_v5", 1),
        ("Standard_NV72ads_A10_v5", 2),
    ],
)
def test_slices_of_an_a10_are_slices_whatever_the_api_counts(
    recorded: Recorded, tally: NewTally, name: str, count: float
) -> None:
    sizes = parse_sizes(recorded("azure/resource_skus_list.json")["value"], tally("azure"))
    one = {name: next(iter(sizes["eastus"].values()))}
    usable = {"eastus": {name: replace(one[name], usable=True)}}
    answer = parsed([item(armSkuName=name, retailPrice=Decimal("0.454"))], tally("azure"), usable)
    assert answer.offers[0].instance_type.accelerator_count == pytest.approx(count, rel=1e-5)


@pytest.mark.trap("AZURE-50")
def test_a_size_of_unknown_hardware_is_reported_by_name(tally: NewTally) -> None:
    answer = parsed([item(), item(armSkuName="Standard_ND64isr_R200_v7")], tally("azure"))
    assert answer.rejections == {"size without a specification: Standard_ND64isr_R200_v7": 1}
    assert answer.instance_types_seen == 2


def test_a_size_whose_device_count_no_source_states_is_reported(tally: NewTally) -> None:
    answer = parsed([item(), item(armSkuName="Standard_NC128ds_xl_RTXPRO6000BSE_v6")], tally("azure"))
    [reason] = answer.rejections
    assert reason.startswith("size with an unknown number of accelerators")


@pytest.mark.trap("AZURE-42")
def test_two_prices_for_one_offer_are_an_ambiguity_that_nobody_resolves(tally: NewTally) -> None:
    rows = [item(), item(retailPrice=Decimal("3.5")), item(retailPrice=Decimal("3.673")), item(armRegionName="westus")]
    answer = parsed(rows, tally("azure"))
    assert [offer.region for offer in answer.offers] == ["westus"]
    assert answer.rejections == {"several prices for one offer": 3}
    assert [key.region for key in answer.unreadable] == ["eastus"]


def test_a_price_in_another_currency_is_rejected(tally: NewTally) -> None:
    answer = parsed([item(), item(currencyCode="EUR", armRegionName="westeurope")], tally("azure"))
    assert answer.rejections == {"price in EUR, not USD": 1}


@pytest.mark.trap("AZURE-53")
def test_sizes_that_the_subscription_may_not_use_are_left_out(page: Any, recorded: Recorded, tally: NewTally) -> None:
    sizes = parse_sizes(recorded("azure/resource_skus_list.json")["value"], tally("azure"))
    assert not sizes["eastus"]["Standard_ND96isr_H100_v5"].usable
    assert sizes["southcentralus"]["Standard_NC24ads_A100_v4"].usable
    answer = parsed(
        page["Items"] + [item(armRegionName="southcentralus"), item(armRegionName="norwayeast")], tally("azure"), sizes
    )
    assert {offer.region for offer in answer.offers} == {"southcentralus", "norwayeast"}
    assert answer.rejections["size that the subscription may not use in that region"] == 3


@pytest.mark.trap("AZURE-53")
@pytest.mark.parametrize(("closed", "usable"), [(["1"], True), (["1", "2"], False), ([], True)])
def test_a_size_is_usable_while_one_of_its_zones_is(tally: NewTally, closed: list[str], usable: bool) -> None:
    restriction = {"type": "Zone", "reasonCode": "NotAvailableForSubscription"}
    row = {
        "resourceType": "virtualMachines",
        "name": "Standard_NC24ads_A100_v4",
        "locations": ["EastUS"],
        "locationInfo": [{"location": "eastus", "zones": ["1", "2"]}],
        "restrictions": [restriction | {"restrictionInfo": {"locations": ["eastus"], "zones": closed}}],
    }
    counted = tally("azure")
    sizes = parse_sizes([row, {}, {"resourceType": "virtualMachines"}], counted)
    assert sizes["eastus"]["Standard_NC24ads_A100_v4"].usable is usable
    counted.see("any")
    assert counted.answer([], []).rejections == {"row of another shape": 2}


@pytest.mark.trap("AZURE-53")
def test_with_a_sign_in_the_sdk_lists_the_sizes_of_the_subscription(
    page: Any, recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    skus = recorded("azure/resource_skus_list.json")
    del skus["nextLink"]
    server = serve(AzureServer(page, recorded(LAST), skus))
    answer = ADAPTER.fetch(context_for("azure", server, **SIGN_IN))
    [listed] = [asked for asked in server.asked if asked.path.endswith("/providers/Microsoft.Compute/skus")]
    assert listed.headers["authorization"] == "Bearer a-token"
    assert answer.notes == ()
    assert not [offer for offer in answer.offers if offer.region == "eastus"]


def test_sizes_that_cannot_be_listed_are_a_note_and_the_prices_stay(
    page: Any, recorded: Recorded, fetch: Fetch
) -> None:
    answer = fetch(ADAPTER, AzureServer(page, recorded(LAST)), **SIGN_IN)
    assert answer.offers
    assert "could not be listed" in answer.notes[0]
    assert "a-client-secret" not in answer.notes[0]


@pytest.mark.trap("AZURE-52")
def test_the_filter_asks_for_accelerators_and_the_currency_is_a_parameter(
    page: Any, recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(AzureServer(page, recorded(LAST)))
    ADAPTER.fetch(context_for("azure", server))
    consumption, reservation = server.asked
    assert consumption.param("currencyCode") == "USD"
    assert consumption.param("api-version") == "2023-01-01-preview"
    text = consumption.param("$filter") or ""
    assert text.startswith("serviceName eq 'Virtual Machines' and contains(armSkuName, 'Standard_N')")
    assert "currency" not in text
    assert "priceType eq 'Reservation'" in (reservation.param("$filter") or "")


@pytest.mark.trap("AZURE-52")
def test_a_reply_with_nothing_is_no_answer(recorded: Recorded, fetch: Fetch) -> None:
    with pytest.raises(InvalidAnswer, match="no accelerator instance type"):
        fetch(ADAPTER, AzureServer(recorded(LAST), recorded(LAST)))


def test_pages_are_followed_by_their_start_with_the_same_filter(
    page: Any, recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    first = recorded(PAGE)
    second = {"Items": [item(armRegionName="westus2")], "NextPageLink": ""}
    server = serve(Script(*[Served.json(reply) for reply in (first, second, recorded(LAST))]))
    answer = ADAPTER.fetch(context_for("azure", server))
    assert "westus2" in {offer.region for offer in answer.offers}
    assert [asked.param("$skip") for asked in server.asked] == [None, "1000", None]
    assert server.asked[0].param("$filter") == server.asked[1].param("$filter")


def test_reservations_that_cannot_be_read_are_a_note_and_not_spoken_for(page: Any, fetch: Fetch) -> None:
    answer = fetch(ADAPTER, AzureServer(page, "not a page"))
    assert "reservations could not be read" in answer.notes[-1]
    kinds = {(part.purchase_option, part.commitment_kind) for part in answer.coverage}
    assert (PurchaseOption.RESERVED_1Y, CommitmentKind.SAVINGS_PLAN) in kinds
    assert (PurchaseOption.RESERVED_1Y, CommitmentKind.RESERVED_INSTANCE) not in kinds


def test_a_start_past_the_end_ends_the_list(recorded: Recorded, serve: Serve, context_for: ContextFor) -> None:
    past_the_end = Served.json({"Error": {"Code": "BadRequest"}}, status=400)
    server = serve(Script(Served.json(recorded(PAGE)), past_the_end, Served.json(recorded(LAST))))
    assert ADAPTER.fetch(context_for("azure", server)).offers


def test_a_first_page_that_is_refused_is_a_failure(fetch: Fetch) -> None:
    with pytest.raises(ProviderUnavailable, match="HTTP status 400"):
        fetch(ADAPTER, Script(Served.json({}, status=400)))


def test_paging_without_end_is_refused(page: Any, serve: Serve, context_for: ContextFor) -> None:
    count = iter(range(10_000))

    def endless(asked: Asked) -> Served:
        link = f"https://prices.azure.com:443/api/retail/prices?$skip={next(count)}"
        return Served.json(page | {"NextPageLink": link})

    context = replace(context_for("azure", serve(endless)), limits=Limits(pages=20))
    with pytest.raises(InvalidAnswer, match="paging does not end: more than 20 pages"):
        ADAPTER.fetch(context)


def test_a_page_that_names_itself_as_the_next_is_refused(
    recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(Script(Served.json(recorded(PAGE))))
    with pytest.raises(InvalidAnswer, match="the same page is named twice"):
        ADAPTER.fetch(context_for("azure", server))
    assert len(server.asked) == 2


def test_regions_narrow_the_question_and_what_the_answer_speaks_for(
    page: Any, recorded: Recorded, serve: Serve, context_for: ContextFor
) -> None:
    server = serve(AzureServer(page, recorded(LAST)))
    context = replace(context_for("azure", server), regions=("eastus", "us-east-1"))
    answer = ADAPTER.fetch(context)
    assert "and (armRegionName eq 'eastus')" in (server.asked[0].param("$filter") or "")
    key = by_name(answer, "Standard_NC24ads_A100_v4", purchase_option=PurchaseOption.ON_DEMAND).key
    assert answer.supersedes(key)
    assert not answer.supersedes(replace(key, region="westus"))


def test_regions_of_others_only_are_nothing_to_ask(context: FetchContext) -> None:
    with pytest.raises(InvalidAnswer, match="none of these is one of its regions"):
        ADAPTER.fetch(replace(context, regions=("us-east-1",)))


@pytest.mark.parametrize("data", [{}, {"Items": None}, [], "text", None])
def test_another_shape_is_refused(tally: NewTally, data: Any) -> None:
    with pytest.raises(InvalidAnswer, match="no list `Items`"):
        parse_prices(data, None, NOW, tally("azure"))


def test_rows_of_another_shape_are_counted_and_the_rest_stays(tally: NewTally) -> None:
    broken = item()
    del broken["armRegionName"]
    answer = parsed([item(), broken, item(effectiveStartDate="soon"), "text", None], tally("azure"))
    assert len(answer.offers) == 1
    assert answer.rejections == {"row of another shape": 4}
