"""Commands and settings that start training: every usual spelling comes to the same fields."""

import re
from typing import Any

import pytest

from optimizer.interop.readers.training_commands import Launched, launched
from optimizer.interop.readers.training_settings import is_training, settings_of, training_of


def only(text: str, **variables: str) -> Launched:
    (found,) = launched(text, 1, variables)
    return found


def said(found: Launched) -> dict[str, Any]:
    """What the command says of the training, by field."""
    training = found.training
    nothing = (None, frozenset(), ())
    return {name: value for name in training.__slots__ if (value := getattr(training, name)) not in nothing}


TRAINER = (
    "torchrun --nnodes 2 --nproc-per-node 8 --rdzv-backend c10d sft.py --model_name_or_path Qwen/Qwen2.5-7B "
    "--per_device_train_batch_size 2 --gradient_accumulation_steps=4 --max_length 2048 --bf16 True --max_steps 100 "
    "--gradient_checkpointing True --optim adamw_bnb_8bit"
)


def test_flags_of_the_hugging_face_trainer_are_read() -> None:
    found = only(TRAINER)
    assert (found.model, found.nodes, found.ranks_per_node) == ("Qwen/Qwen2.5-7B", 2, 8)
    assert said(found) == {
        "task": "finetune",
        "stack": "hf",
        "seq_len": 2048,
        "micro_batch": 2,
        "gradient_accumulation": 4,
        "steps": 100,
        "optimizer": "adamw-8bit",
        "precision": "bf16",
        "recompute": "full",
        "zero_stage": 0,
    }


def test_a_trainer_without_fsdp_or_deepspeed_keeps_a_copy_on_every_rank() -> None:
    assert only(f"{TRAINER} --deepspeed ds.json").training.zero_stage is None
    assert only(f"{TRAINER} --fsdp full_shard").training.zero_stage == 3
    assert only(TRAINER.replace("torchrun", "accelerate launch")).training.zero_stage is None
    assert only("llamafactory-cli train --model_name_or_path a/b --finetuning_type lora").training.zero_stage == 0
    assert only("torchrun --nproc-per-node 8 own.py --batch_size 2 --lora_r 8").training.zero_stage is None


@pytest.mark.parametrize(
    ("recipe", "model"),
    [
        ("llama3_1/70B_full", "llama-3.1-70b"),
        ("llama2/7B_lora_single_device", "llama-2-7b"),
        ("qwen2_5/0_5B_full", "qwen2.5-0.5b"),
        ("qwen2/0.5B_full", None),
        ("phi3/mini_full", None),
    ],
)
def test_recipes_of_torchtune_name_their_model(recipe: str, model: str | None) -> None:
    found = only(f"tune run --nproc_per_node 8 lora_finetune_distributed --config {recipe}")
    assert (found.model, found.config, found.training.task) == (model, recipe, "lora")


def test_flags_of_megatron_are_read() -> None:
    found = only(
        "python -m torch.distributed.run --nproc_per_node=8 pretrain_gpt.py --tensor-model-parallel-size 4 "
        "--pipeline-model-parallel-size 2 --context-parallel-size 2 --expert-model-parallel-size 4 "
        "--micro-batch-size 1 --global-batch-size 512 --seq-length 4096 --train-samples 1000 --bf16 "
        "--use-distributed-optimizer --recompute-granularity selective"
    )
    assert (found.tensor_parallel, found.pipeline_parallel, found.ranks_per_node) == (4, 2, 8)
    assert said(found) == {
        "task": "train",
        "stack": "megatron",
        "seq_len": 4096,
        "micro_batch": 1,
        "sequences_per_step": 512,
        "tokens": 4_096_000.0,
        "precision": "bf16",
        "zero_stage": 1,
        "recompute": "selective",
        "context_parallel": 2,
        "expert_parallel": 4,
    }


