"""Turns Python values into what the flags of a command would give, and errors about flags into those of arguments."""

import csv
import io
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import MISSING, fields
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from numbers import Real
from os import PathLike, fsdecode
from typing import Any, Final, Protocol, TypeVar

from optimizer.api.clock import now
from optimizer.api.sources import Content, Source
from optimizer.api.values import MOST_WHOLE, shown
from optimizer.workload.workload import InferenceWorkload
from providers.errors import (
    CacheError,
    CostoptError,
    InvalidValue,
    NoUsablePrices,
    SolverError,
    UnknownName,
    UsageError,
)
from providers.units import SECONDS_PER_HOUR

Arguments = TypeVar("Arguments")


class Readable(Protocol):
    """An open file, of text or bytes."""

    def read(self) -> Any: ...


Words = str | Iterable[str]
"""One word or several."""

Amount = Decimal | int | float | str
File = str | PathLike[str] | Readable
Document = File | Mapping[str, Any]
"""A file of YAML or JSON, or what it would hold."""

Table = File | Sequence[Mapping[str, Any]]
"""A file of CSV, or a mapping for each of its rows."""

_Kind = Callable[[str, Any], Any]

_FLAG: Final = re.compile(r"--(?P<flag>[a-z][a-z-]*[a-z])(?: (?P<value>[A-Z0-9][\w.:-]*))?")
_DIGITS: Final = 50
"""An amount with more is written with its exponent, which no flag takes."""
_ARGUMENTS: Final = {
    "all": "show_all",
    "force": "replace=True",
    "no-master-weights": "master_weights=False",
    "no-lora-experts": "lora_experts=False",
}
"""Arguments that are not named as their flag is."""


def arguments_of(kind: type[Arguments], given: Mapping[str, Any], limits: Mapping[str, "_Kind"]) -> Arguments:
    """The arguments as the flags would give them, None being the default; `limits` are those of one function alone.

    Raises InvalidValue for one that is of another kind, outside its bounds, or None where there is no default.
    """
    taken = {}
    for field in fields(kind):  # type: ignore[arg-type]  # each of the kinds is a dataclass
        name, value = field.name, given[field.name]
        if value is not None:
            taken[name] = (limits.get(name) or _KINDS[name])(name, value)
        elif field.default is MISSING:
            raise InvalidValue(name, value, "it has no default: give one")
    return kind(**taken)


def given_names(arguments: Any) -> Iterator[str]:
    """The arguments that differ from their defaults."""
    for field in fields(arguments):
        if field.default is MISSING or getattr(arguments, field.name) != field.default:
            yield field.name


@contextmanager
def errors_in_python() -> Iterator[None]:
    """Errors that speak of flags become errors of the same class that speak of arguments."""
    try:
        yield
    except (UsageError, NoUsablePrices, CacheError, SolverError) as error:
        raise _in_python(error).with_traceback(error.__traceback__) from None


def _in_python(error: CostoptError) -> CostoptError:
    if isinstance(error, InvalidValue):
        return InvalidValue(_renamed(error.what), error.value, _renamed(error.hint))
    if isinstance(error, UnknownName):
        return error
    return type(error)(_renamed(str(error)))


def _renamed(text: str) -> str:
    """The text with `max_age` for `--max-age` and `rate=5` for `--rate 5`; commands in backticks stay commands."""

    def argument(match: re.Match[str]) -> str:
        name = _ARGUMENTS.get(match["flag"], match["flag"].replace("-", "_"))
        return name if match["value"] is None else f"{name}={match['value']}"

    parts = text.split("`")
    parts[::2] = [_FLAG.sub(argument, part) for part in parts[::2]]
    return "`".join(parts)


def _text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise InvalidValue(name, value, "give a text")


def _path_or_name(name: str, value: Any) -> str:
    return fsdecode(value) if isinstance(value, PathLike) else _text(name, value)


def _words(name: str, value: Any) -> list[str]:
    """The words, those of a set in alphabetical order; one without a list counts as one, not as its letters."""
    if isinstance(value, str):
        return [str(value)]
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise InvalidValue(name, value, "give a text, or a list of texts")
    found = [_text(name, word) for word in value]
    if isinstance(value, Set):
        found.sort()
    if not found:
        raise InvalidValue(name, found, "nothing can pass an empty list; None is for no such limit")
    return found


