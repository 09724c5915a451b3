"""What tests of reports get: a cost export read as the command reads it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from optimizer.cli.focus_file import malformed_lines, opened
from optimizer.report.focus import Actuals, read_actuals
from optimizer.report.months import Month
from tests.builders import make_instance_type
from tests.optimizer.report.builders import DECEMBER
from tests.optimizer.report.focus_rows import COLUMNS_1_3, write_focus

Read = Callable[..., Actuals]
MACHINES = (
    make_instance_type(count=8, name="p5.48xlarge"),
    make_instance_type(gpu="A10G", name="g5.4xlarge"),
    make_instance_type(provider="azure", count=8, name="Standard_ND96isr_H100_v5"),
)


@pytest.fixture
def read_bill(tmp_path: Path) -> Read:
    """Writes rows as an export and reads them: of December 2026 and the month before, unless `months` says else."""

    def read(
        *rows: Mapping[str, Any],
        columns: Iterable[str] = COLUMNS_1_3,
        matches: Mapping[str, Sequence[Mapping[str, str]]] | None = None,
        months: Sequence[Month] = (DECEMBER.plus(-1), DECEMBER),
        path: Path | None = None,
        until: datetime = datetime(2030, 1, 1, tzinfo=UTC),
    ) -> Actuals:
        file = path or write_focus(tmp_path / "bill.csv", rows, columns)
        with opened(str(file)) as connection:
            return read_actuals(
                connection,
                months,
                matches or {},
                MACHINES,
                until=until,
                malformed=lambda: malformed_lines(connection),
            )

    return read
