"""The page on accuracy is what its generator writes from the measurements that the package carries."""

from pathlib import Path

from optimizer.sizing.training.validation import validate_training
from optimizer.sizing.validation import carried_rows, validate_inference
from tests.benchmarks.accuracy_page import PLOTS, TRAINING_PLOTS, page, plot

DOCS = Path(__file__).parent.parent / "docs"
REWRITE = "run python tests/benchmarks/accuracy_page.py"


def test_the_page_is_what_its_generator_writes() -> None:
    assert (DOCS / "accuracy.md").read_text(encoding="utf-8") == page(), REWRITE


def test_the_plots_are_what_their_generator_draws() -> None:
    found = dict.fromkeys(PLOTS, validate_inference(carried_rows("inference")))
    found |= dict.fromkeys(TRAINING_PLOTS, validate_training(carried_rows("training")))
    for metric, validation in found.items():
        drawn = (DOCS / f"accuracy-{metric}.svg").read_text(encoding="utf-8")
        assert drawn == plot(metric, validation), REWRITE
