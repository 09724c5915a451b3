"""Builders of valid objects: each takes what a test cares about and fills in the rest."""

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

from optimizer.plans.planner import Request
from optimizer.workload.architecture import resolve_model
from optimizer.workload.workload import InferenceWorkload, RequestShape, ShapeDemand
from providers.accelerators import resolve
from providers.instance_types import usual_link
from providers.offers import Commitment, CommitmentKind, InstanceType, Offer, PurchaseOption

TODAY = date(2026, 11, 30)


def make_instance_type(**over: Any) -> InstanceType:
    """One H100 of AWS; `gpu` takes any name of an accelerator, `count` how many."""
    accelerator = resolve(over.pop("gpu", "H100-SXM5-80GB"))
    count = over.pop("count", 1)
    fields: dict[str, Any] = {
        "provider": "aws",
        "name": f"{count}x-{accelerator.name}",
        "accelerator": accelerator.name,
        "accelerator_count": count,
        "link": usual_link(accelerator, count),
    }
    return InstanceType(**(fields | over))


def make_offer(**over: Any) -> Offer:
    """An on-demand offer at 2 USD/h of today; `gpu`, `count`, `provider`, `name` and `traits` go to its machine.

    A reserved offer without a commitment gets the plain one of its term.
    """
    machine = {key: over.pop(key) for key in ("gpu", "count", "provider", "name", "traits", "link") if key in over}
    option = over.get("purchase_option", PurchaseOption.ON_DEMAND)
    fields: dict[str, Any] = {
        "instance_type": make_instance_type(**machine),
        "region": "us-east-1",
        "zone": None,
        "purchase_option": option,
        "usd_per_hour": Decimal(str(over.pop("usd", "2"))),
        "observed_on": TODAY,
        "source": "a test",
        "commitment": make_commitment(option) if option.is_reserved else None,
    }
    return Offer(**(fields | over))


def make_commitment(option: PurchaseOption) -> Commitment:
    """The plain commitment of a reserved purchase option."""
    return Commitment(kind=CommitmentKind.SAVINGS_PLAN, term_months=option.term_months or 12)


def make_workload(**over: Any) -> InferenceWorkload:
    """Llama 3.1 8B, 1,000 + 300 tokens; `rate` is requests per second, `shape` a RequestShape."""
    shape = over.pop("shape", RequestShape(input_tokens=1000, output_tokens=300))
    rate = over.pop("rate", None)
    fields: dict[str, Any] = {
        "name": "workload",
        "model": "8B",
        "demands": (ShapeDemand(shape=shape, requests_per_s=rate),),
    }
    return InferenceWorkload(**(fields | over))


def make_request(*offers: Offer, **over: Any) -> Request:
    """A request to plan on `offers`; `rate`, `budget` (USD per month) and fields of the workload may be given."""
    workload_fields = {key: over.pop(key) for key in ("rate", "shape", "model", "precisions", "slo") if key in over}
    workload = make_workload(**workload_fields)
    budget = over.pop("budget", None)
    request = Request(
        workloads=((workload, resolve_model(workload.model)),),
        budget_usd_per_month=None if budget is None else Decimal(str(budget)),
        offers=offers,
        offers_on_file=len(offers),
        rejections={},
        today=TODAY,
    )
    return replace(request, **over)
