"""Builders of budgets, plans, bills and needs whose numbers do not hang on prices on file or on sizing."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from optimizer.report.budget import Budget, BudgetedWorkload, LineItem
from optimizer.report.capacity import Machines, Met
from optimizer.report.commitments import HeldCommitment, commitment_month
from optimizer.report.comparison import Comparison, Wanted, comparison
from optimizer.report.extras import Extras, HardwareInputs, SellerPrices
from optimizer.report.focus import Actuals, CrossCheck, SpendGroup
from optimizer.report.monthly import Asked, MonthlyReport, monthly_report
from optimizer.report.months import Month
from optimizer.report.planning import PlannedLine, PlannedLoad, PlannedMonth, Planner
from optimizer.report.quotes import Rate, parse_quotes
from optimizer.report.ways import Way
from optimizer.workload.architecture import resolve_model
from providers.offers import Offer, PurchaseOption
from tests.builders import make_instance_type, make_offer, make_workload

DECEMBER = Month(2026, 12)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
MID_DECEMBER = datetime(2026, 12, 11, tzinfo=UTC)


def usd(amount: str | float) -> Decimal:
    return Decimal(str(amount))


def make_entry(name: str = "chat", **over: Any) -> BudgetedWorkload:
    """A workload of a budget; `owner` and `rate` go to the workload itself."""
    workload = make_workload(name=name, rate=over.pop("rate", 2.0), owner=over.pop("owner", "search"))
    fields: dict[str, Any] = {"workload": workload, "architecture": resolve_model("8B")}
    return BudgetedWorkload(**(fields | over))


def make_budget(*entries: BudgetedWorkload, **over: Any) -> Budget:
    fields: dict[str, Any] = {"name": "ML", "workloads": entries}
    return Budget(**(fields | over))


def make_commitment(**over: Any) -> HeldCommitment:
    """Two p5.48xlarge at 33 USD per hour, all of 2026 and 2027."""
    fields: dict[str, Any] = {
        "name": "p5 plan",
        "provider": "aws",
        "instance_type": "p5.48xlarge",
        "count": 2,
        "usd_per_hour": Decimal(33),
        "upfront_usd": Decimal(0),
        "start": date(2026, 1, 1),
        "term_months": 24,
        "owner": "platform",
    }
    return HeldCommitment(**(fields | over))


def make_line(**over: Any) -> PlannedLine:
    """One p5.48xlarge on demand at 55.04 USD per hour, all of December 2026."""
    fields: dict[str, Any] = {
        "workload": "chat",
        "owner": "search",
        "machine": make_instance_type(count=8, name="p5.48xlarge"),
        "region": "us-east-1",
        "purchase_option": "on_demand",
        "commitment": None,
        "instances": Decimal(1),
        "hours": DECEMBER.hours,
        "usd_per_hour": usd("55.04"),
        "observed_on": date(2026, 11, 20),
        "source": "a test",
    }
    return PlannedLine(**(fields | over))


@dataclass(slots=True)
class FixedPlanner(Planner):
    """Plans what it was given: instances by workload, the first ones on commitments; more by 10 % a month."""

    instances: Mapping[str, int] = field(default_factory=dict)
    usd_per_hour: Decimal = Decimal("55.04")

    def month(self, month: Month, reported: Month) -> PlannedMonth:
        active = [c for c in self.budget.commitments if c.hours_in(month) > 0]
        left = {c.name: c.count for c in active}
        loads = []
        for entry in self.budget.workloads:
            needed = self.instances[entry.name]
            line = make_line(workload=entry.name, owner=entry.owner, hours=month.hours, usd_per_hour=self.usd_per_hour)
            lines = []
            for held in active:
                taken = min(needed, left[held.name])
                if taken:
                    needed, left[held.name] = needed - taken, left[held.name] - taken
                    lines.append(
                        replace(
                            line,
                            instances=Decimal(taken),
                            purchase_option="committed",
                            commitment=held.name,
                            hours=held.hours_in(month),
                            usd_per_hour=held.effective_usd_per_hour,
                        )
                    )
            if needed:
                lines.append(replace(line, instances=Decimal(needed)))
            loads.append(
                PlannedLoad(
                    workload=entry,
                    requests_per_s=2.0,
                    input_tokens_per_s=2000.0,
                    output_tokens_per_s=600.0,
                    utilization=0.5,
                    lines=tuple(lines),
                )
            )
        everything = [line for load in loads for line in load.lines]
        used = {c.name: sum(x.instance_hours for x in everything if x.commitment == c.name) for c in active}
        eligible = sum((x.instance_hours for x in everything), Decimal(0))
        return PlannedMonth(
            month=month,
            loads=tuple(loads),
            commitments=tuple(commitment_month(c, month, Decimal(used[c.name]), eligible) for c in active),
        )

    def other_ways(self, entry: BudgetedWorkload, months: int) -> list[Any]:
        return []


def make_group(**over: Any) -> SpendGroup:
    """A day of one p5.48xlarge on demand of workload chat, 24 h at 55.04 USD."""
    fields: dict[str, Any] = {
        "month": "2026-12",
        "day": 1,
        "workload": "chat",
        "provider": "aws",
        "service": "Amazon Elastic Compute Cloud",
        "region": "us-east-1",
        "instance_type": "p5.48xlarge",
        "accelerator": "H100-SXM5-80GB",
        "accelerators": 8.0,
        "purchase_option": "on_demand",
        "commitment_id": None,
        "unused": False,
        "once": False,
        "billed_usd": usd("1320.96"),
        "effective_usd": usd("1320.96"),
        "hours": Decimal(24),
    }
    if "usd" in over:
        amount = usd(over.pop("usd"))
        fields |= {"billed_usd": amount, "effective_usd": amount}
    return SpendGroup(**(fields | over))


def make_actuals(*groups: SpendGroup, through: datetime | None = MID_DECEMBER, **over: Any) -> Actuals:
    fields: dict[str, Any] = {
        "groups": groups,
        "rows": len(groups),
        "used": len(groups),
        "outside": 0,
        "rejected": {},
        "through": through,
        "check": CrossCheck(rows=0, differing=0, difference_usd=Decimal(0), prices=()),
        "spoiled_effective_rows": 0,
        "spoiled_effective_usd": Decimal(0),
    }
    return Actuals(**(fields | over))


def make_report(budget: Budget | None = None, **over: Any) -> MonthlyReport:
    """A report on December 2026; `instances` by workload go to the plan."""
    budget = budget or make_budget(make_entry())
    instances = over.pop("instances", {entry.name: 1 for entry in budget.workloads})
    price = over.pop("usd_per_hour", usd("55.04"))
    planner = FixedPlanner(budget, (), {}, instances=instances, usd_per_hour=price)
    fields: dict[str, Any] = {"budget": budget, "month": DECEMBER, "now": NOW, "planner": planner}
    return monthly_report(Asked(**(fields | over)))


def sample_report() -> MonthlyReport:
    """A report with everything in it: owners, a commitment with an upfront, items, a bill, names that are hostile."""
    budget = make_budget(
        make_entry("chat", budget_usd=usd(100000), matches=({"tag:app": "chat"},), growth_per_month=0.05),
        make_entry("=1+1|<b>batch</b>", owner="<script>alert(1)</script>"),
        total_usd=usd(130000),
        limits={"owner": {"search": usd(90000)}},
        commitments=(make_commitment(upfront_usd=usd(8760), count=2, start=date(2026, 12, 1), term_months=12),),
        items=(
            LineItem(name="storage", category="storage", owner="search", usd_per_month=usd(500)),
            LineItem(name="@egress", category="egress", quantity=usd(600), usd_per_unit=usd("0.09"), unit="GB"),
            LineItem(name="support", category="support", share_of_compute=0.03),
        ),
    )
    groups = [make_group(day=day, usd=2600 + 10 * day) for day in range(1, 11)]
    groups += [make_group(month="2026-11", day=day, usd=2400) for day in range(1, 31)]
    groups.append(make_group(workload=None, accelerator=None, accelerators=None, service="S3", usd=12, hours=None))
    return make_report(
        budget,
        instances={"chat": 3, "=1+1|<b>batch</b>": 1},
        now=MID_DECEMBER,
        actuals=make_actuals(*groups, rows=45, rejected={"BilledCost is not a number": 4}),
    )


def make_way(**over: Any) -> Way:
    """On demand at 10 USD per hour."""
    fields: dict[str, Any] = {
        "kind": "provider",
        "name": "a",
        "seller": "aws",
        "purchase_option": "on_demand",
        "how": "",
        "accelerators": "",
        "gpus": 8,
        "region": None,
        "term_months": None,
        "upfront_usd": Decimal("0.00"),
        "usd_per_hour": Decimal(10),
        "by_use": True,
        "bound": False,
    }
    return Way(**(fields | over))


def committed_way(**over: Any) -> Way:
    """The same for a year, paid whether used or not."""
    return make_way(**({"term_months": 12, "by_use": False, "bound": True, "name": "c"} | over))


@dataclass(frozen=True, slots=True)
class FixedNeed:
    """Sixteen H100s, which make two thousand million tokens a month, whatever is offered."""

    gpus: int = 16

    def meet(self, offers: Sequence[Offer]) -> Met | None:
        fitting = [o for o in offers if o.instance_type.accelerator == "H100-SXM5-80GB"]
        if not fitting:
            return None
        best = min(fitting, key=lambda offer: (offer.usd_per_accelerator_hour, offer.key))
        count = -(-self.gpus // int(best.instance_type.accelerator_count))
        return Met(machines=(Machines(best, Decimal(count)),), how="fp8 TP8")

    @property
    def tokens_per_month(self) -> tuple[Decimal, Decimal]:
        return Decimal(1_500_000_000), Decimal(500_000_000)

    @property
    def requests_per_month(self) -> Decimal:
        return Decimal(1_500_000)


QUOTES = """vendor,gpu,price,price_unit,currency,term_months,gpus_per_node,upfront,region,interconnect,tax_included
Acme,H100 SXM5 80GB,15000,node_month,EUR,12,8,2000,eu-west,3200 Gbit/s InfiniBand,no
"=HYPERLINK(""x"")",H100,2.1,gpu_hour,USD,0,8,,us,200 Gbit/s Ethernet,
Gamma,H100 SXM,2.4,gpu_hour,USD,0,8,,us,,
"""


def sample_comparison() -> Comparison:
    """A comparison with every kind of way, a reference, quotes with gaps and hostile names."""
    offers = [
        make_offer(provider="aws", name="p5.48xlarge", count=8, usd="44.00"),
        make_offer(provider="lambda", name="gpu_8x_h100", count=8, usd="31.92", region=None),
        make_offer(provider="aws", name="p5.48xlarge", count=8, usd="26", purchase_option=PurchaseOption.RESERVED_1Y),
        make_offer(provider="gcp", name="a3-highgpu-8g", count=8, usd="20", purchase_option=PurchaseOption.SPOT),
    ]
    extras = sample_extras()
    return comparison(
        Wanted(
            title="16 x H100 for <b>search</b>",
            need=FixedNeed(),
            offers=offers,
            quotes=parse_quotes(QUOTES, "quotes.csv", extras.rates),
            extras=extras,
            now=NOW,
            model="meta-llama/Llama-3.1-70B",
            accelerators=frozenset({"H100-SXM5-80GB"}),
        )
    )


def sample_extras() -> Extras:
    return Extras(
        storage_gb=Decimal(500),
        response_bytes=Decimal(2000),
        sellers={"aws": SellerPrices(storage_usd_per_gb_month=usd("0.08"), egress_usd_per_gb=usd("0.09"))},
        hardware=HardwareInputs(
            amortization_months=36,
            residual_share=usd("0.1"),
            server_usd_per_gpu=Decimal(6000),
            network_usd_per_gpu=Decimal(2500),
            server_power_w_per_gpu=Decimal(250),
            usd_per_kwh=usd("0.12"),
            pue=usd("1.3"),
            colocation_usd_per_kw_month=Decimal(150),
        ),
        rates={"EUR": Rate(usd=usd("1.08"), observed_on=date(2026, 11, 28), source="a test")},
    )
