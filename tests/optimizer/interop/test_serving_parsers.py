"""Exports of serving targets, read by the targets' own parsers: nginx, shellcheck, Ray, Triton, the Gateway API."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from optimizer.interop import targets
from optimizer.interop.launch_plan import ReplicaGroup
from tests.optimizer.interop.builders import PLANS
from tests.optimizer.interop.training_plans import make_training_plan
from tests.parsers import run_node, run_parser
from tests.tools import needed, program

NSS_WRAPPER = "libnss_wrapper.so"


def written(folder: Path, target: str) -> dict[str, dict[str, Path]]:
    """The target's files of every plan, in a folder for each plan."""
    return {
        plan: {
            name: write(folder / plan.replace(" ", "-") / name, text) for name, text in files_of(plan, target).items()
        }
        for plan in PLANS
    }


def files_of(plan: str, target: str) -> dict[str, str]:
    return dict(targets.export(PLANS[plan](), target).files)


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_ray_reads_its_configurations_as_the_plan_means_them(tmp_path: Path) -> None:
    for plan in PLANS:
        for text in files_of(plan, "ray").values():
            write(tmp_path / f"{plan}.yaml", text)
    found = json.loads(run_parser("serving", "ray_serve", tmp_path))
    for plan, build in PLANS.items():
        groups = build().groups
        assert [one["application"] for one in found[plan]] == [group.name for group in groups]
        assert [one["replicas"] for one in found[plan]] == [group.replicas for group in groups]
        assert [one["tensor_parallel"] for one in found[plan]] == [group.tensor_parallel for group in groups]
        assert len({one["route"] for one in found[plan]}) == len(groups)
    assert [one["accelerator"] for one in found["on Google"]] == ["A100"]


def test_triton_reads_its_repositories(tmp_path: Path) -> None:
    files = written(tmp_path, "triton")
    found = json.loads(run_parser("serving", "triton_repository", tmp_path))
    assert len(found) == sum(len(build().groups) for build in PLANS.values())
    assert all(config == {"backend": "vllm", "kinds": ["KIND_MODEL"]} for config in found.values())
    for repository in files.values():
        for name, file in repository.items():
            if name.endswith("model.json"):
                assert json.loads(file.read_text())["model"]


def started(script: str, folder: Path) -> list[str]:
    """The words that the script starts its program with, on the second machine of a replica."""
    for name in ("vllm", "sglang"):
        write(folder / name, '#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n').chmod(0o755)
    environment = {"PATH": f"{folder}:/usr/bin:/bin", "NODE_RANK": "1", "MASTER_ADDR": "10.0.0.1"}
    ran = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout.split("\0")[:-1]


def engine_inputs(plan: str, folder: Path) -> list[dict[str, Any]]:
    """Command lines and settings that the plan's exports give to engines, a group after the other for each target."""
    inputs: list[dict[str, Any]] = []
    for engine in ("vllm", "sglang"):
        words = [started(text, folder) for text in files_of(plan, engine).values()]
        inputs += [{"engine": engine, "arguments": one[1:]} for one in words]
    for name, text in files_of(plan, "triton").items():
        if name.endswith("model.json"):
            inputs.append({"engine": "vllm", "settings": json.loads(text)})
    (text,) = files_of(plan, "ray").values()
    for application in yaml.safe_load(text)["applications"]:
        for config in application["args"]["llm_configs"]:
            model = config["model_loading_config"]["model_source"]
            inputs.append({"engine": "vllm", "settings": {"model": model, **config["engine_kwargs"]}})
    return inputs


def test_engines_read_their_arguments_as_the_plan_means_them(tmp_path: Path) -> None:
    inputs = {plan: engine_inputs(plan, tmp_path) for plan in PLANS}
    file = write(tmp_path / "inputs.json", json.dumps([one for each in inputs.values() for one in each]))
    found = iter(json.loads(run_parser("engines", "engine_arguments", file)))
    for plan, build in PLANS.items():
        groups = build().groups
        assert len(inputs[plan]) == 4 * len(groups)
        for number, read in zip(range(len(inputs[plan])), found, strict=False):
            group, engine = groups[number % len(groups)], inputs[plan][number]["engine"]
            share = None if group.memory is None else group.memory.of_card if engine == "vllm" else group.memory.static
            if engine == "vllm":
                assert read.get("model_tag", read["model"]) == group.model
                assert (read["tensor_parallel_size"], read["pipeline_parallel_size"]) == degrees(group)
                assert (read["max_model_len"], read["max_num_seqs"]) == (group.context_tokens, group.batch)
                assert read["enable_expert_parallel"] == (group.expert_parallel > 1)
                assert read["gpu_memory_utilization"] == pytest.approx(share or 0.9, abs=0.001)
                assert (read["kv_cache_dtype"] == "fp8") == (group.kv_precision == "fp8")
            else:
                assert read["model_path"] == group.model
                assert (read["tp_size"], read["pp_size"]) == degrees(group)
                assert (read["context_length"], read["max_running_requests"]) == (group.context_tokens, group.batch)
                assert read["ep_size"] == group.expert_parallel
                assert read.get("mem_fraction_static") == (None if share is None else pytest.approx(share, abs=0.001))
                assert read["kv_cache_dtype"].startswith("fp8") == (group.kv_precision == "fp8")
            if number < 2 * len(groups):
                assert read["nnodes"] == group.instances_per_replica


