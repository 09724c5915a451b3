"""Plans of training: what a run costs however it is bought, and which cluster is chosen."""

import itertools
import math
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from optimizer.plans.clusters import cluster_of
from optimizer.plans.planner import Pool
from optimizer.plans.training import best_choice, plan_training, trade_off
from optimizer.plans.training_cost import START_HOURS, checkpoint_bytes, spot_overhead
from optimizer.plans.training_document import explain_training, training_plan_document
from optimizer.plans.training_plan import ClusterChoice, TrainingPlan, TrainingRequest
from optimizer.sizing.training.layouts import best_layout
from optimizer.workload.architecture import resolve_model
from optimizer.workload.training import TrainingRun
from providers.errors import NoUsablePrices
from providers.offers import Offer, PurchaseOption
from tests.builders import TODAY, make_offer

P5 = {"gpu": "H100", "count": 8, "name": "p5.48xlarge"}
P4DE = {"gpu": "A100-SXM4-80GB", "count": 8, "name": "p4de.24xlarge"}


def make_run(**over: Any) -> TrainingRun:
    facts: dict[str, Any] = {"name": "run", "model": "8B", "task": "finetune", "tokens": 1e9, "seq_len": 2048}
    return TrainingRun(**(facts | {"global_batch_tokens": 262_144} | over))


def planned(*offers: Offer, run: TrainingRun | None = None, **over: Any) -> TrainingPlan:
    job = run or make_run()
    request = TrainingRequest(
        jobs=[(job, resolve_model(job.model))], offers=offers, offers_on_file=len(offers), rejections={}, today=TODAY
    )
    return plan_training(replace(request, **over))


def chosen(plan: TrainingPlan) -> ClusterChoice:
    (job,) = plan.jobs
    return job.choice


def test_a_run_costs_instances_times_hours_times_price_and_storage() -> None:
    choice = chosen(planned(make_offer(**P5, usd="40"), run=make_run(deadline_hours=1000)))
    assert choice.hours == pytest.approx(choice.estimate.hours + START_HOURS)
    expected = Decimal(40) * choice.nodes * Decimal(repr(choice.hours))
    assert choice.usd_compute == expected
    assert choice.usd_total == expected + choice.usd_storage
    assert choice.usd_storage > 0
    assert choice.usd_at(1.0) == choice.usd_total
    assert choice.usd_at(2.0) == 2 * choice.usd_total


def test_without_a_deadline_one_instance_is_enough() -> None:
    assert chosen(planned(make_offer(**P5, usd="40"))).nodes == 1


def test_a_deadline_takes_more_instances_and_more_money() -> None:
    relaxed = chosen(planned(make_offer(**P5, usd="40")))
    urgent = chosen(planned(make_offer(**P5, usd="40"), run=make_run(deadline_hours=relaxed.hours / 3)))
    assert urgent.nodes >= 3
    assert urgent.hours <= relaxed.hours / 3
    assert urgent.usd_total > relaxed.usd_total


def test_larger_clusters_are_looked_at_where_two_machines_are_slower_than_one() -> None:
    offer = make_offer(gpu="A100-SXM4-40GB", count=8, name="p4d.24xlarge", usd="10")
    run = make_run(recompute="none")
    model = resolve_model(run.model)
    kind = offer.instance_type
    one, two, four = (best_layout(run, model, cluster_of(kind, nodes)) for nodes in (1, 2, 4))
    assert one and two and four
    assert four.hours < one.hours < two.hours
    choice = chosen(planned(offer, run=replace(run, deadline_hours=one.hours * 0.9)))
    assert choice.nodes == 4


def test_machines_without_a_documented_network_are_not_joined() -> None:
    alone = make_offer(gpu="H100", count=8, provider="lambda", name="gpu_8x_h100_sxm5", usd="20")
    hours = chosen(planned(alone)).hours
    plan = planned(alone, run=make_run(deadline_hours=hours / 2))
    assert plan.solution.status == "infeasible"
    assert plan.shortfalls[0].limit == "deadline"
    assert plan.fastest is not None
    assert plan.fastest.nodes == 1


def test_an_impossible_deadline_names_the_shortest_time_with_its_cluster_and_cost() -> None:
    plan = planned(make_offer(**P5, usd="40"), make_offer(**P4DE, usd="30"), run=make_run(deadline_hours=0.3))
    assert plan.solution.status == "infeasible"
    assert plan.fastest is not None
    assert plan.fastest.hours > 0.3
    (suggestion,) = [way for way in plan.suggestions if way.flag.startswith("--deadline")]
    assert suggestion.flag == f"--deadline {math.ceil(plan.fastest.hours)}h"
    assert suggestion.usd_total == plan.fastest.usd_total


def test_the_suggested_deadline_is_feasible() -> None:
    offer = make_offer(**P5, usd="40")
    plan = planned(offer, run=make_run(deadline_hours=0.3))
    assert plan.fastest is not None
    assert planned(offer, run=make_run(deadline_hours=float(math.ceil(plan.fastest.hours)))).jobs


