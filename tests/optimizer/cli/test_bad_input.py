"""Bad input: one clear message on standard error, the contract's exit code, nothing on standard output."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Command

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}
PLAN = ("plan", "--model", "8B", "--rate", "1")
SIZE = ("size", "--model", "8B", "--gpu", "L4")
HELD = ("compare", "--gpu", "H100-SXM5-80GB", "--count", "8")


def assert_refused(costopt: Command, *arguments: object, says: str, code: int = 2) -> None:
    outcome = costopt(*arguments)
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("costopt: ")
    assert len(outcome.err.splitlines()) == 1
    assert "Traceback" not in outcome.err
    assert says in outcome.err


UNKNOWN_NAMES = [
    (("plan", "--model", "70X", "--rate", "1"), "unknown model '70X'; did you mean 70B?"),
    (("plan", "--model", "", "--rate", "1"), "no model: give --model"),
    (("plan", "--model", "Qwen/Qwen2.5-7.5B", "--rate", "1"), "did you mean Qwen/Qwen2.5-"),
    ((*PLAN, "--gpu", "H1000"), "unknown accelerator 'H1000'; did you mean "),
    ((*PLAN, "--gpu", "H100-40GB"), "known variants of that family: "),
    ((*PLAN, "--gpu", ""), "unknown accelerator ''"),
    ((*PLAN, "--region", "us-est-1"), "unknown region 'us-est-1'; did you mean"),
    ((*PLAN, "--region", ""), "unknown region ''"),
    ((*PLAN, "--provider", "awz"), "unknown provider 'awz'; did you mean aws"),
    ((*PLAN, "--purchase", "spott"), "unknown purchase option 'spott'; did you mean spot?"),
    ((*PLAN, "--format", "xml"), "unknown format 'xml'; known: table, json, csv, md"),
    ((*PLAN, "--precision", "fp7"), "unknown precision 'fp7'; did you mean fp8"),
    ((*PLAN, "--kv-precision", "fp7"), "unknown KV-cache precision 'fp7'"),
    ((*PLAN, "--engine", "vlm"), "unknown engine 'vlm'; did you mean vllm?"),
    ((*PLAN, "--include", "comunity"), "unknown kind to include 'comunity'; did you mean community"),
    ((*PLAN, "--solver", "cuopt"), "solver 'cuopt' is not installed; install it, or give another (installed: "),
    ((*PLAN, "--solver", "gurobbi"), "unknown solver 'gurobbi'"),
    ((*PLAN, "--task", "inference"), "unknown task 'inference'; did you mean infer"),
    (("size", "--model", "8B", "--gpu", "nope"), "unknown accelerator 'nope'"),
    (("offers", "--instance-type", "p5.48xlarg"), "unknown instance type 'p5.48xlarg'; did you mean p5.48xlarge"),
    (("offers", "--sort", "cost"), "unknown sort key 'cost'"),
    (("offers", "--provider", "lamda"), "unknown provider 'lamda'; did you mean lambda?"),
]


@pytest.mark.parametrize(("arguments", "says"), UNKNOWN_NAMES)
def test_an_unknown_name_is_refused_with_what_is_near(costopt: Command, arguments: tuple[str, ...], says: str) -> None:
    assert_refused(costopt, *arguments, says=says)


@pytest.mark.parametrize(
    "budget", ["-5", "-0.01", "0", "nan", "inf", "-inf", "5k", "", " ", "5,000", "$5000", "5000USD", "1e400", "1e13"]
)
def test_a_budget_that_is_no_positive_amount_is_refused(costopt: Command, budget: str) -> None:
    assert_refused(costopt, "--model", "70B", f"--budget={budget}", says=f"--budget {budget!r}: ")


@pytest.mark.parametrize("rate", ["-1", "0", "nan", "inf", "-inf", "1e300"])
def test_a_rate_that_is_no_positive_number_is_refused(costopt: Command, rate: str) -> None:
    assert_refused(costopt, "plan", "--model", "8B", f"--rate={rate}", says=f"--rate {float(rate)!r}: give")


@pytest.mark.parametrize("rate", ["5k", "", "1,5", "one"])
def test_a_rate_that_is_no_number_is_refused(costopt: Command, rate: str) -> None:
    assert_refused(costopt, "plan", "--model", "8B", f"--rate={rate}", says=f"--rate': {rate!r} is not a valid float")


OUT_OF_DOMAIN = [
    ((*PLAN, "--input-tokens", "0"), "input tokens 0: "),
    ((*PLAN, "--output-tokens=-3"), "output tokens -3: "),
    ((*PLAN, "--input-tokens", "1.5"), "'1.5' is not a valid int"),
    ((*PLAN, "--context", "0"), "--context': 0 is not in the range"),
    ((*PLAN, "--ttft-ms", "0"), "TTFT bound in ms 0.0: "),
    ((*PLAN, "--tpot-ms", "nan"), "TPOT bound in ms nan: "),
    ((*PLAN, "--max-utilization", "0"), "utilization of workload 0.0: "),
    ((*PLAN, "--max-utilization", "nan"), "utilization of workload nan: "),
    ((*PLAN, "--max-utilization", "1.2"), "utilization of workload 1.2: "),
    ((*PLAN, "--max-gpus", "0"), "--max-gpus': 0 is not in the range"),
    ((*PLAN, "--min-providers", "6"), "--min-providers': 6 is not in the range"),
    ((*PLAN, "--max-provider-share", "0"), "--max-provider-share 0.0: "),
    ((*PLAN, "--max-spot-share", "nan"), "--max-spot-share nan: "),
    ((*PLAN, "--spare-replicas=-1"), "--spare-replicas': -1 is not in the range"),
    ((*PLAN, "--gap=-0.1"), "--gap -0.1: "),
    ((*PLAN, "--max-nodes", "0"), "--max-nodes': 0 is not in the range"),
    ((*PLAN, "--gpu-memory-utilization", "0"), "--gpu-memory-utilization 0.0: "),
    ((*PLAN, "--gpu-memory-utilization", "1.1"), "--gpu-memory-utilization 1.1: "),
    ((*PLAN, "--max-age", "soon"), "--max-age 'soon': "),
    ((*PLAN, "--max-age", "0d"), "--max-age '0d': "),
    ((*PLAN, "--max-age", "99999999999999d"), "--max-age '99999999999999d': "),
    ((*PLAN, "--max-age", "30m"), "--max-age '30m': write a duration above 0 and up to 1000 years, like 12h, 30d"),
    ((*PLAN, "--horizon", "0m"), "--horizon '0m': write a duration above 0 and up to 1000 years, like 90d, 26w or 6m"),
    ((*PLAN, "--as-of", "3026-01-01"), "--as-of '3026-01-01': what will be known then is not known yet"),
    (("offers", "--as-of", "3026-01-01"), "--as-of '3026-01-01': what will be known then is not known yet"),
    ((*PLAN, "--boot-minutes", "nan"), "--boot-minutes nan: give a finite number from 0 on"),
    ((*PLAN, "--boot-minutes", "inf"), "--boot-minutes inf: give a finite number from 0 on"),
    ((*PLAN, "--min-hours-up", "nan"), "--min-hours-up nan: give a finite number from 0 on"),
    ((*PLAN, "--trace-rate", "mean"), "--trace-rate is for --trace; give --trace FILE, or leave it out"),
    ((*PLAN, "--trace-shapes", "3"), "--trace-shapes is for --trace"),
    ((*PLAN, "--trace", "t.csv", "--input-tokens", "5"), "--input-tokens has no effect on --trace: its rows say it"),
    ((*PLAN, "--trace", "t.csv", "--output-tokens", "5"), "--output-tokens has no effect on --trace"),
    ((*SIZE, "--task", "train", "--lora-rank", "8"), "--lora-rank is for --task lora or qlora; a train run has no"),
    ((*SIZE, "--task", "finetune", "--no-lora-experts"), "--lora-experts is for --task lora or qlora; a finetune run"),
    ((*HELD, "--input-tokens", "5"), "--input-tokens has no effect on --count: it is of a served model"),
    ((*HELD, "--precision", "fp8"), "--precision has no effect on --count"),
    ((*HELD, "--hours", "nan"), "--hours nan: give a finite number above 0"),
    ((*HELD, "--hours", "1e300"), "--hours 1e+300: give at most 8,760,000 hours"),
    ((*SIZE, "--task", "lora", "--host-memory", "nan"), "--host-memory nan: give a finite number above 0"),
    ((*PLAN, "--precision", "auto", "--precision", "fp8"), "--precision auto cannot be combined with fp8"),
    ((*SIZE, "--count", "0"), "--count': 0 is not in the range"),
    ((*SIZE, "--count", "99999999"), "--count': 99999999 is not in the range"),
    ((*SIZE, "--tp", "2"), "layout 'TP2': needs 2 accelerators, 1 given"),
    ((*SIZE, "--count", "4", "--pp", "3"), "pipeline stages 3: must divide the 4 accelerators"),
    ((*SIZE, "--count", "3", "--tp", "3"), "tensor-parallel degree 3: 32 attention heads do not divide by 3"),
    ((*SIZE, "--concurrency", "0"), "--concurrency': 0 is not in the range"),
    (("offers", "--count", "0"), "--count': 0 is not in the range"),
    (("prices", "diff", "--provider", "awss"), "unknown provider 'awss'; did you mean aws"),
    (("prices", "history", "H100", "--provider", "awss"), "unknown provider 'awss'; did you mean aws"),
    (
        ("prices", "diff", "--from", "2026-09-02", "--to", "2026-09-01"),
        "--from '2026-09-02': give a day before 2026-09",
    ),
    (("prices", "diff", "--to", "3026-01-01"), "--to '3026-01-01': what will be known then is not known yet"),
    (("offers", "--limit", "0"), "--limit': 0 is not in the range"),
    (("offers", "--max-price", "5k"), "--max-price '5k': "),
    (("offers", "--min-memory=-1"), "--min-memory -1.0: "),
]


@pytest.mark.parametrize(("arguments", "says"), OUT_OF_DOMAIN)
def test_a_value_outside_its_domain_is_refused(costopt: Command, arguments: tuple[str, ...], says: str) -> None:
    assert_refused(costopt, *arguments, says=says)


USAGE = [
    (("plan",), "no model: give --model, like --model 70B, or --workload FILE"),
    (("size", "--model", "8B"), "Missing option '--gpu'"),
    (("plan", "--model"), "'--model' requires an argument"),
    (("plan", "--modle", "8B"), "No such option: --modle"),
    ((*PLAN, "extra"), "unexpected extra argument(s) (extra)"),
    (("plam",), "No such command 'plam'"),
    (("--model", "70B", "offers"), "options before the command 'offers' are not read; write: costopt offers --model"),
    (("--model=70B", "offers", "--all"), "options before the command 'offers' are not read"),
    (("-f", "json", "offers"), "options before the command 'offers' are not read; write: costopt offers -f json"),
    (("--budget", "5000", "plan", "--model", "70B"), "options before the command 'plan' are not read"),
]


@pytest.mark.parametrize(("arguments", "says"), USAGE)
def test_a_command_line_that_is_not_understood_is_refused(
    costopt: Command, arguments: tuple[str, ...], says: str
) -> None:
    assert_refused(costopt, *arguments, says=says)


CONFIGS: list[tuple[str, bytes, str]] = [
    ("empty", b"", "is not valid JSON"),
    ("truncated", json.dumps(LLAMA).encode()[:-30], "is not valid JSON"),
    ("binary", bytes(range(256)), "is not valid JSON"),
    ("a list", b"[1, 2]", "holds a list, not an object"),
    ("a string", b'"llama"', "holds a str, not an object"),
    ("nested too deep", b"[" * 100_000, "is not valid JSON"),
    ("huge", b" " * 10_000_001, "has 10000001 bytes: that is no config.json"),
    ("of an unknown architecture", json.dumps({**LLAMA, "model_type": "foo"}).encode(), "'foo' is not known"),
    ("without layers", json.dumps({**LLAMA, "num_hidden_layers": None}).encode(), "num_hidden_layers None: "),
    ("with no heads", json.dumps({**LLAMA, "num_attention_heads": 0}).encode(), "num_attention_heads 0: "),
    ("with a negative size", json.dumps({**LLAMA, "hidden_size": -1}).encode(), "hidden_size -1: "),
    ("with text for a number", json.dumps({**LLAMA, "hidden_size": "4096"}).encode(), "hidden_size '4096': "),
    ("with NaN for a number", json.dumps({**LLAMA, "vocab_size": float("nan")}).encode(), "vocab_size nan: "),
]


@pytest.mark.parametrize(("content", "says"), [c[1:] for c in CONFIGS], ids=[c[0] for c in CONFIGS])
def test_a_config_json_that_describes_no_model_is_refused(costopt: Command, content: bytes, says: str) -> None:
    Path("config.json").write_bytes(content)
    assert_refused(costopt, "size", "--model", "config.json", "--gpu", "L4", says=says)
    assert_refused(costopt, "plan", "--model", ".", "--rate", "1", says="model file 'config.json'")


def test_a_config_json_with_a_byte_order_mark_is_read(costopt: Command) -> None:
    Path("config.json").write_bytes(b"\xef\xbb\xbf" + json.dumps(LLAMA).encode())
    outcome = costopt("size", "--model", "config.json", "--gpu", "L4", "-f", "json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["memory"]["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2


@pytest.mark.parametrize("model", ["./nothing", "nothing.json", "empty", "~/nothing"])
def test_a_path_without_a_config_json_is_refused(costopt: Command, model: str) -> None:
    Path("empty").mkdir()
    assert_refused(costopt, "size", "--model", model, "--gpu", "L4", says="does not exist; give a config.json or")


def test_a_config_json_that_is_a_folder_or_a_pipe_is_refused(costopt: Command) -> None:
    Path("folder/config.json").mkdir(parents=True)
    Path("pipe").mkdir()
    os.mkfifo("pipe/config.json")
    for model in ("folder", "pipe", "pipe/config.json"):
        assert_refused(costopt, "size", "--model", model, "--gpu", "L4", says="is a folder or a device")


def test_a_name_longer_than_any_path_is_refused(costopt: Command) -> None:
    assert_refused(costopt, "size", "--model", "a" * 5000, "--gpu", "L4", says="has 5000 characters")


@pytest.mark.parametrize("output", ["no/such/folder/plan.json", ".", ""])
def test_an_output_that_cannot_be_written_is_refused(costopt: Command, output: str) -> None:
    assert_refused(costopt, *SIZE, "--output", output, says=f"cannot write {output!r}")


def test_nothing_is_lost_when_the_output_cannot_be_written(costopt: Command) -> None:
    Path("plan.json").mkdir()
    assert_refused(costopt, *PLAN, "-f", "json", "-o", "plan.json", says="cannot write 'plan.json': it is a folder")
    assert [path.name for path in Path().iterdir()] == ["plan.json"]


def test_a_read_only_working_directory_hinders_nothing_but_a_file_in_it(
    costopt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("optimizer.api.files.new_file", read_only)
    for command in (SIZE, PLAN, ("offers", "--gpu", "L4")):
        assert costopt(*command).code == 0
    assert_refused(costopt, *SIZE, "-o", "size.txt", says="cannot write 'size.txt': Read-only file system")


@pytest.mark.parametrize("flag", ["--input-tokens", "--output-tokens", "--context", "--concurrency", "--tp"])
def test_a_number_that_nothing_can_be_reckoned_with_is_refused(costopt: Command, flag: str) -> None:
    assert_refused(costopt, *SIZE, flag, 10**400, says=f"{flag} 'number of 1,329 bits': give at most 1,000,000,000,000")


def test_a_command_leaves_no_files_in_the_working_directory(costopt: Command) -> None:
    for command in (SIZE, PLAN, ("offers", "--gpu", "L4")):
        assert costopt(*command).code == 0
    assert list(Path().iterdir()) == []


def test_an_output_that_is_a_device_is_written_to_and_not_replaced(costopt: Command) -> None:
    before = Path(os.devnull).stat().st_mode
    assert costopt(*SIZE, "--output", os.devnull).code == 0
    assert Path(os.devnull).stat().st_mode == before


def test_an_output_behind_a_link_replaces_the_file_and_keeps_the_link(costopt: Command) -> None:
    Path("real.txt").write_text("old", encoding="utf-8")
    Path("link.txt").symlink_to("real.txt")
    outcome = costopt(*SIZE, "--output", "link.txt")
    assert (outcome.code, outcome.out) == (0, "")
    assert Path("link.txt").is_symlink()
    assert "estimate" in Path("real.txt").read_text(encoding="utf-8")


def test_now_must_be_a_moment(costopt: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COSTOPT_NOW", "tomorrow")
    assert_refused(costopt, "offers", says="COSTOPT_NOW 'tomorrow': write it like 2026-11-30")


def test_an_unexpected_failure_is_one_line_and_its_traceback_is_shown_on_request(
    costopt: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("optimizer.cli.size_output.render", broken)
    assert_refused(costopt, *SIZE, says="unexpected failure: ZeroDivisionError: a bug; run again with -v", code=1)
    assert "Traceback" in costopt(*SIZE, "-v").err


def test_filters_that_leave_nothing_say_which_of_them_did(costopt: Command) -> None:
    outcome = costopt("plan", "--model", "8B", "--rate", "1", "--provider", "lambda", "--gpu", "MI300X")
    assert (outcome.code, outcome.out) == (4, "")
    assert "no offer passes the filters" in outcome.err
    assert "other provider" in outcome.err
    assert "other accelerator" in outcome.err
