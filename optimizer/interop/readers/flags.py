"""Turns the flags of a server that mean nothing as they stand into faults, instead of leaving them out."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from optimizer.interop.asks import Fault, whole

if TYPE_CHECKING:
    from optimizer.interop.readers.command_lines import Server

_COUNTS: Final = ("tensor_parallel", "pipeline_parallel", "data_parallel")
_LEFT_TO_THE_ENGINE: Final = ("", "auto", "-1", "none")


def flag_faults(found: "Server") -> tuple[Fault, ...]:
    """Numbers that are none, and variables whose value the file does not have."""
    return tuple(_faults(found))


def _faults(found: "Server") -> Iterator[Fault]:
    readable = {
        **{name: whole(found.values.get(name)) is not None for name in _COUNTS},
        "context": found.context_tokens is not None,
        "memory_share": found.memory_share is not None,
        "quantization": found.precision is not None,
    }
    for name, is_read in readable.items():
        value = found.values.get(name, "")
        if is_read or value.strip().lower() in _LEFT_TO_THE_ENGINE:
            continue
        line = found.lines.get(name)
        flag = name.replace("_", " ")
        if "$" in value or "{{" in value:
            what = f"{flag} is {value[:60]}, whose value is not in the file: the engine's default is taken"
            yield Fault(line=line, what=what, fix="put the value in", fatal=False)
        elif name == "quantization":
            what = f"quantization {value[:60]!r} is not known here: the checkpoint's format is taken"
            yield Fault(line=line, what=what, fix="--precision says what the weights are in", fatal=False)
        else:
            fix = "give a share above 0 and up to 1" if name == "memory_share" else "give a whole number from 1 on"
            yield Fault(line=line, what=f"{flag} cannot be {value[:60]!r}", fix=fix)
