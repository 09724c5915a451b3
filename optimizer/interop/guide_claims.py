"""Turns recommendations in circulation into what the arithmetic says of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from optimizer.sizing.dtypes import weight_bytes, weight_format
from optimizer.sizing.layout import Hardware
from optimizer.sizing.serving import ServingEstimate, size_serving
from optimizer.sizing.training.layouts import best_layout, for_hardware, resized, smallest_counts
from optimizer.sizing.training.setup import Cluster
from optimizer.workload.architecture import resolve_model
from optimizer.workload.training import DEFAULT_BATCH_TOKENS, DEFAULT_SEQ_LEN, TrainingRun
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO
from providers.accelerators import resolve
from providers.instance_types import usual_link
from providers.networks import usual_network_gbit
from providers.offers import Offer
from providers.units import GB, GIB, HOURS_PER_DAY

CONTEXT_TOKENS: Final = 4096
_TOKENS_PER_PARAMETER: Final = 20
"""Compute-optimal pre-training (Hoffmann et al. 2022, arXiv 2203.15556)."""

_MOST: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What is said, whether it holds, and the arithmetic."""

    said: str
    verdict: str
    arithmetic: str


def claims(offers: Sequence[Offer]) -> Iterator[Claim]:
    """Every claim; `offers` are all on file, on demand and not."""
    yield _below_1b()
    yield _up_to_7b()
    yield _up_to_70b()
    yield _up_to_1t()
    yield _four_h100()
    yield _one_card()
    yield _four_bits()
    yield _fifty_tokens()
    yield from _prices(offers)
    yield from _machines(offers)
    yield _peak()


def _below_1b() -> Claim:
    train, infer = _training("1B", "train", "RTX 4090"), _serving("1B", "RTX 3090", 1, "bf16")
    return Claim(
        said="Below 1B: train on 1-2 RTX 4090, infer on 1 RTX 3090",
        verdict="holds for memory, not for time" if infer.verdict == "fits" else "wrong",
        arithmetic=(
            f"Pre-training 1B takes {_least('1B', 'train', 'RTX 4090')} RTX 4090 for its memory and "
            f"{train:,.0f} days there for {_TOKENS_PER_PARAMETER} tokens a parameter; an RTX 3090 serves it with room "
            f"for {infer.max_concurrency:,} requests of {CONTEXT_TOKENS:,} tokens."
        ),
    )


def _up_to_7b() -> Claim:
    infer = _serving("7B", "A10G", 1, "bf16")
    tuned, days = _least("7B", "finetune", "A100-40GB"), _training("7B", "train", "A100-40GB", 8)
    return Claim(
        said="1-7B: train on 4-8 A100 40GB, infer on 1 A10G",
        verdict="holds for fine-tuning; inference is tight" if infer.verdict == "tight" else "holds for fine-tuning",
        arithmetic=(
            f"Full fine-tuning of 7B fits from {tuned} A100 40GB; pre-training on 8 would take {days:,.0f} days for "
            f"{_TOKENS_PER_PARAMETER} tokens a parameter. On an A10G weights take {infer.memory.weights_gib:.1f} of "
            f"{infer.memory.budget_gib:.1f} GiB: {infer.max_concurrency} requests of {CONTEXT_TOKENS:,} tokens at once."
        ),
    )


def _up_to_70b() -> Claim:
    two, four = (_serving("70B", "A100-80GB", count, "bf16") for count in (2, 4))
    days = _training("70B", "train", "H100", 64)
    return Claim(
        said="7-70B: train on 16-64 H100, infer on 2-4 A100 80GB",
        verdict="inference: 2 are tight, take 4; training: for memory, not for time",
        arithmetic=(
            f"70B in 16 bit on 2 A100 80GB: {_words(two)}; on 4: {_words(four)}. Pre-training 70B on 64 H100 takes "
            f"{days:,.0f} days for {_TOKENS_PER_PARAMETER} tokens a parameter; the memory alone takes "
            f"{_least('70B', 'train', 'H100')}."
        ),
    )


