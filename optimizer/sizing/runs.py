"""Turns one published measurement into the run it was, and predicts it: throughput, TPOT, TTFT, latency."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from optimizer.sizing.calibration import constants
from optimizer.sizing.dtypes import WeightFormat, kv_bytes_per_element, weight_format
from optimizer.sizing.engines import EngineProfile, engine_in_table, is_large, sequence_limit
from optimizer.sizing.layout import Hardware, Layout, tensor_parallel_problem
from optimizer.sizing.load import Steady, prompt_of, queued_prompts, served_overhead_s, steady
from optimizer.sizing.memory import MemoryEstimate, estimate_memory
from optimizer.sizing.steps import StepCosts, step_costs
from optimizer.workload.architecture import Architecture, resolve_model
from providers.accelerators import Accelerator, resolve
from providers.errors import InvalidValue, UsageError
from providers.units import GIB

_LEAST_ROOM_GIB = 0.3
"""A run that was measured did fit: where the estimate leaves less room than this, this much is taken."""

_USUAL_REQUESTS = 300
"""Requests of a rate-limited benchmark whose notes do not tell (between the 200 and 500 of those that do)."""

_USUAL_WAVES = 10
"""Requests per client of a closed loop whose notes do not tell: what scripts around vLLM's benchmark usually send."""

_EULER = 0.58
"""The longest of R exponential lengths is ln R + this, in means."""

_REQUESTS = re.compile(r"(\d+)(?: ShareGPT)? (?:prompts|requests)")
_BRIDGED = ("A100", "A800", "H100", "H200", "A30")

_SHORT_PROMPT, _SHORT_ANSWER = 8.0, 128.0
"""Lengths of a decode speed whose source names none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """One row of a table of measurements, understood. Times in seconds; None = not measured.

    `kind`: `prompt` (only reading), `decode` (only writing, one sequence), `single` (one request at a time), `static`
    (one batch from start to end), `closed` (fixed concurrency), `open` (random arrivals at a measured mean
    concurrency), `rate` (random arrivals at an offered rate), `offline` (everything at once). `varied`: the answers'
    lengths differ as those of conversations do, and `output_tokens` is their mean.
    """

    id: str
    source: str
    model: Architecture
    hardware: Hardware
    layout: Layout
    fmt: WeightFormat
    kv_bytes: float
    engine: EngineProfile
    kind: str
    scenario: str
    input_tokens: float
    output_tokens: float
    concurrency: float | None
    rate: float | None
    requests: int | None
    varied: bool
    served: bool
    output_tokens_per_s: float | None
    total_tokens_per_s: float | None
    requests_per_s: float | None
    ttft_s: float | None
    tpot_s: float | None
    latency_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPrediction:
    """What the model says of a run, in the run's own quantities."""

    output_tokens_per_s: float
    total_tokens_per_s: float
    requests_per_s: float
    ttft_s: float
    tpot_s: float
    latency_s: float
    batch: float


class SkippedRun(UsageError):
    """A row that cannot be predicted, with a short stable reason."""


def read_run(row: Mapping[str, str]) -> MeasuredRun:
    """The run of one row. Raises SkippedRun: unknown model or accelerator, unreadable numbers, nothing measured."""
    try:
        return _run(row)
    except ValueError as error:
        raise SkippedRun("unreadable number") from error
    except InvalidValue as error:
        raise SkippedRun("impossible value") from error


