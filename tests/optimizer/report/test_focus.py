"""Cost exports: every version of FOCUS, rows that cannot be used, cross-checks, time zones, and hostile files."""

import gzip
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from optimizer.cli.focus_file import opened
from optimizer.report.focus import provider_of
from optimizer.report.months import Month
from providers.errors import UsageError
from tests.optimizer.report.conftest import Read
from tests.optimizer.report.focus_rows import COLUMNS_1_0, COLUMNS_1_3, focus_row, write_focus


@pytest.mark.parametrize("columns", [COLUMNS_1_0, COLUMNS_1_3], ids=["1.0", "1.3"])
def test_the_provider_is_read_under_either_name(read_bill: Read, columns: tuple[str, ...]) -> None:
    found = read_bill(focus_row(), columns=columns)
    assert [group.provider for group in found.groups] == ["aws"]


@pytest.mark.parametrize(
    ("name", "known"),
    [("Amazon Web Services", "aws"), ("Microsoft Azure", "azure"), ("Google Cloud", "gcp"), ("Acme GPU", "acme gpu")],
)
def test_sellers_are_known_by_the_names_that_exports_use(name: str, known: str) -> None:
    assert provider_of(name) == known


def test_a_row_becomes_spend_on_a_machine(read_bill: Read) -> None:
    (group,) = read_bill(focus_row()).groups
    assert (group.instance_type, group.accelerator, group.accelerators) == ("p5.48xlarge", "H100-SXM5-80GB", 8)
    assert (group.month, group.day, group.purchase_option) == ("2026-12", 1, "on_demand")
    assert (group.billed_usd, group.hours) == (Decimal("55.04"), 1)


def test_the_machine_is_found_in_the_details_of_the_price_too(read_bill: Read) -> None:
    row = focus_row(ChargeDescription="compute", SkuPriceDetails='{"InstanceType": "g5.4xlarge"}')
    found = read_bill(row, columns=(*COLUMNS_1_3, "SkuPriceDetails"))
    assert [group.accelerator for group in found.groups] == ["A10G"]


@pytest.mark.parametrize(
    "own",
    [
        {"x_SkuDetails": '{"UsageType": "ComputeHR", "ServiceType": "Standard_ND96isr_H100_v5", "VMName": "a"}'},
        {"x_SkuMeterName": "ND96isr H100 v5"},
        {"x_SkuMeterName": "ND96isr H100 v5 Spot", "x_SkuDetails": "none"},
    ],
)
def test_azures_machines_are_found_in_its_own_columns(read_bill: Read, own: dict[str, str]) -> None:
    row = focus_row(ServiceProviderName="Microsoft", ChargeDescription="Virtual Machines", RegionId="eastus", **own)
    (group,) = read_bill(row, columns=(*COLUMNS_1_3, *own)).groups
    assert (group.instance_type, group.accelerators) == ("Standard_ND96isr_H100_v5", 8)


def test_a_text_that_names_two_machines_names_none(read_bill: Read) -> None:
    (group,) = read_bill(focus_row(ChargeDescription="p5.48xlarge to g5.4xlarge")).groups
    assert group.instance_type is None


@pytest.mark.parametrize(
    ("over", "reason"),
    [
        ({"BilledCost": "abc"}, "BilledCost is not a number"),
        ({"BilledCost": None}, "BilledCost is not a number"),
        ({"BilledCost": "NaN"}, "BilledCost is not a number"),
        ({"ChargePeriodStart": "soon"}, "ChargePeriodStart is not a time"),
        ({"BillingCurrency": "EUR"}, "BillingCurrency is not USD"),
        ({"BillingCurrency": None}, "no BillingCurrency"),
        ({"ServiceProviderName": None}, "no provider"),
        ({"ChargeCategory": None}, "no ChargeCategory"),
        ({"ChargePeriodEnd": "2026-11-30T00:00:00Z"}, "ChargePeriodEnd is not after its start"),
    ],
)
def test_a_row_that_cannot_be_used_is_counted_with_its_reason(
    read_bill: Read, over: dict[str, object], reason: str
) -> None:
    found = read_bill(focus_row(), focus_row(**over))
    assert found.rejected == {reason: 1}
    assert (found.rows, found.used) == (2, 1)
    assert sum(group.billed_usd for group in found.groups) == Decimal("55.04")
    assert any(reason in warning for warning in found.warnings)


