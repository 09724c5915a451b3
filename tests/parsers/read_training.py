"""Reads the training files of a folder with their targets' own parsers, and writes what those understood as JSON.

NAME.json is a DeepSpeed configuration, NAME.yaml one of axolotl, and NAME.flags the words behind the script's name as
a JSON list, for the parser of TRL's SFT script (transformers' TrainingArguments and TRL's own).
"""

import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

os.environ |= {"WANDB_MODE": "disabled", "AXOLOTL_DO_NOT_TRACK": "1", "CUDA_VISIBLE_DEVICES": ""}


def flags(path: Path) -> dict[str, Any]:
    """The script's own data classes; the trainer is not made, which would ask for GPUs."""
    from trl import ModelConfig, ScriptArguments, SFTConfig, TrlParser

    # Devices are looked at when a TrainingArguments is made: bf16 needs one.
    words = json.loads(path.read_text())
    words += ["--use_cpu", "True", "--report_to", "none"]
    parser = TrlParser((ScriptArguments, SFTConfig, ModelConfig))
    _, training, model = parser.parse_args_and_config(words)
    found = {**vars(model), **vars(training)}
    return {key: value for key, value in found.items() if isinstance(value, (str, int, float, bool, dict, type(None)))}


def deepspeed(path: Path) -> dict[str, Any]:
    """DeepSpeed's configuration, as one rank reads it."""
    from deepspeed.runtime.config import DeepSpeedConfig

    read = DeepSpeedConfig(str(path))
    zero = read.zero_config
    return {
        "stage": int(zero.stage),
        "offload_optimizer": None if zero.offload_optimizer is None else str(zero.offload_optimizer.device),
        "offload_param": None if zero.offload_param is None else str(zero.offload_param.device),
        "train_batch_size": read.train_batch_size,
        "train_micro_batch_size_per_gpu": read.train_micro_batch_size_per_gpu,
        "gradient_accumulation_steps": read.gradient_accumulation_steps,
        "bf16": read.bfloat16_config.enabled,
        "bf16_optimizer_states": read.bfloat16_config.bf16_optimizer_states,
        "fp16": read.float16_config.enabled,
        "optimizer": read.optimizer_name,
    }


def axolotl(path: Path) -> dict[str, Any]:
    """axolotl's schema with the capabilities of eight H100, which this machine lacks."""
    import yaml
    from axolotl.utils.schemas.config import AxolotlConfigWCapabilities

    # Asked for where a sequence is split, which takes CUDA to install.
    sys.modules.setdefault("ring_flash_attn", ModuleType("ring_flash_attn"))
    gpu = {"bf16": True, "fp8": True, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90"}
    environment = {"torch_version": "2.13.0"}
    content = yaml.safe_load(path.read_text())
    known = type("Known", (AxolotlConfigWCapabilities, _liger_keys()), {})
    read = known(**content, capabilities=gpu, env_capabilities=environment)
    left = sorted(set(content) - set(type(read).model_fields))
    assert not left, f"keys that axolotl does not know: {left}"
    found: dict[str, Any] = json.loads(read.model_dump_json(include=set(content)))
    return found


def _liger_keys() -> Any:
    """The keys of axolotl's Liger plugin, by themselves: the plugin imports kernels that take CUDA."""
    folder = Path(importlib.util.find_spec("axolotl").submodule_search_locations[0])
    spec = importlib.util.spec_from_file_location("liger_args", folder / "integrations/liger/args.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.LigerArgs


READERS = {".flags": flags, ".json": deepspeed, ".yaml": axolotl}


def main(folder: Path) -> None:
    """Every file of the folder, by its ending."""
    found, faults = {}, []
    for path in sorted(folder.iterdir()):
        try:
            found[path.name] = READERS[path.suffix](path)
        except (Exception, SystemExit) as error:
            faults.append(f"{path.name}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(faults)
    print(json.dumps(found))


main(Path(sys.argv[1]))
