"""Turns rows of a FOCUS cost export (1.0 to 1.3) into spend by day and thing bought, and a count of the rows that fail.

The rows are a view of DuckDB named `focus`: whoever opens the file decides where they come from. They are read once
per question, by column, and never held in memory as a whole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from optimizer.report.money import ZERO
from optimizer.report.months import Month
from providers.errors import UsageError, nearest
from providers.offers import InstanceType

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

REQUIRED: Final = ("BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargeCategory")
"""Columns without which nothing can be said; the provider's column has two names."""

_PROVIDER_NAMES: Final = {
    "aws": "aws",
    "amazon web services": "aws",
    "amazon": "aws",
    "gcp": "gcp",
    "google cloud": "gcp",
    "google cloud platform": "gcp",
    "google": "gcp",
    "azure": "azure",
    "microsoft": "azure",
    "microsoft azure": "azure",
    "lambda": "lambda",
    "lambda labs": "lambda",
    "lambda cloud": "lambda",
    "runpod": "runpod",
}
_TEXT: Final = (
    "BillingCurrency",
    "ChargeCategory",
    "ChargeFrequency",
    "ChargeDescription",
    "CommitmentDiscountId",
    "CommitmentDiscountStatus",
    "PricingCategory",
    "PricingUnit",
    "ConsumedUnit",
    "RegionId",
    "ServiceName",
    "SkuMeter",
    "SkuPriceDetails",
    "SubAccountId",
    "SubAccountName",
    "ResourceId",
    "ResourceName",
    "x_InstanceType",
    "Tags",
)
_NUMBERS: Final = (
    "BilledCost",
    "EffectiveCost",
    "ListUnitPrice",
    "ContractedUnitPrice",
    "PricingQuantity",
    "ConsumedQuantity",
)
_ACCELERATED: Final = r"\b(gpu|tpu|nvidia|trainium|inferentia)"
"""What charges for accelerators apart from their machine have in their text."""

_MOST_GROUPS: Final = 400_000
_MOST_ROWS: Final = 100_000_000
_TOLERANCE_USD: Final = "0.005"
"""Half a cent: what rounding can make of a row."""

Conditions = Mapping[str, str]
"""What a row must have: `provider`, `service`, `region`, `sub_account`, `resource`, `instance_type`, or `tag:KEY`."""

CONDITION_COLUMNS: Final = ("provider", "service", "region", "sub_account", "resource", "instance_type")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendGroup:
    """Spend of one day on one thing. `workload` None = no workload claims it; `hours` are instance-hours.

    `once`: charged once a month or less often, so that no rate can be drawn from it. `purchase_option` is on_demand,
    spot or committed; None where the export does not say. `rows` are the export's. `sku` is the text of a charge for
    accelerators apart from their machine, where it was asked for.
    """

    month: str
    day: int
    workload: str | None
    provider: str
    service: str | None
    region: str | None
    instance_type: str | None
    accelerator: str | None
    accelerators: float | None
    purchase_option: str | None
    commitment_id: str | None
    unused: bool
    once: bool
    billed_usd: Decimal
    effective_usd: Decimal
    hours: Decimal | None
    rows: int = 0
    sku: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossCheck:
    """Billed against quantity x unit price, over the usage rows that have both; `price` names the column used."""

    rows: int
    differing: int
    difference_usd: Decimal
    prices: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Actuals:
    """What an export says of the months asked for."""

    groups: tuple[SpendGroup, ...]
    rows: int
    used: int
    outside: int
    rejected: Mapping[str, int]
    through: datetime | None
    check: CrossCheck
    spoiled_effective_rows: int
    spoiled_effective_usd: Decimal
    warnings: tuple[str, ...] = field(default=())


def provider_of(name: str) -> str:
    """The provider's short name for what an export writes; any other seller keeps its own, in lower case."""
    return _PROVIDER_NAMES.get(name.strip().lower(), name.strip().lower())


