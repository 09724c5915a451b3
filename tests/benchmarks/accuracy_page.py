"""Writes `docs/accuracy.md` and its plots from the measurements that the project carries.

    python tests/benchmarks/accuracy_page.py

The figures are those of `costopt validate`; the ones for sources that were left out come from the calibration.
"""

import csv
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from optimizer.sizing.accuracy import Prediction, Validation, validation_document
from optimizer.sizing.training.validation import validate_training
from optimizer.sizing.validation import carried_rows, validate_inference, validate_memory

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PLOTS = ("throughput", "tpot", "ttft")
GROUPS = ("accelerator", "model", "engine", "scenario", "source")
SHOWN = 12
SIZE, MARGIN = 420, 46
UNITS = {"throughput": "tokens/s", "tpot": "TPOT, ms", "ttft": "TTFT, ms"}
UNITS |= {"time": "seconds a token and accelerator", "peak_memory": "peak memory, GiB"}
TRAINING_PLOTS = ("time", "peak_memory")

HEAD = """# How far off the estimates are

This page is written by `python tests/benchmarks/accuracy_page.py`. `costopt validate inference`, `costopt validate
memory` and `costopt validate training` repeat its figures on the measurements that the package carries; give them a
file of the same columns to try them on your own (`id, model, weight_dtype, kv_dtype, engine, engine_version, gpu,
gpu_count, tp, pp, dp, input_tokens, output_tokens, concurrency_or_rate, scenario, output_tok_per_s_total,
total_tok_per_s, requests_per_s, ttft_ms, tpot_ms, latency_ms, source_date, notes`). An error is abs(predicted /
measured - 1), in percent; bias is the median of predicted / measured; coverage is the share of measurements inside
the 80 % interval.

The constants are in `optimizer/sizing/data/calibration.csv`, each with the factor of one standard error and the
number of runs that read it; `optimizer/sizing/constants.py` says what each means.
`tests/benchmarks/calibrate_inference.py TABLE.csv --leave-one-out --write` refits them.
"""

TRAINING = """Time is seconds per token and accelerator; peak memory is in GiB, read as its source reads it (tensors,
the allocator's reserve, or what the driver shows). The constants are in `optimizer/sizing/training/calibration.py`;
those of time are refitted by `tests/benchmarks/calibrate_training.py`, those of memory follow the frameworks'
documentation, with the activations, logits and buffers of each stack set by hand to the peaks of its sources. Columns
of a file of your own: `id, model, hf_id, params_b, active_params_b, n_layers, hidden_size, n_heads, n_kv_heads,
ffn_hidden, vocab_size, gpu, gpu_count, gpu_memory_gib, seq_len, global_batch_tokens, tp, pp, cp, ep, dp_or_fsdp,
zero_stage, precision, method, framework, activation_checkpointing, micro_batch, optimizer, lora_rank, quant_bits,
tokens_per_s_per_gpu, mfu_pct, tflops_per_gpu, tflops_basis, peak_memory_gib_per_gpu, memory_basis, fits,
total_gpu_hours, total_tokens_b, quality, source, source_date, notes`.
"""

TRAINING_WRONG = """### What training estimates get wrong

- **Mixtures of experts.** Kernels and dispatch got up to twice as fast between containers of 2025-09 and 2026-08 on the
  same hardware; the estimate follows the date only by its average. With 16 thousand tokens a step on 8 cards one ran
  at 2.5 x the estimated speed.
- **Small models on thousands of accelerators.** Published whole runs of 1 to 8 B models reached 0.3 to 0.4 of steady
  speed; the estimate says 0.88 for every run.
- **Adapters under DeepSpeed on several cards** ran at half of the predicted speed in the one table that has them.
- **Memory of early bf16 optimizers.** The same layout of BLOOM's preparation took 14 GiB more after a change of
  optimizer that its rows do not name.
- **FSDP with its parameters in host memory.** What PyTorch itself reserved is met within a quarter; four readings of
  whole cards (14 GiB of a 7B in 4 bit, 14 to 21 GB of 70B models) are 1.2 to 2.6 times the estimate, which has no term
  for what loading leaves behind.
- **Very long sequences in Unsloth** take down to 0.7 of the estimate: its kernels keep less of a layer.
- **Fragmentation.** Two of the out-of-memory rows differ from rows that ran in one setting of the allocator alone.
- **Nothing measured**: AMD, Gaudi and Trainium, and NVIDIA before Ampere; plans leave them out unless asked. 4-bit
  bases are unpacked at the pace that an A100 and an RTX 4090 showed, on every accelerator.
"""

