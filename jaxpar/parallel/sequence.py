"""Sequence parallelism: between the blocks of tensor parallelism each device has its positions.

Norms, dropout and residuals work on [b, t/n, d]. An all-gather stands before the columns, and a
reduce-scatter after the rows, where tensor parallelism alone has nothing and an all-reduce.
"""

from functools import partial
from typing import Literal

import jax
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float

from jaxpar import nn
from jaxpar.mesh import vary_alike

Keep = Literal["shard", "gathered"]
GATHERED = "gathered"  # the name of what a policy of recomputation keeps with keep="gathered"


def gather_sequence(x: Float[Array, "b t d"], *, axis: str) -> Float[Array, "b s d"]:
    """Every position, on every device: x is this device's part of them.

    Math: y = [x_1, ..., x_n]
    Comm:
        forward: all_gather(axis) x
        backward: reduce_scatter(axis) n*x
    Memory: n*x
    Source: Korthikanti et al. 2022, section 4.2.2 (g)
    """
    return lax.all_gather(x, axis, axis=1, tiled=True)


def scatter_sequence(x: Float[Array, "b s d"], *, axis: str) -> Float[Array, "b t d"]:
    """This device's positions of the sum of every device's x.

    Math: y = sum_j x_j[:, t_i] on device i
    Comm:
        forward: reduce_scatter(axis) x
        backward: all_gather(axis) x/n
    Memory: x/n
    Source: Korthikanti et al. 2022, section 4.2.2 (g bar)
    """
    return lax.psum_scatter(x, axis, scatter_dimension=1, tiled=True)


def gathered_linear(
    x: Float[Array, "b t d"],
    *weights: Float[Array, "d _"],
    axis: str,
    keep: Keep = "shard",
) -> tuple[Float[Array, "b s _"], ...]:
    """All positions times this device's columns of some matrices, by one gather for all.

    With `keep="shard"` only this device's positions are kept for the gradient of the weights, and
    gathered again; with "gathered" all are kept.

    Math: y_k = [x_1, ..., x_n] @ weights_k
    Comm:
        forward: all_gather(axis) x
        backward: all_gather(axis) again*x + reduce_scatter(axis) n*x
    Memory: y
    Source: Korthikanti et al. 2022, section 4.2.2
    """
    x, *columns = vary_alike(x, *weights)
    if keep == "shard":
        return _gather_twice(axis, x, tuple(columns))
    return _products(checkpoint_name(gather_sequence(x, axis=axis), GATHERED), tuple(columns))


def sequence_parallel_mlp(
    x: Float[Array, "b t d"], w_up: Float[Array, "d f"], w_down: Float[Array, "f d"], *, axis: str
) -> Float[Array, "b t d"]:
    """The MLP of GPT with tanh GELU, of positions that the devices share before and after it.

    x is this device's t positions of n*t, which the devices hold in their order. Of the whole
    matrices, `w_up` is its columns, `w_down` its rows. The result is the MLP's for its positions.

    Math: y = sum_j (gelu(x @ w_up_j) @ w_down_j)[:, t_i] on device i, with x = [x_1, ..., x_n]
    Comm:
        forward: all_gather(axis) x + reduce_scatter(axis) n*x
        backward: all_gather(axis) 2*x + reduce_scatter(axis) n*x
    Memory: x
    Source: Korthikanti et al. 2022, section 4.2.2
    """
    (hidden,) = gathered_linear(x, w_up, axis=axis)
    return scatter_sequence(nn.matmul(nn.gelu(hidden), w_down), axis=axis)


def _products(x: Array, weights: tuple[Array, ...]) -> tuple[Array, ...]:
    return nn.matmuls(x, *weights)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _gather_twice(axis: str, x: Array, weights: tuple[Array, ...]) -> tuple[Array, ...]:
    return _products(gather_sequence(x, axis=axis), weights)


def _forward(axis: str, x: Array, weights: tuple[Array, ...]) -> tuple:
    # Not by `_gather_twice`: a policy of recomputation would not see the products in it.
    return _products(gather_sequence(x, axis=axis), weights), (x, weights)


def _backward(axis: str, kept: tuple, gradients: tuple[Array, ...]) -> tuple:
    x, weights = kept
    _, pull = jax.vjp(_products, gather_sequence(x, axis=axis), weights)
    x_gradient, weight_gradients = pull(gradients)
    return scatter_sequence(x_gradient, axis=axis), weight_gradients


_gather_twice.defvjp(_forward, _backward)
