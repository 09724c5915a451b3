"""Files as people write them for SkyPilot, dstack, Kubernetes, Slurm, Terraform and axolotl: what each asks for."""

import json
from typing import Any

import pytest
import yaml

from optimizer.interop.asks import Ask
from optimizer.interop.recognise import recognise


def asks(text: str) -> list[Ask]:
    return list(recognise(text, "file").asks)


def only(text: str) -> Ask:
    (ask,) = asks(text)
    return ask


def wishes(ask: Ask) -> list[tuple[str, int]]:
    return [(wish.named, wish.count) for wish in ask.wishes]


SERVICE = """\
envs:
  MODEL_NAME: meta-llama/Llama-3.1-70B-Instruct
secrets:
  HF_TOKEN: null
service:
  replica_policy: {min_replicas: 0, max_replicas: 3}
resources:
  accelerators: {L40S:8, A100-80GB:4, H100:2}
  cpus: 32+
  any_of:
    - use_spot: true
    - use_spot: false
num_nodes: 2
setup: pip install vllm
run: |
  conda activate serving
  TP=$(($SKYPILOT_NUM_GPUS_PER_NODE * $SKYPILOT_NUM_NODES))
  if [ "$SKYPILOT_NODE_RANK" == "0" ]; then
    python -u -m vllm.entrypoints.openai.api_server \\
      --model $MODEL_NAME \\
      --tensor-parallel-size $TP 2>&1 | tee server.log &
  fi
"""


def test_a_set_of_accelerators_with_counts_and_a_product_of_skypilots_variables() -> None:
    ask = only(SERVICE)
    assert wishes(ask) == [("L40S", 8), ("A100-80GB", 4), ("H100", 2)]
    assert {wish.line for wish in ask.wishes} == {8}
    assert (ask.model, ask.nodes, ask.replicas) == ("meta-llama/Llama-3.1-70B-Instruct", 2, 1)
    assert ask.tensor_parallel == 16
    assert ask.spot


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ("{gpus: 'H100:8'}", [("H100", 8)]),
        ("{accelerators: 'nvidia:141GB:8'}", [("H200-NVL-141GB", 8), ("H200-SXM5-141GB", 8)]),
        ("{ordered: [{accelerators: H100}, {accelerators: 'L4:4'}]}", [("H100", 1), ("L4", 4)]),
        ("{accelerators: 'A100:8', any_of: [{cloud: gcp}, {cloud: aws}]}", [("A100", 8)]),
        ("{infra: runpod, accelerators: H100}", [("H100", 1)]),
    ],
)
def test_every_way_to_ask_skypilot_for_machines(resources: str, expected: list[tuple[str, int]]) -> None:
    ask = only(f"resources: {resources}\nrun: vllm serve m\n")
    assert sorted(wishes(ask)) == sorted(expected)
    assert not ask.faults


def test_degrees_follow_the_accelerators_of_each_wish() -> None:
    ask = only(SERVICE)
    assert [ask.of(wish).tensor_parallel for wish in ask.wishes] == [16, 8, 4]
    same = only(SERVICE.replace("{L40S:8, A100-80GB:4, H100:2}", "{L40S:8, H100:8}"))
    assert [wish.degrees for wish in same.wishes] == [None, None]


def test_every_alternative_of_skypilot_has_its_own_place() -> None:
    text = (
        "resources:\n  any_of:\n"
        "    - infra: aws/us-east-1\n      accelerators: H100:8\n      use_spot: true\n"
        "    - cloud: gcp\n      region: us-central1\n      accelerators: H100:8\n"
        "    - {infra: lambda, accelerators: H100:8}\n"
        "run: vllm serve m\n"
    )
    ask = only(text)
    places = [(place.provider, place.region, place.spot) for wish in ask.wishes for place in wish.places]
    assert places == [("aws", "us-east-1", True), ("gcp", "us-central1", False), ("lambda", None, False)]
    assert [wish.places[0].lines.get("place") for wish in ask.wishes] == [3, 7, 9]
    assert (ask.provider, ask.region, ask.spot) == (None, None, True)


def test_more_alternatives_than_anybody_writes_are_cut_and_told() -> None:
    ask = only("resources:\n  any_of:\n" + "    - {infra: aws, accelerators: 'H100:8'}\n" * 101 + "run: vllm serve m\n")
    assert len(ask.wishes) == 100
    (fault,) = ask.faults
    assert (fault.line, fault.fatal) == (2, False)
    assert "101 alternatives: the first 100" in fault.what


