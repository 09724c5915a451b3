"""Turns the documents of plans, sizings, comparisons and listings into results: totals, rows for tables, and HTML."""

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from decimal import Decimal
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Final

from optimizer.api.json_text import json_text
from optimizer.api.python_words import errors_in_python
from optimizer.api.sources import path_of
from providers.errors import UnknownName, UsageError, nearest

Row = dict[str, Any]

_PLAN_TABLES: Final = ("instances", "replicas", "routing", "jobs", "alternatives", "trade_off", "changes")
_COMPARE_TABLES: Final = ("ways", "set_apart", "quotes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What was found: `document` is what the command of the same name prints with `-f json`, to be read only.

    All other members are copies, to change at will, with money as Decimal where the document has its digits.
    """

    document: Mapping[str, Any]

    @property
    def assumptions(self) -> Sequence[str]:
        """What was assumed where nothing was said."""
        return tuple(self.document.get("assumptions", ()))

    @property
    def warnings(self) -> Sequence[str]:
        """What a reader should know before acting on it."""
        return tuple(self.document.get("warnings", ()))

    def to_dict(self) -> dict[str, Any]:
        """A copy of the document, to change at will."""
        return deepcopy(dict(self.document))

    def to_json(self) -> str:
        """The document as `-f json` prints it."""
        return json_text(self.document)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFiles:
    """The files that were written to launch a plan, and what their target cannot express."""

    paths: tuple[Path, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PlanResult(Result):
    """A plan for serving or for training."""

    @property
    def status(self) -> str:
        """`optimal`, `within_gap`, `feasible` or `infeasible`."""
        return str(self.document["status"])

    @property
    def feasible(self) -> bool:
        return self.status != "infeasible"

    @property
    def is_training(self) -> bool:
        """Whether the plan is of training runs, whose costs are of whole runs and not of months."""
        return "jobs" in self.document

    @property
    def instances(self) -> Sequence[Row]:
        """What to buy: one entry an offer, with how many of it."""
        return _entries(self.document, "instances")

    @property
    def replicas(self) -> Sequence[Row]:
        """What runs on the instances: one entry a group of equal replicas; none of a training run."""
        return _entries(self.document, "replicas")

    @property
    def jobs(self) -> Sequence[Row]:
        """The training runs with their clusters; none of a plan for serving."""
        return _entries(self.document, "jobs")

    @property
    def alternatives(self) -> Sequence[Row]:
        """The best plan of each provider, accelerator, purchase option and precision."""
        return _entries(self.document, "alternatives")

    @property
    def totals(self) -> Row:
        """Money, speed and accelerators of the whole plan; empty where nothing is feasible."""
        return _entry(self.document["totals"] or {})

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Of everything that runs, on average; None where nothing is feasible."""
        return self.totals.get("usd_per_hour")

    @property
    def usd_per_month(self) -> Decimal | None:
        """Of a month of 730 hours; None of a training run, and where nothing is feasible."""
        return self.totals.get("usd_per_month")

    @property
    def usd_total(self) -> Decimal | None:
        """Of the whole training; None of a plan for serving, and where nothing is feasible."""
        return self.totals.get("usd_total")

    @property
    def hours(self) -> float | None:
        """From now to the end of the last training run; None of a plan for serving, and where nothing is feasible."""
        return _float(self.totals.get("hours"))

    @property
    def requests_per_s(self) -> float | None:
        """Requests served; None of a training run, and where nothing is feasible."""
        return _float(self.totals.get("requests_per_s"))

    @property
    def gpus(self) -> int | None:
        """Accelerators in all; None where nothing is feasible."""
        found = self.totals.get("gpus")
        return None if found is None else int(found)

    @property
    def gap(self) -> float | None:
        """The relative gap that was proven; None where nothing was."""
        return _float(self.document["proof"]["gap"])

    def rows(self, table: str = "instances") -> list[dict[str, Any]]:
        """The entries of one table, flat, for `pandas.DataFrame`: money is Decimal, what is not known None.

        Tables: instances, replicas, routing, jobs, alternatives, trade_off, changes. Raises UnknownName for another.
        """
        return _rows(self.document, table, _PLAN_TABLES)

    def export(self, target: str, folder: "str | PathLike[str]", *, replace: bool = False) -> LaunchFiles:
        """Writes the files that launch the plan on `target`, like "vllm", "kubernetes" or "skypilot", into the folder.

        Raises UsageError where there is nothing to launch, for a target that nobody knows, and for files that are
        already there, unless they may be replaced.
        """
        from optimizer.api.launch_files import written
        from optimizer.interop.plan_file import parse_plan

        with errors_in_python():
            if not self.instances:
                raise UsageError("nothing is feasible, so there is nothing to launch; see shortfalls and suggestions")
            paths, warnings = written(
                parse_plan(self.to_json(), "optimizer.plan"), [target], str(path_of(fspath(folder))), replace=replace
            )
        return LaunchFiles(paths=tuple(Path(path) for path in paths), warnings=tuple(warnings))

    def __repr__(self) -> str:
        bought = ", ".join(f"{one['count']} x {one['provider']} {one['instance_type']}" for one in self.instances)
        return f"<plan: {self._headline()}{f': {bought}' if bought else ''}>"

    def _headline(self) -> str:
        status = self.status.replace("_", " ")
        if not self.feasible:
            return status
        if self.is_training:
            return f"{status}, {self.usd_total:,} USD in {self.hours:,.1f} h"
        return f"{status}, {self.usd_per_month:,} USD per month for {self.requests_per_s:,.4g} requests/s"

    def _repr_html_(self) -> str:
        return "".join(self._html())

    def _html(self) -> Iterator[str]:
        title = f"Plan: {self._headline()} (estimate)"
        document = self.document
        yield html_table(title, _INSTANCE_COLUMNS, [_instance_cells(one) for one in self.instances])
        if not self.feasible:
            yield _table_of(document["shortfalls"], "Short of", ("limit", "needed", "available", "unit"))
            keys = ("flag", "hours", "usd_total", "note") if self.is_training else ("flag", "usd_per_month", "note")
            yield _table_of(document["suggestions"], "Would make it feasible", keys)
        if self.is_training:
            yield _table_of(self.jobs, "Runs", _JOB_KEYS)
        else:
            yield _table_of(self.replicas, "Replicas", _REPLICA_KEYS)
            routing = document["routing"] if len(self.replicas) > 1 else ()
            yield _table_of(routing, "Routing", _ROUTING_KEYS)
        others = [row for row in self.rows("alternatives") if row["feasible"]]
        yield _table_of(others, "Alternatives", _TRAINING_ALTERNATIVE_KEYS if self.is_training else _ALTERNATIVE_KEYS)
        yield _notes(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SizeResult(Result):
    """The sizing of one model on one accelerator x count."""

    @property
    def verdict(self) -> str:
        """`fits`, `tight` or `does_not_fit`."""
        return str(self.document["verdict"])

    @property
    def fits(self) -> bool:
        """Whether it fits, tightly or not."""
        return self.verdict != "does_not_fit"

    @property
    def min_gpus(self) -> int | None:
        """The fewest accelerators of the kind that it fits on; None where none of the counts tried do."""
        found = self.document["min_gpus"]
        return None if found is None else int(found)

    @property
    def memory(self) -> Row:
        """GiB by what takes them, and what is usable."""
        return _entry(self.document["memory"])

    @property
    def performance(self) -> Row:
        """Speed, each figure with `value`, `low` and `high`; empty where it does not fit."""
        return _entry(self.document["performance"] or {})

    @property
    def requests_per_s(self) -> float | None:
        """At the largest batch within the SLO; None of a training run, and where it does not fit."""
        return self._estimate("requests_per_s")

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens trained on, or written in serving, in a second; None where it does not fit."""
        return self._estimate("tokens_per_s" if "tokens_per_s" in self.performance else "output_tokens_per_s")

    @property
    def hours(self) -> float | None:
        """Of the whole training run; None in serving, without tokens, and where it does not fit."""
        return self._estimate("hours")

    def rows(self) -> list[dict[str, Any]]:
        """One row of all figures, under dotted keys, for `pandas.DataFrame`."""
        return [dict(_flat(_entry(self.document)))]

    def __repr__(self) -> str:
        return f"<size: {self._headline()}>"

    def _headline(self) -> str:
        document = self.document
        task = f"{document['task']} " if "task" in document else ""
        return f"{task}{document['model']} on {document['count']} x {document['accelerator']}: {self.verdict}"

    def _repr_html_(self) -> str:
        rows = [(key, value) for key, value in self.memory.items() if not isinstance(value, dict)]
        for key, value in self.performance.items():
            shown = f"{value['value']} ({value['low']} to {value['high']})" if isinstance(value, dict) else value
            rows.append((key, shown))
        known = [(_words(key), value) for key, value in rows if value is not None]
        return html_table(f"{self._headline()} (estimate)", ("what", "value"), known) + _notes(self)

    def _estimate(self, key: str) -> float | None:
        found = self.performance.get(key)
        return None if found is None else float(found["value"])


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class CompareResult(Result):
    """Ways to buy the same capacity, side by side."""

    @property
    def ways(self) -> Sequence[Row]:
        """The ways that can be compared, in the order of the report."""
        return _entries(self.document, "ways")

    @property
    def set_apart(self) -> Sequence[Row]:
        """The ways that lack something, with why."""
        return _entries(self.document, "set_apart")

    @property
    def cheapest(self) -> Row | None:
        """The way that costs least in a month, or for the job where hours are given; None where there is none."""
        key = "usd_per_month" if self.document["job_hours"] is None else "job_usd"
        priced = [way for way in self.ways if way[key] is not None]
        return min(priced, key=lambda way: way[key], default=None)

    def rows(self, table: str = "ways") -> list[dict[str, Any]]:
        """The entries of one table, flat, for `pandas.DataFrame`: money is Decimal, what is not known None.

        Tables: ways, set_apart, quotes. Raises UnknownName for another.
        """
        return _rows(self.document, table, _COMPARE_TABLES)

    def __repr__(self) -> str:
        return f"<compare: {self.document['title']}, {len(self.ways)} ways>"

    def _repr_html_(self) -> str:
        job = () if self.document["job_hours"] is None else ("job_usd",)
        keys = (*_WAY_KEYS, *job)
        title = f"{self.document['title']} (estimate)"
        apart = _table_of(self.set_apart, "Set apart", ("name", "seller", "accelerators", "why"))
        return _table_of(self.ways, title, keys, always=True) + apart + _notes(self)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OffersResult(Result):
    """Offers on file that pass the filters."""

    def __len__(self) -> int:
        return len(self.document["offers"])

    def __iter__(self) -> Iterator[Row]:
        return iter(self.offers)

    @property
    def offers(self) -> Sequence[Row]:
        """The offers, in the order that was asked for."""
        return _entries(self.document, "offers")

    def rows(self) -> list[dict[str, Any]]:
        """The offers, flat, for `pandas.DataFrame`: money is Decimal, what is not known None."""
        return _rows(self.document, "offers", ("offers",))

    def __repr__(self) -> str:
        return f"<offers: {len(self)} of {self.document['origin']}>"

    def _repr_html_(self) -> str:
        shown = self.offers[:_OFFERS_SHOWN]
        more = f", the first {len(shown)} of {len(self):,}" if len(self) > len(shown) else ""
        title = f"Offers: {self.document['origin']}{more}"
        cells = [_offer_cells(one) for one in shown]
        return html_table(title, _OFFER_COLUMNS, cells)


_OFFERS_SHOWN: Final = 50
_WRITTEN: Final = {
    **{word.lower(): word for word in ("GiB", "GB", "USD", "GPU", "GPUs", "KV", "MFU", "TTFT", "TPOT", "SLO")},
    "zero": "ZeRO",
}
_OFFER_COLUMNS: Final = ("provider", "instance type", "region", "bought", "accelerators", "USD/h", "price of")
_INSTANCE_COLUMNS: Final = ("count", *_OFFER_COLUMNS[:5], "USD/h each", "price of")
_REPLICA_KEYS: Final = (
    *("count", "workload", "provider", "instance_type", "precision", "tensor_parallel", "pipeline_parallel"),
    *("requests_per_s", "output_tokens_per_s", "ttft_ms", "tpot_ms", "utilization"),
)
_ROUTING_KEYS: Final = ("workload", "input_tokens", "output_tokens", "replica_group", "share", "requests_per_s")
_JOB_KEYS: Final = (
    *("workload", "provider", "instance_type", "count", "gpus", "precision", "layout", "zero_stage", "micro_batch"),
    *("hours", "hours_low", "hours_high", "usd_total"),
)
_ALTERNATIVE_KEYS: Final = ("kind", "name", "usd_per_month", "difference_usd_per_month", "requests_per_s", "note")
_TRAINING_ALTERNATIVE_KEYS: Final = ("kind", "name", "cluster.hours", "cluster.usd_total", "difference_usd", "note")
_WAY_KEYS: Final = (
    *("name", "seller", "purchase_option", "accelerators", "gpus", "region", "term_months", "usd_per_hour"),
    *("usd_per_month", "as_of"),
)


def _offer_cells(one: Row) -> tuple[object, ...]:
    return (
        one["provider"],
        one["instance_type"],
        one["zone"] or one["region"] or "any",
        _words(one["purchase_option"]),
        f"{one['accelerator_count']} x {one['accelerator']}",
        one["usd_per_hour"],
        one["as_of"] or "no date",
    )


def _instance_cells(one: Row) -> tuple[object, ...]:
    return (one["count"], *_offer_cells(one))


def _rows(document: Mapping[str, Any], table: str, tables: Sequence[str]) -> list[dict[str, Any]]:
    """The entries of a table of the document, each flat. Raises UnknownName."""
    if table not in tables:
        raise UnknownName("table", table, nearest(table, tables), f"known: {', '.join(tables)}")
    return [dict(_flat(entry)) for entry in _entries(document, table)]


def _flat(entry: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves by dotted key; what is listed below an entry stays a list."""
    for key, value in entry.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _entries(document: Mapping[str, Any], key: str) -> tuple[Row, ...]:
    return tuple(map(_entry, document.get(key, ())))


def _entry(found: Mapping[str, Any]) -> Row:
    """A copy, with amounts of money as Decimal."""
    return {key: _exact(key, value) for key, value in found.items()}


def _exact(key: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return _entry(value)
    if isinstance(value, (list, tuple)):
        return [_exact(key, one) for one in value]
    return Decimal(value) if isinstance(value, str) and "usd" in key.split("_") else value


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _words(key: str) -> str:
    """A key as it is read: `KV cache GiB` of `kv_cache_gib`."""
    return " ".join(_WRITTEN.get(word, word) for word in key.replace(".", "_").split("_"))


def _notes(result: Result) -> str:
    """Warnings in sight, assumptions folded."""
    warnings = "".join(f"<li>{_escaped(line)}</li>" for line in result.warnings)
    assumed = "".join(f"<li>{_escaped(line)}</li>" for line in result.assumptions)
    shown = f"<p>Warnings</p><ul>{warnings}</ul>" if warnings else ""
    return f"{shown}<details><summary>Assumed</summary><ul>{assumed}</ul></details>" if assumed else shown


def _table_of(entries: Iterable[Row], title: str, keys: Sequence[str], *, always: bool = False) -> str:
    """A table of those keys of the entries; nothing for no entry, unless it is wanted `always`."""
    rows = [[_shown(entry.get(key)) for key in keys] for entry in entries]
    return html_table(title, [_words(key) for key in keys], rows) if rows or always else ""


def _shown(value: object) -> object:
    if value is None:
        return ""
    return "; ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


def html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table of text: what looks like markup is shown as it is written."""
    head = "".join(f"<th>{_escaped(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    caption = f"<caption>{_escaped(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(value: object) -> str:
    """Text without markup, and without characters that no page may hold."""
    return html.escape("".join(c if c.isprintable() else "\ufffd" for c in str(value)))
