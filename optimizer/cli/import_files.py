"""Opens the file of `costopt import` and turns it into answers, on the offers that are on file."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optimizer.api import choices
from optimizer.api.clock import today
from optimizer.api.market_view import Offers
from optimizer.api.sources import read_lines, read_text
from optimizer.interop.answer import Answer, Question, answer
from optimizer.interop.asks import Ask, Fault
from optimizer.interop.recognise import Recognised, recognise, with_wish
from optimizer.plans.plan import Fleet
from optimizer.plans.planner import Request
from optimizer.plans.planner import plan as make_plan
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand
from providers.errors import NoUsablePrices, UnknownName, UsageError
from providers.offers import Offer, PurchaseOption

if TYPE_CHECKING:
    from optimizer.workload.traces import TraceSummary

MAX_BYTES: Final = 2_000_000
MAX_ASKS: Final = 50
_HEAD_BYTES: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's flags: what they say goes where the file is silent; the context goes before the file's."""

    file: str
    model: str
    gpu: str | None
    count: int
    shape: RequestShape
    slo: SLO
    context_tokens: int | None
    precision: str | None


def recognised(asked: Asked) -> Recognised:
    """What the file is. Raises UsageError for one that is too large, binary, or of no known kind."""
    path = Path(asked.file)
    if path.is_dir():
        if not (path / "config.json").exists():
            raise UsageError(f"folder {asked.file!r} has no config.json: it is no model")
        return Recognised(kind="model")
    if _looks_like_a_log(path):
        return Recognised(kind="log")
    return recognise(read_text(asked.file, "file", MAX_BYTES), asked.file)


def answers(asked: Asked, found: Recognised, offers: Offers) -> list[Answer]:
    """An answer for each service or job of the file."""
    on_demand = [offer for offer in offers.eligible if offer.purchase_option is PurchaseOption.ON_DEMAND]
    question = Question(shape=asked.shape, slo=asked.slo, offers=offers.eligible, on_file=offers.all_on_file)
    if found.kind == "model":
        return [_of_model(asked, on_demand, len(offers.all_on_file))]
    if len(found.asks) > MAX_ASKS:
        raise UsageError(f"{asked.file} has {len(found.asks)} services; at most {MAX_ASKS} are looked at: split it")

    def planner(workload: InferenceWorkload, model: Architecture) -> Fleet | None:
        return _cheapest(workload, model, on_demand, len(offers.all_on_file))

    return [answer(*_completed(ask, asked), question, planner) for ask in found.asks]


def log_summary(file: str, trace: str | None) -> "TraceSummary":
    """Statistics of a request log in CSV or JSON lines; `trace` names a CSV to write."""
    from optimizer.interop.request_log import csv_lines
    from optimizer.workload.traces import read_trace, summarize

    with read_lines(file) as lines:
        first = next(iter(lines), "")
        rest = _put_back(first, lines)
        found = read_trace(csv_lines(rest, file) if first.lstrip().startswith("{") else rest, file)
    if trace is not None:
        from optimizer.cli.streams import write_result
        from optimizer.interop.request_log import HEADER

        rows = zip(found.times_s, found.input_tokens, found.output_tokens, strict=True)
        text = "".join(f"{time:.3f},{inputs:.0f},{outputs:.0f}\n" for time, inputs, outputs in rows)
        write_result(HEADER + text, trace)
    return summarize(found)


def _put_back(first: str, rest: Iterable[str]) -> Iterable[str]:
    yield first
    yield from rest


def _completed(ask: Ask, asked: Asked) -> tuple[Ask, Architecture | None]:
    """The ask with what the flags add, and its model; a model that is not known is a fault."""
    if asked.gpu is not None and not ask.wishes:
        ask = with_wish(ask, asked.gpu, asked.count)
    ask = replace(
        ask,
        context_tokens=asked.context_tokens or ask.context_tokens,
        precision=ask.precision or asked.precision,
    )
    name = asked.model or ask.model
    if not name:
        fault = Fault(line=None, what="the file names no model", fix="give --model to have it sized", fatal=False)
        return replace(ask, faults=(*ask.faults, fault)), None
    try:
        # A path in somebody's file is not opened: only the user's own flag names files.
        return ask, choices.architecture(asked.model) if asked.model else _by_name(name)
    except UnknownName as error:
        fault = Fault(line=ask.lines.get("model"), what=str(error), fix="give --model", fatal=False)
        return replace(ask, faults=(*ask.faults, fault)), None


def _by_name(name: str) -> Architecture:
    from optimizer.workload.architecture import resolve_model

    return resolve_model(name[:200])


def _of_model(asked: Asked, offers: list[Offer], on_file: int) -> Answer:
    """The cheapest fleet that runs the folder's model at all."""
    model = choices.architecture(asked.file)
    workload = InferenceWorkload(
        name="model",
        model=model.hf_id,
        demands=(ShapeDemand(shape=asked.shape, requests_per_s=None),),
        slo=asked.slo,
        precisions=() if asked.precision is None else (asked.precision,),
        context_tokens=asked.context_tokens,
    )
    fleet = _cheapest(workload, model, offers, on_file)
    ask = Ask(source="Hugging Face model", name=model.name, model=model.hf_id)
    faults = () if fleet else (Fault(line=None, what="nothing on file runs it within the SLO", fix="loosen --ttft-ms"),)
    return Answer(ask=ask, model=model, options=(), faults=faults, cheaper=fleet)


def _cheapest(workload: InferenceWorkload, model: Architecture, offers: list[Offer], on_file: int) -> Fleet | None:
    request = Request(
        workloads=((workload, model),),
        budget_usd_per_month=None,
        offers=offers,
        offers_on_file=on_file,
        rejections={},
        today=today(),
        alternatives=False,
    )
    try:
        return make_plan(request).fleet
    except NoUsablePrices:
        return None


def _looks_like_a_log(path: Path) -> bool:
    """Whether the beginning is a log: those may be larger than other files, and packed."""
    from optimizer.interop.recognise import is_log_head

    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False
    if head[:2] == b"\x1f\x8b":
        return True
    return is_log_head(head.decode("utf-8-sig", "replace"))
