"""`costopt mcp`: the tools answer with the commands' JSON over stdio, within time, output and one folder."""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

anyio = pytest.importorskip("anyio")
mcp = pytest.importorskip("mcp")

from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402

from optimizer.cli.mcp_server import inside, model_name, server  # noqa: E402 - only where the extra is installed
from tests.conftest import Command  # noqa: E402


def called(root: Path, tool: str, arguments: dict[str, Any], timeout_s: float = 60.0) -> Any:
    """What the tool answers, by a client in the same process."""

    async def ask() -> Any:
        async with mcp.Client(server(root, timeout_s)) as client:
            return await client.call_tool(tool, arguments)

    return anyio.run(ask)


def document(answer: Any) -> dict[str, Any]:
    assert not answer.is_error, answer.content[0].text
    found: dict[str, Any] = json.loads(answer.content[0].text)
    return found


def test_the_tools_are_the_commands(clean_environment: Path) -> None:
    async def listed() -> list[str]:
        async with mcp.Client(server(clean_environment, 60.0)) as client:
            return [tool.name for tool in (await client.list_tools()).tools]

    assert set(anyio.run(listed)) == {"plan", "size", "offers", "compare", "import_file", "guide"}


def test_a_tool_answers_with_the_json_of_the_command(costopt: Command, clean_environment: Path) -> None:
    answer = document(called(clean_environment, "size", {"model": "8B", "gpu": "L4"}))
    assert answer == json.loads(costopt("size", "--model", "8B", "--gpu", "L4", "-f", "json").out)


def test_a_plan_and_a_file_are_answered(clean_environment: Path) -> None:
    made = document(called(clean_environment, "plan", {"model": "8B", "rate": 1, "provider": ["aws"]}))
    assert made["instances"]
    Path("task.yaml").write_text("resources: {accelerators: 'L4:1'}\nrun: vllm serve meta-llama/Llama-3.1-8B -tp 1\n")
    imported = document(called(clean_environment, "import_file", {"file": "task.yaml"}))
    assert imported["schema"] == "costopt.import"


def test_a_training_run_is_planned(costopt: Command, clean_environment: Path) -> None:
    wanted = {"model": "8B", "task": "lora", "tokens": "50M", "deadline": "24h", "provider": ["runpod"]}
    made = document(called(clean_environment, "plan", wanted))
    words = ("--model", "8B", "--task", "lora", "--tokens", "50M", "--deadline", "24h", "--provider", "runpod")
    assert made == json.loads(costopt("plan", *words, "-f", "json").out)
    fastest = document(called(clean_environment, "plan", wanted | {"budget_usd_per_run": 20}))
    assert fastest["jobs"][0]["hours"] <= made["jobs"][0]["hours"]


@pytest.mark.parametrize(("task", "budget"), [("lora", "budget_usd_per_month"), ("infer", "budget_usd_per_run")])
def test_a_budget_of_the_other_kind_is_refused(clean_environment: Path, task: str, budget: str) -> None:
    answer = called(clean_environment, "plan", {"model": "8B", "task": task, budget: 100})
    assert answer.is_error
    assert "budget_usd_per_run to train" in answer.content[0].text


def test_offers_are_cut_and_the_rest_is_counted(clean_environment: Path) -> None:
    answer = document(called(clean_environment, "offers", {"gpu": ["H100"]}))
    assert len(answer["offers"]) == 100
    assert answer["left_out"] > 0


def test_a_mistake_is_an_error_with_the_message(clean_environment: Path) -> None:
    answer = called(clean_environment, "size", {"model": "70Bx", "gpu": "H100"})
    assert answer.is_error
    assert "unknown model" in answer.content[0].text


@pytest.mark.parametrize("name", ["context", "input_tokens", "output_tokens"])
def test_what_training_does_not_take_is_refused(clean_environment: Path, name: str) -> None:
    answer = called(clean_environment, "size", {"model": "1B", "gpu": "L4", "task": "lora", name: 512})
    assert answer.is_error
    assert f"--{name.replace('_', '-')} is for --task infer" in answer.content[0].text


@pytest.mark.parametrize("tool", ["plan", "size", "offers", "compare", "import_file", "guide"])
def test_an_argument_that_a_tool_does_not_have_is_refused(clean_environment: Path, tool: str) -> None:
    given = {"plan": {"model": "8B"}, "size": {"model": "8B", "gpu": "L4"}, "import_file": {"file": "x"}}
    answer = called(clean_environment, tool, {**given.get(tool, {}), "budget": 5000})
    assert answer.is_error
    assert "budget" in answer.content[0].text
    assert "not permitted" in answer.content[0].text


def test_a_tool_that_takes_too_long_is_stopped(clean_environment: Path) -> None:
    answer = called(clean_environment, "guide", {}, timeout_s=0.05)
    assert answer.is_error
    assert "stopped after" in answer.content[0].text


@pytest.mark.parametrize("timeout_s", [0.0001, 0.001, 0.002])
def test_a_tool_that_is_stopped_while_it_starts_leaves_no_process(
    clean_environment: Path, monkeypatch: pytest.MonkeyPatch, timeout_s: float
) -> None:
    left: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda found: left.append(found.exc_value))
    for _ in range(5):
        assert called(clean_environment, "guide", {}, timeout_s=timeout_s).is_error
    gc.collect()
    assert left == []


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link", "loop", "a\0b"])
def test_files_outside_the_folder_are_refused(clean_environment: Path, name: str) -> None:
    Path("link").symlink_to("/etc/passwd")
    Path("loop").symlink_to("loop")
    with pytest.raises(ToolError):
        inside(name, clean_environment.resolve())


@pytest.mark.parametrize("name", ["/etc", "../model", "~/model", "org/../../etc", "x/config.json/../../../y.json"])
def test_a_model_that_is_a_path_elsewhere_is_refused(clean_environment: Path, name: str) -> None:
    root = clean_environment.resolve()
    with pytest.raises(ToolError):
        assert Path(model_name(name, root)).is_relative_to(root)
        raise ToolError("it stays inside")


def test_a_value_is_never_an_option(clean_environment: Path) -> None:
    answer = called(clean_environment, "size", {"model": "--output=owned", "gpu": "H100"})
    assert answer.is_error
    assert not Path("owned").exists()


def test_it_serves_over_standard_input_and_output(clean_environment: Path) -> None:
    start = "from optimizer.cli.main import main; main()"
    parameters = mcp.StdioServerParameters(
        command=sys.executable, args=["-c", start, "mcp"], env=dict(os.environ), cwd=str(clean_environment)
    )

    async def ask() -> Any:
        async with mcp.Client(parameters) as client:
            return await client.call_tool("size", {"model": "8B", "gpu": "L4"})

    assert document(anyio.run(ask))["verdict"] == "fits"


def test_a_folder_that_is_none_is_a_usage_error(costopt: Command) -> None:
    assert costopt("mcp", "--folder", "nowhere").code == 2