def test_a_context_of_a_cluster_is_no_region() -> None:
    for infra in ("k8s/my-context", "kubernetes/prod", "ssh/pool"):
        ask = only(f"resources: {{infra: {infra}, accelerators: 'H100:8'}}\nrun: vllm serve m\n")
        assert (ask.provider, ask.region) == (infra.partition("/")[0], None)


def test_an_alternative_that_names_a_machine_alone_is_told() -> None:
    text = "resources:\n  any_of:\n    - {infra: aws, accelerators: 'L4:1'}\n"
    text += "    - {infra: aws, instance_type: g6e.xlarge}\n"
    ask = only(f"{text}run: vllm serve m\n")
    (fault,) = ask.faults
    assert (fault.line, fault.fatal, fault.what) == (4, False, "g6e.xlarge is not looked at")


def test_a_fleet_of_dstack_is_machines_without_a_model() -> None:
    ask = only("type: fleet\nname: pool\nnodes: 2\nbackends: [aws]\nresources: {gpu: 'H100:8'}\n")
    assert (ask.source, ask.model, ask.nodes, ask.provider) == ("dstack", None, 2, "aws")
    assert wishes(ask) == [("H100", 8)]


def test_one_line_of_accelerators_in_several_places_is_one_wish() -> None:
    (wish,) = only(
        "resources: {accelerators: 'A100:8', any_of: [{cloud: gcp}, {cloud: aws}]}\nrun: vllm serve m\n"
    ).wishes
    assert [place.provider for place in wish.places] == ["gcp", "aws"]


def test_dstack_is_narrowed_to_every_backend_and_region_that_it_lists() -> None:
    text = "type: service\ncommands: [vllm serve m]\nresources: {gpu: H100}\nspot_policy: spot\n"
    (wish,) = only(f"{text}backends: [aws, GCP]\nregions: [us-east-1]\n").wishes
    assert [(place.provider, place.region) for place in wish.places] == [("aws", "us-east-1"), ("gcp", "us-east-1")]
    assert all(place.spot for place in wish.places)
    ask = only(f"{text}backends: [aws]\n")
    assert (ask.provider, ask.wishes[0].places) == ("aws", ())


def test_a_size_and_more_is_every_card_that_has_it() -> None:
    found = {wish.accelerator.name for wish in only("resources: {accelerators: '80GB+:2'}\nrun: vllm serve m\n").wishes}
    assert {"H100-SXM5-80GB", "H200-SXM5-141GB", "B200"} <= found
    assert not found & {"L40S", "MI300X"}


@pytest.mark.parametrize(
    ("resources", "place"),
    [
        ("{infra: aws/us-east-1/us-east-1a, accelerators: H100:8}", ("aws", "us-east-1")),
        ("{cloud: gcp, region: us-central1, accelerators: H100:8}", ("gcp", "us-central1")),
        ("{infra: '*/us-east-1', accelerators: H100:8}", (None, "us-east-1")),
        ("{accelerators: H100:8, any_of: [{infra: aws}, {infra: gcp}]}", (None, None)),
        ("{accelerators: H100:8, any_of: [{infra: aws/us-east-1}, {infra: aws/us-west-2}]}", ("aws", None)),
    ],
)
def test_places_of_skypilot(resources: str, place: tuple[str | None, str | None]) -> None:
    ask = only(f"resources: {resources}\nrun: vllm serve m\n")
    assert (ask.provider, ask.region) == place


def test_names_of_skypilot_mean_what_the_cloud_has() -> None:
    for cloud, name in (("runpod", "H100-PCIe-80GB"), ("aws", "H100-SXM5-80GB")):
        (wish,) = only(f"resources: {{infra: {cloud}, accelerators: H100}}\nrun: vllm serve m\n").wishes
        assert wish.accelerator.name == name


FINE_TUNING = """\
envs:
  SIZE: 8B
resources:
  accelerators: A100-80GB:8
  use_spot: true
num_nodes: 4
setup: |
  tune download meta-llama/Llama-3.1-${SIZE}-Instruct --output-dir /tmp/model
run: |
  MASTER_ADDR=$(echo "$SKYPILOT_NODE_IPS" | head -n1)
  NP=$(($SKYPILOT_NUM_GPUS_PER_NODE * $SKYPILOT_NUM_NODES))
  accelerate launch --num_machines $SKYPILOT_NUM_NODES --num_processes $NP \\
    --main_process_ip $MASTER_ADDR train_sft.py --per_device_train_batch_size 2
"""


