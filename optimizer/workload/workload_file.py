"""Turns a YAML file of workloads into workloads, or into errors that name the field, the value and the line.

workloads:
  - name: chat
    model: 70B                # size, alias, Hugging Face id
    owner: team-a
    rate: 5                   # requests/s on average; leave out to seek it, or with an absolute profile
    shapes:                   # or input_tokens / output_tokens for a single one
      - {input_tokens: 800, output_tokens: 250, share: 0.9}
      - {input_tokens: 6000, output_tokens: 400, share: 0.1}
    profile: [1, 1, …]        # 24 or 168 hourly numbers: relative, or requests/s where no rate is given
    slo: {ttft_ms: 2000, tpot_ms: 100}
    precisions: [bf16, fp8]
    context: 8192
    regions: [us-east-1]
    minimum_replicas: 1
    minimum_replicas_by_region: {us-east-1: 1}
    same_region: false
    spot: true
    priority: 1
"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from optimizer.workload.workload import (
    DEFAULT_SHAPE,
    DEFAULT_SLO,
    DEFAULT_UTILIZATION,
    SLO,
    InferenceWorkload,
    RequestShape,
    ShapeDemand,
)
from providers.errors import UsageError, nearest
from providers.units import HOURS_PER_DAY, HOURS_PER_WEEK

MAX_BYTES: Final = 2_000_000
_MOST_VALUES: Final = 200_000
MAX_WORKLOADS: Final = 1000

_MESSAGES: Final[Mapping[str, str]] = {
    "model_type": "must be keys with values, like `name: value`",
    "model_attributes_type": "must be keys with values, like `name: value`",
}
"""In the place of messages that name classes of this program."""

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Lines = Mapping[tuple[str | int, ...], int]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class _Shape(_Strict):
    input_tokens: int = Field(ge=1)
    output_tokens: int = Field(ge=1)
    share: Positive = 1.0


class _Slo(_Strict):
    ttft_ms: Positive = DEFAULT_SLO.ttft_ms
    tpot_ms: Positive = DEFAULT_SLO.tpot_ms


class WorkloadEntry(_Strict):
    """A workload as a file gives it; other files that hold workloads add fields of their own."""

    name: str = Field(min_length=1, max_length=100)
    model: str = Field(min_length=1)
    owner: str | None = None
    rate: Positive | None = None
    shapes: list[_Shape] = Field(default_factory=list, max_length=100)
    input_tokens: int | None = Field(default=None, ge=1)
    output_tokens: int | None = Field(default=None, ge=1)
    profile: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(default_factory=list)
    slo: _Slo = Field(default_factory=_Slo)
    precisions: list[str] = Field(default_factory=list)
    kv_precision: str | None = None
    context: int | None = Field(default=None, ge=1)
    utilization: float = Field(default=DEFAULT_UTILIZATION, gt=0, le=1)
    regions: list[str] | None = Field(default=None, min_length=1)
    minimum_replicas: int = Field(default=1, ge=0)
    minimum_replicas_by_region: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    same_region: bool = False
    spot: bool = True
    priority: int = Field(default=1, ge=1)

    @model_validator(mode="after")
    def _consistent(self) -> "WorkloadEntry":
        if self.shapes and (self.input_tokens or self.output_tokens):
            raise ValueError("give shapes, or input_tokens and output_tokens, not both")
        if self.profile and len(self.profile) not in (HOURS_PER_DAY, HOURS_PER_WEEK):
            raise ValueError(f"profile has {len(self.profile)} numbers; give {HOURS_PER_DAY} or {HOURS_PER_WEEK}")
        if self.profile and not any(self.profile):
            raise ValueError("profile is 0 in every hour")
        return self


class _File(_Strict):
    workloads: list[WorkloadEntry] = Field(min_length=1, max_length=MAX_WORKLOADS)

    @model_validator(mode="after")
    def _unique(self) -> "_File":
        names = [workload.name for workload in self.workloads]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"names must differ; twice: {', '.join(twice)}")
        return self


def parse_workloads(text: str, name: str) -> tuple[InferenceWorkload, ...]:
    """The workloads of a YAML file. Raises UsageError with the field path, the value and the line of every fault."""
    content, lines = load_yaml(text, name)
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"{name}: {faults(error, lines, _File)}") from None
    return tuple(workload_of(workload) for workload in file.workloads)


class _Refused(Exception):
    """What of YAML is not read, and its line."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line, self.what = line, what


class _Plain(yaml.SafeLoader):
    """YAML without anchors, aliases, merge keys and keys that are given twice, of not too many values."""

    _values = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._values += 1
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it untyped
        if getattr(event, "anchor", None) is not None:
            raise _Refused(event.start_mark.line + 1, "anchors and aliases are not read; write it out")
        if self._values > _MOST_VALUES:
            raise _Refused(event.start_mark.line + 1, f"more than {_MOST_VALUES:,} values are not read")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        first: dict[str, int] = {}
        for key, _ in node.value:
            line = key.start_mark.line + 1
            if key.tag == "tag:yaml.org,2002:merge":
                raise _Refused(line, "merge keys (<<) are not read; write it out")
            if isinstance(key, yaml.ScalarNode) and first.setdefault(key.value, line) != line:
                raise _Refused(line, f"{key.value[:100]!r} is given twice, first on line {first[key.value]}")
        return super().construct_mapping(node, deep)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, OverflowError, TypeError):
            raise _Refused(node.start_mark.line + 1, f"{str(node.value)[:40]!r} cannot be read as a value") from None