def _switch(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise InvalidValue(name, value, "give True or False")


def whole(low: int, high: int = MOST_WHOLE) -> _Kind:
    """A whole number within bounds, of any integer type."""

    def convert(name: str, value: Any) -> int:
        try:
            # Columns of tables hold whole numbers as floats where one is missing.
            number = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
        except TypeError:
            number = None
        if number is None or isinstance(value, bool) or not low <= number <= high:
            at_most = number is not None and number > high
            bounds = f"of at most {high:,}" if at_most else f"of at least {low}"
            raise InvalidValue(name, value if number is None else shown(value), f"give a whole number {bounds}")
        return number

    return convert


def _real(low: float | None = None) -> _Kind:
    """A number, of any numeric type; what else it must be is checked where it is used."""

    def convert(name: str, value: Any) -> float:
        try:
            number = float(value) if isinstance(value, (Real, Decimal)) and not isinstance(value, bool) else None
        except (ValueError, OverflowError):
            number = None
        if number is None or (low is not None and not number >= low):
            hint = "give a number" if low is None else f"give a number of at least {low:g}"
            raise InvalidValue(name, shown(value) if isinstance(value, int) else value, hint)
        return number

    return convert


def _amount(name: str, value: Any) -> str:
    """Digits of an amount of money or of a number of tokens, as a flag would have them."""
    if isinstance(value, str):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}" if abs(value.adjusted()) < _DIGITS else str(value)
    number = _real()(name, value)
    exact = Decimal(value) if isinstance(value, int) else Decimal(repr(number))
    return f"{exact.normalize():f}" if exact.is_finite() else str(number)


def _duration(name: str, value: Any) -> str:
    """A duration as a flag would have it; a number is one of days."""
    value = _python_time(value)
    if isinstance(value, timedelta):
        return f"{Decimal(repr(value.total_seconds() / SECONDS_PER_HOUR)).normalize():f}h"
    if isinstance(value, (str, Real, Decimal)):
        return _amount(name, value)
    raise InvalidValue(name, value, "give a timedelta, or a text like 12h or 30d")


def _day(name: str, value: Any) -> str:
    value = _python_time(value)
    if isinstance(value, date):
        return (value.date() if isinstance(value, datetime) else value).isoformat()
    if isinstance(value, str):
        return str(value)
    raise InvalidValue(name, value, "give a date, or a text like 2026-08-31")


def _deadline(name: str, value: Any) -> str:
    """A duration or a day; a moment is told by the time until then, since its day would end later."""
    value = _python_time(value)
    if not isinstance(value, datetime):
        return _day(name, value) if isinstance(value, date) else _duration(name, value)
    if value.tzinfo is None:
        raise InvalidValue(name, str(value), "say in which time zone: datetime(…, tzinfo=UTC), or a date for its end")
    left = value - now()
    if left <= timedelta(0):
        raise InvalidValue(name, str(value), f"lies in the past (now is {now():%Y-%m-%d %H:%M} UTC)")
    return _duration(name, left)


def _python_time(value: Any) -> Any:
    """A moment or duration of numpy's as Python's, None for a missing one, and anything else as it is.

    As a number it would be taken for days, whatever its unit.
    """
    unit = {"m": "timedelta64[us]", "M": "datetime64[us]"}.get(getattr(getattr(value, "dtype", None), "kind", ""))
    if unit is not None and value.ndim == 0:
        return value.astype(unit).item()
    return None if isinstance(value, datetime) and value != value else value


def _file(name: str, value: Any, *, mapping: bool = True, rows: bool = True) -> Source:
    """A path as it is; what stands in for a file as its content, called by the argument's name."""
    if isinstance(value, (str, PathLike)):
        path = fsdecode(value)
        if "\0" in path:
            raise InvalidValue(name, path, "no file has such a name")
        return path
    if mapping and isinstance(value, Mapping):
        return Content(name=name, text=_json(name, value))
    if hasattr(value, "read"):
        return Content(name=name, text=_read(name, value))
    if rows and isinstance(value, Sequence) and not isinstance(value, bytes):
        return Content(name=name, text=_csv(name, value))
    content = " or ".join(["a mapping"] * mapping + ["a list with a mapping for each row"] * rows)
    like = ", like frame.to_dict('records')" if rows and hasattr(value, "to_dict") else ""
    raise InvalidValue(name, value, f"give a path, an open file, or its content: {content}{like}")


