"""Files of other tools: what they ask for, by line; what export wrote comes back; hostile files are refused."""

import json
import shlex
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optimizer.interop import targets
from optimizer.interop.asks import Ask
from optimizer.interop.launch_plan import LaunchPlan
from optimizer.interop.readers.command_lines import commands, servers
from optimizer.interop.readers.request_log import csv_lines
from optimizer.interop.recognise import recognise, with_wish
from optimizer.workload.traces import read_trace, summarize
from providers.errors import UsageError
from tests.optimizer.interop.builders import PLANS

BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nresources: *c\n"


def only(text: str) -> Ask:
    (ask,) = recognise(text, "file").asks
    return ask


@pytest.mark.parametrize(
    ("asked", "counts"),
    [
        ("H100", {"H100": 1}),
        ("H100:8", {"H100": 8}),
        ("{L4: 8, A10g: 4}", {"L4": 8, "A10g": 4}),
        ("[A100:4, A100-80GB:2]", {"A100": 4, "A100-80GB": 2}),
    ],
)
def test_every_spelling_of_skypilots_accelerators_is_read(asked: str, counts: dict[str, int]) -> None:
    ask = only(f"resources:\n  accelerators: {asked}\nrun: echo\n")
    assert {wish.named: wish.count for wish in ask.wishes} == counts
    assert {wish.line for wish in ask.wishes} == {2}


def test_alternatives_of_skypilot_are_each_a_wish_with_its_line() -> None:
    text = "num_nodes: 2\nresources:\n  use_spot: true\n  any_of:\n    - infra: aws\n      accelerators: H100:8\n"
    text += "    - infra: gcp\n      accelerators: A100-80GB:8\n"
    ask = only(text)
    assert [(wish.named, wish.line) for wish in ask.wishes] == [("H100", 6), ("A100-80GB", 8)]
    assert ask.nodes == 2
    assert ask.spot


def test_a_bare_a100_of_skypilot_has_40_gb() -> None:
    (wish,) = only("resources: {accelerators: 'A100:4'}\n").wishes
    assert wish.accelerator.memory_gib == 40


def test_an_accelerator_that_does_not_exist_is_told_with_line_and_suggestion() -> None:
    (fault,) = only("resources:\n  accelerators: H1000:8\n").faults
    assert fault.line == 2
    assert fault.fix.startswith("did you mean H100-SXM5-80GB, H100-PCIe-80GB")


@pytest.mark.parametrize(
    ("board", "module"),
    [
        *(("HGX H100", "H100-SXM5-80GB"), ("NVIDIA DGX H100", "H100-SXM5-80GB"), ("h100-hgx", "H100-SXM5-80GB")),
        ("GB200 NVL72", "GB200"),
    ],
)
def test_boards_and_racks_of_a_vendor_carry_its_modules(board: str, module: str) -> None:
    (wish,) = only(f"resources:\n  accelerators: '{board}:8'\n").wishes
    assert [variant.name for variant in wish.variants] == [module]


@pytest.mark.parametrize(
    ("gpu", "names"),
    [
        ("H100:8", {"H100"}),
        ("A10G,L4:24GB:2", {"A10G", "L4"}),
        ("{name: A100, memory: 80GB, count: 2}", {"A100"}),
    ],
)
def test_every_spelling_of_dstacks_gpu_is_read(gpu: str, names: set[str]) -> None:
    ask = only(f"type: task\nresources:\n  gpu: {gpu}\n")
    assert {wish.named for wish in ask.wishes} == names


def test_a_size_without_a_name_is_every_such_card() -> None:
    names = {wish.accelerator.name for wish in only("type: task\nresources: {gpu: 48GB}\n").wishes}
    assert {"L40S", "RTX A6000", "A40"} <= names
    assert "H100-SXM5-80GB" not in names


def test_memory_that_no_variant_has_is_a_fault() -> None:
    ask = only("type: task\nresources:\n  gpu: H100:30GB\n")
    assert not ask.wishes
    assert ask.faults[0].line == 3


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve m --tensor-parallel-size 4 --max-model-len 32K --quantization awq",
        "vllm serve m -tp=4 --max_model_len=32768 --quantization=awq",
        "python3 -m vllm.entrypoints.openai.api_server --model m --tensor-parallel-size=4 --max-model-len 32768 -q awq",
        "A=x nohup vllm serve 'm' \\\n  --tensor-parallel-size 4 \\\n  --max-model-len 32768 --quantization awq &",
    ],
)
def test_every_spelling_of_a_vllm_command_is_read(command: str) -> None:
    (found,) = servers(command)
    assert found.values["model"] == "m"
    assert found.count("tensor_parallel") == 4
    assert found.context_tokens == 32768
    assert found.precision == "int4"


