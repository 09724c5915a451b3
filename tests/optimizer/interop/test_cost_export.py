"""Accelerators that the text of a charge names."""

import pytest

from optimizer.interop.readers.cost_export import accelerator_in


@pytest.mark.parametrize(
    ("text", "accelerator"),
    [
        ("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas", "A100-SXM4-40GB"),
        ("Nvidia Tesla A100 80GB GPU running in Americas", "A100-SXM4-80GB"),
        ("Nvidia Tesla V100 GPU attached to Spot Preemptible VMs running in Iowa", "V100-SXM2-16GB"),
        ("NVIDIA A100 80GB PCIe pod", "A100-PCIe-80GB"),
        ("Nvidia H100 80GB Mega GPU running in Americas", "H100-SXM5-80GB"),
        ("Nvidia L4 GPU running in Belgium", "L4"),
        ("TpuV5e TPU v5e", "TPU v5e"),
        ("A3 Instance Core running in Americas", None),
        ("GPU of some kind", None),
    ],
)
def test_the_text_of_a_charge_names_the_accelerator(text: str, accelerator: str | None) -> None:
    assert accelerator_in(text) == accelerator
