"""Files that cannot work: each fault with its line and what would be right, in every form of file that can have it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import Command

LLAMA: Final = "meta-llama/Llama-3.1-8B"


def skypilot(gpu: str, run: str, *, head: str = "", extra: str = "") -> str:
    return f"{head}resources:\n  accelerators: {gpu}\n{extra}run: |\n  {run}\n"


def dstack(gpu: str, run: str, *, extra: str = "") -> str:
    return f"type: service\nresources:\n  gpu: {gpu}\n{extra}commands:\n  - {run}\nport: 8000\n"


def kubernetes(count: int, arguments: str, labels: Mapping[str, str], *, kind: str = "Deployment") -> str:
    selector = "".join(f"        {key}: {value}\n" for key, value in labels.items())
    words = "".join(f"        - {word!r}\n" for word in arguments.split())
    return (
        f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: llm}}\nspec:\n  template:\n    spec:\n"
        f"      nodeSelector:\n{selector}      containers:\n      - image: vllm/vllm-openai:latest\n        args:\n"
        f"{words}        resources: {{limits: {{nvidia.com/gpu: {count}}}}}\n"
    )


P5: Final = {"node.kubernetes.io/instance-type": "p5.48xlarge", "topology.kubernetes.io/region": "us-east-1"}
BF16: Final = "vllm serve deepseek-ai/DeepSeek-V3 --dtype bfloat16 -tp 8 -pp 2"

CASES: Final[Mapping[str, tuple[str, int, str, str]]] = {
    "weights, SkyPilot": (skypilot("H100:8", BF16, head="num_nodes: 2\n"), 3, "weights 1,250 GiB alone", "or"),
    "weights, dstack": (
        dstack("A100:80GB:8", "vllm serve meta-llama/Llama-3.1-405B -tp 8"),
        3,
        "does not fit on 8 x A100",
        "from 16",
    ),
    "weights, Kubernetes": (
        kubernetes(8, "--model meta-llama/Llama-3.1-405B --tensor-parallel-size 8", P5),
        8,
        "does not fit on 8 x H100-SXM5-80GB",
        "from 16",
    ),
    "heads, SkyPilot": (skypilot("H100:6", f"vllm serve {LLAMA} -tp 6"), 4, "do not divide by 6", "1, 2, 4, 8"),
    "heads, dstack": (dstack("H100:6", f"vllm serve {LLAMA} -tp 6"), 5, "do not divide by 6", "1, 2, 4, 8"),
    "heads, Kubernetes": (
        kubernetes(6, f"--model {LLAMA} --tensor-parallel-size=6", P5),
        15,
        "do not divide by 6",
        "1, 2, 4, 8",
    ),
    "heads, command": (f"vllm serve {LLAMA} \\\n  -tp 6\n", 2, "do not divide by 6", "1, 2, 4, 8"),
    "TP x PP, SkyPilot": (
        skypilot("H100:8", f"vllm serve {LLAMA} -tp 8 -pp 2"),
        4,
        "TP 8 x PP 2 takes 16",
        "ask for 16",
    ),
    "TP x PP, dstack": (dstack("H100:8", f"vllm serve {LLAMA} -tp 8 -pp 2"), 5, "TP 8 x PP 2 takes 16", "ask for 16"),
    "TP x PP, Kubernetes": (
        kubernetes(8, f"--model {LLAMA} -tp 8 -pp 2", P5),
        16,
        "TP 8 x PP 2 takes 16",
        "ask for 16",
    ),
    "region, SkyPilot": (
        skypilot("H100:8", f"vllm serve {LLAMA} -tp 8", extra="  infra: aws/eu-west-3\n"),
        2,
        "H100 is not sold in aws/eu-west-3",
        "aws eu-",
    ),
    "region, dstack": (
        dstack("H100:8", f"vllm serve {LLAMA} -tp 8", extra="backends: [aws]\nregions: [eu-west-3]\n"),
        3,
        "H100 is not sold in aws/eu-west-3",
        "aws eu-",
    ),
    "region, Kubernetes": (
        kubernetes(8, f"--model {LLAMA} -tp 8", P5 | {"topology.kubernetes.io/region": "eu-west-3"}),
        8,
        "is not sold in eu-west-3",
        "aws eu-",
    ),
    "provider, SkyPilot": (
        skypilot("MI300X:8", f"vllm serve {LLAMA} -tp 8", extra="  infra: gcp\n"),
        2,
        "MI300X is not sold in gcp",
        "azure",
    ),
    "no such accelerator, SkyPilot": (skypilot("H1000:8", "echo"), 2, "no accelerator 'H1000'", "H100"),
    "no such accelerator, dstack": (dstack("H1000:8", "echo"), 3, "no accelerator 'H1000'", "H100"),
    "no such accelerator, Kubernetes": (
        kubernetes(8, f"--model {LLAMA}", {"nvidia.com/gpu.product": "NVIDIA-H1000"}),
        14,
        "no accelerator",
        "H100",
    ),
    "context, SkyPilot": (
        skypilot("H100", f"vllm serve {LLAMA} --max-model-len 200000"),
        4,
        "more than the 131,072 positions",
        "at most 131072",
    ),
    "context, command": (
        f"vllm serve {LLAMA} \\\n  --max-model-len 200k\n",
        2,
        "more than the 131,072 positions",
        "at most 131072",
    ),
    "bf16 on a V100, SkyPilot": (
        skypilot("V100:1", f"vllm serve {LLAMA} --dtype bfloat16"),
        4,
        "does not compute bf16",
        "fp16",
    ),
    "bf16 on a T4, dstack": (
        dstack("T4:1", f"vllm serve {LLAMA} --dtype bfloat16"),
        5,
        "does not compute bf16",
        "fp16",
    ),
    "fp8 on a V100": (skypilot("V100:1", f"vllm serve {LLAMA} -q fp8"), 4, "no fp8 kernels", "newer accelerator"),
    "another machine, SkyPilot": (
        skypilot("H100:8", f"vllm serve {LLAMA} -tp 8", extra="  infra: aws\n  instance_type: p4d.24xlarge\n"),
        4,
        "p4d.24xlarge has 8 x A100-SXM4-40GB, not H100",
        "A100-SXM4-40GB",
    ),
    "no such machine, SkyPilot": (
        skypilot("H100:8", f"vllm serve {LLAMA} -tp 8", extra="  infra: aws\n  instance_type: p5.99xlarge\n"),
        4,
        "no instance type 'p5.99xlarge' of aws",
        "p5.48xlarge",
    ),
    "no such machine, Kubernetes": (
        kubernetes(8, f"--model {LLAMA} -tp 8", {"node.kubernetes.io/instance-type": "p5.99xlarge"}),
        8,
        "no instance type 'p5.99xlarge'",
        "p5.48xlarge",
    ),
    "spot, SkyPilot": (
        skypilot("H100:8", f"vllm serve {LLAMA} -tp 8", extra="  infra: lambda\n  use_spot: true\n"),
        4,
        "lambda sells no spot",
        "on demand",
    ),
    "spot, dstack": (
        dstack("H100:8", f"vllm serve {LLAMA} -tp 8", extra="backends: [lambda]\nspot_policy: spot\n"),
        5,
        "lambda sells no spot",
        "on demand",
    ),
    "more than a machine has, SkyPilot": (
        skypilot("H100:32", f"vllm serve {LLAMA} -tp 8 -dp 4", extra="  infra: aws\n"),
        2,
        "no instance has 32 x H100: the largest has 8",
        "4 machines",
    ),
    "more than a machine has, dstack": (
        dstack("H100:32", f"vllm serve {LLAMA} -tp 8 -dp 4", extra="backends: [aws]\n"),
        3,
        "no instance has 32 x H100: the largest has 8",
        "4 machines",
    ),
    "quantisation of a 16-bit checkpoint": (
        skypilot("A100-80GB", f"vllm serve {LLAMA} --quantization awq"),
        4,
        "is a bf16 checkpoint",
        "checkpoint in that format",
    ),
    "another quantisation than the checkpoint's": (
        skypilot("A100-80GB", "vllm serve hugging-quants/Meta-Llama-3.1-8B-Instruct-AWQ-INT4 --quantization gptq"),
        4,
        "is awq, the flag says gptq",
        "leave the flag out",
    ),
    "training: memory": (
        skypilot(
            "T4:1", "torchrun --nproc_per_node 1 sft.py --model_name_or_path Qwen/Qwen2.5-7B --learning_rate 1e-5"
        ),
        2,
        "does not fit on 1 x T4",
        "--task lora",
    ),
    "training: degrees": (
        skypilot(
            "H100:8",
            f"torchrun --nproc_per_node 8 pretrain_gpt.py --model {LLAMA} --tensor-model-parallel-size 8 "
            "--pipeline-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 64",
        ),
        4,
        "TP 8 x PP 2 = 16 does not divide the 8 accelerators",
        "divide 8",
    ),
    "training: batch": (
        skypilot(
            "H100:8",
            f"torchrun --nproc_per_node 8 pretrain_gpt.py --model {LLAMA} --micro-batch-size 3 --global-batch-size 64",
        ),
        4,
        "do not divide by micro-batch 3 x 8",
        "a multiple of 24",
    ),
    "training: processes": (
        dstack("H100:4", f"torchrun --nproc_per_node 8 sft.py --model_name_or_path {LLAMA} --lora_r 8"),
        5,
        "8 processes a machine on 4 x H100",
        "ask for 8",
    ),
    "training: precision": (
        skypilot("V100:8", f"torchrun --nproc_per_node 8 sft.py --model_name_or_path {LLAMA} --bf16 --lora_r 8"),
        4,
        "does not compute bf16",
        "fp16",
    ),
}


@pytest.mark.parametrize(("text", "line", "what", "fix"), CASES.values(), ids=CASES.keys())
def test_an_impossible_file_is_told_with_the_line_and_the_fix(
    costopt: Command, text: str, line: int, what: str, fix: str
) -> None:
    is_command = text.startswith("vllm")
    name = "file.sh" if is_command else "file.yaml"
    flags = ("--gpu", "H100", "--count", "8") if is_command else ()
    Path(name).write_text(text)
    outcome = costopt("import", name, *flags, "-f", "json")
    assert outcome.code == 3, outcome.err
    found = fatal(json.loads(outcome.out))
    assert any(fault["line"] == line and what in fault["fault"] and fix in fault["fix"] for fault in found), found


def fatal(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The faults that keep a file from working."""
    return [
        fault
        for service in document["services"]
        for fault in (*service["faults"], *(fault for option in service["options"] for fault in option["faults"]))
        if fault["fatal"]
    ]


def test_all_faults_of_a_file_come_in_one_run_in_the_order_of_their_lines(costopt: Command) -> None:
    text = skypilot(
        "V100:3",
        "vllm serve meta-llama/Llama-3.1-70B --dtype bfloat16 -tp 3 --max-model-len 900000",
        extra="  infra: aws/eu-west-3\n",
    )
    Path("file.yaml").write_text(text)
    out = costopt("import", "file.yaml").out
    lines = [line for line in out.splitlines() if line.startswith("  - line ")]
    wanted = [
        "not sold in aws/eu-west-3",
        "weights of",
        "tensor parallelism over 3",
        "900,000",
        "does not compute bf16",
    ]
    assert all(any(words in line for line in lines) for words in wanted), out
    numbers = [int(line.split()[2].rstrip(":")) for line in lines]
    assert numbers == sorted(numbers)


def test_fp8_weights_on_an_a100_are_a_note_not_a_fault(costopt: Command) -> None:
    Path("file.yaml").write_text(skypilot("A100-80GB", f"vllm serve {LLAMA} --quantization fp8"))
    outcome = costopt("import", "file.yaml")
    assert outcome.code == 0
    assert "note: line 4: A100-SXM4-80GB has no fp8 arithmetic" in outcome.out