def test_an_option_of_a_continued_command_has_its_own_line() -> None:
    ask = only("#!/bin/sh\nvllm serve m \\\n  --tensor-parallel-size 3\n")
    assert ask.lines["tensor_parallel"] == 3


@pytest.mark.parametrize("plan", [build() for build in PLANS.values()], ids=list(PLANS))
@pytest.mark.parametrize("target", ["vllm", "sglang", "kubernetes", "skypilot", "dstack"])
def test_what_export_wrote_comes_back(plan: LaunchPlan, target: str) -> None:
    files = targets.export(plan, target).files
    for group in plan.groups:
        found = [text for name, text in files.items() if group.name in name]
        if target == "dstack" and group.instances_per_replica > 1:
            assert not found
            continue
        ask = only(found[0])
        assert ask.model == group.model
        assert (ask.tensor_parallel, ask.pipeline_parallel) == (group.tensor_parallel, group.pipeline_parallel)
        assert ask.context_tokens == group.context_tokens
        assert ask.nodes == group.instances_per_replica
        assert ask.spot == group.is_spot
        assert ask.region == group.purchase.region
        assert ask.replicas * ask.data_parallel == group.replicas
        assert {wish.accelerator.memory_gib for wish in ask.wishes} == {_memory_of(group.purchase.accelerator)}
        in_all = sum(wish.count for wish in ask.wishes) * ask.nodes * ask.replicas
        assert in_all == group.accelerators_per_replica * group.replicas


def _memory_of(accelerator: str) -> float:
    from providers.accelerators import resolve

    return resolve(accelerator).memory_gib


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        "\0\1\2ELF",
        "a: [" * 5000,
        "hello",
        "- a\n- b\n",
        "{}",
        '{"a": 1}',
        "---\n" * 500 + "a: 1\n",
        "%PDF-1.7\n",
        "resources: {accelerators: !!python/object/apply:os.system ['id']}\n",
    ],
    ids=["anchors", "binary", "deep", "prose", "list", "empty", "other JSON", "many documents", "PDF", "object"],
)
def test_hostile_and_foreign_files_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        recognise(text, "file")
    assert "\n" not in str(refused.value)


def test_a_plan_is_told_to_be_exported() -> None:
    with pytest.raises(UsageError, match="costopt export"):
        recognise('{"schema": "costopt.plan"}', "plan.json")


OTEL = {
    "startTimeUnixNano": "1700000000000000000",
    "attributes": [
        {"key": "gen_ai.usage.input_tokens", "value": {"intValue": "120"}},
        {"key": "gen_ai.usage.output_tokens", "value": {"intValue": "30"}},
    ],
}
FLAT = {"timestamp": 1700000000.0, "usage": {"prompt_tokens": 120, "completion_tokens": 30}}


@pytest.mark.parametrize("entry", [OTEL, FLAT, {"time": 1.0, "prompt_tokens": 120, "completion_tokens": 30}])
def test_json_lines_become_a_trace(entry: dict[str, object]) -> None:
    lines = [json.dumps(entry), json.dumps(entry), "{not json}", ""]
    summary = summarize(read_trace(csv_lines(lines, "log"), "log"))
    assert summary.requests == 2
    assert (summary.input_tokens_mean, summary.output_tokens_mean) == (120, 30)
    assert sum(summary.rejected.values()) == 1


def test_two_json_lines_are_a_log() -> None:
    assert recognise(f"{json.dumps(FLAT)}\n{json.dumps(FLAT)}\n", "log").kind == "log"


def test_several_documents_keep_their_lines() -> None:
    first = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n---\n"
    pod = "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - name: c\n"
    pod += "    resources:\n      limits:\n        nvidia.com/gpu: 4\n"
    ask = only(first + pod)
    assert ask.lines["accelerators"] == 12
    assert replace(ask).accelerators_per_machine == 4


def test_variables_of_a_script_are_put_in_for_their_names() -> None:
    text = "MODEL=meta-llama/Llama-3.1-8B\nexport TP=2\nvllm serve $MODEL -tp ${TP} --max-model-len ${LEN:-4096}\n"
    (found,) = servers(text)
    assert (found.values["model"], found.count("tensor_parallel")) == ("meta-llama/Llama-3.1-8B", 2)
    assert found.context_tokens == 4096


