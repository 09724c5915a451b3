"""Turns keyword arguments into plans and sizings, for notebooks and programs; results print as tables there.

Three examples, which the tests run:

>>> import optimizer
>>> sized = optimizer.size("8B", gpu="L4")
>>> sized.verdict
'fits'

>>> plan = optimizer.plan("8B", rate=5, provider=["aws"])
>>> plan.status, plan.usd_per_month > 0
('optimal', True)

>>> for gpu in ("L4", "T4"):
...     print(gpu, optimizer.size("70B", gpu=gpu, precision="int4").verdict)
L4 does_not_fit
T4 does_not_fit
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from optimizer.workload.workload import DEFAULT_SHAPE, DEFAULT_SLO, DEFAULT_UTILIZATION


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A plan: `document` is what `costopt plan -f json` prints, the properties are its totals."""

    document: Mapping[str, Any]

    @property
    def status(self) -> str:
        """`optimal`, `within_gap`, `feasible` or `infeasible`."""
        return str(self.document["status"])

    @property
    def instances(self) -> Sequence[Mapping[str, Any]]:
        return tuple(self.document["instances"])

    @property
    def usd_per_month(self) -> Decimal | None:
        """Of a month of 730 hours; None where nothing is feasible."""
        totals = self.document["totals"]
        return None if totals is None else Decimal(totals["usd_per_month"])

    @property
    def requests_per_s(self) -> float | None:
        totals = self.document["totals"]
        return None if totals is None else float(totals["requests_per_s"])

    def __repr__(self) -> str:
        bought = ", ".join(f"{one['count']} x {one['provider']} {one['instance_type']}" for one in self.instances)
        return f"<plan: {self.status}, {bought or 'nothing'}, {self.usd_per_month} USD per month>"

    def _repr_html_(self) -> str:
        rows = [
            (
                one["count"],
                one["provider"],
                one["instance_type"],
                one["region"] or "",
                one["purchase_option"].replace("_", " "),
                f"{one['accelerator_count']} x {one['accelerator']}",
                one["usd_per_hour"],
                one["as_of"] or "no date",
            )
            for one in self.instances
        ]
        columns = ("count", "provider", "instance type", "region", "bought", "accelerators", "USD/h each", "price of")
        return _html_table(f"Plan: {self.status}, {self.usd_per_month} USD per month (estimate)", columns, rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeResult:
    """A sizing: `document` is what `costopt size -f json` prints."""

    document: Mapping[str, Any]

    @property
    def verdict(self) -> str:
        """`fits`, `tight` or `does_not_fit`."""
        return str(self.document["verdict"])

    @property
    def requests_per_s(self) -> float | None:
        """At the largest batch within the SLO; None where it does not fit."""
        performance = self.document["performance"]
        return None if performance is None else float(performance["requests_per_s"]["value"])

    def __repr__(self) -> str:
        document = self.document
        return f"<size: {document['model']} on {document['count']} x {document['accelerator']}: {self.verdict}>"

    def _repr_html_(self) -> str:
        memory = self.document["memory"]
        rows = [
            (key.replace("_", " "), memory[key])
            for key in ("weights_gib", "kv_cache_gib", "per_gpu_gib", "usable_gib_per_gpu", "max_concurrency")
        ]
        for key, value in (self.document["performance"] or {}).items():
            shown = f"{value['value']} ({value['low']} to {value['high']})" if isinstance(value, dict) else value
            rows.append((key.replace("_", " "), shown))
        return _html_table(f"{repr(self)[1:-1]} (estimate)", ("what", "value"), rows)


def plan(
    model: str,
    *,
    rate: float | None = None,
    budget: Decimal | int | str | None = None,
    input_tokens: int = DEFAULT_SHAPE.input_tokens,
    output_tokens: int = DEFAULT_SHAPE.output_tokens,
    context: int | None = None,
    ttft_ms: float = DEFAULT_SLO.ttft_ms,
    tpot_ms: float = DEFAULT_SLO.tpot_ms,
    precision: Iterable[str] = (),
    kv_precision: str | None = None,
    engine: str = "vllm",
    max_utilization: float = DEFAULT_UTILIZATION,
    provider: Iterable[str] = (),
    region: Iterable[str] = (),
    gpu: Iterable[str] = (),
    purchase: Iterable[str] = (),
    include: Iterable[str] = (),
    offline: bool = False,
) -> PlanResult:
    """The cheapest plan for `rate` requests/s, or the most requests/s for `budget` USD per month.

    Arguments mean what the flags of `costopt plan` mean; those that it repeats take several values. Prices are those on
    file. Raises the errors of `providers.errors`: UsageError, NoUsablePrices.
    """
    from optimizer.cli import choices, market_view, options, plan_output, values
    from optimizer.cli.settings import today
    from optimizer.plans.document import plan_document
    from optimizer.plans.planner import Request
    from optimizer.plans.planner import plan as make_plan
    from optimizer.workload.workload import SLO, InferenceWorkload, RequestShape, ShapeDemand

    values.rate("rate", rate)
    view = market_view.MarketView(
        providers=frozenset(name.lower() for name in _several(provider)),
        regions=frozenset(_several(region)),
        gpus=tuple(_several(gpu)),
        purchase_options=choices.purchase_options(_several(purchase)),
        include=tuple(_several(include)),
        offline=offline,
    )
    shape = RequestShape(input_tokens=input_tokens, output_tokens=output_tokens)
    workload = InferenceWorkload(
        name="workload",
        model=model,
        demands=(ShapeDemand(shape=shape, requests_per_s=rate),),
        slo=SLO(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
        precisions=choices.precisions(_several(precision)),
        kv_precision=kv_precision,
        context_tokens=context,
        utilization=max_utilization,
    )
    pairs = ((workload, choices.architecture(model)),)
    offers = market_view.load(view)
    assumed = {"boot_minutes": options.BOOT_MINUTES, "spot_margin": options.SPOT_MARGIN}
    request = Request(
        workloads=pairs,
        budget_usd_per_month=None if budget is None else values.money("budget", str(budget)),
        offers=offers.eligible,
        offers_on_file=len(offers.all_on_file),
        rejections=offers.rejections,
        today=today(),
        terms=market_view.terms(**assumed, horizon=None),
        pools=offers.pools,
        engine=engine,
        assumptions=(
            *plan_output.assumptions(pairs, engine),
            *market_view.assumed_terms(view, pairs, **assumed, horizon=None),
            *offers.remarks,
        ),
        warnings=offers.warnings,
    )
    return PlanResult(document=plan_document(make_plan(request)))


def size(
    model: str,
    *,
    gpu: str,
    count: int = 1,
    input_tokens: int = DEFAULT_SHAPE.input_tokens,
    output_tokens: int = DEFAULT_SHAPE.output_tokens,
    context: int | None = None,
    concurrency: int | None = None,
    ttft_ms: float = DEFAULT_SLO.ttft_ms,
    tpot_ms: float = DEFAULT_SLO.tpot_ms,
    precision: str = "auto",
    kv_precision: str | None = None,
    tp: int | None = None,
    pp: int | None = None,
    engine: str | None = None,
) -> SizeResult:
    """Does a model fit on `count` accelerators, how much memory does it take, how fast does it serve.

    Arguments mean what the flags of `costopt size` mean. Raises UsageError.
    """
    from optimizer.cli import choices
    from optimizer.sizing.document import size_document
    from optimizer.sizing.serving import size_serving
    from optimizer.workload.workload import SLO, RequestShape

    architecture = choices.architecture(model)
    hardware, remarks = choices.hardware(gpu, count)
    sized = size_serving(
        architecture,
        hardware,
        shape=RequestShape(input_tokens=input_tokens, output_tokens=output_tokens),
        slo=SLO(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
        precision=precision,
        kv_precision=kv_precision,
        engine=engine,
        context_tokens=context,
        concurrency=concurrency,
        tp=tp,
        pp=pp,
    )
    sized = replace(sized, assumptions=(*remarks, *sized.assumptions))
    requests = max(1, min(concurrency or 1, sized.max_concurrency))
    return SizeResult(document=size_document(architecture, hardware, sized, requests))


def _several(names: Iterable[str]) -> list[str]:
    """The names; one that is given without a list counts as one, not as its letters."""
    return [names] if isinstance(names, str) else list(names)


def _html_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in columns)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    caption = f"<caption>{html.escape(title)}</caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
