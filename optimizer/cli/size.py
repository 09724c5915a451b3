"""`costopt size`: does a model fit on an accelerator x count, how much memory does it take, how fast is it."""

from dataclasses import fields
from typing import Annotated

import typer

from optimizer.cli import options, train_options

app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def size(
    context_: typer.Context,
    model: options.Model,
    gpu: Annotated[str, typer.Option("--gpu", metavar="NAME", help="Accelerator, by any of its names.")],
    count: Annotated[
        int, typer.Option("--count", metavar="N", min=1, max=4096, help="Accelerators that the replica may use.")
    ] = 1,
    task: options.Task = "infer",
    input_tokens: options.InputTokens = 1000,
    output_tokens: options.OutputTokens = 300,
    context: options.Context = None,
    concurrency: Annotated[
        int | None,
        typer.Option("--concurrency", metavar="N", min=1, help="Running requests. Default: as many as the SLO allows."),
    ] = None,
    ttft_ms: options.TtftMs = 2000.0,
    tpot_ms: options.TpotMs = 100.0,
    precision: Annotated[
        str,
        typer.Option(
            "--precision", metavar="DTYPE", help="auto, fp32, bf16, fp16, fp8, int8, int4, fp4 or a GGUF type."
        ),
    ] = "auto",
    kv_precision: options.KvPrecision = None,
    tp: Annotated[int | None, typer.Option("--tp", metavar="N", min=1, help="Tensor-parallel degree.")] = None,
    pp: Annotated[int | None, typer.Option("--pp", metavar="N", min=1, help="Pipeline stages.")] = None,
    engine: Annotated[
        str | None,
        typer.Option("--engine", metavar="NAME", help="Serving engine. Default: vllm; llama.cpp for GGUF types."),
    ] = None,
    gpu_memory_utilization: options.GpuMemoryUtilization = None,
    prefix_cache_hit: options.PrefixCacheHit = 0.0,
    tokens: train_options.Tokens = None,
    seq_len: train_options.SeqLen = None,
    deadline: train_options.Deadline = None,
    global_batch_tokens: train_options.GlobalBatch = None,
    optimizer: train_options.Optimizer = None,
    master_weights: train_options.MasterWeights = None,
    zero_stage: train_options.ZeroStage = None,
    lora_rank: train_options.LoraRank = 16,
    lora_experts: train_options.LoraExperts = None,
    micro_batch: train_options.MicroBatch = None,
    recompute: train_options.Recompute = None,
    offload: train_options.Offload = None,
    stack: train_options.StackName = None,
    host_memory: Annotated[
        float | None,
        typer.Option("--host-memory", metavar="GB", min=1, help="Training: host memory of a machine. Default: enough."),
    ] = None,
    format_: options.Format = "table",
    output: options.Output = "-",
    quiet: options.Quiet = False,
    verbose: options.Verbose = False,
) -> None:
    """Does it fit, how much memory does it take, how fast is it: one model on one accelerator x count.

    The verdict is an estimate, and never changes the exit code.
    """
    arguments = dict(locals())
    from optimizer.api import choices
    from optimizer.api.size_arguments import SizeArguments
    from optimizer.cli.given import given_parameters
    from optimizer.cli.streams import write_result

    wanted = SizeArguments(**{field.name: arguments[field.name] for field in fields(SizeArguments)})
    task = wanted.checked_task(given_parameters(context_))
    format_ = choices.one_of("format", format_, choices.FORMATS)
    if task == "infer":
        from optimizer.api.serving_size import size_of
        from optimizer.cli import size_output

        write_result(size_output.render(size_of(wanted), format_), output)
    else:
        from optimizer.api.training_size import size_of as size_of_run
        from optimizer.cli import train_size_output

        write_result(train_size_output.render(*size_of_run(wanted), format_), output)
