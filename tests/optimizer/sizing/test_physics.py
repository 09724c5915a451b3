"""Physics holds for every model, accelerator, layout, dtype and engine: no roofline is beaten, more is never less."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from optimizer.sizing.dtypes import FORMATS, arithmetic, unsupported_reason, weight_bytes
from optimizer.sizing.engines import ENGINES, LARGE_CARD_GIB, EngineProfile, engine_profile
from optimizer.sizing.layout import Hardware, Layout, valid_tensor_parallel
from optimizer.sizing.load import steady
from optimizer.sizing.memory import cache_cost, estimate_memory, weights_per_accelerator
from optimizer.sizing.steps import StepCosts, step_costs
from optimizer.workload.architecture import Architecture, models
from providers.accelerators import Accelerator, catalogue

MODELS = sorted(models())
ACCELERATORS = sorted(catalogue())
ROUNDING = 1 + 1e-9


@st.composite
def setups(draw: st.DrawFn) -> tuple[Architecture, Hardware, Layout, str, EngineProfile]:
    model = models()[draw(st.sampled_from(MODELS))]
    accelerator = catalogue()[draw(st.sampled_from(ACCELERATORS))]
    runnable = [name for name in sorted(FORMATS) if unsupported_reason(accelerator, FORMATS[name]) is None]
    name = draw(st.sampled_from(runnable))
    tp = draw(st.sampled_from(valid_tensor_parallel(model, 8)))
    pp = draw(st.sampled_from([1, 2, 4]))
    engine = engine_profile(draw(st.sampled_from(sorted(ENGINES))), year=draw(st.floats(2023.6, 2026.5)))
    link = "nvlink" if accelerator.link == "nvlink" else "pcie"
    return model, Hardware(accelerator=accelerator, count=tp * pp, link=link), Layout(tp=tp, pp=pp), name, engine


def costs_of(setup: tuple[Architecture, Hardware, Layout, str, EngineProfile], **faster: object) -> StepCosts:
    model, hardware, layout, name, engine = setup
    if faster:
        hardware = replace(hardware, accelerator=replace(hardware.accelerator, **faster))
    return step_costs(model, hardware, layout, FORMATS[name], 2.0, engine)


@settings(max_examples=150, deadline=None)
@given(setups(), st.integers(1, 512), st.integers(1, 65536))
def test_a_step_is_never_faster_than_reading_the_weights_and_the_cache_once(setup, batch, context) -> None:
    model, hardware, layout, name, _ = setup
    bandwidth = hardware.accelerator.memory_bandwidth_gb_per_s * 1e9
    stage = max(1.0, batch / layout.pp)
    read = weight_bytes(model, FORMATS[name]).read_per_step / layout.tp
    cache = stage * cache_cost(model, layout, 2.0).bytes_for(context) * layout.pp
    assert costs_of(setup).decode_s(batch, context) >= (read + cache) / bandwidth


@settings(max_examples=150, deadline=None)
@given(setups(), st.integers(1, 512), st.integers(1, 65536))
def test_a_step_is_never_faster_than_multiplying_the_active_parameters(setup, batch, context) -> None:
    model, hardware, layout, name, _ = setup
    _, peak = arithmetic(hardware.accelerator, FORMATS[name])
    # GeForce cards double their 16-bit rate when they accumulate in 16 bit, as llama.cpp does.
    active = max(0.0, model.params_active - model.params_embedding - model.params_lm_head)
    flops = 2 * active * max(1.0, batch / layout.pp) / layout.tp
    assert costs_of(setup).decode_s(batch, context) >= flops / (2 * peak)


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(1, 512), st.integers(1, 32768), st.floats(1.0, 4.0))
def test_more_bandwidth_is_never_slower(setup, batch, context, factor) -> None:
    more = setup[1].accelerator.memory_bandwidth_gb_per_s * factor
    slow, fast = costs_of(setup), costs_of(setup, memory_bandwidth_gb_per_s=more)
    assert fast.decode_s(batch, context) <= slow.decode_s(batch, context) * ROUNDING
    assert fast.prefill_s(context) <= slow.prefill_s(context) * ROUNDING


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(1, 512), st.integers(1, 32768), st.floats(1.0, 4.0))
def test_more_flops_are_never_slower(setup, batch, context, factor) -> None:
    more = {key: rate * factor for key, rate in setup[1].accelerator.dense_tflops.items()}
    slow, fast = costs_of(setup), costs_of(setup, dense_tflops=more)
    assert fast.decode_s(batch, context) <= slow.decode_s(batch, context) * ROUNDING
    assert fast.prefill_s(context) <= slow.prefill_s(context) * ROUNDING


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(1, 256), st.integers(1, 32768), st.integers(0, 32768))
def test_a_longer_context_is_never_faster(setup, batch, context, longer) -> None:
    costs = costs_of(setup)
    assert costs.decode_s(batch, context) <= costs.decode_s(batch, context + longer) * ROUNDING
    assert costs.prefill_s(context) <= costs.prefill_s(context + longer) * ROUNDING


@settings(max_examples=150, deadline=None)
@given(setups(), st.integers(1, 512), st.integers(1, 256), st.integers(1, 8192), st.integers(1, 2048))
def test_a_larger_batch_never_lowers_the_rate_nor_the_time_per_token(setup, batch, more, tokens, answer) -> None:
    costs = costs_of(setup)
    few, many = (steady(costs, tokens, answer, b) for b in (batch, batch + more))
    assert many.requests_per_s * ROUNDING >= few.requests_per_s
    assert many.tpot_s * ROUNDING >= few.tpot_s


@settings(max_examples=100, deadline=None)
@given(setups(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_a_larger_share_of_the_prompt_in_the_prefix_cache_is_never_slower(setup, less, more) -> None:
    costs = costs_of(setup)
    low, high = sorted((less, more))
    slow, fast = (steady(costs, 4096, 256, 16, cached) for cached in (4095 * low, 4095 * high))
    assert fast.prefill_s <= slow.prefill_s * ROUNDING
    assert fast.requests_per_s * ROUNDING >= slow.requests_per_s


@settings(max_examples=100, deadline=None)
@given(setups(), st.floats(1.0, 2.0))
def test_more_memory_never_leaves_less_room_for_the_cache(setup, factor) -> None:
    model, hardware, layout, name, engine = setup
    accelerator = hardware.accelerator
    more = accelerator.usable_memory_gib * factor
    if accelerator.usable_memory_gib < LARGE_CARD_GIB:
        # From there on vLLM raises its own defaults, which takes memory: that step is the engine's, not the card's.
        more = min(more, max(accelerator.usable_memory_gib, LARGE_CARD_GIB - 1))
    larger: Accelerator = replace(accelerator, usable_memory_gib=more)
    small, big = (estimate_memory(model, a, layout, FORMATS[name], 2.0, engine) for a in (accelerator, larger))
    assert big.kv_room_gib >= small.kv_room_gib
    assert big.max_context_tokens >= small.max_context_tokens


@settings(max_examples=100, deadline=None)
@given(setups(), st.integers(1, 100_000), st.integers(0, 100_000))
def test_the_cache_of_a_longer_sequence_is_never_smaller(setup, context, longer) -> None:
    model, _, layout, _, _ = setup
    cost = cache_cost(model, layout, 2.0)
    assert cost.bytes_for(context) <= cost.bytes_for(context + longer)
    assert cost.tokens_in(cost.bytes_for(context)) <= cost.tokens_in(cost.bytes_for(context + longer))


@settings(max_examples=100, deadline=None)
@given(setups())
def test_more_ranks_never_hold_more_weights_each(setup) -> None:
    model, _, layout, name, engine = setup
    weights = [
        weights_per_accelerator(model, FORMATS[name], replace(layout, tp=tp), engine)
        for tp in valid_tensor_parallel(model, 8)
    ]
    assert all(more <= fewer * ROUNDING for fewer, more in pairwise(weights))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MODELS))
def test_fewer_bits_never_weigh_more(hf_id) -> None:
    model = models()[hf_id]
    order = ["fp32", "bf16", "int8_gptq", "fp8", "fp4", "int4", "nf4"]
    sizes = [weight_bytes(model, FORMATS[name]).total for name in order]
    assert sizes == sorted(sizes, reverse=True)