DRIVEN = """### How a run was driven

What a first token waits for follows from how the requests came, not from constants:

- **At random**: half a step, the prompts in front (Pollaczek-Khinchine), and a step that reads the prompt and writes a
  token of every running request. Plans are sized for this.
- **A closed loop**: all clients start together, so the first of its waves reads half of all prompts first. Ten
  requests per client are taken where `notes` do not tell (`320 prompts`).
- **A number of requests within a time, or all at once**: prompts that cannot be read in that time queue, chunk by
  chunk; so do requests beyond the room of the cache. Conversations (`200 ShareGPT prompts`) end with their longest.
- **Whatever a client can send** (an offline maximum with its mean concurrency): the requests that one chunk read end
  together, and are replaced together.

### Which constants are fitted

Fitted constants are those without which left-out sources are predicted worse; the others keep their starting value
(`held` in `optimizer/sizing/constants.py`). Left-out median / p90 errors by one linear refit, in percent:

| not fitted | constants | throughput | TPOT | TTFT |
|---|--:|--:|--:|--:|
| (all fitted) | 0 | 12.9 / 47.6 | 13.7 / 42.5 | 26.1 / 74.4 |
| bandwidth by device class and accelerator | 50 | 12.5 / 48.4 | 12.3 / 39.5 | 26.4 / 75.5 |
| share of the 8-bit peak by device class | 7 | 12.7 / 47.2 | 13.7 / 42.5 | 26.3 / 74.3 |
| time per sequence of six engines | 6 | 12.7 / 44.1 | 13.7 / 42.6 | 26.1 / 74.3 |
| small overheads of steps, experts, stages, links | 8 | 12.8 / 47.4 | 13.7 / 41.3 | 26.5 / 75.4 |
| *fitted all the same:* compute by accelerator | 41 | 13.4 / 48.4 | 14.4 / 44.3 | 26.6 / 74.2 |
| overhead by device class | 9 | 13.1 / 54.9 | 15.2 / 41.8 | 24.8 / 75.4 |
| llama.cpp's compute by device class | 7 | 13.1 / 49.4 | 13.6 / 44.1 | 30.6 / 81.8 |

Of the factors on compute by accelerator those stay that 50 and more rows read. In all, 70 constants
are fitted, where 175 were with constants in place of the arrivals above: left-out errors were 12.1 / 50 for throughput,
12.2 / 39 for TPOT and 38 / 275 for TTFT then, and are 12.2 / 50, 11.3 / 38 and 25 / 73.
"""

WRONG = """## What it gets wrong

- **Host processors.** Steps of small models (below 3 B) at high concurrency are spent on the host: the same L4 or
  A100 differs by 1.5 x and more between clouds. Rows of Qwen2.5-0.5B and of L4 under tensor parallelism have the
  largest errors.
- **First tokens under load.** A TTFT above 16 running requests depends on how a client starts its requests and on
  how many it sends, which tables seldom tell, nor whether they give means or medians: intervals of TTFT are wide, and
  a plan that must keep a tight TTFT should be measured (`--measured`). Two tables with few requests per client
  (MI300X, RTX 4090 under tensor parallelism) waited several times the estimate.
- **Dequantising kernels.** 4-bit weights at large batches rest on few, older rows: current kernels may be faster.
- **Runs near the edge of memory.** Where weights leave a few percent of the card, a GiB of activations halves the
  batch; TensorRT-LLM engines built for one shape do worse there than the estimate says.
- **Experts over many ranks.** Expert parallelism over PCIe, and mixtures over more than one node, rest on few rows.
- **Identical prompts.** Static benchmarks that send the same prompt to every slot touch fewer experts than real
  traffic; Mixtral under early TensorRT-LLM looks faster than it would serve.
- **One source per engine or part.** SGLang rests on H20 and H200 rows; MI300X on vLLM of 2024 with three rows of
  2026, so its 16-bit compute after 2025 is mostly the starting value, and its 8-bit compute a figure recalled for
  matrices alone; LMDeploy, MLC, DeepSpeed-MII and ExLlamaV2 have few rows.
- **Nothing measured**: TPU, Trainium, Inferentia and Gaudi; their estimates are the roofline at the average shares,
  and plans leave them out unless asked. Speculative decoding, LoRA adapters, CPU offload and multimodal inputs are
  not modelled.
"""