@pytest.mark.parametrize(
    ("command", "program", "task"),
    [
        ("accelerate launch --num_processes 4 sft.py --use_peft --load_in_4bit --lora_r 16", "accelerate", "qlora"),
        ("axolotl train examples/llama-3/qlora.yml", "axolotl", "qlora"),
        ("llamafactory-cli train examples/train_full/llama3_full_sft.yaml", "LLaMA-Factory", "finetune"),
        ("deepspeed --num_gpus 8 train_lora.py", "DeepSpeed", "lora"),
        ("trl sft --model_name_or_path a/b --use_peft", "TRL", "lora"),
        ("tune run --nproc_per_node 4 full_finetune_distributed --config llama3_1/8B_full", "torchtune", "finetune"),
        ("cd /work && bash -c 'torchrun --nproc_per_node 4 pretrain.py --bf16'; echo done", "torchrun", "train"),
        ("python train.py --lora_r 8 --load_in_4bit True", "python", "qlora"),
        ("python train.py --use_peft_lora True --lora_r 8 --use_4bit_quantization True", "python", "qlora"),
        ("python train.py --use_peft_lora True --lora_r 8 --use_4bit_quantization False", "python", "lora"),
    ],
)
def test_each_program_that_starts_training_is_known_with_its_task(command: str, program: str, task: str) -> None:
    found = only(command)
    assert (found.program, found.training.task) == (program, task)


def test_ranks_of_accelerate_are_in_all_and_its_machines_share_them() -> None:
    found = only("accelerate launch --num_machines 2 --num_processes 16 a.py")
    assert (found.nodes, found.ranks_per_node) == (2, 8)


def test_the_ranks_of_a_machine_may_be_a_variable() -> None:
    assert only("torchrun --nproc_per_node $GPUS a.py", GPUS="4").ranks_per_node == 4
    assert only("torchrun --nproc_per_node $GPUS a.py").ranks_per_node is None


@pytest.mark.parametrize(
    "command",
    [
        "python serve.py --port 80",
        "torchrun --nproc_per_node 8 -m vllm.entrypoints.api_server",
        "echo torch",
        "pip list",
    ],
)
def test_commands_that_do_not_train_are_none_of_it(command: str) -> None:
    assert list(launched(command)) == []


@pytest.mark.parametrize(
    ("flags", "stage"),
    [
        ("--fsdp 'full_shard auto_wrap'", 3),
        ("--fsdp", 3),
        ("--fsdp 'shard_grad_op'", 2),
        ("--deepspeed configs/ds_z2_config.json", 2),
        ("--deepspeed zero_3.json", 3),
        ("--deepspeed ds_config.json", None),
        ("--zero_stage 1", 1),
        ("", None),
    ],
)
def test_the_zero_stage_is_read_from_what_says_it(flags: str, stage: int | None) -> None:
    assert only(f"torchrun train.py {flags}").training.zero_stage == stage


def test_settings_of_a_file_are_read_with_their_lines() -> None:
    content = {"method": "qlora", "lora_r": 16, "max_seq_len": 512, "per_device_batch": 8, "tokens": "1B"}
    settings = settings_of(content, {("lora_r",): 7})
    found = training_of(settings)
    assert is_training(settings)
    assert (found.task, found.lora_rank, found.seq_len, found.micro_batch) == ("qlora", 16, 512, 8)
    assert found.tokens == 1e9
    assert settings.lines == {"lora_rank": 7}


def test_a_configuration_of_deepspeed_says_stage_offload_and_batch() -> None:
    zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": {"device": "nvme"}}
    content = {"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": True}, "fp16": {"enabled": False}}
    found = training_of(settings_of({**content, "zero_optimization": zero}, {}))
    assert (found.zero_stage, found.micro_batch, found.precision) == (3, 2, "bf16")
    assert found.offload == {"optimizer", "params"}


def test_a_configuration_behind_axolotls_module_is_named_whatever_launches_it() -> None:
    (found,) = launched("accelerate launch -m axolotl.cli.train qlora.yaml --num_processes=8")
    assert found.config == "qlora.yaml"