def test_a_training_task_of_skypilot_has_its_machines_ranks_and_the_model_that_it_downloads() -> None:
    ask = only(FINE_TUNING)
    assert ask.training is not None
    assert (ask.model, ask.nodes, ask.accelerators_per_machine) == ("meta-llama/Llama-3.1-8B-Instruct", 4, 8)
    assert ask.training.micro_batch == 2


@pytest.mark.parametrize(
    ("gpu", "names", "count"),
    [
        ("80GB:8", {"H100-SXM5-80GB", "A100-SXM4-80GB"}, 8),
        ("{name: [A100, H100], count: 2..8, memory: 40GB..}", {"A100-SXM4-80GB", "H100-SXM5-80GB"}, 2),
        ("{name: 'A100,H100', memory: {min: 80GB}, count: {min: 4, max: 8}}", {"A100-SXM4-80GB"}, 4),
        ("amd:MI300X:8", {"MI300X"}, 8),
        ("nvidia:24GB..48GB:1..2", {"L4", "L40S", "A10G"}, 1),
    ],
)
def test_every_way_to_ask_dstack_for_gpus(gpu: str, names: set[str], count: int) -> None:
    ask = only(f"type: task\nresources:\n  gpu: {gpu}\ncommands: [vllm serve m]\n")
    assert names <= {variant.name for wish in ask.wishes for variant in (wish.accelerator, *wish.variants)}
    assert {wish.count for wish in ask.wishes} == {count}
    assert not ask.faults


def test_a_count_alone_leaves_the_gpu_open_in_dstack() -> None:
    ask = only("type: task\nname: any\nresources:\n  gpu: 1..8\ncommands: [vllm serve m]\n")
    assert not ask.wishes
    assert (ask.faults[0].line, "H100:8" in ask.faults[0].fix) == (4, True)


DISTRIBUTED = """\
type: task
name: tune
nodes: 2
env:
  - HF_TOKEN
  - MODEL_ID=meta-llama/Llama-3.1-8B
commands:
  - pip install trl
  - |
    accelerate launch \\
      --config_file=fsdp.yaml \\
      --num_processes=$DSTACK_GPUS_NUM \\
      --num_machines=$DSTACK_NODES_NUM \\
      sft.py \\
      --model_name_or_path $MODEL_ID \\
      --per_device_train_batch_size 1 \\
      --gradient_accumulation_steps 4 \\
      --max_seq_length 1024 --bf16
resources:
  gpu: 80GB:8
"""


def test_a_distributed_task_of_dstack_counts_the_gpus_of_all_nodes() -> None:
    ask = only(DISTRIBUTED)
    assert ask.training is not None
    assert (ask.model, ask.nodes, ask.accelerators_per_machine) == ("meta-llama/Llama-3.1-8B", 2, 8)
    assert (ask.training.seq_len, ask.training.gradient_accumulation, ask.training.precision) == (1024, 4, "bf16")


def test_a_service_of_dstack_fills_in_its_variables_line_by_line() -> None:
    text = "type: service\nenv:\n  - MODEL=m/m\n  - LENGTH=8192\ncommands:\n  - pip install vllm\n"
    text += "  - vllm serve $MODEL\n    --max-model-len $LENGTH\n    --tensor-parallel-size $DSTACK_GPUS_NUM\n"
    text += "port: 8000\nresources:\n  gpu: 24GB:2\n"
    ask = only(text)
    assert (ask.model, ask.context_tokens, ask.tensor_parallel) == ("m/m", 8192, 2)
    assert ask.lines["tensor_parallel"] in (7, 9)


def test_groups_of_replicas_of_dstack_are_an_ask_each() -> None:
    text = "type: service\nname: split\nport: 8000\nreplicas:\n"
    text += (
        "  - name: prefill\n    replicas: 1..4\n    commands: [vllm serve m -tp 4]\n    resources: {gpu: 'H200:4'}\n"
    )
    text += "  - name: decode\n    replicas: 2\n    commands: [vllm serve m -tp 8]\n    resources: {gpu: 'H100:8'}\n"
    first, second = asks(text)
    assert [(ask.name, ask.replicas, ask.tensor_parallel) for ask in (first, second)] == [
        ("prefill", 1, 4),
        ("decode", 2, 8),
    ]
    assert (wishes(second), second.wishes[0].line) == ([("H100", 8)], 12)


