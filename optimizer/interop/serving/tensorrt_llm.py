"""Turns a group of replicas into a start script of TensorRT-LLM's server, with its options as YAML."""

from collections.abc import Iterator
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, comment, device, provenance
from optimizer.interop.serving import vllm
from optimizer.interop.yaml_text import yaml_documents

VERSION: Final = "1.2.1"
"""Newest release on PyPI on 2026-11-30; options of `trtllm-serve` and of its LLM API in its documentation that day."""

_DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def export(plan: LaunchPlan) -> Exported:
    """A script and its options for each group of replicas on one machine."""
    files: dict[str, str] = {}
    warnings: list[str] = []
    for group in plan.groups:
        warnings += group_warnings(group)
        if not is_possible(group):
            continue
        head = [*provenance(plan, group.purchases), f"For TensorRT-LLM {VERSION}."]
        files[f"tensorrt-llm-{group.name}.sh"] = _script(head, group)
        files[f"tensorrt-llm-{group.name}.yaml"] = yaml_documents([options(group)], head)
    return Exported(files=files, warnings=tuple(warnings))


def is_possible(group: ReplicaGroup) -> bool:
    """Whether one server starts it: on one machine, with accelerators that TensorRT-LLM runs on."""
    found = device(group.purchase)
    return group.instances_per_replica == 1 and (found is None or found.vendor == "NVIDIA")


def group_warnings(group: ReplicaGroup) -> Iterator[str]:
    """What neither the command nor its options express, and why there is no file."""
    found = device(group.purchase)
    if found is not None and found.vendor != "NVIDIA":
        yield f"{group.name}: TensorRT-LLM runs on NVIDIA's accelerators only, not on {found.name}: no file"
    if group.instances_per_replica > 1:
        yield f"{group.name}: over several machines it starts under mpirun or Slurm: no file"
    if not is_possible(group):
        return
    yield from vllm.checkpoint_warnings(group, converts_fp8=False)
    yield from vllm.context_warnings(group, "tensorrt-llm")
    yield from vllm.placement_warnings(group, "tensorrt-llm")
    if group.tensor_parallel > 1 and group.data_parallel > 1:
        yield f"{group.name}: attention runs on each rank alone: {group.tensor_parallel}-way tensor parallel is lost"


def arguments(group: ReplicaGroup) -> list[str]:
    """The words of `trtllm-serve` for one replica; its port and the file with `options` come behind them."""
    words = ["trtllm-serve", group.model, "--tp_size", str(group.tensor_parallel * group.data_parallel)]
    words += ["--pp_size", str(group.pipeline_parallel)]
    if group.expert_parallel > 1:
        words += ["--ep_size", str(group.expert_parallel)]
    words += ["--max_seq_len", str(group.context_tokens), "--max_batch_size", str(group.batch)]
    return [*words, "--host", "0.0.0.0"]  # noqa: S104 - the server listens inside its own network


def options(group: ReplicaGroup) -> dict[str, Any]:
    """What the command line has no flag for in every release, by the names of the LLM API."""
    found: dict[str, Any] = {}
    if group.precision in _DTYPES:
        found["dtype"] = _DTYPES[group.precision]
    if group.data_parallel > 1:
        found["enable_attention_dp"] = True
    cache: dict[str, Any] = {"enable_block_reuse": True}
    if group.memory is None and group.engine == "tensorrt-llm" and group.memory_share is not None:
        cache["free_gpu_memory_fraction"] = group.memory_share
    if group.memory is not None:
        cache["free_gpu_memory_fraction"] = vllm.shortened(group.memory.of_free)
    if group.kv_precision == "fp8":
        cache["dtype"] = "fp8"
    return found | {"kv_cache_config": cache}


def _script(head: list[str], group: ReplicaGroup) -> str:
    started = vllm.command(arguments(group))
    with_options = f'--extra_llm_api_options "$(dirname "$0")/tensorrt-llm-{group.name}.yaml"'
    lines = ["#!/usr/bin/env bash", comment([*head, vllm.places(group, converts_fp8=False)]) + "set -euo pipefail", ""]
    if group.per_instance == 1:
        lines.append(f"exec {started} \\\n  {with_options} --port {vllm.PORT}")
    else:
        each = group.accelerators_per_replica
        lines += [
            "# Each replica has its own accelerators and port; where one ends, all do.",
            "trap 'jobs -p | xargs -r kill 2>/dev/null || true' EXIT",
            f"for replica in $(seq 0 {group.per_instance - 1}); do",
            f"  first=$((replica * {each}))",
            f'  cards="$(seq -s, "$first" $((first + {each - 1})))"',
            f'  CUDA_VISIBLE_DEVICES="$cards" {started} \\',
            f'  {with_options} --port "$(({vllm.PORT} + replica))" &',
            "done",
            "wait -n",
        ]
    return "\n".join(lines) + "\n"
