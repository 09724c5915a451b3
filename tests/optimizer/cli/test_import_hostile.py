"""`costopt import` of files that mean harm or are none: refused in one line, within bounds, nothing run or opened."""

import gzip
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import Command

SERVE = "run: vllm serve meta-llama/Llama-3.1-8B\n"
REFUSED = {
    "anchors": b"a: &a [x, x]\nb: &b [*a, *a]\nresources: *b\n",
    "merge key": b"resources:\n  <<: {accelerators: H100:8}\n" + SERVE.encode(),
    "two keys": b"resources:\n  accelerators: H100:8\n  accelerators: A100:8\n",
    "object": b"resources: !!python/object/apply:os.system ['touch harm']\n",
    "deep flow": b"a: " + b"[" * 200_000,
    "deep block": b"".join(b" " * i + b"k:\n" for i in range(1500)),
    "deep JSON": b'{"a":' * 100_000,
    "many values": b"x: [" + b"1," * 300_000 + b"1]\n",
    "huge number": b"num_nodes: " + b"9" * 5000 + b"\nresources: {accelerators: H100}\n",
    "tab": b"resources:\n\taccelerators: H100:8\n",
    "binary": bytes(range(256)) * 10,
    "zeros": b"\0" * 1000,
    "Latin-1": "name: é\nresources: {accelerators: H100}\n".encode("latin-1"),
    "escape character": b"name: a\x1b[2J\nresources: {accelerators: H100}\n",
    "long line": b"vllm serve " + b"a" * 1_000_000,
    "prose": b"Dear all,\nplease find attached.\n",
    "empty": b"",
    "comments": b"# nothing\n\n",
    "packed zeros": gzip.compress(b"\0" * 50_000_000),
    "packed, cut off": gzip.compress(SERVE.encode() * 1000)[:-20],
    "no packing": b"\x1f\x8bnothing",
}
LONGEST_S = 30.0
"""On a slow machine; a few seconds are usual."""


