"""Turns groups of replicas into a Ray Serve configuration with its LLM application."""

import re
from collections.abc import Mapping
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, device, provenance
from optimizer.interop.routers.weights import by_workload
from optimizer.interop.serving import vllm
from optimizer.interop.yaml_text import yaml_documents

VERSION: Final = "2.60.0"
"""Newest on PyPI on 2026-11-30; fields of docs.ray.io (serve/llm, configuration reference), read that day."""

TYPES: Final = {
    "H100-SXM5-80GB": "H100",
    "H100-PCIe-80GB": "H100",
    "H200-SXM5-141GB": "H200",
    "A100-SXM4-40GB": "A100",
    "A100-PCIe-40GB": "A100",
    "A100-SXM4-80GB": "A100",
    "A100-PCIe-80GB": "A100",
    "A10G": "A10G",
    "B200": "B200",
    "L4": "L4",
    "L40S": "L40S",
    "H20-SXM5-96GB": "H20",
    "H100-NVL-94GB": "H100",
    "H200-NVL-141GB": "H200",
    "B300": "B300",
    "GB200": "GB200",
    "GB300": "GB300",
    "RTX PRO 6000 Blackwell Server": "RTX-PRO-6000",
    "RTX PRO 6000 Blackwell Workstation": "RTX-PRO-6000",
    "T4": "T4",
    "V100-SXM2-16GB": "V100",
    "V100-SXM2-32GB": "V100",
    "V100-PCIe-16GB": "V100",
    "MI300X": "AMD-Instinct-MI300X-OAM",
    "MI325X": "AMD-Instinct-MI325X-OAM",
    "MI350X": "AMD-Instinct-MI350X-OAM",
    "MI355X": "AMD-Instinct-MI355X-OAM",
}
"""Labels that Ray gives its nodes by itself (ray.util.accelerators); A100-40G and A100-80G it does not."""


_RUNS_ON: Final = re.compile(r"^# Application (?P<name>\S+): \d{1,6} x (?P<accelerator>.+)$", re.MULTILINE)


def export(plan: LaunchPlan) -> Exported:
    """One configuration with an application for each group of replicas, on a route of its own."""
    warnings = []
    for group in plan.groups:
        warnings += vllm.warnings(group)
        if group.purchase.accelerator not in TYPES:
            warnings.append(f"{group.name}: Ray's name for {group.purchase.accelerator} is not known here: none is set")
        if TYPES.get(group.purchase.accelerator) == "A100":
            warnings.append(
                f"{group.name}: Ray's A100 is any of 40 and 80 GB; nodes tell them apart by labels of yours"
            )
        if group.instances_per_replica > 1:
            warnings.append(f"{group.name}: a replica spans {group.instances_per_replica} machines of the Ray cluster")
    for workload, groups in by_workload(plan).items():
        if len(groups) > 1:
            warnings.append(f"{workload}: Ray does not split requests between applications: a router must")
    head = [*provenance(plan), *(runs_on(group) for group in plan.groups)]
    head.append(f"For Ray {VERSION} on machines that are there: serve run ray-serve.yaml")
    content = {"applications": [_application(group, several=len(plan.groups) > 1) for group in plan.groups]}
    return Exported(files={"ray-serve.yaml": yaml_documents([content], head)}, warnings=tuple(warnings))


def runs_on(group: ReplicaGroup) -> str:
    """Which accelerators an application is meant for: Ray's names do not tell all of them apart."""
    return f"Application {group.name}: {group.accelerators_per_replica} x {group.purchase.accelerator}"


def stated(text: str) -> Mapping[str, str]:
    """The accelerator of each application, as the head of an exported file says it."""
    return {match["name"]: match["accelerator"] for match in _RUNS_ON.finditer(text)}


def _application(group: ReplicaGroup, *, several: bool) -> dict[str, Any]:
    config: dict[str, Any] = {
        "model_loading_config": {"model_id": group.model, "model_source": group.model},
        "deployment_config": {"num_replicas": group.replicas, "max_ongoing_requests": group.batch},
        "engine_kwargs": engine_arguments(group),
    }
    if group.purchase.accelerator in TYPES and device(group.purchase) is not None:
        config["accelerator_type"] = TYPES[group.purchase.accelerator]
    return {
        "name": group.name,
        "route_prefix": f"/{group.name}" if several else "/",
        # Ranks that run attention data-parallel are an application of their own kind.
        **(
            {"import_path": "ray.serve.llm:build_dp_openai_app", "args": {"llm_config": config}}
            if group.data_parallel > 1
            else {"import_path": "ray.serve.llm:build_openai_app", "args": {"llm_configs": [config]}}
        ),
    }


def engine_arguments(group: ReplicaGroup) -> dict[str, Any]:
    """vLLM's engine arguments under their Python names."""
    words = vllm.arguments(group, per_instance=False)
    found: dict[str, Any] = {
        "tensor_parallel_size": group.tensor_parallel,
        "pipeline_parallel_size": group.pipeline_parallel,
        "max_model_len": group.context_tokens,
        "max_num_seqs": group.batch,
        "gpu_memory_utilization": vllm.memory_share(group),
    }
    if group.data_parallel > 1:
        found["data_parallel_size"] = group.data_parallel
    for flag in ("--dtype", "--quantization", "--kv-cache-dtype"):
        if flag in words:
            found[_python_name(flag)] = words[words.index(flag) + 1]
    return found | {_python_name(flag): True for flag in vllm.FLAGS if flag in words}


def _python_name(flag: str) -> str:
    return flag.removeprefix("--").replace("-", "_")
