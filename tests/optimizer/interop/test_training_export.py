"""Training plans as launch files: batch sizes that multiply up to the plan's step, layouts, and what cannot be said."""

import json
import math
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from optimizer.interop import targets
from optimizer.interop.plan_file import parse_plan
from optimizer.interop.training import deepspeed, fsdp, megatron
from providers.errors import UsageError
from tests.optimizer.interop.builders import make_plan
from tests.optimizer.interop.training_plans import ONE_MACHINE, PLANS, job_of, make_training_plan, training_document
from tests.tools import program


def flags(words: list[str]) -> dict[str, str]:
    return {word: after for word, after in zip(words, [*words[1:], ""], strict=True) if word.startswith("--")}


@pytest.mark.parametrize("target", [*targets.TRAINING, *targets.ORCHESTRATORS])
def test_every_file_says_which_plan_it_comes_from(target: str) -> None:
    plan = make_training_plan()
    files = targets.export(plan, target).files
    assert files
    assert all(plan.digest in text for text in files.values())


def test_fsdp_takes_the_whole_step() -> None:
    job = job_of()
    found = flags(fsdp.arguments(job))
    sequences = int(found["--per_device_train_batch_size"]) * int(found["--gradient_accumulation_steps"]) * 16
    assert sequences * job.seq_len == job.global_batch_tokens
    assert int(found["--max_steps"]) == math.ceil(1e9 / 262144)
    assert "--fsdp" in found
    assert json.loads(found["--fsdp_config"])["reshard_after_forward"] is True


def test_deepspeed_multiplies_up_to_its_batch() -> None:
    found = deepspeed.configuration(job_of(zero_stage=2))
    product = found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * 16
    assert product == 128
    assert "train_batch_size" not in found, "DeepSpeed refuses one that is not micro x steps x ranks"
    assert found["zero_optimization"]["stage"] == 2


def test_megatron_has_the_layout_and_the_shape() -> None:
    job = job_of(tensor_parallel=4, pipeline_parallel=2, data_parallel=2, zero_stage=1, stack="megatron")
    found = flags(megatron.arguments(job))
    assert found["--tensor-model-parallel-size"] == "4"
    assert found["--pipeline-model-parallel-size"] == "2"
    assert found["--num-query-groups"] == "8"
    assert int(found["--global-batch-size"]) * job.seq_len == job.global_batch_tokens


def test_experts_are_spread_over_tensor_parallel_ranks_in_megatron() -> None:
    job = job_of(**PLANS["experts"])
    found = flags(megatron.arguments(job))
    of_experts = int(found["--expert-model-parallel-size"]) * int(found["--expert-tensor-parallel-size"])
    assert job.ranks % (job.pipeline_parallel * of_experts) == 0


def test_axolotl_asks_for_adapters_in_four_bits() -> None:
    (text,) = targets.export(make_training_plan(task="qlora", lora_rank=16), "axolotl").files.values()
    content = yaml.safe_load(text)
    assert (content["adapter"], content["load_in_4bit"], content["lora_r"]) == ("qlora", True, 16)


@pytest.mark.parametrize(
    ("task", "model", "said", "four_bits"),
    [
        ("qlora", "Qwen/Qwen3-30B-A3B", True, True),
        ("lora", "Qwen/Qwen3-30B-A3B", True, False),
        ("qlora", "meta-llama/Llama-3.1-8B", False, False),
        ("qlora", "somebody/unknown", False, False),
    ],
)
def test_experts_that_are_left_out_of_adapters_are_a_warning(
    task: str, model: str, said: bool, four_bits: bool
) -> None:
    plan = make_training_plan(task=task, model=model, lora_rank=16)
    for target in ("fsdp", "deepspeed"):
        assert ("lora_target_parameters" in " ".join(targets.export(plan, target).warnings)) == said
    warnings = " ".join(targets.export(plan, "axolotl").warnings)
    assert ("lora_target_parameters" in warnings) == said
    assert ("quantize_moe_experts: true" in warnings) == four_bits