def _up_to_1t() -> Claim:
    large, native = _serving("405B", "H100", 8, "bf16"), _serving("1T", "H100", 8, "fp8")
    return Claim(
        said="70B-1T: train on hundreds of H100 + InfiniBand, infer on 8 H100 + TensorRT-LLM",
        verdict="training holds; inference does not",
        arithmetic=(
            f"405B in 16 bit on 8 H100: {_words(large)}; 1T in FP8: {_words(native)}. Pre-training 405B needs "
            f"{_least('405B', 'train', 'H100')} H100 for its memory."
        ),
    )


def _four_h100() -> Claim:
    model = resolve_model("70B")
    states = model.params_total * 16 / GIB
    usable = resolve("H100").usable_memory_gib
    return Claim(
        said="70B training: 4 H100",
        verdict="wrong, unless adapters are meant",
        arithmetic=(
            f"{model.params_total / 1e9:.1f}B x 16 bytes (weights, gradients, FP32 master and two moments) = "
            f"{states:,.0f} GiB; 4 x {usable:.0f} = {4 * usable:,.0f} GiB. Full fine-tuning fits from "
            f"{_least('70B', 'finetune', 'H100')}, LoRA from {_least('70B', 'lora', 'H100')}, QLoRA from "
            f"{_least('70B', 'qlora', 'H100')}."
        ),
    )


def _one_card() -> Claim:
    small, large = _gib("13B", "bf16"), _gib("70B", "bf16")
    return Claim(
        said="13B needs 24 GB, 70B 80 GB, on one card",
        verdict="wrong in 16 bit",
        arithmetic=(
            f"Weights in 16 bit: 13B {small:.1f} GiB, more than the {resolve('A10G').usable_memory_gib:.1f} GiB of a "
            f"24 GB card; 70B {large:.1f} GiB, more than the {resolve('A100-80GB').usable_memory_gib:.1f} of an 80 GB "
            f"card. In 4 bit they are {_gib('13B', 'int4'):.1f} and {_gib('70B', 'int4'):.1f} GiB: those fit."
        ),
    )


def _four_bits() -> Claim:
    model = resolve_model("70B")
    total = weight_bytes(model, weight_format("int4")).total
    return Claim(
        said="GPTQ 4-bit 70B = 17.5 GB",
        verdict="wrong: a factor of two and more",
        arithmetic=(
            f"{model.params_total / 1e9:.1f}B x 0.5 bytes = {model.params_total / 2 / GB:.1f} GB already (17.5 GB "
            f"would be 2 bits); with scales of groups of 128 and embeddings in 16 bit it is {total / GB:.1f} GB "
            f"({total / GIB:.1f} GiB)."
        ),
    )


def _fifty_tokens() -> Claim:
    alone, loaded = _serving("70B", "H100", 8, "bf16", requests=1), _serving("70B", "H100", 8, "bf16")
    one, many = alone.performance, loaded.performance
    if one is None or many is None:
        raise ValueError("70B on 8 H100 is not sized")
    return Claim(
        said="70B on 8 H100 gives 50 token/s",
        verdict="right order for one request, wrong for the machine",
        arithmetic=(
            f"One request alone gets {1000 / one.tpot_ms.value:,.0f} tokens/s; at {many.batch} running requests, all "
            f"within {DEFAULT_SLO.tpot_ms:g} ms per token, the machine gives {many.output_tokens_per_s.value:,.0f} "
            f"({many.output_tokens_per_s.low:,.0f} to {many.output_tokens_per_s.high:,.0f})."
        ),
    )


def _prices(offers: Sequence[Offer]) -> Iterator[Claim]:
    found = sorted(
        offer.usd_per_accelerator_hour
        for offer in offers
        if offer.instance_type.accelerator == "H100-SXM5-80GB" and offer.purchase_option == "on_demand"
    )
    if found:
        yield Claim(
            said="H100 36 USD/h",
            verdict="wrong for one card",
            arithmetic=(
                f"{len(found):,} on-demand prices on file: {found[0]:,.2f} to {found[-1]:,.2f} USD an "
                f"accelerator-hour, median {median(found):,.2f}; a machine of 8 is {8 * found[0]:,.2f} to "
                f"{8 * found[-1]:,.2f}."
            ),
        )


