"""Reads the dstack configurations of a folder with dstack's own models, and writes what those understood as JSON."""

import json
import sys
from pathlib import Path
from typing import Any

import yaml
from dstack._internal.core.models.configurations import parse_apply_configuration


def read(path: Path) -> dict[str, Any]:
    """One service or task."""
    found = parse_apply_configuration(yaml.safe_load(path.read_text()))
    gpu = found.resources.gpu
    replicas = getattr(found, "replicas", None)
    return {
        "type": found.type,
        "nodes": getattr(found, "nodes", None) or 1,
        "replicas": None if replicas is None else getattr(replicas, "min", replicas),
        "gpu": gpu.name,
        "count": gpu.count.min,
        "memory_gb": None if gpu.memory is None else float(gpu.memory.min),
        "spot_policy": found.spot_policy.value,
        "backends": [backend.value for backend in found.backends or ()],
        "instance_types": found.instance_types,
        "max_price": found.max_price,
    }


found, faults = {}, []
for name in sorted(Path(sys.argv[1]).iterdir()):
    try:
        found[name.name] = read(name)
    except Exception as error:
        faults.append(f"{name.name}: {type(error).__name__}: {error}")
assert not faults, "\n".join(faults)
print(json.dumps(found))