def read_actuals(
    connection: "DuckDBPyConnection",
    months: Sequence[Month],
    matches: Mapping[str, Sequence[Conditions]],
    machines: Iterable[InstanceType],
    *,
    until: datetime,
    malformed: Callable[[], int] = int,
    skus: bool = False,
) -> Actuals:
    """Spend in the months (none given: in all, in UTC), by day and thing; rows that cannot be used are counted by their
    first reason.

    `matches` says which rows are whose, by workload: all conditions of one of its entries, the first workload wins.
    Charges that begin at `until` or later are not taken. `malformed` counts, once the rows are read, the lines that
    could not be split in columns. `skus` keeps apart what is charged for accelerators without a known machine, by its
    text. Raises UsageError for an export without the columns that are needed, or with more different things than a
    report can hold.
    """
    columns = _columns(connection)
    _register_machines(connection, machines)
    tags = sorted({key[4:] for entries in matches.values() for entry in entries for key in entry if key[:4] == "tag:"})
    parameters: dict[str, Any] = {"zone": months[0].zone if months else "UTC", "most": _MOST_GROUPS + 1, "until": until}
    query = _query(columns, [str(month) for month in months], matches, tags, parameters, skus=skus)
    rows = connection.execute(query, parameters).fetchall()
    if len(rows) > _MOST_GROUPS:
        raise UsageError(
            f"the cost export has over {_MOST_GROUPS:,} different things a day: narrow it before reporting"
        )
    return _actuals(rows, list(matches), malformed(), has_effective="effectivecost" in columns)


def _columns(connection: "DuckDBPyConnection") -> dict[str, str]:
    """The export's columns, by their FOCUS name; names are compared without case. Raises UsageError."""
    found = {row[0].lower(): row[0] for row in connection.execute("DESCRIBE focus").fetchall()}
    for column in REQUIRED:
        if column.lower() not in found:
            near = nearest(column, found.values())
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UsageError(f"the cost export has no column {column}: it is not a FOCUS 1.0 to 1.3 export{hint}")
    if "providername" not in found and "serviceprovidername" not in found:
        raise UsageError("the cost export has neither ServiceProviderName nor ProviderName: whose bill is it?")
    return found


def _register_machines(connection: "DuckDBPyConnection", machines: Iterable[InstanceType]) -> None:
    known = {(kind.provider, kind.name.lower()): kind for kind in machines}
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE machines "
        "(provider VARCHAR, word VARCHAR, name VARCHAR, accelerator VARCHAR, accelerators DOUBLE)"
    )
    connection.execute("CREATE OR REPLACE TEMP TABLE sellers (word VARCHAR, provider VARCHAR)")
    connection.executemany("INSERT INTO sellers VALUES (?, ?)", [list(pair) for pair in _PROVIDER_NAMES.items()])
    if known:
        connection.executemany(
            "INSERT INTO machines VALUES (?, ?, ?, ?, ?)",
            [[k.provider, word, k.name, k.accelerator, k.accelerator_count] for (_, word), k in known.items()],
        )