def test_rows_of_other_months_are_counted_apart(read_bill: Read) -> None:
    found = read_bill(focus_row(), focus_row(start=datetime(2026, 7, 1, tzinfo=UTC)))
    assert (found.rows, found.used, found.outside) == (2, 1, 1)


def test_a_line_that_cannot_be_split_is_counted(read_bill: Read, tmp_path: Path) -> None:
    path = write_focus(tmp_path / "cut.csv", [focus_row()])
    with path.open("a", encoding="utf-8") as file:
        file.write('only,three,"cells"\n')
    found = read_bill(path=path)
    assert found.used == 1
    assert found.rejected == {"line cannot be split in columns": 1}


def test_days_are_those_of_the_time_zone(read_bill: Read) -> None:
    midnight_in_new_york = datetime(2026, 12, 1, 4, tzinfo=UTC)
    utc = read_bill(focus_row(start=midnight_in_new_york))
    there = read_bill(
        focus_row(start=midnight_in_new_york),
        months=(Month(2026, 11, "America/New_York"), Month(2026, 12, "America/New_York")),
    )
    assert [(g.month, g.day) for g in utc.groups] == [("2026-12", 1)]
    assert [(g.month, g.day) for g in there.groups] == [("2026-11", 30)]


def test_times_with_an_offset_are_moments(read_bill: Read) -> None:
    row = focus_row(ChargePeriodStart="2026-12-01T00:30:00+02:00", ChargePeriodEnd="2026-12-01T01:30:00+02:00")
    assert [(g.month, g.day) for g in read_bill(row).groups] == [("2026-11", 30)]


def test_an_effective_cost_that_contradicts_on_demand_usage_is_not_used(read_bill: Read) -> None:
    found = read_bill(focus_row(EffectiveCost="56.00"), focus_row(EffectiveCost=None))
    assert found.spoiled_effective_rows == 1
    assert sum(group.effective_usd for group in found.groups) == Decimal("110.08")
    assert any("EffectiveCost differs from BilledCost" in warning for warning in found.warnings)


def test_an_export_without_effective_cost_says_so_and_uses_what_was_billed(read_bill: Read) -> None:
    columns = [column for column in COLUMNS_1_3 if column != "EffectiveCost"]
    found = read_bill(focus_row(usd=7, PricingCategory="Committed"), columns=columns)
    assert [group.effective_usd for group in found.groups] == [7]
    assert "the cost export has no EffectiveCost: BilledCost is used in its place" in found.warnings


def test_a_commitment_keeps_the_effective_cost_that_the_export_says(read_bill: Read) -> None:
    row = focus_row(usd=0, EffectiveCost="33.00", PricingCategory="Committed", CommitmentDiscountId="sp-1")
    (group,) = read_bill(row).groups
    assert (group.billed_usd, group.effective_usd, group.purchase_option) == (0, 33, "committed")


def test_unused_hours_of_a_commitment_are_told_apart(read_bill: Read) -> None:
    row = focus_row(CommitmentDiscountStatus="Unused", PricingCategory="Committed")
    assert [group.unused for group in read_bill(row).groups] == [True]


def test_quantity_times_price_is_checked(read_bill: Read) -> None:
    found = read_bill(focus_row(), focus_row(usd=60, ListUnitPrice="55.04"))
    assert (found.check.rows, found.check.differing, found.check.difference_usd) == (2, 1, Decimal("4.96"))
    assert found.check.prices == ("ListUnitPrice",)


def test_a_month_booked_in_one_row_gives_no_rate(read_bill: Read) -> None:
    found = read_bill(focus_row(), focus_row(hours=744), focus_row(ChargeCategory="Credit", usd=-5))
    assert {group.once: group.billed_usd for group in found.groups} == {False: Decimal("55.04"), True: Decimal("50.04")}


def test_blocks_of_hours_are_multiplied(read_bill: Read) -> None:
    (group,) = read_bill(focus_row(PricingUnit="100 Hours", PricingQuantity="0.5")).groups
    assert group.hours == 50


