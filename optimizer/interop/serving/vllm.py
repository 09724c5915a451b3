"""Turns a group of replicas into a vLLM command line, and a vLLM command line into what it launches."""

import math
import shlex
from collections.abc import Iterator
from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, comment, device, provenance
from optimizer.sizing.engines import engine_profile
from optimizer.workload.architecture import resolve_model
from providers.errors import UnknownName

VERSION: Final = "0.33.0"
"""Newest release on PyPI on 2026-11-30; flags read in docs.vllm.ai (engine arguments, multi-node) that day."""

PORT: Final = 8000
IMAGES: Final = {
    "NVIDIA": f"vllm/vllm-openai:v{VERSION}",
    "AMD": "rocm/vllm:rocm7.14.0_cdna_ubuntu24.04_py3.14_pytorch_2.11.0_vllm_0.23.0",
}
"""By vendor of the accelerator: docs.vllm.ai (Docker), rocm.docs.amd.com (vLLM inference); read 2026-11-30."""

REQUIREMENTS: Final = {"NVIDIA": f"vllm=={VERSION}", "Google": "vllm-tpu==0.32.0"}
"""By vendor of the accelerator, the wheels on PyPI (newest on 2026-11-30)."""

_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
_KV_DTYPES: Final = {"fp8": "fp8"}


def export(plan: LaunchPlan) -> Exported:
    """One start script for each group of replicas; it starts what one instance (or its part of a replica) runs."""
    files: dict[str, str] = {}
    found: list[str] = []
    for group in plan.groups:
        files[f"vllm-{group.name}.sh"] = script(plan, group, arguments(group))
        found += [*warnings(group), *placement_warnings(group)]
    return Exported(files=files, warnings=tuple(found))


def arguments(group: ReplicaGroup, *, per_instance: bool = True) -> list[str]:
    """The words of `vllm serve` for one instance's replicas (or, without `per_instance`, for one replica)."""
    words = ["vllm", "serve", group.model, *_precision(group)]
    words += ["--tensor-parallel-size", str(group.tensor_parallel)]
    words += ["--pipeline-parallel-size", str(group.pipeline_parallel)]
    ranks = group.data_parallel * (group.per_instance if per_instance else 1)
    if ranks > 1:
        words += ["--data-parallel-size", str(ranks)]
    if group.expert_parallel > 1:
        words.append("--enable-expert-parallel")
    words += ["--max-model-len", str(group.context_tokens), "--max-num-seqs", str(group.batch)]
    words += ["--gpu-memory-utilization", f"{memory_share(group):g}"]
    if group.kv_precision in _KV_DTYPES:
        words += ["--kv-cache-dtype", _KV_DTYPES[group.kv_precision]]
    if group.prefix_cache_hit > 0:
        words.append("--enable-prefix-caching")
    return [*words, "--port", str(PORT)]


def memory_share(group: ReplicaGroup) -> float:
    """What the plan gave the engine of the card, to three digits; the engine's default where the plan does not say."""
    if group.memory is not None and group.memory.of_card < 1:
        return shortened(group.memory.of_card)
    if group.engine == "vllm" and group.memory_share is not None:
        return group.memory_share
    return engine_profile("vllm").memory_share


def shortened(share: float) -> float:
    """A share to three digits, rounded down: more might not be there."""
    return math.floor(share * 1000 + 0.01) / 1000


def script(plan: LaunchPlan, group: ReplicaGroup, words: list[str]) -> str:
    """A bash script that starts the command; for a replica over several instances it wants rank and address."""
    head = [*provenance(plan, group.purchases), f"For vLLM {VERSION}. {places(group)}"]
    lines = ["#!/usr/bin/env bash", comment(head) + "set -euo pipefail", ""]
    if group.instances_per_replica > 1:
        lines += [
            ': "${NODE_RANK:?0 on the first instance of a replica, 1 on the next}"',
            ': "${MASTER_ADDR:?address of the first instance of the replica}"',
            'if [ "$NODE_RANK" != 0 ]; then set -- --headless; else set --; fi',
            f"exec {command(words)} \\",
            f'  --nnodes {group.instances_per_replica} --node-rank "$NODE_RANK" --master-addr "$MASTER_ADDR" "$@"',
        ]
    else:
        lines.append(f"exec {command(words)}")
    return "\n".join(lines) + "\n"


def command(words: list[str]) -> str:
    """The words quoted for a shell, an option and its value on each line."""
    parts, rest = [], iter(words)
    first: list[str] = []
    for word in rest:
        if word.startswith("--"):
            parts.append(f"{word} {shlex.quote(next(rest))}" if word not in FLAGS else word)
        else:
            first.append(shlex.quote(word))
    return " \\\n  ".join([" ".join(first), *parts])


FLAGS: Final = frozenset(
    {
        "--headless",
        "--trust-remote-code",
        "--enable-expert-parallel",
        "--enable-prefix-caching",
        "--enable-dp-attention",
    }
)
"""Options that exporters write without a value."""


def warnings(group: ReplicaGroup, engine: str = "vllm") -> list[str]:
    """What every file that starts `engine` has to say of the group, wherever it runs."""
    return [*checkpoint_warnings(group), *device_warnings(group), *context_warnings(group, engine)]


