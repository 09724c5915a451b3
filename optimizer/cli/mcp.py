"""`costopt mcp`: plan, size, offers, compare, import and guide as tools of a Model Context Protocol server."""

from typing import Annotated

import typer

from optimizer.cli import options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def mcp(
    folder: Annotated[
        str, typer.Option("--folder", metavar="DIR", help="The only folder whose files the tools may read.")
    ] = ".",
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="S", min=1, max=3600, help="Longest run of a tool, in seconds.")
    ] = 60.0,
    verbose: options.Verbose = False,
) -> None:
    """Serve the commands as tools to an assistant, over standard input and output.

    Needs the extra: pip install 'gpu-costopt[mcp]'. Tools answer with the JSON of the commands.
    """
    from pathlib import Path

    from providers.errors import UsageError

    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"--folder {folder!r} is no folder")
    try:
        from optimizer.cli.mcp_server import server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "mcp":
            raise
        raise UsageError("the MCP SDK is not installed: pip install 'gpu-costopt[mcp]'") from None
    server(root.resolve(), timeout).run(transport="stdio")
