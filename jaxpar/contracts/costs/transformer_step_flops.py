"""The FLOPs of all products in one training step of a transformer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
from jaxpar.cost.flops import transformer_step_flops
from jaxpar.cost.layout import REMATS

# Batch, sequence, layers, hidden, vocab: 1.7B, 175B, 1T of PTD-P; 22B, 175B of Korthikanti et al.;
# sizes as of PaLM 540B and of Llama 3 405B, and beyond all of them: no limit is right.
_MODELS = (
    (512, 2048, 24, 2304, 51200),
    (1536, 2048, 96, 12288, 51200),
    (3072, 2048, 128, 25600, 51200),
    (4, 2048, 48, 6144, 51200),
    (64, 2048, 96, 12288, 51200),
    (2048, 2048, 118, 18432, 256_000),
    (2048, 8192, 126, 16384, 128_256),
    (128, 131_072, 126, 16384, 128_256),
    (65_536, 2**20, 1000, 65_536, 10**6),
)


def _steps(rng: np.random.Generator) -> list[Call]:
    """A small model, published ones, any sizes, then what is refused."""
    small, odd = (1, 4, 2, 8, 16), tuple(int(n) for n in rng.integers(2, 9, 5))
    models = [small, *_MODELS]
    models.append((1, 1, 1, 1, 1))
    for place, size in enumerate(small := (3, 5, 2, 8, 16)):  # a size of 1, and one of many
        models += [(*small[:place], one, *small[place + 1 :]) for one in (1, 1000 * size + 1)]
    spreads = (log_spread(rng, 2, high, 4) for high in (4096, 2e5, 300, 4e4, 5e5))
    models += [tuple(map(int, sizes)) for sizes in zip(*spreads, strict=True)]
    calls = [(model, {"remat": remat}) for model in models for remat in REMATS]
    refused = [(odd, {"remat": remat}) for remat in ("half", "", "Full", "no", "nonefull", "s")]
    refused += [(sizes, {"remat": remat}) for sizes in not_positive(odd) for remat in REMATS]
    return [*calls, *refused]


def _by_equation_8(*sizes: int, remat: str) -> float:
    """As Korthikanti et al. print it: selective computes attention's products three times more."""
    flops = float(transformer_step_flops(*sizes, remat=remat))
    batch, sequence, layers, hidden, _ = sizes
    once = 4.0 * batch * sequence**2 * layers * hidden
    return flops + 2 * once if remat == "selective" else flops


