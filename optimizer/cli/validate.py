"""`costopt validate`: predictions against a table of published measurements, with the errors by group."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from optimizer.cli import options

if TYPE_CHECKING:
    from optimizer.sizing.accuracy import Validation

app = typer.Typer(rich_markup_mode=None, add_completion=False)

TABLES = ("inference", "training", "memory")


@app.command()
def validate(
    table: Annotated[
        str, typer.Argument(metavar="TABLE", help="inference, training or memory: the kind of measurements.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.csv", help="The measurements. Default: those that the calibration used."),
    ] = None,
    predictions: Annotated[
        str | None, typer.Option("--predictions", metavar="FILE.csv", help="Also write one row per row and metric.")
    ] = None,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Predicts published measurements, and says how far off the predictions are.

    Without a file: the rows that the calibration used, so that its errors can be repeated.
    """
    from optimizer.api import choices
    from optimizer.cli import validate_output
    from optimizer.cli.streams import write_result
    from optimizer.sizing.accuracy import validation_document

    table = choices.one_of("table", table, TABLES)
    format_ = choices.one_of("format", format_, choices.FORMATS)
    validation = _validated(table, file)
    if predictions is not None:
        write_result(validate_output.predictions_csv(validation), predictions)
    write_result(validate_output.render(validation_document(validation), format_), output)


def _validated(table: str, file: Path | None) -> "Validation":
    from optimizer.sizing.validation import carried_rows, validate_inference, validate_memory

    rows = carried_rows(table) if file is None else _rows(file)
    if table == "training":
        from optimizer.sizing.training.validation import validate_training

        return validate_training(rows)
    return validate_inference(rows) if table == "inference" else validate_memory(rows)


def _rows(file: Path) -> list[dict[str, str]]:
    """The rows of a CSV file with the columns that a prediction needs. Raises UsageError when it cannot be one."""
    import csv

    from providers.errors import UsageError

    try:
        with file.open(newline="", encoding="utf-8-sig") as stream:
            # Short lines leave cells out and long ones have more than the header: both are read as far as they go.
            rows = [{key: value or "" for key, value in row.items() if key} for row in csv.DictReader(stream)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot read {str(file)!r}: {reason}; give a CSV file of measurements") from None
    missing = {"model", "gpu"} - set(rows[0]) if rows else {"model", "gpu"}
    if missing:
        raise UsageError(f"{str(file)!r} lacks the columns {', '.join(sorted(missing))}; see docs/accuracy.md")
    return rows