def _query(
    columns: Mapping[str, str],
    months: Sequence[str],
    matches: Mapping[str, Sequence[Conditions]],
    tags: Sequence[str],
    parameters: dict[str, Any],
    *,
    skus: bool,
) -> str:
    """One pass over the rows: typed, judged, added up by text, machines found in the texts, added up again."""
    workload = _workload_case(matches, tags, parameters)
    month_list = ", ".join(f"'{month}'" for month in months)
    other_month = f"strftime(local_start, '%Y-%m') NOT IN ({month_list})" if months else "false"
    sku = f"CASE WHEN instance_type IS NULL AND regexp_matches(lower(text), '{_ACCELERATED}') THEN text END"
    return f"""
WITH typed AS (SELECT {", ".join(_typed_columns(columns, tags, parameters))} FROM focus),
judged AS (
  SELECT *,
    CASE
      WHEN BilledCost IS NULL THEN 'BilledCost is not a number'
      WHEN started IS NULL THEN 'ChargePeriodStart is not a time'
      WHEN seller IS NULL THEN 'no provider'
      WHEN ChargeCategory IS NULL THEN 'no ChargeCategory'
      WHEN BillingCurrency IS NULL THEN 'no BillingCurrency'
      WHEN upper(BillingCurrency) <> 'USD' THEN 'BillingCurrency is not USD'
      WHEN ended <= started THEN 'ChargePeriodEnd is not after its start'
    END AS reason,
    timezone($zone, started) AS local_start,
    BilledCost AS billed,
    CASE
      WHEN lower(PricingUnit) LIKE '%hour%' OR lower(PricingUnit) IN ('hrs', 'h')
        THEN PricingQuantity * coalesce(try_cast(regexp_extract(PricingUnit, '^[0-9]+') AS INTEGER), 1)
      WHEN lower(ConsumedUnit) LIKE '%hour%' OR lower(ConsumedUnit) IN ('hrs', 'h') THEN ConsumedQuantity
    END AS quantity_hours,
    CASE
      WHEN CommitmentDiscountId IS NOT NULL OR PricingCategory = 'Committed' THEN 'committed'
      WHEN PricingCategory = 'Dynamic' THEN 'spot'
      WHEN PricingCategory = 'Standard' THEN 'on_demand'
    END AS option,
    coalesce(ContractedUnitPrice, ListUnitPrice) * PricingQuantity AS expected,
    CASE WHEN ContractedUnitPrice IS NOT NULL THEN 'ContractedUnitPrice' ELSE 'ListUnitPrice' END AS price_column
  FROM typed
),
placed AS (
  SELECT *,
    CASE WHEN reason IS NULL THEN coalesce(sellers.provider, lower(seller)) END AS provider,
    reason IS NULL AND ({other_month} OR started >= $until) AS outside,
    ChargeCategory = 'Usage' AND option = 'on_demand' AS plain_usage,
    ChargeCategory NOT IN ('Usage', 'Purchase') OR coalesce(ChargeFrequency = 'One-Time', false)
      OR coalesce(ended - started > INTERVAL 25 HOUR, false) AS is_once,
    abs(EffectiveCost - billed) > {_TOLERANCE_USD} AS effective_differs
  FROM judged LEFT JOIN sellers ON sellers.word = lower(judged.seller)
),
by_text AS (
  SELECT
    reason, outside, provider,
    CASE WHEN NOT outside AND reason IS NULL THEN local_start::DATE END AS day,
    CASE WHEN NOT outside THEN text END AS text,
    CASE WHEN NOT outside THEN ServiceName END AS ServiceName,
    CASE WHEN NOT outside THEN RegionId END AS RegionId,
    CASE WHEN NOT outside THEN option END AS option,
    CASE WHEN NOT outside THEN CommitmentDiscountId END AS CommitmentDiscountId,
    CASE WHEN NOT outside THEN coalesce(CommitmentDiscountStatus = 'Unused', false) END AS unused,
    CASE WHEN NOT outside THEN SubAccountId END AS SubAccountId,
    CASE WHEN NOT outside THEN SubAccountName END AS SubAccountName,
    {"".join(f"CASE WHEN NOT outside THEN tag_{i} END AS tag_{i}, " for i in range(len(tags)))}
    {_resource_columns(matches)}
    CASE WHEN NOT outside THEN is_once END AS once,
    sum(billed) AS billed,
    sum(CASE WHEN plain_usage THEN billed ELSE coalesce(EffectiveCost, billed) END) AS effective,
    sum(quantity_hours) AS hours,
    count(*) AS lines,
    max(ended) FILTER (NOT is_once) AS last,
    count(*) FILTER (plain_usage AND effective_differs) AS spoiled,
    sum(EffectiveCost - billed) FILTER (plain_usage AND effective_differs) AS spoiled_usd,
    count(*) FILTER (plain_usage AND expected IS NOT NULL) AS checked,
    count(*) FILTER (plain_usage AND abs(billed - expected) > {_TOLERANCE_USD}) AS differing,
    sum(billed - expected) FILTER (plain_usage AND abs(billed - expected) > {_TOLERANCE_USD}) AS difference,
    list(DISTINCT price_column) FILTER (plain_usage AND expected IS NOT NULL) AS price_columns
  FROM placed GROUP BY ALL
),
words AS (
  SELECT provider, text, unnest(regexp_split_to_array(lower(text), '[^a-z0-9._-]+')) AS word
  FROM (SELECT DISTINCT provider, text FROM by_text WHERE text IS NOT NULL)
),
found AS (
  SELECT words.provider, words.text, min(name) AS instance_type, min(accelerator) AS accelerator,
    min(accelerators) AS accelerators
  FROM words JOIN machines ON machines.provider = words.provider AND machines.word = rtrim(words.word, '.')
  GROUP BY ALL HAVING count(DISTINCT name) = 1
),
named AS (
  SELECT by_text.*, found.instance_type, found.accelerator, found.accelerators
  FROM by_text LEFT JOIN found ON found.provider = by_text.provider AND found.text = by_text.text
)
SELECT reason, outside, strftime(day, '%Y-%m'), day(day), {workload} AS workload, provider, ServiceName, RegionId,
  instance_type, accelerator, accelerators, option, CommitmentDiscountId, unused, once,
  sum(billed), sum(effective), sum(hours), sum(lines), timezone('UTC', max(last)), sum(spoiled), sum(spoiled_usd),
  sum(checked), sum(differing), sum(difference), list_sort(list_distinct(flatten(list(coalesce(price_columns, []))))),
  {sku if skus else "NULL"} AS sku
FROM named GROUP BY ALL ORDER BY ALL LIMIT $most
"""  # noqa: S608  # names of columns are quoted, values are bound


