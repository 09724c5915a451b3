"""Builds the command tree: a name and a module per command, imported when the command is called."""

from functools import cache, partial
from importlib import import_module
from typing import Annotated, Any, Final

import typer
from typer.core import TyperGroup

from optimizer.cli.settings import default_map

COMMANDS: Final = {
    "plan": "optimizer.cli.plan",
    "size": "optimizer.cli.size",
    "offers": "optimizer.cli.offers",
    "refresh": "optimizer.cli.refresh",
    "prices": "optimizer.cli.prices",
    "report": "optimizer.cli.report",
    "compare": "optimizer.cli.compare",
    "validate": "optimizer.cli.validate",
    "export": "optimizer.cli.export",
    "import": "optimizer.cli.import_",
    "guide": "optimizer.cli.guide",
    "mcp": "optimizer.cli.mcp",
}
"""Commands in the order of the help, and the module of each, whose `app` holds it."""


class _LazyGroup(TyperGroup):
    """Finds the commands in COMMANDS and gives each its settings from the environment and configuration files."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        command = _load(cmd_name)
        if not ctx.resilient_parsing:
            command.context_settings["default_map"] = default_map(
                cmd_name, {name: partial(_load, name) for name in COMMANDS}
            )
        return command


@cache
def _load(name: str) -> Any:
    """The command of that name, from its module."""
    command = typer.main.get_command(import_module(COMMANDS[name]).app)
    command.name = name
    return command


def application() -> Any:
    """The root command, ready to be called with `args`."""
    app = typer.Typer(
        cls=_LazyGroup,
        name="costopt",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_root)
    return typer.main.get_command(app)


def _root(
    ctx: typer.Context,
    show_version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    """Size an LLM workload, price every accelerator instance of five clouds, choose the cheapest mix.

    `costopt --model 70B --task infer --budget 5000` is short for `costopt plan …`.
    """
    if show_version:
        typer.echo(f"costopt {_version()}")
    elif ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # rarely asked for: start-up time

    try:
        return version("gpu-costopt")
    except PackageNotFoundError:
        return "(not installed)"
