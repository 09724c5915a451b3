"""Turns what lets a service grow beyond the replicas that are priced, or take other machines, into notes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from optimizer.interop.asks import Ask, Fault, line_of, mapping, whole
from optimizer.workload.workload_file import Lines

_AUTOSCALERS: Final[Mapping[str, tuple[str, str]]] = {
    "HorizontalPodAutoscaler": ("minReplicas", "maxReplicas"),
    "ScaledObject": ("minReplicaCount", "maxReplicaCount"),
}
"""Kinds of Kubernetes and KEDA that set the replicas of another object, with their bounds."""


def growth(priced: int, most: object, line: int | None) -> Iterator[Fault]:
    """The note for a service of which more replicas may run than are priced."""
    limit = whole(most)
    if limit is not None and limit > priced:
        what = f"up to {limit:,} replicas may run, {priced:,} {'is' if priced == 1 else 'are'} priced: the fewest"
        yield Fault(line=line, what=what, fix="multiply the cost by what runs on average", fatal=False)


def mixed(line: int | None, priced: str) -> Fault:
    """The note for a service whose machines may be spot or on demand."""
    what = f"machines may be spot or on demand: they are priced as {priced}"
    return Fault(line=line, what=what, fix="price the other by saying so in the file", fatal=False)


def autoscaled(asks: Sequence[Ask], documents: Sequence[tuple[Mapping[str, Any], Lines]]) -> list[Ask]:
    """The asks with the bounds of the autoscalers beside them, which overrule the replicas that a manifest names."""
    found = list(asks)
    for content, lines in documents:
        bounds = _AUTOSCALERS.get(str(content.get("kind")))
        if bounds is None:
            continue
        spec = mapping(content.get("spec"))
        target = mapping(spec.get("scaleTargetRef")).get("name")
        least, most = (spec.get(bound) for bound in bounds)
        notes = tuple(growth(whole(least) or 1, most, line_of(lines, "spec", bounds[1])))
        found = [
            replace(ask, replicas=whole(least) or 1, faults=(*ask.faults, *notes)) if ask.name == target else ask
            for ask in found
        ]
    return found
