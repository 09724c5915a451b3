"""Turns groups of replicas into model repositories of Triton with its vLLM backend."""

import json

from optimizer.interop.launch_plan import Exported, LaunchPlan, comment, provenance
from optimizer.interop.serving import ray, vllm


def export(plan: LaunchPlan) -> Exported:
    """`config.pbtxt` and `1/model.json` for each group; each machine runs one server for each replica."""
    files, warnings = {}, []
    for group in plan.groups:
        head = [
            *provenance(plan, group.purchases),
            f"For Triton with the vLLM backend (vLLM {vllm.VERSION}). {vllm.places(group)}",
        ]
        body = 'backend: "vllm"\ninstance_group [ { count: 1, kind: KIND_MODEL } ]\n'
        files[f"triton-{group.name}/config.pbtxt"] = comment(head) + body
        engine = {"model": group.model, **ray.engine_arguments(group)}
        files[f"triton-{group.name}/1/model.json"] = json.dumps(engine, indent=2) + "\n"
        warnings += vllm.warnings(group)
        warnings.append(f"{group.name}: model.json cannot carry where it comes from: config.pbtxt beside it does")
        if group.instances_per_replica > 1:
            warnings.append(f"{group.name}: a replica over several machines needs Ray beneath the backend")
    return Exported(files=files, warnings=tuple(warnings))
