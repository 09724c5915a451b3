"""Turns groups of replicas into the model.yaml of Triton's TensorRT-LLM backend (LLM API)."""

from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, provenance
from optimizer.interop.serving import tensorrt_llm, vllm
from optimizer.interop.yaml_text import yaml_documents

RELEASE: Final = "26.09"
"""Newest container with the backend on 2026-11-30 (Triton's guide to TensorRT-LLM). The older form, with engines that
trtllm-build makes, is deprecated there."""

MODEL: Final = "tensorrt_llm/1/model.yaml"
"""Where the backend's repository (TensorRT-LLM, triton_backend/all_models/llmapi) has it."""


def export(plan: LaunchPlan) -> Exported:
    """The file that takes the place of the repository's own, for each group on one machine."""
    files: dict[str, str] = {}
    warnings: list[str] = []
    for group in plan.groups:
        warnings += tensorrt_llm.group_warnings(group)
        if not tensorrt_llm.is_possible(group):
            continue
        head = [
            *provenance(plan, group.purchases),
            f"For Triton {RELEASE} with the TensorRT-LLM backend. {vllm.places(group, converts_fp8=False)}",
            f"Copy all_models/llmapi of TensorRT-LLM's triton_backend and put this in place of its {MODEL}.",
        ]
        files[f"triton-tensorrt-llm-{group.name}/{MODEL}"] = yaml_documents([_model(group)], head)
        warnings.append(f"{group.name}: model.py and config.pbtxt are those of the release in the container: copy them")
    return Exported(files=files, warnings=tuple(warnings))


def _model(group: ReplicaGroup) -> dict[str, Any]:
    """Arguments of the LLM API; one server runs one replica."""
    found: dict[str, Any] = {
        "model": group.model,
        "backend": "pytorch",
        "tensor_parallel_size": group.tensor_parallel * group.data_parallel,
        "pipeline_parallel_size": group.pipeline_parallel,
    }
    if group.expert_parallel > 1:
        found["moe_expert_parallel_size"] = group.expert_parallel
    found |= {"max_seq_len": group.context_tokens, "max_batch_size": group.batch, **tensorrt_llm.options(group)}
    return found | {"triton_config": {"max_batch_size": 0, "decoupled": True}}
