"""Asks AWS with credentials, through boto3: price list, hardware, spot by zone, savings plans, capacity blocks."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from providers.aws.machines import Machines, parse_instance_types
from providers.aws.market import (
    parse_capacity_blocks,
    parse_savings_rates,
    parse_spot_history,
    parse_type_offerings,
)
from providers.aws.price_list import PLAIN, parse_products
from providers.base import Coverage, FetchContext, home
from providers.errors import CredentialsRefused, InvalidAnswer, ProviderError, ProviderUnavailable
from providers.http import Client
from providers.offers import CommitmentKind, PurchaseOption
from providers.tally import Tally

HOSTS: Final = frozenset({".amazonaws.com"})
_HOME_REGION: Final = "us-east-1"
"""Where the global services (price list, savings plans) have their endpoint."""

_BLOCK_HOURS: Final = 168
"""The duration that capacity blocks are asked for; their price per hour hardly depends on it."""

_DENIED: Final = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidClientTokenId",
        "SignatureDoesNotMatch",
        "UnauthorizedOperation",
        "UnrecognizedClientException",
    }
)
"""Error codes that say that the credentials are wrong or lack a permission."""

PRICES: Final = "AWS price list API, get_products"
SPOT: Final = "AWS EC2 API, describe_spot_price_history"
SAVINGS: Final = "AWS savings plans API, describe_savings_plans_offering_rates"
BLOCKS: Final = "AWS EC2 API, describe_capacity_block_offerings"


def has_credentials(environment: Mapping[str, str]) -> bool:
    """Whether the environment or a profile names credentials; an EC2 instance's role is not looked for."""
    if environment.get("AWS_ACCESS_KEY_ID") and environment.get("AWS_SECRET_ACCESS_KEY"):
        return True
    named = ("AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    file = environment.get("AWS_SHARED_CREDENTIALS_FILE")
    path = Path(file) if file else home(environment) / ".aws" / "credentials"
    return any(environment.get(name) for name in named) or path.is_file()


def fetch(client: Client, regions: tuple[str, ...], context: FetchContext, tally: Tally) -> list[Coverage]:
    """Adds what the account is told in `regions` (empty = those that the account has enabled); returns what that
    speaks for. A region, or a part of one, that fails is a note. Raises CredentialsRefused when the account may not
    read the price list, and the last error when no region could be read.
    """
    account = _Account(client, context)
    coverage: list[Coverage] = []
    failure: ProviderError | None = None
    for region in regions or account.enabled_regions():
        context.progress(f"{region} through the AWS APIs")
        try:
            coverage += _Region(account, region, tally).read()
        except _PricesRefused:
            raise
        except ProviderError as error:
            failure = error
            tally.note(f"{region} could not be read ({error})")
    if not coverage:
        raise failure or InvalidAnswer(tally.provider, "the account has no region")
    return coverage


def sources() -> tuple[str, ...]:
    filters = ", ".join(f"{name}={value}" for name, value in PLAIN.items())
    return f"{PRICES} ({filters})", f"{SPOT} (ProductDescription Linux/UNIX)", SAVINGS, BLOCKS


class _PricesRefused(CredentialsRefused):
    """The account may not read the price list: then no other region need be tried, as it is the same for all."""


class _Account:
    """The boto3 clients of one fetch; their requests go through the bounded client."""

    def __init__(self, client: Client, context: FetchContext) -> None:
        self._client = client
        self._context = context
        self._session = _session(context.environment)
        self._clients: dict[tuple[str, str], Any] = {}
        self.now = context.now

    def enabled_regions(self) -> list[str]:
        reply = self.call("ec2", _HOME_REGION, "describe_regions")
        return sorted(row["RegionName"] for row in reply["Regions"])

    def call(self, service: str, region: str, operation: str, **parameters: Any) -> Any:
        """One call. Raises CredentialsRefused, ProviderUnavailable, InvalidAnswer."""
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            return getattr(self._boto(service, region), operation)(**parameters)
        except NoCredentialsError:
            raise CredentialsRefused("aws", "the profile holds no credentials") from None
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            if code in _DENIED:
                refused = _PricesRefused if service == "pricing" else CredentialsRefused
                raise refused("aws", f"{operation} is refused: {code}") from None
            raise ProviderUnavailable("aws", f"{operation} failed: {code or 'no code'}") from None
        except BotoCoreError as error:
            raise ProviderUnavailable("aws", f"{operation} failed ({type(error).__name__})") from None

    def rows(self, service: str, region: str, operation: str, key: str, **parameters: Any) -> list[Any]:
        """The rows of all pages; the token of the next page is an empty string, null or absent on the last."""
        token = "nextToken" if service == "savingsplans" else "NextToken"

        def page(value: str | None) -> tuple[list[Any], str | None]:
            more = {token: value} if value else {}
            reply = self.call(service, region, operation, **parameters, **more)
            return reply.get(key) or [], reply.get(token)

        return [row for rows in self._client.pages(page) for row in rows]

    def _boto(self, service: str, region: str) -> Any:
        if (service, region) not in self._clients:
            from botocore.config import Config

            limits = self._context.limits
            made = self._session.client(
                service,
                region_name=region,
                config=Config(retries={"mode": "standard", "total_max_attempts": limits.attempts}),
            )
            made.meta.events.register("before-send", self._send)
            self._clients[service, region] = made
        return self._clients[service, region]

    def _send(self, request: Any, **_: object) -> Any:
        """Takes the place of botocore's transport, so that its requests have the same bounds as all others."""
        import urllib3
        from botocore.awsrequest import AWSResponse

        body = request.body
        reply = self._client.send(
            request.method,
            request.url,
            headers={name: _text(value) for name, value in request.headers.items()},
            body=body.encode() if isinstance(body, str) else body,
        )
        raw = urllib3.HTTPResponse(body=BytesIO(reply.body), status=reply.status, preload_content=False)
        return AWSResponse(request.url, reply.status, reply.headers, raw)


class _Region:
    """What an account is told of one region."""

    def __init__(self, account: _Account, region: str, tally: Tally) -> None:
        self._account = account
        self._region = region
        self._tally = tally

    def read(self) -> list[Coverage]:
        rows = self._ec2("describe_instance_types", "InstanceTypes")
        specifications = parse_instance_types(rows, self._tally)
        offerings = self._ec2(
            "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone-id"
        )
        machines = Machines(specifications, self._tally, parse_type_offerings(offerings))
        zones = self._ec2("describe_availability_zones", "AvailabilityZones", AllAvailabilityZones=True)
        self._prices(machines, [zone for zone in zones if zone.get("ZoneType") != "availability-zone"])
        in_blocks = {
            row.get("InstanceType") for row in rows if "capacity-block" in row.get("SupportedUsageClasses", ())
        }
        names = sorted(specifications)
        zone_ids = {zone.get("ZoneName", ""): zone.get("ZoneId", "") for zone in zones}
        reserved = CommitmentKind.RESERVED_INSTANCE
        plans = CommitmentKind.SAVINGS_PLAN
        found = [
            self._covered(PurchaseOption.ON_DEMAND),
            self._covered(PurchaseOption.RESERVED_1Y, reserved),
            self._covered(PurchaseOption.RESERVED_3Y, reserved),
        ]
        if self._part("spot prices", lambda: self._spot(names, machines)):
            found.append(self._covered(PurchaseOption.SPOT))
        if self._part("savings plans", lambda: self._savings(names, machines)):
            found.append(self._covered(PurchaseOption.RESERVED_1Y, plans))
            found.append(self._covered(PurchaseOption.RESERVED_3Y, plans))
        if self._part(
            "capacity blocks", lambda: self._blocks(sorted(in_blocks & specifications.keys()), zone_ids, machines)
        ):
            found.append(self._covered(PurchaseOption.CAPACITY_BLOCK))
        return found

    def _covered(self, option: PurchaseOption, kind: CommitmentKind | None = None) -> Coverage:
        return Coverage(purchase_option=option, commitment_kind=kind, regions=frozenset({self._region}))

    def _part(self, what: str, read: Callable[[], None]) -> bool:
        """Reads a part that may be missing: a failure is a note, and earlier prices stay."""
        try:
            read()
        except ProviderError as error:
            self._tally.note(f"{what} of {self._region} could not be read ({error})")
            return False
        return True

    def _ec2(self, operation: str, key: str, **parameters: Any) -> list[Any]:
        return self._account.rows("ec2", self._region, operation, key, **parameters)

    def _prices(self, machines: Machines, local_zones: Iterable[Mapping[str, Any]]) -> None:
        """The price list of the region and of the Local and Wavelength Zones that belong to it."""
        places = [self._region, *sorted({zone["GroupName"] for zone in local_zones if zone.get("GroupName")})]
        for place in places:
            fields = {**PLAIN, "regionCode": place}
            filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
            listed = self._account.rows(
                "pricing",
                _HOME_REGION,
                "get_products",
                "PriceList",
                ServiceCode="AmazonEC2",
                Filters=filters,
                MaxResults=100,
            )
            parse_products(_decoded(listed, self._tally), machines, PRICES, self._tally)

    def _spot(self, names: list[str], machines: Machines) -> None:
        if not names:
            return
        rows = self._ec2(
            "describe_spot_price_history",
            "SpotPriceHistory",
            InstanceTypes=names,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=self._account.now,
            EndTime=self._account.now,
        )
        parse_spot_history(rows, self._region, machines, SPOT, self._tally)

    def _savings(self, names: list[str], machines: Machines) -> None:
        if not names:
            return
        rows = self._account.rows(
            "savingsplans",
            _HOME_REGION,
            "describe_savings_plans_offering_rates",
            "searchResults",
            serviceCodes=["AmazonEC2"],
            filters=[
                {"name": "region", "values": [self._region]},
                {"name": "instanceType", "values": names},
                {"name": "productDescription", "values": ["Linux/UNIX"]},
                {"name": "tenancy", "values": ["shared"]},
            ],
        )
        parse_savings_rates(rows, machines, SAVINGS, self._tally)

    def _blocks(self, names: list[str], zone_ids: Mapping[str, str], machines: Machines) -> None:
        for name in names:
            rows = self._ec2(
                "describe_capacity_block_offerings",
                "CapacityBlockOfferings",
                InstanceType=name,
                InstanceCount=1,
                CapacityDurationHours=_BLOCK_HOURS,
            )
            parse_capacity_blocks(rows, self._region, zone_ids, machines, BLOCKS, self._tally)


def _decoded(listed: Iterable[str], tally: Tally) -> Iterator[Mapping[str, Any]]:
    """The items of a price list, each of which is a JSON text."""
    for text in listed:
        try:
            yield json.loads(text)
        except ValueError:
            tally.reject("row of another shape")


def _session(environment: Mapping[str, str]) -> Any:
    """A boto3 session with the keys of the environment, else with the profile that boto3 finds."""
    import boto3
    from botocore.exceptions import BotoCoreError

    key, secret = environment.get("AWS_ACCESS_KEY_ID"), environment.get("AWS_SECRET_ACCESS_KEY")
    try:
        if key and secret:
            token = environment.get("AWS_SESSION_TOKEN")
            return boto3.Session(aws_access_key_id=key, aws_secret_access_key=secret, aws_session_token=token)
        return boto3.Session(profile_name=environment.get("AWS_PROFILE"))
    except BotoCoreError as error:
        raise CredentialsRefused("aws", f"no usable profile ({type(error).__name__})") from None


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