def degrees(group: ReplicaGroup) -> tuple[int, int]:
    return group.tensor_parallel, group.pipeline_parallel


@pytest.mark.parametrize("target", ["gateway-api", "llm-d"])
def test_routes_are_valid_by_the_schema_of_the_gateway_api(target: str, tmp_path: Path) -> None:
    texts = [text for plan in PLANS for text in files_of(plan, target).values()]
    routes = [document for text in texts for document in yaml.safe_load_all(text) if document["kind"] == "HTTPRoute"]
    file = write(tmp_path / "routes.json", json.dumps(routes))
    assert int(run_node("@kubernetes-models/gateway-api", "gateway_routes", file)) == len(routes) > len(PLANS)


def test_the_schema_of_the_gateway_api_refuses_what_is_wrong(tmp_path: Path) -> None:
    (route,) = yaml.safe_load_all(files_of("two groups", "gateway-api")["gateway-routes.yaml"])
    route["spec"]["rules"][0]["backendRefs"][0]["weight"] = -1
    with pytest.raises(AssertionError, match="weight"):
        run_node("@kubernetes-models/gateway-api", "gateway_routes", write(tmp_path / "r.json", json.dumps([route])))


@pytest.mark.parametrize("plan", PLANS)
def test_nginx_takes_the_upstreams(plan: str, tmp_path: Path) -> None:
    """The host names stand for servers that the user puts in: here they are this machine's loopback."""
    nginx = program("nginx")
    needed("libnss-wrapper", any(Path("/usr/lib").glob(f"*/{NSS_WRAPPER}")))
    (text,) = files_of(plan, "nginx").values()
    names = sorted(set(re.findall(r"server ([\w-]+):\d+", text)))
    hosts = write(tmp_path / "hosts", "".join(f"127.0.0.1 {name}\n" for name in names))
    logs = f"error_log {tmp_path}/error.log;\npid {tmp_path}/nginx.pid;\n"
    write(tmp_path / "nginx.conf", f"{logs}events {{}}\nhttp {{\naccess_log off;\n{text}\n}}\n")
    checked = subprocess.run(
        [nginx, "-t", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf"), "-e", str(tmp_path / "error.log")],
        env={"PATH": os.environ["PATH"], "LD_PRELOAD": NSS_WRAPPER, "NSS_WRAPPER_HOSTS": str(hosts)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stderr
    assert names


def scripts() -> dict[str, str]:
    """Every script of every target: files of their own, and those inside the YAML of orchestrators."""
    found: dict[str, str] = {}
    plans = {name: build() for name, build in PLANS.items()} | {"training": make_training_plan()}
    for name, plan in plans.items():
        fitting = [
            target
            for target in targets.TARGETS
            if target not in ((*targets.SERVING, *targets.ROUTERS), targets.TRAINING)[not plan.jobs]
        ]
        for target in fitting:
            for file, text in targets.export(plan, target).files.items():
                if text.startswith("#!"):
                    found[f"{name}/{target}/{file}"] = text
                elif target in ("skypilot", "dstack"):
                    content = yaml.safe_load(text)
                    lines = [*content.get("commands", ()), content.get("setup"), content.get("run")]
                    body = "\n".join(str(line) for line in lines if line)
                    found[f"{name}/{target}/{file}"] = f"#!/usr/bin/env bash\n{body}\n"
    return found


def test_every_script_passes_shellcheck(tmp_path: Path) -> None:
    shellcheck = program("shellcheck")
    files = [
        write(tmp_path / f"{number}-{name.replace('/', '_').replace(' ', '-')}", text)
        for number, (name, text) in enumerate(scripts().items())
    ]
    assert len(files) > 5 * len(PLANS)
    checked = subprocess.run([shellcheck, "--shell=bash", *files], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
