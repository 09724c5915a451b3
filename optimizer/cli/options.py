"""The options that several commands share, so that a flag means the same everywhere."""

from typing import Annotated

import typer

Model = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="NAME|PATH",
        help="A size (70B, 8x7B), an alias (llama-3.1-70b), a Hugging Face id, or a config.json or its folder.",
    ),
]
OptionalModel = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|PATH",
        help="A size (70B, 8x7B), an alias (llama-3.1-70b), a Hugging Face id, or a config.json or its folder.",
    ),
]
Task = Annotated[str, typer.Option("--task", metavar="TASK", help="infer, train, finetune, lora or qlora.")]
Rate = Annotated[float | None, typer.Option("--rate", metavar="RPS", help="Requests per second to serve.")]
InputTokens = Annotated[int, typer.Option("--input-tokens", metavar="N", help="Input tokens of a request.")]
OutputTokens = Annotated[int, typer.Option("--output-tokens", metavar="N", help="Output tokens of a request.")]
Context = Annotated[
    int | None,
    typer.Option(
        "--context", metavar="N", min=1, help="Longest request, input and output, that must fit. Default: the shape's."
    ),
]
TtftMs = Annotated[float, typer.Option("--ttft-ms", metavar="MS", help="Most time to first token.")]
TpotMs = Annotated[float, typer.Option("--tpot-ms", metavar="MS", help="Most time per output token.")]
Precision = Annotated[
    list[str] | None,
    typer.Option(
        "--precision",
        metavar="DTYPE",
        help="auto, fp32, bf16, fp16, fp8, int8, int4, fp4 or a GGUF type; repeat for a set.  [default: auto]",
    ),
]
KvPrecision = Annotated[
    str | None, typer.Option("--kv-precision", metavar="DTYPE", help="Precision of the KV cache. Default: 16 bit.")
]
Engine = Annotated[str, typer.Option("--engine", metavar="NAME", help="Serving engine whose overheads are assumed.")]
GpuMemoryUtilization = Annotated[
    float | None,
    typer.Option(
        "--gpu-memory-utilization",
        metavar="SHARE",
        help="Part of the memory that the engine takes. Default: the engine's.",
    ),
]
PrefixCacheHit = Annotated[
    float,
    typer.Option("--prefix-cache-hit", metavar="SHARE", help="Part of each prompt that is found in the prefix cache."),
]
Confidence = Annotated[
    float | None,
    typer.Option(
        "--confidence", metavar="SHARE", help="Plan on the careful end of the estimates' interval of that level."
    ),
]
Measured = Annotated[
    str | None,
    typer.Option(
        "--measured",
        metavar="FILE",
        help="Own benchmark results (vLLM, GuideLLM, AIPerf, CSV) that replace the estimates they match.",
    ),
]
Budget = Annotated[
    str | None, typer.Option("--budget", metavar="USD", help="USD per month of 730 hours (infer); per run (training).")
]
Provider = Annotated[
    list[str] | None,
    typer.Option("--provider", metavar="NAME", help="Only aws, gcp, azure, lambda or runpod; repeatable."),
]
Region = Annotated[list[str] | None, typer.Option("--region", metavar="ID", help="Only that region; repeatable.")]
Gpu = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="NAME", help="Only that accelerator; a family name means its variants; repeatable."),
]
Purchase = Annotated[
    list[str] | None,
    typer.Option(
        "--purchase",
        metavar="OPTION",
        help="on-demand, spot, reserved-1y, reserved-3y or capacity-block; repeatable.  [default: on-demand]",
    ),
]
Include = Annotated[
    list[str] | None,
    typer.Option(
        "--include",
        metavar="KIND",
        help="Also take community, arm64, preview, retired, confidential or uncalibrated; commas or repeated.",
    ),
]
MaxAge = Annotated[
    str, typer.Option("--max-age", metavar="DAYS", help="Prices older than this are flagged: 30d, 12h, 2w.")
]
AsOf = Annotated[
    str | None, typer.Option("--as-of", metavar="DATE", help="Use the prices that were known on that day: 2026-08-31.")
]
Offline = Annotated[bool, typer.Option("--offline", help="Ask no server, not even a price cache on one.")]
Refresh = Annotated[bool, typer.Option("--refresh", help="Fetch live prices first, as `costopt refresh` does.")]
Format = Annotated[str, typer.Option("-f", "--format", metavar="FORMAT", help="table, json, csv or md.")]
Output = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Write there instead of to standard output (-).")
]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="No warnings or summaries on standard error.")]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Details, and tracebacks of unexpected failures.")]