def test_variables_that_double_do_not_fill_the_memory() -> None:
    text = "A=xx\n" + "A=$A$A\n" * 60 + "vllm serve " + "$A" * 30_000 + "\n"
    (found,) = servers(text)
    assert len(found.values["model"]) < 50_000_000


def test_degrees_beyond_a_machine_are_taken_as_several() -> None:
    ask = with_wish(only("vllm serve m -tp 8 -pp 2\n"), "H100-SXM", None)
    assert (ask.nodes, ask.wishes[0].count) == (2, 8)
    assert with_wish(ask, "H100-SXM", 16).wishes[0].count == 16


def test_several_commands_of_a_script_are_told_apart_by_their_lines() -> None:
    asks = recognise("#!/bin/sh\nvllm serve a &\nvllm serve b\n", "file").asks
    assert [ask.name for ask in asks] == ["server, line 2", "server, line 3"]


@pytest.mark.parametrize(
    ("flags", "told", "fatal"),
    [
        ("-tp $TP", "tensor parallel is $TP", False),
        ("-dp 0", "data parallel cannot be '0'", True),
        ("--gpu-memory-utilization 7", "memory share cannot be '7'", True),
        ("--max-model-len long", "context cannot be 'long'", True),
        ("--quantization secret", "quantization 'secret' is not known", False),
    ],
)
def test_flags_that_mean_nothing_are_told_not_left_out(flags: str, told: str, fatal: bool) -> None:
    (fault,) = only(f"vllm serve m \\\n  {flags}\n").flag_faults
    assert told in fault.what
    assert (fault.line, fault.fatal) == (2, fatal)


def test_flags_that_leave_it_to_the_engine_are_no_fault() -> None:
    assert only("vllm serve m --max-model-len auto -tp 2 -q fp8\n").flag_faults == ()


@given(st.text(alphabet=" ab='\"\\\t-.", max_size=40))
def test_words_of_a_command_are_those_of_a_posix_shell(line: str) -> None:
    line = f"run {line}."
    try:
        expected = [shlex.split(line)]
    except ValueError:
        expected = []
    assert [[word for _, word in words] for _, words in commands(line)] == expected


@pytest.mark.parametrize("quote", ["'", '"', 'a"x" ' * 9000 + "'"])
def test_quotes_that_stay_open_cost_no_more_than_others(quote: str) -> None:
    ask = only("#!/bin/bash\n" + (quote + "ab\\c d" * 5000 + "\n") * 20 + "vllm serve org/model -tp 8\n")
    assert ask.tensor_parallel == 8


def test_a_hash_within_a_word_is_no_comment() -> None:
    ask = only("vllm serve org/model --served-model-name a#b -tp 4  # eight later: -tp 8\n")
    assert ask.tensor_parallel == 4


def test_a_configuration_of_accelerate_says_machines_and_sharding() -> None:
    text = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nmixed_precision: bf16\n"
        "num_machines: 2\nnum_processes: 16\nfsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n"
        "  fsdp_offload_params: true\n  fsdp_activation_checkpointing: true\n"
    )
    ask = only(text)
    assert ask.training is not None
    assert (ask.nodes, ask.accelerators_per_machine, ask.training.precision) == (2, 8, "bf16")
    assert (ask.training.zero_stage, ask.training.offload, ask.training.recompute) == (
        2,
        {"params", "optimizer"},
        "full",
    )


def test_a_configuration_of_torchtune_names_its_model_by_its_builder_and_trains_in_its_dtype() -> None:
    text = "model: {_component_: torchtune.models.llama3_1.lora_llama3_1_8b, lora_rank: 8}\nbatch_size: 2\n"
    ask = only(f"{text}gradient_accumulation_steps: 4\ndtype: bf16\n")
    assert ask.training is not None
    assert (ask.model, ask.training.master_weights, ask.training.lora_rank) == ("llama-3.1-8b", False, 8)


def test_a_recipe_that_is_no_file_is_not_told_to_be_imported() -> None:
    (fault,) = only("tune run full_finetune_distributed --config llama3_1/70B_full\n").faults
    assert "`tune cp llama3_1/70B_full FILE.yaml`" in fault.fix


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name: "a"\nbackend: "vllm"\ninstance_group [ { count: 1 } ]\n', "folder"),
        ("upstream chat {\n    server chat-0:8000 weight=2;\n}\n", "shares of a router"),
        ("apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nspec: {rules: []}\n", "shares of a router"),
    ],
)
def test_a_file_that_is_only_a_part_says_what_to_import(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        recognise(text, "part")
