"""The decoder that the library trains, as the cost model knows it."""

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.layout import Layout
from jaxpar.model import Settings
from jaxpar.train.plan import Plan

# Of remat as the decoder names it, what it is in the cost model.
REMATS = {"products": "none", "segments": "full"}


def architecture_of(settings: Settings) -> Architecture:
    """The same sizes and parts."""
    return Architecture(
        name="decoder",
        layers=settings.layers,
        hidden=settings.d_model,
        heads=settings.heads,
        vocab=settings.vocabulary,
        kv_heads=settings.kv_heads,
        ffn=settings.d_hidden,
        gated=settings.mlp == "swiglu",
        tied=settings.tied,
        positions=settings.sequence if settings.positions == "learned" else 0,
        norm="rms" if settings.norm == "rms" else "layer",
    )


def layout_of(plan: Plan, batch: int) -> Layout:
    """The same axes, with `batch` examples in a step."""
    return Layout(
        **plan.sizes,
        chunks=plan.table.chunks if plan.table else 1,
        microbatch=batch // (plan.batch_parts * plan.microbatches),
        zero=plan.stage,
        remat=REMATS.get(plan.remat, plan.remat),
        sequence_parallel=plan.sequence_parallel,
    )
