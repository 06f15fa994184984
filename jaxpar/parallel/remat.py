"""Rematerialization: what a stack of layers keeps for its backward pass, and what it recomputes.

In the sizes of `Memory:`, residuals is the number of elements that one layer keeps.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax import Array, lax
from jaxtyping import Float, PyTree

from jaxpar.flash import KEPT

LayerFn = Callable[[Any, Array], Array]

_POLICIES = jax.checkpoint_policies
# The names that the decoder gives to the inputs and outputs of its products with weights. The
# largest intermediate results have none: those of attention, from query, key, value to attended.
MARKS = (
    "attention_input",
    "query",
    "key",
    "value",
    "attended",
    "stream",
    "mlp_input",
    "gate",
    "up",
    "hidden",
    "gathered",
    "low_rank",
)
ALTERNATE = ("query", "value", "attended", "stream", "gate", "low_rank")
KINDS = {
    "none": _POLICIES.everything_saveable,
    "full": _POLICIES.nothing_saveable,
    "selective": _POLICIES.save_only_these_names(*MARKS, *KEPT),
    # Products with weights are kept. The rest (norms, attention, the nonlinearity) is recomputed,
    # which takes less time on a CPU than to store and load it. The two marks save collectives: with
    # tensor parallelism, the stream is the result of an all-reduce and "gathered" of an all-gather.
    # The names of attention by tiles save that, and what a ring sends for it; "adapted" is what a
    # matrix and its adapter give together, and "low_rank" what is between the two of the latter.
    "products": _POLICIES.save_from_both_policies(
        _POLICIES.dots_with_no_batch_dims_saveable,
        _POLICIES.save_only_these_names("stream", "gathered", "adapted", "low_rank", *KEPT),
    ),
    # torchtitan's SelectiveAC keeps the first, third, fifth of a layer's products, and attention.
    "alternate": _POLICIES.save_only_these_names(*ALTERNATE, *KEPT),
    "segments": _POLICIES.nothing_saveable,
}


def scan_layers(
    layer_fn: LayerFn,
    params: PyTree[Array],
    x: Float[Array, "..."],
    *,
    remat: str | Sequence[str] = "products",
) -> Float[Array, "..."]:
    """Applies layer after layer; `params` are stacked: each leaf is [l, ...].

    `remat` says what is kept for the backward pass beside each layer's input; the rest is
    recomputed when it is needed. "none" keeps all residuals, and "full" keeps nothing. "selective"
    keeps what the decoder marks, so that the only products that are recomputed are those of
    attention. "products" keeps the results of products with weights, and "alternate" of every other
    one. A list of names keeps what `jax.ad_checkpoint.checkpoint_name` has given one of these
    names. "segments" keeps only the inputs of sqrt(l) segments (or of the next number that divides
    l), and recomputes every layer twice.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Comm:
        forward: nothing
        backward: nothing
    Memory: l*residuals
    Source: Korthikanti et al. 2022, sections 4 and 5; Chen et al. 2016, section 4

    Raises:
        ValueError: `remat` is unknown.
    """
    if remat == "segments":
        return frugal_layers(layer_fn, params, x)
    return _scan(checkpointed(layer_fn, remat), params, x)


def frugal_layers(
    layer_fn: Callable[[Any, Array], Array], params: PyTree[Array], x: Float[Array, "..."]
) -> Float[Array, "..."]:
    """Applies layer after layer; of l layers, only the inputs of about sqrt(l) segments are kept.

    `layer_fn(layer_params, x)` is the next x, which has the same shape. `params` are stacked: each
    leaf is [l, ...]. There are sqrt(l) segments, or the next number that divides l. Before the
    backward pass of a segment, the inputs of its layers are computed again, and each layer once
    more before its own.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Comm:
        forward: nothing
        backward: nothing
    Memory: segments*x + (l*x + 2*params)/segments + residuals
    Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost), section 4
    """
    layers = _count_layers(params)
    segments = next(k for k in _divisors(layers) if k * k >= layers)
    return remat_layers(checkpointed(layer_fn, "segments"), params, x, segments=segments)


def remat_layers(
    layer_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    x: Float[Array, "..."],
    *,
    segments: int,
) -> Float[Array, "..."]:
    """Applies layer after layer; for the backward pass, only the inputs of segments are kept.

    `layer_fn(layer_params, x)` is the next x, which has the same shape. `params` are stacked: each
    leaf is [l, ...]. Before the backward pass of a segment, the segment is computed a second time.
    At that moment the residuals of its layers are held, and a copy of their parameters and of their
    gradients.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Comm:
        forward: nothing
        backward: nothing
    Memory: segments*x + (l*residuals + 2*params)/segments
    Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost), section 4

    Raises:
        ValueError: `segments` does not divide the number of layers.
    """
    layers = _count_layers(params)
    if segments not in _divisors(layers):
        allowed = ", ".join(map(str, _divisors(layers)))
        raise ValueError(
            f"remat_layers: {segments} segments of {layers} layers; segments must divide the "
            f"layers; use segments in {{{allowed}}}"
        )
    by_segment = jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)
    # The two passes of a scan are two loops, so the compiler has no common subexpressions to merge.
    segment_fn = jax.checkpoint(partial(_scan, layer_fn), prevent_cse=False)
    return _scan(segment_fn, by_segment, x)


def checkpointed(layer_fn: LayerFn, remat: str | Sequence[str]) -> LayerFn:
    """Makes a layer keep what `remat` says for its backward pass; for use in a loop over layers.

    Memory: residuals
    Source: Korthikanti et al. 2022, sections 4 and 5

    Raises:
        ValueError: `remat` is unknown.
    """
    if not isinstance(remat, str):
        policy = _POLICIES.save_only_these_names(*remat)
    elif remat in KINDS:
        policy = KINDS[remat]
    else:
        allowed = ", ".join(map(repr, KINDS))
        raise ValueError(
            f"remat: {remat!r} is unknown; use one of {allowed}, or a list of the names to keep"
        )
    return jax.checkpoint(layer_fn, policy=policy, prevent_cse=False)


def _scan(layer_fn: LayerFn, params: PyTree[Array], x: Array) -> Array:
    def body(x: Array, layer: PyTree[Array]) -> tuple[Array, None]:
        return layer_fn(layer, x), None

    return lax.scan(body, x, params)[0]


def _count_layers(params: PyTree[Array]) -> int:
    return len(jax.tree.leaves(params)[0])


def _divisors(number: int) -> list[int]:
    return [k for k in range(1, number + 1) if number % k == 0]
