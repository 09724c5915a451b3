"""`costopt size`: does a model fit on an accelerator x count, how much memory does it take, how fast is it."""

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
    from dataclasses import replace

    from optimizer.cli import choices, size_output, values
    from optimizer.cli.streams import write_result
    from optimizer.sizing.serving import size_serving
    from optimizer.workload.workload import SLO, RequestShape

    choices.one_of("task", task, choices.TASKS)
    train_options.check_flags(context_, task)
    format_ = choices.one_of("format", format_, choices.FORMATS)
    architecture = choices.architecture(model)
    if task != "infer":
        from optimizer.cli import train_size
        from optimizer.cli.settings import now

        flags = train_options.TrainingFlags(
            model=model,
            task=task,
            tokens=tokens,
            seq_len=seq_len,
            deadline=deadline,
            global_batch_tokens=global_batch_tokens,
            optimizer=optimizer,
            master_weights=master_weights,
            zero_stage=zero_stage,
            lora_rank=lora_rank,
            micro_batch=micro_batch,
            recompute=recompute,
            offload=offload,
            stack=stack,
            precision=train_options.precision_of([precision]),
            tp=tp,
            pp=pp,
        )
        job = train_size.size_training(flags, architecture, gpu=gpu, count=count, host_memory_gb=host_memory, now=now())
        write_result(train_size.render(architecture, job, format_), output)
        return
    hardware, remarks = choices.hardware(gpu, count)
    sized = size_serving(
        architecture,
        hardware,
        shape=RequestShape(input_tokens=input_tokens, output_tokens=output_tokens),
        slo=SLO(ttft_ms=ttft_ms, tpot_ms=tpot_ms),
        precision=precision,
        kv_precision=kv_precision,
        engine=engine,
        context_tokens=context,
        concurrency=concurrency,
        tp=tp,
        pp=pp,
        gpu_memory_utilization=values.share("--gpu-memory-utilization", gpu_memory_utilization),
        prefix_cache_hit=values.share("--prefix-cache-hit", prefix_cache_hit, zero=True) or 0.0,
    )
    sized = replace(sized, assumptions=(*remarks, *sized.assumptions))
    requests = max(1, min(concurrency or 1, sized.max_concurrency))
    write_result(size_output.render(architecture, hardware, sized, format_, requests=requests), output)
