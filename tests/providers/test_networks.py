"""Networks between machines, and how often spot machines are taken back."""

import math

import pytest

from providers.accelerators import resolve
from providers.interruptions import ASSUMED_MONTHLY_RATE, interruption_rate
from providers.networks import network_of, usual_domain, usual_network_gbit


@pytest.mark.parametrize(
    ("provider", "machine", "gbit"),
    [
        ("aws", "p4d.24xlarge", 400),
        ("aws", "p5.48xlarge", 3200),
        ("aws", "p6-b300.48xlarge", 6400),
        ("gcp", "a3-highgpu-8g", 800),
        ("gcp", "a3-megagpu-8g", 1600),
        ("gcp", "a2-ultragpu-8g", 100),
        ("azure", "Standard_ND96isr_H100_v5", 3200),
        ("azure", "Standard_ND96asr_v4", 1600),
    ],
)
def test_machines_that_are_sold_for_clusters_have_their_documented_network(
    provider: str, machine: str, gbit: float
) -> None:
    network = network_of(provider, machine)
    assert network is not None
    assert network.gbit_per_s == gbit
    assert network.source


@pytest.mark.parametrize(
    ("provider", "machine"),
    [
        ("lambda", "gpu_8x_h100_sxm5"),
        ("runpod", "8x_NVIDIA_H100_80GB_HBM3_SECURE"),
        ("azure", "Standard_ND96is_noIB_H100_v5"),
        ("aws", "p5.4xlarge"),
        ("gcp", "a3-highgpu-4g"),
    ],
)
def test_machines_without_a_documented_network_have_none(provider: str, machine: str) -> None:
    assert network_of(provider, machine) is None


def test_reference_machines_have_the_networks_of_their_time() -> None:
    assert usual_network_gbit(resolve("A100-80GB")) == 1600
    assert usual_network_gbit(resolve("H100")) == 3200
    assert usual_network_gbit(resolve("L40S")) == 100


def test_racks_and_pods_reach_further_than_a_machine() -> None:
    assert usual_domain(resolve("GB200")) == 72
    assert usual_domain(resolve("H100")) == 8


def test_a_published_interruption_rate_has_its_source_and_day() -> None:
    rate = interruption_rate("aws", "g4dn.xlarge", "us-east-1")
    assert rate.source
    assert rate.observed_on is not None
    assert 0 < rate.monthly_share <= 0.3
    assert rate.per_hour == pytest.approx(-math.log(1 - rate.monthly_share) / 730)


def test_a_region_without_a_rate_takes_the_machines_worst_and_an_unknown_machine_the_assumed_one() -> None:
    known = interruption_rate("aws", "g4dn.xlarge", "mars-north-1")
    assert known.source
    assert interruption_rate("runpod", "anything", None).monthly_share == ASSUMED_MONTHLY_RATE
    assert interruption_rate("runpod", "anything", None).source is None
