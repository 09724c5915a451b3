"""Python values mean what the flags' words mean; what is wrong is told by the argument's name."""

import io
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

import optimizer
from optimizer import (
    CacheError,
    CostoptError,
    InferenceWorkload,
    InvalidValue,
    NoUsablePrices,
    PurchaseOption,
    RequestShape,
    ShapeDemand,
    SolverError,
    UnknownName,
    UsageError,
)
from optimizer.api.python_words import errors_in_python
from optimizer.cli.app import COMMANDS, application

LIMITED = ("plan", "size", "compare", "offers")


@pytest.fixture(autouse=True)
def settings(clean_environment: Path) -> None:
    """No file, variable or clock of this machine counts."""


@pytest.mark.parametrize("budget", [5000, 5000.0, "5000", Decimal("5000.00"), np.int64(5000), np.float64(5000)])
def test_money_may_be_any_number(budget: Any) -> None:
    made = optimizer.plan("8B", budget=budget, provider="gcp")
    assert made.document["budget_usd_per_month"] == "5000.00"


@pytest.mark.parametrize("tokens", ["1B", 1e9, 10**9, Decimal("1e9"), np.float64(1e9)])
def test_tokens_may_be_any_number(tokens: Any) -> None:
    made = optimizer.plan("8B", task="lora", tokens=tokens, provider="runpod")
    assert made.document["workloads"][0]["tokens"] == 10**9


@pytest.mark.parametrize(
    ("deadline", "hours"),
    [
        *(
            ("2d", 48),
            (timedelta(days=2), 48),
            (timedelta(hours=36, minutes=30), 36.5),
            (2, 48),
            (np.timedelta64(48, "h"), 48),
        ),
        *((date(2026, 12, 2), 60), (datetime(2026, 12, 2, 18, tzinfo=UTC), 54)),
        (datetime(2026, 12, 2, 18, tzinfo=timezone(timedelta(hours=6))), 48),
    ],
)
def test_a_deadline_may_be_a_duration_a_moment_or_a_day(deadline: Any, hours: float) -> None:
    made = optimizer.plan("1B", task="lora", tokens="10M", deadline=deadline, provider="aws")
    assert made.document["workloads"][0]["deadline_hours"] == hours


@pytest.mark.parametrize(
    ("deadline", "message"),
    [
        (datetime(2026, 12, 2, 18), "deadline '2026-12-02 18:00:00': say in which time zone"),  # noqa: DTZ001
        (datetime(2026, 11, 30, 11, tzinfo=UTC), "lies in the past"),
        (timedelta(hours=-1), "write a duration above 0"),
        (np.datetime64("NaT"), "deadline None: give a timedelta, or a text like 12h or 30d"),
        (np.array(["2026-12-02"], dtype="datetime64[D]"), "give a timedelta, or a text"),
    ],
)
def test_a_deadline_that_is_past_or_unclear_is_refused(deadline: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        optimizer.plan("1B", task="lora", tokens="10M", deadline=deadline)


def test_a_path_may_start_at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "q.yaml").write_text("quotas: [{accelerator: L4, maximum: 1}]\n", encoding="utf-8")
    (tmp_path / "t.csv").write_text("timestamp,input_tokens,output_tokens\n0,100,10\n9,100,10\n", encoding="utf-8")
    jobs = "jobs: [{name: tune, model: 1B, task: lora, tokens: 10M, deadline: 9d}]\n"
    (tmp_path / "jobs.yaml").write_text(jobs, encoding="utf-8")
    limited = optimizer.plan("8B", rate=12, gpu="L4", quota="~/q.yaml")
    assert limited.document["shortfalls"][0]["limit"] == "quota of L4"
    assert optimizer.plan("8B", trace="~/t.csv", provider="aws").document["trace"]["requests"] == 2
    tuning = optimizer.plan(workload="~/jobs.yaml", provider="aws")
    assert {path.parent for path in tuning.export("fsdp", "~/launch").paths} == {tmp_path / "launch"}
    with pytest.raises(UsageError, match="model file"):
        optimizer.size("~nobody-at-all/model.json", gpu="L4")


@pytest.mark.parametrize(
    "day", ["2026-08-31", date(2026, 8, 31), datetime(2026, 8, 31, 9, tzinfo=UTC), np.datetime64("2026-08-31", "ns")]
)
def test_the_day_of_prices_may_be_a_date(day: Any) -> None:
    made = optimizer.plan("8B", rate=1, provider="aws", as_of=day)
    assert made.document["prices"]["as_of_newest"] <= "2026-08-31"


