"""The decoder with a cache: one function for prompts, chunks of them, decode steps and drafts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, PyTree

from jaxpar.cost.experts import DROPPED
from jaxpar.model import Settings, Split, pieces
from jaxpar.model.attention import Cached
from jaxpar.serve.cache import Layer, Pages, Slots, own_offsets


def extend(
    settings: Settings,
    params: dict[str, Any],
    cache: list[Layer],
    tokens: Int[Array, "b t"],
    starts: Int[Array, " b"],
    counts: Int[Array, " b"],
    where: Slots | Pages,
    *,
    split: Split,
    over: str | None = None,
    only: Int[Array, " b"] | None = None,
) -> tuple[list[Layer], Float[Array, "b t v"]]:
    """Adds t tokens to each row, and returns the cache and the logits of the token after each.

    Row i has `starts[i]` tokens in the cache, `where` says where. Of its new tokens the first
    `counts[i]` count: the others are not written, and their logits mean nothing. With `only`, the
    logits are those after one token of each row, `only[i]`, and t of the result is 1. Devices
    split the cache by kv heads where they split the layers, and by positions over the axis `over`.

    `params` are as `unstacked` makes them. The layers are not a loop: a loop would copy the part of
    the cache that belongs to each layer, so the program grows with the number of layers here.
    """
    steps = jnp.arange(tokens.shape[1])[None]
    positions = starts[:, None] + steps
    kept = []

    def attend_in(layer: Layer) -> Callable[[Array, Array, Array], Array]:
        parts = 1 if over is None else lax.axis_size(over)
        places, offsets = where.at(positions, layer.size * parts)
        offsets = own_offsets(offsets, layer.size, axis=over)
        offsets = jnp.where(steps < counts[:, None], offsets, layer.size)  # not in the cache

        def attend(q: Array, k: Array, v: Array) -> Array:
            kept.append(layer.write(k, v, places, offsets))
            return where.attend(q, kept[-1], starts + tokens.shape[1], axis=over)

        return attend

    decoders = [
        pieces(settings, replace(split, cached=Cached(positions, attend_in(layer))))
        for layer in cache
    ]
    x = decoders[0].first(_ends(params), tokens)
    for decoder, layer_params in zip(decoders, params["layers"], strict=True):
        x = decoder.layer(layer_params, x)
    if only is not None:
        x = jnp.take_along_axis(x, only[:, None, None], axis=1)
    return kept, decoders[0].last(_ends(params), x)


def in_inference(settings: Settings, devices: int = 1) -> Settings:
    """The settings of the same decoder in inference: experts drop nothing.

    If there are more devices than kv heads, each has a copy of one: there are as many heads then.
    """
    return replace(settings, kv_heads=max(settings.key_heads, devices), capacity_factor=None)


def unstacked(settings: Settings, params: PyTree[Array]) -> dict[str, Any]:
    """The parameters with a list of layers, of which none is sliced in each step.

    The settings are those in inference: where the parameters have fewer kv heads, each is repeated
    for its consecutive query heads.
    """
    leaves, tree = jax.tree.flatten(params["layers"])
    layers = [tree.unflatten(x[i] for x in leaves) for i in range(settings.layers)]
    for layer in layers:
        layer["mlp"].pop(DROPPED, None)
        attention = layer["attention"]
        for name in {"key", "value", "key_bias", "value_bias"} & attention.keys():
            if not isinstance(attention[name], dict):  # codes, of as many heads as there must be
                attention[name] = _repeated(attention[name], settings)
    return _ends(params) | {"layers": layers}


def _repeated(w: Float[Array, "*d o"], settings: Settings) -> Float[Array, "*d p"]:
    *rows, _ = w.shape
    by_head = w.reshape(*rows, -1, settings.d_head)
    copies = settings.key_heads // by_head.shape[-2]
    return jnp.repeat(by_head, copies, axis=-2).reshape(*rows, -1)


def _ends(params: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in params.items() if name != "layers"}
