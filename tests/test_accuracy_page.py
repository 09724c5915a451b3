"""The page on accuracy is what its generator writes from the measurements that the package carries."""

from pathlib import Path

from optimizer.sizing.validation import carried_rows, validate_inference
from tests.benchmarks.accuracy_page import PLOTS, page, plot

DOCS = Path(__file__).parent.parent / "docs"
REWRITE = "run python tests/benchmarks/accuracy_page.py"


def test_the_page_is_what_its_generator_writes() -> None:
    assert (DOCS / "accuracy.md").read_text(encoding="utf-8") == page(), REWRITE


def test_the_plots_are_what_their_generator_draws() -> None:
    inference = validate_inference(carried_rows("inference"))
    for metric in PLOTS:
        drawn = (DOCS / f"accuracy-{metric}.svg").read_text(encoding="utf-8")
        assert drawn == plot(metric, inference), REWRITE
