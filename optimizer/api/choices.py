"""Turns the words that flags take into the objects that they mean, or into an error with suggestions."""

import json
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Final

from optimizer.api.sources import Source, path_of, read_text
from optimizer.workload.architecture import Architecture, architecture_from_config, resolve_model
from providers.accelerators import matches
from providers.errors import InvalidValue, UnknownName, UsageError, nearest
from providers.instance_types import NOT_SOLD_ON_DEMAND
from providers.offers import PROVIDERS, Offer, PurchaseOption, Trait

if TYPE_CHECKING:
    from optimizer.program.problem import Quota
    from optimizer.sizing.layout import Hardware
    from optimizer.sizing.measured import MeasuredPoint

UNCALIBRATED: Final = "uncalibrated"
FORMATS: Final = ("table", "json", "csv", "md")
PAGE_FORMATS: Final = (*FORMATS, "html")
TASKS: Final = ("infer", "train", "finetune", "lora", "qlora")
_MAX_CONFIG_BYTES: Final = 10_000_000
_MAX_MEASURED_BYTES: Final = 50_000_000
_LONGEST_NAME: Final = 250


def one_of(kind: str, value: str, known: Sequence[str]) -> str:
    """The known word that `value` is, whatever its case. Raises UnknownName."""
    word = value.strip().lower()
    if word not in known:
        raise UnknownName(kind, value, nearest(value, known), f"known: {', '.join(known)}")
    return word


def architecture(model: str) -> Architecture:
    """The model that a size, alias, id or path means. A path is one with a separator that exists, or ends in .json.

    Raises UnknownName, or UsageError for a file that is not a model's config.
    """
    path = _path(model)
    return resolve_model(model) if path is None else _from_file(path)


def _path(model: str) -> Path | None:
    """The file or folder that `model` means, None for a name. Raises UsageError for what can be neither."""
    if len(model) > _LONGEST_NAME:
        raise UsageError(f"model {model[:40]!r}… has {len(model)} characters: that is neither a name nor a path")
    if not model.strip() or "\0" in model:
        return None
    path = path_of(model)
    return path if path.suffix == ".json" or path.is_dir() or model.startswith((".", "/", "~")) else None


