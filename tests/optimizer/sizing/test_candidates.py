"""Candidates are the layouts and dtypes that meet memory and SLO; the others carry a reason."""

from optimizer.sizing.candidates import Hardware, size_candidates
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO, SLO
from providers.accelerators import resolve


def hardware(name: str = "H100-SXM5-80GB", count: int = 8, link: str = "nvlink") -> Hardware:
    return Hardware(accelerator=resolve(name), count=count, link=link)


def test_seventy_billion_sixteen_bit_parameters_do_not_fit_one_80_gb_card() -> None:
    candidates, rejections = size_candidates(
        resolve_model("70B"), hardware(count=1), shape=DEFAULT_SHAPE, slo=DEFAULT_SLO, precisions=["bf16"]
    )
    assert candidates == []
    assert [r.reason for r in rejections] == ["weights do not fit"]


def test_auto_precision_adds_fp8_only_where_the_hardware_computes_it() -> None:
    def offered(name: str) -> set[str]:
        candidates, _ = size_candidates(
            resolve_model("8B"), hardware(name, count=1), shape=DEFAULT_SHAPE, slo=DEFAULT_SLO
        )
        return {c.precision for c in candidates}

    assert offered("H100-SXM5-80GB") == {"bf16", "fp8"}
    assert offered("A100-SXM4-80GB") == {"bf16"}


def test_every_candidate_meets_the_slo_and_its_interval_holds_its_value() -> None:
    candidates, _ = size_candidates(resolve_model("70B"), hardware(), shape=DEFAULT_SHAPE, slo=DEFAULT_SLO)
    assert candidates
    for candidate in candidates:
        assert candidate.ttft_ms.value <= DEFAULT_SLO.ttft_ms
        assert candidate.tpot_ms.value <= DEFAULT_SLO.tpot_ms
        assert candidate.requests_per_s.low < candidate.requests_per_s.value < candidate.requests_per_s.high


def test_an_slo_that_nothing_meets_is_the_reason_of_every_rejection() -> None:
    candidates, rejections = size_candidates(
        resolve_model("8B"), hardware(count=1), shape=DEFAULT_SHAPE, slo=SLO(tpot_ms=0.1)
    )
    assert candidates == []
    assert {r.reason for r in rejections} == {"TPOT above the SLO"}


def test_replicas_use_a_number_of_accelerators_that_divides_the_instance() -> None:
    candidates, _ = size_candidates(resolve_model("8B"), hardware(count=8), shape=DEFAULT_SHAPE, slo=DEFAULT_SLO)
    assert all(8 % c.accelerators_per_replica == 0 for c in candidates)
