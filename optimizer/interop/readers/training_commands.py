"""Turns the commands that start a training job, alone or in a script, into what the job asks for."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from optimizer.interop.asks import TrainingAsk, whole
from optimizer.interop.readers.command_lines import commands, inner_scripts
from optimizer.interop.readers.training_settings import (
    TARGETS,
    Setting,
    Settings,
    is_training,
    plain,
    settings_of,
    torchtune_model,
    training_of,
)

_LAUNCHERS: Final[Mapping[tuple[str, ...], str]] = {
    ("torchrun",): "torchrun",
    ("torch.distributed.run",): "torchrun",
    ("torch.distributed.launch",): "torchrun",
    ("accelerate", "launch"): "accelerate",
    ("deepspeed",): "DeepSpeed",
    ("axolotl", "train"): "axolotl",
    ("axolotl.cli.train",): "axolotl",
    ("llamafactory-cli", "train"): "LLaMA-Factory",
    ("tune", "run"): "torchtune",
    ("trl", "sft"): "TRL",
    ("trl", "dpo"): "TRL",
    ("swift", "sft"): "ms-swift",
    ("swift", "pt"): "ms-swift",
}
"""Programs that start nothing but training, with the word that makes them do so."""

_STACKS: Final[Mapping[str, str]] = {"torchtune": "eager", "LLaMA-Factory": "hf", "TRL": "hf", "axolotl": "hf"}
_SERVERS: Final = re.compile(r"vllm|sglang|tritonserver|trtllm|text-generation|tgi", re.IGNORECASE)
"""Words of commands that serve, whatever starts them."""

_SWITCHES: Final = frozenset(
    {
        *("use_megatron_fsdp", "use_precision_aware_optimizer", "optimizer_cpu_offload", "moe_grouped_gemm"),
        *("multi_latent_attention", "disable_bias_linear", "no_gradient_accumulation_fusion", "grad_reduce_in_bf16"),
        *("standalone", "no_python", "module", "m", "bf16", "fp16", "use_distributed_optimizer", "sequence_parallel"),
        *(
            "recompute_activations",
            "swiglu",
            "untie_embeddings_and_output_weights",
            "group_query_attention",
            "multi_gpu",
        ),
        *("use_deepspeed", "use_fsdp", "do_train", "do_eval", "finetune", "overlap_grad_reduce", "use_peft"),
        *("load_in_4bit", "load_in_8bit", "gradient_checkpointing", "packing", "tf32", "no_local_rank", "qlora"),
    }
)
"""Options that take no value, or true and false; another word behind them is not theirs."""

_TRUTH: Final = ("true", "false", "yes", "no", "1", "0")
_CONFIG: Final = re.compile(r"[^\s=]+\.(?:ya?ml|json|toml)")
_END: Final = ("&&", "||", ";", "|", "&")
_SCRIPT_TASKS: Final = (
    (re.compile(r"qlora"), "qlora"),
    (re.compile(r"lora|peft"), "lora"),
    (re.compile(r"pre-?train"), "train"),
    (re.compile(r"fine-?tun|sft|full_"), "finetune"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """A training job that a command starts; `config` is the file of settings that it names, which is not opened.

    `nodes` and `ranks_per_node` None = the command does not say; `lines` has the line of each thing that it says.
    """

    program: str
    line: int
    model: str | None
    nodes: int | None
    ranks_per_node: int | None
    tensor_parallel: int | None
    pipeline_parallel: int | None
    training: TrainingAsk
    config: str | None = None
    lines: Mapping[str, int] = field(default_factory=dict)

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of an Ask that the command fills; its model, nodes and lines left out."""
        return {
            "training": self.training,
            "tensor_parallel": self.tensor_parallel,
            "pipeline_parallel": self.pipeline_parallel,
            "accelerators_per_machine": self.ranks_per_node,
        }


def launched(text: str, first_line: int = 1, variables: Mapping[str, str] | None = None) -> Iterator[Launched]:
    """The training jobs that a script's lines start; `variables` are put in for their names."""
    for line, words in commands(text, first_line, variables):
        for part in _parts(words):
            found = launch([word for _, word in part], [number for number, _ in part], line)
            if found is not None:
                yield found


