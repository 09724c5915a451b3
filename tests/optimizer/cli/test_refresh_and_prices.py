"""`costopt refresh` against a local server that speaks Lambda's API, and `costopt prices` on what it left."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from pricing_cache.location import locate
from tests.conftest import Command, Outcome
from tests.providers.server import HANG, LocalServer, Replay, Served

KEY = "a-secret-key-of-lambda"
H100 = "gpu_8x_h100_sxm5"
A10 = "gpu_1x_a10"


def instance_type(name: str, gpus: int, gpu: str, cents: int, region: str = "us-west-1") -> dict[str, Any]:
    specs = {"vcpus": 26 * gpus, "memory_gib": 225 * gpus, "storage_gib": 1000, "gpus": gpus}
    row = {"name": name, "description": gpu, "gpu_description": gpu, "price_cents_per_hour": cents, "specs": specs}
    return {"instance_type": row, "regions_with_capacity_available": [{"name": region, "description": ""}]}


class LambdaApi:
    """Lambda's list of instance types, in cents per hour, and what else it may answer."""

    def __init__(self) -> None:
        self.cents = {H100: 3192, A10: 129}
        self.answer: Served | None = None

    def __call__(self, _: object) -> Served:
        if self.answer is not None:
            return self.answer
        types = {
            H100: instance_type(H100, 8, "H100 (80 GB SXM5)", self.cents.get(H100, 0)),
            A10: instance_type(A10, 1, "A10 (24 GB PCIe)", self.cents.get(A10, 0)),
        }
        return Served.json({"data": {name: types[name] for name in self.cents}})


@pytest.fixture
def api(clean_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LambdaApi]:
    api = LambdaApi()
    with LocalServer(api).running() as server:
        monkeypatch.setenv("COSTOPT_LAMBDA_BASE_URL", server.url)
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield api