CONTAINER: dict[str, Any] = {
    "image": "pytorch",
    "command": ["torchrun", "--nproc_per_node", "8", "train.py", "--model_name_or_path", "m/m", "--max_steps", "10"],
    "resources": {"limits": {"nvidia.com/gpu": 8}},
}


def manifest(kind: str, spec: dict[str, Any]) -> str:
    content = {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "job"}, "spec": spec}
    return str(yaml.safe_dump(json.loads(json.dumps(content))))


def pods(**over: Any) -> dict[str, Any]:
    selector = {"cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb"}
    return {"spec": {"nodeSelector": selector, "containers": [dict(CONTAINER)]} | over}


@pytest.mark.parametrize(
    ("kind", "spec", "nodes"),
    [
        ("Job", {"template": pods()}, 1),
        ("Job", {"completionMode": "Indexed", "completions": 4, "parallelism": 4, "template": pods()}, 4),
        ("CronJob", {"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": pods()}}}, 1),
        (
            "PyTorchJob",
            {"pytorchReplicaSpecs": {"Master": {"template": pods()}, "Worker": {"replicas": 3, "template": pods()}}},
            4,
        ),
        (
            "MPIJob",
            {"mpiReplicaSpecs": {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2, "template": pods()}}},
            2,
        ),
        (
            "JobSet",
            {
                "replicatedJobs": [
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": pods()}}}
                ]
            },
            4,
        ),
    ],
)
def test_kinds_of_kubernetes_that_train(kind: str, spec: dict[str, Any], nodes: int) -> None:
    ask = only(manifest(kind, spec))
    assert ask.training is not None
    assert (ask.nodes, ask.model, ask.training.steps) == (nodes, "m/m", 10)
    (wish,) = ask.wishes
    assert (wish.accelerator.name, wish.count) == ("H100-SXM5-80GB", 8)


def test_a_trainjob_of_kubeflow_has_its_nodes_and_resources() -> None:
    trainer = {"numNodes": 4, "resourcesPerNode": CONTAINER["resources"], "command": CONTAINER["command"]}
    ask = only(manifest("TrainJob", {"runtimeRef": {"name": "torch-distributed"}, "trainer": trainer}))
    assert ask.training is not None
    assert (ask.nodes, ask.accelerators_per_machine, ask.model) == (4, 8, "m/m")


