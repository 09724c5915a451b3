"""Turns Google's billing catalogue and machine types into offers: a machine costs the sum of all its parts, or nothing
is said."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final

from providers.base import Answer, Coverage, FetchContext, home, own_regions
from providers.errors import InvalidAnswer, MissingCredentials, ProviderError
from providers.gcp.machines import Machine, parse_machines, shipped_machines
from providers.gcp.rates import Part, Rate, Rates, parse_skus
from providers.http import Client
from providers.instance_types import is_sold_on_demand
from providers.offers import Commitment, CommitmentKind, InstanceType, PurchaseOption
from providers.tally import Tally

_BILLING_HOST: Final = "cloudbilling.googleapis.com"
_COMPUTE_ENGINE: Final = "6F81-5844-456A"
"""Google's id of the service Compute Engine, which also sells the TPUs from v5e on."""

_SKUS_URL: Final = f"https://{_BILLING_HOST}/v1/services/{_COMPUTE_ENGINE}/skus"
_HOSTS: Final = frozenset({_BILLING_HOST, "compute.googleapis.com", "oauth2.googleapis.com"})
_SCOPES: Final = (
    "https://www.googleapis.com/auth/cloud-billing.readonly",
    "https://www.googleapis.com/auth/compute.readonly",
)
_PAGE_SIZE: Final = 5000
_MACHINES_PER_PAGE: Final = 500
_REGION: Final = re.compile(r"[a-z]+-[a-z]+\d+")

_ACCELERATORS: Final = frozenset({"gpu", "slice", "tpu"})

SOURCE: Final = "Google Cloud Billing Catalog API, Compute Engine SKUs"
COMMITMENT_NOTE: Final = "the accelerators need an attached reservation"
_OPTIONS: Final = (
    PurchaseOption.ON_DEMAND,
    PurchaseOption.SPOT,
    PurchaseOption.RESERVED_1Y,
    PurchaseOption.RESERVED_3Y,
)


@dataclass(frozen=True, slots=True)
class SignIn:
    """Application default credentials (of google.auth, untyped) and the project that they are for (None = not said)."""

    credentials: Any
    project: str | None


class Gcp:
    """The adapter of Google Cloud. Prices need `GCP_API_KEY` or application default credentials; machine types need
    the latter and a project. `sign_in` finds them from the environment."""

    name = "gcp"

    def __init__(self, sign_in: Callable[[Mapping[str, str]], SignIn | None] | None = None) -> None:
        self._sign_in = sign_in or _sign_in

    def fetch(self, context: FetchContext) -> Answer:
        """On demand, spot and committed use of every machine with accelerators, by region."""
        key = context.environment.get("GCP_API_KEY", "")
        signed = self._sign_in(context.environment)
        if not key and signed is None:
            raise MissingCredentials(
                self.name, "set GCP_API_KEY (prices only), or run `gcloud auth application-default login`"
            )
        regions = own_regions(self.name, context.regions, _REGION)
        tally = Tally(self.name, context.now)
        rates = Rates()
        with Client(self.name, context, _HOSTS) as client:
            headers = {"X-Goog-Api-Key": key} if key else _authorization(client, signed)
            for number, page in enumerate(client.pages(partial(_sku_page, client, headers)), start=1):
                context.progress(f"billing catalogue, page {number}")
                parse_skus(page, context.now, rates)
            machines = _machines(client, signed, context, tally)
        price_machines(machines or shipped_machines(), rates, regions, tally)
        for reason, rows in rates.rejections.items():
            tally.reject(reason, rows)
        coverage = _coverage(machines, rates, regions)
        return tally.answer(coverage, [f"{SOURCE}, services/{_COMPUTE_ENGINE}/skus, currencyCode=USD"])


def price_machines(machines: Iterable[Machine], rates: Rates, regions: tuple[str, ...], tally: Tally) -> None:
    """Adds the offers of the machines in `regions` (empty = all): sums of all parts at the rates of the region."""
    for machine in machines:
        kind = tally.instance_type(
            machine.name,
            machine.label,
            machine.accelerator_count,
            accelerator_memory_gib=machine.accelerator_memory_gib,
            vcpus=machine.vcpus,
            memory_gib=machine.memory_gib,
            hosts=machine.hosts,
        )
        if kind is None:
            continue
        for region, zones in machine.regions.items():
            if regions and region not in regions:
                continue
            for option in _OPTIONS:
                _price(machine, kind, rates, region, zones, option, tally)


