"""Says what a file asks for: a model on accelerators, in places, with a layout; and what is wrong with it, by line."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from optimizer.workload.workload_file import Lines
from providers.accelerators import Accelerator, matches
from providers.errors import UnknownName

CLUSTERS: Final = ("kubernetes", "k8s", "ssh", "slurm")
"""Names that stand in place of a provider for machines of one's own."""

_COUNT: Final = re.compile(r"\d{1,6}(?:\.0)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is wrong, where, and what would be right. A fault that is `fatal` keeps the file from working."""

    line: int | None
    what: str
    fix: str
    fatal: bool = True

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.what}; {self.fix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where and how one of several alternatives is bought, with the lines that say so; None = anywhere."""

    provider: str | None = None
    region: str | None = None
    instance_type: str | None = None
    spot: bool = False
    lines: Mapping[str, int] = field(default_factory=dict, hash=False, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """Degrees of a server, where they follow the number of accelerators of a wish."""

    tensor_parallel: int | None
    pipeline_parallel: int | None
    data_parallel: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Accelerators that would do: one variant, `count` on each machine, as the file names it on a line.

    `places` and `degrees` are given where they are not those of the whole file; one of the places is enough.
    """

    named: str
    accelerator: Accelerator
    count: int
    line: int | None
    variants: tuple[Accelerator, ...] = ()
    places: tuple[Place, ...] = ()
    degrees: Degrees | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingAsk:
    """How a job trains, as its file says it. None (for `offload`: nothing) = the file does not say.

    `task` is train, finetune, lora or qlora; `optimizer` any usual spelling; `precision` bf16, fp16, fp8 or fp32;
    `recompute` none, selective or full; `offload` parts of optimizer, params and activations. `micro_batch` are the
    sequences of a rank at a time, `sequences_per_step` those of one optimizer step over all ranks; `steps`, `epochs`
    and `tokens` say how long. `uncounted` are notes on settings that no estimate counts. TP and PP are fields of the
    Ask, whose `accelerators_per_machine` are the ranks of a machine.
    """

    task: str | None = None
    stack: str | None = None
    seq_len: int | None = None
    micro_batch: int | None = None
    gradient_accumulation: int | None = None
    sequences_per_step: int | None = None
    steps: int | None = None
    epochs: float | None = None
    tokens: float | None = None
    optimizer: str | None = None
    precision: str | None = None
    master_weights: bool | None = None
    lora_rank: int | None = None
    lora_experts: bool | None = None
    zero_stage: int | None = None
    offload: frozenset[str] = frozenset()
    recompute: str | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    uncounted: tuple[Fault, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One service or job of a file. None = the file does not say.

    `nodes` machines hold one replica; `data_parallel` replicas share a machine and `replicas` such machines (or sets
    of machines) run. `accelerators_per_machine` is given where a file counts accelerators without naming them.
    `max_sequences` are the requests that a replica runs at once at the most. `quantization` is the engine's own word
    behind `precision`. `provider`, `region` and `instance_type` narrow where.
    `packs` says that machines are shared out by a scheduler: several replicas may come to one. `training` makes it a
    job that trains, None one that serves. `lines` has the line of each field that the file gives, those of `training`
    under their own names; `faults` are those of the file, `flag_faults` those of a server's own flags.
    """

    source: str
    name: str
    model: str | None = None
    wishes: tuple[Wish, ...] = ()
    nodes: int = 1
    replicas: int = 1
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None
    data_parallel: int = 1
    context_tokens: int | None = None
    max_sequences: int | None = None
    precision: str | None = None
    quantization: str | None = None
    kv_precision: str | None = None
    engine: str | None = None
    memory_share: float | None = None
    provider: str | None = None
    region: str | None = None
    instance_type: str | None = None
    accelerators_per_machine: int | None = None
    packs: bool = False
    spot: bool = False
    training: TrainingAsk | None = None
    flag_faults: tuple[Fault, ...] = ()
    lines: Mapping[str, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def of(self, one: Wish) -> "Ask":
        """The ask with the degrees of one of its wishes."""
        if one.degrees is None:
            return self
        return replace(self, **{name: getattr(one.degrees, name) for name in Degrees.__slots__})

    def at(self, place: Place) -> "Ask":
        """The ask in one of a wish's places."""
        return replace(
            self,
            provider=place.provider,
            region=place.region,
            instance_type=place.instance_type,
            spot=place.spot,
            lines={**self.lines, **place.lines},
        )


def wish(named: str, count: object, line: int | None) -> Wish | Fault:
    """The accelerator that a name means and how many, or the fault of the name or the count."""
    number = whole(count)
    if number is None:
        return Fault(line=line, what=f"{named}: {count!r} is no number of accelerators", fix="give a whole number")
    try:
        variants = matches(named)
    except UnknownName as error:
        near = f"did you mean {', '.join(error.suggestions)}?" if error.suggestions else "`costopt offers` lists names"
        return Fault(line=line, what=f"there is no accelerator {named!r}", fix=near)
    return Wish(named=named, accelerator=variants[0], count=number, line=line, variants=variants)


def whole(value: object) -> int | None:
    """A count of at least 1; None for anything else."""
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    if not _COUNT.fullmatch(text):
        return None
    number = int(float(text))
    return number if number >= 1 else None


def divided(found: list[Wish | Fault]) -> tuple[tuple[Wish, ...], tuple[Fault, ...]]:
    """Wishes and faults apart."""
    return (
        tuple(one for one in found if isinstance(one, Wish)),
        tuple(one for one in found if isinstance(one, Fault)),
    )


def mapping(value: Any) -> Mapping[Any, Any]:
    """A field that should be a mapping, empty where it is none."""
    return value if isinstance(value, Mapping) else {}


def texts(value: Any) -> Iterator[str]:
    """The strings of a field that takes one or several."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)


def line_of(lines: Lines, *path: str | int) -> int | None:
    """The line of a path, or of the nearest part of it that has one."""
    known = path
    while known and known not in lines:
        known = known[:-1]
    return lines.get(known)