def test_a_required_affinity_says_where_as_a_selector_does() -> None:
    term = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["p5.48xlarge"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert only(manifest("Job", {"template": pods(nodeSelector={}, affinity=affinity)})).instance_type == "p5.48xlarge"


@pytest.mark.parametrize(
    ("options", "nodes", "count", "named"),
    [
        ("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=h100:8", 4, 8, ["h100"]),
        ("#SBATCH -N 2\n#SBATCH --gres=gpu:a100:4", 2, 4, ["a100"]),
        ("#SBATCH --nodes 2\n#SBATCH --gres=gpu:8", 2, 8, []),
        ("#SBATCH --nodes=2\n#SBATCH --gpus=16", 2, 8, []),
        ("#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=4\n#SBATCH --gpus-per-task=1", 1, 4, []),
    ],
)
def test_every_way_to_ask_slurm_for_gpus(options: str, nodes: int, count: int, named: list[str]) -> None:
    command = f"srun torchrun --nproc_per_node {count} train.py --model_name_or_path m --max_steps 9"
    text = f"#!/bin/bash\n{options}\n{command}\n"
    ask = only(text)
    assert (ask.nodes, ask.accelerators_per_machine) == (nodes, count)
    assert [wish.named for wish in ask.wishes] == named
    assert {wish.count for wish in ask.wishes} <= {count}


TERRAFORM = """\
provider "aws" {
  region = var.region
}

variable "region" {
  type    = string
  default = "us-west-2"
}

# resource "aws_instance" "old" { instance_type = "p4d.24xlarge" }
resource "aws_instance" "gpu" {
  count         = 2
  ami           = data.aws_ami.dl.id
  instance_type = "p5.48xlarge"

  instance_market_options {
    market_type = "spot"
  }
}

resource "google_compute_instance" "serve" {
  name         = "serve-${var.region}"
  machine_type = "a2-ultragpu-1g"
  zone         = "us-central1-a"
  scheduling { provisioning_model = "SPOT" }
}

resource "azurerm_linux_virtual_machine" "one" {
  size     = "Standard_ND96isr_H100_v5"
  location = azurerm_resource_group.rg.location
}
"""


def test_machines_of_terraform_with_variables_and_nested_blocks() -> None:
    aws, google, azure = asks(TERRAFORM)
    assert (aws.provider, aws.region, aws.instance_type, aws.replicas, aws.spot) == (
        *("aws", "us-west-2", "p5.48xlarge", 2, True),
    )
    assert (google.provider, google.region, google.instance_type, google.spot) == (
        *("gcp", "us-central1", "a2-ultragpu-1g", True),
    )
    assert (azure.provider, azure.region, azure.instance_type) == ("azure", None, "Standard_ND96isr_H100_v5")
    assert aws.lines["replicas"] == 12


def test_a_configuration_of_axolotl_for_qlora_with_fsdp() -> None:
    text = "base_model: NousResearch/Llama-3.1-8B\nload_in_4bit: true\nadapter: qlora\nlora_r: 32\nsequence_len: 4096\n"
    text += "sample_packing: true\nmicro_batch_size: 1\ngradient_accumulation_steps: 4\nnum_epochs: 3\n"
    text += "optimizer: adamw_torch_fused\nbf16: auto\ngradient_checkpointing: true\n"
    text += "fsdp_version: 2\nfsdp_config:\n  offload_params: true\n  reshard_after_forward: true\n"
    ask = only(text)
    training = ask.training
    assert training is not None
    assert (training.task, training.lora_rank, training.seq_len, training.epochs) == ("qlora", 32, 4096, 3)
    assert (training.zero_stage, training.offload, training.recompute) == (3, {"params", "optimizer"}, "full")
    assert ask.lines["lora_rank"] == 4


@pytest.mark.parametrize(
    ("name", "accelerator", "chips"),
    [
        ("tpu-v6e-8", "TPU v6e (Trillium)", 8),
        ("tpu-v5litepod-16", "TPU v5e", 16),
        ("tpu-v5p-8", "TPU v5p", 4),
        ("tpu-v4-8", "TPU v4", 4),
    ],
)
def test_slices_of_tpu_pods_have_chips(name: str, accelerator: str, chips: int) -> None:
    for text in (
        f"resources: {{accelerators: {name}}}\nrun: vllm serve m\n",
        f"type: task\nresources: {{gpu: {name.removeprefix('tpu-')}}}\ncommands: [vllm serve m]\n",
    ):
        (wish,) = only(text).wishes
        assert (wish.accelerator.name, wish.count) == (accelerator, chips)


@pytest.mark.parametrize(
    "head",
    [
        "type: task\nenv: {MODEL: meta-llama/Llama-3.1-8B}\nresources: {gpu: H100:2}\ncommands:\n",
        "type: task\nenv: [MODEL=meta-llama/Llama-3.1-8B]\nresources: {gpu: H100:2}\ncommands:\n",
    ],
)
def test_variables_of_a_training_task_are_filled_in_however_they_are_written(head: str) -> None:
    train = "torchrun --nproc-per-node $DSTACK_GPUS_PER_NODE train.py --model_name_or_path $MODEL --bf16 True"
    ask = only(f"{head}  - {train} --per_device_train_batch_size 2\n")
    assert ask.model == "meta-llama/Llama-3.1-8B"
    assert ask.training is not None
    assert (ask.training.micro_batch, ask.accelerators_per_machine) == (2, 2)


def test_a_secret_names_the_model_of_a_training_task() -> None:
    train = "torchrun --nproc-per-node $SKYPILOT_NUM_GPUS_PER_NODE train.py --model_name_or_path $MODEL --bf16 True"
    ask = only(f"secrets: {{MODEL: meta-llama/Llama-3.1-8B}}\nresources: {{accelerators: H100:2}}\nrun: {train}\n")
    assert (ask.model, ask.accelerators_per_machine) == ("meta-llama/Llama-3.1-8B", 2)
