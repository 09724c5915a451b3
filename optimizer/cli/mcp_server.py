"""Turns calls of MCP tools into runs of this program's own commands, bounded in time, output and files.

Every tool is a process of its own: it can be stopped, and nothing that it prints reaches the protocol's stream.
"""

import json
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

import anyio
from anyio.abc import ByteReceiveStream
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool

MAX_CHARACTERS: Final = 400_000
"""Most of an answer: more would fill an assistant's context."""

MAX_OFFERS: Final = 100
_START: Final = "from optimizer.cli.main import main; main()"
_ANSWERED: Final = (0, 3, 5)
"""Exit codes that come with a result."""


def server(root: Path, timeout_s: float) -> MCPServer:
    """The server. Files are only read below `root`; a tool that runs longer than `timeout_s` is stopped."""
    tools: list[Callable[..., Awaitable[str]]] = []

    async def run(command: str, words: Sequence[str]) -> str:
        return await _run([command, *words, "--format", "json"], root, timeout_s)

    @tools.append
    async def plan(
        model: str,
        rate: float | None = None,
        budget_usd_per_month: float | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        ttft_ms: float | None = None,
        tpot_ms: float | None = None,
        provider: list[str] | None = None,
        region: list[str] | None = None,
        gpu: list[str] | None = None,
        purchase: list[str] | None = None,
        precision: list[str] | None = None,
        task: str = "infer",
        tokens: str | None = None,
        deadline: str | None = None,
        budget_usd_per_run: float | None = None,
    ) -> str:
        """The cheapest plan for `rate` requests/s, or the most requests/s for a budget in USD per month; unless told,
        1,000 input and 300 output tokens, TTFT 2,000 ms and TPOT 100 ms.

        task train, finetune, lora or qlora: the cheapest run over `tokens` (such as 2B) within `deadline` (such as
        36h), or the fastest within a budget in USD per run."""
        budgets = [budget_usd_per_month, budget_usd_per_run]
        budget, other = budgets if task.lower() == "infer" else budgets[::-1]
        if other is not None:
            raise ToolError("a budget is budget_usd_per_month to serve, budget_usd_per_run to train")
        words = [*_flag("model", model_name(model, root)), *_flag("task", task), *_flag("rate", rate)]
        words += [*_flag("budget", budget), *_flag("tokens", tokens), *_flag("deadline", deadline)]
        words += [*_flag("input-tokens", input_tokens), *_flag("output-tokens", output_tokens)]
        words += [*_flag("ttft-ms", ttft_ms), *_flag("tpot-ms", tpot_ms), *_flags("provider", provider)]
        words += [*_flags("region", region), *_flags("gpu", gpu), *_flags("purchase", purchase)]
        return await run("plan", [*words, *_flags("precision", precision)])

    @tools.append
    async def size(
        model: str,
        gpu: str,
        count: int = 1,
        task: str = "infer",
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        context: int | None = None,
        precision: str = "auto",
    ) -> str:
        """Does a model fit on so many accelerators, with how much memory, how fast. task: infer (1,000 input and 300
        output tokens a request unless told), train, finetune, lora, qlora."""
        words = [*_flag("model", model_name(model, root)), *_flag("gpu", gpu), *_flag("count", count)]
        words += [*_flag("task", task), *_flag("precision", precision), *_flag("context", context)]
        return await run("size", [*words, *_flag("input-tokens", input_tokens), *_flag("output-tokens", output_tokens)])

    @tools.append
    async def offers(
        gpu: list[str] | None = None,
        provider: list[str] | None = None,
        region: list[str] | None = None,
        purchase: list[str] | None = None,
        count: int | None = None,
    ) -> str:
        """The cheapest offers on file that match, at most 100: instance type, region, price, date, source."""
        words = [*_flags("gpu", gpu), *_flags("provider", provider), *_flags("region", region)]
        words += [*_flags("purchase", purchase), *_flag("count", count), "--all"]
        answer = json.loads(await _run(["offers", *words, "--format", "json"], root, timeout_s, most=None))
        rows = answer["offers"]
        answer |= {"offers": rows[:MAX_OFFERS], "left_out": max(0, len(rows) - MAX_OFFERS)}
        return json.dumps(answer, ensure_ascii=False)

    @tools.append
    async def compare(
        model: str | None = None, rate: float | None = None, gpu: str | None = None, count: int | None = None
    ) -> str:
        """Ways to buy the same capacity: a model at `rate` requests/s, or `count` accelerators of a kind."""
        words = [] if model is None else _flag("model", model_name(model, root))
        return await run("compare", [*words, *_flag("rate", rate), *_flag("gpu", gpu), *_flag("count", count)])

    @tools.append
    async def import_file(
        file: str,
        model: str | None = None,
        gpu: str | None = None,
        count: int | None = None,
        context: int | None = None,
        task: str | None = None,
        tokens: str | None = None,
        columns: str | None = None,
    ) -> str:
        """Does a file in the folder work, what does it cost, what would be cheaper: SkyPilot, dstack, Kubernetes or
        Compose YAML, commands that serve or train, training configurations, request logs, quotes, FOCUS exports.

        `gpu`, `count`, `model`, `task` and `tokens` go where the file is silent; `columns` names those of a log."""
        words = [] if model is None else _flag("model", model_name(model, root))
        words += [*_flag("gpu", gpu), *_flag("count", count), *_flag("context", context), *_flag("task", task)]
        words += [*_flag("tokens", tokens), *_flag("columns", columns)]
        return await run("import", [*words, str(inside(file, root))])

    @tools.append
    async def guide(size: list[str] | None = None, provider: list[str] | None = None) -> str:
        """Which accelerators for which model size (1B to 1T) and use, at the cheapest offer."""
        return await run("guide", [*_flags("size", size), *_flags("provider", provider)])

    return MCPServer(
        "costopt",
        instructions="Sizes LLM workloads, prices accelerator instances of AWS, GCP, Azure, Lambda and RunPod, and "
        "finds the cheapest mix. Prices are list prices as of their dates; speed and memory are estimates.",
        tools=[_strict(tool) for tool in tools],
    )


