"""Turns the plan's split of requests into the weights of an nginx load balancer."""

from collections.abc import Iterator, Sequence
from typing import Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, comment, provenance
from optimizer.interop.routers.weights import by_workload, split_warnings, whole_weights
from optimizer.interop.serving import vllm

VERSION: Final = "1.28"
"""Directives of the stable branch (nginx.org, ngx_http_upstream_module)."""

_LARGEST_WEIGHT: Final = 1000
_READ_TIMEOUT_S: Final = 3600
_FIRST_PORT: Final = 8080


def export(plan: LaunchPlan) -> Exported:
    """One file: an upstream and a port for each workload, each server weighted by the requests that it should get."""
    blocks = [
        _block(name, groups, _FIRST_PORT + number) for number, (name, groups) in enumerate(by_workload(plan).items())
    ]
    warnings = (
        *split_warnings(plan),
        "host names in the upstreams stand for servers that the plan cannot know: put your own in",
    )
    head = [*provenance(plan), f"For nginx {VERSION}; include it in the http block."]
    return Exported(files={"nginx-upstreams.conf": comment(head) + "\n".join(blocks)}, warnings=warnings)


def weights(groups: Sequence[ReplicaGroup]) -> list[int]:
    """Whole weights of one server of each group, in proportion to the requests/s that it should get."""
    return whole_weights([group.requests_per_s / _servers(group) for group in groups], _LARGEST_WEIGHT)


def _servers(group: ReplicaGroup) -> int:
    """Addresses of the group: one for each instance, or for each replica over several."""
    return group.replicas if group.instances_per_replica > 1 else min(group.instances, group.replicas)


def _block(name: str, groups: Sequence[ReplicaGroup], port: int) -> str:
    servers = list(_lines(groups))
    return "\n".join(
        [
            f"upstream {name} {{",
            *servers,
            "    keepalive 64;",
            "}",
            "server {",
            f"    listen {port};",
            "    location / {",
            f"        proxy_pass http://{name};",
            "        proxy_http_version 1.1;",
            '        proxy_set_header Connection "";',
            "        proxy_buffering off;",
            f"        proxy_read_timeout {_READ_TIMEOUT_S}s;",
            "    }",
            "}",
            "",
        ]
    )


def _lines(groups: Sequence[ReplicaGroup]) -> Iterator[str]:
    for group, weight in zip(groups, weights(groups), strict=True):
        for server in range(_servers(group)):
            yield f"    server {group.name}-{server}:{vllm.PORT} {f'weight={weight}' if weight else 'backup'};"