def _workloads(name: str, value: Any) -> Source | tuple[InferenceWorkload, ...]:
    """A file, or workloads as objects."""
    if isinstance(value, InferenceWorkload):
        return (value,)
    if isinstance(value, (str, PathLike, Mapping)) or hasattr(value, "read"):
        return _file(name, value)
    found = tuple(value) if isinstance(value, Iterable) else (None,)
    if all(isinstance(one, InferenceWorkload) for one in found):
        return found
    raise InvalidValue(name, value, "give a path, an open file, a mapping, or InferenceWorkload objects")


def _json(name: str, value: Mapping[str, Any]) -> str:
    """The mapping as JSON, which YAML reads. Raises InvalidValue for what neither can hold."""
    try:
        return json.dumps(value, ensure_ascii=False, default=_plain)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValue(name, type(value).__name__, f"cannot be written as YAML: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    if isinstance(value, (Decimal, PathLike)):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "item"):  # a number of numpy's
        return value.item()
    raise TypeError(f"{type(value).__name__} {value!r} is no value of YAML")


def _read(name: str, file: Readable) -> str:
    content = file.read()
    if isinstance(content, bytes):
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise UsageError(f"{name} is not UTF-8 text") from None
    if not isinstance(content, str):
        raise InvalidValue(name, type(file).__name__, "its read() gives neither text nor bytes")
    return content.removeprefix("\ufeff")


def _csv(name: str, rows: Sequence[Any]) -> str:
    """A line for each row, under the keys of all; what is missing, also where pandas says so by NaN, is empty."""
    if not rows or not all(isinstance(row, Mapping) for row in rows):
        raise InvalidValue(name, rows[:1] or rows, "give a list of rows, each a mapping of column to value")
    columns = list(dict.fromkeys(str(key) for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({str(key): _cell(value) for key, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    return "" if isinstance(value, (float, datetime)) and value != value else value


_KINDS: Final[Mapping[str, _Kind]] = {
    **dict.fromkeys(("task", "trace_rate", "kv_precision", "engine", "solver", "arch", "sort"), _text),
    **dict.fromkeys(("optimizer", "recompute", "stack"), _text),
    "model": _path_or_name,
    **dict.fromkeys(("precision", "offload", "provider", "region", "gpu", "purchase", "include"), _words),
    **dict.fromkeys(("instance_type", "link"), _words),
    **dict.fromkeys(("budget", "max_price", "tokens", "global_batch_tokens"), _amount),
    **dict.fromkeys(("horizon", "max_age"), _duration),
    "deadline": _deadline,
    "as_of": _day,
    "workload": _workloads,
    **dict.fromkeys(("quota", "current", "costs"), partial(_file, rows=False)),
    **dict.fromkeys(("trace", "quotes"), partial(_file, mapping=False)),
    "measured": _file,
    **dict.fromkeys(("rate", "ttft_ms", "tpot_ms", "gpu_memory_utilization", "prefix_cache_hit"), _real()),
    **dict.fromkeys(("confidence", "max_utilization", "max_spot_share", "max_provider_share"), _real()),
    **dict.fromkeys(("spot_margin", "gap", "hours", "min_memory"), _real()),
    **dict.fromkeys(("boot_minutes", "min_hours_up"), _real(0.0)),
    "host_memory": _real(1.0),
    **dict.fromkeys(("input_tokens", "output_tokens", "context", "max_gpus", "max_nodes"), whole(1)),
    **dict.fromkeys(("seq_len", "micro_batch", "concurrency", "tp", "pp", "count"), whole(1)),
    "trace_shapes": whole(1, 100),
    "min_providers": whole(0, 5),
    "spare_replicas": whole(0),
    "zero_stage": whole(0, 3),
    "lora_rank": whole(1, 4096),
    **dict.fromkeys(("master_weights", "lora_experts", "same_region", "offline", "explain", "show_all"), _switch),
}
"""What turns each argument into what its flag would give."""

ONE_OF_SIZE: Final[Mapping[str, _Kind]] = {"gpu": _text, "precision": _text, "count": whole(1, 4096)}
"""Arguments of `size` that take one word, or have another bound, than those of the other functions."""

OF_COMPARE: Final[Mapping[str, _Kind]] = {"count": whole(1, 1_000_000)}
