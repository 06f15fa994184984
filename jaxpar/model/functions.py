"""The decoder as pure functions of its parameters, which are nested dicts of arrays."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import jax
from flax import nnx
from jax import Array
from jaxtyping import Float, Int, Num, PyTree

from jaxpar.collectives.leaves import STACKED
from jaxpar.model.decoder import Decoder, Layer
from jaxpar.model.few_bits import decode, encode
from jaxpar.model.settings import Settings
from jaxpar.model.split import WHOLE, Split
from jaxpar.parallel.remat import scan_layers

Params = PyTree[Num[Array, "..."]]
LayerFn = Callable[[Any, Array], Array]
ApplyLayers = Callable[[LayerFn, Any, Array], Array]
"""(layer_fn, stacked parameters, x) -> x, where layer_fn(one layer's parameters, x) -> x."""


@partial(jax.jit, static_argnums=0)
def init(settings: Settings, key: Array) -> Params:
    """Random parameters; those of the layers are stacked along a leading dim l."""
    rngs = nnx.Rngs(params=key, adapters=jax.random.fold_in(key, 1))
    params = nnx.to_pure_dict(nnx.state(Decoder(settings, rngs)))
    if settings.base_bits:
        params[STACKED] = encode(params[STACKED], settings.base_bits)
    return params


class Pieces(NamedTuple):
    """A decoder in pieces, for devices that hold only some of them.

    Attributes:
        first: maps (params, tokens [b, s]) to the input of the first layer, [b, t, d].
        layer: maps (one layer's parameters, x) to the next x.
        last: maps (params, the output of the last layer) to logits [b, s, v].
    """

    first: Callable[[Params, Array], Array]
    layer: LayerFn
    last: Callable[[Params, Array], Array]


def pieces(settings: Settings, split: Split = WHOLE) -> Pieces:
    """The decoder in pieces; the parameters for `first` and `last` need not contain the layers.

    In `shard_map`, with a split, the parameters are this device's shards, whose partition specs
    `split_specs` returns, and the logits are those of this device's tokens.
    """
    graph, layer_graph, like = _graphs(settings)

    def ends(params: Params) -> Decoder:
        outside = {name: part for name, part in params.items() if name != STACKED}
        return nnx.merge(graph, like | outside)

    def layer(params: Params, x: Array) -> Array:
        if settings.base_bits:
            params = decode(params, settings.base_bits)
        return nnx.merge(layer_graph, params)(x, split)

    return Pieces(
        jax.named_scope("embedding")(lambda params, tokens: ends(params).enter(tokens, split)),
        layer,
        jax.named_scope("logits")(lambda params, x: ends(params).leave(x, split)),
    )


def logits(
    settings: Settings,
    params: Params,
    tokens: Int[Array, "b t"],
    apply_layers: ApplyLayers = scan_layers,
    split: Split = WHOLE,
) -> Float[Array, "b t v"]:
    """The logits of the token after each position; `params` are as `init` returns them."""
    decoder = pieces(settings, split)
    x = decoder.first(params, tokens)
    layers = split.own_copies(params["layers"])
    return decoder.last(params, apply_layers(decoder.layer, layers, x))


Taught = Callable[[Array, Split, Array, Array], Array]
"""(inputs, split, logits of the student, its cross-entropies) -> the loss of each token."""


def loss_fn(
    settings: Settings,
    apply_layers: ApplyLayers = scan_layers,
    split: Split = WHOLE,
    taught: Taught | None = None,
) -> Callable[[Params, Int[Array, "b s"]], Float[Array, ""]]:
    """A function for the mean cross-entropy of every token except the first of each sequence.

    Where the positions are split over an axis, it takes all tokens, and is the mean over those of
    this device. With `taught`, it is the mean of what a teacher makes of the cross-entropies.
    """

    def loss(params: Params, tokens: Int[Array, "b s"]) -> Float[Array, ""]:
        inputs, targets = split.own_tokens(tokens[:, :-1]), split.own_tokens(tokens[:, 1:])
        here = split.within_documents(tokens[:, :-1], settings.document_end)
        predicted = logits(settings, params, inputs, apply_layers, here)
        losses = split.cross_entropy(predicted, targets)
        return (taught(inputs, here, predicted, losses) if taught else losses).mean()

    return loss


@cache
def _graphs(settings: Settings) -> tuple[Any, Any, dict[str, Any]]:
    """The graphs of the decoder and of a layer, and the shapes of the decoder's parameters."""
    decoder = nnx.eval_shape(lambda: Decoder(settings, nnx.Rngs(0)))
    layer = nnx.eval_shape(lambda: Layer(settings, nnx.Rngs(0)))
    like = nnx.to_pure_dict(nnx.state(decoder))
    return nnx.graphdef(decoder), nnx.graphdef(layer), like