def launch(words: Sequence[str], numbers: Sequence[int], line: int) -> Launched | None:
    """The job that a command's words start; None for another command."""
    program, begin = _program(words)
    if program is None or any(_SERVERS.search(word) for word in words[begin : begin + 4]):
        return None
    settings, others = _settings(words, numbers, begin)
    if words[begin - 1] == "dpo":
        settings = Settings(values={**settings.values, "rl": Setting("dpo", line)})
    if program == "python" and not is_training(settings):
        return None
    script = " ".join(others)
    training = training_of(settings, stack=_STACKS.get(program))
    if program == "accelerate" and training.zero_stage == 0:
        # It takes what is not said from a configuration of its user.
        training = replace(training, zero_stage=None)
    nodes = whole((settings.text("nnodes", "num_machines", "num_nodes") or "").partition(":")[0])
    task = training.task if settings.text("finetuning_type", "train_type") else _task(training, script)
    return Launched(
        program=program,
        line=line,
        model=settings.model or (torchtune_model(settings.text("config") or "") if program == "torchtune" else None),
        nodes=nodes,
        ranks_per_node=settings.ranks_per_node(nodes),
        tensor_parallel=settings.count("tensor_parallel"),
        pipeline_parallel=settings.count("pipeline_parallel"),
        training=replace(training, task=task),
        config=_config(program, settings, others),
        lines={"command": line, **settings.lines},
    )


def _task(training: TrainingAsk, script: str) -> str | None:
    """The task that the flags say, or the name of the script; a name that says more than `finetune` counts."""
    named = next((task for pattern, task in _SCRIPT_TASKS if pattern.search(script.lower())), None)
    return training.task or named


def _program(words: Sequence[str]) -> tuple[str | None, int]:
    """The launcher and the index of the word behind it; `python` for a plain script."""
    if "install" in words[:5]:
        # pip, uv, conda or apt: what it names is not started.
        return None, 0
    for index, word in enumerate(words):
        name = word.rpartition("/")[2]
        for start, program in _LAUNCHERS.items():
            if name == start[0] and tuple(words[index + 1 : index + len(start)]) == start[1:]:
                return program, index + len(start)
    for index, word in enumerate(words):
        if re.fullmatch(r"python[\d.]*", word.rpartition("/")[2]):
            return "python", index + 1
    return None, 0


def _settings(words: Sequence[str], numbers: Sequence[int], begin: int) -> tuple[Settings, list[str]]:
    """The options behind the program, and the words that are none: scripts and files."""
    values: dict[str, Setting] = {}
    others: list[str] = []
    index = begin
    while index < len(words):
        word, line = words[index], numbers[index]
        key, equals, value = word.partition("=")
        index += 1
        if word.startswith("-") and len(word) > 1:
            name = plain(key)
            following = words[index] if index < len(words) else "-"
            takes = name not in _SWITCHES or following.lower() in _TRUTH
            if not equals and takes and not re.match(r"-{1,2}[A-Za-z]", following):
                value = following if index < len(words) else "true"
                index += 1
            while name in TARGETS and index < len(words) and not words[index].startswith("-"):
                value = f"{value} {words[index]}"
                index += 1
            values[name] = Setting(value if equals or value else "true", line)
            values |= _inner(name, value, line)
        elif equals and re.fullmatch(r"\+{0,2}[A-Za-z_][\w.]*", key):
            values[plain(key.lstrip("+"))] = Setting(value, line)
        else:
            others.append(word)
    return Settings(values=values), others


def _inner(name: str, value: str, line: int) -> Iterator[tuple[str, Setting]]:
    """The settings within a value that is a JSON object, as --fsdp_config takes one."""
    if value.startswith("{"):
        try:
            content = json.loads(value)
        except (ValueError, RecursionError):
            return
        for key, setting in settings_of(content, {}).values.items():
            yield f"{name}.{key}", replace(setting, line=line)


def _parts(words: Sequence[tuple[int, str]]) -> Iterator[list[tuple[int, str]]]:
    """The commands of a line that && and the like join, and those within a quoted word of `bash -c`."""
    part: list[tuple[int, str]] = []
    for number, word in words:
        if word in _END:
            yield part
            part = []
        elif word.endswith(";"):
            yield [*part, (number, word.rstrip(";"))]
            part = []
        else:
            part.append((number, word))
    yield part
    for number, script in inner_scripts(words):
        for _, inner in commands(script, number):
            yield from _parts(inner)


def _config(program: str, settings: Settings, others: Sequence[str]) -> str | None:
    """A file of settings that the command names."""
    if program in ("axolotl", "LLaMA-Factory", "torchtune", "TRL") or "axolotl.cli.train" in others:
        named = next((word for word in others if _CONFIG.fullmatch(word)), None)
        return named or settings.text("config", "config_file")
    return settings.text("deepspeed", "deepspeed_config", "config_file", "config")
