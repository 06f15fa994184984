"""A plan as a command of Megatron-LM.

Source: NVIDIA/Megatron-LM, commit d98e8a64: megatron/training/arguments.py, and the configs of
megatron/core whose fields are options, too
"""

from typing import Any

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.planner.plan import Plan
from jaxpar.cost.planner.programs.command import (
    Command,
    dashed,
    degree,
    refuse,
    start_note,
    torchrun,
)
from jaxpar.layout import Layout

ATTENDS = {"zigzag": "p2p", "gather": "all_gather", "ulysses": "a2a"}
SHARDED = {2: "optim_grads", 3: "optim_grads_params"}


def command(plan: Plan, optimizer: str) -> Command:
    """The command that trains by the plan.

    Raises:
        ValueError: Megatron-LM has no option for a part of it.
    """
    job, layout, model = plan.job, plan.layout, plan.job.architecture
    refuse(
        "megatron",
        {
            f"it has no {optimizer}": optimizer not in ("adamw", "sgd"),
            "it keeps parameters on devices": layout.offload == "all",
            "it recomputes no half of the products, as alternate does": layout.remat == "alternate",
            "its ring over cp is a zigzag": layout.cp > 1 and layout.context not in ATTENDS,
            f"{model.name} has latent attention, whose sizes are not written yet": model.latent,
            f"the layers of {model.name} have other norms than its two": (
                model.norms != 2 or model.norm == "plain"
            ),
            f"its {layout.pp * layout.chunks} chunks have equally many layers, and {model.layers} "
            "cannot be divided so": model.layers % (layout.pp * layout.chunks),
        },
    )
    options = _model(model, job.sequence) | _training(plan, optimizer) | _spread(plan, layout)
    words = [*torchrun(plan), "pretrain_gpt.py", *dashed(options)]
    add = f"Add data, a tokenizer of {model.vocab:,} tokens, learning rates and --train-iters."
    return Command(words, [add, *start_note(plan)])


def _model(model: Architecture, sequence: int) -> dict[str, Any]:
    grouped = model.key_heads if model.key_heads < model.heads else None
    options = {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": model.d_ffn,
        "num-attention-heads": model.heads,
        "group-query-attention": bool(grouped),
        "num-query-groups": grouped,
        "kv-channels": model.d_head if model.d_head * model.heads != model.hidden else None,
        "seq-length": sequence,
        "max-position-embeddings": model.positions or sequence,
        "position-embedding-type": None if model.positions else "rope",
        "normalization": "RMSNorm" if model.norm == "rms" else None,
        "swiglu": model.gated,
        "disable-bias-linear": model.biases != "all",
        "add-qkv-bias": model.biases == "qkv",
        "untie-embeddings-and-output-weights": not model.tied,
        "attention-dropout": None if model.dropout else 0,
        "hidden-dropout": None if model.dropout else 0,
    }
    if experts := model.experts:
        dense = model.dense_layers
        options |= {
            "num-experts": experts.count,
            "moe-router-topk": experts.per_token,
            "moe-ffn-hidden-size": experts.ffn,
            "moe-shared-expert-intermediate-size": experts.shared or None,
            "moe-layer-freq": f"[0]*{dense}+[1]*{model.layers - dense}" if dense else None,
        }
    return options


def _training(plan: Plan, optimizer: str) -> dict[str, Any]:
    layout = plan.layout
    full = layout.remat == "full"
    return {
        "bf16": True,
        "optimizer": None if optimizer == "adamw" else optimizer,
        "micro-batch-size": layout.microbatch,
        "global-batch-size": plan.job.batch,
        "recompute-granularity": None if layout.remat == "none" else layout.remat,
        "recompute-method": "uniform" if full else None,
        "recompute-num-layers": 1 if full else None,
        "grad-reduce-in-bf16": plan.job.gradient_bytes == 2,
        "optimizer-cpu-offload": layout.offload == "optimizer",
    }


def _spread(plan: Plan, layout: Layout) -> dict[str, Any]:
    in_chunk = plan.job.architecture.layers // (layout.pp * layout.chunks)
    shards = layout.zero > 0
    copies = layout.dp if layout.fsdp > 1 else 1
    return {
        "tensor-model-parallel-size": degree(layout.tp),
        "sequence-parallel": layout.sequence_parallel,
        "pipeline-model-parallel-size": degree(layout.pp),
        "num-layers-per-virtual-pipeline-stage": in_chunk if layout.chunks > 1 else None,
        "context-parallel-size": degree(layout.cp),
        "cp-comm-type": ATTENDS[layout.context] if layout.cp > 1 else None,
        "expert-model-parallel-size": degree(layout.ep),
        "use-distributed-optimizer": shards,
        "use-megatron-fsdp": layout.zero > 1,
        "data-parallel-sharding-strategy": SHARDED.get(layout.zero),
        "num-distributed-optimizer-instances": degree(copies),
        "overlap-grad-reduce": plan.overlap,
        "overlap-param-gather": plan.overlap and shards,
    }