def _run(row: Mapping[str, str]) -> MeasuredRun:
    try:
        model = resolve_model(row["model"])
    except UsageError as error:
        raise SkippedRun("unknown model") from error
    try:
        accelerator = resolve(row["gpu"])
    except UsageError as error:
        raise SkippedRun("unknown accelerator") from error
    engine = engine_in_table(row.get("engine", ""), row.get("engine_version", ""), _year(row.get("source_date", "")))
    fmt, kv_bytes = _formats(row, model, engine)
    layout = _layout(row, model)
    count = max(layout.accelerators, (_degree(row, "gpu_count") or 1))
    link = "none" if layout.accelerators == 1 and count == 1 else _link(accelerator)
    concurrency, rate = _load(row.get("concurrency_or_rate", ""))
    input_tokens, output_tokens = _lengths(row)
    found = _REQUESTS.search(row.get("notes", ""))
    ttft, tpot = _seconds(row, "ttft_ms"), _seconds(row, "tpot_ms")
    measured = (_number(row, "output_tok_per_s_total"), _number(row, "total_tok_per_s"), _number(row, "requests_per_s"))
    if not any((*measured, ttft, tpot, _seconds(row, "latency_ms"))):
        raise SkippedRun("nothing measured")
    kind = _kind(row, input_tokens, output_tokens, concurrency, rate)
    return MeasuredRun(
        id=row.get("id", ""),
        source=row.get("id", "").split("-")[0] or row.get("source", ""),
        model=model,
        hardware=Hardware(accelerator=accelerator, count=count, link=link),
        layout=layout,
        fmt=fmt,
        kv_bytes=kv_bytes,
        engine=engine,
        kind=kind,
        scenario=row.get("scenario", ""),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        rate=rate,
        requests=int(found[1]) if found else None,
        varied="ShareGPT" in row.get("notes", ""),
        served=kind not in ("prompt", "decode") and ttft is not None and (tpot is not None or kind != "single"),
        output_tokens_per_s=measured[0],
        total_tokens_per_s=measured[1],
        requests_per_s=measured[2],
        ttft_s=ttft,
        tpot_s=tpot,
        latency_s=_seconds(row, "latency_ms"),
    )


def _lengths(row: Mapping[str, str]) -> tuple[float, float]:
    """Input and output tokens; a decode speed may leave them out."""
    input_tokens, output_tokens = _number(row, "input_tokens"), _number(row, "output_tokens")
    if input_tokens is None or output_tokens is None:
        if row.get("scenario") != "single_stream":
            raise SkippedRun("no lengths")
        return _SHORT_PROMPT, _SHORT_ANSWER
    if input_tokens <= 0 and output_tokens <= 0:
        raise SkippedRun("no lengths")
    return input_tokens, output_tokens


def memory_of(run: MeasuredRun) -> MemoryEstimate:
    """The run's memory per accelerator."""
    return estimate_memory(run.model, run.hardware.accelerator, run.layout, run.fmt, run.kv_bytes, run.engine)


def batch_bound(run: MeasuredRun) -> float:
    """Requests that memory and the engine's limit let run at once; a run that was measured ran at least one."""
    memory = memory_of(run)
    room = max(memory.kv_room_gib, _LEAST_ROOM_GIB) * GIB
    held = memory.cache.bytes_for(run.input_tokens + run.output_tokens)
    limit = sequence_limit(run.engine, run.hardware.accelerator)
    return max(1.0, min(room / held if held else limit, limit) * run.layout.dp)


def predict_run(run: MeasuredRun, bound: float, known: Mapping[str, float] | None = None) -> RunPrediction:
    """The prediction of one run, `bound` being its `batch_bound`. `known` replaces the shipped constants."""
    k = constants() if known is None else known
    costs = step_costs(run.model, run.hardware, run.layout, run.fmt, run.kv_bytes, run.engine, k)
    overhead = served_overhead_s(run.input_tokens, k) if run.served else 0.0
    if run.kind == "prompt":
        return _prompt_only(run, costs)
    if run.kind in ("decode", "single"):
        return _alone(run, costs, overhead)
    if run.kind == "static":
        return _static_batch(run, costs, bound, overhead)
    at_once = run.kind in ("closed", "offline") and run.concurrency is None and run.requests
    if run.kind == "rate" or at_once:
        return _finite(run, costs, bound, overhead)
    return _at_concurrency(run, costs, bound, overhead, k)


