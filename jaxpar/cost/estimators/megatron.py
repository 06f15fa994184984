"""Megatron-LM's estimator of what a GPU of the first stage holds.

Source, as read in November 2026: NVIDIA/Megatron-LM, megatron/training/theoretical_memory_usage.py.
"""

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.terms import Term, make_terms
from jaxpar.layout import Layout


def megatron_memory(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    microbatches: int | None = None,
) -> list[Term]:
    """Megatron-LM's report_theoretical_memory: the fullest stage, which is the first.

    The vocabulary is padded as there, to a multiple of 128 tp. The optimizer is distributed from
    stage 1 of ZeRO on. Activations are those of selective recomputation, with sequence parallelism
    or without; where the layout says anything else, those without. `microbatches` are those of each
    pipeline in a step; None: enough to fill it. Leaves out context and expert parallelism, and
    biases.
    """
    a = architecture
    table = "vocab * hidden"
    numbers = {
        "layers": a.layers,
        "hidden": a.hidden,
        "ffn": a.experts.ffn if a.experts and not a.dense_layers else a.d_ffn,
        "vocab": -(-a.vocab // (128 * layout.tp)) * 128 * layout.tp,
        "block": _megatron_block(a),
        "pp": layout.pp,
        "tp": layout.tp,
        "dp": layout.dp * layout.fsdp * layout.ep,
        "tokens": sequence * layout.microbatch,
        "in_flight": _megatron_in_flight(layout, microbatches),
    }
    tables = f"2 * {table}" if not a.tied and layout.pp == 1 else table
    optimizer = "12 / dp" if layout.zero else "12"
    formulas = {"states": f"(6 + {optimizer}) * (block / pp + {tables}) / tp"}
    if layout.sequence_parallel and layout.remat == "selective":
        layer = "tokens * (18 * hidden + 4 * ffn) / tp"
        outside, head = "tokens * (8 + hidden) * pp / tp", "4 * tokens * (hidden + vocab) / tp"
        overhead = ""
    else:
        layer = "tokens * hidden * (10 + 24 / tp)"
        outside, head = "tokens * (8 + hidden) * pp", "2 * tokens * (hidden + vocab / tp)"
        overhead = " * 1.05"
    formulas["activations"] = f"layers * {layer} * in_flight{overhead}"
    formulas["embedding"] = f"{outside} * in_flight{overhead}"
    if layout.pp == 1:
        formulas["logits"] = f"{head}{overhead}"
    return make_terms(formulas, numbers)


def _megatron_block(architecture: Architecture) -> float:
    """Parameters of all layers and the last norm, as Megatron-LM counts them."""
    a, d, latent = architecture, architecture.hidden, architecture.latent
    norm = 1 if a.norm == "rms" else 2
    if latent:
        keys = a.heads * a.d_key
        queries = latent.query_rank * (d + keys + norm) if latent.query_rank else d * keys
        pairs = latent.rank * (d + a.heads * (a.d_head + latent.value) + norm)
        attention = queries + pairs + d * latent.rotary + a.heads * latent.value * d
    else:
        attention = 2 * d * a.d_head * (a.heads + a.key_heads)
    gated = 3 / 2 if a.gated else 1
    layers = a.dense_layers * (2 * d * (a.d_ffn * gated + norm) + attention)
    if a.experts:
        ffn = a.experts.count * a.experts.ffn + a.experts.shared
        layers += a.expert_layers * (2 * d * (ffn * gated + norm) + attention)
    return layers + norm * d


def _megatron_in_flight(layout: Layout, microbatches: int | None) -> float:
    """Microbatches whose activations are kept, relative to those that fill the pipeline."""
    if layout.chunks > 1:
        return 1 + (layout.pp - 1) / (layout.pp * layout.chunks)
    return 1 if microbatches is None else min(1, microbatches / layout.pp)
