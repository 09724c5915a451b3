"""Turns a service that a file asks for into its size on accelerators, and what keeps it from running there."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from optimizer.interop.asks import Ask, Fault, Wish
from optimizer.sizing.dtypes import precision_notes, unsupported_reason, weight_bytes, weight_format
from optimizer.sizing.layout import Hardware, tensor_parallel_problem, valid_tensor_parallel
from optimizer.sizing.serving import ServingEstimate, size_serving
from optimizer.workload.architecture import Architecture
from optimizer.workload.workload import SLO, RequestShape
from providers.errors import UsageError
from providers.instance_types import usual_link
from providers.units import GIB


def model_faults(ask: Ask, model: Architecture) -> Iterator[Fault]:
    """What the model rules out, on whatever accelerators: degrees, context, a format that its checkpoint is not in."""
    yield from layout_faults(ask, model)
    longest = model.longest_context
    if ask.context_tokens is not None and longest and ask.context_tokens > longest:
        yield Fault(
            line=ask.lines.get("context"),
            what=f"{ask.context_tokens:,} tokens are more than the {longest:,} positions of {model.hf_id}",
            fix=f"use at most {longest}",
        )
    yield from _quantization_faults(ask, model)


_NEEDS_CHECKPOINT: Final = ("awq", "gptq", "modelopt", "compressed", "w8a8", "mxfp4", "exl2", "aqlm", "quark")
"""Beginnings of methods whose weights must be in the checkpoint; fp8 and bitsandbytes are made at start."""


def _quantization_faults(ask: Ask, model: Architecture) -> Iterator[Fault]:
    """A quantisation flag that does not go with the checkpoint."""
    flag = (ask.quantization or "").lower()
    method = next((start for start in _NEEDS_CHECKPOINT if flag.startswith(start)), None)
    named = next((start for start in _NEEDS_CHECKPOINT if start in (ask.model or "").lower()), None)
    native = weight_format(model.native_dtype)
    if method is None and (named is None or not flag):
        return
    line = ask.lines.get("quantization")
    if method is not None and native.linear_bits >= 16 and named is None:
        yield Fault(
            line=line,
            what=f"{ask.model} is a {native.name} checkpoint: {flag} weights must be made before",
            fix="name a checkpoint in that format, or use one made at start (fp8, bitsandbytes)",
        )
    elif named is not None and method != named:
        yield Fault(
            line=line,
            what=f"the checkpoint of {ask.model} is {named}, the flag says {flag}",
            fix="leave the flag out: engines read the format from the checkpoint",
        )


def layout_faults(ask: Ask, model: Architecture) -> Iterator[Fault]:
    """Degrees that the model does not allow."""
    tensor, pipeline = ask.tensor_parallel, ask.pipeline_parallel
    problem = None if tensor is None else tensor_parallel_problem(model, tensor)
    if tensor is not None and problem:
        valid = ", ".join(str(tp) for tp in valid_tensor_parallel(model, max(8, min(tensor, 128))))
        yield Fault(
            line=ask.lines.get("tensor_parallel"),
            what=f"tensor parallelism over {tensor} cannot work for {model.hf_id}: {problem}",
            fix=f"use one of {valid}",
        )
    if pipeline is not None and pipeline > model.layers:
        yield Fault(
            line=ask.lines.get("pipeline_parallel"),
            what=f"{pipeline} pipeline stages are more than the {model.layers} layers of {model.hf_id}",
            fix="use fewer stages",
        )


def count_faults(ask: Ask, one: Wish) -> Iterator[Fault]:
    """Degrees of a server that need other numbers of accelerators than there are."""
    degrees = (ask.tensor_parallel or 1, ask.pipeline_parallel or 1, ask.data_parallel)
    needed = degrees[0] * degrees[1] * degrees[2]
    there = one.count * ask.nodes
    if ask.engine is None or needed == there:
        return
    words = " x ".join(
        f"{name} {degree}" for name, degree in zip(("TP", "PP", "DP"), degrees, strict=True) if degree > 1
    )
    lines = (ask.lines.get(name) for name in ("tensor_parallel", "pipeline_parallel", "data_parallel", "command"))
    line = next((found for found in lines if found is not None), one.line)
    machines = f" ({ask.nodes} machines of {one.count})" if ask.nodes > 1 else ""
    if needed > there:
        yield Fault(
            line=line,
            what=f"{words} takes {needed} accelerators, there are {there}{machines} of {one.named}",
            fix=f"ask for {needed}, or make the degrees multiply to {there}",
        )
    else:
        yield Fault(
            line=line,
            what=f"{needed} of {there} accelerators are used: the others idle and are paid",
            fix="set --tensor-parallel-size (or --data-parallel-size), or ask for fewer",
            fatal=False,
        )


def sized_service(
    ask: Ask, one: Wish, model: Architecture, shape: RequestShape, slo: SLO
) -> tuple[ServingEstimate | None, list[Fault]]:
    """One replica on the accelerators, on the layout that the flags give (engines take one accelerator unless told),
    or the widest; and what is wrong with it there. None where it cannot be started at all."""
    faults = [*count_faults(ask, one), *_dtype_faults(ask, one, model)]
    if any(fault.fatal for fault in (*faults, *layout_faults(ask, model))):
        return None, [*faults, *_weight_faults(ask, one, model)]
    try:
        sized = _sized(ask, one, model, shape, slo)
    except UsageError as error:
        return None, [*faults, Fault(line=one.line, what=str(error), fix="change the layout or the count")]
    faults += _memory_faults(ask, one, model, sized)
    if _is_held_back(ask, sized):
        wider = _sized(replace(ask, max_sequences=None), one, model, shape, slo)
        faults += _limit_faults(ask, sized, wider)
    return sized, faults


def _is_held_back(ask: Ask, sized: ServingEstimate) -> bool:
    return sized.performance is not None and sized.performance.batch == ask.max_sequences


def _limit_faults(ask: Ask, sized: ServingEstimate, wider: ServingEstimate) -> Iterator[Fault]:
    """A limit on requests that costs a tenth of the throughput or more."""
    if sized.performance is None or wider.performance is None:
        return
    held, free = sized.performance.requests_per_s.value, wider.performance.requests_per_s.value
    if held < 0.9 * free:
        yield Fault(
            line=ask.lines.get("sequences"),
            what=f"at most {ask.max_sequences:,} requests at once: {held:.3g} requests/s a replica",
            fix=f"with the engine's own limit {free:.3g} meet the same latency",
            fatal=False,
        )


def _sized(ask: Ask, one: Wish, model: Architecture, shape: RequestShape, slo: SLO) -> ServingEstimate:
    count = one.count * ask.nodes
    tensor, pipeline = ask.tensor_parallel, ask.pipeline_parallel
    if ask.engine is not None and tensor is None:
        tensor = 1
    if ask.data_parallel > 1:
        count = (tensor or 1) * (pipeline or 1)
    return size_serving(
        model,
        Hardware(
            accelerator=one.accelerator,
            count=count,
            link=usual_link(one.accelerator, count),
            machines=ask.nodes if count % ask.nodes == 0 else 1,
        ),
        shape=shape,
        slo=slo,
        precision=ask.precision or _checkpoint_precision(model, one),
        kv_precision=ask.kv_precision,
        engine=ask.engine,
        context_tokens=ask.context_tokens,
        tp=tensor,
        pp=pipeline,
        gpu_memory_utilization=ask.memory_share,
        max_sequences=ask.max_sequences,
    )


def _checkpoint_precision(model: Architecture, one: Wish) -> str:
    """An engine without a flag loads the checkpoint as it is; hardware without bf16 takes fp16."""
    if model.native_dtype == "bf16" and "bf16" not in one.accelerator.dense_tflops:
        return "fp16"
    return model.native_dtype


def _dtype_faults(ask: Ask, one: Wish, model: Architecture) -> Iterator[Fault]:
    """Formats that the accelerator cannot run, or only as weights that are multiplied in 16 bit."""
    fmt = weight_format(ask.precision or _checkpoint_precision(model, one))
    line = ask.lines.get("quantization") or ask.lines.get("dtype") or ask.lines.get("model") or one.line
    reason = unsupported_reason(one.accelerator, fmt)
    if reason is not None:
        better = "fp16" if fmt.name == "bf16" else "a format that it computes, or a newer accelerator"
        yield Fault(line=line, what=reason, fix=f"use {better}")
    elif ask.precision is not None or fmt.linear_bits < 16:
        for note in precision_notes(one.accelerator, fmt):
            if "arithmetic" in note:
                yield Fault(line=line, what=note, fix="memory is saved, prefill is not faster", fatal=False)


def _weight_faults(ask: Ask, one: Wish, model: Architecture) -> Iterator[Fault]:
    """Weights that no layout could hold: more than all accelerators have."""
    precision = ask.precision or _checkpoint_precision(model, one)
    weights = weight_bytes(model, weight_format(precision)).total / GIB
    count = one.count * ask.nodes
    memory = count * one.accelerator.usable_memory_gib
    if weights > memory:
        yield Fault(
            line=one.line,
            what=f"weights of {model.hf_id} in {precision} are {weights:,.0f} GiB, {count} x {one.accelerator.name} "
            f"have {memory:,.0f} GiB",
            fix="take more or larger accelerators, or a smaller format",
        )


def _memory_faults(ask: Ask, one: Wish, model: Architecture, sized: ServingEstimate) -> Iterator[Fault]:
    memory, used = sized.memory, sized.layout.accelerators
    if sized.verdict == "does_not_fit":
        weights = weight_bytes(model, weight_format(sized.precision)).total / GIB
        least = f"from {sized.min_gpus} {one.accelerator.name} on it fits" if sized.min_gpus else "take larger cards"
        alone = weights > used * memory.budget_gib
        native = weight_format(model.native_dtype)
        if weight_format(sized.precision).linear_bits > native.linear_bits and "dtype" in ask.lines:
            smaller = f"leave --dtype out: the checkpoint is in {native.name}"
        else:
            smaller = "take a smaller format"
        longest = memory.max_context_tokens
        if "context" in ask.lines and 0 < longest < sized.context_tokens:
            smaller += f", or let requests have at most {longest} tokens"
        cache = "" if alone else f", and {sized.context_tokens:,} tokens of cache,"
        yield Fault(
            line=one.line,
            what=(
                f"{model.hf_id} in {sized.precision} does not fit on {used} x {one.accelerator.name}: weights "
                f"{weights:,.0f} GiB{' alone' if alone else ''}{cache} on {used} x {memory.budget_gib:.1f} GiB that "
                f"the engine may take ({used * memory.budget_gib:,.0f} GiB)"
            ),
            fix=f"{least}, or {smaller}",
        )
    elif sized.verdict == "tight":
        yield Fault(
            line=one.line,
            what=f"tight on {used} x {one.accelerator.name}: room for {sized.max_concurrency} requests of "
            f"{sized.context_tokens:,} tokens",
            fix=f"comfortable from {sized.min_gpus_comfortable or 'more than was tried'}",
            fatal=False,
        )
