"""The matching table: the cheapest that holds a model comfortably, and claims set right by arithmetic."""

import pytest

from optimizer.interop.guide import GuideRow, guide
from optimizer.interop.guide_claims import claims, verdict
from tests.builders import make_offer

OFFERS = (
    make_offer(gpu="L4", count=1, usd="0.7", name="small"),
    make_offer(gpu="A100-80GB", count=1, usd="2", name="card"),
    make_offer(gpu="H100-SXM5-80GB", count=8, usd="30", name="p5.48xlarge"),
)


def rows(size: str) -> dict[str, GuideRow]:
    return {row.way: row for row in guide(OFFERS, (size,))}


def test_a_small_model_takes_the_cheapest_card_that_holds_it() -> None:
    row = rows("1B")["inference 16 bit"]
    assert (row.accelerator, row.count, row.machines) == ("L4", 1, 1)
    assert row.usd_per_hour == row.offer.usd_per_hour if row.offer else False


def test_a_large_model_takes_a_machine() -> None:
    row = rows("70B")["inference 16 bit"]
    assert row.accelerator == "H100-SXM5-80GB"
    assert row.machines == 1


def test_training_over_several_machines_pays_for_each() -> None:
    row = rows("70B")["full fine-tuning"]
    assert row.offer is not None
    assert row.machines > 1
    assert row.count == 8 * row.machines
    assert row.usd_per_hour == row.offer.usd_per_hour * row.machines


def test_what_nothing_holds_says_so_and_costs_nothing() -> None:
    (row,) = (row for row in guide(OFFERS[:1], ("405B",)) if row.way == "inference 16 bit")
    assert row.offer is None
    assert row.usd_per_hour is None
    assert "nothing on file" in row.limit


@pytest.mark.parametrize(
    ("said", "figure"),
    [("GPTQ 4-bit 70B = 17.5 GB", "35.3 GB"), ("70B training: 4 H100", "1,051 GiB"), ("H100 756 TFLOPS", "989")],
)
def test_claims_are_answered_with_the_arithmetic(said: str, figure: str) -> None:
    found = {claim.said: claim.arithmetic for claim in claims(OFFERS)}
    assert figure in found[said]


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"a": True, "b": True}, "holds"),
        ({"a": False}, "does not hold"),
        ({"a": True, "b": False, "c": False}, "holds for a, not for b and c"),
        ({"a": True, "b": True, "c": True, "d": False}, "holds for a, b and c, not for d"),
    ],
)
def test_a_verdict_names_the_parts_that_hold(parts: dict[str, bool], words: str) -> None:
    assert verdict(parts) == words


def test_verdicts_follow_the_offers() -> None:
    def said_of_the_price(usd: str) -> str:
        offers = [make_offer(gpu="H100-SXM5-80GB", count=1, usd=usd, name="card")]
        return next(claim.verdict for claim in claims(offers) if claim.said == "H100 36 USD/h")

    assert said_of_the_price("4.5") == "holds for a machine of 8, not for one card"
    assert said_of_the_price("36") == "holds for one card, not for a machine of 8"
    assert said_of_the_price("3") == "does not hold"
