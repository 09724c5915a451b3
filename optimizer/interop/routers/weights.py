"""Turns the requests/s of groups of replicas into whole weights, and says what weights cannot."""

from collections.abc import Iterator, Mapping, Sequence

from optimizer.interop.launch_plan import LaunchPlan, ReplicaGroup, distinct_slugs


def by_workload(plan: LaunchPlan) -> Mapping[str, Sequence[ReplicaGroup]]:
    """The groups of each workload, by a name for it that is fit for DNS, in the order of the plan."""
    names = distinct_slugs(group.workload for group in plan.groups)
    return {slug: [group for group in plan.groups if group.workload == name] for name, slug in names.items()}


def whole_weights(rates: Sequence[float], largest: int) -> list[int]:
    """Whole weights of at most `largest` in proportion to the rates; 1 for all where they are equal or nothing flows.

    A rate that is not zero keeps a weight of at least 1.
    """
    most = max(rates)
    if most <= 0 or len(set(rates)) == 1:
        return [1] * len(rates)
    return [max(1, round(rate / most * largest)) if rate > 0 else 0 for rate in rates]


def split_warnings(plan: LaunchPlan) -> Iterator[str]:
    """What weights of groups cannot say of the plan's split."""
    if plan.shares_by_shape:
        yield "the plan sends long and short requests to different replicas; the weights can only be the mean split"
    if plan.by_period:
        yield "the plan changes through the day; the weights are those of an average hour"