def test_words_may_be_one_several_or_an_iterator() -> None:
    one, many, lazy = (
        optimizer.offers(gpu="L4", provider=provider).document
        for provider in ("aws", ["aws"], (name for name in ("aws",)))
    )
    assert one == many == lazy


def test_a_set_of_words_has_no_order() -> None:
    several = ["V100", "T4", "L40S", "L4", "H200", "H100", "B200", "A100", "A10G"]
    lists, sets = (optimizer.plan("8B", rate=1, provider="aws", gpu=gpu) for gpu in (sorted(several), set(several)))
    assert sets.to_json() == lists.to_json()


def test_a_purchase_option_may_be_the_type() -> None:
    made = optimizer.plan("8B", rate=1, provider="aws", purchase=PurchaseOption.SPOT)
    assert {one["purchase_option"] for one in made.instances} == {"spot"}


@pytest.mark.parametrize("count", [4, np.int64(4), np.uint8(4), 4.0, np.float64(4)])
def test_whole_numbers_may_be_of_any_type(count: Any) -> None:
    assert optimizer.size("70B", gpu="H100", count=count).document["count"] == 4


def workload(name: str = "chat", rate: float | None = 4.0) -> InferenceWorkload:
    shape = RequestShape(input_tokens=800, output_tokens=200)
    return InferenceWorkload(name=name, model="8B", demands=(ShapeDemand(shape=shape, requests_per_s=rate),))


def test_a_workload_may_be_a_file_its_content_or_an_object() -> None:
    entry = {"name": "chat", "model": "8B", "rate": 4, "input_tokens": 800, "output_tokens": 200}
    text = "workloads:\n  - {name: chat, model: 8B, rate: 4, input_tokens: 800, output_tokens: 200}\n"
    Path("w.yaml").write_text(text, encoding="utf-8")
    given = (
        *("w.yaml", Path("w.yaml"), io.StringIO(text), io.BytesIO(text.encode("utf-8-sig"))),
        *({"workloads": [entry]}, workload(), [workload()], iter([workload()])),
    )
    documents = [optimizer.plan(workload=one, provider="aws").document for one in given]
    assert all(document == documents[0] for document in documents[1:])


def test_a_log_may_be_a_file_or_rows() -> None:
    rows = [{"timestamp": i * 0.5, "input_tokens": 200 + i, "output_tokens": 20} for i in range(100)]
    text = "timestamp,input_tokens,output_tokens\n" + "".join(f"{','.join(map(str, r.values()))}\n" for r in rows)
    plans = [optimizer.plan("8B", trace=given, provider="aws") for given in (rows, io.StringIO(text))]
    assert plans[0].document == plans[1].document
    assert plans[0].document["trace"]["requests"] == 100


@pytest.mark.parametrize("text", ["jobs: [{}]", "{{jobs: [{}]}}", '{{"jobs": [{}]}}', "# tuning\n---\n'jobs':\n- {}\n"])
def test_jobs_are_known_however_yaml_writes_them(text: str) -> None:
    Path("jobs.yaml").write_text(text.format("{name: tune, model: 1B, task: lora, tokens: 10M, deadline: 9d}"))
    assert optimizer.plan(workload="jobs.yaml", provider="aws").is_training


def test_jobs_may_be_content() -> None:
    jobs = {"jobs": [{"name": "tune", "model": "1B", "task": "lora", "tokens": "10M", "deadline": "9d"}]}
    made = optimizer.plan(workload=jobs, provider="aws")
    assert made.is_training
    assert [job["workload"] for job in made.jobs] == ["tune"]


