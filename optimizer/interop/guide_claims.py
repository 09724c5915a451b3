"""Turns recommendations in circulation into what the arithmetic says of them."""

from collections.abc import Iterator, Mapping, Sequence
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

_PATIENCE_DAYS: Final = 30
"""A run that takes longer than this month is said not to hold for time."""

_SAID_BYTES: Final = 17.5e9
"""What is said of a 70B in 4 bit."""

_SAID_TOKENS_PER_S: Final = 50
_SAID_USD_PER_HOUR: Final = 36
_SAID_TFLOPS: Final = 756
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


def verdict(parts: Mapping[str, bool]) -> str:
    """`holds`, `does not hold`, or for which parts it holds and for which it does not."""
    right = [part for part, holds in parts.items() if holds]
    wrong = [part for part, holds in parts.items() if not holds]
    if not right or not wrong:
        return "does not hold" if wrong else "holds"
    return f"holds for {_listed(right)}, not for {_listed(wrong)}"


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _below_1b() -> Claim:
    least, days = _least("1B", "train", "RTX 4090"), _training("1B", "train", "RTX 4090", 2)
    infer = _serving("1B", "RTX 3090", 1, "bf16")
    return Claim(
        said="Below 1B: train on 1-2 RTX 4090, infer on 1 RTX 3090",
        verdict=verdict(
            {
                "the memory of training": _at_most(least, 2),
                "the time of training": days <= _PATIENCE_DAYS,
                "inference": infer.verdict == "fits",
            }
        ),
        arithmetic=(
            f"Pre-training 1B takes {_counted(least)} RTX 4090 for its memory, and on 2 of them {days:,.0f} days for "
            f"{_TOKENS_PER_PARAMETER} tokens a parameter (small models are trained on many times that); an RTX 3090 "
            f"serves it with room for {infer.max_concurrency:,} requests of {CONTEXT_TOKENS:,} tokens."
        ),
    )


def _up_to_7b() -> Claim:
    infer = _serving("7B", "A10G", 1, "bf16")
    tuned, days = _least("7B", "finetune", "A100-40GB"), _training("7B", "train", "A100-40GB", 8)
    return Claim(
        said="1-7B: train on 4-8 A100 40GB, infer on 1 A10G",
        verdict=verdict(
            {
                "full fine-tuning": _at_most(tuned, 8),
                "pre-training": days <= _PATIENCE_DAYS,
                "inference": infer.verdict == "fits",
            }
        ),
        arithmetic=(
            f"Full fine-tuning of 7B fits from {_counted(tuned)} A100 40GB; pre-training on 8 would take "
            f"{days:,.0f} days for {_TOKENS_PER_PARAMETER} tokens a parameter. On an A10G weights take "
            f"{infer.memory.weights_gib:.1f} of {infer.memory.budget_gib:.1f} GiB: {infer.max_concurrency} requests "
            f"of {CONTEXT_TOKENS:,} tokens at once."
        ),
    )


def _up_to_70b() -> Claim:
    two, four = (_serving("70B", "A100-80GB", count, "bf16") for count in (2, 4))
    least, days = _least("70B", "train", "H100"), _training("70B", "train", "H100", 64)
    return Claim(
        said="7-70B: train on 16-64 H100, infer on 2-4 A100 80GB",
        verdict=verdict(
            {
                "the memory of training": _at_most(least, 64),
                "the time of training": days <= _PATIENCE_DAYS,
                "inference of 70B on 2": two.verdict == "fits",
                "inference of 70B on 4": four.verdict == "fits",
            }
        ),
        arithmetic=(
            f"70B in 16 bit on 2 A100 80GB: {_words(two)}; on 4: {_words(four)}. Pre-training 70B on 64 H100 takes "
            f"{days:,.0f} days for {_TOKENS_PER_PARAMETER} tokens a parameter; the memory alone takes "
            f"{_counted(least)}."
        ),
    )