def checkpoint_warnings(group: ReplicaGroup, *, converts_fp8: bool = True) -> Iterator[str]:
    """What a flag cannot express: formats that need a checkpoint of their own, FP8 too without `converts_fp8`."""
    if native_dtype(group.model) is None:
        yield f"{group.name}: {group.model} is not in the table of models: check that the engine loads it by that name"
    if needs_checkpoint(group, converts_fp8=converts_fp8):
        yield (
            f"{group.name}: the plan counts on {group.precision} weights, and no flag makes them of {group.model}: put "
            "the name of a checkpoint in that format (FP8, AWQ, GPTQ, …) in its place, and evaluate it"
        )
    elif is_converted(group):
        yield (
            f"{group.name}: --quantization fp8 converts the 16-bit checkpoint while loading; a checkpoint in FP8 loads "
            "faster and keeps its calibration"
        )


def needs_checkpoint(group: ReplicaGroup, *, converts_fp8: bool = True) -> bool:
    """Whether the plan's precision is a format that the model's own checkpoint does not have and no flag makes."""
    if group.precision in _DTYPES or group.precision == native_dtype(group.model):
        return False
    is_fp8 = group.precision.startswith("fp8")
    return not (is_fp8 and (converts_fp8 or not is_converted(group)))


def is_converted(group: ReplicaGroup) -> bool:
    """Whether FP8 weights are made of a checkpoint in another format."""
    return group.precision.startswith("fp8") and native_dtype(group.model) not in ("fp8", "fp8_block")


def device_warnings(group: ReplicaGroup) -> Iterator[str]:
    """Accelerators that the published images are not built for."""
    found = device(group.purchase)
    if found is None or found.vendor not in IMAGES:
        build = " (vllm-tpu)" if found is not None and found.vendor == "Google" else ""
        yield (
            f"{group.name}: {group.purchase.accelerator} takes a build of the engine from its vendor{build}, with "
            "flags of its own; the image and the flags here are those for NVIDIA and AMD"
        )


def context_warnings(group: ReplicaGroup, engine: str = "vllm") -> Iterator[str]:
    """What the plan's limits refuse, and what it counted on that `engine` or its flags do not give."""
    yield (
        f"{group.name}: requests of more than {group.context_tokens} tokens are refused: the plan was sized for that "
        "(--context)"
    )
    # SGLang counts weights and cache only: it takes more than a share of the card to say that.
    is_said = group.memory_share is not None and group.engine == engine != "sglang"
    if group.memory is None and not is_said:
        yield f"{group.name}: the plan does not say the memory share: the engine's default is written; plan again"
    if group.engine is not None and group.engine != engine:
        yield (
            f"{group.name}: the plan counted on {group.engine}, and this is {engine}, with other speed and memory; "
            f"`costopt plan --engine {engine}` plans for it"
        )
    if group.kv_precision not in (None, *_KV_DTYPES):
        yield f"{group.name}: the plan counts on a cache in {group.kv_precision}, and no flag makes one: it has 16 bit"
    if group.prefix_cache_hit > 0:
        yield (
            f"{group.name}: the plan counted on {group.prefix_cache_hit:.0%} of each prompt in the prefix cache: "
            "requests that share a prefix must reach the same replica"
        )


def placement_warnings(group: ReplicaGroup, engine: str = "vllm") -> Iterator[str]:
    """Where instances and replicas of the plan do not come out as whole files."""
    if engine == "vllm" and group.per_instance > 1 and _has_experts(group.model):
        yield (
            f"{group.name}: vLLM splits the experts over all ranks of --data-parallel-size, where the plan counted on "
            "whole copies: it fits, and its speed differs; start one server for each replica to have the plan's"
        )
    if not group.is_alone:
        yield f"{group.name}: other replicas share its instances: start each with its own accelerators and port"
    if group.instances_per_replica == 1 and group.per_instance * group.instances > group.replicas:
        yield (
            f"{group.name}: {group.replicas} replicas do not spread evenly over {group.instances} instances: "
            f"{group.per_instance} on each is {group.per_instance * group.instances}"
        )


def places(group: ReplicaGroup, *, converts_fp8: bool = True) -> str:
    """How many of it run where, and what must be put in first, as sentences."""
    first = ""
    if needs_checkpoint(group, converts_fp8=converts_fp8):
        first = f" First put a checkpoint in {group.precision} in place of the model: the plan counts on that."
    if group.instances_per_replica > 1:
        return (
            f"Start it on every instance: each replica ({group.replicas}) spans {group.instances_per_replica}.{first}"
        )
    return f"Start it on every instance ({group.instances}); replicas on each: {group.per_instance}.{first}"


def native_dtype(model: str) -> str | None:
    """The dtype of the published checkpoint; None for a model that is not in the table."""
    try:
        return resolve_model(model).native_dtype
    except UnknownName:
        return None


def _has_experts(model: str) -> bool:
    try:
        return resolve_model(model).is_moe
    except UnknownName:
        return False


def _precision(group: ReplicaGroup) -> list[str]:
    if group.precision in _DTYPES:
        return ["--dtype", _DTYPES[group.precision]]
    return ["--quantization", "fp8"] if is_converted(group) else []
