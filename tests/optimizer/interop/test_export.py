"""Exported files: what they say, what the targets' own parsers say of them, and names that would break them."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.interop import targets
from optimizer.interop.launch_plan import LaunchPlan, slug
from optimizer.interop.orchestrators import terraform
from optimizer.interop.plan_file import parse_plan
from optimizer.interop.recognise import recognise
from optimizer.interop.routers import nginx
from optimizer.interop.serving import vllm
from providers.errors import UnknownName, UsageError
from tests.optimizer.interop.builders import PLANS, make_document, make_instances, make_plan, make_replicas

HOSTILE = "evil/$(touch owned)`id`';\"${x}%{y} #: [&a *a] \\ {{}}"
every_plan = pytest.mark.parametrize("plan", [build() for build in PLANS.values()], ids=list(PLANS))


def files_of(plan: LaunchPlan, target: str) -> dict[str, str]:
    return dict(targets.export(plan, target).files)


def hostile() -> LaunchPlan:
    return make_plan(
        [make_instances(instance_type=HOSTILE, region=HOSTILE, source="a\nb: $(id)")],
        [make_replicas(instance_type=HOSTILE, region=HOSTILE)],
        model=HOSTILE,
    )


@every_plan
@pytest.mark.parametrize("target", [*targets.SERVING, *targets.ROUTERS, *targets.ORCHESTRATORS])
def test_every_file_says_which_plan_prices_and_dates_it_comes_from(plan: LaunchPlan, target: str) -> None:
    for name, text in files_of(plan, target).items():
        if name.endswith("model.json"):
            continue
        assert plan.digest in text
        assert "plan.json" in text
        assert "USD/h each as of 2026-11-09" in text


def test_a_vllm_command_has_the_layout_and_the_limits_of_the_plan() -> None:
    words = vllm.arguments(make_plan().groups[0])
    pairs = dict(zip(words[3::2], words[4::2], strict=True))
    assert words[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-70B"]
    assert pairs["--tensor-parallel-size"] == "8"
    assert pairs["--max-model-len"] == "4096"
    assert pairs["--max-num-seqs"] == "64"
    assert pairs["--dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("machine", "accelerator", "chips", "slice_", "kind", "topology"),
    [
        ("ct5lp-hightpu-4t", "TPU v5e", 4, "tpu-v5litepod-4", "tpu-v5-lite-podslice", "2x2"),
        ("ct6e-standard-8t", "TPU v6e (Trillium)", 8, "tpu-v6e-8", "tpu-v6e-slice", "2x4"),
        ("ct5p-hightpu-4t", "TPU v5p", 4, "tpu-v5p-8", "tpu-v5p-slice", "2x2x1"),
    ],
)
def test_tpus_are_asked_for_as_their_clouds_name_them(
    machine: str, accelerator: str, chips: int, slice_: str, kind: str, topology: str
) -> None:
    place: dict[str, Any] = {"provider": "gcp", "region": "us-central1", "instance_type": machine}
    place["accelerator"] = accelerator
    plan = make_plan(
        [make_instances(**place, accelerator_count=chips)], [make_replicas(**place, tensor_parallel=chips)]
    )
    (text,) = files_of(plan, "kubernetes").values()
    labels = next(yaml.safe_load_all(text))["spec"]["template"]["spec"]["nodeSelector"]
    assert labels["cloud.google.com/gke-tpu-accelerator"] == kind
    assert labels["cloud.google.com/gke-tpu-topology"] == topology
    exported = targets.export(plan, "skypilot")
    document = yaml.safe_load(next(iter(exported.files.values())))
    assert document["resources"]["accelerators"] == {slice_: 1}
    assert "instance_type" not in document["resources"]
    assert document["setup"].startswith("pip install vllm-tpu==")
    for target in ("kubernetes", "skypilot"):
        (ask,) = recognise(next(iter(files_of(plan, target).values())), "file").asks
        assert [(wish.accelerator.name, wish.count) for wish in ask.wishes] == [(accelerator, chips)]


@pytest.mark.parametrize(
    ("model", "precision", "words"),
    [
        ("meta-llama/Llama-3.1-70B", "fp8", ["--quantization", "fp8"]),
        ("deepseek-ai/DeepSeek-V3", "fp8", []),
        ("meta-llama/Llama-3.1-70B", "int4", []),
    ],
)
def test_a_flag_for_the_precision_only_where_the_checkpoint_needs_one(
    model: str, precision: str, words: list[str]
) -> None:
    plan = make_plan(None, [make_replicas(precision=precision)], model=model)
    assert vllm.arguments(plan.groups[0])[3 : 3 + len(words)] == words
    assert ("--quantization" in vllm.arguments(plan.groups[0])) == bool(words)


def test_a_format_that_no_flag_makes_is_a_warning() -> None:
    plan = make_plan(None, [make_replicas(precision="int4")])
    assert any("int4" in warning for warning in targets.export(plan, "vllm").warnings)


def test_a_cache_in_fp8_is_asked_for() -> None:
    assert "--kv-cache-dtype" in vllm.arguments(make_plan(kv_precision="fp8").groups[0])


def test_replicas_that_do_not_spread_evenly_are_a_warning() -> None:
    plan = make_plan([make_instances(count=2)], [make_replicas(tensor_parallel=2, count=5)])
    assert plan.groups[0].per_instance == 3
    assert any("5 replicas" in warning for warning in targets.export(plan, "skypilot").warnings)


@every_plan
@pytest.mark.parametrize("target", ["vllm", "sglang", "tensorrt-llm", "slurm"])
def test_scripts_are_bash(plan: LaunchPlan, target: str, tmp_path: Path) -> None:
    for text in files_of(plan, target).values():
        checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
        assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("target", ["vllm", "sglang"])
def test_a_hostile_model_name_stays_one_word(target: str, tmp_path: Path) -> None:
    (script,) = files_of(hostile(), target).values()
    (tmp_path / target).write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\n" "$word"; done\n')
    (tmp_path / target).chmod(0o755)
    ran = subprocess.run(
        ["bash", "-c", script],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=True,
    )
    assert HOSTILE in ran.stdout.splitlines()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("target", ["kubernetes", "skypilot", "dstack"])
def test_hostile_names_stay_values_in_yaml(target: str) -> None:
    (text,) = files_of(hostile(), target).values()
    documents = list(yaml.safe_load_all(text))
    assert all(isinstance(document, dict) for document in documents)
    if target == "dstack":
        assert documents[0]["model"] == HOSTILE
    if target == "kubernetes":
        args = documents[0]["spec"]["template"]["spec"]["containers"][0]["args"]
        assert args[0] == HOSTILE.replace("$(", "$$("), "Kubernetes would expand $(NAME)"


def test_a_name_that_a_command_would_take_for_an_option_is_refused() -> None:
    with pytest.raises(UsageError, match="hyphen"):
        make_plan(model="--trust-remote-code")


@every_plan
def test_manifests_have_the_replicas_and_accelerators_of_the_plan(plan: LaunchPlan) -> None:
    for group, text in zip(plan.groups, files_of(plan, "kubernetes").values(), strict=True):
        workload, service = yaml.safe_load_all(text)
        assert workload["spec"]["replicas"] == group.replicas
        if workload["kind"] == "LeaderWorkerSet":
            template = workload["spec"]["leaderWorkerTemplate"]
            pods, size = [template["leaderTemplate"], template["workerTemplate"]], template["size"]
        else:
            pods, size = [workload["spec"]["template"]], 1
        for pod in pods:
            limits = pod["spec"]["containers"][0]["resources"]["limits"]
            assert int(limits["nvidia.com/gpu"]) * size == group.accelerators_per_replica
        assert service["spec"]["selector"]["app"] == group.name


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on this machine")
def test_manifests_are_read_by_kubectl(tmp_path: Path) -> None:
    for build in (PLANS["two groups"], PLANS["on Google"]):
        for name, text in files_of(build(), "kubernetes").items():
            (tmp_path / name).write_text(text)
            (tmp_path / "kustomization.yaml").write_text(f"resources: [{name}]\n")
            read = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, check=False)
            assert read.returncode == 0, read.stderr


@every_plan
def test_manifests_are_valid_by_the_schema_of_kubernetes(plan: LaunchPlan) -> None:
    validator = pytest.importorskip("kubernetes_validate", exc_type=ImportError)
    for text in files_of(plan, "kubernetes").values():
        for document in yaml.safe_load_all(text):
            if document["kind"] != "LeaderWorkerSet":
                validator.validate(document, "1.32", strict=True)


@every_plan
def test_upstreams_are_read_by_a_parser_of_nginx(plan: LaunchPlan, tmp_path: Path) -> None:
    crossplane = pytest.importorskip("crossplane", exc_type=ImportError)
    (text,) = files_of(plan, "nginx").values()
    file = tmp_path / "nginx.conf"
    file.write_text(f"events {{}}\nhttp {{\n{text}\n}}\n")
    found = crossplane.parse(str(file), strict=True)
    assert found["status"] == "ok", found["errors"]


def test_weights_are_in_proportion_to_the_requests_of_a_server() -> None:
    assert nginx.weights(list(PLANS["two groups"]().groups)) == [1000, 333]


@every_plan
def test_terraform_is_formatted_as_its_own_tool_does(plan: LaunchPlan, tmp_path: Path) -> None:
    if shutil.which("terraform") is None:
        pytest.skip("terraform is not on this machine")
    (text,) = files_of(plan, "terraform").values()
    (tmp_path / "main.tf").write_text(text)
    environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "CHECKPOINT_DISABLE": "1"}
    checked = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", tmp_path], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_terraform_opens_no_template_in_a_name() -> None:
    assert terraform.quoted(HOSTILE).count("${") == terraform.quoted(HOSTILE).count("$${") == 1
    assert "%%{y}" in terraform.quoted(HOSTILE)


def test_sellers_without_a_terraform_provider_are_a_warning() -> None:
    runpod = {"provider": "runpod", "instance_type": "1x_H100", "region": None}
    exported = targets.export(make_plan([make_instances(**runpod)], [make_replicas(**runpod)]), "terraform")
    assert not exported.files
    assert any("runpod" in warning for warning in exported.warnings)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema": "costopt.size"}', "{", '{"schema": "costopt.plan"}'])
def test_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_plan(text, "plan.json")


@pytest.mark.parametrize(
    ("key", "value"), [("count", 0), ("count", "1"), ("usd_per_hour", "x"), ("provider", None), ("region", "a\nb")]
)
def test_a_damaged_plan_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UsageError):
        make_plan([make_instances(**{key: value})])


def test_an_infeasible_plan_has_nothing_to_launch() -> None:
    with pytest.raises(UsageError, match="infeasible"):
        parse_plan(json.dumps(make_document([], [], status="infeasible")), "plan.json")


def test_an_unknown_target_is_told_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="kubernetes"):
        targets.export(make_plan(), "kubernets")


@pytest.mark.parametrize("text", ["Ünï/côdé", "70B", "--", "a" * 90, "a.b_c"])
def test_names_are_fit_for_dns(text: str) -> None:
    name = slug(text)
    assert name
    assert len(name) <= 63
    assert name[0].isalpha()
    assert all(letter.isascii() and (letter.isalnum() or letter == "-") for letter in name)


def selector_and_warnings(**over: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    exported = targets.export(
        make_plan(instances=[make_instances(**over)], replicas=[make_replicas(**over)]), "kubernetes"
    )
    manifest = next(yaml.safe_load_all(next(iter(exported.files.values()))))
    return manifest["spec"]["template"]["spec"]["nodeSelector"], exported.warnings


@pytest.mark.parametrize("value", ["a" * 64, "p5 48xlarge", "_p5", "p5.", "p5/48", "größe"])
def test_a_type_that_can_be_no_label_is_told_and_a_label_of_the_operators_takes_its_place(value: str) -> None:
    selector, warnings = selector_and_warnings(instance_type=value)
    assert selector == {"costopt-group": "chat"}
    assert any(f"{value!r} can be no label of a node: label its nodes with" in warning for warning in warnings)


def test_a_region_that_can_be_no_label_is_left_out_of_the_selector_and_told() -> None:
    selector, warnings = selector_and_warnings(region="us east")
    assert selector == {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    assert any("'us east' can be no label of a node: the selector leaves it out" in warning for warning in warnings)
