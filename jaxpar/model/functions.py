"""The decoder as pure functions of its parameters, which are plain nested dicts of arrays."""

from collections.abc import Callable
from functools import partial

import jax
from flax import nnx
from jax import Array
from jaxtyping import Float, Int, PyTree

from jaxpar.model.decoder import ApplyLayers, Decoder
from jaxpar.model.settings import Settings
from jaxpar.model.split import WHOLE, Split
from jaxpar.parallel.remat import scan_layers

Params = PyTree[Float[Array, "..."]]


@partial(jax.jit, static_argnums=0)
def init(settings: Settings, key: Array) -> Params:
    """Random parameters, those of the layers stacked on a leading dim l."""
    return nnx.to_pure_dict(nnx.state(Decoder(settings, nnx.Rngs(params=key))))


def logits(
    settings: Settings,
    params: Params,
    tokens: Int[Array, "b t"],
    apply_layers: ApplyLayers = scan_layers,
    split: Split = WHOLE,
) -> Float[Array, "b t v"]:
    """The logits of the token after each position; the parameters as `init` gives them.

    In `shard_map`, with a split, the parameters are this device's as `split_specs` lays them out,
    and the logits those of its tokens.
    """
    shape = nnx.eval_shape(lambda: Decoder(settings, nnx.Rngs(0)))
    return nnx.merge(nnx.graphdef(shape), params)(tokens, apply_layers, split)


def loss_fn(
    settings: Settings, apply_layers: ApplyLayers = scan_layers, split: Split = WHOLE
) -> Callable[[Params, Int[Array, "b s"]], Float[Array, ""]]:
    """The mean cross-entropy of every token but the first, which has none before it."""

    def loss(params: Params, tokens: Int[Array, "b s"]) -> Float[Array, ""]:
        predicted = logits(settings, params, tokens[:, :-1], apply_layers, split)
        return split.cross_entropy(predicted, tokens[:, 1:]).mean()

    return loss
