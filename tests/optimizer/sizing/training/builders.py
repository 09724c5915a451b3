"""Builds training setups for tests: a named model on a named accelerator, everything else at its usual value."""

from typing import Any

from optimizer.sizing.training.setup import Cluster, TrainingLayout, TrainingSetup
from optimizer.workload.architecture import Architecture, CacheGroup, resolve_model
from providers.accelerators import resolve
from providers.instance_types import usual_link


def make_cluster(gpu: str = "A100-SXM4-80GB", *, count: int = 8, nodes: int = 1, **over: Any) -> Cluster:
    accelerator = resolve(gpu)
    facts: dict[str, Any] = {
        "accelerator": accelerator,
        "nodes": nodes,
        "node_accelerators": count,
        "link": usual_link(accelerator, count),
        "network_gbit_per_s": 1600.0,
    }
    return Cluster(**(facts | over))


def make_setup(
    model: str | Architecture = "meta-llama/Llama-2-7b-hf",
    gpu: str = "A100-SXM4-80GB",
    *,
    count: int = 8,
    nodes: int = 1,
    network_gbit_per_s: float | None = 1600.0,
    **over: Any,
) -> TrainingSetup:
    cluster = make_cluster(gpu, count=count, nodes=nodes, network_gbit_per_s=network_gbit_per_s)
    facts: dict[str, Any] = {
        "model": resolve_model(model) if isinstance(model, str) else model,
        "cluster": over.pop("cluster", cluster),
        "layout": TrainingLayout(dp=count * nodes),
        "task": "train",
        "stack": "megatron",
        "seq_len": 2048,
        "micro_batch": 1,
        "global_batch_tokens": 2048.0 * 1024,
    }
    return TrainingSetup(**(facts | over))


def gpt_shape(*, layers: int = 24, hidden: int = 2048, heads: int = 16, vocab: int = 51_200) -> Architecture:
    """A GPT-2-like decoder: two MLP matrices of 4 h, tied embeddings, no grouped heads."""
    head_dim = hidden // heads
    return Architecture(
        name="GPT",
        hf_id="GPT",
        layers=layers,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        vocab=vocab,
        max_position=2048,
        tied=True,
        native_dtype="bf16",
        params_total=12.0 * layers * hidden**2 + vocab * hidden,
        params_active=12.0 * layers * hidden**2 + vocab * hidden,
        source="test",
        mlp_matrices=2,
        cache_groups=(CacheGroup(layers=layers, elements=2 * hidden),),
    )
