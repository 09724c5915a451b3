"""Turns a group of replicas into a start script of TensorRT-LLM's server."""

from typing import Final

from optimizer.interop import vllm
from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, comment, provenance

VERSION: Final = "0.18 and newer"
"""Release whose flags were read (nvidia.github.io/TensorRT-LLM, trtllm-serve, 2026-11-30)."""


def export(plan: LaunchPlan) -> Exported:
    """One script for each group of replicas on one machine."""
    files, warnings = {}, []
    for group in plan.groups:
        warnings += [*vllm.checkpoint_warnings(group), *vllm.context_warnings(group)]
        if group.instances_per_replica > 1:
            warnings.append(f"{group.name}: over several machines it starts under mpirun or Slurm: no file")
            continue
        if group.precision.startswith("fp8"):
            warnings.append(f"{group.name}: name a checkpoint in FP8 (modelopt): no flag converts one")
        if group.per_instance > 1:
            warnings.append(f"{group.name}: start it {group.per_instance} times on each machine, each on its own cards")
        head = [*provenance(plan, group.purchases), f"For TensorRT-LLM {VERSION}. {vllm.places(group)}"]
        body = f"set -euo pipefail\n\nexec {vllm.command(arguments(group))}\n"
        files[f"tensorrt-llm-{group.name}.sh"] = "#!/usr/bin/env bash\n" + comment(head) + body
    return Exported(files=files, warnings=tuple(warnings))


def arguments(group: ReplicaGroup) -> list[str]:
    """The words of `trtllm-serve` for one replica."""
    words = ["trtllm-serve", group.model, "--tp_size", str(group.tensor_parallel)]
    words += ["--pp_size", str(group.pipeline_parallel), "--max_seq_len", str(group.context_tokens)]
    words += ["--max_batch_size", str(group.batch)]
    return [*words, "--port", str(vllm.PORT)]
