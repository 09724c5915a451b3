"""Reads the SkyPilot files of a folder by `Task.from_yaml`, and writes what SkyPilot understood as JSON.

SkyPilot looks machines up in the catalogues under the home folder; they must be there, or it would download them.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["SKYPILOT_DISABLE_USAGE_COLLECTION"] = "1"

from sky import Task


def read(path: Path) -> dict[str, Any]:
    """One task or service, its machine looked up."""
    task = Task.from_yaml(str(path))
    (resources,) = task.resources
    resources.validate()
    service, cloud = task.service, str(resources.cloud).lower()
    return {
        "cloud": cloud,
        "region": resources.region,
        "zone": resources.zone,
        "instance_type": resources.instance_type,
        "accelerators": resources.accelerators,
        "use_spot": resources.use_spot,
        "nodes": task.num_nodes,
        "replicas": None if service is None else service.min_replicas,
        # Google's catalogue prices GPUs apart from machines.
        "usd_per_hour": resources.get_cost(3600) if resources.instance_type and cloud != "gcp" else None,
    }


found, faults = {}, []
for name in sorted(Path(sys.argv[1]).iterdir()):
    try:
        found[name.name] = read(name)
    except Exception as error:
        faults.append(f"{name.name}: {type(error).__name__}: {error}")
assert not faults, "\n".join(faults)
print(json.dumps(found))
