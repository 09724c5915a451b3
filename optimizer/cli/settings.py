"""Turns COSTOPT_* variables and configuration files into defaults of a command's options; a flag always wins.

Order: flag, environment, `./costopt.toml`, the user's `config.toml`, built-in default. A file's top level holds options
of any command, a table named after a command those of that command: `max-age = "7d"`, `[plan] region = ["us-east-1"]`.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from providers.errors import UnknownName, UsageError, nearest

_PREFIX: Final = "COSTOPT_"
_PROJECT_FILE: Final = "costopt.toml"
_OTHER_VARIABLES: Final = frozenset({"AWS_REGIONS", "CACHE_URL", "NOW"})
"""Of COSTOPT_*: those that are no option of a command, beside those that _OF_OTHERS matches."""

_OF_OTHERS: Final = re.compile(
    r"\w+_BASE_URL|(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_\w+)?)?)"
)
"""`<PROVIDER>_BASE_URL`, and what Kubernetes tells every pod of a service named costopt or costopt-…."""


def default_map(command_name: str, commands: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """Defaults by parameter name for one of the `commands` (name and loader), nearest source first served.

    Of a group of commands (`prices`) the defaults of each member that has the option, by the member's name.
    Raises UnknownName for a key or a variable that is no option, UsageError for a file that is not TOML.
    """
    command = commands[command_name]()
    parameters = _options(command)
    defaults: dict[str, Any] = {}
    for path in (_user_file(), Path(_PROJECT_FILE)):
        defaults |= _from_file(path, command_name, commands, parameters)
    for flag, parameter in parameters.items():
        value = os.environ.get(_PREFIX + _variable(flag))
        if value:
            defaults[parameter.name] = value.split(",") if parameter.multiple else value
    _check_environment(parameters, commands)
    if not _members(command):
        return defaults
    return {
        name: {parameter.name: defaults[parameter.name] for parameter in member.params if parameter.name in defaults}
        for name, member in _members(command).items()
    }


def _flag(parameter: Any) -> str:
    """The long flag without dashes: `max-age`."""
    return str(max(parameter.opts, key=len)).lstrip("-")


def _user_file() -> Path:
    from platformdirs import user_config_path

    return user_config_path("costopt", appauthor=False) / "config.toml"


def _members(command: Any) -> Mapping[str, Any]:
    """The commands of a group, by name; none for a plain command."""
    members: Mapping[str, Any] = getattr(command, "commands", {})
    return members


def _options(command: Any) -> dict[str, Any]:
    """A command's options, or those of a group's members, by long flag without dashes."""
    members = _members(command).values() or (command,)
    return {_flag(option): option for one in members for option in one.params if option.param_type_name == "option"}


def _from_file(
    path: Path, command_name: str, commands: Mapping[str, Callable[[], Any]], parameters: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return {}
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    import tomllib  # only where there is a file: start-up time

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    own = content.get(command_name, {})
    general = {key: value for key, value in content.items() if key not in commands}
    if not isinstance(own, dict):
        raise UsageError(f"{path}: {command_name} is a command, so write its options as a table [{command_name}]")
    for key in own:
        if key not in parameters:
            raise UnknownName(f"option in [{command_name}] of {path}", key, nearest(key, parameters))
    unknown = general.keys() - parameters.keys()
    if unknown:
        _check_general(path, sorted(unknown), commands)
    shared = {key: value for key, value in general.items() if key in parameters}
    return {parameters[key].name: _text(path, parameters[key], value) for key, value in (shared | own).items()}


def _check_environment(own: Iterable[str], commands: Mapping[str, Callable[[], Any]]) -> None:
    """Raises UnknownName for a COSTOPT_* variable that no command has as an option."""
    named = {name.removeprefix(_PREFIX) for name in os.environ if name.startswith(_PREFIX)}
    others = named - _OTHER_VARIABLES - {_variable(flag) for flag in own}
    others = {name for name in others if not _OF_OTHERS.fullmatch(name)}
    if others:
        known = {_variable(flag) for load in commands.values() for flag in _options(load())} | _OTHER_VARIABLES
        for name in sorted(others - known):
            near = [_PREFIX + one for one in nearest(name, known)]
            raise UnknownName("environment variable", _PREFIX + name, near, "no option has that name: unset it")


def _variable(flag: str) -> str:
    """`max-age` is MAX_AGE in the environment."""
    return flag.replace("-", "_").upper()


def _check_general(path: Path, keys: Iterable[str], commands: Mapping[str, Callable[[], Any]]) -> None:
    """Raises UnknownName for a key that no command has as an option."""
    known = {flag for load in commands.values() for flag in _options(load())}
    for key in keys:
        if key not in known:
            raise UnknownName(f"table or option in {path}", key, nearest(key, [*commands, *sorted(known)]))


def _text(path: Path, parameter: Any, value: Any) -> Any:
    """Values as a flag would give them: text, or a list of texts; switches stay true or false."""
    if isinstance(value, dict):
        raise UsageError(f"{path}: {_flag(parameter)} is an option, so give it a value and not a table")
    if isinstance(value, bool):
        return value
    if isinstance(value, list):
        return [str(item) for item in value]
    return str(value).split(",") if parameter.multiple else str(value)