def test_quotes_costs_quotas_and_holdings_may_be_content() -> None:
    quote = {"vendor": "Acme", "gpu": "H100 SXM", "price": 2.1, "price_unit": "gpu_hour", "currency": "USD"}
    costs = {"storage_gb": 100, "sellers": {"default": {"storage_usd_per_gb_month": Decimal("0.08")}}}
    found = optimizer.compare(gpu="H100-SXM5-80GB", count=8, quotes=[quote], costs=costs, provider="lambda")
    assert "Acme" in {quote["vendor"] for quote in found.document["quotes"]}
    missing = [quote | {"term_months": term} for term in (12, float("nan"), None)]
    found = optimizer.compare(gpu="H100-SXM5-80GB", count=8, quotes=missing, provider="lambda")
    assert [quote["term_months"] for quote in found.document["quotes"]] == [12, None, None]
    limited = optimizer.plan("8B", rate=12, gpu="L4", quota={"quotas": [{"accelerator": "L4", "maximum": np.int64(1)}]})
    assert limited.document["shortfalls"][0]["limit"] == "quota of L4"
    runs = {"running": [{"provider": "aws", "instance_type": "g6.xlarge", "region": "us-east-1", "count": 1}]}
    assert optimizer.plan("8B", rate=1, provider="aws", current=runs).document["changes"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rate": "fast"}, "rate 'fast': give a number"),
        ({"rate": True}, "rate True: give a number"),
        ({"rate": float("nan")}, "rate nan: give a finite number above 0"),
        ({"rate": -1}, "rate -1.0: give a finite number above 0"),
        ({"rate": 1, "budget": "5k"}, "budget '5k': write USD as a plain number"),
        ({"rate": 1, "budget": float("inf")}, "budget 'inf': "),
        ({"rate": 1, "budget": Decimal("1e999999")}, "budget '1E+999999': give at most 1,000,000,000 USD"),
        ({"rate": 10**9999}, "rate 'number of 33,216 bits': give a number"),
        ({"rate": 1, "budget": b"5"}, "budget b'5': give a number"),
        ({"rate": 1, "input_tokens": 10.5}, "input_tokens 10.5: give a whole number of at least 1"),
        ({"rate": 1, "input_tokens": 0}, "input_tokens 0: give a whole number of at least 1"),
        (
            {"rate": 1, "input_tokens": 10**9999},
            "input_tokens 'number of 33,216 bits': give a whole number of at most",
        ),
        ({"rate": 1, "min_providers": 6}, "min_providers 6: give a whole number of at most 5"),
        ({"rate": 1, "max_spot_share": 1.5}, "max_spot_share 1.5: give a share from 0 to 1"),
        ({"rate": 1, "max_age": "soon"}, "max_age 'soon': write a duration"),
        ({"rate": 1, "as_of": date(2030, 1, 1)}, "as_of '2030-01-01': "),
        ({"rate": 1, "offline": "yes"}, "offline 'yes': give True or False"),
        ({"rate": 1, "provider": 3}, "provider 3: give a text, or a list of texts"),
        ({"rate": 1, "provider": [3]}, "provider 3: give a text"),
        ({"rate": 1, "provider": []}, "provider []: nothing can pass an empty list; None is for no such limit"),
        ({"rate": 1, "gpu": b"L4"}, "gpu b'L4': give a text, or a list of texts"),
        ({"rate": np.array([1.0])}, "rate array([1.]): give a number"),
        ({"rate": 1, "max_gpus": float("nan")}, "max_gpus nan: give a whole number of at least 1"),
        ({"rate": 1, "as_of": 7}, "as_of 7: give a date, or a text like 2026-08-31"),
        ({"rate": 1, "quota": set(range(999))}, "…: give a path, an open file, or its content: a mapping"),
        ({"rate": 1, "engine": 3}, "engine 3: give a text"),
        ({"rate": 1, "tokens": "1B"}, "tokens is for training; add task train, finetune, lora or qlora"),
        ({"task": "lora"}, "task lora needs tokens: how many tokens to train on, like tokens=1B"),
        ({"task": "lora", "tokens": "1B", "rate": 1}, "rate is for task infer; a lora run does not take it"),
        ({"rate": 1, "trace_rate": "mean"}, "trace_rate is for trace; give trace=FILE, or leave it out"),
        ({"trace": "t.csv", "input_tokens": 5}, "input_tokens has no effect on trace: its rows say it; leave it out"),
        ({"task": "lora", "tokens": "1B", "same_region": True}, "same_region is for task infer"),
        ({"task": "train", "tokens": "1B", "lora_rank": 8}, "lora_rank is for task lora or qlora"),
        ({"rate": 1, "workload": "w.yaml"}, "workload replaces model, trace and rate: give them in the file"),
        ({"rate": 1, "quota": 7}, "quota 7: give a path, an open file, or its content: a mapping"),
        ({"rate": 1, "quota": {"quotas": object()}}, "quota 'dict': cannot be written as YAML"),
        ({"rate": 1, "quota": io.BytesIO(b"\xff\xfe\xff")}, "quota is not UTF-8 text"),
        ({"trace": [1, 2]}, "trace [1]: give a list of rows, each a mapping of column to value"),
        ({"trace": {"timestamp": [1, 2]}}, "or its content: a list with a mapping for each row"),
        ({"rate": 1, "quota": [{"accelerator": "L4", "maximum": 3}]}, "or its content: a mapping"),
        ({"rate": 1, "measured": 7}, "or its content: a mapping or a list with a mapping for each row"),
        ({"trace": []}, "trace []: give a list of rows"),
        ({"trace": "\0"}, "trace '\\x00': no file has such a name"),
        ({"trace": "no.csv"}, "trace 'no.csv' cannot be read: No such file or directory"),
    ],
)
def test_what_is_wrong_is_told_by_the_name_of_the_argument(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        optimizer.plan("8B", **arguments)
    assert message in str(raised.value)
    assert "--" not in str(raised.value)


def test_what_accelerators_or_jobs_do_not_take_is_refused() -> None:
    with pytest.raises(UsageError, match="context has no effect on count: it is of a served model; leave it out"):
        optimizer.compare(gpu="L4", count=4, context=8192)
    jobs = {"jobs": [{"name": "tune", "model": "1B", "task": "lora", "tokens": "10M"}]}
    with pytest.raises(UsageError, match="micro_batch has no effect on workload: give it in the file, to each job"):
        optimizer.plan(workload=jobs, micro_batch=2)


def test_an_invalid_value_says_which_argument_and_keeps_the_value() -> None:
    with pytest.raises(InvalidValue) as raised:
        optimizer.plan("8B", rate=1, confidence=Fraction(3, 2))
    assert (raised.value.what, raised.value.value) == ("confidence", 1.5)


@pytest.mark.parametrize("kind", [UsageError, NoUsablePrices, CacheError, SolverError])
def test_every_error_keeps_its_class_and_speaks_of_arguments(kind: type[CostoptError]) -> None:
    with pytest.raises(kind) as raised, errors_in_python():
        raise kind("CBC failed; try --solver highs, or `costopt prices --solver`")
    assert type(raised.value) is kind
    assert str(raised.value) == "CBC failed; try solver highs, or `costopt prices --solver`"


def test_none_is_the_default() -> None:
    assert optimizer.plan("8B", rate=1, provider="aws", min_providers=None, task=None) == optimizer.plan(  # type: ignore[arg-type]
        "8B", rate=1, provider="aws"
    )
    with pytest.raises(InvalidValue, match="model None: it has no default"):
        optimizer.size(None, gpu="L4")  # type: ignore[arg-type]


def test_an_unknown_name_has_suggestions() -> None:
    with pytest.raises(UnknownName) as raised:
        optimizer.plan("8B", rate=1, provider="amazon")
    assert raised.value.kind == "provider"
    with pytest.raises(UnknownName) as raised:
        optimizer.size("8B", gpu="H1000")
    assert "H100" in " ".join(raised.value.suggestions)


def test_objects_need_names_of_their_own() -> None:
    with pytest.raises(UsageError, match="two workloads are named 'chat'"):
        optimizer.plan(workload=[workload(), workload(rate=1)])
    with pytest.raises(UsageError, match="no workloads"):
        optimizer.plan(workload=[])
    with pytest.raises(InvalidValue, match="InferenceWorkload objects"):
        optimizer.plan(workload=["chat"])  # type: ignore[list-item]


def test_objects_are_for_serving() -> None:
    with pytest.raises(UsageError, match="are for serving"):
        optimizer.plan(workload=workload(), task="train")


@pytest.mark.parametrize("command", LIMITED)
def test_numbers_have_the_bounds_of_their_flags(command: str) -> None:
    """The command line refuses what is outside; so must each function, at both ends."""
    assert command in COMMANDS
    context = click.Context(application())
    bounded = [p for p in application().get_command(context, command).params if hasattr(p.type, "min")]
    required: dict[str, dict[str, Any]] = {"size": {"model": "8B", "gpu": "L4"}, "plan": {"model": "8B"}}
    function = getattr(optimizer, command)
    tried = 0
    for parameter in bounded:
        if parameter.name == "limit":  # of a table's rows
            continue
        for bound, outside in ((parameter.type.min, -1), (parameter.type.max, 1)):
            if bound is None:
                continue
            with pytest.raises(InvalidValue) as raised:
                function(**required.get(command, {}), **{parameter.name: bound + outside})
            assert raised.value.what == parameter.name
            tried += 1
    assert tried >= len(bounded) - 1 > 0
