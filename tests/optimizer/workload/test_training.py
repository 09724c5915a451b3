"""Training runs: token counts as people write them, and values that make no run."""

from typing import Any

import pytest

from optimizer.workload.jobs_file import parse_jobs
from optimizer.workload.training import TrainingRun, token_count
from providers.errors import InvalidValue, UnknownName, UsageError


def make_run(**over: Any) -> TrainingRun:
    facts: dict[str, Any] = {"name": "run", "model": "7B", "task": "train", "tokens": 1e9, "seq_len": 4096}
    return TrainingRun(**(facts | {"global_batch_tokens": 4_194_304} | over))


@pytest.mark.parametrize(
    ("text", "count"),
    [("1T", 1e12), ("1.5b", 1.5e9), ("300M", 3e8), ("500k", 5e5), ("1000", 1e3), ("2e12", 2e12), ("1,000,000", 1e6)],
)
def test_token_counts_are_read_as_people_write_them(text: str, count: float) -> None:
    assert token_count("--tokens", text) == pytest.approx(count)


@pytest.mark.parametrize("text", ["", "0", "-1B", "1X", "B", "nan", "inf", "1e30", "1 000", "one"])
def test_other_token_counts_are_refused_in_one_message(text: str) -> None:
    with pytest.raises(InvalidValue, match="write a number of tokens above 0"):
        token_count("--tokens", text)


@pytest.mark.parametrize(
    ("over", "error", "message"),
    [
        ({"task": "distill"}, UnknownName, "training task"),
        ({"seq_len": 0}, InvalidValue, "sequence length"),
        ({"tokens": 0.0}, InvalidValue, "training tokens"),
        ({"deadline_hours": 0.0}, InvalidValue, "deadline"),
        ({"global_batch_tokens": 100}, InvalidValue, "at least one sequence"),
        ({"lora_rank": 0}, InvalidValue, "LoRA rank"),
    ],
)
def test_a_value_outside_its_domain_is_refused(over: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make_run(**over)


def test_a_step_has_whole_sequences() -> None:
    assert make_run(global_batch_tokens=10_000).sequences_per_step == 2


def test_jobs_are_read_from_a_file() -> None:
    text = (
        "jobs:\n  - {name: a, model: 7B, tokens: 1T, deadline: 60d}\n  - {name: b, model: 8B, task: lora, tokens: 5}\n"
    )
    first, second = parse_jobs(text, "jobs.yaml")
    assert (first.name, first.task, first.tokens, first.deadline) == ("a", "train", "1T", "60d")
    assert (second.task, second.tokens) == ("lora", "5")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("jobs: []", "jobs"),
        ("jobs:\n  - {name: a, model: 7B}\n", "tokens"),
        ("jobs:\n  - {name: a, model: 7B, tokens: 1T, tokenz: 2}\n", "tokenz"),
        ("jobs:\n  - {name: a, model: 7B, tokens: 1T}\n  - {name: a, model: 7B, tokens: 1T}\n", "two jobs are named"),
        ("jobs: [", "valid YAML"),
        ("- 1", "jobs.yaml"),
    ],
)
def test_a_faulty_jobs_file_is_refused_with_the_field(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_jobs(text, "jobs.yaml")