def _prompt_only(run: MeasuredRun, costs: StepCosts) -> RunPrediction:
    prefill = costs.prefill_s(run.input_tokens)
    return _result(run, rate=1 / prefill, ttft=prefill, tpot=math.nan, latency=prefill, batch=1)


def _alone(run: MeasuredRun, costs: StepCosts, overhead: float) -> RunPrediction:
    """One request at a time: its prefill, then its steps; a pure decode speed counts the steps alone."""
    step = costs.decode_s(1, run.input_tokens + run.output_tokens / 2)
    prefill = costs.prefill_s(run.input_tokens) if run.input_tokens >= 1 else 0.0
    latency = prefill + overhead + (run.output_tokens - 1) * step
    if run.kind == "decode":
        latency = run.output_tokens * step
    return _result(run, rate=1 / latency, ttft=prefill + overhead, tpot=step, latency=latency, batch=1)


def _static_batch(run: MeasuredRun, costs: StepCosts, bound: float, overhead: float) -> RunPrediction:
    """All prompts first, then all output steps; more than fits runs in waves."""
    wanted = run.concurrency or 1.0
    batch = min(wanted, bound)
    first = max(costs.prefill_s(run.input_tokens), batch / costs.lanes * costs.prompt_share_s(run.input_tokens))
    step = costs.decode_s(batch, run.input_tokens + run.output_tokens / 2)
    latency = (first + run.output_tokens * step) * wanted / batch
    return _result(run, rate=wanted / latency, ttft=first + overhead, tpot=step, latency=latency, batch=batch)


def _at_concurrency(
    run: MeasuredRun, costs: StepCosts, bound: float, overhead: float, k: Mapping[str, float]
) -> RunPrediction:
    """A number of requests that clients keep up; what finds no room queues."""
    wanted = run.concurrency if run.concurrency is not None else bound
    wanted = min(wanted, run.requests or wanted)
    batch = min(wanted, bound)
    point = steady(costs, run.input_tokens, run.output_tokens, batch)
    life = point.life_s + overhead
    rate = batch / life
    queue = max(0.0, wanted - batch) / rate
    wait = point.open_wait_s() + _bunched_s(run, point, wanted, k)
    ttft = point.reading_s + overhead + wait + queue
    return _result(run, rate=rate, ttft=ttft, tpot=point.tpot_s, latency=life + queue, batch=batch)


def _bunched_s(run: MeasuredRun, point: Steady, wanted: float, k: Mapping[str, float]) -> float:
    """Mean wait for prompts that come together with one's own, beyond what arrivals at random wait.

    The clients of a closed loop start together: of its `waves`, the first waits for half of the other prompts, and for
    those behind it in its own chunk, since a chunk's first tokens come together; later requests come as others end.
    Under clients that send whatever they can, the requests of one chunk also end together and are replaced together,
    and each other request costs the server's process `arrival_ms`.
    """
    if run.kind == "open":
        return 0.0
    together = min(point.others, max(0.0, _chunk_tokens(run) / max(1.0, run.input_tokens) - 1))
    if run.kind == "offline" and run.requests is None:
        return together * point.prompt_share_s + point.others * k["serving.arrival_ms"] * 1e-3
    waves = max(1.0, run.requests / wanted) if run.requests else _USUAL_WAVES
    return 0.5 / waves * (point.others + together) * point.prompt_share_s