def test_a_budget_alone_buys_the_fastest_run() -> None:
    offers = [make_offer(**P5, usd="40"), make_offer(**P4DE, usd="30")]
    poor, rich = (chosen(planned(*offers, budget_usd=Decimal(usd))) for usd in (200, 2000))
    assert rich.hours < poor.hours
    assert poor.usd_total <= 200
    assert rich.usd_total <= 2000


def test_a_budget_below_every_cluster_is_infeasible_with_the_money_that_is_missing() -> None:
    plan = planned(make_offer(**P5, usd="40"), budget_usd=Decimal(5))
    (shortfall,) = plan.shortfalls
    assert shortfall.limit == "budget"
    assert any(way.flag.startswith("--budget") for way in plan.suggestions)


def test_the_cheaper_accelerator_by_the_token_wins_and_the_other_is_the_runner_up() -> None:
    plan = planned(make_offer(**P5, usd="40"), make_offer(**P4DE, usd="39"))
    assert chosen(plan).offer.instance_type.name == "p5.48xlarge"
    assert plan.runner_up is not None
    assert plan.runner_up.name == "A100-SXM4-80GB"


def test_spot_costs_checkpoints_and_interruptions_and_can_still_win() -> None:
    offers = [make_offer(**P5, usd="40"), make_offer(**P5, usd="15", purchase_option=PurchaseOption.SPOT)]
    choice = chosen(planned(*offers))
    assert choice.offer.purchase_option is PurchaseOption.SPOT
    assert choice.hours > choice.estimate.hours + START_HOURS
    assert choice.interruptions > 0
    assert choice.interruption_rate is not None
    assert choice.interruption_rate.source is not None


def test_more_spot_instances_are_interrupted_more_often() -> None:
    one, one_rate = spot_overhead(1e12, 1, 1e-3)
    many, many_rate = spot_overhead(1e12, 16, 1e-3)
    assert many_rate == pytest.approx(16 * one_rate)
    assert many > one


def test_spot_a_little_dearer_wins_where_it_is_interrupted_less() -> None:
    p4d = {"gpu": "A100-SXM4-40GB", "count": 8, "name": "p4d.24xlarge", "purchase_option": PurchaseOption.SPOT}
    offers = [make_offer(**p4d, usd="10.00", region="us-west-2"), make_offer(**p4d, usd="10.01", region="us-east-2")]
    choice = chosen(planned(*offers, run=make_run(deadline_hours=8)))
    assert choice.offer.region == "us-east-2"


def test_the_overhead_of_spot_is_youngs() -> None:
    """d = 1 h, M = 200 h: t = 20 h; 1 / 20 + (10 + 0.25) / 200."""
    overhead, rate = spot_overhead(3600e9, 1, 1 / 200)
    assert overhead == pytest.approx(0.05 + 10.25 / 200)
    assert rate == pytest.approx(1 / 200)


def test_a_capacity_block_is_paid_by_whole_days() -> None:
    choice = chosen(planned(make_offer(**P5, usd="30", purchase_option=PurchaseOption.CAPACITY_BLOCK)))
    assert choice.billed_hours % 24 == 0
    assert 0 <= choice.billed_hours - choice.hours < 24


def test_a_reservation_is_paid_to_the_end_of_its_term() -> None:
    reserved = make_offer(**P5, usd="20", purchase_option=PurchaseOption.RESERVED_1Y)
    choice = chosen(planned(reserved))
    assert choice.billed_hours == 12 * 730
    both = chosen(planned(make_offer(**P5, usd="40"), reserved))
    assert both.offer.purchase_option is PurchaseOption.ON_DEMAND


def test_a_checkpoint_of_adapters_is_small() -> None:
    model = resolve_model("8B")
    full, adapters = checkpoint_bytes(make_run(), model), checkpoint_bytes(make_run(task="lora"), model)
    assert full == pytest.approx(14 * model.params_total)
    assert adapters < full / 100


def test_the_trade_off_gets_faster_as_it_gets_dearer() -> None:
    curve = planned(make_offer(**P5, usd="40"), make_offer(**P4DE, usd="20")).trade_off
    assert len(curve) > 3
    assert all(a.usd_total <= b.usd_total and a.hours > b.hours for a, b in itertools.pairwise(curve))
    assert trade_off(curve) == curve


def test_a_planned_margin_is_held_against_the_deadline() -> None:
    offer = make_offer(**P5, usd="40")
    hours = chosen(planned(offer)).hours
    run = make_run(deadline_hours=hours * 1.05)
    assert chosen(planned(offer, run=run)).nodes == 1
    assert chosen(planned(offer, run=run, margin=1.3)).nodes > 1


