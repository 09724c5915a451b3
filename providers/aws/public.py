"""Asks AWS without credentials: the bulk price list, region by region, and the public spot feed."""

import re
from collections.abc import Mapping
from typing import Any, Final

from providers.aws.machines import Machines
from providers.aws.market import parse_spot_advisor, parse_spot_feed
from providers.aws.price_list import add_bulk_file, is_accelerated_line, parse_bulk_lines
from providers.base import Coverage, FetchContext
from providers.errors import InvalidAnswer, ProviderError
from providers.http import Client
from providers.offers import CommitmentKind, PurchaseOption
from providers.specifications import specifications
from providers.tally import Tally

_PRICES_HOST: Final = "pricing.us-east-1.amazonaws.com"
_SPOT_HOST: Final = "website.spot.ec2.aws.a2z.com"
_ADVISOR_HOST: Final = "spot-bid-advisor.s3.amazonaws.com"
HOSTS: Final = frozenset({_PRICES_HOST, _SPOT_HOST, _ADVISOR_HOST})

_INDEX_URL: Final = f"https://{_PRICES_HOST}/offers/v1.0/aws/AmazonEC2/current/region_index.json"
_FEED_URL: Final = f"https://{_SPOT_HOST}/spot.json"
_ADVISOR_URL: Final = f"https://{_ADVISOR_HOST}/spot-advisor-data.json"
_VERSION_PATH: Final = re.compile(r"(/offers/v1\.0/aws/AmazonEC2/[\w.-]+/[\w-]+/index)\.json")

DEFAULT_REGIONS: Final = ("us-east-1", "us-east-2", "us-west-2", "eu-central-1")
"""Read when none is named: a region's file is hundreds of MB, and these sell most accelerator types."""

PRICES: Final = "AWS bulk price list, AmazonEC2"
SPOT: Final = "AWS public spot feed"


def fetch(client: Client, regions: tuple[str, ...], context: FetchContext, tally: Tally) -> list[Coverage]:
    """Adds what the public lists say; returns what they speak for. A region or feed that fails is a note.

    `regions` empty = the default ones, `("all",)` = every one that has a file. Raises the last error when no region
    could be read.
    """
    machines = Machines(specifications(tally.provider), tally)
    files = _files(client)
    wanted = tuple(files) if regions == ("all",) else regions or DEFAULT_REGIONS
    read: list[str] = []
    failure: ProviderError | None = None
    for region in wanted:
        if region not in files:
            tally.note(f"the public price list has no file for {region}")
            continue
        context.progress(f"price list of {region}")
        try:
            _read(client, region, files[region], machines, tally)
            read.append(region)
        except ProviderError as error:
            failure = error
            tally.note(f"the price list of {region} could not be read ({error})")
    if not read:
        raise failure or InvalidAnswer(tally.provider, f"no price list for {', '.join(wanted)}")
    if not regions:
        tally.note(
            f"without credentials the price lists of {', '.join(wanted)} were read; for others name the regions, set "
            "COSTOPT_AWS_REGIONS=all (hundreds of MB a region), or sign in to AWS"
        )
    return [*_coverage(frozenset(read)), *_spot(client, context, machines, tally)]


def sources() -> tuple[str, ...]:
    return f"{PRICES}, region CSV files ({_INDEX_URL})", f"{SPOT} ({_FEED_URL})"


def _files(client: Client) -> dict[str, str]:
    """The path of each region's CSV file, from the index of the current version."""
    data = client.json("GET", _INDEX_URL)
    regions = data.get("regions") if isinstance(data, Mapping) else None
    if not isinstance(regions, Mapping):
        raise InvalidAnswer("aws", "the price list's index names no regions")
    files = {}
    for region, entry in regions.items():
        path = _VERSION_PATH.fullmatch(str(entry.get("currentVersionUrl"))) if isinstance(entry, Mapping) else None
        if path:
            files[region] = f"{path[1]}.csv"
    return files


def _read(client: Client, region: str, path: str, machines: Machines, tally: Tally) -> None:
    file = client.lines(
        f"https://{_PRICES_HOST}{path}", lambda lines: parse_bulk_lines(lines, machines), keep=is_accelerated_line
    )
    add_bulk_file(file, machines, f"{PRICES}, {region}", tally)


def _coverage(regions: frozenset[str]) -> list[Coverage]:
    reserved = CommitmentKind.RESERVED_INSTANCE
    return [
        Coverage(purchase_option=PurchaseOption.ON_DEMAND, regions=regions),
        Coverage(purchase_option=PurchaseOption.RESERVED_1Y, commitment_kind=reserved, regions=regions),
        Coverage(purchase_option=PurchaseOption.RESERVED_3Y, commitment_kind=reserved, regions=regions),
    ]


def _spot(client: Client, context: FetchContext, machines: Machines, tally: Tally) -> list[Coverage]:
    """Adds the spot feed, with interruption bands if the advisor answers."""
    context.progress("public spot feed")
    bands: dict[tuple[str, str], str] = {}
    try:
        bands = parse_spot_advisor(client.json("GET", _ADVISOR_URL))
    except (ProviderError, KeyError, TypeError, AttributeError):
        tally.note("the spot advisor could not be read: spot offers do not say how often they are interrupted")
    try:
        data: Any = client.json("GET", _FEED_URL)
        read = parse_spot_feed(data, bands, machines, SPOT, tally)
    except ProviderError as error:
        tally.note(f"the public spot feed could not be read ({error}); earlier spot prices stay")
        return []
    return [Coverage(purchase_option=PurchaseOption.SPOT, regions=read, zoned=False)]
