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
            help="Serving: vllm, sglang, tensorrt-llm, triton, triton-tensorrt-llm, ray, nginx, gateway-api, llm-d. "
            "Training: fsdp, deepspeed, megatron, axolotl. Both: kubernetes, skypilot, dstack, slurm, terraform. "
            "Repeatable.",
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
    from optimizer.api.launch_files import written
    from optimizer.api.sources import read_text
    from optimizer.cli.streams import say, write_result
    from optimizer.interop.plan_file import MAX_BYTES, parse_plan

    launch = parse_plan(read_text(plan, "plan", MAX_BYTES), plan)
    paths, warnings = written(launch, to, output, replace=force)
    say((f"warning: {warning}" for warning in warnings), quiet=quiet)
    write_result("".join(f"{path}\n" for path in paths), "-")
