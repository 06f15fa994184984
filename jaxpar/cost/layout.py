"""Which layouts the formulas know, and into which a model can be split at all."""

from jaxpar.checks import check_one_of
from jaxpar.cost.architecture import Architecture
from jaxpar.layout import AXES, Layout

# The kinds of remat that papers count, which a search tries; and all that the formulas of memory
# and time know, those that keep least last.
REMATS = ("none", "selective", "full")
KNOWN_REMATS = ("none", "selective", "alternate", "full")


def check_formulas(where: str, architecture: Architecture, layout: Layout) -> None:
    """Checks that the formulas of memory and time hold for a layout.

    Raises:
        ValueError: they do not know its kind of remat in this model, or offload to disk.
    """
    check_one_of(where, "remat", layout.remat, KNOWN_REMATS)
    if layout.remat == "alternate" and (architecture.experts or architecture.latent):
        kind = "experts" if architecture.experts else "latent attention"
        raise ValueError(
            f"{where}: {architecture.name}: remat 'alternate' of layers with {kind} is not known; "
            f"use one of {', '.join(REMATS)}"
        )
    if layout.offload != "none":
        check_one_of(where, "store", layout.store, ("host",))


def check_layout(where: str, architecture: Architecture, layout: Layout, sequence: int) -> None:
    """Checks every axis of a layout, and its chunks.

    Raises:
        ValueError: the model cannot be split so; the message begins with `where`.
    """
    for axis in AXES:
        check_axis(where, architecture, sequence, axis, layout.sizes[axis])
    check_chunks(where, architecture, layout.pp, layout.chunks)


def check_axis(where: str, architecture: Architecture, sequence: int, axis: str, n: int) -> None:
    """Checks the size of one axis.

    Raises:
        ValueError: the model cannot be split over n devices; the message names the nearest size.
    """
    why = unfit(architecture, sequence, axis, n)
    if why:
        near = (k for more in range(n) for k in (n - more, n + more))
        fits = next(k for k in near if not unfit(architecture, sequence, axis, k))
        raise ValueError(f"{where}: {axis}={n}: {why}; use {axis}={fits}")


def check_chunks(where: str, architecture: Architecture, pp: int, chunks: int) -> None:
    """Checks how many chunks of the model each stage has.

    Raises:
        ValueError: there is only one stage, or a stage has several chunks without a layer.
    """
    if chunks > 1 and pp == 1:
        raise ValueError(
            f"{where}: {chunks} chunks on one stage; several are for a pipeline; use chunks 1, or "
            "pp of at least 2"
        )
    if pp * (chunks - 1) >= architecture.layers:
        most = (architecture.layers - 1) // pp + 1
        raise ValueError(
            f"{where}: {pp} stages of {chunks} chunks; each stage has a layer in all chunks but "
            f"one, and {architecture.name} has {architecture.layers}; use at most {most} chunks"
        )


def unfit(architecture: Architecture, sequence: int, axis: str, n: int) -> str:
    """Why the model cannot be split over n devices of this axis; empty if it can."""
    if axis == "pp" and n > architecture.layers:
        return f"{architecture.name} has {architecture.layers} layers, and each stage needs one"
    if axis == "cp" and sequence % n:
        return f"it must divide the sequence, {sequence:,}"
    if axis == "ep":
        count = architecture.experts.count if architecture.experts else 1
        return f"it must divide the experts, of which there are {count}" if count % n else ""
    return _unfit_tensor(architecture, n) if axis == "tp" else ""


def remats(architecture: Architecture) -> tuple[str, ...]:
    """The kinds of remat that differ: with fused attention "selective" is the same as "none"."""
    fused = architecture.fused_attention
    return tuple(remat for remat in REMATS if not (fused and remat == "selective"))


def _unfit_tensor(architecture: Architecture, n: int) -> str:
    sizes = {"heads": architecture.heads}
    if architecture.dense_layers:
        sizes["d_ffn"] = architecture.d_ffn
    if architecture.experts:
        sizes["ffn of an expert"] = architecture.experts.ffn
    for name, size in sizes.items():
        if size % n:
            return f"it must divide {name}, {size:,}"
    heads = architecture.key_heads
    if heads % n and n % heads:
        return f"it must divide the {heads} heads of keys, or be a multiple of them"
    return ""
