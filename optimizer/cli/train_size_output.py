"""Turns the sizing of a training job into what is printed: tables, JSON, CSV or Markdown."""

from collections.abc import Iterable, Iterator
from typing import Any

from optimizer.api.json_text import json_text
from optimizer.cli.tables import Table, csv_text, markdown, terminal
from optimizer.sizing.training.document import TrainingSize, training_size_document
from optimizer.workload.architecture import Architecture


def render(model: Architecture, sized: TrainingSize, format_: str) -> str:
    """The sizing in one of the formats."""
    document = training_size_document(model, sized)
    if format_ == "json":
        return json_text(document)
    if format_ == "csv":
        flat = dict(_flat(document))
        return csv_text(list(flat), [list(flat.values())])
    parts = list(_parts(document))
    return terminal(parts) if format_ == "table" else markdown(parts)


def _flat(document: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for key, value in document.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "; ".join(map(str, value)) if isinstance(value, list) else value


def _parts(document: dict[str, Any]) -> Iterable[Table | str]:
    memory = document["memory"]
    verdict = {"fits": "fits", "tight": "fits, but tight", "does_not_fit": "does not fit"}[document["verdict"]]
    degrees = ", ".join(f"{name} {document[key]}" for name, key in _DEGREES if document[key] > 1) or "one accelerator"
    yield (
        f"{document['task']} of {document['model']} on {document['count']} x {document['accelerator']}, "
        f"{document['precision']}, {document['optimizer']}: {verdict} (estimate)"
    )
    yield (
        f"Layout: {degrees}; ZeRO {document['zero_stage']}, micro-batch {document['micro_batch']} x "
        f"{document['seq_len']:,} tokens, recomputation {document['recompute']}"
    )
    rows = [
        (label, f"{memory['per_gpu'][key]:,.2f}", "" if key not in memory else f"{memory[key]:,.1f}")
        for label, key in _ITEMS
    ]
    rows.append(("needed", f"{memory['per_gpu_gib']:,.2f}", f"{memory['total_gib']:,.1f}"))
    rows.append(("usable", f"{memory['usable_gib_per_gpu']:,.2f}", ""))
    columns = ("what", "GiB on the fullest accelerator", "GiB in all")
    yield Table(title="Memory", columns=columns, rows=rows, right=frozenset(columns[1:]))
    if memory["host_gib_per_node"]:
        yield f"Host memory: {memory['host_gib_per_node']:,.0f} GiB a node"
    smallest, comfortable = (document[key] or "?" for key in ("min_gpus", "min_gpus_comfortable"))
    yield f"Fits from {smallest} accelerators, comfortably from {comfortable}"
    if document["performance"] is not None:
        yield _performance(document["performance"])
        yield f"Model FLOPs utilisation {document['performance']['mfu']:.0%} of the 16-bit dense peak"
    yield "Assumed:\n" + "\n".join(f"  - {line}" for line in document["assumptions"])
    if document["warnings"]:
        yield "Warnings:\n" + "\n".join(f"  - {line}" for line in document["warnings"])


_DEGREES = (
    ("TP", "tensor_parallel"),
    ("PP", "pipeline_parallel"),
    ("CP", "context_parallel"),
    ("EP", "expert_parallel"),
    ("DP", "data_parallel"),
)
_ITEMS = (
    ("weights", "weights_gib"),
    ("gradients", "gradients_gib"),
    ("optimizer states", "optimizer_gib"),
    ("activations and logits", "activations_gib"),
    ("gathered layers, context, fragmentation", "overhead_gib"),
)
_RATES = (
    ("tokens/s", "tokens_per_s"),
    ("tokens/s per accelerator", "tokens_per_s_per_gpu"),
    ("seconds per step", "step_s"),
    ("hours", "hours"),
    ("accelerator-hours", "gpu_hours"),
)


def _performance(performance: dict[str, Any]) -> Table:
    rows = [
        (label, *(f"{performance[key][bound]:,}" for bound in ("value", "low", "high")))
        for label, key in _RATES
        if performance[key] is not None
    ]
    columns = ("what", "estimate", "low", "high")
    return Table(title="Speed (80 % interval)", columns=columns, rows=rows, right=frozenset(columns[1:]))
