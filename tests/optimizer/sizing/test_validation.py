"""The carried measurements are predicted as well as the page on accuracy says, in the shape of the contract."""

import pytest

from optimizer.sizing.accuracy import Prediction, Validation, agreement, errors, validation_document
from optimizer.sizing.intervals import factors, interval
from optimizer.sizing.validation import carried_rows, validate_inference, validate_memory


@pytest.fixture(scope="module")
def inference() -> Validation:
    return validate_inference(carried_rows("inference"))


def prediction(measured: float, predicted: float, **over: float) -> Prediction:
    groups = dict.fromkeys(("accelerator", "model", "engine", "scenario", "source"), "x")
    return Prediction(id="1", metric="tpot", measured=measured, predicted=predicted, groups=groups, **over)


@pytest.mark.parametrize(
    ("metric", "median", "p90"), [("throughput", 12, 45), ("tpot", 15, 40), ("latency", 15, 45), ("ttft", 40, 150)]
)
def test_the_carried_runs_are_predicted_within_the_stated_errors(
    inference: Validation, metric: str, median: float, p90: float
) -> None:
    figures = errors([p for p in inference.predictions if p.metric == metric])
    assert figures["median_abs_pct_error"] <= median
    assert figures["p90_abs_pct_error"] <= p90
    assert 0.75 <= figures["interval_coverage"] <= 0.97


def test_nearly_every_carried_run_is_predicted_and_the_rest_counted_by_reason(inference: Validation) -> None:
    assert inference.rows > 2_500
    assert sum(inference.skipped.values()) <= 0.05 * inference.rows


def test_the_carried_memory_reports_agree() -> None:
    validation = validate_memory(carried_rows("memory"))
    verdicts = agreement([p for p in validation.predictions if p.metric == "verdict"])
    assert verdicts["agreement"] >= 0.96
    assert verdicts["false_fits"] <= 2
    assert errors([p for p in validation.predictions if p.metric == "weights"])["median_abs_pct_error"] <= 3
    assert errors([p for p in validation.predictions if p.metric == "kv_tokens"])["median_abs_pct_error"] <= 15


def test_the_document_has_the_keys_of_the_contract(inference: Validation) -> None:
    document = validation_document(inference)
    assert list(document)[:2] == ["schema", "schema_version"]
    assert document["schema"] == "costopt.validate"
    throughput = document["metrics"]["throughput"]
    wanted = {"rows", "predicted", "median_abs_pct_error", "p90_abs_pct_error", "within_1_5x", "bias"}
    assert wanted | {"interval_coverage", "by", "worst"} <= set(throughput)
    assert set(throughput["by"]) == {"accelerator", "model", "engine", "scenario", "source"}


def test_a_row_that_cannot_be_read_is_counted_and_not_lost() -> None:
    validation = validate_inference([{"id": "a", "model": "nobody/x", "gpu": "H100", "engine": "vLLM"}])
    assert validation.skipped == {"unknown model": 1}
    assert [p.skipped for p in validation.predictions] == ["unknown model"]


def test_errors_are_percentages_of_the_measured_value() -> None:
    figures = errors([prediction(10, 11), prediction(10, 5), prediction(10, 20, low=5, high=25)])
    assert figures["median_abs_pct_error"] == 50
    assert figures["bias"] == 1.1
    assert figures["within_1_5x"] == pytest.approx(1 / 3, rel=1e-3)
    assert figures["interval_coverage"] == 1.0


def test_an_interval_holds_its_value_and_widens_with_confidence() -> None:
    estimate = interval(100.0, "throughput", "hopper", "loaded")
    assert estimate.low < 100 < estimate.high
    assert estimate.at_confidence(0.8) == pytest.approx(estimate.low, rel=1e-3)
    assert estimate.at_confidence(0.95) < estimate.low
    assert estimate.at_confidence(0.8, worse_is_higher=True) == pytest.approx(estimate.high, rel=1e-3)


def test_a_class_without_measurements_takes_the_interval_of_all() -> None:
    assert factors("tpot", "other", "loaded") == factors("tpot", "all", "loaded")
