"""The decoder that the library trains, as the cost model knows it."""

from jaxpar.cost.architecture import Architecture
from jaxpar.model import Settings


def architecture_of(settings: Settings) -> Architecture:
    """An architecture with the sizes and parts of these settings."""
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
