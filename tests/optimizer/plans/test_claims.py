"""Wrong claims about training are corrected with figures that can be checked by hand."""

from typing import Any

import pytest

from optimizer.plans.claims import (
    a100_instance,
    corrections,
    four_accelerators,
    four_bits,
    h100_peak,
    sparse_peak,
    twelve_bytes,
)
from optimizer.sizing.training.layouts import TrainingEstimate, estimate
from optimizer.workload.training import TrainingRun
from tests.optimizer.sizing.training.builders import make_setup


def make_estimate(model: str = "70B", gpu: str = "H100", **over: Any) -> TrainingEstimate:
    setup = make_setup(model, gpu, **over)
    run = TrainingRun(name="run", model=model, task=setup.task, tokens=1e9, seq_len=2048, global_batch_tokens=2**21)
    return estimate(run, setup)


def test_twelve_bytes_are_the_optimizer_alone() -> None:
    """70.552 B x 18 = 1,270 GB = 1,183 GiB; x 12 = 788 GiB."""
    text = twelve_bytes(make_estimate())
    assert "18 bytes" in text
    assert "1,183 GiB, not 788" in text


def test_70b_in_full_does_not_fit_four_cards() -> None:
    """16 bytes x 70.552 B = 1,051 GiB, 263 on each of four; at least 14 cards of 79.2 GiB."""
    text = four_accelerators(make_estimate())
    assert "1,051 GiB of states, 263 GiB on each of four" in text
    assert "at least 14" in text


def test_4_bit_weights_are_not_one_eighth_of_16_bit() -> None:
    """One eighth of 141 GB would be 17.6 GB; with scales and 16-bit embeddings 39 GB."""
    text = four_bits(make_estimate(task="qlora"))
    assert "17.6 GB" in text
    assert "39." in text or "38." in text or "37." in text


def test_an_h100_of_756_tflops_is_the_pcie_card() -> None:
    assert "756" in h100_peak()
    assert "989" in h100_peak()


def test_sparse_rates_are_not_dense_ones() -> None:
    assert "1,978" in sparse_peak(make_estimate())


def test_nothing_is_said_of_sparse_rates_where_no_datasheet_prints_them() -> None:
    said = [*corrections(make_estimate("8B", "Gaudi3"))]
    assert not [line for line in said if "sparsity" in line]


def test_a_p3_machine_has_v100s() -> None:
    assert "V100" in a100_instance()


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({}, ["12 bytes", "4 accelerators", "756", "sparsity"]),
        ({"gpu": "A100-80GB"}, ["12 bytes", "p3.8xlarge"]),
        ({"task": "qlora"}, ["one eighth"]),
    ],
)
def test_a_job_gets_the_corrections_that_it_invites(over: dict[str, Any], words: list[str]) -> None:
    text = "\n".join(corrections(make_estimate(**over)))
    assert all(word in text for word in words)


def test_adapters_invite_no_word_on_full_fine_tuning() -> None:
    text = "\n".join(corrections(make_estimate(task="lora")))
    assert "12 bytes" not in text
    assert "4 accelerators" not in text
