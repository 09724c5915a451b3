"""The same arguments give the same document, to the byte, in Python and on the command line."""

import gzip
from collections.abc import Iterator, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import optimizer
from tests.conftest import Command

FILES: Mapping[str, str] = {
    "w.yaml": "workloads:\n"
    "  - {name: chat, model: 8B, rate: 4, input_tokens: 800, output_tokens: 200}\n"
    "  - {name: code, model: 8B, rate: 1, input_tokens: 3000, output_tokens: 100, precisions: [fp8]}\n",
    "jobs.yaml": "jobs:\n"
    "  - {name: base, model: 1.5B, task: train, tokens: 50B, deadline: 60d}\n"
    "  - {name: tune, model: 8B, task: lora, tokens: 100M, deadline: 60d, earliest: 2d}\n",
    "t.csv": "timestamp,input_tokens,output_tokens\n"
    + "".join(f"{i * 0.5},{200 + 37 * (i % 50)},{20 + 13 * (i % 20)}\n" for i in range(400)),
    "q.yaml": "quotas:\n  - {accelerator: L4, region: us-east-1, maximum: 2}\n",
    "c.yaml": "running:\n"
    "  - {provider: aws, instance_type: p5.48xlarge, region: us-east-1, count: 1, usd_per_hour: 55.04}\n",
    "m.csv": "accelerator,model,precision,requests_per_s,tpot_ms,ttft_ms,input_tokens,output_tokens\n"
    "L4,8B,fp8,1.5,60,400,1000,300\n",
    "quotes.csv": "vendor,gpu,price,price_unit,currency,term_months\nAcme,H100 SXM,1900,gpu_month,USD,12\n",
    "costs.yaml": "storage_gb: 500\nsellers:\n  default: {storage_usd_per_gb_month: 0.08, egress_usd_per_gb: 0.09}\n",
}
SERVING: tuple[dict[str, Any], ...] = (
    {"model": "70B", "budget": "5000"},
    {"model": "70B", "rate": 5, "budget": "20000", "task": "infer"},
    {"model": "8B", "rate": 2.5, "provider": ["aws", "gcp"], "region": ["us-east-1", "us-central1"], "gpu": ["L4"]},
    {"model": "8B", "rate": 40, "purchase": ["spot", "on-demand"], "max_spot_share": 0.5, "spot_margin": 0.2},
    {"model": "8B", "rate": 40, "purchase": ["reserved-1y"], "horizon": "8m", "max_age": "12h"},
    {"model": "llama-3.1-8b", "rate": 3, "precision": ["fp8", "int4"], "kv_precision": "fp8", "context": 8192},
    {"model": "8B", "rate": 3, "engine": "sglang", "gpu_memory_utilization": 0.85, "prefix_cache_hit": 0.3},
    {"model": "8B", "rate": 3, "confidence": 0.9, "measured": "m.csv", "gpu": "L4"},
    {"model": "8B", "rate": 30, "min_providers": 2, "max_provider_share": 0.7, "spare_replicas": 1, "gpu": ["L4"]},
    {"model": "8B", "rate": 30, "quota": "q.yaml", "gpu": ["L4"], "provider": ["aws"], "region": ["us-east-1"]},
    {"model": "8B", "rate": 9, "current": "c.yaml", "same_region": True, "max_utilization": 0.6},
    {"model": "8B", "trace": "t.csv", "trace_rate": "mean", "trace_shapes": 4, "provider": ["aws"]},
    {"model": "8B", "trace": "t.csv.gz", "rate": 7.5, "provider": ["aws"]},
    {"workload": "w.yaml", "provider": ["aws"], "gap": 0.02, "boot_minutes": 5, "min_hours_up": 2},
    {"workload": "w.yaml", "budget": "700", "max_nodes": 50},
    {"model": "8B", "rate": 5, "as_of": "2026-08-31", "offline": True, "include": ["community", "arm64"]},
    {"model": "8B", "rate": 5, "explain": True, "show_all": True, "provider": ["runpod"]},
    {"model": "8B", "rate": 5, "solver": "cbc", "provider": ["gcp"], "ttft_ms": 800, "tpot_ms": 30.5},
    {"model": "405B", "rate": 1000, "gpu": ["T4"]},
    {"model": "70B", "rate": 50, "max_gpus": 2, "input_tokens": 2000, "output_tokens": 500},
)
TRAINING: tuple[dict[str, Any], ...] = (
    {"model": "7B", "task": "qlora", "tokens": "100M", "deadline": "2d", "lora_rank": 64, "lora_experts": True},
    {"model": "8B", "task": "lora", "tokens": "1B", "deadline": "2026-12-20", "offload": ["activations"]},
    {"model": "8B", "task": "finetune", "tokens": "2B", "deadline": "10d", "optimizer": "adamw-8bit", "zero_stage": 3},
    {"model": "1.5B", "task": "train", "tokens": "20B", "budget": "9000", "master_weights": False, "explain": True},
    {"model": "7B", "task": "train", "tokens": "1T", "deadline": "1h", "max_gpus": 8, "recompute": "full"},
    {
        "model": "8B",
        "task": "lora",
        "tokens": "1B",
        "seq_len": 4096,
        "global_batch_tokens": "128k",
        "stack": "hf",
        "micro_batch": 2,
    },
    {"model": "8B", "task": "lora", "tokens": "1B", "purchase": ["spot"], "confidence": 0.8, "precision": ["bf16"]},
    {"workload": "jobs.yaml", "provider": ["aws"], "max_gpus": 16},
)
SIZES: tuple[dict[str, Any], ...] = (
    {"model": "8B", "gpu": "L4"},
    {"model": "70B", "gpu": "H100", "count": 4, "precision": "bf16", "context": 32000, "concurrency": 8},
    {"model": "8x7B", "gpu": "A100-80GB", "count": 4, "tp": 2, "pp": 2, "kv_precision": "fp8", "engine": "sglang"},
    {"model": "8B", "gpu": "L4", "gpu_memory_utilization": 0.8, "prefix_cache_hit": 0.5, "ttft_ms": 300},
    {"model": "70B", "gpu": "T4"},
    {"model": "7B", "gpu": "A10G", "task": "qlora", "seq_len": 512, "lora_rank": 8, "lora_experts": False},
    {"model": "70B", "gpu": "H100", "count": 16, "task": "finetune", "tokens": "1B", "deadline": "5d"},
    {"model": "8B", "gpu": "L4", "input_tokens": 4000, "output_tokens": 50, "tpot_ms": 40},
    {"model": "8B", "gpu": "H100", "count": 8, "task": "train", "stack": "fsdp", "micro_batch": 2, "zero_stage": 2},
    {"model": "8B", "gpu": "H100", "count": 8, "task": "train", "recompute": "full", "global_batch_tokens": "1M"},
    {"model": "8B", "gpu": "H100", "task": "finetune", "optimizer": "adamw-8bit", "master_weights": False},
    {"model": "70B", "gpu": "L4", "count": 2, "task": "train", "offload": ["optimizer"], "host_memory": 64},
)
COMPARISONS: tuple[dict[str, Any], ...] = (
    {"gpu": ["H100-SXM5-80GB"], "count": 16, "quotes": "quotes.csv", "costs": "costs.yaml"},
    {"gpu": ["L4"], "count": 4, "hours": 100, "provider": ["aws", "gcp"], "purchase": ["on-demand"]},
    {"model": "8B", "rate": 5, "provider": ["aws"], "precision": ["fp8"], "context": 4096, "max_age": "2w"},
    {"model": "8B", "rate": 5, "input_tokens": 500, "output_tokens": 100, "ttft_ms": 900, "tpot_ms": 50},
    {"gpu": ["L4"], "count": 4, "region": ["us-east-1"], "include": ["arm64"], "as_of": "2026-08-31", "offline": True},
    {"gpu": ["L4"], "count": 4, "provider": ["lambda"]},
)
OFFERS: tuple[dict[str, Any], ...] = (
    {"gpu": ["L4"], "provider": ["aws", "gcp"], "purchase": ["spot"], "sort": "gpu-price"},
    {"instance_type": ["p5.48xlarge"], "region": ["us-east-1"], "max_price": "100", "as_of": "2026-08-31"},
    {"min_memory": 80, "count": 8, "link": ["nvlink"], "arch": "x86", "sort": "name", "max_age": "2w", "offline": True},
)
FLAGS = {"show_all": "all"}


