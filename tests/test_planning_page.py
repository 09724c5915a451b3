"""The files on the planning page are read as they stand there."""

import re
from pathlib import Path

from optimizer.plans.market_files import parse_current, parse_quotas
from optimizer.workload.workload_file import WorkloadEntry, parse_workloads
from tests.builders import make_offer

PAGE = (Path(__file__).parent.parent / "docs" / "planning.md").read_text(encoding="utf-8")


def block(name: str) -> str:
    """The YAML that the page shows under that name."""
    found = re.findall(rf"```yaml {name}\n(.*?)```", PAGE, re.DOTALL)
    assert len(found) == 1
    return str(found[0])


def test_the_workload_file_is_read_and_shows_every_field_but_those_of_a_single_shape() -> None:
    chat, code = parse_workloads(block("workloads"), "page")
    assert (chat.name, code.name) == ("chat", "code")
    shown = set(re.findall(r"^ +(?:- )?(\w+):", block("workloads"), re.MULTILINE))
    assert set(WorkloadEntry.model_fields) - shown == {"input_tokens", "output_tokens", "kv_precision"}


def test_the_quota_file_is_read() -> None:
    assert [quota.maximum for quota in parse_quotas(block("quotas"), "page")] == [16, 2]


def test_the_file_of_what_runs_is_read() -> None:
    offers = [
        make_offer(name="p5.48xlarge", count=8, usd="55.04"),
        make_offer(name="g6.12xlarge", gpu="L4", count=4, usd="4.6"),
    ]
    assert [(h.running, h.committed) for h in parse_current(block("running"), "page", offers)] == [(1, 1), (2, 0)]
