"""Turns the plan's split of requests into the weights of an nginx load balancer."""

from collections.abc import Iterator
from typing import Final

from optimizer.interop import vllm
from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, comment, provenance, slug

VERSION: Final = "1.28"
"""Directives of the stable branch (nginx.org, ngx_http_upstream_module)."""

_LARGEST_WEIGHT: Final = 1000
_READ_TIMEOUT_S: Final = 3600


def export(plan: LaunchPlan) -> Exported:
    """One file: an upstream and a port for each workload, each server weighted by the requests that it should get."""
    workloads = list(dict.fromkeys(group.workload for group in plan.groups))
    blocks, warnings = [], []
    for number, workload in enumerate(workloads):
        groups = [group for group in plan.groups if group.workload == workload]
        blocks.append(_block(slug(workload), groups, 8080 + number))
    if plan.shares_by_shape:
        warnings.append(
            "the plan sends long and short requests to different replicas; the weights can only be the mean split"
        )
    if plan.by_period:
        warnings.append("the plan changes through the day; the weights are those of an average hour")
    if plan.groups:
        warnings.append("host names in the upstreams stand for servers that the plan cannot know: put your own in")
    head = [*provenance(plan, ()), f"For nginx {VERSION}; include it in the http block."]
    files = {"nginx-upstreams.conf": comment(head) + "\n".join(blocks)} if plan.groups else {}
    return Exported(files=files, warnings=tuple(warnings))


def weights(groups: list[ReplicaGroup]) -> list[int]:
    """Whole weights of one server of each group, in proportion to the requests/s that it should get."""
    each = [group.requests_per_s / _servers(group) for group in groups]
    largest = max(each)
    if largest <= 0:
        return [1] * len(groups)
    if len(set(each)) == 1:
        return [1] * len(groups)
    return [max(1, round(rate / largest * _LARGEST_WEIGHT)) for rate in each]


def _servers(group: ReplicaGroup) -> int:
    """Addresses of the group: one for each instance, or for each replica over several."""
    return group.replicas if group.instances_per_replica > 1 else min(group.instances, group.replicas)


def _block(name: str, groups: list[ReplicaGroup], port: int) -> str:
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


def _lines(groups: list[ReplicaGroup]) -> Iterator[str]:
    for group, weight in zip(groups, weights(groups), strict=True):
        for server in range(_servers(group)):
            yield f"    server {group.name}-{server}:{vllm.PORT} weight={weight};"
