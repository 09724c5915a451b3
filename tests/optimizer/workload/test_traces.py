"""Request logs as shapes and rates: what they hold, what the reduction keeps, what it loses, what cannot be read."""

import gzip
import math
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.workload.traces import COLUMNS, Trace, read_trace, reduce_trace, share_over, summarize
from providers.errors import InvalidValue, UsageError

DATA = Path(__file__).parents[2] / "data"
HOUR = 3600


def log(rows: Iterable[tuple[object, object, object]], header: str = "timestamp,input_tokens,output_tokens") -> Trace:
    return read_trace([header, *(",".join(str(cell) for cell in row) for row in rows)], "log.csv")


def recorded(name: str) -> Trace:
    with gzip.open(DATA / name, "rt", encoding="utf-8") as lines:
        return read_trace(lines, name)


def test_rows_are_put_in_order_of_arrival_from_zero() -> None:
    trace = log([(12.5, 200, 20), (10, 100, 10), (11, 300, 30)])
    assert trace.times_s.tolist() == [0, 1, 2.5]
    assert trace.input_tokens.tolist() == [100, 300, 200]
    assert trace.output_tokens.tolist() == [10, 30, 20]


def test_times_may_be_dates() -> None:
    trace = log([("2023-11-16 18:15:46.6805900", 1, 1), ("2023-11-16T18:15:48.1805900", 2, 2)])
    assert trace.times_s.tolist() == pytest.approx([0, 1.5], abs=1e-5)


@pytest.mark.parametrize("time", COLUMNS["time"])
@pytest.mark.parametrize(
    ("inputs", "outputs"), list(zip(COLUMNS["input_tokens"], COLUMNS["output_tokens"], strict=True))
)
def test_columns_go_by_the_names_that_public_logs_use(time: str, inputs: str, outputs: str) -> None:
    trace = log([(0, 7, 3), (1, 8, 4)], header=f"{time.upper()},{inputs.title()},{outputs}")
    assert trace.input_tokens.tolist() == [7, 8]


def test_a_missing_column_is_named_with_the_names_it_may_have() -> None:
    with pytest.raises(
        UsageError, match=r"log\.csv has no column for output tokens \(its columns: timestamp, input_tokens\)"
    ):
        read_trace(["timestamp,input_tokens", "0,1"], "log.csv")


def test_rows_that_cannot_be_used_are_counted_by_reason() -> None:
    trace = log(
        [(0, 1, 1), (1, 5, 5), (2, 5, 5), (3, 5, 5), (4, 5, 5), ("soon", 1, 1), (5, "x", 1), (6, 0, 1), (7, -1, 1)]
    )
    assert trace.rejected == {
        "time is neither seconds nor ISO 8601": 1,
        "tokens are not numbers": 1,
        "no input tokens": 1,
        "tokens out of range": 1,
    }
    assert len(trace.times_s) == 5


@pytest.mark.parametrize(
    "lines", [[], ["timestamp,input_tokens,output_tokens"], ["timestamp,input_tokens,output_tokens", "0,1,1"]]
)
def test_a_log_without_two_requests_is_refused(lines: list[str]) -> None:
    with pytest.raises(UsageError, match=r"empty|usable requests"):
        read_trace(lines, "log.csv")


def test_a_log_of_mostly_bad_rows_is_refused_with_the_reasons() -> None:
    with pytest.raises(UsageError, match=r"2 usable requests .*3 × tokens are not numbers"):
        log([(0, 1, 1), (1, 1, 1), (2, "a", 1), (3, "b", 1), (4, "c", 1)])


def test_the_busiest_minute_is_that_of_the_most_arrivals() -> None:
    calm = [(60 * minute, 10, 10) for minute in range(10)]
    burst = [(300 + i / 10, 10, 10) for i in range(120)]
    summary = summarize(log(calm + burst))
    assert summary.requests == 130
    assert summary.peak_minute_requests_per_s == pytest.approx(121 / 60)
    assert summary.mean_requests_per_s == pytest.approx(130 / 540)


def test_one_shape_is_the_mean_request() -> None:
    reduced = reduce_trace(log([(0, 100, 10), (30, 300, 30), (60, 200, 20)]), max_shapes=1, at_peak=False)
    (demand,) = reduced.demands
    assert str(demand.shape) == "200+20"
    assert reduced.length_loss == pytest.approx((100 + 100 + 0 + 10 + 10 + 0) / 660)


def test_equal_requests_are_reduced_without_loss() -> None:
    reduced = reduce_trace(log([(i, 500, 50) for i in range(100)]))
    assert [str(demand.shape) for demand in reduced.demands] == ["500+50"]
    assert reduced.length_loss == 0


