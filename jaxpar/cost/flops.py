"""Floating-point operations of a training step: of the model, and with what is computed again.

Matrix products alone are counted, a multiplication and an addition as 2. Every query meets every
key, also where a causal mask makes half of the scores useless. The head is a product; the embedding
looks rows up, and is none. A backward pass has two products for each one of the forward pass.

Sources: Narayanan et al. 2021, Efficient Large-Scale Language Model Training on GPU Clusters Using
Megatron-LM, appendix; Korthikanti et al. 2022, Reducing Activation Recomputation in Large
Transformer Models, appendix A; Chowdhery et al. 2022, PaLM, appendix B.
"""

from typing import Any

import numpy as np

from jaxpar.checks import check_one_of, check_positive
from jaxpar.cost.architecture import Architecture, Latent
from jaxpar.cost.layout import REMATS
from jaxpar.cost.terms import Term, make_terms, total

Products = dict[str, str]

_HEAD: Products = {"head": "2*batch*sequence*hidden*vocab"}


def layer_flops(
    architecture: Architecture, batch: Any, sequence: Any, *, experts: bool | None = None
) -> list[Term]:
    """The products of one layer's forward pass, by name; the sum is the layer's.

    Attention's two products with s*s elements for each head are "scores" and "attended".

    `experts`: whether the layer has a mixture of experts in place of the MLP; None: as the last
    layer. `batch` and `sequence` may be arrays.
    """
    if experts is None:
        experts = architecture.expert_layers > 0
    sizes = _sizes(architecture, batch, sequence)
    return make_terms(
        _attention(architecture) | _feed_forward(architecture, experts=experts), sizes
    )


def head_flops(architecture: Architecture, batch: Any, sequence: Any) -> Term:
    """The forward pass of the head, which computes the logits."""
    return make_terms(_HEAD, _sizes(architecture, batch, sequence))[0]


def forward_flops(architecture: Architecture, batch: Any, sequence: Any) -> list[Term]:
    """The products of the forward pass of all layers, without the head's."""
    sizes = _sizes(architecture, batch, sequence)
    terms = make_terms(_times("layers", _attention(architecture)), sizes)
    if architecture.dense_layers:
        mlp = _feed_forward(architecture, experts=False)
        terms += make_terms(
            _times("dense_layers" if architecture.experts else "layers", mlp), sizes
        )
    if architecture.expert_layers:
        experts = _feed_forward(architecture, experts=True)
        terms += make_terms(_times("expert_layers", experts), sizes)
    return terms


def step_flops(
    architecture: Architecture, batch: Any, sequence: Any, *, frozen: bool = False
) -> list[Term]:
    """The model's own operations in a step, forward and backward, with nothing computed twice.

    Where the weights are `frozen`, beside adapters say, they have no gradients. What the adapters
    themselves compute is not counted.

    Math: 3 times the forward pass, 2 times for products with frozen weights; with none of these,
        for a GPT 72*B*L*s*h^2 * (1 + s/(6h) + V/(12hL))
    Source: Korthikanti et al. 2022, equation 7
    """
    forward = [
        *forward_flops(architecture, batch, sequence),
        head_flops(architecture, batch, sequence),
    ]
    weightless = ("scores", "attended")
    times = {term.name: 2 if frozen and term.name not in weightless else 3 for term in forward}
    return [Term(term.name, f"{times[term.name]}*{term.formula}", term.numbers) for term in forward]


def recomputed_flops(
    architecture: Architecture, batch: Any, sequence: Any, *, remat: str
) -> list[Term]:
    """What a step computes again: attention's two products (selective), or all layers (full).

    Korthikanti et al. count selective recomputation three times over: s/(3h) in equation 8. One of
    the authors says that 2s/(9h) is right: NVIDIA/Megatron-LM, issue 523.

    Raises:
        ValueError: `remat` is none of the three.
    """
    check_one_of("recomputed_flops", "remat", remat, REMATS)
    again = [] if remat == "none" else forward_flops(architecture, batch, sequence)
    if remat == "selective":
        again = [term for term in again if term.name in ("scores", "attended")]
    return [Term(f"{term.name} again", term.formula, term.numbers) for term in again]


def hardware_flops(
    architecture: Architecture, batch: Any, sequence: Any, *, remat: str
) -> list[Term]:
    """The model's own operations, and those that are computed again.

    Math: full, for a GPT: 96*B*L*s*h^2 * (1 + s/(6h) + V/(16Lh))
    Source: Narayanan et al. 2021, equation 3

    Raises:
        ValueError: `remat` is none of the three.
    """
    again = recomputed_flops(architecture, batch, sequence, remat=remat)
    return [*step_flops(architecture, batch, sequence), *again]


def mfu(flops: list[Term], step_seconds: Any, devices: Any, peak_flops: Any) -> Any:
    """The fraction of the peak of all devices that a step reaches.

    Of `step_flops` this is model FLOPs utilization (MFU), of `hardware_flops` hardware FLOPs
    utilization (HFU).

    Source: Chowdhery et al. 2022, section 4.1
    """
    return total(flops) / (step_seconds * devices * peak_flops)


def flops_per_token(architecture: Architecture, sequence: Any) -> Any:
    """The model's FLOPs per token, by the rule that every parameter is an element of a matrix.

    Math: 6 N + 12 L H Q T: active parameters, layers, heads, head size, sequence. Where the head
        is not tied, the embedding counts here, though it is no product.
    Source: Chowdhery et al. 2022, appendix B
    """
    scores = architecture.layers * architecture.heads * architecture.d_head * sequence
    return 6 * architecture.active_parameters + 12 * scores