def page() -> str:
    """The page as text."""
    inference = validate_inference(carried_rows("inference"))
    memory = validate_memory(carried_rows("memory"))
    document, memory_document = validation_document(inference), validation_document(memory)
    parts = [HEAD, "## Inference: the rows that the calibration used\n", _overall(document)]
    parts += [f"![{UNITS[m]}: predicted against measured](accuracy-{m}.svg)\n" for m in PLOTS]
    parts += ["## Inference: sources that the calibration had not seen\n", _left_out(), DRIVEN]
    parts += ["## Memory\n", _memory(memory_document)]
    parts += ["## Training: the rows that the calibration used\n", *_training()]
    for metric in PLOTS:
        for group in GROUPS:
            parts.append(_group(metric, group, document["metrics"][metric]["by"][group]))
    parts += [WRONG, "## Sources\n", _sources()]
    return "\n".join(parts)


def plot(metric: str, validation: Validation) -> str:
    """A scatter of predicted against measured on logarithmic axes, with the diagonal and a factor of 1.5 beside it."""
    points = [p for p in validation.predictions if p.metric == metric and p.predicted]
    low, high = _decades(points)
    marks = sorted({(_place(p.measured, low, high), SIZE - _place(p.predicted or 1.0, low, high)) for p in points})
    path = "".join(f"M{x} {y}h0" for x, y in marks)
    lines = "".join(_line(low, high, factor) for factor in (1 / 1.5, 1.0, 1.5))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE}" font-family="sans-serif" '
        'font-size="11">'
        f'<rect width="{SIZE}" height="{SIZE}" fill="#fff"/>{lines}{"".join(_ticks(low, high))}'
        f'<path d="{path}" stroke="#2563a8" stroke-opacity=".45" stroke-width="4" stroke-linecap="round"/>'
        f'<text x="{SIZE / 2}" y="{SIZE - 8}" text-anchor="middle">measured {UNITS[metric]}</text>'
        f'<text x="12" y="{SIZE / 2}" text-anchor="middle" transform="rotate(-90 12 {SIZE / 2})">'
        f"predicted {UNITS[metric]}</text></svg>\n"
    )


def _decades(points: Sequence[Prediction]) -> tuple[int, int]:
    values = [value for p in points for value in (p.measured, p.predicted or p.measured)]
    return math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))


def _place(value: float, low: int, high: int) -> int:
    share = (math.log10(value) - low) / (high - low)
    return round(MARGIN + share * (SIZE - 2 * MARGIN))


def _line(low: int, high: int, factor: float) -> str:
    style = 'stroke="#888"' if factor == 1 else 'stroke="#bbb" stroke-dasharray="4 4"'
    start, end = 10.0**low, 10.0**high
    x1, x2 = _place(start, low, high), _place(end, low, high)
    y1, y2 = SIZE - _place(start * factor, low, high), SIZE - _place(end * factor, low, high)
    return f'<path d="M{x1} {y1}L{x2} {y2}" {style} fill="none"/>'


def _ticks(low: int, high: int) -> Iterator[str]:
    for decade in range(low, high + 1):
        at = _place(10.0**decade, low, high)
        label = f"{10.0**decade:g}"
        yield f'<text x="{at}" y="{SIZE - MARGIN + 16}" text-anchor="middle">{label}</text>'
        yield f'<text x="{MARGIN - 6}" y="{SIZE - at + 4}" text-anchor="end">{label}</text>'


def _overall(document: Mapping[str, Any]) -> str:
    header = ("metric", "rows", "predicted", "median %", "p90 %", "within 1.5 x", "bias", "coverage")
    keys = (
        "rows",
        "predicted",
        "median_abs_pct_error",
        "p90_abs_pct_error",
        "within_1_5x",
        "bias",
        "interval_coverage",
    )
    rows = [(name, *(_cell(values[key]) for key in keys)) for name, values in document["metrics"].items()]
    return _table(header, rows)


