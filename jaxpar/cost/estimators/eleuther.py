"""EleutherAI's estimator of what a GPU holds.

Source, as read in November 2026: EleutherAI/cookbook, calc/calc_transformer_mem.py.
"""

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.terms import Term, make_terms
from jaxpar.layout import Layout

# Parameters in a bucket of ZeRO, and those that stage 3 keeps whole.
_BUFFERED = {"bucket": 500_000_000, "live": 1_000_000_000}


def eleuther_memory(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    inference: bool = False,
    bits: int = 16,
) -> list[Term]:
    """EleutherAI's calc_transformer_mem, per GPU.

    Any recomputation is its --checkpoint-activations, sequence parallelism its
    --partition-activations. Optimizer and gradients are not split over tp and pp, but over all
    devices from stages 1 and 2 of ZeRO on; the cache, of one token more, has no factor 2 for
    keys and values, and as many heads as queries have. Leaves out experts.

    The layout's microbatch is the batch of a GPU; `bits` are those of a parameter and of an
    activation.
    """
    numbers = {
        "element_bytes": bits / 8,
        "parameters": _eleuther_parameters(architecture, sequence),
        "split": layout.tp * layout.pp * (layout.devices if layout.zero == 3 else 1),
        "devices": layout.devices,
        "examples": layout.microbatch,
        "sequence": sequence,
        "layers": architecture.layers,
        "hidden": architecture.hidden,
        "heads": architecture.heads,
        "partitions": layout.tp if layout.sequence_parallel else 1,
        **_BUFFERED,
    }
    x, kept = "examples * sequence * hidden", "16 * element_bytes + 2"
    formulas = {"parameters": "element_bytes * parameters / split"}
    if inference:
        formulas["kv_cache"] = "element_bytes * hidden * layers * (sequence + 1) * examples"
        formulas["activations"] = f"{x} * ({kept}) / partitions"
        return make_terms(formulas, numbers)
    formulas["gradients"] = f"4 * parameters{' / devices' if layout.zero >= 2 else ''}"
    formulas["optimizer"] = f"12 * parameters{' / devices' if layout.zero else ''}"
    if layout.zero and layout.devices > 1:
        live = " + live" if layout.zero == 3 else ""
        formulas["buffers"] = f"element_bytes * (bucket{live})"
    if layout.remat == "none":
        kept += " + (2 * element_bytes + 1) * heads * sequence / hidden"
    formulas["activations"] = f"{x} * layers * ({kept}) / partitions"
    return make_terms(formulas, numbers)


def _eleuther_parameters(architecture: Architecture, sequence: int) -> float:
    """Parameters as EleutherAI counts them: positions and a head always, all norms in pairs."""
    a, d = architecture, architecture.hidden
    mlp = (3 if a.gated else 2) * a.d_ffn * d
    attention = int(2 * (1 + a.key_heads / a.heads) * a.layers * d * d)
    return 2 * a.vocab * d + d * sequence + 8 * d * a.layers + 2 * d + attention + mlp * a.layers
