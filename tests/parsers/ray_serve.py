"""Reads each Ray Serve configuration of a folder by Ray's own schemas; writes what it understood as JSON."""

import json
import sys
from pathlib import Path

import yaml
from ray.llm._internal.serve.core.configs.llm_config import LLMConfig
from ray.serve.schema import ServeDeploySchema

found = {}
for file in sorted(Path(sys.argv[1]).glob("**/*.yaml")):
    deployed = ServeDeploySchema.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    found[file.stem] = [
        {
            "application": application.name,
            "route": application.route_prefix,
            "replicas": config.deployment_config["num_replicas"],
            "accelerator": config.accelerator_type,
            "tensor_parallel": config.engine_kwargs["tensor_parallel_size"],
        }
        for application in deployed.applications
        for config in (
            LLMConfig.model_validate(one)
            for one in application.args.get("llm_configs", [application.args.get("llm_config")])
        )
    ]
print(json.dumps(found))
