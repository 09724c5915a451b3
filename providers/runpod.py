"""Turns RunPod's GPU catalogue into offers of one to eight GPUs: REST v2 first, GraphQL where v2 does not answer."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

from providers.accelerators import is_known
from providers.base import Answer, Coverage, FetchContext
from providers.errors import CredentialsRefused, InvalidAnswer, MissingCredentials, ProviderUnavailable
from providers.http import Client
from providers.offers import PurchaseOption
from providers.tally import Tally, usd

_HOST: Final = "api.runpod.io"
_CATALOGUE_URL: Final = f"https://{_HOST}/v2/catalog/gpus"
_GRAPHQL_URL: Final = f"https://{_HOST}/graphql"
SOURCE_V2: Final = "RunPod REST v2, GET /v2/catalog/gpus"
SOURCE_GRAPHQL: Final = "RunPod GraphQL, gpuTypes"

_WIDTHS: Final = (1, 2, 4, 8)
"""GPUs of a pod that are asked for; stock depends on the width, the price of one GPU does not."""

_CLOUDS: Final = ("SECURE", "COMMUNITY")

_IN_STOCK: Final = {"HIGH": True, "MEDIUM": True, "LOW": True, "NONE": False}

_QUERY: Final = """query ($count: Int!, $secure: Boolean!) { gpuTypes {
 id displayName memoryInGb secureCloud communityCloud securePrice communityPrice
 maxGpuCountSecureCloud maxGpuCountCommunityCloud
 lowestPrice(input: {gpuCount: $count, secureCloud: $secure}) { uninterruptablePrice stockStatus } } }"""


class RunPod:
    """The adapter of RunPod; needs `RUNPOD_API_KEY`."""

    name = "runpod"

    def fetch(self, context: FetchContext) -> Answer:
        """What RunPod sells on demand, secure and community apart. Spot is not promised: v2 has none, and the bids
        that GraphQL names equal the on-demand price."""
        key = context.environment.get("RUNPOD_API_KEY", "")
        if not key:
            raise MissingCredentials(self.name, "set RUNPOD_API_KEY to a key of console.runpod.io/user/settings")
        headers = {"Authorization": f"Bearer {key}"}
        tally = Tally(self.name, context.now)
        with Client(self.name, context, frozenset({_HOST})) as client:
            try:
                for cloud, width, reply in _catalogues(client, headers):
                    parse_catalogue(reply, cloud, width, tally)
                source = SOURCE_V2
            except CredentialsRefused:
                raise
            except (ProviderUnavailable, InvalidAnswer) as error:
                tally = Tally(self.name, context.now)
                tally.note(f"REST v2 gave no answer ({error}); GraphQL was asked instead")
                for cloud, width, reply in _gpu_types(client, headers):
                    parse_gpu_types(reply, cloud, width, tally)
                source = SOURCE_GRAPHQL
        return tally.answer([Coverage(purchase_option=PurchaseOption.ON_DEMAND)], [source])


def parse_catalogue(data: Any, cloud: str, width: int, tally: Tally) -> None:
    """Adds the pods of `width` GPUs in one cloud from a reply of `/v2/catalog/gpus`.

    Raises InvalidAnswer for another shape.
    """
    rows = data.get("gpus") if isinstance(data, Mapping) else None
    if not isinstance(rows, list):
        raise InvalidAnswer(tally.provider, "the reply has no list `gpus`")
    key = cloud.lower()
    for row in rows:
        try:
            stock = row.get("availability")
            centers = [center["id"] for center in row.get("dataCenters") or () if center["availability"] != "NONE"]
            _offer(
                tally,
                gpu_id=row["id"],
                name=row["name"],
                memory_gb=row["memory"],
                cloud=cloud,
                width=width,
                sold=row[key] is True,
                most=row["maxCount"].get(key),
                usd_per_gpu=usd(row["price"].get(key)),
                in_stock=None if stock is None else _IN_STOCK.get(stock),
                source=SOURCE_V2,
                notes=f"stock now in {', '.join(centers)}" if centers else "",
            )
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


def parse_gpu_types(data: Any, cloud: str, width: int, tally: Tally) -> None:
    """Adds the pods of `width` GPUs in one cloud from a reply of the GraphQL query `gpuTypes`.

    A null in `lowestPrice` means that there is no stock at that width. Raises InvalidAnswer for another shape and for
    the errors that GraphQL reports with status 200.
    """
    if isinstance(data, Mapping) and data.get("errors"):
        raise InvalidAnswer(tally.provider, "GraphQL reports an error instead of data")
    inner = data.get("data") if isinstance(data, Mapping) else None
    rows = inner.get("gpuTypes") if isinstance(inner, Mapping) else None
    if not isinstance(rows, list):
        raise InvalidAnswer(tally.provider, "the reply has no list `gpuTypes`")
    key = cloud.lower()
    for row in rows:
        try:
            lowest = row["lowestPrice"] or {}
            stock = lowest.get("stockStatus")
            has_price = lowest.get("uninterruptablePrice") is not None
            _offer(
                tally,
                gpu_id=row["id"],
                name=row["displayName"],
                memory_gb=row["memoryInGb"],
                cloud=cloud,
                width=width,
                sold=row[f"{key}Cloud"] is True,
                most=row.get(f"maxGpuCount{cloud.capitalize()}Cloud"),
                usd_per_gpu=usd(row[f"{key}Price"]),
                in_stock=_IN_STOCK.get(stock.upper()) if stock and has_price else False,
                source=SOURCE_GRAPHQL,
            )
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


def _offer(
    tally: Tally,
    *,
    gpu_id: str,
    name: str,
    memory_gb: Any,
    cloud: str,
    width: int,
    sold: bool,
    most: int | None,
    usd_per_gpu: Decimal | None,
    in_stock: bool | None,
    source: str,
    notes: str = "",
) -> None:
    """One pod type. A price counts only where the flag of the cloud says that the GPU is sold there: for the others
    RunPod answers 0, 0.5 or a number that looks right."""
    if not sold or width > (most or 1):
        return
    words = " ".join(gpu_id.split())
    kind = tally.instance_type(
        f"{width}x_{words.replace(' ', '_')}_{cloud}",
        name if is_known(name) and not is_known(words) else words,
        width,
        accelerator_memory_gib=float(memory_gb),
    )
    if kind is None:
        return
    price = None if usd_per_gpu is None else usd_per_gpu * width
    tally.offer(
        kind,
        price,
        PurchaseOption.ON_DEMAND,
        source=source,
        region=None,
        in_stock=in_stock,
        row_ids=[gpu_id],
        notes=notes,
    )


def _catalogues(client: Client, headers: Mapping[str, str]) -> Iterator[tuple[str, int, Any]]:
    for cloud in _CLOUDS:
        for width in _WIDTHS:
            params = {"include": "AVAILABILITY", "product": "POD", "cloud": cloud, "count": str(width)}
            yield (
                cloud,
                width,
                client.json("GET", _CATALOGUE_URL, params=params, headers=headers, hint="check RUNPOD_API_KEY"),
            )


def _gpu_types(client: Client, headers: Mapping[str, str]) -> Iterator[tuple[str, int, Any]]:
    for cloud in _CLOUDS:
        for width in _WIDTHS:
            payload = {"query": _QUERY, "variables": {"count": width, "secure": cloud == "SECURE"}}
            headers_json = {**headers, "Content-Type": "application/json"}
            yield cloud, width, client.json("POST", _GRAPHQL_URL, headers=headers_json, payload=payload)


ADAPTER: Final = RunPod()