def test_rows_belong_to_the_first_workload_that_they_match(read_bill: Read) -> None:
    rows = [
        focus_row(tags={"app": "chat"}),
        focus_row(tags={"app": "chat", "env": "dev"}),
        focus_row(SubAccountName="Batch"),
        focus_row(),
    ]
    matches = {
        "dev": [{"tag:env": "dev"}],
        "chat": [{"tag:app": "chat", "provider": "aws"}],
        "batch": [{"sub_account": "batch", "instance_type": "p5.48xlarge"}],
    }
    found = read_bill(*rows, matches=matches)
    assert sorted((group.workload or "-") for group in found.groups) == ["-", "batch", "chat", "dev"]


def test_hostile_values_of_a_match_are_only_values(read_bill: Read) -> None:
    nasty = "x'); DROP VIEW focus; --"
    found = read_bill(
        focus_row(tags={nasty: nasty}), matches={"w": [{f"tag:{nasty}": nasty}], "v": [{"region": nasty}]}
    )
    assert [group.workload for group in found.groups] == ["w"]


def test_the_last_charge_is_where_the_bill_ends(read_bill: Read) -> None:
    start = datetime(2026, 12, 5, 10, tzinfo=UTC)
    assert read_bill(focus_row(), focus_row(start=start)).through == start + timedelta(hours=1)


def test_a_fee_for_the_whole_month_does_not_move_the_end_of_the_bill(read_bill: Read) -> None:
    found = read_bill(focus_row(), focus_row(hours=744, ChargeCategory="Purchase", ChargeFrequency="Recurring"))
    assert found.through == datetime(2026, 12, 1, 1, tzinfo=UTC)


def test_charges_that_lie_ahead_of_now_are_not_taken(read_bill: Read) -> None:
    ahead = datetime(2026, 12, 5, tzinfo=UTC)
    found = read_bill(focus_row(), focus_row(start=ahead), until=ahead)
    assert (found.used, found.outside) == (1, 1)


def test_parquet_is_read_like_csv(read_bill: Read, tmp_path: Path) -> None:
    source = write_focus(tmp_path / "bill.csv", [focus_row(tags={"app": "chat"}), focus_row(BilledCost="x")])
    target = tmp_path / "bill.parquet"
    duckdb.execute(f"COPY (FROM read_csv('{source}', all_varchar = true)) TO '{target}'")
    matches = {"chat": [{"tag:app": "chat"}]}
    assert read_bill(path=target, matches=matches) == read_bill(path=source, matches=matches)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (("BilledCost", "BillingCurrency", "ChargeCategory", "ProviderName"), "no column ChargePeriodStart"),
        (("Cost", "BillingCurrency"), "no column BilledCost"),
        (("BilledCost", "BillingCurrency", "ChargePeriodStart", "ChargeCategory"), "neither ServiceProviderName nor"),
    ],
)
def test_an_export_without_a_needed_column_is_refused(read_bill: Read, columns: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        read_bill(focus_row(), columns=columns)


def test_what_is_no_table_is_refused_in_one_line(tmp_path: Path) -> None:
    for name, content in {
        "empty.csv": b"",
        "cut.parquet": b"PAR1\x00\x01",
        "noise.csv": bytes(range(256)) * 40,
    }.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(UsageError) as caught, opened(str(path)) as connection:
            connection.execute("SELECT count(*) FROM focus").fetchall()
        assert "\n" not in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"), opened(str(tmp_path / "missing.csv")):
        pass


def test_a_packed_csv_is_read(read_bill: Read, tmp_path: Path) -> None:
    path = tmp_path / "bill.csv.gz"
    path.write_bytes(gzip.compress(write_focus(tmp_path / "bill.csv", [focus_row()]).read_bytes()))
    assert read_bill(path=path).used == 1


def test_a_name_with_quotes_and_stars_means_one_file(tmp_path: Path) -> None:
    write_focus(tmp_path / "other.csv", [focus_row()] * 5)
    path = write_focus(tmp_path / "o*[1]'; .csv", [focus_row()])
    with opened(str(path)) as connection:
        assert connection.execute("SELECT count(*) FROM focus").fetchall() == [(1,)]