CONTRACT = Contract(
    kind="value",
    task="return the FLOPs of all products of a step: forward, backward and recomputed",
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


class _Step(NamedTuple):
    """The FLOPs of the forward pass, and those that the backward pass computes again."""

    matrices: float
    attention: float
    head: float
    again: float

    @property
    def total(self) -> float:
        return 3 * (self.matrices + self.attention + self.head) + self.again


def _step(sizes: tuple[int, ...], remat: str) -> _Step:
    right = transformer_step_flops(*sizes, remat=remat)
    batch, sequence, layers, hidden, vocab = sizes
    tokens = batch * sequence
    matrices, head = layers * tokens * 24 * hidden**2, 2 * tokens * hidden * vocab
    attention = layers * tokens * 4 * sequence * hidden
    return _Step(matrices, attention, head, right - 3 * (matrices + attention + head))


@wrong("values")
def attention_left_out(*sizes: int, remat: str) -> float:
    """You leave the two products of attention out, as the rule of 6 FLOPs for each parameter and
    token does; add 4*B*s*s*h for each layer's forward pass."""
    step = _step(sizes, remat)
    return 3 * (step.matrices + step.head) + (step.matrices if remat == "full" else 0)


@wrong("values")
def causal_half(*sizes: int, remat: str) -> float:
    """You count half of attention's FLOPs; a causal mask halves nothing here, and both products
    count: 4*B*s*s*h for each layer's forward pass."""
    step = _step(sizes, remat)
    return step.total - (3 + (remat != "none")) * step.attention / 2


@wrong("values")
def multiply_adds(*sizes: int, remat: str) -> float:
    """The result is half as large as it should be; count a multiplication and an addition as 2."""
    return transformer_step_flops(*sizes, remat=remat) / 2


@wrong("values")
def flops_of_forward(*sizes: int, remat: str) -> float:
    """You leave the backward pass out; it takes twice what the forward pass takes."""
    step = _step(sizes, remat)
    return (step.total - step.again) / 3 + step.again


@wrong("values")
def backward_as_forward(*sizes: int, remat: str) -> float:
    """You count the backward pass as much as the forward pass; it has two products for each one of
    the forward pass, so count it twice."""
    step = _step(sizes, remat)
    return (step.total - step.again) * 2 / 3 + step.again


@wrong("values")
def head_left_out(*sizes: int, remat: str) -> float:
    """You leave the head out; it is a product of [tokens, h] by [h, V]."""
    step = _step(sizes, remat)
    return step.total - 3 * step.head


@wrong("values")
def embedding_as_product(*sizes: int, remat: str) -> float:
    """You count the embedding as a product; it only looks rows up, so leave it out."""
    step = _step(sizes, remat)
    return step.total + 3 * step.head


@wrong("values")
def head_computed_again(*sizes: int, remat: str) -> float:
    """With full you compute the head again; it is not part of a layer, so leave it out."""
    step = _step(sizes, remat)
    return step.total + (step.head if remat == "full" else 0)


@wrong("values")
def scores_not_squared(*sizes: int, remat: str) -> float:
    """You count the scores once for each query; each query meets all keys, so attention's two
    products take 4*B*s*s*h."""
    step = _step(sizes, remat)
    return step.total - (3 + (remat != "none")) * step.attention * (1 - 1 / sizes[1])


@wrong("values")
def backward_of_layers_only(*sizes: int, remat: str) -> float:
    """You count the head in the forward pass only; its backward pass takes twice as much again."""
    step = _step(sizes, remat)
    return step.total - 2 * step.head


@wrong("values")
def mlp_with_a_gate(*sizes: int, remat: str) -> float:
    """You count three matrices in the MLP, as with a gate; here it has two, of h by 4h, and a
    layer's matrices take 24h^2 for each token."""
    step = _step(sizes, remat)
    return step.total + (4 if remat == "full" else 3) * step.matrices / 3


@wrong("values")
def flops_of_one_layer(batch: int, sequence: int, layers: int, *rest: int, remat: str) -> float:
    """You count one layer only; multiply what a layer takes by `layers`."""
    return transformer_step_flops(batch, sequence, 1, *rest, remat=remat)


@wrong("values")
def flops_of_a_token(*sizes: int, remat: str) -> float:
    """These are the FLOPs of one token; a step has batch * sequence of them."""
    return transformer_step_flops(*sizes, remat=remat) / (sizes[0] * sizes[1])


@wrong("values")
def output_projection_left_out(*sizes: int, remat: str) -> float:
    """Your matrices of a layer take 22h^2 for each token; attention has a fourth one, for its
    output, so count 24h^2."""
    step = _step(sizes, remat)
    return step.total - (4 if remat == "full" else 3) * step.matrices / 12


@wrong("values")
def recomputation_ignored(*sizes: int, remat: str) -> float:
    """`remat` changes nothing in your answer; add what the backward pass computes again."""
    step = _step(sizes, remat)
    return step.total - step.again


@wrong("values")
def selective_is_full(*sizes: int, remat: str) -> float:
    """With selective you compute all layers again; count only attention's scores and their product
    with the values."""
    remat = "full" if remat == "selective" else remat
    return transformer_step_flops(*sizes, remat=remat)


@wrong("values")
def selective_one_product(*sizes: int, remat: str) -> float:
    """With selective you compute only one product of attention again; count both."""
    step = _step(sizes, remat)
    return step.total - (step.attention / 2 if remat == "selective" else 0)


@wrong("values")
def other_remat_is_none(*sizes: int, remat: str) -> float:
    """Raise ValueError where `remat` is none of the three."""
    known = remat in ("selective", "full")
    return transformer_step_flops(*sizes, remat=remat if known else "none")


@wrong("values")
def remat_by_its_letters(*sizes: int, remat: str) -> float:
    """Raise ValueError where `remat` is not written exactly as one of the three."""
    letter = (remat.lower() or "?")[0]
    known = {"n": "none", "s": "selective", "f": "full"}
    return transformer_step_flops(*sizes, remat=known.get(letter, remat))


@wrong("values")
def no_sizes_counted(*sizes: int, remat: str) -> float:
    """Raise ValueError where a size is 0 or below."""
    if min(sizes) > 0:
        return transformer_step_flops(*sizes, remat=remat)
    return 0.0
