"""Golden outputs: what the main commands print, byte for byte, in every format.

After a change that is meant to change them: `pytest tests/golden --update-golden`, then read the difference in git.
"""

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Command, Outcome

OUTPUTS = Path(__file__).parent / "outputs"
DATA = Path(__file__).parent.parent / "data"
FORMATS = {"json": "json", "table": "txt", "csv": "csv", "md": "md"}
COMMANDS = {
    "main": ("--model 70B --task infer --budget 5000", 0),
    "rate": ("plan --model llama-3.1-8b --rate 20 --provider aws --provider gcp --provider lambda --explain", 0),
    "infeasible": ("plan --model 70B --budget 300 --provider aws", 3),
    "trace_chat": ("plan --model 70B --trace azure_llm_2023_conv.csv.gz", 0),
    "trace_code": ("plan --model 70B --trace azure_llm_2023_code.csv.gz", 0),
    "size": ("size --model 70B --gpu H100 --count 2 --precision fp8 --context 8192", 0),
    "size_does_not_fit": ("size --model meta-llama/Meta-Llama-3-70B-Instruct --precision bf16 --gpu A100-80GB", 0),
    "offers": (
        "offers --gpu H200 --provider aws --provider lambda --provider runpod --purchase on-demand --sort gpu-price",
        0,
    ),
}


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_prints_what_it_did(
    costopt: Command, request: pytest.FixtureRequest, name: str, format_: str
) -> None:
    command, code = COMMANDS[name]
    for file in DATA.glob("azure_*"):
        Path(file.name).symlink_to(file)
    outcome = costopt(*shlex.split(command), "--format", format_)
    assert outcome.code == code, outcome.err
    golden = OUTPUTS / f"{name}.{FORMATS[format_]}"
    if request.config.getoption("--update-golden"):
        golden.write_text(normal(outcome), encoding="utf-8")
    assert normal(outcome) == golden.read_text(encoding="utf-8")


def test_every_golden_file_belongs_to_a_command() -> None:
    expected = {f"{name}.{extension}" for name in COMMANDS for extension in FORMATS.values()}
    assert {path.name for path in OUTPUTS.iterdir()} == expected


def normal(outcome: Outcome) -> str:
    """The printed text without the solver's version, which is the machine's and not ours."""
    return re.sub(r"HiGHS \d+\.\d+\.\d+", "HiGHS", outcome.out)