def _strict(function: Callable[..., Awaitable[str]]) -> Tool:
    """The function as a tool that refuses arguments which it does not have: they would have no effect."""
    found = Tool.from_function(function)
    arguments = found.fn_metadata.arg_model
    arguments.model_config["extra"] = "forbid"
    arguments.model_rebuild(force=True)
    found.parameters["additionalProperties"] = False
    return found


def inside(name: str, root: Path) -> Path:
    """The file below the folder. Raises ToolError for one that is elsewhere, also behind a link."""
    try:
        path = (root / name).resolve()
    except (OSError, RuntimeError, ValueError):
        raise ToolError(f"{name!r} is no name of a file") from None
    if not path.is_relative_to(root):
        raise ToolError(f"{name!r} is outside the folder that this server may read")
    return path


def model_name(name: str, root: Path) -> str:
    """A model's name; one that the command would take for a path must be below the folder."""
    looks_like_a_path = name.startswith((".", "/", "~")) or name.endswith(".json") or ".." in Path(name).parts
    if looks_like_a_path or (root / name).exists():
        return str(inside(name, root))
    return name


def _flag(name: str, value: object) -> list[str]:
    """One word, so that a value cannot be taken for an option; nothing for None."""
    return [] if value is None else [f"--{name}={value}"]


def _flags(name: str, values: Sequence[str] | None) -> list[str]:
    return [f"--{name}={value}" for value in values or ()]


async def _run(words: Sequence[str], root: Path, timeout_s: float, most: int | None = MAX_CHARACTERS) -> str:
    """What the command prints. Raises ToolError with its message when it fails, takes too long or prints too much."""
    try:
        with anyio.fail_after(timeout_s):
            done = await _finished([sys.executable, "-c", _START, *words], root)
    except TimeoutError:
        raise ToolError(f"stopped after {timeout_s:g} s: narrow the question, or raise --timeout") from None
    if done.returncode not in _ANSWERED:
        raise ToolError(done.stderr.decode(errors="replace").strip()[-2000:] or f"exit code {done.returncode}")
    text = done.stdout.decode(errors="replace")
    if most is not None and len(text) > most:
        text = json.dumps(json.loads(text), ensure_ascii=False, separators=(",", ":"))
    if most is not None and len(text) > most:
        raise ToolError(f"the answer has {len(text):,} characters; at most {most:,} are given: narrow the question")
    return text


async def _finished(command: Sequence[str], root: Path) -> subprocess.CompletedProcess[bytes]:
    """The process when it has ended. Where the wait for it is cut off, it is stopped."""
    printed = {"stdout": b"", "stderr": b""}

    async def collect(name: str, stream: ByteReceiveStream | None) -> None:
        if stream is not None:
            printed[name] = b"".join([chunk async for chunk in stream])

    with anyio.CancelScope(shield=True):
        # A start that is cut off would leave a process for which nobody waits.
        process = await anyio.open_process(command, stdin=subprocess.DEVNULL, cwd=root)
    async with process, anyio.create_task_group() as readers:
        readers.start_soon(collect, "stdout", process.stdout)
        readers.start_soon(collect, "stderr", process.stderr)
        code = await process.wait()
    return subprocess.CompletedProcess(command, code, **printed)
