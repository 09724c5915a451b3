"""Exports of serving targets, read by the targets' own parsers: nginx, shellcheck, Ray, Triton, the Gateway API."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from optimizer.interop import targets
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
    needed("libnss-wrapper", Path("/usr/share/doc/libnss-wrapper").exists())
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
            target for target in targets.TARGETS if target not in (targets.SERVING, targets.TRAINING)[not plan.jobs]
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
