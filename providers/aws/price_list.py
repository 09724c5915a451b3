"""Turns AWS's price list, as `get_products` and as the bulk file write it, into on-demand and reserved offers."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

from providers.aws.machines import Machines
from providers.errors import InvalidAnswer
from providers.offers import Commitment, CommitmentKind, PurchaseOption
from providers.tally import Tally, usd
from providers.units import HOURS_PER_YEAR

PLAIN: Final = MappingProxyType(
    {
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "licenseModel": "No License required",
    }
)
"""The attributes that leave one product for a type in a region: no licence, no reserved capacity, no capacity block."""

_ACCELERATED: Final = ("GPU", "ASIC", "Accelerat")
"""Words in the family of an accelerated instance (`GPU instance`, `Machine Learning ASIC Instances`)."""

_REGIONAL: Final = "AWS Region"
_ZONAL: Final = ("AWS Local Zone", "AWS Wavelength Zone")
_PARENT: Final = re.compile(r"(?P<region>[a-z]{2}(?:-[a-z]+)+-\d+)-.+")
_YEARS: Final = MappingProxyType({"1yr": 1, "3yr": 3, "1 yr": 1, "3 yr": 3})
_OPTIONS: Final = MappingProxyType({1: PurchaseOption.RESERVED_1Y, 3: PurchaseOption.RESERVED_3Y})
_VARIANTS: Final = MappingProxyType(
    {"No Upfront": "", "Partial Upfront": "partial upfront", "All Upfront": "all upfront"}
)
_COLUMNS: Final = MappingProxyType(
    {
        "instanceType": "Instance Type",
        "instanceFamily": "Instance Family",
        "operatingSystem": "Operating System",
        "tenancy": "Tenancy",
        "preInstalledSw": "Pre Installed S/W",
        "capacitystatus": "CapacityStatus",
        "marketoption": "Market Option",
        "licenseModel": "License Model",
        "locationType": "Location Type",
        "regionCode": "Region Code",
        "gpu": "GPU",
        "networkPerformance": "Network Performance",
    }
)
"""The bulk file's columns by the attribute of `get_products` that they hold."""


_TERM_COLUMNS: Final = (
    "SKU",
    "OfferTermCode",
    "RateCode",
    "TermType",
    "EffectiveDate",
    "Unit",
    "PricePerUnit",
    "Currency",
    "LeaseContractLength",
    "PurchaseOption",
    "OfferingClass",
)


@dataclass(slots=True)
class Term:
    """One way to buy one product: `OnDemand` or `Reserved`, with its hourly part and what is paid at the start."""

    kind: str
    attributes: Mapping[str, str]
    hourly: Decimal | None = None
    upfront: Decimal = Decimal(0)
    effective: str = ""
    rate_codes: list[str] = field(default_factory=list)
    problem: str = ""

    def add(self, unit: str, price: object, currency: str, rate_code: str) -> None:
        """Takes one price dimension: `Hrs` recurs, `Quantity` is the fee at the start."""
        amount = usd(price)
        self.rate_codes.append(rate_code)
        if currency != "USD":
            self.problem = f"price in {currency or 'no currency'}, not USD"
        elif amount is None or not amount.is_finite():
            self.problem = "price is not a number"
        elif amount < 0:
            self.problem = "negative price"
        elif unit == "Hrs" and self.hourly is None:
            self.hourly = amount
        elif unit == "Quantity":
            self.upfront += amount
        else:
            self.problem = f"price per {unit}" if self.hourly is None else "two hourly prices in one term"


def is_accelerated(product: Mapping[str, str], machines: Machines) -> bool:
    """Whether a product is a machine with accelerators, by its own fields; a list of families would miss new ones."""
    family = product.get("instanceFamily") or ""
    count = product.get("gpu") or ""
    return (
        product.get("instanceType", "") in machines
        or any(word in family for word in _ACCELERATED)
        or count not in ("", "0", "NA")
    )


def is_accelerated_line(line: str) -> bool:
    """Whether a line of the bulk file is its header or may be of an accelerated Linux machine: cheap, so that most of
    hundreds of MB need no CSV parser."""
    return line.startswith('"SKU"') or ('"Linux"' in line and any(word in line for word in _ACCELERATED))


def parse_products(items: Iterable[Mapping[str, Any]], machines: Machines, source: str, tally: Tally) -> None:
    """Adds the offers of decoded items of `get_products`. The filters of the call are checked again, because a
    product that slips through is a wrong price."""
    for item in items:
        try:
            product = item["product"]["attributes"]
            if not _is_plain(product) or not is_accelerated(product, machines):
                continue
            for kind, term in _terms(item):
                _add(_term(kind, term), product, machines, source, tally)
        except (KeyError, TypeError, AttributeError, ValueError, ArithmeticError):
            tally.reject("row of another shape")


@dataclass(slots=True)
class BulkFile:
    """The terms, with their products, of accelerated machines in a region's bulk file; `broken` rows had another
    number of cells than the header."""

    terms: dict[tuple[str, str], tuple[Mapping[str, str], Term]] = field(default_factory=dict)
    broken: int = 0