def _from_file(path: Path) -> Architecture:
    file = path / "config.json" if path.is_dir() else path
    if not file.exists():
        raise UsageError(f"model file {str(file)!r} does not exist; give a config.json or the folder that has it")
    if not file.is_file():
        raise UsageError(
            f"model file {str(file)!r} is a folder or a device; give a config.json or the folder that has it"
        )
    if file.stat().st_size > _MAX_CONFIG_BYTES:
        raise UsageError(f"model file {str(file)!r} has {file.stat().st_size} bytes: that is no config.json")
    try:
        content = json.loads(file.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"model file {str(file)!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"model file {str(file)!r} is not valid JSON ({error}); download it again") from None
    if not isinstance(content, dict):
        raise UsageError(f"model file {str(file)!r} holds a {type(content).__name__}, not an object")
    name = file.parent.resolve().name or file.stem
    try:
        return architecture_from_config(content, name)
    except UsageError as error:
        raise UsageError(f"model file {str(file)!r}: {error}") from None


def accelerators(names: Iterable[str] | None) -> tuple[frozenset[str], tuple[str, ...]]:
    """Canonical names that the filters mean, and a line for each name that means several. Raises UnknownName."""
    found: set[str] = set()
    remarks = []
    for name in names or ():
        variants = [accelerator.name for accelerator in matches(name)]
        found.update(variants)
        if len(variants) > 1:
            remarks.append(f"--gpu {name} means {', '.join(variants)}")
    return frozenset(found), tuple(remarks)


def providers(words: Iterable[str] | None) -> frozenset[str]:
    """The sellers that the words mean, with commas or without, whatever their case; empty for none.

    Raises UnknownName.
    """
    return frozenset(one_of("provider", word, PROVIDERS) for word in _parts(words))


def hardware(gpu: str, count: int) -> tuple["Hardware", tuple[str, ...]]:
    """`count` accelerators of the usual variant that `gpu` means, and a line that says so where it means several.

    Raises UnknownName.
    """
    from optimizer.sizing.layout import Hardware
    from providers.instance_types import usual_link

    taken, *others = matches(gpu)
    remarks = [f"{gpu} is taken as {taken.name}, not {', '.join(other.name for other in others)}"] if others else []
    return Hardware(accelerator=taken, count=count, link=usual_link(taken, count)), tuple(remarks)


def purchase_options(words: Iterable[str] | None) -> frozenset[PurchaseOption]:
    """The options that the words mean, with commas or without, written with `-` or `_`; on demand without words.

    Raises UnknownName.
    """
    known = {option.value.replace("_", "-"): option for option in PurchaseOption}
    chosen = {known[one_of("purchase option", word.replace("_", "-"), tuple(known))] for word in _parts(words)}
    return frozenset(chosen or {PurchaseOption.ON_DEMAND})


def not_on_demand(providers: Set[str], names: Set[str], options: Set[PurchaseOption]) -> tuple[str, ...]:
    """A line for each kind of machine that is left out since its seller lists it on demand but does not sell it so.

    Empty sets of `providers` and `options` mean all; only accelerators that were asked for by name are spoken of.
    """
    return tuple(
        f"{rule.provider}: {rule.machines} are listed with an on-demand price but not sold on demand; "
        "they can be had as spot, flex start or reservation"
        for rule in NOT_SOLD_ON_DEMAND
        if (not providers or rule.provider in providers)
        and (not options or PurchaseOption.ON_DEMAND in options)
        and names & rule.accelerators
    )


def includes(words: Iterable[str] | None) -> tuple[frozenset[Trait], bool]:
    """Traits that are accepted, and whether uncalibrated accelerators are. Raises UnknownName."""
    known = (*(trait.value for trait in Trait), UNCALIBRATED)
    chosen = {one_of("kind to include", part, known) for part in _parts(words)}
    return frozenset(Trait(word) for word in chosen - {UNCALIBRATED}), UNCALIBRATED in chosen


def precisions(words: Iterable[str] | None) -> tuple[str, ...]:
    """The allowed dtypes by canonical name, empty for `auto`. Raises UnknownName."""
    from optimizer.sizing.dtypes import weight_format

    chosen = _parts(words)
    if "auto" in chosen:
        if len(set(chosen)) > 1:
            raise UsageError(f"--precision auto cannot be combined with {', '.join(p for p in chosen if p != 'auto')}")
        return ()
    return tuple(dict.fromkeys(weight_format(word).name for word in chosen))


def confidence(value: float | None) -> float | None:
    """A confidence between 0 and 1, both excluded. Raises InvalidValue."""
    if value is not None and not 0 < value < 1:
        raise InvalidValue("--confidence", value, "give a share between 0 and 1, like 0.8")
    return value


def measured(file: Source | None) -> "tuple[MeasuredPoint, ...]":
    """The points of a file of benchmark results. Raises UsageError for a file that cannot be read or is none."""
    if file is None:
        return ()
    from optimizer.sizing.measured import read_measured

    return read_measured(read_text(file, "file of benchmark results", _MAX_MEASURED_BYTES), str(file))


def sizing_assumptions(prefix_cache_hit: float, confidence: float | None, measured: Source | None) -> Iterator[str]:
    """What was asked of the estimates, as lines."""
    if prefix_cache_hit:
        yield f"{prefix_cache_hit:.0%} of each prompt is found in the prefix cache"
    if confidence is not None:
        yield f"planned on the careful end of the estimates' {confidence:.0%} interval"
    if measured is not None:
        yield f"measurements of {measured} replace the estimates that they match"


def quota_warnings(quotas: Sequence["Quota"], offers: Sequence[Offer]) -> tuple[str, ...]:
    """What is said of quotas that nothing on file can reach."""
    if not quotas:
        return ()
    from optimizer.plans.market_files import quotas_without_effect

    return tuple(quotas_without_effect(quotas, offers))


def _parts(words: Iterable[str] | None) -> list[str]:
    """Each word of a repeatable flag, which may also hold several with commas."""
    return [part.strip() for word in words or () for part in word.split(",")]
