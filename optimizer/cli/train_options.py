"""The training options that `plan` and `size` share."""

from typing import Annotated

import typer

Tokens = Annotated[
    str | None, typer.Option("--tokens", metavar="N", help="Training: tokens in all, epochs included: 500M, 1B, 1.5T.")
]
SeqLen = Annotated[int | None, typer.Option("--seq-len", metavar="N", min=1, help="Training: tokens of a sequence.")]
Deadline = Annotated[
    str | None,
    typer.Option("--deadline", metavar="TIME", help="Training: when the run must be done: 12h, 30d or 2027-01-31."),
]
GlobalBatch = Annotated[
    str | None, typer.Option("--global-batch-tokens", metavar="N", help="Training: tokens of one optimizer step.")
]
Optimizer = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        help="Training: adamw, adamw-8bit, paged-adamw, paged-adamw-8bit, adafactor, muon, lion or sgd.",
    ),
]
MasterWeights = Annotated[
    bool | None,
    typer.Option(
        "--master-weights/--no-master-weights",
        help="Training: FP32 copies of the weights (mixed precision), or pure 16 bit.  [default: master weights]",
    ),
]
ZeroStage = Annotated[
    int | None,
    typer.Option(
        "--zero-stage", metavar="0-3", min=0, max=3, help="Training: states that data-parallel ranks shard; 3 = FSDP."
    ),
]
LoraRank = Annotated[int, typer.Option("--lora-rank", metavar="N", min=1, max=4096, help="Rank of LoRA adapters.")]
LoraExperts = Annotated[
    bool | None,
    typer.Option(
        "--lora-experts/--no-lora-experts",
        help="LoRA adapters on the experts of a mixture, too, or on its other layers only.  [default: experts too]",
    ),
]
MicroBatch = Annotated[
    int | None, typer.Option("--micro-batch", metavar="N", min=1, help="Training: sequences of a rank at a time.")
]
Recompute = Annotated[
    str | None,
    typer.Option("--recompute", metavar="WHAT", help="Training: activations computed again: none, selective or full."),
]
Offload = Annotated[
    list[str] | None,
    typer.Option(
        "--offload", metavar="WHAT", help="Training: keep in host memory: optimizer, params, activations; repeatable."
    ),
]
StackName = Annotated[
    str | None,
    typer.Option(
        "--stack", metavar="NAME", help="Training software: megatron, nemo, fsdp, eager, hf or xla. Default: by task."
    ),
]
