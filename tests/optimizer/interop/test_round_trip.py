"""What export wrote, import reads: the plan's accelerators, counts and layout, by target and plan."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from optimizer.interop import targets
from optimizer.interop.asks import Ask
from optimizer.interop.launch_plan import LaunchPlan, Purchase, TrainingJob
from optimizer.interop.recognise import recognise
from optimizer.interop.training import fsdp, megatron
from tests.optimizer.interop import builders, training_plans

TRAINING = tuple(target for target in (*targets.TRAINING, *targets.ORCHESTRATORS) if target != "terraform")
ORCHESTRATORS = tuple(target for target in targets.ORCHESTRATORS if target != "terraform")


def asks_of(plan: LaunchPlan, target: str) -> Iterator[tuple[str, Ask]]:
    """What each file of the export asks for, by its name."""
    for name, text in targets.export(plan, target).files.items():
        for ask in recognise(text, name).asks:
            yield name, ask


def is_the_machine(ask: Ask, bought: Purchase, target: str) -> None:
    """Accelerator, seller, place and way of buying."""
    variants = {variant.name for wish in ask.wishes for variant in (wish.accelerator, *wish.variants)}
    assert bought.accelerator in variants
    assert {wish.accelerator.memory_gib for wish in ask.wishes} == {memory_of(bought.accelerator)}
    assert ask.region == bought.region
    if target != "slurm":
        assert ask.spot == (bought.purchase_option == "spot")
    if target != "kubernetes":
        assert ask.provider == bought.provider
    assert ask.instance_type in (None, bought.instance_type)


def memory_of(accelerator: str) -> float:
    from providers.accelerators import resolve

    return resolve(accelerator).memory_gib


@dataclass(frozen=True, slots=True)
class Said:
    """What the flags of a target say of a job; None = they cannot say it."""

    zero_stage: int | None
    splits: bool
    recompute: str | None
    offload: frozenset[str]
    optimizer: str


def said(job: TrainingJob, target: str) -> Said:
    """The plan's values as far as the target's words have them; the rest is a warning of the export."""
    offload = job.offload or frozenset()
    recompute = "none" if job.recompute == "none" else "full"
    if target == "megatron" or (target in ORCHESTRATORS and job.stack in megatron.STACKS and not job.is_adapter):
        moved = offload & {"optimizer"} if job.zero_stage else frozenset()
        named = {"adamw-8bit": "adamw", "paged-adamw-8bit": "adamw", "adafactor": "adamw"}
        optimizer = named.get(job.optimizer, job.optimizer)
        switched = None if job.recompute == "none" else job.recompute
        return Said(job.zero_stage or None, True, switched, moved, optimizer)
    if target == "deepspeed" or (target in ORCHESTRATORS and job.stack == "hf" and fsdp.shards(job)):
        moved = offload & {"activations"}
        return Said(job.zero_stage, False, recompute, moved, job.optimizer)
    optimizer = job.optimizer.removeprefix("paged-") if fsdp.shards(job) else job.optimizer
    moved = offload if fsdp.shards(job) else offload & {"activations"}
    if moved & {"optimizer", "params"}:
        moved |= {"optimizer", "params"}
    zero = max(2, job.zero_stage) if fsdp.shards(job) else None
    return Said(zero, False, recompute, moved, optimizer)


WRITTEN = tuple(
    (target, name)
    for target in TRAINING
    for name in training_plans.PLANS
    # Megatron-LM trains no adapters.
    if target != "megatron" or "LoRA" not in name
)


@pytest.mark.parametrize(("target", "name"), WRITTEN)
def test_a_training_run_comes_back(name: str, target: str) -> None:
    plan = training_plans.make_training_plan(**training_plans.PLANS[name])
    (job,) = plan.jobs
    expected = said(job, target)
    found = [ask for file, ask in asks_of(plan, target) if not file.endswith(".json")]
    assert len(found) == 1
    ask, training = found[0], found[0].training
    assert training is not None
    is_the_machine(ask, job.purchase, target)
    assert [wish.count * ask.nodes for wish in ask.wishes] == [job.ranks] * len(ask.wishes)
    assert ask.model == job.model
    assert (training.seq_len, training.micro_batch) == (job.seq_len, job.micro_batch)
    assert training.steps == job.steps
    assert training.zero_stage == expected.zero_stage
    assert training.recompute == expected.recompute
    assert training.offload == expected.offload
    assert training.optimizer == expected.optimizer
    assert training.precision == (job.precision if expected.splits or target == "axolotl" else sixteen(job))
    if not expected.splits and not job.is_adapter and target != "axolotl":
        assert training.master_weights == job.master_weights
    if job.is_adapter:
        assert (training.task, training.lora_rank) == (job.task, job.lora_rank)
    if expected.splits:
        assert (ask.tensor_parallel, ask.pipeline_parallel) == (job.tensor_parallel, job.pipeline_parallel)
        assert (training.context_parallel, training.expert_parallel) == (job.context_parallel, job.expert_parallel)
        sequences = training.sequences_per_step
    else:
        ranks = job.ranks // (training.context_parallel or 1)
        sequences = training.micro_batch * (training.gradient_accumulation or 1) * ranks
    assert sequences is not None
    assert sequences * job.seq_len == job.global_batch_tokens


def sixteen(job: TrainingJob) -> str:
    return "fp16" if job.precision == "fp16" else "bf16"


@pytest.mark.parametrize("name", training_plans.PLANS)
def test_a_configuration_of_deepspeed_comes_back(name: str) -> None:
    plan = training_plans.make_training_plan(**training_plans.PLANS[name])
    (job,) = plan.jobs
    (ask,) = (ask for file, ask in asks_of(plan, "deepspeed") if file.endswith(".json"))
    assert ask.training is not None
    is_the_machine(ask, job.purchase, "deepspeed")
    assert [wish.count * ask.nodes for wish in ask.wishes] == [job.ranks] * len(ask.wishes)
    assert (ask.training.zero_stage, ask.training.micro_batch) == (job.zero_stage, job.micro_batch)
    moved = (job.offload or frozenset()) & ({"optimizer", "params"} if job.zero_stage == 3 else {"optimizer"})
    assert ask.training.offload == (moved if job.zero_stage else frozenset())


@pytest.mark.parametrize("name", builders.PLANS)
def test_batch_scripts_of_slurm_come_back(name: str) -> None:
    plan = builders.PLANS[name]()
    found = dict(asks_of(plan, "slurm"))
    assert len(found) == len(plan.groups)
    for group in plan.groups:
        ask = next(ask for file, ask in found.items() if f"-{group.name}." in file)
        is_the_machine(ask, group.purchase, "slurm")
        assert (ask.tensor_parallel, ask.pipeline_parallel) == (group.tensor_parallel, group.pipeline_parallel)
        assert (ask.model, ask.context_tokens) == (group.model, group.context_tokens)
        assert (ask.nodes, ask.replicas * ask.data_parallel) == (group.instances_per_replica, group.replicas)
        (count,) = {wish.count for wish in ask.wishes}
        assert count * ask.nodes == group.accelerators_per_replica


@pytest.mark.parametrize(
    "plan",
    [
        *(build() for build in builders.PLANS.values()),
        *(training_plans.make_training_plan(**over) for over in training_plans.PLANS.values()),
    ],
    ids=[*builders.PLANS, *training_plans.PLANS],
)
def test_machines_of_terraform_come_back(plan: LaunchPlan) -> None:
    found = [ask for _, ask in asks_of(plan, "terraform")]
    assert len(found) == len(plan.purchases)
    for ask, bought in zip(found, plan.purchases, strict=True):
        assert (ask.provider, ask.region, ask.instance_type) == (bought.provider, bought.region, bought.instance_type)
        assert (ask.replicas, ask.spot) == (bought.count, bought.purchase_option == "spot")


def with_attached_gpus() -> LaunchPlan:
    """Machines of Google whose GPUs are attached, under the name that their prices have."""
    google = {"provider": "gcp", "instance_type": "n1-standard-16+nvidia-tesla-t4x2", "region": "us-central1"}
    google |= {"accelerator": "T4"}
    return builders.make_plan(
        [builders.make_instances(**google, accelerator_count=2, count=3)],
        [builders.make_replicas(**google, tensor_parallel=2, count=3, precision="fp16")],
    )


@pytest.mark.parametrize("target", targets.ORCHESTRATORS)
def test_machines_with_attached_gpus_have_the_names_that_google_gives_them(target: str) -> None:
    plan = with_attached_gpus()
    (text,) = targets.export(plan, target).files.values()
    code = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    assert "+nvidia" not in code
    (ask,) = recognise(text, "file").asks
    if target == "terraform":
        assert ask.instance_type == plan.purchases[0].instance_type
        assert 'type  = "nvidia-tesla-t4"' in code
    else:
        assert [(wish.accelerator.name, wish.count) for wish in ask.wishes] == [("T4", 2)]


def test_slices_of_tpu_pods_are_no_machines_of_terraform() -> None:
    tpu = {"provider": "gcp", "instance_type": "v5litepod-8", "region": "us-central1", "accelerator": "TPU v5e"}
    plan = builders.make_plan([builders.make_instances(**tpu)], [builders.make_replicas(**tpu)])
    exported = targets.export(plan, "terraform")
    assert not exported.files
    assert any("google_tpu_v2_vm" in warning for warning in exported.warnings)


def test_a_run_on_tpus_is_told_that_the_command_does_not_run_there() -> None:
    tpu = {"provider": "gcp", "instance_type": "v5litepod-16", "region": "us-central1", "accelerator": "TPU v5e"}
    plan = training_plans.make_training_plan(**tpu, accelerator_count=16, count=1, stack="xla")
    for target in TRAINING:
        assert any("does not run this" in warning for warning in targets.export(plan, target).warnings)


def test_an_id_of_a_zone_is_not_taken_for_its_name() -> None:
    plan = builders.make_plan([builders.make_instances(zone="use1-az4")])
    (service,) = targets.export(plan, "skypilot").files.values()
    assert "infra: aws/us-east-1\n" in service
    assert any("use1-az4" in warning for warning in targets.export(plan, "skypilot").warnings)
    (machines,) = targets.export(plan, "terraform").files.values()
    assert "availability_zone" not in machines
    assert 'description = "Subnet in use1-az4."' in machines


def test_a_slice_of_a_tpu_pod_comes_back_from_skypilot() -> None:
    tpu = {"provider": "gcp", "instance_type": "v5litepod-16", "region": "us-central1", "accelerator": "TPU v5e"}
    plan = training_plans.make_training_plan(**tpu, accelerator_count=16, count=1, stack="xla")
    (text,) = targets.export(plan, "skypilot").files.values()
    assert "tpu-v5litepod-16: 1" in text
    (ask,) = recognise(text, "file").asks
    assert [(wish.accelerator.name, wish.count) for wish in ask.wishes] == [("TPU v5e", 16)]
    assert (ask.provider, ask.instance_type) == ("gcp", None)
