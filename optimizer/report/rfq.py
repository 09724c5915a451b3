"""Turns a need into the requirement sheet that a buyer sends out: no seller is named, and all answer in one form."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

from optimizer.report.capacity import HeldAccelerators, Need, ServedWorkload, neutral_sizes
from optimizer.report.comparison import leaving_gb
from optimizer.report.csv_rows import csv_text
from optimizer.report.extras import Extras
from optimizer.report.page import Column, Figure, Page, Section, Table, Value
from optimizer.report.quotes import COLUMNS

SCHEMA: Final = "costopt.rfq"
SCHEMA_VERSION: Final = "1.0"
TERMS: Final = ("no term", "12 months", "36 months")
_QUESTIONS: Final = (
    "Accelerator: exact variant, form factor and memory; accelerators per machine; what joins them; host CPU and RAM.",
    "Network between machines: technology and Gbit/s per machine, blocking factor; none is an answer.",
    "Price: per GPU-hour or machine-hour, for each term; upfront, minimum term, smallest order; price reviews.",
    "Currency, tax, payment terms; day of the quote and how long it is valid.",
    "Region and site; data residency; who can read the data.",
    "Capacity: delivery date, reservation, notice and remedy where it is not delivered.",
    "Interruption: who may end or move the capacity, at which notice; maintenance windows.",
    "Availability promised, how it is measured, credits; time to replace a failed accelerator.",
    "Storage per GB-month, egress per GB, public addresses, support: price and what is included.",
    "Exit: early termination, resale or exchange, return of data.",
)


def rfq_page(title: str, need: Need, extras: Extras, hours: Decimal | None, now: datetime) -> Page:
    """The sheet: what is needed, machines that would do, what to answer, and in which columns."""
    return Page(
        title=f"Request for quotation: {title}",
        subtitle=f"Requirement of {now:%Y-%m-%d}; vendor-neutral: equivalent capacity is welcome where stated",
        figures=(
            Figure(label="Answers", value="one row a machine and term", note="in the columns of the answer sheet"),
        ),
        sections=(
            Section(id="need", title="What is needed", tables=(_requirements(need, extras, hours),)),
            Section(
                id="machines",
                title="Machines that would do",
                text=(
                    "Estimates of costopt's sizing at full load; other machines that keep the service level will do.",
                ),
                tables=(_machines(need),),
            ),
            Section(id="questions", title="Please state", tables=(_questions(),)),
            Section(
                id="answers",
                title="Answer sheet",
                text=("A CSV with these columns can be compared as it is.",),
                tables=(_answers(),),
            ),
        ),
        notes=(
            f"Please quote for each of: {', '.join(TERMS)}.",
            "Leave a cell empty where the answer is not known; nothing will be assumed in its place.",
        ),
    )


def rfq_document(title: str, need: Need, extras: Extras, hours: Decimal | None, now: datetime) -> dict[str, Any]:
    """The sheet as JSON."""
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "title": title,
        "now": now.isoformat(),
        "requirements": [
            {"what": str(what), "value": str(value)} for what, value in _requirement_rows(need, extras, hours)
        ],
        "machines": [
            dict(zip(("accelerator", "memory_gb", "gpus", "machines", "how"), (_plain(v) for v in row), strict=True))
            for row in _machine_rows(need)
        ],
        "terms": list(TERMS),
        "questions": list(_QUESTIONS),
        "answer_columns": dict(COLUMNS),
    }


def rfq_csv() -> str:
    """An empty answer sheet: the columns of a quotes file."""
    return csv_text(tuple(COLUMNS), ())


def _requirements(need: Need, extras: Extras, hours: Decimal | None) -> Table:
    columns = (Column(key="what", title="Requirement"), Column(key="value", title="Value"))
    return Table(
        id="requirement-list",
        title="Requirements",
        columns=columns,
        rows=[list(row) for row in _requirement_rows(need, extras, hours)],
    )


def _requirement_rows(need: Need, extras: Extras, hours: Decimal | None) -> Iterable[tuple[Value, Value]]:
    if isinstance(need, ServedWorkload):
        workload, model = need.workload, need.architecture
        yield "Model to serve", f"{model.hf_id}, {model.params_total / 1e9:.2f} B parameters"
        yield (
            "Precision",
            ", ".join(workload.precisions) or f"{model.native_dtype}, or FP8 where the hardware computes it",
        )
        for demand in workload.demands:
            yield (
                "Requests",
                f"{demand.requests_per_s or 0:.4g} per second of {demand.shape.input_tokens:,} input and "
                f"{demand.shape.output_tokens:,} output tokens",
            )
        yield "Time to first token", f"at most {workload.slo.ttft_ms:g} ms"
        yield "Time per output token", f"at most {workload.slo.tpot_ms:g} ms"
        yield "Load", f"at most {workload.utilization:.0%} of what the machines can serve"
    if isinstance(need, HeldAccelerators):
        yield "Accelerators", f"{need.count} x {need.accelerator.name}, or equivalent as stated"
        yield "Memory of each", f"{need.accelerator.memory_gib:g} GB"
    yield "Hours", "all hours of the month" if hours is None else f"{hours:f} hours, once"
    yield "Terms to quote", ", ".join(TERMS)
    if extras.storage_gb is not None:
        yield "Storage", f"{extras.storage_gb:,f} GB"
    gb = leaving_gb(extras, need)
    if gb is not None:
        yield "Egress", f"{gb:,.1f} GB a month"


def _machines(need: Need) -> Table:
    columns = (
        Column(key="accelerator", title="Accelerator"),
        Column(key="memory", title="Memory GB", kind="number"),
        Column(key="gpus", title="GPUs in all", kind="number"),
        Column(key="machines", title="As machines of"),
        Column(key="how", title="How it runs"),
    )
    return Table(id="machine-list", title="Machines", columns=columns, rows=[list(row) for row in _machine_rows(need)])


def _machine_rows(need: Need) -> Iterable[Sequence[Value]]:
    if isinstance(need, HeldAccelerators):
        yield need.accelerator.name, need.accelerator.memory_gib, need.count, "any size", ""
        return
    if isinstance(need, ServedWorkload):
        for accelerator, met in neutral_sizes(need):
            machines = ", ".join(f"{m.count.normalize():f} x {m.offer.instance_type.name}" for m in met.machines)
            yield accelerator.name, accelerator.memory_gib, met.gpus, machines, met.how


def _questions() -> Table:
    columns = (Column(key="number", title="No.", kind="number"), Column(key="question", title="Question"))
    rows: list[list[Value]] = [[number, question] for number, question in enumerate(_QUESTIONS, start=1)]
    return Table(id="question-list", title="Questions", columns=columns, rows=rows)


def _answers() -> Table:
    columns = (
        Column(key="column", title="Column", kind="code"),
        Column(key="meaning", title="Meaning"),
        Column(key="answer", title="Answer"),
    )
    rows: list[list[Value]] = [[name, meaning, None] for name, meaning in COLUMNS.items()]
    return Table(id="answer-sheet", title="Answers", columns=columns, rows=rows)


def _plain(value: Value) -> Any:
    return float(value) if isinstance(value, Decimal) else value