def test_less_than_a_day_is_one_period_at_the_busiest_minute() -> None:
    reduced = reduce_trace(log([(i, 10, 10) for i in range(60)] + [(120 + 20 * i, 10, 10) for i in range(60)]))
    assert reduced.profile == ()
    assert sum(demand.requests_per_s or 0 for demand in reduced.demands) == pytest.approx(1.0)
    assert reduced.peak_factor > 1


def test_a_day_gives_an_hourly_profile_with_a_mean_of_one() -> None:
    rows = [
        (hour * HOUR + i * HOUR / n, 10, 10)
        for hour in range(24)
        for n in [10 + 10 * (hour in (9, 10))]
        for i in range(n)
    ]
    reduced = reduce_trace(log([*rows, (24 * HOUR, 10, 10)]), at_peak=False)
    assert len(reduced.profile) == 24
    assert math.fsum(reduced.profile) == pytest.approx(24)
    assert max(range(24), key=lambda hour: reduced.profile[hour]) == 9
    assert reduced.profile[9] == pytest.approx(2 * reduced.profile[0])


def test_hours_of_several_days_that_fall_together_take_the_busiest() -> None:
    rows = [(day * 24 * HOUR + hour * HOUR + 1, 10, 10) for day in range(2) for hour in range(24)]
    busy = [(24 * HOUR + 5 * HOUR + i, 10, 10) for i in range(2, 11)]
    reduced = reduce_trace(log([*rows, *busy, (48 * HOUR + 1, 10, 10)]), at_peak=False)
    assert reduced.profile[5] == pytest.approx(10 * reduced.profile[4])


def test_a_week_gives_168_hours() -> None:
    rows = [(hour * HOUR, 10, 10) for hour in range(169)]
    assert len(reduce_trace(log(rows)).profile) == 168


def test_the_number_of_shapes_is_kept_and_must_be_positive() -> None:
    trace = recorded("azure_llm_2023_conv.csv.gz")
    for most in (1, 2, 5, 12):
        assert 1 <= len(reduce_trace(trace, max_shapes=most).demands) <= most
    with pytest.raises(InvalidValue, match="number of shapes"):
        reduce_trace(trace, max_shapes=0)


def test_more_shapes_lose_less() -> None:
    trace = recorded("azure_llm_2023_conv.csv.gz")
    losses = [reduce_trace(trace, max_shapes=most).length_loss for most in (1, 4, 12, 48)]
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < losses[0] / 2


def test_the_share_over_a_context_limit_is_that_of_input_and_output_together() -> None:
    trace = log([(0, 3000, 1000), (1, 3000, 1096), (2, 3000, 1097), (3, 10, 10)])
    assert share_over(trace, 4096) == 0.25


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.floats(0, 200_000), st.integers(1, 20_000), st.integers(0, 5000)), min_size=2, max_size=60
    ),
    most=st.integers(1, 20),
    at_peak=st.booleans(),
)
def test_any_log_keeps_requests_and_tokens_in_sum(rows: list[tuple[float, int, int]], most: int, at_peak: bool) -> None:
    trace = log(rows)
    reduced = reduce_trace(trace, max_shapes=most, at_peak=at_peak)
    assert 1 <= len(reduced.demands) <= most + 1
    assert math.fsum(demand.share for demand in reduced.demands) == pytest.approx(1)
    tokens = math.fsum(demand.share * demand.shape.input_tokens for demand in reduced.demands)
    assert tokens == pytest.approx(float(trace.input_tokens.mean()), abs=0.51)
    assert all((demand.requests_per_s or 0) > 0 for demand in reduced.demands)
    assert reduced.length_loss >= 0
    if reduced.profile:
        assert math.fsum(reduced.profile) == pytest.approx(len(reduced.profile))


def test_offsets_count_whatever_the_digits_of_the_seconds_and_without_one_it_is_utc() -> None:
    rows = [
        ("2026-05-10T12:00:00.9799600+02:00", 10, 1),
        ("2026-05-10T10:00:01+00:00", 10, 1),
        ("2026-05-10 10:00:02.5000000", 10, 1),
        ("2026-05-10T10:00:03Z", 10, 1),
    ]
    assert log(rows).times_s.tolist() == pytest.approx([0, 0.02004, 1.52004, 2.02004], abs=1e-6)


def test_a_log_reads_the_same_in_every_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("2026-03-29 00:30:00", 10, 1), ("2026-03-29 03:30:00", 10, 1)]
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert log(rows).times_s.tolist() == [0, 3 * 3600]
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("last", ["1e11", "1e300", "-1e18"])
def test_a_log_that_spans_centuries_is_refused_before_its_minutes_are_counted(last: str) -> None:
    with pytest.raises(UsageError, match="years"):
        read_trace(["timestamp,input_tokens,output_tokens", "0,1,1", f"{last},1,1"], "log")