def parse_bulk_lines(lines: Iterable[str], machines: Machines) -> BulkFile:
    """Reads a region's bulk CSV file line by line.

    Five lines about the file come before the header; the rows of one term need not be neighbours. Raises
    InvalidAnswer when there is no header or a column is missing.
    """
    rows = _rows(lines)
    header = next(rows, [])
    columns = {name: number for number, name in enumerate(header)}
    missing = sorted({*_COLUMNS.values(), *_TERM_COLUMNS} - columns.keys())
    if missing:
        raise InvalidAnswer("aws", f"the price file lacks the column {missing[0]}")
    file = BulkFile()
    for row in rows:
        if len(row) != len(header):
            file.broken += 1
            continue
        product = {attribute: row[columns[column]] for attribute, column in _COLUMNS.items()}
        if not _is_plain(product) or not is_accelerated(product, machines):
            continue
        cell = {name: row[columns[name]] for name in _TERM_COLUMNS}
        key = (cell["SKU"], cell["OfferTermCode"])
        _, term = file.terms.setdefault(key, (product, Term(cell["TermType"], cell, effective=cell["EffectiveDate"])))
        term.add(cell["Unit"], cell["PricePerUnit"], cell["Currency"], cell["RateCode"])
    return file


def add_bulk_file(file: BulkFile, machines: Machines, source: str, tally: Tally) -> None:
    """Adds the offers of a region's bulk file."""
    if file.broken:
        tally.reject("row of another shape", file.broken)
    for product, term in file.terms.values():
        _add(term, product, machines, source, tally)


def _is_plain(product: Mapping[str, str]) -> bool:
    return all(product.get(name) == value for name, value in PLAIN.items())


def _terms(item: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in ("OnDemand", "Reserved"):
        for term in (item["terms"].get(kind) or {}).values():
            yield kind, term


def _term(kind: str, term: Mapping[str, Any]) -> Term:
    """A term of `get_products`; its dimensions are walked, because their keys differ by product."""
    made = Term(kind, term.get("termAttributes") or {}, effective=term.get("effectiveDate") or "")
    for code, dimension in term["priceDimensions"].items():
        prices = dimension["pricePerUnit"]
        currency = "USD" if "USD" in prices else next(iter(prices), "")
        made.add(dimension["unit"], prices.get("USD"), currency, dimension.get("rateCode") or code)
    return made


def _rows(lines: Iterable[str]) -> Iterator[list[str]]:
    try:
        yield from csv.reader(_from_header(lines))
    except csv.Error as error:
        raise InvalidAnswer("aws", f"the price file is not CSV ({error})") from None


def _from_header(lines: Iterable[str]) -> Iterator[str]:
    started = False
    for line in lines:
        started = started or line.startswith('"SKU"')
        if started:
            yield line


def _add(term: Term, product: Mapping[str, str], machines: Machines, source: str, tally: Tally) -> None:
    """The offer of one term. Convertible reservations are passed over: they cost more than standard ones for the
    right to exchange them."""
    place = _place(product)
    if place is None or term.attributes.get("OfferingClass") == "convertible":
        return
    kind = machines.kind(product["instanceType"], product.get("networkPerformance") or "")
    if kind is None:
        return
    option, commitment, hourly = PurchaseOption.ON_DEMAND, None, term.hourly
    if term.kind == "Reserved":
        years = _YEARS.get(term.attributes["LeaseContractLength"])
        variant = _VARIANTS.get(term.attributes["PurchaseOption"])
        if years is None or variant is None or bool(term.upfront) != bool(variant):
            tally.reject(term.problem or "reservation of an unknown term or payment")
            return
        option = _OPTIONS[years]
        commitment = Commitment(
            kind=CommitmentKind.RESERVED_INSTANCE, term_months=12 * years, upfront_usd=term.upfront, variant=variant
        )
        hourly = None if hourly is None else hourly + term.upfront / (years * HOURS_PER_YEAR)
    region, zone = place
    offered = None if zone else machines.zones(kind.name)
    if offered == ():
        tally.reject("priced in a region that does not offer it")
        return
    tally.offer(
        kind,
        hourly,
        option,
        source=source,
        region=region,
        zone=zone,
        commitment=commitment,
        row_ids=term.rate_codes,
        effective_from=_date(term.effective),
        notes=f"offered in {', '.join(offered)}" if offered else "",
        problem=term.problem,
    )


def _place(product: Mapping[str, str]) -> tuple[str, str | None] | None:
    """Region and zone: a Local or Wavelength Zone has its own code and belongs to its parent region."""
    code, kind = product["regionCode"], product["locationType"]
    if kind == _REGIONAL and code:
        return code, None
    parent = _PARENT.fullmatch(code)
    if kind in _ZONAL and parent:
        return parent["region"], code
    return None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text[:10])
    except ValueError:
        return None
