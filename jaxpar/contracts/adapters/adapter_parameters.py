"""How many parameters adapters of five kinds have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.costs.common import log_spread, not_positive
from jaxpar.cost.adapters import METHODS, adapter_parameters

# Layers, hidden, heads, kv heads, head size, ffn, gated, biases: Llama 3 8B and 70B, GPT-2 XL,
# GPT-3, Gemma 7B, whose heads are together wider than its activations; and beyond all of them.
_MODELS = (
    (32, 4096, 32, 8, 128, 14336, True, False),
    (80, 8192, 64, 8, 128, 28672, True, False),
    (48, 1600, 25, 25, 64, 6400, False, True),
    (96, 12288, 96, 96, 128, 49152, False, True),
    (28, 3072, 16, 16, 256, 24576, True, False),
    (900, 60_000, 500, 4, 512, 400_000, True, True),
)


def _call(*model: Any, method: str, rank: int, prefix: int) -> Call:
    *sizes, gated, biases = model
    how = {"gated": gated, "biases": biases, "method": method, "rank": rank, "prefix": prefix}
    return tuple(map(int, sizes)), how


def _models(rng: np.random.Generator) -> list[Call]:
    """A small model, published ones, any sizes, then what is refused."""
    calls = []
    for method in METHODS:
        how = {"method": method, "rank": 2, "prefix": 3}
        calls += [_call(2, 8, 4, 2, 2, 16, gated, True, **how) for gated in (False, True)]
        calls += [_call(2, 8, 4, 2, 2, 16, True, False, **how)]
        calls += [_call(3, 5, 2, 1, 7, 11, True, True, **how)]
        calls += [_call(*model, method=method, rank=16, prefix=100) for model in _MODELS]
        calls += [_call(*model, method=method, rank=1, prefix=1) for model in _MODELS[:3]]
        calls += [_call(*model, method=method, rank=4096, prefix=60_000) for model in _MODELS[-2:]]
        calls += [_call(*(1,) * 6, True, True, method=method, rank=1, prefix=1)]
        calls += _any(rng, method)
    return [*calls, *_refused(rng)]


def _any(rng: np.random.Generator, method: str) -> Iterator[Call]:
    """Sizes of which none says anything about another, with and without gates and biases."""
    ends = (300, 3e4, 200, 100, 500, 2e5, 1000, 3e4)
    spreads = [log_spread(rng, 2, high, 4) for high in ends]
    kinds = ((False, False), (False, True), (True, False), (True, True))
    for kind, (*sizes, rank, prefix) in zip(kinds, zip(*spreads, strict=True), strict=True):
        yield _call(*sizes, *kind, method=method, rank=int(rank), prefix=int(prefix))


def _refused(rng: np.random.Generator) -> Iterator[Call]:
    right = tuple(map(int, rng.integers(2, 9, 8)))
    for method in METHODS:
        for *sizes, rank, prefix in not_positive(right):
            how = {"method": method, "rank": int(rank), "prefix": int(prefix)}
            yield _call(*sizes, True, True, **how)
    *sizes, rank, prefix = right
    for unknown in ("ia3", "LoRA", "", "prefix_tuning", "p-tuning v2"):
        yield _call(*sizes, False, True, method=unknown, rank=rank, prefix=prefix)


CONTRACT = Contract(
    kind="value",
    task="return how many parameters the method trains",
    reference=adapter_parameters,
    oracle=adapter_parameters,
    values=_models,
    hints=(
        "Two factors of rank r beside a matrix of [i, o] are [i, r] and [r, o]: r*(i + o) numbers. "
        "List the matrices of a layer with their sizes; those of keys and values are narrower than "
        "that of queries where there are fewer kv heads.",
        "A prefix is a key and a value of kv_heads*head_size numbers, `prefix` times in every "
        "layer; a prompt is `prefix` vectors of the hidden size, once. Biases: one for each output "
        "of a matrix, and of each norm one for each number of an activation.",
        "With q = heads*head_size, k = kv_heads*head_size and m = 3 or 2 matrices in the MLP: lora "
        "layers*rank*(2*(hidden + q) + 2*(hidden + k) + m*(hidden + ffn)); prefix "
        "layers*2*prefix*k; bitfit layers*(q + 2*k + hidden + (m - 1)*ffn + hidden + 2*hidden) + "
        "hidden, or 0; prompt prefix*hidden.",
    ),
    minimal="It is arithmetic on shapes; what is trained is also what a device reduces, and what "
    "the optimizer has states of.",
    harder="Count an adapter of a mixture of experts: one for each expert, or one for all?",
)


def _changed(call: Call, **how: Any) -> int:
    """What is right for other arguments, by name."""
    names = ("layers", "hidden", "heads", "kv_heads", "head_size", "ffn")
    sizes, kwargs = call
    return adapter_parameters(**(dict(zip(names, sizes, strict=True)) | kwargs | how))


@wrong("values")
def keys_as_wide_as_queries(*sizes: int, **how: Any) -> int:
    """You count as many heads of keys and values as of queries; there are `kv_heads` of them."""
    adapter_parameters(*sizes, **how)
    return _changed((sizes, how), kv_heads=sizes[2])


@wrong("values")
def queries_as_wide_as_hidden(*sizes: int, **how: Any) -> int:
    """You take `hidden` for the width of the queries; it is heads * head_size, which may be
    another number."""
    right = adapter_parameters(*sizes, **how)
    layers, hidden, heads, _, head_size, _ = sizes
    missing = hidden - heads * head_size
    times = {"lora": 2 * how["rank"], "bitfit": int(how["biases"])}.get(how["method"], 0)
    return right + layers * times * missing


@wrong("values")
def rank_once(*sizes: int, **how: Any) -> int:
    """You count the rank in one of the two factors only; a is [i, r] and b is [r, o]."""
    right = adapter_parameters(*sizes, **how)
    if how["method"] != "lora":
        return right
    layers, hidden, heads, kv_heads, head_size, ffn = sizes
    outputs = heads * head_size + 2 * kv_heads * head_size + hidden
    outputs += (2 if how["gated"] else 1) * ffn + hidden
    return right - layers * (how["rank"] - 1) * outputs


@wrong("values")
def square_factor_between(*sizes: int, **how: Any) -> int:
    """You count a third factor of r x r; there are two, a and b."""
    right = adapter_parameters(*sizes, **how)
    matrices = sizes[0] * (7 if how["gated"] else 6)
    return right + matrices * how["rank"] ** 2 * (how["method"] == "lora")


@wrong("values")
def product_of_both_sizes(*sizes: int, **how: Any) -> int:
    """You count whole matrices; a factor pair of rank r has r*(i + o) numbers, not i*o."""
    right = adapter_parameters(*sizes, **how)
    if how["method"] != "lora":
        return right
    layers, hidden, heads, kv_heads, head_size, ffn = sizes
    attention = 2 * hidden * heads * head_size + 2 * hidden * kv_heads * head_size
    return layers * (attention + (3 if how["gated"] else 2) * hidden * ffn)


@wrong("values")
def queries_and_values_alone(*sizes: int, **how: Any) -> int:
    """You count adapters of queries and values alone, as LoRA's paper has them; here every matrix
    of a layer has one."""
    right = adapter_parameters(*sizes, **how)
    if how["method"] != "lora":
        return right
    layers, hidden, heads, kv_heads, head_size, _ = sizes
    return layers * how["rank"] * (2 * hidden + (heads + kv_heads) * head_size)


@wrong("values")
def mlp_without_adapters(*sizes: int, **how: Any) -> int:
    """You leave the MLP out; its matrices have adapters, too."""
    right = adapter_parameters(*sizes, **how)
    if how["method"] != "lora":
        return right
    layers, hidden, *_, ffn = sizes
    return right - layers * how["rank"] * (3 if how["gated"] else 2) * (hidden + ffn)


@wrong("values")
def gate_forgotten(*sizes: int, **how: Any) -> int:
    """You count two matrices in the MLP; where it is gated, there are three."""
    adapter_parameters(*sizes, **how)
    return _changed((sizes, how), gated=False)


@wrong("values")
def gate_everywhere(*sizes: int, **how: Any) -> int:
    """You count three matrices in the MLP; where it is not gated, there are two."""
    adapter_parameters(*sizes, **how)
    return _changed((sizes, how), gated=True)


@wrong("values")
def prefix_of_keys_alone(*sizes: int, **how: Any) -> int:
    """You count the keys of a prefix and not its values; a prefix has both."""
    right = adapter_parameters(*sizes, **how)
    return right // 2 if how["method"] in ("prefix", "p_tuning_v2") else right


@wrong("values")
def one_prefix_for_all_layers(*sizes: int, **how: Any) -> int:
    """You count one prefix for all layers; each layer has its own."""
    right = adapter_parameters(*sizes, **how)
    return right // sizes[0] if how["method"] in ("prefix", "p_tuning_v2") else right


@wrong("values")
def prefix_of_activations(*sizes: int, **how: Any) -> int:
    """You take a prefix for vectors of the hidden size; it is keys and values, of kv_heads *
    head_size numbers each."""
    right = adapter_parameters(*sizes, **how)
    layers, hidden, *_ = sizes
    if how["method"] not in ("prefix", "p_tuning_v2"):
        return right
    return layers * 2 * how["prefix"] * hidden


@wrong("values")
def p_tuning_as_a_prompt(*sizes: int, **how: Any) -> int:
    """You count p_tuning_v2 as a prompt before the first layer; it has a prefix in every layer,
    which is what its second version is about."""
    right = adapter_parameters(*sizes, **how)
    return how["prefix"] * sizes[1] if how["method"] == "p_tuning_v2" else right


@wrong("values")
def prompt_in_every_layer(*sizes: int, **how: Any) -> int:
    """You count a prompt in each layer; it stands before the embeddings of the input, once."""
    right = adapter_parameters(*sizes, **how)
    return right * sizes[0] if how["method"] == "prompt" else right


@wrong("values")
def biases_of_matrices_alone(*sizes: int, **how: Any) -> int:
    """You leave the biases of the norms out; bitfit trains all biases: two norms in a layer, and
    one after the last."""
    right = adapter_parameters(*sizes, **how)
    norms = (2 * sizes[0] + 1) * sizes[1] * how["biases"]
    return right - norms if how["method"] == "bitfit" else right


@wrong("values")
def last_norm_forgotten(*sizes: int, **how: Any) -> int:
    """You leave the norm after the last layer out; it has a bias, too."""
    right = adapter_parameters(*sizes, **how)
    return right - sizes[1] * how["biases"] if how["method"] == "bitfit" else right


@wrong("values")
def norms_scaled_as_well(*sizes: int, **how: Any) -> int:
    """You count the scales of the norms as biases; bitfit trains biases alone."""
    right = adapter_parameters(*sizes, **how)
    norms = (2 * sizes[0] + 1) * sizes[1] * how["biases"]
    return right + norms if how["method"] == "bitfit" else right


@wrong("values")
def biases_of_models_without(*sizes: int, **how: Any) -> int:
    """You count biases where the model has none: bitfit has nothing to train there."""
    adapter_parameters(*sizes, **how)
    return _changed((sizes, how), biases=True)


@wrong("values")
def any_method(*sizes: int, **how: Any) -> int:
    """Raise ValueError where `method` is not written exactly as one of the five."""
    if how["method"] in METHODS:
        return adapter_parameters(*sizes, **how)
    return 0


@wrong("values")
def numbers_not_checked(*sizes: int, **how: Any) -> int:
    """Raise ValueError where a number is 0 or below."""
    try:
        return adapter_parameters(*sizes, **how)
    except ValueError:
        if how["method"] not in METHODS:
            raise
        return 0


@wrong("values")
def numbers_checked_where_used(*sizes: int, **how: Any) -> int:
    """Raise ValueError for a rank or prefix of 0 or below whatever the method is."""
    unused = {"lora": ("prefix",), "bitfit": ("rank", "prefix")}.get(how["method"], ("rank",))
    return adapter_parameters(*sizes, **(how | dict.fromkeys(unused, 1)))