def _typed_columns(columns: Mapping[str, str], tags: Sequence[str], parameters: dict[str, Any]) -> Iterable[str]:
    """Each column of FOCUS as the type that it has; NULL where the export lacks it or a cell is no such value."""
    for name in _TEXT:
        yield f"{_text(columns, name)} AS {name}"
    for name in _NUMBERS:
        yield f"try_cast({_text(columns, name)} AS DECIMAL(38, 12)) AS {name}"
    yield f"try_cast({_text(columns, 'ChargePeriodStart')} AS TIMESTAMPTZ) AS started"
    yield f"try_cast({_text(columns, 'ChargePeriodEnd')} AS TIMESTAMPTZ) AS ended"
    yield f"coalesce({_text(columns, 'ServiceProviderName')}, {_text(columns, 'ProviderName')}) AS seller"
    details, description = _text(columns, "SkuPriceDetails"), _text(columns, "ChargeDescription")
    parts = [details, _text(columns, "x_InstanceType"), _azure_type(columns), _text(columns, "SkuMeter"), description]
    yield f"concat_ws(' ', {', '.join(parts)}) AS text"
    tags_text = _text(columns, "Tags")
    for number, tag in enumerate(tags):
        parameters[f"tag_{number}"] = "/" + tag.replace("~", "~0").replace("/", "~1")
        yield (
            f"CASE WHEN json_valid({tags_text}) THEN json_extract_string({tags_text}, $tag_{number}) END "
            f"AS tag_{number}"
        )


def _azure_type(columns: Mapping[str, str]) -> str:
    """The size that Azure's own columns name, in its details or by its meter: `ND96isr H100 v5 Spot`."""
    details = _text(columns, "x_SkuDetails")
    meter = f"coalesce({_text(columns, 'x_SkuMeterName')}, {_text(columns, 'SkuMeter')})"
    size = f"replace(regexp_replace({meter}, ' (Spot|Low Priority)$', ''), ' ', '_')"
    return (
        f"coalesce(CASE WHEN json_valid({details}) THEN json_extract_string({details}, '$.ServiceType') END, "
        f"CASE WHEN regexp_matches({meter}, '^N[A-Z][0-9]') THEN 'Standard_' || {size} END)"
    )


def _text(columns: Mapping[str, str], name: str) -> str:
    column = columns.get(name.lower())
    if column is None:
        return "NULL::VARCHAR"
    quoted = '"' + column.replace('"', '""') + '"'
    return f"nullif(nullif(trim({quoted}::VARCHAR), ''), 'NULL')"


def _resource_columns(matches: Mapping[str, Sequence[Conditions]]) -> str:
    """Resources are told apart only where a workload asks for one: there can be as many as rows."""
    if any("resource" in entry for entries in matches.values() for entry in entries):
        return (
            "CASE WHEN NOT outside THEN ResourceId END AS ResourceId, "
            "CASE WHEN NOT outside THEN ResourceName END AS ResourceName,"
        )
    return "NULL AS ResourceId, NULL AS ResourceName,"


def _workload_case(matches: Mapping[str, Sequence[Conditions]], tags: Sequence[str], parameters: dict[str, Any]) -> str:
    """SQL that gives the index of the first workload whose conditions a row meets; values are bound, never pasted."""
    whens = []
    for index, entries in enumerate(matches.values()):
        for entry in entries:
            tests = [_condition(key, value, tags, parameters) for key, value in entry.items()]
            if tests:
                whens.append(f"WHEN {' AND '.join(tests)} THEN {index}")
    return f"CASE {' '.join(whens)} END" if whens else "NULL::INTEGER"


