"""Turns a file of unknown kind into what it asks for, by what is written in it."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from optimizer.interop import command_lines, dstack, kubernetes, skypilot
from optimizer.interop.asks import Ask, Wish, divided, wish
from optimizer.workload.traces import COLUMNS
from optimizer.workload.workload_file import load_yaml
from providers.errors import UsageError

Kind = Literal["launch", "model", "melange", "log"]
KNOWN: Final = (
    "SkyPilot, dstack and Kubernetes YAML, vLLM and SGLang command lines, a model's config.json or folder, "
    "Melange JSON, request logs as CSV or JSON lines"
)
_DOCUMENT_MARK: Final = re.compile(r"^---(?:\s.*)?$")
_INSTANCES: Final = re.compile(
    r"^# Instances: (?P<count>\d+) x (?P<provider>\w+) (?P<type>\S+) \((?P<each>\d+) x (?P<accelerator>[^()]+)\), "
    r"(?P<place>any region|[^, ]+)(?: zone [^, ]+)?, (?P<option>\w+):"
)
"""The line that exported scripts carry; it says where their command runs."""

_DSTACK_TYPES: Final = ("task", "service", "dev-environment")
_SKYPILOT_KEYS: Final = frozenset({"resources", "run", "setup", "num_nodes", "service"})
_MOST_DOCUMENTS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """What kind of file it is, and what it asks for where it launches something."""

    kind: Kind
    asks: tuple[Ask, ...] = ()


def recognise(text: str, name: str) -> Recognised:
    """The kind of a file by its content. Raises UsageError for one that is none of KNOWN, or damaged."""
    if "\0" in text:
        raise UsageError(f"{name} is a binary file; known: {KNOWN}")
    stripped = text.lstrip()
    _refuse_tables_of_money(stripped, name)
    if is_log_head(stripped):
        return Recognised(kind="log")
    if stripped.startswith("{"):
        return _json(text, name)
    script = _script(text)
    if script and (stripped.startswith("#!") or not _is_yaml(stripped)):
        return Recognised(kind="launch", asks=script)
    asks = [ask for document, lines in _documents(text, name) for ask in _of_document(document, lines)]
    if not asks and not script:
        raise UsageError(f"{name} asks for nothing that is known here; known: {KNOWN}")
    return Recognised(kind="launch", asks=tuple(asks) or script)


def _refuse_tables_of_money(text: str, name: str) -> None:
    """Bills and quotes are read by other commands: raises UsageError that names them."""
    header = {cell.strip().strip('"').lower() for cell in text.split("\n", maxsplit=1)[0].split(",")}
    if {"billedcost", "chargeperiodstart"} <= header:
        raise UsageError(f"{name} is a FOCUS export: `costopt report BUDGET.yaml --actuals {name}` reads it")
    if {"vendor", "price"} <= header:
        raise UsageError(
            f"{name} is a table of quotes: `costopt compare --gpu NAME --count N --quotes {name}` reads it"
        )


def _json(text: str, name: str) -> Recognised:
    """One object is a Melange problem or a model's config."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name} is no valid JSON: {error}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{name} holds a {type(content).__name__}; known: {KNOWN}")
    if "gpu_info" in content:
        return Recognised(kind="melange")
    if "num_hidden_layers" in content or "architectures" in content or "text_config" in content:
        return Recognised(kind="model")
    if content.get("schema") == "costopt.plan":
        raise UsageError(f"{name} is a plan of costopt: `costopt export {name} --to TARGET` writes its files")
    raise UsageError(f"{name} is JSON of a kind that is not known here; known: {KNOWN}")


def is_log_head(text: str) -> bool:
    """Whether the first line is the header of a request log, or the first two are JSON objects of their own."""
    first, _, rest = text.lstrip().partition("\n")
    if first.startswith("{"):
        return first.rstrip().endswith("}") and rest.lstrip().startswith("{")
    header = {cell.strip().strip('"').lower() for cell in first.split(",")}
    return all(header & set(names) for names in COLUMNS.values())


def _is_yaml(text: str) -> bool:
    """Whether some line looks like a key of YAML."""
    return any(re.match(r"[A-Za-z_][\w.-]*:(\s|$)", line) for line in text.splitlines())


def _script(text: str) -> tuple[Ask, ...]:
    """The servers that a shell script or a bare command line starts."""
    stated = next((found for line in text.splitlines() if (found := _INSTANCES.match(line))), None)
    return tuple(_of_server(found, stated) for found in command_lines.servers(text))


def _of_server(found: command_lines.Server, stated: re.Match[str] | None) -> Ask:
    ask = Ask(
        source={"vllm": "vLLM command", "sglang": "SGLang command"}[found.engine],
        name="server",
        model=found.values.get("model"),
        lines={"command": found.line, **found.lines},
        **command_lines.served(found),
    )
    nodes = found.count("nodes") or 1
    if stated is None:
        return replace(ask, nodes=nodes)
    wishes, faults = divided([wish(stated["accelerator"], stated["each"], None)])
    return replace(
        ask,
        wishes=wishes,
        faults=faults,
        nodes=nodes,
        replicas=max(1, int(stated["count"]) // nodes),
        provider=stated["provider"],
        region=None if stated["place"] == "any region" else stated["place"],
        instance_type=stated["type"],
        spot=stated["option"] == "spot",
    )


def _documents(text: str, name: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Each YAML document with the lines of its paths, counted from the top of the file."""
    raw = text.splitlines(keepends=True)
    marks = [index for index, line in enumerate(raw) if _DOCUMENT_MARK.match(line.rstrip())]
    starts = [0, *(mark + 1 for mark in marks)]
    if len(starts) > _MOST_DOCUMENTS:
        raise UsageError(f"{name} has {len(starts):,} YAML documents; at most {_MOST_DOCUMENTS} are read")
    for start, end in zip(starts, [*marks, len(raw)], strict=True):
        part = "".join(raw[start:end])
        if not part.strip():
            continue
        # Empty lines before it keep the numbers of its lines.
        content, lines = load_yaml("\n" * start + part, name)
        if isinstance(content, dict):
            yield content, lines
        elif content is not None:
            raise UsageError(f"{name}, line {start + 1}: a {type(content).__name__}, not a mapping; known: {KNOWN}")


def _of_document(content: Mapping[str, Any], lines: Any) -> Sequence[Ask]:
    if "apiVersion" in content and "kind" in content:
        return kubernetes.read(content, lines)
    if content.get("type") in _DSTACK_TYPES:
        return dstack.read(content, lines)
    if _SKYPILOT_KEYS & content.keys():
        return skypilot.read(content, lines)
    return ()


def with_wish(ask: Ask, named: str, count: int) -> Ask:
    """The ask on accelerators that the user names beside the file."""
    wishes, faults = divided([wish(named, count, None)])
    kept: tuple[Wish, ...] = wishes or ask.wishes
    return replace(ask, wishes=kept, faults=(*ask.faults, *faults))