def _machines(offers: Sequence[Offer]) -> Iterator[Claim]:
    kinds = {offer.instance_type.name: offer.instance_type for offer in offers}
    said = {
        "A100 on AWS = p3.8xlarge": "p3.8xlarge",
        "H100 on AWS = p4d.24xlarge": "p4d.24xlarge",
        "NDv5 = 8 x A100 80GB": "Standard_ND96isr_H100_v5",
    }
    right = {"p3.8xlarge": "p4d.24xlarge", "p4d.24xlarge": "p5.48xlarge"}
    for claim, name in said.items():
        kind = kinds.get(name)
        if kind is None:
            continue
        text = f"{name} has {kind.accelerator_count:g} x {kind.accelerator}"
        other = kinds.get(right.get(name, ""))
        if other is not None:
            text += f"; {other.name} has {other.accelerator_count:g} x {other.accelerator}"
        yield Claim(said=claim, verdict="wrong", arithmetic=f"{text}.")


def _peak() -> Claim:
    card, module = resolve("H100-PCIe"), resolve("H100-SXM5-80GB")
    return Claim(
        said="H100 756 TFLOPS",
        verdict="only the PCIe card",
        arithmetic=(
            f"Dense 16-bit peak: {card.dense_tflops['bf16']:g} TFLOPS of {card.name}, {module.dense_tflops['bf16']:g} "
            f"of {module.name}, which most machines have; twice that is quoted with sparsity, which models do not use."
        ),
    )


def _serving(size: str, gpu: str, count: int, precision: str, requests: int | None = None) -> ServingEstimate:
    accelerator = resolve(gpu)
    return size_serving(
        resolve_model(size),
        Hardware(accelerator=accelerator, count=count, link=usual_link(accelerator, count)),
        shape=DEFAULT_SHAPE,
        slo=DEFAULT_SLO,
        precision=precision,
        context_tokens=min(CONTEXT_TOKENS, resolve_model(size).max_position),
        concurrency=requests,
        tp=count,
    )


def _words(sized: ServingEstimate) -> str:
    memory = sized.memory
    verdict = sized.verdict.replace("_", " ")
    return f"{verdict}, weights {memory.weights_gib:.1f} of {memory.budget_gib:.1f} GiB on each"


def _gib(size: str, precision: str) -> float:
    return weight_bytes(resolve_model(size), weight_format(precision)).total / GIB


def _run(size: str, task: str, gpu: str) -> tuple[TrainingRun, Cluster]:
    accelerator, model = resolve(gpu), resolve_model(size)
    run = TrainingRun(
        name=task,
        model=size,
        task=task,
        tokens=model.params_total * _TOKENS_PER_PARAMETER,
        seq_len=min(DEFAULT_SEQ_LEN[task], model.max_position),
        global_batch_tokens=DEFAULT_BATCH_TOKENS[task],
    )
    cluster = Cluster(
        accelerator=accelerator,
        nodes=1,
        node_accelerators=8,
        link=usual_link(accelerator, 8),
        network_gbit_per_s=usual_network_gbit(accelerator),
    )
    return for_hardware(run, accelerator)[0], cluster


def _least(size: str, task: str, gpu: str) -> str:
    """The smallest count that holds the job, in words."""
    run, cluster = _run(size, task, gpu)
    least, _ = smallest_counts(run, resolve_model(size), cluster, _MOST)
    return f"more than {_MOST:,}" if least is None else f"{least:,}"


def _training(size: str, task: str, gpu: str, count: int | None = None) -> float:
    """Days on `count` accelerators, or on the fewest that hold it."""
    run, cluster = _run(size, task, gpu)
    model = resolve_model(size)
    least, _ = smallest_counts(run, model, cluster, _MOST)
    sized = best_layout(run, model, resized(cluster, count or least or 1))
    if sized is None and count is not None:
        sized = best_layout(replace(run, micro_batch=1), model, resized(cluster, count))
    if sized is None:
        raise ValueError(f"{task} of {size} does not fit on {count} x {gpu}")
    return sized.hours / HOURS_PER_DAY