def _finite(run: MeasuredRun, costs: StepCosts, bound: float, overhead: float) -> RunPrediction:
    """R requests that come at random within `window` = R / rate seconds, or all at once (window 0).

    Two of them run together for the share `_overlap` of a life, and the prompt of one falls into the life of an
    earlier one with the probability `_meeting`. Prompts that cannot be read within the window queue for reading, and
    requests beyond `bound` queue for room. Answers of varied length (exponential, about) end with the longest of R,
    ln R + 0.58 means, at which few others run.
    """
    requests = float(run.requests or _USUAL_REQUESTS)
    window = requests / run.rate if run.rate else 0.0
    most = min(bound, requests)
    prompt = prompt_of(costs, run.input_tokens)
    context = run.input_tokens + run.output_tokens / 2
    batch, life = 1.0, 0.0
    for _ in range(16):
        step = costs.decode_s(batch, context)
        prompts = min(0.5 * requests * _meeting(window, life), most) / costs.lanes
        life = run.output_tokens * step + max(1.0, prompts) * prompt.share_s
        batch = 0.5 * batch + 0.5 * min(most, max(1.0, requests * _overlap(window, life)))
    # A queue of prompts is read a chunk a step, and every step also writes a token of each running request.
    reading = requests * (prompt.share_s + step * run.input_tokens / _chunk_tokens(run)) / costs.lanes
    tail = 0.0
    if run.varied:
        tail = max(0.0, math.log(requests) + _EULER - 1) * run.output_tokens * costs.decode_s(1, context)
    duration = max(window, reading) + run.output_tokens * step + tail + prompt.prefill_s + overhead
    wait = 0.5 * max(0.0, reading - window) + (0.5 * step if batch > 1 else 0.0)
    if window:
        # A short run does not come to the steady queue: random arrivals stray by the root of their number.
        wait += min(queued_prompts(reading / window), 0.5 * requests**0.5) * prompt.share_s
    if requests > bound:
        late, serving = 1 - bound / requests, life * requests / bound
        duration = max(duration, serving + (tail or 0.5 * late * life))
        wait += 0.5 * late * max(0.0, serving - window)
    ttft = prompt.prefill_s + overhead + wait
    tpot = (life - prompt.share_s) / max(1.0, run.output_tokens)
    latency = ttft + run.output_tokens * tpot
    return _result(run, rate=requests / duration, ttft=ttft, tpot=tpot, latency=latency, batch=batch)


def _overlap(window: float, life: float) -> float:
    """Mean share of its life that a request of length `life` shares with another, both begun within `window`."""
    if life >= window:
        return 1 - window / (3 * life) if life else 1.0
    return life / window * (1 - life / (3 * window))


def _meeting(window: float, life: float) -> float:
    """Probability that the later of two requests begun within `window` comes in the life of the earlier."""
    return 1.0 if life >= window else life / window * (2 - life / window)


def _chunk_tokens(run: MeasuredRun) -> int:
    """Prompt tokens that one step reads at most."""
    return run.engine.batched_tokens[is_large(run.hardware.accelerator)]


def _result(run: MeasuredRun, *, rate: float, ttft: float, tpot: float, latency: float, batch: float) -> RunPrediction:
    return RunPrediction(
        output_tokens_per_s=rate * run.output_tokens,
        total_tokens_per_s=rate * (run.input_tokens + run.output_tokens),
        requests_per_s=rate,
        ttft_s=ttft,
        tpot_s=tpot,
        latency_s=latency,
        batch=batch,
    )


def _kind(
    row: Mapping[str, str], input_tokens: float, output_tokens: float, concurrency: float | None, rate: float | None
) -> str:
    """How the run was driven, from what the row tells; a broken concurrency is a measured mean: arrivals are open."""
    if output_tokens <= 1:
        return "prompt"
    if rate is not None:
        return "rate"
    scenario = row.get("scenario", "")
    if scenario == "single_stream" or (concurrency is not None and concurrency <= 1):
        pure = input_tokens <= 0 or (row.get("tpot_ms") and not row.get("ttft_ms") and not row.get("latency_ms"))
        return "decode" if pure else "single"
    whole = concurrency is None or float(concurrency).is_integer()
    if scenario.startswith("offline"):
        static = concurrency is not None and whole and not row.get("requests_per_s")
        return "static" if static else "offline"
    return "closed" if whole else "open"