def _up_to_1t() -> Claim:
    smallest, large = _serving("70B", "H100", 8, "bf16"), _serving("405B", "H100", 8, "bf16")
    largest = _serving("1T", "H100", 8, "fp8")
    least = {size: _least(size, "train", "H100") for size in ("70B", "405B", "1T")}
    return Claim(
        said="70B-1T: train on hundreds of H100 + InfiniBand, infer on 8 H100 + TensorRT-LLM",
        verdict=verdict(
            {
                "training": all(_at_most(count, 999) for count in least.values()),
                "inference of 70B": smallest.verdict == "fits",
                "inference of 405B in 16 bit": large.verdict == "fits",
                "inference of 1T in FP8": largest.verdict == "fits",
            }
        ),
        arithmetic=(
            f"On 8 H100 70B in 16 bit: {_words(smallest)}; 405B in 16 bit: {_words(large)}; 1T in FP8: "
            f"{_words(largest)}. H100 that pre-training takes for its memory: "
            f"{', '.join(f'{size} {_counted(count)}' for size, count in least.items())}."
        ),
    )


def _four_h100() -> Claim:
    model = resolve_model("70B")
    states = model.params_total * 16 / GIB
    usable = resolve("H100").usable_memory_gib
    least = {
        words: _least("70B", task, "H100")
        for words, task in (("full fine-tuning", "finetune"), ("LoRA", "lora"), ("QLoRA", "qlora"))
    }
    return Claim(
        said="70B training: 4 H100",
        verdict=verdict({words: _at_most(count, 4) for words, count in least.items()}),
        arithmetic=(
            f"{model.params_total / 1e9:.1f}B x 16 bytes (weights, gradients, FP32 master and two moments) = "
            f"{states:,.0f} GiB; 4 x {usable:.0f} = {4 * usable:,.0f} GiB. It fits from: "
            f"{', '.join(f'{words} {_counted(count)}' for words, count in least.items())}."
        ),
    )


def _one_card() -> Claim:
    small, large = _gib("13B", "bf16"), _gib("70B", "bf16")
    small_card, large_card = (resolve(name).usable_memory_gib for name in ("A10G", "A100-80GB"))
    return Claim(
        said="13B needs 24 GB, 70B 80 GB, on one card",
        verdict=verdict(
            {
                "13B in 16 bit": small <= small_card,
                "70B in 16 bit": large <= large_card,
                "4 bit": _gib("13B", "int4") <= small_card and _gib("70B", "int4") <= large_card,
            }
        ),
        arithmetic=(
            f"Weights in 16 bit: 13B {small:.1f} GiB, beside the {small_card:.1f} GiB of a 24 GB card; 70B "
            f"{large:.1f} GiB, beside the {large_card:.1f} of an 80 GB card. In 4 bit they are "
            f"{_gib('13B', 'int4'):.1f} and {_gib('70B', 'int4'):.1f} GiB. The cache comes on top."
        ),
    )


def _four_bits() -> Claim:
    model = resolve_model("70B")
    total = weight_bytes(model, weight_format("int4")).total
    return Claim(
        said="GPTQ 4-bit 70B = 17.5 GB",
        verdict=f"{verdict({'': abs(total / _SAID_BYTES - 1) < 0.1})}: it is {total / _SAID_BYTES:.1f} times that",
        arithmetic=(
            f"{model.params_total / 1e9:.1f}B x 0.5 bytes = {model.params_total / 2 / GB:.1f} GB already "
            f"({_SAID_BYTES / GB:.1f} GB would be {8 * _SAID_BYTES / model.params_total:.1f} bits); with scales of "
            f"groups of 128 and embeddings in 16 bit it is {total / GB:.1f} GB ({total / GIB:.1f} GiB)."
        ),
    )


def _fifty_tokens() -> Claim:
    alone, loaded = _serving("70B", "H100", 8, "bf16", requests=1), _serving("70B", "H100", 8, "bf16")
    one, many = alone.performance, loaded.performance
    if one is None or many is None:
        raise ValueError("70B on 8 H100 is not sized")
    alone_tokens_per_s = 1000 / one.tpot_ms.value
    return Claim(
        said=f"70B on 8 H100 gives {_SAID_TOKENS_PER_S} token/s",
        verdict=verdict(
            {
                "one request (within a factor of two)": _is_near(alone_tokens_per_s),
                "the machine": _is_near(many.output_tokens_per_s.value),
            }
        ),
        arithmetic=(
            f"One request alone gets {alone_tokens_per_s:,.0f} tokens/s; at {many.batch} running requests, all "
            f"within {DEFAULT_SLO.tpot_ms:g} ms per token, the machine gives {many.output_tokens_per_s.value:,.0f} "
            f"({many.output_tokens_per_s.low:,.0f} to {many.output_tokens_per_s.high:,.0f})."
        ),
    )