@pytest.fixture
def on_day(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda day: monkeypatch.setenv("COSTOPT_NOW", f"{day}T12:00:00+00:00")


def document(outcome: Outcome) -> Any:
    assert outcome.code == 0, outcome
    return json.loads(outcome.out)


def price(costopt: Command, name: str = H100) -> str:
    offers = document(costopt("offers", "--provider", "lambda", "--instance-type", name, "-f", "json"))["offers"]
    return str(offers[0]["usd_per_hour"])


def test_one_outcome_line_a_provider_on_stdout_and_nothing_else(costopt: Command, api: LambdaApi) -> None:
    outcome = costopt("refresh", "lambda", "runpod")
    assert outcome.code == 0
    lines = [line.split() for line in outcome.out.splitlines() if line.strip()]
    assert [line[:2] for line in lines if line[0] in ("lambda", "runpod")] == [
        ["lambda", "stored"],
        ["runpod", "skipped"],
    ]
    assert "set RUNPOD_API_KEY" in outcome.out
    assert KEY not in outcome.out + outcome.err


def test_a_refreshed_price_is_the_one_that_offers_and_plan_use(costopt: Command, api: LambdaApi) -> None:
    costopt("refresh", "lambda", "-q")
    assert price(costopt) == "31.92"
    plan = document(costopt("plan", "--model", "8B", "--rate", "1", "--provider", "lambda", "-f", "json"))
    assert {row["as_of"] for row in plan["instances"]} == {"2026-11-30"}


@pytest.mark.parametrize("provider", ["lambda", "Lambda,lambda"])
def test_plan_can_refresh_first_and_says_what_came_of_it(costopt: Command, api: LambdaApi, provider: str) -> None:
    command = ("plan", "--model", "8B", "--rate", "1", "--provider", provider, "--refresh", "-f", "json")
    outcome = costopt(*command)
    assert {row["as_of"] for row in document(outcome)["instances"]} == {"2026-11-30"}
    assert "lambda: stored: " in outcome.err
    api.answer = Served(b"<html>", headers={"Content-Type": "text/html"})
    failing = costopt(*command)
    assert failing.code == 0
    assert "lambda: failed: " in failing.err


def test_plan_goes_on_with_the_snapshot_where_a_refresh_cannot_be_kept(
    costopt: Command, api: LambdaApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COSTOPT_CACHE_URL", f"sqlite:///{tmp_path}/file/prices.sqlite")
    outcome = costopt("plan", "--model", "8B", "--rate", "1", "--refresh", "--provider", "lambda")
    assert outcome.code == 0
    assert "warning: prices were not refreshed" in outcome.err


def test_new_changed_and_gone_are_counted(costopt: Command, api: LambdaApi) -> None:
    costopt("refresh", "lambda")
    api.cents = {H100: 3300}
    (result,) = document(costopt("refresh", "lambda", "-f", "json"))["providers"]
    assert result["offers"] == {"new": 0, "changed": 2, "unchanged": 0, "gone": 2}


def test_a_reply_that_is_no_api_answer_fails_that_provider_and_its_prices_stay(
    costopt: Command, api: LambdaApi
) -> None:
    costopt("refresh", "lambda")
    api.answer = Served(b"<html>maintenance</html>", headers={"Content-Type": "text/html"})
    outcome = costopt("refresh", "lambda")
    assert outcome.code == 1
    assert "failed" in outcome.out
    assert price(costopt) == "31.92"


def test_of_a_thousand_rows_the_broken_ones_are_counted_and_the_others_are_used(
    costopt: Command, api: LambdaApi
) -> None:
    costopt("refresh", "lambda")
    many = {
        f"gpu_8x_h100_{number}": instance_type(f"gpu_8x_h100_{number}", 8, "H100 (80 GB SXM5)", 3192)
        for number in range(1000)
    }
    del many["gpu_8x_h100_7"]["instance_type"]["specs"]
    many["gpu_8x_h100_8"]["instance_type"]["price_cents_per_hour"] = -1
    many[H100] = instance_type(H100, 8, "H100 (80 GB SXM5)", 0)
    api.answer = Served.json({"data": many})
    outcome = costopt("refresh", "lambda", "runpod", "-f", "json")
    stored, skipped = document(outcome)["providers"]
    assert stored["offers"]["new"] == 2 * 998
    assert sum(stored["rejections"].values()) >= 3
    assert skipped["outcome"] == "skipped"
    assert price(costopt) == "31.92", "the last good price of the type that is listed at zero"


def test_a_provider_that_fails_does_not_touch_what_others_brought(
    costopt: Command, api: LambdaApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Served(b'{"data": {"gpu', headers={"Content-Type": "application/json"})
    with LocalServer(lambda _: broken).running() as server:
        monkeypatch.setenv("COSTOPT_RUNPOD_BASE_URL", server.url)
        monkeypatch.setenv("RUNPOD_API_KEY", "a-secret-key-of-runpod")
        outcome = costopt("refresh", "runpod", "lambda", "-f", "json")
    assert outcome.code == 1
    outcomes = {entry["provider"]: entry["outcome"] for entry in json.loads(outcome.out)["providers"]}
    assert outcomes == {"runpod": "failed", "lambda": "stored"}
    assert price(costopt) == "31.92"


def test_a_suspicious_price_is_kept_apart_told_and_can_be_accepted(costopt: Command, api: LambdaApi) -> None:
    costopt("refresh", "lambda")
    api.cents = {H100: 31920, A10: 129}
    outcome = costopt("refresh", "lambda")
    assert outcome.code == 0
    assert "more than 3 x above its last good price (31.92 USD/h)" in outcome.err
    assert "costopt refresh lambda --accept" in outcome.err
    assert price(costopt) == "31.92"
    status = document(costopt("prices", "status", "-f", "json"))
    assert [entry["usd_per_hour"] for entry in status["kept_apart"]] == ["319.2", "319.2"]
    taken = costopt("refresh", "lambda", "--accept")
    assert "taken although" in taken.err
    assert price(costopt) == "319.2"
    assert document(costopt("prices", "status", "-f", "json"))["kept_apart"] == []


def test_a_price_beyond_all_bounds_is_kept_apart_and_can_be_accepted(costopt: Command, api: LambdaApi) -> None:
    api.cents = {H100: 3192, A10: 12900}
    assert "outside 0.01 to 60 USD per accelerator-hour" in costopt("refresh", "lambda").err
    listed = document(costopt("prices", "status", "-f", "json"))["kept_apart"]
    assert {entry["usd_per_hour"] for entry in listed} == {"129"}
    assert price(costopt, A10) == "1.29", "the shipped price stays in use"
    costopt("refresh", "lambda", "--accept")
    assert price(costopt, A10) == "129"


def test_recorded_replies_hold_no_secret_and_replay_to_the_same_offers(
    costopt: Command, api: LambdaApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "recording"
    costopt("refresh", "lambda", "--record", folder)
    recorded = [path.read_text(encoding="utf-8") for path in folder.rglob("*.json")]
    assert recorded
    assert not any(KEY in text for text in recorded)
    first = document(costopt("offers", "--provider", "lambda", "-f", "json"))
    monkeypatch.setenv("COSTOPT_CACHE_URL", f"sqlite:///{tmp_path}/another.sqlite")
    with LocalServer(Replay(folder / "lambda")).running() as server:
        monkeypatch.setenv("COSTOPT_LAMBDA_BASE_URL", server.url)
        assert costopt("refresh", "lambda").code == 0
    assert document(costopt("offers", "--provider", "lambda", "-f", "json")) == first


def test_an_unknown_provider_is_a_usage_error_with_a_suggestion(costopt: Command, clean_environment: Path) -> None:
    outcome = costopt("refresh", "lamda")
    assert outcome.code == 2
    assert "did you mean lambda?" in outcome.err


@pytest.mark.parametrize("command", [("refresh", "lambda"), ("offers",), ("prices", "status")])
def test_a_cache_file_that_is_no_database_exits_with_2_and_the_way_out(
    costopt: Command, api: LambdaApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("not a database\n" * 100)
    monkeypatch.setenv("COSTOPT_CACHE_URL", f"sqlite:///{path}")
    outcome = costopt(*command)
    assert (outcome.code, outcome.out) == (2, "")
    assert "move the file away" in outcome.err
    assert path.read_text() == "not a database\n" * 100


def test_a_place_that_cannot_be_written_warns_and_goes_on_with_the_snapshot(
    costopt: Command, api: LambdaApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COSTOPT_CACHE_URL", f"sqlite:///{tmp_path}/file/prices.sqlite")
    listed = costopt("offers", "--provider", "lambda")
    assert listed.code == 0
    assert "prices are those of the shipped snapshot" in listed.err
    assert costopt("refresh", "lambda").code == 2


def test_status_tells_age_coverage_and_the_last_refresh(costopt: Command, api: LambdaApi, on_day: Any) -> None:
    on_day("2026-11-20")
    costopt("refresh", "lambda")
    on_day("2026-11-30")
    status = document(costopt("prices", "status", "-f", "json"))
    by_name = {entry["provider"]: entry for entry in status["providers"]}
    assert by_name["lambda"]["age_days_newest"] == 10
    assert by_name["lambda"]["offers"] == 4
    assert by_name["lambda"]["offers_from_snapshot"] == 0
    assert by_name["lambda"]["last_good_refresh"]["outcome"] == "stored"
    assert by_name["aws"]["offers"] == by_name["aws"]["offers_from_snapshot"] > 0
    assert by_name["aws"]["stale"] > 0
    assert by_name["aws"]["last_refresh"] is None
    assert "aws" in costopt("prices", "status").out


def test_history_of_an_accelerator_is_one_point_a_provider_and_day(
    costopt: Command, api: LambdaApi, on_day: Any
) -> None:
    for day, cents in (("2026-11-20", 3192), ("2026-11-25", 3512)):
        on_day(day)
        api.cents = {H100: cents}
        costopt("refresh", "lambda")
    arguments = ("prices", "history", "H100-SXM5-80GB", "--provider", "lambda", "--from", "2026-11-01")
    points = document(costopt(*arguments, "-f", "json"))["points"]
    assert [(point["day"], point["lowest_usd_per_accelerator_hour"]) for point in points] == [
        ("2026-11-20", "3.990000"),
        ("2026-11-25", "4.390000"),
    ]
    table = costopt(*arguments).out
    assert "lowest USD per accelerator-hour" in table
    assert "o lambda" in table
    page = costopt(*arguments, "-f", "html").out
    assert page.startswith("<!doctype html>")
    assert "<svg" in page and "<polyline" in page


def test_history_of_an_offer_tells_when_it_was_gone(costopt: Command, api: LambdaApi, on_day: Any) -> None:
    for day, cents in (("2026-11-20", {H100: 3192, A10: 129}), ("2026-11-25", {H100: 3192})):
        on_day(day)
        api.cents = cents
        costopt("refresh", "lambda")
    points = document(costopt("prices", "history", f"lambda/{A10}/us-west-1", "-f", "json"))["points"]
    assert [(point["day"], point["usd_per_hour"]) for point in points] == [("2026-11-20", "1.29"), ("2026-11-25", None)]


def test_diff_tells_what_went_up_and_what_is_gone(costopt: Command, api: LambdaApi, on_day: Any) -> None:
    on_day("2026-11-20")
    costopt("refresh", "lambda")
    on_day("2026-11-25")
    api.cents = {H100: 3512}
    costopt("refresh", "lambda")
    arguments = ("prices", "diff", "--from", "2026-11-20", "--to", "2026-11-25", "--provider", "lambda")
    found = document(costopt(*arguments, "-f", "json"))
    assert found["by_provider"] == {
        "lambda": {"up": 2, "down": 0, "new": 0, "gone": 2, "median_percent": 10.03},
    }
    assert {(row["offer"], row["change"]) for row in found["offers"]} == {
        (f"lambda/{H100}/-/on_demand", "up"),
        (f"lambda/{H100}/us-west-1/on_demand", "up"),
        (f"lambda/{A10}/-/on_demand", "gone"),
        (f"lambda/{A10}/us-west-1/on_demand", "gone"),
    }
    assert "+10.0" in costopt(*arguments).out


def test_an_offer_of_a_past_day_is_listed_at_that_days_price(costopt: Command, api: LambdaApi, on_day: Any) -> None:
    on_day("2026-11-20")
    costopt("refresh", "lambda")
    on_day("2026-11-30")
    api.cents = {H100: 3512}
    costopt("refresh", "lambda")
    arguments = ("offers", "--provider", "lambda", "--instance-type", H100, "-f", "json")
    past = document(costopt(*arguments, "--as-of", "2026-11-21"))["offers"]
    now = document(costopt(*arguments))["offers"]
    assert {row["usd_per_hour"] for row in past} == {"31.92"}
    assert {row["usd_per_hour"] for row in now} == {"35.12"}


def test_show_cites_the_record_behind_a_price(costopt: Command, api: LambdaApi) -> None:
    costopt("refresh", "lambda")
    (shown,) = document(costopt("prices", "show", f"lambda/{H100}/us-west-1", "-f", "json"))["offers"]
    assert shown["usd_per_hour"] == "31.92"
    assert shown["as_of"] == "2026-11-30"
    assert shown["row_ids"] == [H100]
    assert "instance-types" in shown["source"]
    assert "instance-types" in shown["refresh"]["sources"][0]
    assert H100 in costopt("prices", "show", f"lambda/{H100}").out


def test_show_of_a_shipped_price_cites_the_snapshots_source(costopt: Command, clean_environment: Path) -> None:
    (first, *_) = document(costopt("offers", "--provider", "lambda", "-f", "json"))["offers"]
    (shown,) = document(costopt("prices", "show", first["offer"], "-f", "json"))["offers"]
    assert (shown["source"], shown["as_of"]) == (first["source"], first["as_of"])
    assert shown["refresh"] is None


def test_an_offer_that_nobody_knows_is_a_usage_error_with_a_suggestion(
    costopt: Command, clean_environment: Path
) -> None:
    outcome = costopt("prices", "show", "lambda/gpu_8x_h100_sxm6/-/on_demand")
    assert outcome.code == 2
    assert "did you mean lambda/gpu_8x_h100_sxm5/-/on_demand" in outcome.err


@pytest.mark.parametrize("format_", ["table", "json", "csv", "md"])
@pytest.mark.parametrize("command", [("refresh", "lambda"), ("prices", "status"), ("prices", "diff")])
def test_every_format_is_printed_and_ends_with_a_line_end(
    costopt: Command, api: LambdaApi, command: tuple[str, ...], format_: str
) -> None:
    outcome = costopt(*command, "-f", format_)
    assert outcome.code == 0
    assert outcome.out.endswith("\n")


def test_an_interrupt_ends_a_refresh_at_once_although_a_host_hangs(costopt: Command, api: LambdaApi) -> None:
    asked = Event()

    def hang(_: object) -> Served:
        asked.set()
        return HANG

    with LocalServer(hang).running() as server:
        command = [sys.executable, "-m", "optimizer.cli.main", "refresh", "lambda"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "COSTOPT_LAMBDA_BASE_URL": server.url}
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert asked.wait(timeout=60)
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=30)
    assert (process.returncode, output, errors) == (130, "", "costopt: interrupted\n")


def test_processes_that_refresh_and_plan_at_once_disturb_nobody(costopt: Command, api: LambdaApi) -> None:
    """Four of each, as users run them; none of them may hear of a lock."""
    refresh = [sys.executable, "-m", "optimizer.cli.main", "refresh", "lambda"]
    plan = [sys.executable, "-m", "optimizer.cli.main", "plan", "--model", "8B", "--rate", "1", "-q"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    processes = [
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in [refresh, plan] * 4
    ]
    for process in processes:
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert output
        assert "locked" not in errors
    runs = document(costopt("prices", "status", "-f", "json"))["cache"]["generation"]
    assert runs == 4
    assert locate(os.environ).compiled.exists()