def transformer_step_flops(
    batch: int, sequence: int, layers: int, hidden: int, vocab: int, *, remat: str
) -> int:
    """Floating-point operations of one training step of a GPT, whose MLP is 4 times as wide.

    Matrix products alone count: a multiplication and an addition are 2. Every query meets every
    key: the causal mask halves nothing. The head counts, the embedding does not. The backward
    pass takes twice what the forward pass takes.

    `remat` is what the backward pass computes again: "none"; "selective", the scores of attention
    and their product with the values; "full", all layers, but not the head. With "selective",
    attention takes 16*B*L*s^2*h in all. Korthikanti et al. print 24 in equation 8; an answer may
    follow that.

    Math: a layer's forward pass B*s*(24h^2 + 4sh), of which selective computes 4Bs^2h again; the
        head's 2BshV
    Source: Korthikanti et al. 2022, equation 7; Narayanan et al. 2021, equation 3

    Raises:
        ValueError: `remat` is none of the three, or a size is not positive.
    """
    sizes = {"batch": batch, "sequence": sequence, "layers": layers}
    check_positive("transformer_step_flops", sizes | {"hidden": hidden, "vocab": vocab})
    check_one_of("transformer_step_flops", "remat", remat, REMATS)
    tokens = batch * sequence
    attention = layers * tokens * 4 * sequence * hidden
    forward = layers * tokens * 24 * hidden**2 + attention
    head = 2 * tokens * hidden * vocab
    again = {"none": 0, "selective": attention, "full": forward}[remat]
    return 3 * (forward + head) + again


def model_flops_utilization(
    tokens_per_second: float, flops_per_token: float, devices: int, peak_flops: float
) -> float:
    """The fraction of all devices' peak that training reaches (MFU).

    `tokens_per_second` is the rate of all devices together; `flops_per_token` is what the model
    takes, forward and backward, with nothing computed again; `peak_flops` is what one device could
    do in a second, with dense matrices. The result is not rounded, and not cut off where a wrong
    number makes it more than 1.

    Source: Chowdhery et al. 2022, appendix B

    Raises:
        ValueError: a number is not positive.
    """
    rates = {"tokens_per_second": tokens_per_second, "flops_per_token": flops_per_token}
    hardware = {"devices": devices, "peak_flops": peak_flops}
    check_positive("model_flops_utilization", rates | hardware)
    return tokens_per_second * flops_per_token / (devices * peak_flops)


def _attention(architecture: Architecture) -> Products:
    if architecture.latent:
        return _latent_attention(architecture.latent)
    return {
        "queries": "2*batch*sequence*hidden*heads*head_size",
        "keys and values": "4*batch*sequence*hidden*kv_heads*head_size",
        "scores": "2*batch*sequence*sequence*heads*head_size",
        "attended": "2*batch*sequence*sequence*heads*head_size",
        "attention output": "2*batch*sequence*heads*head_size*hidden",
    }


def _latent_attention(latent: Latent) -> Products:
    compress = {"query compression": "2*batch*sequence*hidden*query_rank"}
    source = "query_rank" if latent.query_rank else "hidden"
    return (compress if latent.query_rank else {}) | {
        "queries": f"2*batch*sequence*{source}*heads*(head_size+rotary)",
        "key compression": "2*batch*sequence*hidden*(rank+rotary)",
        "keys and values": "2*batch*sequence*rank*heads*(head_size+value)",
        "scores": "2*batch*sequence*sequence*heads*(head_size+rotary)",
        "attended": "2*batch*sequence*sequence*heads*value",
        "attention output": "2*batch*sequence*heads*value*hidden",
    }


def _feed_forward(architecture: Architecture, *, experts: bool) -> Products:
    matrix = f"{'6' if architecture.gated else '4'}*batch*sequence*hidden"
    if not experts:
        return {"mlp": f"{matrix}*ffn"}
    moe = architecture.experts
    assert moe, f"{architecture.name} has no experts"
    products = {
        "router": "2*batch*sequence*hidden*experts",
        "experts": f"{matrix}*expert_ffn*per_token",
    }
    if moe.shared:
        products["shared expert"] = f"{matrix}*shared_ffn"
    if moe.shared_gate:
        products["shared expert gate"] = "2*batch*sequence*hidden"
    return products


def _sizes(architecture: Architecture, batch: Any, sequence: Any) -> dict[str, Any]:
    """A number for every name in a formula."""
    names = ("layers", "dense_layers", "expert_layers", "hidden", "heads", "vocab")
    sizes = {name: getattr(architecture, name) for name in names}
    sizes |= {"batch": _unbounded(batch), "sequence": _unbounded(sequence)}
    sizes |= {"ffn": architecture.d_ffn, "kv_heads": architecture.key_heads}
    sizes |= {"head_size": architecture.d_head}
    if moe := architecture.experts:
        sizes |= {"experts": moe.count, "per_token": moe.per_token}
        sizes |= {"expert_ffn": moe.ffn, "shared_ffn": moe.shared}
    return sizes | (vars(architecture.latent) if architecture.latent else {})


def _unbounded(size: Any) -> Any:
    """Makes numpy integers floats: they overflow at 2^63, which a large model's step exceeds."""
    return np.multiply(size, 1.0) if isinstance(size, np.ndarray | np.generic) else size


def _times(count: str, products: Products) -> Products:
    return {name: f"{count}*{formula}" for name, formula in products.items()}