def _is_near(tokens_per_s: float) -> bool:
    return _SAID_TOKENS_PER_S / 2 <= tokens_per_s <= _SAID_TOKENS_PER_S * 2


def _prices(offers: Sequence[Offer]) -> Iterator[Claim]:
    found = sorted(
        offer.usd_per_accelerator_hour
        for offer in offers
        if offer.instance_type.accelerator == "H100-SXM5-80GB" and offer.purchase_option == "on_demand"
    )
    if found:
        yield Claim(
            said=f"H100 {_SAID_USD_PER_HOUR} USD/h",
            verdict=verdict(
                {
                    "one card": found[0] <= _SAID_USD_PER_HOUR <= found[-1],
                    "a machine of 8": 8 * found[0] <= _SAID_USD_PER_HOUR <= 8 * found[-1],
                }
            ),
            arithmetic=(
                f"{len(found):,} on-demand prices on file: {found[0]:,.2f} to {found[-1]:,.2f} USD an "
                f"accelerator-hour, median {median(found):,.2f}; a machine of 8 is {8 * found[0]:,.2f} to "
                f"{8 * found[-1]:,.2f}."
            ),
        )


def _machines(offers: Sequence[Offer]) -> Iterator[Claim]:
    kinds = {offer.instance_type.name: offer.instance_type for offer in offers}
    said = (
        ("A100 on AWS = p3.8xlarge", "p3.8xlarge", "A100-", "p4d.24xlarge"),
        ("H100 on AWS = p4d.24xlarge", "p4d.24xlarge", "H100-", "p5.48xlarge"),
        ("NDv5 = 8 x A100 80GB", "Standard_ND96isr_H100_v5", "A100-", "Standard_ND96amsr_A100_v4"),
    )
    for claim, name, accelerator, other in said:
        there = [kinds[kind] for kind in (name, other) if kind in kinds]
        if name not in kinds:
            continue
        text = "; ".join(f"{kind.name} has {kind.accelerator_count:g} x {kind.accelerator}" for kind in there)
        holds = kinds[name].accelerator.startswith(accelerator)
        yield Claim(said=claim, verdict=verdict({claim: holds}), arithmetic=f"{text}.")


def _peak() -> Claim:
    card, module = resolve("H100-PCIe"), resolve("H100-SXM5-80GB")
    cards = {"PCIe": card, "SXM": module}
    return Claim(
        said=f"H100 {_SAID_TFLOPS} TFLOPS",
        verdict=verdict(
            {f"the {form} card": round(one.dense_tflops["bf16"]) == _SAID_TFLOPS for form, one in cards.items()}
        ),
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


def _least(size: str, task: str, gpu: str) -> int | None:
    """The smallest count that holds the job; None above _MOST."""
    run, cluster = _run(size, task, gpu)
    return smallest_counts(run, resolve_model(size), cluster, _MOST)[0]


def _counted(count: int | None) -> str:
    return f"more than {_MOST:,}" if count is None else f"{count:,}"


def _at_most(count: int | None, most: int) -> bool:
    return count is not None and count <= most


def _training(size: str, task: str, gpu: str, count: int) -> float:
    """Days on `count` accelerators."""
    run, cluster = _run(size, task, gpu)
    model = resolve_model(size)
    sized = best_layout(run, model, resized(cluster, count))
    if sized is None:
        sized = best_layout(replace(run, micro_batch=1), model, resized(cluster, count))
    if sized is None:
        raise ValueError(f"{task} of {size} does not fit on {count} x {gpu}")
    return sized.hours / HOURS_PER_DAY
