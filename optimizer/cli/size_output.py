"""Turns a sizing into what is printed: tables, JSON, CSV or Markdown."""

from collections.abc import Iterator
from typing import Any

from optimizer.api.json_text import json_text
from optimizer.api.serving_size import ServingSize
from optimizer.cli.tables import Table, csv_text, markdown, terminal

_VERDICTS = {"fits": "fits", "tight": "fits, but tight", "does_not_fit": "does not fit"}


def render(sized: ServingSize, format_: str) -> str:
    """The sizing in one of the formats."""
    document = sized.document
    if format_ == "json":
        return json_text(document)
    if format_ == "csv":
        flat = dict(_flat(document))
        return csv_text(list(flat), [list(flat.values())])
    parts = list(_parts(document, sized.requests))
    return terminal(parts) if format_ == "table" else markdown(parts)


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Leaves by dotted key; lists as their items joined."""
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        elif isinstance(value, list):
            yield f"{prefix}{key}", "; ".join(str(item) for item in value)
        else:
            yield f"{prefix}{key}", value


def _parts(document: dict[str, Any], requests: int) -> Iterator[Table | str]:
    memory = document["memory"]
    where = f"{document['count']} x {document['accelerator']}"
    layout = f"TP {document['tensor_parallel']}, PP {document['pipeline_parallel']}"
    verdict = _VERDICTS[document["verdict"]]
    yield f"{document['model']} on {where}, {document['precision']}, {layout}: {verdict} (estimate)"
    yield Table(
        title="Memory",
        columns=("what", "GiB"),
        rows=[
            ("weights, whole model", _gib(memory["weights_gib"])),
            (f"KV cache of {requests:,} x {document['context_tokens']:,} tokens", _gib(memory["kv_cache_gib"])),
            ("activations, all accelerators", _gib(memory["activations_gib"])),
            ("overhead, all accelerators", _gib(memory["overhead_gib"])),
            ("total", _gib(memory["total_gib"])),
            ("per accelerator", _gib(memory["per_gpu_gib"])),
            ("usable per accelerator", _gib(memory["usable_gib_per_gpu"])),
            ("of which the engine may take", _gib(memory["budget_gib_per_gpu"])),
        ],
        right=frozenset({"GiB"}),
    )
    yield (
        f"KV cache: {memory['kv_bytes_per_token']:,} bytes per token, room for {memory['kv_tokens']:,} tokens; "
        f"longest request {memory['max_context_tokens']:,}, {memory['max_concurrency']:,} at once at this context"
    )
    smallest, comfortable = (document[key] or "?" for key in ("min_gpus", "min_gpus_comfortable"))
    yield (
        f"Fits from {smallest} accelerators, comfortably from {comfortable}; "
        f"tensor parallelism can be {', '.join(str(tp) for tp in document['valid_tensor_parallel'])}"
    )
    if document["performance"] is not None:
        yield _performance(document["performance"])
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in document["assumptions"])
    if document["warnings"]:
        yield "Warnings:\n" + "\n".join(f"  - {line}" for line in document["warnings"])


def _performance(performance: dict[str, Any]) -> Table:
    names = {
        "output_tokens_per_s": "output tokens/s",
        "requests_per_s": "requests/s",
        "prefill_tokens_per_s": "prefill tokens/s",
        "ttft_ms": "TTFT ms",
        "tpot_ms": "TPOT ms",
    }
    rows = [
        (label, f"{performance[key]['value']:,}", f"{performance[key]['low']:,}", f"{performance[key]['high']:,}")
        for key, label in names.items()
    ]
    title = f"Performance at {performance['batch']} running requests (80 % interval)"
    columns = ("what", "estimate", "low", "high")
    return Table(title=title, columns=columns, rows=rows, right=frozenset(columns[1:]))


def _gib(value: float) -> str:
    return f"{value:,.2f}"
