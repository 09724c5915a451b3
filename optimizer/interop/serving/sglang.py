"""Turns a group of replicas into an SGLang start script."""

from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, comment, provenance
from optimizer.interop.serving import vllm

VERSION: Final = "0.5.23"
"""Newest release on PyPI on 2026-11-30; its own parser of arguments read what is written here that day."""

PORT: Final = 30000
_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def export(plan: LaunchPlan) -> Exported:
    """One start script for each group of replicas."""
    files, warnings = {}, []
    for group in plan.groups:
        files[f"sglang-{group.name}.sh"] = _script(plan, group)
        warnings += [*vllm.warnings(group, "sglang"), *vllm.placement_warnings(group, "sglang")]
    return Exported(files=files, warnings=tuple(warnings))


def arguments(group: ReplicaGroup) -> list[str]:
    """The words of the server's command line for one instance.

    --tp-size counts all accelerators of a stage: ranks of attention that run data-parallel share them, and experts are
    split over --ep-size of them. --dp-size are whole copies.
    """
    words = ["sglang", "serve", "--model-path", group.model]
    if group.precision in _DTYPES:
        words += ["--dtype", _DTYPES[group.precision]]
    elif vllm.is_converted(group):
        words += ["--quantization", "fp8"]
    words += ["--tp-size", str(group.tensor_parallel * group.data_parallel), "--pp-size", str(group.pipeline_parallel)]
    if group.data_parallel > 1:
        words += ["--attn-dp-size", str(group.data_parallel)]
    if group.expert_parallel > 1:
        words += ["--ep-size", str(group.expert_parallel)]
    if group.per_instance > 1:
        words += ["--dp-size", str(group.per_instance)]
    # The limit on requests is shared by the ranks of attention, and each of the copies has its own.
    words += ["--context-length", str(group.context_tokens)]
    words += ["--max-running-requests", str(group.batch)]
    if group.memory is not None:
        words += ["--mem-fraction-static", f"{vllm.shortened(group.memory.static):g}"]
    if group.kv_precision == "fp8":
        words += ["--kv-cache-dtype", "fp8_e4m3"]
    return [*words, "--host", "0.0.0.0", "--port", str(PORT)]  # noqa: S104 - the server listens inside its own network


def _script(plan: LaunchPlan, group: ReplicaGroup) -> str:
    head = [*provenance(plan, group.purchases), f"For SGLang {VERSION}. {vllm.places(group)}"]
    started = vllm.command(arguments(group))
    lines = ["#!/usr/bin/env bash", comment(head) + "set -euo pipefail", ""]
    if group.instances_per_replica > 1:
        lines += [
            ': "${NODE_RANK:?0 on the first instance of a replica, 1 on the next}"',
            ': "${MASTER_ADDR:?address of the first instance of the replica}"',
            f"exec {started} \\",
            f'  --nnodes {group.instances_per_replica} --node-rank "$NODE_RANK" --dist-init-addr "$MASTER_ADDR:20000"',
        ]
    else:
        lines.append(f"exec {started}")
    return "\n".join(lines) + "\n"