def load_yaml(text: str, name: str) -> tuple[Any, Lines]:
    """A YAML document as plain values, and the line of each by its path.

    Raises UsageError for text that is too long, is no YAML, has a key twice, or has anchors: a few lines of those can
    mean gigabytes.
    """
    if len(text) > MAX_BYTES:
        raise UsageError(f"{name} has {len(text):,} characters; at most {MAX_BYTES:,} are read")
    try:
        loader = _Plain(text)
        node = loader.get_single_node()
        content = None if node is None else loader.construct_document(node)
    except _Refused as refused:
        raise UsageError(f"{name}, line {refused.line}: {refused.what}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        problem = getattr(error, "problem", None) or " ".join(str(error).split())
        raise UsageError(f"{name}{where}: no valid YAML: {problem}") from None
    except RecursionError:
        raise UsageError(f"{name} is nested too deeply") from None
    lines: dict[tuple[str | int, ...], int] = {}
    if node is not None:
        _note_lines(node, (), lines)
    return content, lines


def faults(error: ValidationError, lines: Lines, model: type[BaseModel] | None = None) -> str:
    """Every fault as `line 4, workloads.0.rate: … (value -1)`, one behind the other.

    With the `model` of the file an unknown key comes with the nearest keys that may stand there.
    """
    return "; ".join(_fault(one, lines, model) for one in error.errors(include_url=False))


def _fault(one: Mapping[str, Any], lines: Lines, model: type[BaseModel] | None) -> str:
    path = tuple(one["loc"])
    known = path
    while known and known not in lines:
        known = known[:-1]
    line = f"line {lines[known]}, " if known in lines else ""
    value = one["input"]
    shown = f" (value {value!r})" if isinstance(value, (str, int, float, bool)) else ""
    where = ".".join(str(part) for part in path) or "file"
    message = _MESSAGES.get(one["type"]) or str(one["msg"]).removeprefix("Value error, ")
    if not path and value is None:
        message = "is empty"
    if one["type"] == "extra_forbidden" and model is not None:
        near = nearest(str(path[-1]), _keys(model, path[:-1]))
        message += f"; did you mean {', '.join(near)}?" if near else ""
    return f"{line}{where}: {message}{shown}"


def _keys(model: type[BaseModel], path: tuple[str | int, ...]) -> tuple[str, ...]:
    """The keys that a file of that model may have at a path; none where the path leaves its models."""
    for part in path:
        if isinstance(part, str):
            field = model.model_fields.get(part)
            inner = None if field is None else _model_in(field.annotation)
            if inner is None:
                return ()
            model = inner
    return tuple(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a field holds, by itself, or in a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in get_args(annotation) if (found := _model_in(part)) is not None), None)


def _note_lines(node: yaml.Node, path: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int]) -> None:
    lines[path] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            _note_lines(value, (*path, str(key.value)), lines)
            lines[(*path, str(key.value))] = key.start_mark.line + 1
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            _note_lines(value, (*path, index), lines)


def workload_of(given: WorkloadEntry) -> InferenceWorkload:
    """The workload that an entry means."""
    shapes = given.shapes or [
        _Shape(
            input_tokens=given.input_tokens or DEFAULT_SHAPE.input_tokens,
            output_tokens=given.output_tokens or DEFAULT_SHAPE.output_tokens,
        )
    ]
    total = math.fsum(shape.share for shape in shapes)
    mean = math.fsum(given.profile) / len(given.profile) if given.profile else None
    rate = given.rate if given.rate is not None else mean
    return InferenceWorkload(
        name=given.name,
        model=given.model,
        demands=tuple(
            ShapeDemand(
                shape=RequestShape(input_tokens=shape.input_tokens, output_tokens=shape.output_tokens),
                requests_per_s=None if rate is None else rate * shape.share / total,
                share=shape.share / total,
            )
            for shape in shapes
        ),
        owner=given.owner,
        slo=SLO(ttft_ms=given.slo.ttft_ms, tpot_ms=given.slo.tpot_ms),
        profile=tuple(value / mean for value in given.profile) if mean else (),
        precisions=tuple(given.precisions),
        kv_precision=given.kv_precision,
        context_tokens=given.context,
        utilization=given.utilization,
        minimum_replicas=given.minimum_replicas,
        minimum_replicas_by_region=given.minimum_replicas_by_region,
        regions=None if given.regions is None else frozenset(given.regions),
        same_region=given.same_region,
        spot_allowed=given.spot,
        priority=given.priority,
    )
