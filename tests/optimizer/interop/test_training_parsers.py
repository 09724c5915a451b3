"""Files of training runs, read by the parsers of TRL, transformers, DeepSpeed and axolotl: they say what plans say."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from optimizer.interop import targets
from optimizer.interop.launch_plan import TrainingJob
from optimizer.interop.training import fsdp
from tests.optimizer.interop.training_plans import PLANS, job_of, make_training_plan
from tests.parsers import run_parser


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the parsers understood, by file: the words of scripts are those that a shell hands to torchrun."""
    folder = tmp_path_factory.mktemp("files")
    bin_folder = tmp_path_factory.mktemp("bin")
    (bin_folder / "torchrun").write_text("#!/bin/sh\nprintf '%s\\0' \"$@\"\n")
    (bin_folder / "torchrun").chmod(0o755)
    for name, over in PLANS.items():
        plan = make_training_plan(**over)
        for target in ("fsdp", "deepspeed", "axolotl"):
            for file, text in targets.export(plan, target).files.items():
                if file.endswith(".sh"):
                    (folder / f"{name}.{target}.flags").write_text(json.dumps(_flags(text, bin_folder)))
                else:
                    (folder / f"{name}.{target}{Path(file).suffix}").write_text(text)
    found: dict[str, dict[str, Any]] = json.loads(run_parser("training", "read_training", folder).splitlines()[-1])
    return found


def _flags(script: str, bin_folder: Path) -> list[str]:
    """The words behind the script's name; the file that --deepspeed names is read by itself."""
    variables = {"PATH": f"{bin_folder}:/usr/bin:/bin", "TRAIN_SCRIPT": "train.py", "MASTER_ADDR": "first"}
    ran = subprocess.run(["bash", "-c", script], env=variables, capture_output=True, text=True, check=True)
    words = ran.stdout.split("\0")[:-1]
    words = words[words.index("train.py") + 1 :]
    if "--deepspeed" in words:
        at = words.index("--deepspeed")
        del words[at : at + 2]
    return words


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("target", ["fsdp", "deepspeed"])
def test_trl_understands_the_flags(name: str, target: str, read: dict[str, dict[str, Any]]) -> None:
    job = job_of(**PLANS[name])
    found = read[f"{name}.{target}.flags"]
    assert found["model_name_or_path"] == job.model
    sequences = found["per_device_train_batch_size"] * found["gradient_accumulation_steps"] * job.ranks
    assert sequences * job.seq_len == job.global_batch_tokens
    assert (found["max_length"], found["max_steps"], found["packing"]) == (job.seq_len, job.steps, True)
    assert (found["bf16"], found["fp16"]) == _mixed(job)
    assert (found["model_init_kwargs"] or {}).get("use_kernels", False) == (job.stack == "fsdp")
    assert found["use_peft"] == job.is_adapter
    assert found["load_in_4bit"] == (job.task == "qlora")
    if job.is_adapter:
        assert (found["lora_r"], found["lora_target_modules"]) == (job.lora_rank, "all-linear")
    if job.checkpoint_steps is not None:
        assert found["save_steps"] == job.checkpoint_steps


def _mixed(job: TrainingJob) -> tuple[bool, bool]:
    if job.master_weights is False and not job.is_adapter:
        return False, False
    return job.precision != "fp16", job.precision == "fp16"


@pytest.mark.parametrize("name", PLANS)
def test_transformers_shards_and_recomputes_as_the_plan_does(name: str, read: dict[str, dict[str, Any]]) -> None:
    job = job_of(**PLANS[name])
    found = read[f"{name}.fsdp.flags"]
    if not fsdp.shards(job):
        assert not found["fsdp"]
        assert found["activation_checkpointing"] == (job.recompute != "none")
        return
    plugin = found["fsdp_plugin_args"]
    assert plugin["reshard_after_forward"] == (job.zero_stage == 3)
    assert plugin["activation_checkpointing"] == (job.recompute != "none")
    assert plugin.get("cpu_offload", False) == bool((job.offload or frozenset()) & {"optimizer", "params"})


@pytest.mark.parametrize("name", PLANS)
def test_deepspeed_understands_the_configuration(name: str, read: dict[str, dict[str, Any]]) -> None:
    job = job_of(**PLANS[name])
    found = read[f"{name}.deepspeed.json"]
    assert found["stage"] == job.zero_stage
    # One rank reads it: the batch is that of one.
    assert found["train_batch_size"] * job.ranks * job.seq_len == job.global_batch_tokens
    assert found["train_micro_batch_size_per_gpu"] == job.micro_batch
    offload = job.offload or frozenset()
    assert ("cpu" in str(found["offload_optimizer"])) == ("optimizer" in offload and job.zero_stage > 0)
    assert ("cpu" in str(found["offload_param"])) == ("params" in offload and job.zero_stage == 3)
    assert (found["bf16"], found["fp16"]) == (job.precision != "fp16", job.precision == "fp16")


@pytest.mark.parametrize("name", PLANS)
def test_axolotl_understands_the_configuration(name: str, read: dict[str, dict[str, Any]]) -> None:
    job = job_of(**PLANS[name])
    found = read[f"{name}.axolotl.yaml"]
    assert (found["base_model"], found["sequence_len"]) == (job.model, job.seq_len)
    ranks = job.ranks // job.context_parallel
    sequences = found["micro_batch_size"] * found["gradient_accumulation_steps"] * ranks
    assert sequences * job.seq_len == job.global_batch_tokens
    assert found.get("adapter") == (job.task if job.is_adapter else None)
    assert found.get("lora_r") == job.lora_rank
    if fsdp.shards(job):
        assert found["fsdp_config"]["reshard_after_forward"] == (job.zero_stage == 3)