@pytest.mark.parametrize("content", REFUSED.values(), ids=REFUSED.keys())
def test_a_hostile_file_is_refused_in_one_line_and_in_time(costopt: Command, content: bytes) -> None:
    Path("file").write_bytes(content)
    started = time.monotonic()
    outcome = costopt("import", "file")
    assert outcome.code == 2, outcome.out
    assert outcome.err.startswith("costopt: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert "unexpected failure" not in outcome.err
    assert time.monotonic() - started < LONGEST_S
    assert not Path("harm").exists()


@pytest.mark.parametrize("name", ["anchors", "merge key", "two keys", "object", "many values", "huge number", "tab"])
def test_what_is_refused_of_yaml_has_its_line(costopt: Command, name: str) -> None:
    Path("file.yaml").write_bytes(REFUSED[name])
    assert ", line " in costopt("import", "file.yaml").err


@pytest.mark.parametrize(
    "value",
    ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\u202e", "\r"],
    ids=["clear", "title", "C1", "right to left", "return"],
)
@pytest.mark.parametrize("format_", ["table", "md"])
def test_no_name_of_a_file_commands_the_terminal(costopt: Command, value: str, format_: str) -> None:
    named = json.dumps(f"x{value}y")
    text = f"name: {named}\nresources: {{infra: {named}, accelerators: {named}}}\nenvs: {{MODEL: {named}}}\n"
    Path("file.yaml").write_text(text + "run: vllm serve $MODEL\n")
    outcome = costopt("import", "file.yaml", "-f", format_)
    assert outcome.code == 3
    assert value not in outcome.out
    assert value not in outcome.err


def test_markup_in_names_is_not_markup_in_markdown(costopt: Command) -> None:
    text = "name: '<img src=x>|y'\nresources: {accelerators: 'H100:8'}\nrun: vllm serve '<script>'\n"
    Path("file.yaml").write_text(text)
    out = costopt("import", "file.yaml", "-f", "md").out
    assert "<img" not in out
    assert "<script" not in out


def test_a_formula_in_a_name_is_no_formula_in_csv(costopt: Command) -> None:
    Path("file.yaml").write_text("name: '=cmd|x'\nresources: {accelerators: 'H100'}\n" + SERVE)
    out = costopt("import", "file.yaml", "-f", "csv").out
    assert "'=cmd|x" in out


@pytest.mark.parametrize(
    "model", ["../../etc/passwd", "/etc/passwd", "./config.json", "$(touch harm)", "a; touch harm"]
)
def test_paths_and_commands_in_a_file_are_neither_opened_nor_run(costopt: Command, model: str) -> None:
    Path("config.json").write_text("{}")
    Path("file.yaml").write_text(f"resources: {{accelerators: H100}}\nrun: vllm serve '{model}'\n")
    outcome = costopt("import", "file.yaml", "-f", "json")
    assert outcome.code == 3
    (service,) = json.loads(outcome.out)["services"]
    assert any("model" in fault["fault"] for fault in service["faults"])
    assert not Path("harm").exists()


@pytest.mark.parametrize(
    "line",
    [
        "num_nodes: .nan",
        "num_nodes: -3",
        "num_nodes: 99999999999999999999",
        "service: {replicas: .inf}",
        "resources: {accelerators: {H100: .inf}}",
        "resources: {accelerators: {H100: 0}}",
        "resources: {accelerators: 'H100:-1'}",
        "resources: []",
        "envs: 3",
        "run: [a, b]",
        "run: vllm serve meta-llama/Llama-3.1-8B -tp 99999999999999999999 --max-model-len nan -dp 0",
        "run: vllm serve meta-llama/Llama-3.1-8B --gpu-memory-utilization 7 --max-model-len 1e999",
        "run: vllm serve --model --tensor-parallel-size",
        "run: torchrun --nproc_per_node 0 t.py --per_device_train_batch_size 999999 --max_length 999999",
        "run: torchrun --nproc_per_node nan t.py --micro-batch-size -1 --lora_r 99999999",
    ],
)
def test_values_out_of_all_bounds_are_faults_not_failures(costopt: Command, line: str) -> None:
    key = line.partition(":")[0]
    rest = {"resources": "resources: {accelerators: H100}", "run": SERVE.strip()}
    Path("file.yaml").write_text("\n".join([line, *(text for name, text in rest.items() if name != key)]) + "\n")
    outcome = costopt("import", "file.yaml")
    assert outcome.code in (0, 2, 3), outcome.err
    assert "unexpected failure" not in outcome.err


def test_folders_devices_and_loops_are_refused(costopt: Command) -> None:
    Path("folder").mkdir()
    Path("loop").symlink_to("loop")
    Path("device").symlink_to("/dev/zero")
    with Path("large").open("wb") as file:
        file.truncate(3_000_000)
    for name, words in {
        "folder": "no config.json",
        "loop": "cannot be read",
        "device": "neither a file nor a folder",
        "large": "3,000,000 bytes",
        "missing": "No such file",
        "a\0b": "cannot be read",
    }.items():
        outcome = costopt("import", name)
        assert outcome.code == 2
        assert words in outcome.err


@contextmanager
def pipe(content: bytes) -> Iterator[str]:
    """A pipe with content, by the name that a shell gives it."""
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    yield f"/dev/fd/{reader}"
    os.close(reader)


def test_a_pipe_that_somebody_writes_to_is_read(costopt: Command) -> None:
    with pipe(b"resources: {accelerators: 'H100'}\n" + SERVE.encode()) as name:
        assert costopt("import", name).code == 0


def test_many_faulty_rows_are_counted_not_printed(costopt: Command) -> None:
    def rows() -> Iterator[str]:
        yield "timestamp,input_tokens,output_tokens"
        for second in range(1000):
            yield f"{second},10,10"
            if second % 2:
                yield f"{second},\x1b[31m,=1+1"

    Path("log.csv").write_text("\n".join(rows()))
    outcome = costopt("import", "log.csv")
    assert outcome.code == 0, outcome.err
    assert "tokens are not numbers" in outcome.out
    assert "\x1b" not in outcome.out
