"""`costopt export`: files that start a plan on engines and orchestrators."""

from typing import Annotated

import typer

from optimizer.cli import options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def export(
    plan: Annotated[str, typer.Argument(metavar="PLAN.json", help="What `costopt plan … -f json -o PLAN.json` wrote.")],
    to: Annotated[
        list[str],
        typer.Option(
            "--to",
            metavar="TARGET",
            help="vllm, sglang, tensorrt-llm, triton, ray, kubernetes, skypilot, dstack, nginx; fsdp, deepspeed, "
            "megatron, axolotl; slurm, terraform; repeatable.",
        ),
    ],
    output: Annotated[
        str, typer.Option("-o", "--output", metavar="DIR", help="Folder for the files, made if it is not there.")
    ] = ".",
    force: Annotated[bool, typer.Option("--force", help="Replace files that are already there.")] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Write the files that start a plan: launch scripts, services, manifests, router weights, machines.

    Standard output lists the files; what a target cannot express is said on standard error. Nothing is started.
    """
    from pathlib import Path

    from optimizer.cli.streams import say, write_result
    from optimizer.cli.workloads import read_text
    from optimizer.interop.launch_plan import MAX_BYTES, parse_plan
    from optimizer.interop.targets import export as write_target
    from providers.errors import UsageError

    launch = parse_plan(read_text(plan, "plan", MAX_BYTES), plan)
    exported = [write_target(launch, target) for target in dict.fromkeys(to)]
    files = {name: text for one in exported for name, text in one.files.items()}
    warnings = dict.fromkeys(warning for one in exported for warning in one.warnings)
    say((f"warning: {warning}" for warning in warnings), quiet=quiet)
    if not files:
        raise UsageError(f"nothing of this plan can be written for {', '.join(to)}: see the warnings")
    folder = Path(output)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder {output!r}: {error.strerror or error}") from None
    there = [name for name in files if (folder / name).exists()]
    if there and not force:
        raise UsageError(f"already there: {', '.join(there)}; --force replaces them")
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_result(text, str(folder / name))
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
    write_result("".join(f"{folder / name}\n" for name in files), "-")