def test_jobs_share_the_budget_and_the_accelerators() -> None:
    first, second = make_run(name="first", deadline_hours=200), make_run(name="second", deadline_hours=200)
    model = resolve_model("8B")
    plan = planned(make_offer(**P5, usd="40"), jobs=[(first, model), (second, model)], max_accelerators=8)
    runs = sorted((job.start_hours, job.start_hours + job.choice.hours) for job in plan.jobs)
    assert len(runs) == 2
    assert runs[1][0] >= runs[0][1]
    assert plan.usd_total == sum(job.choice.usd_total for job in plan.jobs)


def test_pools_of_other_flags_become_alternatives() -> None:
    spot = make_offer(**P5, usd="10", purchase_option=PurchaseOption.SPOT)
    pool = Pool(kind="purchase_option", name="spot", flag="--purchase spot", offers=[spot], note="can be taken away")
    plan = planned(make_offer(**P5, usd="40"), pools=[pool])
    (alternative,) = [a for a in plan.alternatives if a.kind == "purchase_option"]
    assert alternative.choice is not None
    assert alternative.choice.usd_total < chosen(plan).usd_total


def test_an_upper_end_past_the_deadline_is_warned_of() -> None:
    offer = make_offer(**P5, usd="40")
    hours = chosen(planned(offer)).hours
    plan = planned(offer, run=make_run(deadline_hours=hours * 1.01))
    assert any("passes the deadline" in warning for warning in plan.warnings)


def test_no_offer_is_no_plan() -> None:
    with pytest.raises(NoUsablePrices, match="no offer passes"):
        planned()


def test_hardware_that_cannot_hold_the_job_is_counted() -> None:
    plan = planned(make_offer(**P5, usd="40"), make_offer(gpu="L4", count=1, usd="0.5"))
    assert plan.rejections == {"hardware: does not hold the job (one machine: no documented network)": 1}


def test_too_few_accelerators_are_said_with_how_many_it_takes() -> None:
    plan = planned(make_offer(**P5, usd="40"), run=make_run(model="70B"), max_accelerators=8)
    (shortfall,) = plan.shortfalls
    assert (shortfall.limit, shortfall.available) == ("accelerators", 8)
    assert shortfall.needed == 16
    assert plan.fastest is None


def test_the_same_question_gives_the_same_plan() -> None:
    offers = [make_offer(**P5, usd="40"), make_offer(**P4DE, usd="20")]
    first, second = (replace(planned(*order), timing_s={}) for order in (offers, offers[::-1]))
    documents = [{**training_plan_document(plan), "alternatives": None} for plan in (first, second)]
    assert documents[0] == documents[1]


def test_best_choice_ignores_what_is_late_or_too_dear() -> None:
    choice = chosen(planned(make_offer(**P5, usd="40")))
    assert best_choice([choice], "min_cost", None) == choice
    assert best_choice([choice], "min_cost", choice.usd_total - 1) is None
    late = replace(choice, run=replace(choice.run, deadline_hours=choice.hours / 2))
    assert best_choice([late], "min_cost", None) is None


def test_the_explanation_repeats_the_arithmetic() -> None:
    plan = planned(make_offer(**P5, usd="40"), make_offer(**P4DE, usd="39"))
    lines = "\n".join(explain_training(plan))
    for words in ("memory", "GFLOP a token", "goodput", "USD per billion tokens", "Runner-up", "Claims often met"):
        assert words in lines


def test_a_mixture_fine_tuned_with_fsdp_is_told_of_software_that_splits_experts() -> None:
    offer = make_offer(**P5, usd="40")
    mixture = planned(offer, run=make_run(model="8x7B"))
    assert any("--stack megatron" in warning for warning in mixture.warnings)
    split = planned(offer, run=make_run(model="8x7B", stack="megatron"))
    assert not any("--stack megatron" in warning for warning in split.warnings)


def test_a_plan_of_adapters_tells_what_its_sizing_takes_for_granted() -> None:
    document = training_plan_document(planned(make_offer(**P5), run=make_run(task="lora")))
    assert any(line.startswith("run: recomputation ") for line in document["assumptions"])
    assert any("--stack hf" in line for line in document["assumptions"])


def test_a_plan_of_all_weights_takes_nothing_of_adapters_for_granted() -> None:
    document = training_plan_document(planned(make_offer(**P5)))
    assert document["jobs"]
    assert not any("--stack hf" in line for line in document["assumptions"])


def test_a_plan_says_whether_experts_have_adapters_and_smaller_checkpoints_follow() -> None:
    runs = [make_run(model="Qwen/Qwen3-30B-A3B", task="lora", lora_experts=said) for said in (True, False)]
    documents = [training_plan_document(planned(make_offer(**P5), run=run)) for run in runs]
    assert [document["workloads"][0]["lora_experts"] for document in documents] == [True, False]
    model = resolve_model("Qwen/Qwen3-30B-A3B")
    assert checkpoint_bytes(runs[1], model) < checkpoint_bytes(runs[0], model) / 10


def test_experts_of_a_model_without_any_are_not_spoken_of() -> None:
    document = training_plan_document(planned(make_offer(**P5), run=make_run(task="lora")))
    assert document["workloads"][0]["lora_experts"] is None
