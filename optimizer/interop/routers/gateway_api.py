"""Turns the plan's split of requests into weighted routes of the Kubernetes Gateway API."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from optimizer.interop.launch_plan import Exported, LaunchPlan, ReplicaGroup, provenance
from optimizer.interop.routers.weights import by_workload, split_warnings, whole_weights
from optimizer.interop.serving import vllm
from optimizer.interop.yaml_text import yaml_documents

API_VERSION: Final = "gateway.networking.k8s.io/v1"
"""Gateway API 1.4, the standard channel (gateway-api.sigs.k8s.io, 2026-11-30)."""

Backend = Callable[[ReplicaGroup], dict[str, Any]]
"""What a route leads to for a group of replicas."""

GATEWAY: Final = "inference-gateway"
_MOST_BACKENDS: Final = 16
"""Of one rule, by the schema of HTTPRoute."""

_LARGEST_WEIGHT: Final = 10_000
_LONGEST_REQUEST: Final = "1h"


def export(plan: LaunchPlan) -> Exported:
    """One HTTPRoute for each workload, to the Services of the `kubernetes` export."""
    head = [*provenance(plan), "For a Gateway of any make; its Services are those of costopt's kubernetes files."]
    documents = routes(plan, _service)
    warnings = (*split_warnings(plan), *route_warnings(plan))
    return Exported(files={"gateway-routes.yaml": yaml_documents(documents, head)}, warnings=warnings)


def routes(plan: LaunchPlan, backend: Backend) -> list[Mapping[str, Any]]:
    """The routes, each to what `backend` gives for the workload's groups; several workloads have a path each."""
    groups = by_workload(plan)
    return [_route(name, found, backend, several=len(groups) > 1) for name, found in groups.items()]


def route_warnings(plan: LaunchPlan) -> Iterator[str]:
    """What the routes take for granted."""
    yield f"the routes hang on a Gateway {GATEWAY!r} in their namespace: put the name of yours in its place"
    if len(by_workload(plan)) > 1:
        yield "each workload has a path of its own (/NAME/v1/…), which the route takes off again (filter URLRewrite)"
    for name, groups in by_workload(plan).items():
        if len(groups) > _MOST_BACKENDS:
            yield f"{name}: a route takes {_MOST_BACKENDS} backends, and the plan has {len(groups)}: join some by hand"
    places = {(group.purchase.provider, group.purchase.region) for group in plan.groups}
    if len(places) > 1:
        yield "the plan runs in several places: a Gateway reaches Services of its own cluster, or of joined clusters"


def _service(group: ReplicaGroup) -> dict[str, Any]:
    return {"name": group.name, "port": vllm.PORT}


def _route(name: str, groups: Sequence[ReplicaGroup], backend: Backend, *, several: bool) -> dict[str, Any]:
    weights = whole_weights([group.requests_per_s for group in groups], _LARGEST_WEIGHT)
    rule: dict[str, Any] = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"/{name}" if several else "/"}}],
        "backendRefs": [backend(group) | {"weight": w} for group, w in zip(groups, weights, strict=True)],
        "timeouts": {"request": _LONGEST_REQUEST},
    }
    if several:
        rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
        rule["filters"] = [{"type": "URLRewrite", "urlRewrite": rewrite}]
    return {
        "apiVersion": API_VERSION,
        "kind": "HTTPRoute",
        "metadata": {"name": name, "labels": {"app.kubernetes.io/managed-by": "costopt"}},
        "spec": {"parentRefs": [{"name": GATEWAY}], "rules": [rule]},
    }