def _price(
    machine: Machine,
    kind: InstanceType,
    rates: Rates,
    region: str,
    zones: tuple[str, ...],
    option: PurchaseOption,
    tally: Tally,
) -> None:
    """The offer of a machine in a region, or none where a part has no rate: the sum of what was found is no price."""
    parts = machine.parts(sliced=_is_sliced(machine, rates))
    found: list[tuple[Rate, float]] = []
    missing: list[Part] = []
    for part, amount in parts:
        rate = rates.get(part, region, option)
        if rate is None:
            missing.append(part)
        else:
            found.append((rate, amount))
    if missing and not any(rates.is_unreadable(part, region, option) for part in missing):
        if option is PurchaseOption.ON_DEMAND and is_sold_on_demand(kind.provider, kind.name):
            tally.reject(f"no price of {missing[0]}")
        return
    if option is PurchaseOption.ON_DEMAND and not is_sold_on_demand(kind.provider, kind.name):
        tally.reject("listed on demand, sold as spot, flex start or reservation only")
        return
    term = option.term_months
    started = [rate.effective_from for rate, _ in found if rate.effective_from]
    notes = [f"sold in {', '.join(zones)}"] if zones else []
    tally.offer(
        kind,
        None if missing else sum((rate.usd_per_hour * Decimal(str(amount)) for rate, amount in found), Decimal(0)),
        option,
        source=SOURCE,
        region=region,
        commitment=Commitment(kind=CommitmentKind.COMMITTED_USE, term_months=term) if term else None,
        row_ids=[rate.sku for rate, _ in found],
        effective_from=max(started, default=None),
        notes="; ".join([*notes, COMMITMENT_NOTE] if term else notes),
    )


def _is_sliced(machine: Machine, rates: Rates) -> bool:
    return Part("slice", machine.accelerator) in rates.parts


def _coverage(machines: list[Machine] | None, rates: Rates, regions: tuple[str, ...]) -> list[Coverage]:
    """What the answer speaks for: with the machine types of the API everything but types whose accelerator the
    catalogue does not know; with the shipped shapes only those, in the regions that the table has."""
    places = frozenset(regions) or None
    if machines is not None:
        unknown = frozenset(machine.name for machine in machines if not _is_in_catalogue(machine, rates))
        return [Coverage(purchase_option=option, regions=places, except_types=unknown) for option in _OPTIONS]
    by_regions: dict[frozenset[str], set[str]] = {}
    for machine in shipped_machines():
        if _is_in_catalogue(machine, rates):
            sold = frozenset(machine.regions)
            by_regions.setdefault(sold & places if places else sold, set()).add(machine.name)
    return [
        Coverage(purchase_option=option, regions=sold, instance_types=frozenset(names))
        for sold, names in by_regions.items()
        for option in _OPTIONS
    ]


def _is_in_catalogue(machine: Machine, rates: Rates) -> bool:
    accelerators = [part for part, _ in machine.parts(sliced=_is_sliced(machine, rates)) if part.kind in _ACCELERATORS]
    return all(part in rates.parts for part in accelerators)


def _sku_page(client: Client, headers: Mapping[str, str], token: str | None) -> tuple[Any, str | None]:
    params = {"currencyCode": "USD", "pageSize": str(_PAGE_SIZE)}
    if token:
        params["pageToken"] = token
    data = client.json("GET", _SKUS_URL, params=params, headers=headers, hint="check GCP_API_KEY or the sign-in")
    next_token = data.get("nextPageToken") if isinstance(data, Mapping) else None
    return data, str(next_token) if next_token else None


def _machines(client: Client, signed: SignIn | None, context: FetchContext, tally: Tally) -> list[Machine] | None:
    """The machine types of the project; None, and a note, where they cannot be listed."""
    used = "the machine shapes and regions that ship with the project were used"
    if signed is None:
        tally.note(f"machine types cannot be listed with an API key alone: {used}")
        return None
    if not signed.project:
        tally.note(f"GOOGLE_CLOUD_PROJECT is not set, so machine types cannot be listed: {used}")
        return None
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError

    context.progress("machine types and accelerator types")
    try:
        return parse_machines(*_list_types(client, signed, context.limits.pages), tally)
    except (GoogleAPICallError, GoogleAuthError, ProviderError) as error:
        tally.note(f"machine types could not be listed ({type(error).__name__}): {used}")
        return None