def _left_out() -> str:
    path = ROOT / "optimizer" / "sizing" / "data" / "left_out.csv"
    with path.open(newline="", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    rows = [tuple(row.values()) for row in found if row["source"] == "all" or row["metric"] in ("throughput", "tpot")]
    return (
        "Every source is predicted by constants that were fitted anew to all rows of the others, and its coverage\n"
        "is that of the intervals which the others give. `all` is every row so predicted. Interval ends are\n"
        "quantiles of these errors, stretched until they hold 81 % of the rows of a source that did not make them.\n\n"
        + _table(("metric", "source", "rows", "median %", "p90 %", "bias", "coverage"), rows)
    )


def _memory(document: Mapping[str, Any]) -> str:
    verdict = document["metrics"]["verdict"]
    lines = [
        f"{verdict['predicted']} reports: {verdict['agreement']:.1%} of the verdicts agree, "
        f'{verdict["false_fits"]} wrong "fits", {verdict["false_rejections"]} wrong rejections.\n'
    ]
    keys = ("rows", "median_abs_pct_error", "p90_abs_pct_error", "bias")
    rows = [(name, *(_cell(document["metrics"][name][key]) for key in keys)) for name in ("weights", "kv_tokens")]
    return "\n".join([*lines, _table(("metric", "rows", "median %", "p90 %", "bias"), rows)])


def _sources() -> str:
    """The first citation of each source's rows."""
    named: dict[str, tuple[str, int]] = {}
    for row in carried_rows("inference"):
        key = row["id"].split("-")[0]
        citation, rows = named.get(key, (row["source"], 0))
        named[key] = (citation, rows + 1)
    return _table(("source", "rows", "first row from"), [(k, str(rows), text) for k, (text, rows) in named.items()])


def _training() -> Iterator[str]:
    yield TRAINING
    document = validation_document(validate_training(carried_rows("training")))
    verdict = document["metrics"]["verdict"]
    yield (
        f"{verdict['predicted']} runs: {verdict['agreement']:.1%} of the verdicts agree; {verdict['false_fits']} of "
        f"{verdict['out_of_memory']} that ran out of memory were taken to fit, {verdict['false_rejections']} of "
        f"{verdict['fitting']} that ran were taken not to.\n"
    )
    header = ("metric", "rows", "median %", "p90 %", "within 1.5 x", "bias", "coverage")
    keys = ("rows", "median_abs_pct_error", "p90_abs_pct_error", "within_1_5x", "bias", "interval_coverage")
    found = document["metrics"]
    yield _table(header, [(name, *(_cell(found[name][key]) for key in keys)) for name in ("time", "peak_memory")])
    for metric in TRAINING_PLOTS:
        yield f"![{UNITS[metric]}: predicted against measured](accuracy-{metric}.svg)\n"
    yield "### Training time: sources that the calibration had not seen\n\n" + _training_left_out()
    for metric in TRAINING_PLOTS:
        for group in ("accelerator", "engine", "scenario", "source"):
            yield _group(metric, group, found[metric]["by"][group])
    yield TRAINING_WRONG


def _training_left_out() -> str:
    path = ROOT / "optimizer" / "sizing" / "data" / "left_out_training.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = [tuple(row.values()) for row in csv.DictReader(file)]
    return (
        "Each source is predicted by constants that were fitted to the others; `all` is every row so predicted.\n\n"
        + _table(("source", "rows", "median %", "p90 %", "bias", "coverage"), rows)
    )


def _group(metric: str, group: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    ordered = sorted(found.items(), key=lambda item: (-item[1]["rows"], item[0]))[:SHOWN]
    keys = ("rows", "median_abs_pct_error", "p90_abs_pct_error", "bias", "interval_coverage")
    rows = [(name, *(_cell(values.get(key)) for key in keys)) for name, values in ordered if values["rows"]]
    left = len(found) - len(ordered)
    more = f", the largest {SHOWN} of {len(found)}" if left else ""
    return f"### {metric} by {group}{more}\n\n" + _table((group, "rows", "median %", "p90 %", "bias", "coverage"), rows)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def main() -> None:
    DOCS.mkdir(exist_ok=True)
    (DOCS / "accuracy.md").write_text(page(), encoding="utf-8")
    inference = validate_inference(carried_rows("inference"))
    for metric in PLOTS:
        (DOCS / f"accuracy-{metric}.svg").write_text(plot(metric, inference), encoding="utf-8")
    training = validate_training(carried_rows("training"))
    for metric in TRAINING_PLOTS:
        (DOCS / f"accuracy-{metric}.svg").write_text(plot(metric, training), encoding="utf-8")


if __name__ == "__main__":
    main()