def test_a_layout_that_a_target_cannot_express_is_a_warning() -> None:
    plan = make_training_plan(tensor_parallel=8, data_parallel=2, stack="megatron")
    warnings = " ".join(targets.export(plan, "fsdp").warnings)
    assert "TP 8" in warnings
    assert "sized for megatron" in warnings


OPTIMIZERS = ("adamw", "adamw-8bit", "paged-adamw", "paged-adamw-8bit", "adafactor", "muon", "lion", "sgd")


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("target", [*targets.TRAINING, *targets.ORCHESTRATORS])
def test_what_changes_speed_or_memory_and_cannot_be_said_is_a_warning(name: str, target: str) -> None:
    plan = make_training_plan(**PLANS[name])
    (job,) = plan.jobs
    exported = targets.export(plan, target)
    said = " ".join([*exported.warnings, *exported.files.values()])
    if target == "terraform" or not exported.files:
        return
    for part in job.offload or ():
        assert {"optimizer": "offload", "params": "offload", "activations": "activation"}[part] in said.lower()
    if job.precision == "fp8":
        assert "fp8" in said
    if job.checkpoint_steps is not None:
        assert f"{job.checkpoint_steps} steps" in " ".join(exported.warnings)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("zero_stage", [0, 3])
@pytest.mark.parametrize("target", targets.TRAINING)
def test_every_optimizer_of_plans_is_written_or_a_warning(optimizer: str, zero_stage: int, target: str) -> None:
    exported = targets.export(make_training_plan(optimizer=optimizer, zero_stage=zero_stage), target)
    family = optimizer.removeprefix("paged-").removesuffix("-8bit").removesuffix("w")
    plain = re.findall(r"optim(?:izer)?[\s:\"'=]+([\w-]+)", " ".join(exported.files.values()))
    kept = plain and all(family in word for word in plain) and ("8bit" in optimizer) == ("8bit" in " ".join(plain))
    assert (
        kept
        or any("optimizer" in warning or "states" in warning for warning in exported.warnings)
        or (target == "megatron" and "--exp-avg-dtype fp8" in " ".join(exported.files.values()))
    )


def test_a_run_on_spot_saves_as_often_as_the_plan_counts_on_and_goes_on_from_there() -> None:
    plan = make_training_plan(**PLANS["LoRA on a spot machine"])
    (job,) = plan.jobs
    assert job.checkpoint_steps == round(job.steps * 0.5 / 10.5)
    text = "".join(targets.export(plan, "fsdp").files.values())
    assert f"--save_steps {job.checkpoint_steps}" in text
    assert "--resume_from_checkpoint" in text
    assert "sky jobs launch" in "".join(targets.export(plan, "skypilot").files.values())
    assert "#SBATCH --requeue" in "".join(targets.export(plan, "slurm").files.values())
    (job_manifest,) = yaml.safe_load_all("".join(targets.export(plan, "kubernetes").files.values()))
    assert job_manifest["spec"]["podFailurePolicy"]["rules"][0]["action"] == "Ignore"


def test_the_newest_checkpoint_is_the_one_with_the_highest_step(tmp_path: Path) -> None:
    (script,) = targets.export(make_training_plan(**PLANS["LoRA on a spot machine"]), "fsdp").files.values()
    (tmp_path / "torchrun").write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    (tmp_path / "torchrun").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TRAIN_SCRIPT": "train.py", "OUTPUT_DIR": str(tmp_path / "out")}

    def words() -> list[str]:
        ran = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=True)
        return ran.stdout.splitlines()

    assert "--resume_from_checkpoint" not in words()
    for step in (9, 100, 20):
        (tmp_path / "out" / f"checkpoint-{step}").mkdir(parents=True)
    assert words()[-1] == str(tmp_path / "out/checkpoint-100")