@pytest.mark.parametrize(
    "command", ["pip install torch deepspeed", "uv pip install trl deepspeed", "python3 -m pip install -U deepspeed"]
)
def test_what_is_installed_is_not_started(command: str) -> None:
    assert not list(launched(command))


@pytest.mark.parametrize(
    ("content", "trains"),
    [
        ({"method": "qlora", "model": "a/b"}, True),
        ({"base_model": "a/b", "adapter": "lora"}, True),
        ({"lora_r": 8}, True),
        ({"adapter": "postgresql", "database": "x"}, False),
        ({"max_steps": 5, "agent": "x"}, False),
        ({"model": "a/b", "model_id": "c"}, False),
        ({"method": "GET"}, False),
    ],
)
def test_settings_that_others_have_too_are_no_training_alone(content: dict[str, Any], trains: bool) -> None:
    assert is_training(settings_of(content, {})) == trains


@pytest.mark.parametrize(
    ("flags", "stack"),
    [
        ("--fsdp 'full_shard auto_wrap'", "hf"),
        ("--fsdp full_shard --use_liger_kernel True", "fsdp"),
        ("--use_liger_kernel True", "fsdp"),
        ("", "hf"),
    ],
)
def test_a_trainer_is_as_fast_as_its_kernels_whatever_shards_it(flags: str, stack: str) -> None:
    (found,) = launched(f"torchrun train.py --model_name_or_path a/b --per_device_train_batch_size 1 {flags}")
    assert found.training.stack == stack


@pytest.mark.parametrize(
    ("modules", "experts"),
    [
        ("q_proj k_proj v_proj o_proj", False),
        ("q_proj,v_proj", False),
        ("kv_a_proj_with_mqa q_b_proj", False),
        ("q_proj gate_proj", None),
        ("all-linear", None),
        ("q_proj gate_up_proj_experts", None),
    ],
)
def test_adapters_on_attention_only_leave_the_experts_without(modules: str, experts: bool | None) -> None:
    given = f"--model_name_or_path a/b --use_peft --lora_r 8 --lora_target_modules {modules} --max_length 512"
    (found,) = launched(f"trl sft {given}")
    assert (found.training.lora_experts, found.training.seq_len) == (experts, 512)
    in_file = settings_of({"lora_r": 8, "lora_target_modules": re.split("[ ,]", modules)}, {})
    assert training_of(in_file).lora_experts is experts


def test_all_linear_layers_of_axolotl_are_more_than_the_named_ones() -> None:
    content = {"lora_r": 8, "lora_target_modules": ["q_proj"], "lora_target_linear": True}
    assert training_of(settings_of(content, {})).lora_experts is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({"stage": "dpo"}, "stage dpo"),
        ({"rl": "grpo"}, "rl grpo"),
        ({"lora_modules_to_save": ["embed_tokens", "lm_head"]}, "lora_modules_to_save embed_tokens lm_head"),
        ({"sample_packing": False}, "sample_packing false"),
        ({"use_dora": True}, "use_dora true"),
    ],
)
def test_settings_that_no_estimate_counts_are_told(content: dict[str, Any], told: str) -> None:
    (note,) = training_of(settings_of({"lora_r": 8, **content}, {(next(iter(content)),): 3})).uncounted
    assert note.what.startswith(f"{told} is not counted")
    assert (note.line, note.fatal) == (3, False)


@pytest.mark.parametrize("content", [{"stage": "sft"}, {"packing": True}, {"use_dora": False}, {"method": "lora"}])
def test_usual_settings_are_not_told(content: dict[str, Any]) -> None:
    assert training_of(settings_of({"lora_r": 8, **content}, {})).uncounted == ()


def test_a_command_that_trains_on_preferences_says_so() -> None:
    (found,) = launched("trl dpo --model_name_or_path a/b --per_device_train_batch_size 1")
    assert ["dpo is not counted" in note.what for note in found.training.uncounted] == [True]
