"""Reads command lines and settings of vLLM and SGLang, listed in a JSON file, by the engines' own parsers.

The file has a list of {engine, arguments} and {engine, settings}; written out are the values of each as JSON.
"""

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import vllm.platforms

# No accelerator is looked for: the options are the same on all of them.
from vllm.platforms.cpu import CpuPlatform

vllm.platforms.current_platform = CpuPlatform()

from sglang.srt.server_args import ServerArgs  # noqa: E402
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402
from vllm.entrypoints.common.cli_args import make_arg_parser  # noqa: E402
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402


def sglang_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    return parser


def values(item: dict[str, Any]) -> dict[str, Any]:
    if "arguments" in item:
        found = vars(PARSERS[item["engine"]].parse_args(item["arguments"]))
    else:
        unknown = item["settings"].keys() - {one.name for one in dataclasses.fields(AsyncEngineArgs)}
        if unknown:
            raise SystemExit(f"no arguments of vLLM's engine: {sorted(unknown)}")
        found = vars(AsyncEngineArgs(**item["settings"]))
    return {key: value for key, value in found.items() if isinstance(value, str | int | float | bool)}


PARSERS = {"vllm": make_arg_parser(FlexibleArgumentParser()), "sglang": sglang_parser()}
sys.stdout.write(json.dumps([values(item) for item in json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))]))
