"""Layouts of a replica over several instances: stages cross between them, an all-reduce only in a rack."""

import pytest

from optimizer.sizing.layout import Hardware, Layout, layouts
from optimizer.workload.architecture import resolve_model
from providers.accelerators import resolve
from providers.errors import InvalidValue

LARGE = resolve_model("meta-llama/Llama-3.1-405B")


def hardware(gpu: str, count: int, machines: int, link: str = "nvlink") -> Hardware:
    return Hardware(accelerator=resolve(gpu), count=count, link=link, machines=machines)


@pytest.mark.parametrize("machines", [2, 3, 4])
def test_stages_cross_between_machines_and_the_group_stays_inside(machines: int) -> None:
    found = list(layouts(LARGE, hardware("H100-SXM5-80GB", 8 * machines, machines)))
    assert found == [Layout(tp=8, pp=machines)]


def test_in_a_rack_the_all_reduce_may_cross_too() -> None:
    found = list(layouts(LARGE, hardware("GB200", 8, 2)))
    assert found == [Layout(tp=8, pp=1), Layout(tp=4, pp=2)]


def test_cards_on_pcie_are_not_joined_across() -> None:
    assert list(layouts(LARGE, hardware("L4", 16, 2, "pcie"))) == [Layout(tp=8, pp=2)]


def test_one_machine_has_the_layouts_that_it_had() -> None:
    assert Layout(tp=4) in list(layouts(LARGE, hardware("H100-SXM5-80GB", 8, 1)))


@pytest.mark.parametrize("machines", [0, 3])
def test_machines_hold_equal_parts(machines: int) -> None:
    with pytest.raises(InvalidValue, match="machines"):
        hardware("H100-SXM5-80GB", 8, machines)
