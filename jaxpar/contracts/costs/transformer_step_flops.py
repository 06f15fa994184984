"""The FLOPs of all products in one training step of a transformer."""

from __future__ import annotations

from functools import partial
from itertools import product
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong, wrong_result
from jaxpar.contracts.costs.common import log_uniform
from jaxpar.cost.flops import transformer_step_flops
from jaxpar.cost.layout import REMATS

# Batch, sequence, layers, hidden, vocab: 1.7B, 175B, 1T of PTD-P; 22B, 175B of Korthikanti et al.
_MODELS = (
    (512, 2048, 24, 2304, 51200),
    (1536, 2048, 96, 12288, 51200),
    (3072, 2048, 128, 25600, 51200),
    (4, 2048, 48, 6144, 51200),
    (64, 2048, 96, 12288, 51200),
)


def _steps(rng: np.random.Generator) -> list[Call]:
    """A small model, published ones, any sizes, then what is refused."""
    small, odd = (1, 4, 2, 8, 16), tuple(int(n) for n in rng.integers(2, 9, 5))
    models = [small, *_MODELS]
    for _ in range(4):
        b, s, layers, h, v = (
            int(log_uniform(rng, 2, high)) for high in (512, 9000, 100, 9000, 2e5)
        )
        models.append((b, s, layers, h, v))
    calls = [(model, {"remat": remat}) for model in models for remat in REMATS]
    refused = [(odd, {"remat": "half"})]
    for place, size in product(range(5), (0, -1)):
        refused.append(((*odd[:place], size, *odd[place + 1 :]), {"remat": "none"}))
    refused.append(((*odd[:3], -odd[3], -odd[4]), {"remat": "full"}))  # a product above 0
    return [*calls, *refused]


def _by_equation_8(*sizes: int, remat: str) -> float:
    """As Korthikanti et al. print it: selective computes attention's products three times more."""
    flops = float(transformer_step_flops(*sizes, remat=remat))
    batch, sequence, layers, hidden, _ = sizes
    once = 4.0 * batch * sequence**2 * layers * hidden
    return flops + 2 * once if remat == "selective" else flops


CONTRACT = Contract(
    kind="value",
    task="return the FLOPs of all matrix products of a training step: forward, backward and "
    "recomputed",
    reference=transformer_step_flops,
    oracle=lambda *sizes, remat: float(transformer_step_flops(*sizes, remat=remat)),
    also_right=(_by_equation_8,),
    values=_steps,
    hints=(
        "A product of [m, k] by [k, n] takes 2*m*k*n FLOPs. List the products of one layer's "
        "forward pass: queries, keys, values, scores, scores times values, the output, and two in "
        "the MLP.",
        "A layer's matrices have 12h^2 elements, which take 24h^2 FLOPs for each token. The "
        "scores, and their product with the values, take 2*B*s*s*h each. The head takes 2*B*s*h*V, "
        "once.",
        "3 * (layers * (24*B*s*h*h + 4*B*s*s*h) + 2*B*s*h*V), plus what is computed again: for "
        "selective layers * 4*B*s*s*h, for full the forward pass of all layers.",
    ),
    minimal="It is arithmetic on shapes: the model has no other products.",
    harder="Write it for grouped queries and a gated MLP of any width, and for experts.",
)


_mistake = partial(wrong_result, transformer_step_flops)


class _Forward(NamedTuple):
    """The FLOPs of the forward pass."""

    matrices: int
    attention: int
    head: int


def _forward(call: SimpleNamespace) -> _Forward:
    tokens = call.batch * call.sequence
    return _Forward(
        matrices=call.layers * tokens * 24 * call.hidden**2,
        attention=call.layers * tokens * 4 * call.sequence * call.hidden,
        head=2 * tokens * call.hidden * call.vocab,
    )


attention_left_out = _mistake(
    "You leave the two products of attention out, as the rule of 6 FLOPs for each parameter and "
    "token does; add 4*B*s*s*h for each layer's forward pass.",
    lambda right, call: right - (3 + (call.remat != "none")) * _forward(call).attention,
)
causal_half = _mistake(
    "You count half of attention's FLOPs; a causal mask halves nothing here, and both products "
    "count: 4*B*s*s*h for each layer's forward pass.",
    lambda right, call: right - (3 + (call.remat != "none")) * _forward(call).attention / 2,
)
multiply_adds = _mistake(
    "The result is half as large as it should be; count a multiplication and an addition as 2.",
    lambda right, call: right / 2,
)
flops_of_forward = _mistake(
    "You leave the backward pass out; it takes twice what the forward pass takes.",
    lambda right, call: float(right - 2 * sum(_forward(call))),
)
backward_as_forward = _mistake(
    "You count the backward pass as much as the forward pass; it has two products for each one of "
    "the forward pass, so count it twice.",
    lambda right, call: float(right - sum(_forward(call))),
)
head_left_out = _mistake(
    "You leave the head out; it is a product of [tokens, h] by [h, V].",
    lambda right, call: right - 3 * _forward(call).head,
)
embedding_as_product = _mistake(
    "You count the embedding as a product; it only looks rows up, so leave it out.",
    lambda right, call: right + 3 * _forward(call).head,
)
head_computed_again = _mistake(
    "With full you compute the head again; it is not part of a layer, so leave it out.",
    lambda right, call: right + (_forward(call).head if call.remat == "full" else 0),
)


@wrong("values")
def flops_of_one_layer(batch: int, sequence: int, layers: int, *rest: int, remat: str) -> float:
    """You count one layer only; multiply what a layer takes by `layers`."""
    return transformer_step_flops(batch, sequence, 1, *rest, remat=remat)


flops_of_a_token = _mistake(
    "These are the FLOPs of one token; a step has batch * sequence of them.",
    lambda right, call: right / (call.batch * call.sequence),
)
output_projection_left_out = _mistake(
    "Your matrices of a layer take 22h^2 for each token; attention has a fourth one, for its "
    "output, so count 24h^2.",
    lambda right, call: right - (4 if call.remat == "full" else 3) * _forward(call).matrices / 12,
)
recomputation_ignored = _mistake(
    "`remat` changes nothing in your answer; add what the backward pass computes again.",
    lambda right, call: 3 * sum(_forward(call)),
)


@wrong("values")
def selective_is_full(*sizes: int, remat: str) -> float:
    """With selective you compute all layers again; count only attention's scores and their product
    with the values."""
    remat = "full" if remat == "selective" else remat
    return transformer_step_flops(*sizes, remat=remat)


selective_one_product = _mistake(
    "With selective you compute only one product of attention again; count both.",
    lambda right, call: right - (_forward(call).attention / 2 if call.remat == "selective" else 0),
)


@wrong("values")
def other_remat_is_none(*sizes: int, remat: str) -> float:
    """Raise ValueError where `remat` is none of the three."""
    known = remat in ("selective", "full")
    return transformer_step_flops(*sizes, remat=remat if known else "none")


@wrong("values")
def no_sizes_counted(*sizes: int, remat: str) -> float:
    """Raise ValueError where a size is 0 or below."""
    if min(sizes) > 0:
        return transformer_step_flops(*sizes, remat=remat)
    return 0.0
