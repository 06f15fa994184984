"""The MLP of a layer, and the random matrices that layers are made of."""

import math

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float

from jaxpar import nn
from jaxpar.model.adapter import columns, make_adapter, rows
from jaxpar.model.settings import Settings
from jaxpar.model.split import Split


class MLP(nnx.Module):
    """The gated or the plain MLP, as the settings say; its hidden size is `copies` times theirs."""

    def __init__(self, settings: Settings, rngs: nnx.Rngs, copies: int = 1):
        d, f = settings.d_model, copies * settings.d_hidden
        self.gate = matrix(rngs, d, f) if settings.mlp == "swiglu" else None
        self.up = matrix(rngs, d, f)
        self.down = matrix(rngs, f, d, settings.adding_layers)
        biased = settings.biases == "all"
        self.gate_bias = nnx.Param(jnp.zeros(f)) if biased and self.gate is not None else None
        self.up_bias = nnx.Param(jnp.zeros(f)) if biased else None
        self.down_bias = nnx.Param(jnp.zeros(d)) if biased else None
        rank = settings.adapter_rank
        self.gate_adapter = make_adapter(rngs, d, f, rank if self.gate is not None else 0)
        self.up_adapter = make_adapter(rngs, d, f, rank)
        self.down_adapter = make_adapter(rngs, f, d, rank)

    def __call__(self, x: Float[Array, "b t d"], split: Split) -> Float[Array, "b t d"]:
        """Applies the MLP to every activation."""
        adapters = (self.up_adapter, self.gate_adapter)
        factors = [one.factors for one in adapters if one is not None]
        products = columns(split, x, self._into, factors, name="mlp_input")
        return plus(split.total(self._down(products)), self.down_bias)

    def part(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """What this device's part of the hidden size adds to the result."""
        return self._down(nn.matmuls(x, *self._into))

    @property
    def _into(self) -> list[Array]:
        return [w[...] for w in (self.up, self.gate) if w is not None]

    def _down(self, products: tuple[Array, ...]) -> Array:
        biased = map(plus, products, (self.up_bias, self.gate_bias))
        up, *gate = map(checkpoint_name, biased, ("up", "gate"))
        hidden = checkpoint_name(nn.swiglu(gate[0], up) if gate else nn.gelu(up), "hidden")
        return rows(hidden, self.down[...], self.down_adapter)


def plus(x: Array, bias: nnx.Param[Array] | Array | None) -> Array:
    """Adds a bias to every vector of x, if there is one."""
    return x if bias is None else x + nn.expand_to(x, bias[...])


def matrix(
    rngs: nnx.Rngs, i: int, o: int, layers: int = 0, *, count: int | None = None
) -> nnx.Param[Array]:
    """A random matrix that preserves the scale of activations.

    With `layers`, it is for an output that each of so many layers adds twice to the residual
    stream, and is scaled down so that the sum keeps its scale. With `count`, there are so many.
    """
    shape = (i, o) if count is None else (count, i, o)
    return nnx.Param(jax.random.normal(rngs.params(), shape) / math.sqrt(i * max(1, 2 * layers)))
