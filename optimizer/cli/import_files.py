"""Opens the file of `costopt import` and turns it into answers, on the offers that are on file."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from optimizer.api import choices
from optimizer.api.clock import today
from optimizer.api.market_view import Offers
from optimizer.api.sources import read_lines
from optimizer.cli.import_source import Opened
from optimizer.interop.answers.answer import Answer, Question, answer
from optimizer.interop.answers.buying import Market
from optimizer.interop.asks import Ask, Fault
from optimizer.interop.recognise import Recognised, recognise, repository, with_wish
from optimizer.plans.plan import Fleet
from optimizer.plans.planner import Request
from optimizer.plans.planner import plan as make_plan
from optimizer.sizing.calibration import is_calibrated
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand
from providers.accelerators import Accelerator, catalogue
from providers.errors import InvalidValue, NoUsablePrices, UnknownName, UsageError
from providers.offers import Offer, PurchaseOption

if TYPE_CHECKING:
    from optimizer.workload.traces import Trace

MAX_ASKS: Final = 50
_TRITON_CONFIG: Final = "config.pbtxt"
_TRITON_MODEL: Final = "1/model.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's flags: what they say goes where the file is silent; the context goes before the file's."""

    file: str
    model: str
    gpu: str | None
    count: int | None
    shape: RequestShape
    slo: SLO
    context_tokens: int | None
    precision: str | None
    task: str | None = None
    tokens: float | None = None


def recognised(source: Opened) -> Recognised:
    """What a folder or a file that is read whole is. Raises UsageError for one of no known kind."""
    if source.kind == "folder":
        if (source.path / _TRITON_CONFIG).exists() and (source.path / _TRITON_MODEL).exists():
            config, model = (source.inside(name).text() for name in (_TRITON_CONFIG, _TRITON_MODEL))
            return repository(config, model, source.name)
        if not (source.path / "config.json").is_file():
            raise UsageError(f"folder {source.name!r} has no config.json: it is no model, and no repository of Triton")
        return Recognised(kind="model")
    return recognise(source.text(), source.name)


def answers(asked: Asked, found: Recognised, offers: Offers, *, uncalibrated: bool) -> list[Answer]:
    """An answer for each service or job of the file. Fleets that would be cheaper are of calibrated hardware, unless
    `uncalibrated`."""
    servable = [o for o in offers.eligible if uncalibrated or is_calibrated(catalogue()[o.instance_type.accelerator])]
    on_demand = [offer for offer in servable if offer.purchase_option is PurchaseOption.ON_DEMAND]
    if found.kind == "model":
        return [_of_model(asked, on_demand, len(offers.all_on_file))]
    if len(found.asks) > MAX_ASKS:
        raise UsageError(f"{asked.file} has {len(found.asks)} services; at most {MAX_ASKS} are looked at: split it")

    def planner(workload: InferenceWorkload, model: Architecture, spot: bool) -> Fleet | None:
        return _cheapest(workload, model, servable if spot else on_demand, len(offers.all_on_file))

    question = Question(
        shape=asked.shape,
        slo=asked.slo,
        market=Market(offers=offers.eligible, on_file=offers.all_on_file),
        trainable=tuple(
            o for o in offers.eligible if uncalibrated or _trains(catalogue()[o.instance_type.accelerator])
        ),
        task=asked.task,
        tokens=asked.tokens,
    )
    return [answer(*_completed(ask, asked), question, planner) for ask in found.asks]


def _trains(accelerator: Accelerator) -> bool:
    from optimizer.sizing.training.calibration import is_calibrated as is_calibrated_for_training

    return is_calibrated_for_training(accelerator)


def request_log(source: Opened, columns: str | None, trace: str | None) -> "Trace":
    """The requests of a log; `trace` names a CSV to write them to, `columns` the log's own of time and tokens."""
    from optimizer.interop.readers.request_log import HEADER, csv_lines
    from optimizer.workload.traces import read_trace

    names = None if columns is None else [name.strip() for name in columns.split(",")]
    if names is not None and len(names) != 3:
        raise InvalidValue("--columns", columns or "", "name three: the time, input tokens, output tokens")
    with read_lines(str(source.path)) as lines:
        found = read_trace(csv_lines(lines, source.name, names), source.name)
    if trace is not None:
        from optimizer.cli.streams import write_result

        rows = zip(found.times_s, found.input_tokens, found.output_tokens, strict=True)
        text = "".join(f"{time:.3f},{inputs:.0f},{outputs:.0f}\n" for time, inputs, outputs in rows)
        write_result(HEADER + text, trace)
    return found


def _completed(ask: Ask, asked: Asked) -> tuple[Ask, Architecture | None]:
    """The ask with what the flags add, and its model; a model that is not known is a fault."""
    if asked.gpu is not None and not ask.wishes:
        ask = with_wish(ask, asked.gpu, asked.count)
    ask = replace(
        ask,
        context_tokens=asked.context_tokens or ask.context_tokens,
        precision=ask.precision or (asked.precision if ask.training is None else None),
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