def _formats(row: Mapping[str, str], model: Architecture, engine: EngineProfile) -> tuple[WeightFormat, float]:
    """Weights and cache as run; MXFP4-native mixtures keep their own format whatever the table calls 4 bit."""
    name = row.get("weight_dtype") or model.native_dtype
    try:
        fmt = format_in_table(name)
        if fmt.compute == "fp4" and model.native_dtype == "mxfp4":
            fmt = weight_format("mxfp4")
        kv = row.get("kv_dtype") or ""
        if not kv:
            # TensorRT-LLM's FP8 and FP4 checkpoints carry an FP8 cache (ModelOpt's default); others keep 16 bit.
            eight = engine.family == "tensorrt-llm" and fmt.compute in ("fp8", "fp4") and model.native_dtype != "mxfp4"
            kv = "fp8" if eight else "auto"
        return fmt, kv_bytes_per_element(kv)
    except UsageError as error:
        raise SkippedRun("unknown dtype") from error


def format_in_table(name: str) -> WeightFormat:
    """The weight format of a table's cell; what stands behind a bracket, comma or slash only comments on it."""
    try:
        return weight_format(name)
    except UsageError:
        return weight_format(re.split(r"[(/,;]", name.lower().removeprefix("ud-"))[0].strip())


def _layout(row: Mapping[str, str], model: Architecture) -> Layout:
    """The parallel degrees. Where none is told, all accelerators are tensor-parallel if that splits the model; what TP
    and PP leave of the accelerators are data-parallel ranks.

    TensorRT-LLM 1.0 tables leave `dp` blank where experts spread over attention-DP ranks.
    """
    count = _degree(row, "gpu_count") or 1
    told = {key: degree for key in ("tp", "pp", "dp") if (degree := _degree(row, key)) is not None}
    pp = told.get("pp", 1)
    tp = told.get("tp") or (count // pp if tensor_parallel_problem(model, max(1, count // pp)) is None else 1)
    if model.is_moe and "dp" not in told and "attention_dp" in row.get("notes", ""):
        return Layout(tp=1, pp=pp, dp=tp, ep=tp)
    left = count // (tp * pp) if count % (tp * pp) == 0 else 1
    dp = told.get("dp") or max(1, left)
    return Layout(tp=tp, pp=pp, dp=dp, ep=dp if model.is_moe else 1)


def _degree(row: Mapping[str, str], key: str) -> int | None:
    """A whole number of accelerators; None for a blank cell. Raises ValueError for less than one."""
    value = _number(row, key)
    if value is not None and value < 1:
        raise ValueError(f"{key} {value:g}")
    return None if value is None else int(value)


def _link(accelerator: Accelerator) -> str:
    """Data-centre cards are sold in bridged pairs; workstation and consumer cards mostly without their bridge."""
    bridged = accelerator.name.startswith(_BRIDGED) or accelerator.link != "nvlink_bridge"
    return accelerator.link if bridged else "pcie"


def _load(text: str) -> tuple[float | None, float | None]:
    """Concurrency and offered rate of a `concurrency_or_rate` cell; neither for `inf` or a blank."""
    cell = text.strip().lower()
    if cell in ("", "inf"):
        return None, None
    number = float(cell.split()[0])
    if math.isinf(number):
        return None, None
    if not number > 0:
        raise ValueError(f"concurrency_or_rate {text}")
    return (None, number) if "req/s" in cell else (number, None)


def _number(row: Mapping[str, str], key: str) -> float | None:
    """The cell as a number from 0 on; None for a blank one. Raises ValueError for anything else."""
    text = (row.get(key) or "").strip()
    if not text:
        return None
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(f"{key} {text}")
    return value


def _seconds(row: Mapping[str, str], key: str) -> float | None:
    value = _number(row, key)
    return None if value is None else value / 1e3


def _year(text: str) -> float | None:
    """`2025-06` as a decimal year; a bare year counts from its first quarter's end."""
    found = re.match(r"(\d{4})(?:-(\d{2}))?", text)
    if not found:
        return None
    return int(found[1]) + ((int(found[2]) - 0.5) / 12 if found[2] else 0.25)