def _condition(key: str, value: str, tags: Sequence[str], parameters: dict[str, Any]) -> str:
    name = f"match_{len(parameters)}"
    parameters[name] = value.lower()
    if key.startswith("tag:"):
        return f"lower(tag_{tags.index(key[4:])}) = ${name}"
    columns = {
        "provider": ("provider",),
        "service": ("ServiceName",),
        "region": ("RegionId",),
        "sub_account": ("SubAccountId", "SubAccountName"),
        "resource": ("ResourceId", "ResourceName"),
        "instance_type": ("instance_type",),
    }[key]
    return "(" + " OR ".join(f"lower({column}) = ${name}" for column in columns) + ")"


def _actuals(
    rows: Sequence[tuple[Any, ...]], workloads: Sequence[str], malformed: int, *, has_effective: bool
) -> Actuals:
    groups = []
    rejected: dict[str, int] = {"line cannot be split in columns": malformed} if malformed else {}
    used = outside = checked = differing = spoiled = 0
    difference = spoiled_usd = ZERO
    prices: set[str] = set()
    through: datetime | None = None
    for row in rows:
        reason, is_outside, lines, last = row[0], row[1], int(row[18]), row[19]
        if reason is not None:
            rejected[reason] = rejected.get(reason, 0) + lines
            continue
        if is_outside:
            outside += lines
            continue
        used += lines
        groups.append(_group(row, workloads))
        if last is not None:
            through = max(through or last, last)
        spoiled, spoiled_usd = spoiled + int(row[20]), spoiled_usd + (row[21] or ZERO)
        checked, differing = checked + int(row[22]), differing + int(row[23])
        difference += row[24] or ZERO
        prices.update(row[25])
    total = used + outside + sum(rejected.values())
    if total > _MOST_ROWS:
        raise UsageError(f"the cost export has {total:,} rows; at most {_MOST_ROWS:,} are read: narrow it")
    return Actuals(
        groups=tuple(groups),
        rows=total,
        used=used,
        outside=outside,
        rejected=dict(sorted(rejected.items())),
        through=None if through is None else through.replace(tzinfo=UTC),
        check=CrossCheck(rows=checked, differing=differing, difference_usd=difference, prices=tuple(sorted(prices))),
        spoiled_effective_rows=spoiled,
        spoiled_effective_usd=spoiled_usd,
        warnings=(
            *(() if has_effective else ("the cost export has no EffectiveCost: BilledCost is used in its place",)),
            *_warnings(spoiled, spoiled_usd, differing, checked, difference, rejected),
        ),
    )


def _group(row: tuple[Any, ...], workloads: Sequence[str]) -> SpendGroup:
    return SpendGroup(
        month=row[2],
        day=int(row[3]),
        workload=None if row[4] is None else workloads[row[4]],
        provider=row[5],
        service=row[6],
        region=row[7],
        instance_type=row[8],
        accelerator=row[9],
        accelerators=row[10],
        purchase_option=row[11],
        commitment_id=row[12],
        unused=bool(row[13]),
        once=bool(row[14]),
        billed_usd=row[15],
        effective_usd=row[16],
        hours=row[17],
        rows=int(row[18]),
        sku=row[26],
    )


def _warnings(
    spoiled: int, spoiled_usd: Decimal, differing: int, checked: int, difference: Decimal, rejected: Mapping[str, int]
) -> Iterable[str]:
    if spoiled:
        yield (
            f"EffectiveCost differs from BilledCost on {spoiled:,} on-demand usage rows (by {spoiled_usd:+,.2f} USD in "
            "all): for on-demand usage both are the same, so BilledCost is used there"
        )
    if differing:
        yield (
            f"BilledCost differs from quantity x unit price on {differing:,} of {checked:,} on-demand usage rows "
            f"(by {difference:+,.2f} USD in all): a discount, or an export to question"
        )
    if rejected:
        reasons = ", ".join(f"{count:,} x {reason}" for reason, count in sorted(rejected.items()))
        yield f"{sum(rejected.values()):,} rows of the cost export cannot be used: {reasons}"
