"""Turns a training plan into corrections of the claims about it that are often met and wrong, with the arithmetic."""

from collections.abc import Iterator
from typing import Final

from optimizer.sizing.dtypes import weight_bytes, weight_format
from optimizer.sizing.training.calibration import optimizer_states, stack_named
from optimizer.sizing.training.layouts import TrainingEstimate
from providers.accelerators import catalogue
from providers.units import GB, GIB

_LARGE: Final = 30e9
"""From so many parameters on, full fine-tuning on one small machine is the usual mistake."""

_SPARSE_VENDORS: Final = frozenset({"NVIDIA", "AMD"})
"""Vendors whose datasheets print 16-bit rates with 2:4 sparsity, twice the dense ones."""


def corrections(estimate: TrainingEstimate) -> Iterator[str]:
    """One paragraph for each claim that this job invites; figures of the job's own model and accelerator."""
    setup = estimate.setup
    if not setup.is_adapter and setup.mixed and optimizer_states(setup.optimizer).mixed_bytes == 8.0:
        yield twelve_bytes(estimate)
    if not setup.is_adapter and setup.model.params_total >= _LARGE:
        yield four_accelerators(estimate)
    if setup.task == "qlora":
        yield four_bits(estimate)
    family = setup.cluster.accelerator.families[0]
    if family == "h100":
        yield h100_peak()
    accelerator = setup.cluster.accelerator
    if "fp8" in accelerator.dense_tflops and accelerator.vendor in _SPARSE_VENDORS:
        yield sparse_peak(estimate)
    if family == "a100":
        yield a100_instance()


def twelve_bytes(estimate: TrainingEstimate) -> str:
    """12 bytes per parameter are the optimizer's part of AdamW in mixed precision, not all of the memory."""
    setup = estimate.setup
    parameters = setup.model.params_total
    weights, gradients = (4, 4) if stack_named(setup.stack).shards_master else (2, 4)
    total = weights + gradients + 8 + (0 if stack_named(setup.stack).shards_master else 4)
    master = "the weights are the FP32 master" if weights == 4 else "master copy 4"
    return (
        f'"AdamW needs 12 bytes per parameter": those are the moments (8) and the FP32 master copy (4) alone. With '
        f"weights ({weights}) and gradients ({gradients}; {master}) it is {total} bytes: {parameters / 1e9:.2f} B x "
        f"{total} = {parameters * total / GIB:,.0f} GiB, not {parameters * 12 / GIB:,.0f}, and activations come on top"
    )


def four_accelerators(estimate: TrainingEstimate) -> str:
    """Full fine-tuning of a large model does not fit four cards, whatever shards it."""
    setup = estimate.setup
    states = setup.model.params_total * 16 / GIB
    usable = setup.cluster.accelerator.usable_memory_gib
    least = -(-states // usable)
    return (
        f'"{setup.model.params_total / 1e9:.0f} B fine-tunes in full on 4 accelerators": 16 bytes per parameter are '
        f"{states:,.0f} GiB of states, {states / 4:,.0f} GiB on each of four; {setup.cluster.accelerator.name} has "
        f"{usable:.0f} GiB usable, so at least {least:.0f} are needed before any activation"
    )


def four_bits(estimate: TrainingEstimate) -> str:
    """4-bit weights are a quarter of 16-bit ones, plus scales and embeddings; one eighth is of FP32."""
    model = estimate.setup.model
    stored = weight_bytes(model, weight_format("int4")).total
    return (
        f'"4 bits take one eighth": of FP32. Of 16 bit they take a quarter, and scales, zero points and 16-bit '
        f"embeddings come on top: {stored / GB:.1f} GB for {model.params_total / 1e9:.2f} B parameters, "
        f"{stored * 8 / model.params_total:.2f} bits each, where one eighth of 16 bit would be "
        f"{model.params_total * 2 / 8 / GB:.1f} GB"
    )


def h100_peak() -> str:
    """756 TFLOPS is the PCIe card's dense bf16 rate."""
    pcie, sxm = (catalogue()[name].dense_tflops["bf16"] for name in ("H100-PCIe-80GB", "H100-SXM5-80GB"))
    return f'"an H100 does {pcie:.0f} TFLOPS": that is the PCIe card; the SXM5 does {sxm:.0f} dense in bf16'


def sparse_peak(estimate: TrainingEstimate) -> str:
    """Datasheets print rates with 2:4 sparsity, which training does not use."""
    accelerator = estimate.setup.cluster.accelerator
    dense = accelerator.dense_tflops.get("bf16") or accelerator.dense_tflops["fp16"]
    achieved = estimate.step.mfu * dense
    return (
        f'"{accelerator.name} does {2 * dense:,.0f} TFLOPS in bf16": with 2:4 sparsity, which training does not use. '
        f"Dense it is {dense:,.0f}: {achieved:,.0f} TFLOPS achieved are {achieved / dense:.0%} of it, not "
        f"{achieved / dense / 2:.0%}"
    )


def a100_instance() -> str:
    """AWS's p3 machines have V100s."""
    return '"an A100 is a p3.8xlarge": that has 4 x V100 16 GB; A100s are p4d (40 GB) and p4de (80 GB), 8 a machine'
