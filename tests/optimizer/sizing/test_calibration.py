"""Constants are named, few kinds, within what hardware can do; every accelerator has rates under every engine."""

import csv
from pathlib import Path

import pytest

import optimizer.sizing
from optimizer.sizing.calibration import constants, device_class, is_calibrated, rates
from optimizer.sizing.constants import KINDS, kind_of
from optimizer.sizing.dtypes import FORMATS, arithmetic, unsupported_reason
from optimizer.sizing.engines import ENGINES, engine_profile
from optimizer.workload.architecture import resolve_model
from providers.accelerators import catalogue, resolve

DATA = Path(optimizer.sizing.__file__).with_name("data")


def test_every_constant_belongs_to_a_kind_that_says_what_it_means() -> None:
    for name, value in constants().items():
        assert kind_of(name).meaning
        assert value > 0, name


def test_no_constant_moved_further_from_its_start_than_eight_doubts() -> None:
    # A constant that the rows push this far says that the formula is wrong, not the constant.
    for name, value in constants().items():
        kind = kind_of(name)
        start = {"overhead.layer_us.llama.cpp": 120.0, "overhead.layer_us.transformers": 650.0}.get(name, kind.start)
        assert kind.doubt**-8 <= value / start <= kind.doubt**8, name


def test_every_member_of_every_kind_has_a_value() -> None:
    for kind in KINDS:
        for member in kind.members:
            assert f"{kind.prefix}.{member}" in constants()


def test_constants_are_stored_with_their_spread_and_the_runs_that_read_them() -> None:
    with (DATA / "calibration.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["constant"] for row in rows} == set(constants())
    assert all(float(row["spread_factor"]) >= 1 and int(row["runs"]) >= 0 for row in rows)


@pytest.mark.parametrize("engine", sorted(ENGINES))
def test_no_rate_passes_the_data_sheet(engine: str) -> None:
    model = resolve_model("8B")
    for accelerator in catalogue().values():
        for name in ("bf16", "fp16", "fp8", "int4", "fp4"):
            fmt = FORMATS[name]
            if unsupported_reason(accelerator, fmt):
                continue
            found = rates(accelerator, "pcie", 1, engine_profile(engine), fmt, model)
            _, peak = arithmetic(accelerator, fmt)
            assert 0 < found.weight_bytes_per_s <= accelerator.memory_bandwidth_gb_per_s * 1e9
            assert 0 < found.cache_bytes_per_s <= found.weight_bytes_per_s
            # GeForce cards double their 16-bit rate where sums are kept in 16 bit, as llama.cpp does.
            assert 0 < found.dense_flops_per_s <= 2.5 * peak
            assert found.layer_s > 0


def test_parts_that_were_never_measured_are_called_so() -> None:
    assert is_calibrated(resolve("H100"))
    assert not any(is_calibrated(resolve(name)) for name in ("TPU v5e", "Trainium2", "Inferentia2", "Gaudi3"))
    assert device_class(resolve("Trainium2")) == "other"


def test_bridged_pairs_reduce_faster_than_four_cards_over_pcie() -> None:
    card, model, engine = resolve("A100-PCIe-80GB"), resolve_model("70B"), engine_profile("vllm")
    pair, four = (rates(card, "nvlink_bridge", ranks, engine, FORMATS["bf16"], model) for ranks in (2, 4))
    assert pair.link_bytes_per_s > four.link_bytes_per_s
    assert pair.allreduce_s < four.allreduce_s


def test_ranks_beyond_a_machine_reduce_over_the_network_unless_a_rack_joins_them() -> None:
    model, engine, fmt = resolve_model("405B"), engine_profile("vllm"), FORMATS["fp8"]
    for name, slower in (("H100-SXM5-80GB", True), ("GB200", False)):
        inside, beyond = (rates(resolve(name), "nvlink", ranks, engine, fmt, model) for ranks in (8, 16))
        assert (beyond.allreduce_s > inside.allreduce_s) is slower


def test_held_constants_keep_their_starting_value_and_the_fitted_ones_are_few() -> None:
    held = {name for name in constants() if kind_of(name).held}
    assert all(constants()[name] == pytest.approx(kind_of(name).start) for name in held)
    assert len(constants().keys() - held) <= 80
