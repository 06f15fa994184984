"""What inference holds on a device: weights by bits, the cache of keys and values, activations.

Sources: Kwon et al. 2023, Efficient Memory Management for Large Language Model Serving with
PagedAttention, section 3; DeepSeek-AI 2024, DeepSeek-V2, section 2.1; Anthony et al. 2023,
Transformer Math 101 (EleutherAI).
"""

from typing import Any

import numpy as np

from jaxpar.checks import check_positive
from jaxpar.cost import shards
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.communication import Number
from jaxpar.cost.terms import Term, make_terms
from jaxpar.layout import Layout


def kv_cache_bytes(
    batch: int,
    sequence: int,
    layers: int,
    kv_heads: int,
    head_size: int,
    *,
    element_bytes: float,
) -> float:
    """Bytes that the keys and values of all tokens so far take.

    `element_bytes` may be a fraction: 0.5 for elements of 4 bits.

    Source: Kwon et al. 2023, Efficient Memory Management for Large Language Model Serving with
        PagedAttention, section 3

    Raises:
        ValueError: a number is not positive.
    """
    sizes = {"batch": batch, "sequence": sequence, "layers": layers, "kv_heads": kv_heads}
    check_positive(
        "kv_cache_bytes", sizes | {"head_size": head_size, "element_bytes": element_bytes}
    )
    keys_and_values = 2
    return keys_and_values * batch * sequence * layers * kv_heads * head_size * element_bytes


def inference_memory(
    architecture: Architecture,
    *,
    batch: Any,
    sequence: Any,
    tp: Any = 1,
    pp: Any = 1,
    weight_bits: float = 16,
    cache_bits: float = 16,
    group: int | None = None,
) -> list[Term]:
    """Bytes on a device of the fullest stage.

    The terms are "parameters", with the "scales" of their groups; "kv_cache", for all tokens of all
    examples in all layers; "activations", what one layer holds at once in 16 bits, where attention
    keeps no scores (FlashAttention); and "logits", of each example's next token, in float32.

    The activations are those of prefill or of decode, whichever has more: a prompt of `sequence`
    tokens, as prompts are processed one after the other, or one token of each example.

    Every device holds the keys and values of at least one head, so some devices hold the same ones
    if there are fewer heads than devices. The vectors of latent attention are replicated.

    Args:
        architecture: the model.
        batch: examples whose keys and values are held.
        sequence: tokens of an example, prompt and answer.
        tp: devices that split each layer's matrices.
        pp: devices that split the layers.
        weight_bits: of a parameter.
        cache_bits: of an element of the cache.
        group: how many parameters have a scale of 16 bits; None: there are no scales.
    """
    numbers = _numbers(architecture, tp, pp) | {"batch": batch, "sequence": sequence}
    numbers |= {"weight_bits": weight_bits, "cache_bits": cache_bits, "group": group}
    vectors = "(rank + rotary)" if architecture.latent else "2 * ceil(kv_heads / tp) * head_size"
    formulas = {
        "parameters": "parameters * weight_bits / 8",
        "scales": "parameters / group * 16 / 8" if group else "",
        "kv_cache": f"batch * sequence * layers * {vectors} * cache_bits / 8",
        "activations": "2 * max(batch, sequence) * (2 * hidden + width)",
        "logits": "4 * batch * vocab / tp",
    }
    return make_terms({name: text for name, text in formulas.items() if text}, numbers)


def rule_of_thumb(parameters: Number, *, weight_bits: float = 16) -> list[Term]:
    """What inference takes in all, over all devices: 1.2 times the weights.

    Source: Anthony et al. 2023, section "Total Inference Memory": the overhead is at most 20%
    """
    numbers = {"parameters": parameters, "weight_bits": weight_bits}
    formulas = {
        "parameters": "parameters * weight_bits / 8",
        "overhead": "0.2 * parameters * weight_bits / 8",
    }
    return make_terms(formulas, numbers)


def _numbers(architecture: Architecture, tp: Any, pp: Any) -> dict[str, Any]:
    """The values of the names in formulas; parameters and layers are those of one device."""
    layout = Layout(pp=pp, tp=tp)
    held = shards.on_device(architecture, layout)
    numbers = {
        "tp": tp,
        "parameters": held.layers + held.experts + held.outer,
        "layers": sum(shards.layers_on_stage(architecture, layout)),
        "hidden": architecture.hidden,
        "vocab": architecture.vocab,
        "kv_heads": architecture.key_heads,
        "head_size": architecture.d_head,
        "width": _widest(architecture, tp),
    }
    if latent := architecture.latent:
        numbers |= {"rank": latent.rank, "rotary": latent.rotary}
    return numbers


def _widest(architecture: Architecture, tp: Any) -> Any:
    """Elements for each token that a device holds inside attention or the MLP, whichever is more.

    In attention these are queries, keys, values and the result, and in an MLP the inputs and the
    result of its nonlinearity. In experts they are those of each expert, and its input.
    """
    mixture, heads = architecture.experts, architecture.heads / tp
    key_heads = heads if architecture.latent else np.ceil(architecture.key_heads / tp)
    per_head = architecture.d_key + architecture.d_value
    widest = heads * per_head + key_heads * per_head
    inner = 3 if architecture.gated else 2
    if architecture.dense_layers:
        widest = np.maximum(widest, inner * architecture.d_ffn / tp)
    if mixture and architecture.expert_layers:
        inside = mixture.per_token * mixture.ffn + mixture.shared
        copies = mixture.per_token * architecture.hidden
        widest = np.maximum(widest, copies + inner * inside / tp)
    return widest