def test_several_machines_of_kubernetes_find_the_first_by_name() -> None:
    (text,) = targets.export(make_training_plan(), "kubernetes").files.values()
    service, job = yaml.safe_load_all(text)
    pod = job["spec"]["template"]["spec"]
    assert job["spec"]["completionMode"] == "Indexed"
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (2, 2)
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= job["spec"]["template"]["metadata"]["labels"].items()
    first = next(one["value"] for one in pod["containers"][0]["env"] if one["name"] == "MASTER_ADDR")
    assert first == f"{job['metadata']['name']}-0.{pod['subdomain']}"
    assert pod["subdomain"] == service["metadata"]["name"]


@pytest.mark.parametrize("name", PLANS)
def test_jobs_are_valid_by_the_schema_of_kubernetes(name: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", exc_type=ImportError)
    (text,) = targets.export(make_training_plan(**PLANS[name]), "kubernetes").files.values()
    for document in yaml.safe_load_all(text):
        validator.validate(document, "1.32", strict=True)


def test_a_task_of_dstack_has_the_machines_and_the_command() -> None:
    (text,) = targets.export(make_training_plan(), "dstack").files.values()
    content = yaml.safe_load(text)
    assert (content["type"], content["nodes"]) == ("task", 2)
    assert content["resources"]["gpu"] == {"name": "H100", "memory": "80GB", "count": 8}
    joined = " && ".join(content["commands"])
    checked = subprocess.run(["sh", "-n"], input=joined, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_software_of_the_plan_starts_the_run_on_orchestrators() -> None:
    for target in ("skypilot", "dstack", "kubernetes", "slurm"):
        for name, flag in (("pre-training with TP and PP", "--tensor-model-parallel-size 4"), ("fp16", "--dtype")):
            text = "".join(targets.export(make_training_plan(**PLANS[name]), target).files.values())
            assert flag in text


@pytest.mark.parametrize("target", ["fsdp", "deepspeed", "megatron", "slurm"])
def test_scripts_are_bash_and_start_the_words_of_the_plan(target: str) -> None:
    plan = make_training_plan(model="evil/$(touch owned)';`id`")
    for name, text in targets.export(plan, target).files.items():
        if not name.endswith(".json"):
            checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
            assert checked.returncode == 0, checked.stderr
            assert "\n$(touch" not in text


def test_slurm_asks_for_the_machines_and_enough_time() -> None:
    (text,) = targets.export(make_training_plan(), "slurm").files.values()
    assert "#SBATCH --nodes=2\n" in text
    assert "#SBATCH --gpus-per-node=8\n" in text
    assert "#SBATCH --time=0-16:00:00\n" in text


def test_runs_whose_names_are_alike_have_files_of_their_own() -> None:
    document = json.loads(training_document())
    document["workloads"] = [{**document["workloads"][0], "name": name} for name in ("tune 1", "tune-1")]
    document["jobs"] = [{**document["jobs"][0], "workload": name} for name in ("tune 1", "tune-1")]
    plan = parse_plan(json.dumps(document), "plan.json")
    assert len({job.name for job in plan.jobs}) == 2
    assert len(targets.export(plan, "axolotl").files) == 2


def test_targets_of_the_other_kind_are_refused() -> None:
    with pytest.raises(UsageError, match="plans training"):
        targets.export(make_training_plan(), "vllm")
    with pytest.raises(UsageError, match="plans serving"):
        targets.export(make_plan(), "deepspeed")


def test_a_task_of_skypilot_asks_for_the_machines_and_the_script() -> None:
    (text,) = targets.export(make_training_plan(), "skypilot").files.values()
    content = yaml.safe_load(text)
    assert content["num_nodes"] == 2
    assert content["resources"]["accelerators"] == {"H100": 8}
    assert content["envs"] == {"TRAIN_SCRIPT": "train.py"}
    assert "service" not in content
    checked = subprocess.run(["bash", "-n"], input=content["run"], text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_every_script_passes_shellcheck(tmp_path: Path) -> None:
    shellcheck = program("shellcheck")
    written: dict[str, list[str]] = {"bash": [], "sh": []}
    for number, over in enumerate(PLANS.values()):
        for target in ("fsdp", "deepspeed", "megatron", *targets.ORCHESTRATORS):
            for name, text in targets.export(make_training_plan(**over), target).files.items():
                for shell, script in _scripts(target, name, text):
                    file = tmp_path / f"{number}-{target}-{name}.{shell}"
                    file.write_text(script)
                    written[shell].append(str(file))
    assert min(len(files) for files in written.values()) >= len(PLANS)
    for shell, files in written.items():
        words = [shellcheck, f"--shell={shell}", *files]
        checked = subprocess.run(words, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stdout


def _scripts(target: str, name: str, text: str) -> Iterator[tuple[str, str]]:
    """The scripts of a file, by the shell that runs them."""
    if name.endswith((".sh", ".sbatch")):
        yield "bash", text
    elif target == "skypilot":
        yield "bash", str(yaml.safe_load(text)["run"])
    elif target == "dstack":
        yield "sh", "\n".join(yaml.safe_load(text)["commands"])
    elif target == "kubernetes":
        *_, job = yaml.safe_load_all(text)
        command = job["spec"]["template"]["spec"]["containers"][0]["command"]
        yield "bash", command[-1].replace("$$(", "$(")


HOSTILE = "evil/$(touch owned)`id`';\"${x}%{y} #: [&a *a] \\ {{}}"


@pytest.mark.parametrize("target", ["fsdp", "deepspeed", "megatron", "skypilot", "dstack", "kubernetes"])
@pytest.mark.parametrize("stack", ["fsdp", "hf", "megatron"])
def test_a_hostile_model_name_stays_one_word(target: str, stack: str, tmp_path: Path) -> None:
    plan = make_training_plan(**ONE_MACHINE, model=HOSTILE, stack=stack)
    files = targets.export(plan, target).files
    (script,) = (one for name, text in files.items() for _, one in _scripts(target, name, text))
    script = "\n".join(line for line in script.splitlines() if not line.startswith("pip install"))
    (tmp_path / "torchrun").write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    (tmp_path / "torchrun").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "TRAIN_SCRIPT": "train.py"}
    ran = subprocess.run(
        ["bash", "-c", script], env=variables, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert HOSTILE in ran.stdout.splitlines()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("target", ["fsdp", "deepspeed", "axolotl"])
def test_a_plan_without_adapters_on_experts_names_none_to_add(target: str) -> None:
    over = {"model": "Qwen/Qwen3-30B-A3B", "lora_rank": 16, "lora_experts": False}
    lora, qlora = (
        " ".join(targets.export(make_training_plan(task=task, **over), target).warnings) for task in ("lora", "qlora")
    )
    assert "lora_target_parameters" not in lora + qlora
    assert "fused experts" not in lora
    assert "fused experts" in qlora


@pytest.mark.parametrize("task", ["lora", "qlora"])
def test_megatron_has_no_file_for_adapters_and_says_so(task: str) -> None:
    exported = targets.export(make_training_plan(task=task, lora_rank=16), "megatron")
    assert not exported.files
    assert any("trains no adapters" in warning for warning in exported.warnings)


@pytest.mark.parametrize("target", ["skypilot", "dstack", "slurm", "kubernetes"])
def test_adapters_that_were_sized_for_megatron_are_trained_with_fsdp_and_that_is_told(target: str) -> None:
    exported = targets.export(make_training_plan(task="lora", lora_rank=16, stack="megatron"), target)
    assert "--lora_r 16" in "".join(exported.files.values())
    assert any("sized for megatron" in warning for warning in exported.warnings)