def _list_types(client: Client, signed: SignIn, most_pages: int) -> tuple[list[Any], list[Any]]:
    """The pages of machine types and accelerator types, through Google's own client over the bounded one."""
    from google.cloud import compute_v1

    pages: list[list[Any]] = []
    for service, request, reply in (
        (
            compute_v1.MachineTypesClient,
            compute_v1.AggregatedListMachineTypesRequest,
            compute_v1.MachineTypeAggregatedList,
        ),
        (
            compute_v1.AcceleratorTypesClient,
            compute_v1.AggregatedListAcceleratorTypesRequest,
            compute_v1.AcceleratorTypeAggregatedList,
        ),
    ):
        types = service(credentials=signed.credentials)
        # The transport takes no session; without this its requests would have no deadline and no bound.
        transport: Any = types.transport
        transport._session.mount("https://", client.sdk_adapter())
        listed = types.aggregated_list(
            request=request(project=signed.project, max_results=_MACHINES_PER_PAGE), retry=None
        )
        found: list[Any] = []
        for page in listed.pages:
            found.append(reply.to_dict(page, preserving_proto_field_name=False))
            if len(found) > most_pages:
                raise InvalidAnswer("gcp", f"paging does not end: more than {most_pages} pages")
        pages.append(found)
    return pages[0], pages[1]


def _authorization(client: Client, signed: SignIn | None) -> dict[str, str]:
    """The headers of a signed-in request to the billing catalogue."""
    from google.auth.exceptions import GoogleAuthError
    from google.auth.transport.requests import Request

    headers: dict[str, str] = {}
    if signed is not None:
        try:
            signed.credentials.before_request(Request(session=client.sdk_session()), "GET", _SKUS_URL, headers)
        except GoogleAuthError as error:
            raise MissingCredentials(
                "gcp",
                f"the sign-in is not accepted ({type(error).__name__}); run `gcloud auth application-default login`",
            ) from None
    return headers


def _sign_in(environment: Mapping[str, str]) -> SignIn | None:
    """The credentials in the file that `GOOGLE_APPLICATION_CREDENTIALS` names, or in gcloud's; None without a file."""
    named = environment.get("GOOGLE_APPLICATION_CREDENTIALS", "")
    config = environment.get("CLOUDSDK_CONFIG") or home(environment) / ".config" / "gcloud"
    path = Path(named or Path(config) / "application_default_credentials.json")
    if not path.is_file():
        if named:
            raise MissingCredentials("gcp", f"GOOGLE_APPLICATION_CREDENTIALS names no file: {named}")
        return None
    try:
        info = json.loads(path.read_text(encoding="utf-8"))
        credentials = _credentials(info)
    except (OSError, ValueError, TypeError, AttributeError):
        raise MissingCredentials(
            "gcp", f"{path} holds no usable credentials: a service account's key or those of gcloud are taken"
        ) from None
    wanted = environment.get("GOOGLE_CLOUD_PROJECT") or environment.get("CLOUDSDK_CORE_PROJECT")
    return SignIn(credentials, wanted or info.get("project_id") or info.get("quota_project_id"))


def _credentials(info: Mapping[str, Any]) -> Any:
    """The credentials of a file's content. Raises ValueError for another type and for incomplete ones."""
    from google.auth.exceptions import GoogleAuthError
    from google.oauth2.credentials import Credentials
    from google.oauth2.service_account import Credentials as ServiceAccount

    makers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "service_account": partial(ServiceAccount.from_service_account_info, scopes=list(_SCOPES)),
        "authorized_user": Credentials.from_authorized_user_info,
    }
    kind = info.get("type")
    if kind not in makers:
        raise ValueError(f"credentials of type {kind}")
    try:
        return makers[kind](info)
    except GoogleAuthError as error:
        raise ValueError("incomplete credentials") from error


ADAPTER: Final = Gcp()
