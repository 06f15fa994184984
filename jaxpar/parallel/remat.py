"""What a stack of layers keeps for its gradient, and what it computes again."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
from jax import Array, lax
from jaxtyping import Float, PyTree

LayerFn = Callable[[Any, Array], Array]

_POLICIES = jax.checkpoint_policies
# What the decoder marks: every input of a product with weights, and what such products give. What
# lies between query, key, value and attended is attention itself, the largest part.
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
)
KINDS = {
    "none": _POLICIES.everything_saveable,
    "full": _POLICIES.nothing_saveable,
    "selective": _POLICIES.save_only_these_names(*MARKS),
    # Products with weights are kept, and the rest (norms, attention, the nonlinearity) is computed
    # again, which takes less time on a CPU than to store and load it. Two marks spare collectives:
    # where devices share a layer, a product is a part of a sum, or of what was gathered.
    "products": _POLICIES.save_from_both_policies(
        _POLICIES.dots_with_no_batch_dims_saveable,
        _POLICIES.save_only_these_names("stream", "gathered"),
    ),
    "segments": _POLICIES.nothing_saveable,
}


def scan_layers(
    layer_fn: LayerFn,
    params: PyTree[Array],
    x: Float[Array, "..."],
    *,
    remat: str | Sequence[str] = "products",
) -> Float[Array, "..."]:
    """Layer after layer; `params` are stacked: each leaf is [l, ...].

    `remat` says what is kept for the gradient, beside each layer's input; the rest is computed
    again when it is needed. "none" keeps whatever the gradient needs, "full" nothing, "selective"
    what the decoder marks, so that of all products attention's alone are computed again, and
    "products" what products with weights give. A list of names keeps what
    `jax.ad_checkpoint.checkpoint_name` gave one of these names. "segments" keeps the inputs
    of sqrt(l) segments only (or of the next number that divides l), and computes all twice again.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Comm:
        forward: nothing
        backward: nothing
    Memory: l*kept
    Source: Korthikanti et al. 2022, sections 4 and 5; Chen et al. 2016, section 4

    Raises:
        ValueError: `remat` is unknown.
    """
    layer_fn = checkpointed(layer_fn, remat)
    if remat == "segments":
        layers = _layers(params)
        segments = next(k for k in _divisors(layers) if k * k >= layers)
        return remat_layers(layer_fn, params, x, segments=segments)
    return _scan(layer_fn, params, x)


def remat_layers(
    layer_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    x: Float[Array, "..."],
    *,
    segments: int,
) -> Float[Array, "..."]:
    """Layer after layer; for the gradient, only the inputs of `segments` segments are kept.

    `layer_fn(layer_params, x)` is the next x, of the same shape. `params` are stacked: each leaf
    is [l, ...]. The backward pass goes through a segment a second time, forwards, and then has
    what the layers of this one segment keep, and their parameters and gradients apart from the
    others.

    Math: x_(i+1) = layer_fn(params[i], x_i)
    Comm:
        forward: nothing
        backward: nothing
    Memory: segments*x + (l*kept + 2*params)/segments
    Source: Chen et al. 2016 (Training Deep Nets with Sublinear Memory Cost), section 4

    Raises:
        ValueError: `segments` does not divide the number of layers.
    """
    layers = _layers(params)
    if segments not in _divisors(layers):
        allowed = ", ".join(map(str, _divisors(layers)))
        raise ValueError(
            f"remat_layers: {segments} segments of {layers} layers; segments must divide the "
            f"layers; use segments in {{{allowed}}}"
        )
    by_segment = jax.tree.map(lambda leaf: leaf.reshape(segments, -1, *leaf.shape[1:]), params)
    # A loop's two passes are two loops, so there is nothing that a compiler could merge.
    segment_fn = jax.checkpoint(partial(_scan, layer_fn), prevent_cse=False)
    return _scan(segment_fn, by_segment, x)


def checkpointed(layer_fn: LayerFn, remat: str | Sequence[str]) -> LayerFn:
    """A layer that keeps for its gradient what `remat` says, to be called in a loop over layers.

    Comm:
        forward: nothing
        backward: nothing
    Memory: kept
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


def _layers(params: PyTree[Array]) -> int:
    return len(jax.tree.leaves(params)[0])


def _divisors(layers: int) -> list[int]:
    return [k for k in range(1, layers + 1) if layers % k == 0]
