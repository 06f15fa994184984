"""Sequence parallelism: between tensor-parallel blocks, the positions are split over the devices.

Norms, dropout and residuals work on [b, t/n, d]. Before the column-parallel matrices there is an
all-gather, and after the row-parallel ones a reduce-scatter, where tensor parallelism alone has
nothing and an all-reduce.
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
GATHERED = "gathered"  # the name by which a policy of `jax.checkpoint` keeps gathered positions


def gather_sequence(x: Float[Array, "b t_tp d"], *, axis: str) -> Float[Array, "b t d"]:
    """Gathers all positions on every device.

    Math: y = [x_1, ..., x_n]
    Comm:
        forward: all_gather(axis) x
        backward: reduce_scatter(axis) n*x
    Memory: n*x
    Source: Korthikanti et al. 2022, section 4.2.2 (g)
    """
    return lax.all_gather(x, axis, axis=1, tiled=True)


def scatter_sequence(x: Float[Array, "b t d"], *, axis: str) -> Float[Array, "b t_tp d"]:
    """Sums x over the devices, and gives each device its positions of the sum.

    Math: y = sum_j x_j[:, t_i] on device i
    Comm:
        forward: reduce_scatter(axis) x
        backward: all_gather(axis) x/n
    Memory: x/n
    Source: Korthikanti et al. 2022, section 4.2.2 (g bar)
    """
    return lax.psum_scatter(x, axis, scatter_dimension=1, tiled=True)


def gathered_linear(
    x: Float[Array, "b t_tp d"],
    *weights: Float[Array, "d _"],
    axis: str,
    keep: Keep = "shard",
) -> tuple[Float[Array, "b t _"], ...]:
    """Multiplies all positions by this device's columns of several matrices, after one all-gather.

    With `keep="shard"`, only this device's positions are kept for the gradient with respect to the
    weights, and the backward pass gathers them again (`again` is 1 below); with `keep="gathered"`,
    all are kept (`again` is 0).

    Math: y_k = [x_1, ..., x_n] @ weights_k
    Comm:
        forward: all_gather(axis) x
        backward: all_gather(axis) again*x + reduce_scatter(axis) n*x
    Memory: y
    Source: Korthikanti et al. 2022, section 4.2.2
    """
    x, *columns = vary_alike(x, *weights)
    if keep == "shard":
        return _gathered_again(axis, x, tuple(columns))
    return _products(checkpoint_name(gather_sequence(x, axis=axis), GATHERED), tuple(columns))


def sequence_parallel_mlp(
    x: Float[Array, "b t_tp d"],
    w_up: Float[Array, "d f_tp"],
    w_down: Float[Array, "f_tp d"],
    *,
    axis: str,
) -> Float[Array, "b t_tp d"]:
    """The MLP of GPT with tanh GELU, on positions that are split over the devices.

    x is this device's positions; device i has the i-th of n equal parts. `w_up` is this device's
    columns of the full matrix, and `w_down` is its rows. The result is the output of the full MLP
    for this device's positions. All three have the same dtype, in which positions and sums are
    sent, and which the result has.

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
def _gathered_again(axis: str, x: Array, weights: tuple[Array, ...]) -> tuple[Array, ...]:
    """The products of the gathered positions, which the backward pass gathers a second time."""
    return _products(gather_sequence(x, axis=axis), weights)


def _forward(axis: str, x: Array, weights: tuple[Array, ...]) -> tuple:
    # This does not call `_gathered_again`: a policy of `jax.checkpoint` would not see its products.
    return _products(gather_sequence(x, axis=axis), weights), (x, weights)


def _backward(axis: str, residuals: tuple, gradients: tuple[Array, ...]) -> tuple:
    x, weights = residuals
    _, vjp = jax.vjp(_products, gather_sequence(x, axis=axis), weights)
    x_gradient, weight_gradients = vjp(gradients)
    return scatter_sequence(x_gradient, axis=axis), weight_gradients


_gathered_again.defvjp(_forward, _backward)
