"""Manifests and scripts in forms that clusters have: references, lists, labels of devices, arrays, shells in shells."""

import pytest

from optimizer.interop.recognise import recognise
from tests.optimizer.interop.test_orchestrator_forms import asks, only, wishes

DEPLOYMENT = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: server}}
spec:
  template:
    spec:
      nodeSelector: {{{labels}}}
      containers:
      - name: server
        image: vllm/vllm-openai:latest
        args: [--model, Qwen/Qwen2.5-7B-Instruct]
        resources: {{limits: {{{resource}: 1}}}}
"""


def test_references_to_a_containers_variables_are_filled_in_as_kubernetes_does() -> None:
    text = DEPLOYMENT.format(labels="cloud.google.com/gke-accelerator: nvidia-l4", resource="nvidia.com/gpu")
    text = text.replace(
        "args: [--model, Qwen/Qwen2.5-7B-Instruct]",
        'args: ["--model=$(MODEL_ID)", "--tensor-parallel-size=$(TP)", "--max-model-len=$(UNKNOWN)", "$$(NOT_ONE)"]\n'
        '        env: [{name: MODEL_ID, value: google/gemma-2-27b-it}, {name: TP, value: "2"}]',
    )
    ask = only(text)
    assert ask.model == "google/gemma-2-27b-it"
    assert ask.tensor_parallel == 2
    assert ask.context_tokens is None


def test_references_cannot_fill_the_memory() -> None:
    text = DEPLOYMENT.format(labels="cloud.google.com/gke-accelerator: nvidia-l4", resource="nvidia.com/gpu")
    bomb = f"args: [--model, '{'$(A)' * 100_000}']\n        env: [{{name: A, value: {'a' * 100_000}}}]"
    model = only(text.replace("args: [--model, Qwen/Qwen2.5-7B-Instruct]", bomb)).model
    assert model == "$(A)" * 100_000


def test_a_command_takes_the_place_of_what_the_image_starts() -> None:
    text = DEPLOYMENT.format(labels="nvidia.com/gpu.product: NVIDIA-L4", resource="nvidia.com/gpu")
    ask = only(text.replace("args: [--model, Qwen/Qwen2.5-7B-Instruct]", "command: [bash, /run.sh]"))
    assert (ask.model, ask.engine) == (None, None)
    launcher = "command: [text-generation-launcher]\n        args: [--model-id, a/b, --num-shard, '2']"
    ask = only(text.replace("args: [--model, Qwen/Qwen2.5-7B-Instruct]", launcher))
    assert (ask.model, ask.tensor_parallel, ask.engine) == ("a/b", 2, "tgi")


@pytest.mark.parametrize(
    ("zone", "region"),
    [("us-east-1a", "us-east-1"), ("us-central1-c", "us-central1"), ("eastus2-3", "eastus2"), ("rack7", "rack7")],
)
def test_a_zone_is_in_its_region(zone: str, region: str) -> None:
    labels = f"nvidia.com/gpu.product: NVIDIA-L4, topology.kubernetes.io/zone: {zone}"
    assert only(DEPLOYMENT.format(labels=labels, resource="nvidia.com/gpu")).region == region


def test_scripts_in_a_container_read_its_variables() -> None:
    text = DEPLOYMENT.format(labels="cloud.google.com/gke-accelerator: nvidia-l4", resource="nvidia.com/gpu")
    text = text.replace(
        "args: [--model, Qwen/Qwen2.5-7B-Instruct]",
        "command: [bash, -c, 'vllm serve $MODEL -tp ${TP}']\n"
        "        env: [{name: MODEL, value: google/gemma-2-27b-it}, {name: TP, value: '2'}]",
    )
    assert (only(text).model, only(text).tensor_parallel) == ("google/gemma-2-27b-it", 2)


@pytest.mark.parametrize(
    ("labels", "resource", "accelerator"),
    [
        ("amd.com/gpu.product-name: AMD_Instinct_MI300X_OAM", "amd.com/gpu", "MI300X"),
        ("cloud.google.com/gke-tpu-accelerator: tpu-v5-lite-podslice", "google.com/tpu", "TPU v5e"),
        ("cloud.google.com/gke-tpu-accelerator: tpu-v6e-slice", "google.com/tpu", "TPU v6e (Trillium)"),
        ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu", "H100-SXM5-80GB"),
        ("nvidia.com/gpu.product: NVIDIA-A10-SHARED", "nvidia.com/gpu", "A10"),
        ("k8s.amazonaws.com/accelerator: nvidia-l4", "nvidia.com/gpu", "L4"),
        ("gpu.nvidia.com/class: H100_NVLINK_80GB", "nvidia.com/gpu", "H100-SXM5-80GB"),
    ],
)
def test_labels_that_name_the_accelerator(labels: str, resource: str, accelerator: str) -> None:
    (wish,) = only(DEPLOYMENT.format(labels=labels, resource=resource)).wishes
    assert wish.accelerator.name == accelerator
    assert not wish.variants[1:]


def test_an_affinity_with_several_accelerators_wishes_for_each() -> None:
    text = DEPLOYMENT.format(labels="", resource="nvidia.com/gpu")
    affinity = "{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-L4, NVIDIA-L40S]}"
    text = text.replace(
        "      nodeSelector: {}",
        "      affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
        f"[{{matchExpressions: [{affinity}]}}]}}}}}}",
    )
    assert [wish.accelerator.name for wish in only(text).wishes] == ["L4", "L40S"]
    types = text.replace("nvidia.com/gpu.product", "node.kubernetes.io/instance-type")
    ask = only(types.replace("[NVIDIA-L4, NVIDIA-L40S]", "[g6.xlarge, g6e.xlarge]"))
    assert ask.instance_type == "g6.xlarge"
    (fault,) = ask.faults
    assert not fault.fatal
    assert "any of g6.xlarge, g6e.xlarge would do" in fault.what


def test_slices_of_a_card_are_told_and_not_taken_for_cards() -> None:
    ask = only(DEPLOYMENT.format(labels="", resource="nvidia.com/mig-1g.10gb"))
    assert not ask.wishes
    (fault,) = ask.faults
    assert fault.line == 12
    assert "mig-1g.10gb is a slice" in fault.what


def test_a_list_of_manifests_is_read_with_the_lines_of_each() -> None:
    one = DEPLOYMENT.format(labels="nvidia.com/gpu.product: NVIDIA-L4", resource="nvidia.com/gpu")
    items = "".join("- " + "  ".join(one.splitlines(keepends=True)) for _ in range(2))
    first, second = asks(f"apiVersion: v1\nkind: List\nitems:\n- {{apiVersion: v1, kind: Service}}\n{items}")
    assert wishes(first) == wishes(second) == [("NVIDIA-L4", 1)]
    assert (first.lines["model"], second.lines["model"]) == (15, 27)


@pytest.mark.parametrize("image", ["ghcr.io/huggingface/text-generation-inference:3", "x/text-generation-inference"])
def test_text_generation_inference_takes_options_and_variables(image: str) -> None:
    text = DEPLOYMENT.format(labels="nvidia.com/gpu.product: NVIDIA-L4", resource="nvidia.com/gpu")
    text = text.replace("vllm/vllm-openai:latest", image)
    given = only(text.replace("[--model, Qwen/Qwen2.5-7B-Instruct]", '["--model-id", a/b, --num-shard=2]'))
    assert (given.model, given.tensor_parallel, given.engine) == ("a/b", 2, "tgi")
    variables = "env: [{name: MODEL_ID, value: a/b}, {name: NUM_SHARD, value: '2'}, {name: MAX_TOTAL_TOKENS, value: 9}]"
    named = only(text.replace("args: [--model, Qwen/Qwen2.5-7B-Instruct]", variables))
    assert (named.model, named.tensor_parallel, named.engine, named.context_tokens) == ("a/b", 2, "tgi", 9)


def test_text_generation_inference_takes_variables_in_every_kind_of_container() -> None:
    image = "ghcr.io/huggingface/text-generation-inference:3"
    ask = only(f"docker run --gpus 2 -e MODEL_ID=a/b --env=NUM_SHARD=2 -e TOKEN {image} --max-total-tokens 9\n")
    assert (ask.model, ask.tensor_parallel, ask.context_tokens, ask.engine) == ("a/b", 2, 9, "tgi")
    head = f"services:\n  s:\n    image: {image}\n    gpus: [{{driver: nvidia, count: 2}}]\n"
    for given in ("{MODEL_ID: a/b, NUM_SHARD: 2}", "[MODEL_ID=a/b, NUM_SHARD=2, TOKEN]"):
        ask = only(f"{head}    environment: {given}\n")
        assert (ask.model, ask.tensor_parallel, ask.engine, ask.accelerators_per_machine) == ("a/b", 2, "tgi", 2)
        assert ask.lines["accelerators"] == 4


@pytest.mark.parametrize("shell", ["srun bash -c", "srun --label sh -lc", "ssh host bash -exc"])
def test_a_server_in_a_script_that_a_shell_is_handed(shell: str) -> None:
    ask = only(
        f"#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=h100:8\n{shell} 'vllm serve a/b -tp 8 -pp 2'\n"
    )
    assert (ask.model, ask.tensor_parallel, ask.pipeline_parallel) == ("a/b", 8, 2)
    assert ask.lines["tensor_parallel"] == 4


@pytest.mark.parametrize(
    ("constraint", "accelerator"),
    [("h100", "h100"), ('"a100&80gb"', "a100-80gb"), ("ib&l40s", "l40s"), ("v100|a100", None), ("avx512", None)],
)
def test_a_batch_script_reads_what_slurm_sets_and_features_that_name_accelerators(
    constraint: str, accelerator: str | None
) -> None:
    ask = only(
        f"#!/bin/bash\n#SBATCH -N 2\n#SBATCH --gres=gpu:8\n#SBATCH -C {constraint}\n"
        "vllm serve a/b -tp $SLURM_GPUS_ON_NODE -pp ${SLURM_NNODES}\n"
    )
    assert (ask.tensor_parallel, ask.pipeline_parallel, ask.nodes) == (8, 2, 2)
    assert [wish.named for wish in ask.wishes] == ([] if accelerator is None else [accelerator])
    assert not ask.faults


ARRAYS = """\
#!/bin/bash
declare -a LAUNCH=(--nproc_per_node 8 --nnodes 2)
OLD=(--seq-length 1)
SHAPE=(--log "$(date)"
  --seq-length 4096   # of the run (long)
  --save-dir "$(pwd)"
  --tokenizer-model a/b
)
SHAPE+=(--micro-batch-size 2 --global-batch-size 64)
torchrun ${LAUNCH[@]} pretrain_gpt.py "${SHAPE[@]}" --bf16 --tensor-model-parallel-size 8
"""


def test_arrays_of_a_script_are_spread_where_they_are_named() -> None:
    ask = only(ARRAYS)
    assert ask.training is not None
    assert (ask.model, ask.nodes, ask.accelerators_per_machine, ask.tensor_parallel) == ("a/b", 2, 8, 8)
    assert (ask.training.seq_len, ask.training.micro_batch, ask.training.sequences_per_step) == (4096, 2, 64)
    assert ask.lines["seq_len"] == 5


@pytest.mark.parametrize("name", ["$ARGS", "${ARGS}", "$ARGS --served-model-name x"])
@pytest.mark.parametrize("value", ["--model a/b -tp 2", "--model a/b \\\n  -tp 2", "\n  --model a/b\n  -tp 2\n"])
def test_options_in_a_variable_are_those_of_the_command(value: str, name: str) -> None:
    ask = only(f'export ARGS="{value}"\npython3 -m vllm.entrypoints.openai.api_server {name} --max-model-len 9\n')
    assert (ask.model, ask.tensor_parallel, ask.context_tokens) == ("a/b", 2, 9)
    assert ask.lines["context"] == 2 + value.count("\n")


def test_an_array_that_never_ends_or_grows_without_bound_is_no_trouble() -> None:
    with_server = "vllm serve a/b -tp 2\n"
    assert only(f"{with_server}A=(x\nvllm serve c/d\n").model == "a/b"
    many = f"A=({'x ' * 9000})\nB=({'${A[@]} ' * 1000})\n" + with_server.replace("\n", " ${B[@]} ${A[@]}\n")
    assert recognise(many, "file").asks[0].model == "a/b"