@pytest.fixture(autouse=True)
def files(clean_environment: Path) -> None:
    for name, text in FILES.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("t.csv.gz").write_bytes(gzip.compress(FILES["t.csv"].encode()))


def words(arguments: Mapping[str, Any]) -> Iterator[object]:
    """The flags that say the same."""
    for name, value in arguments.items():
        flag = FLAGS.get(name, name).replace("_", "-")
        if isinstance(value, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
            continue
        for one in value if isinstance(value, list) else [value]:
            yield from (f"--{flag}", one)


def names(arguments: Mapping[str, Any]) -> str:
    return "-".join(f"{name}={value}" for name, value in arguments.items() if not isinstance(value, list))


@pytest.mark.parametrize("arguments", (*SERVING, *TRAINING), ids=names)
def test_a_plan(costopt: Command, arguments: dict[str, Any]) -> None:
    printed = costopt("plan", *words(arguments), "--format", "json")
    assert printed.code in (0, 3), printed.err
    made = optimizer.plan(**arguments)
    assert made.to_json() == printed.out
    assert made.feasible == (printed.code == 0)


@pytest.mark.parametrize("arguments", SIZES, ids=names)
def test_a_sizing(costopt: Command, arguments: dict[str, Any]) -> None:
    printed = costopt("size", *words(arguments), "--format", "json")
    assert printed.code == 0, printed.err
    assert optimizer.size(**arguments).to_json() == printed.out


@pytest.mark.parametrize("arguments", COMPARISONS, ids=names)
def test_a_comparison(costopt: Command, arguments: dict[str, Any]) -> None:
    printed = costopt("compare", *words(arguments), "--format", "json")
    assert printed.code in (0, 3), printed.err
    assert optimizer.compare(**arguments).to_json() == printed.out


@pytest.mark.parametrize("arguments", OFFERS, ids=names)
def test_a_listing(costopt: Command, arguments: dict[str, Any]) -> None:
    printed = costopt("offers", *words(arguments), "--format", "json")
    assert printed.code == 0, printed.err
    assert optimizer.offers(**arguments).to_json() == printed.out


def test_every_argument_of_every_function_is_compared() -> None:
    for function, cases in (
        (optimizer.plan, (*SERVING, *TRAINING)),
        (optimizer.size, SIZES),
        (optimizer.compare, COMPARISONS),
        (optimizer.offers, OFFERS),
    ):
        compared = {name for case in cases for name in case}
        assert set(signature(function).parameters) <= compared, function
