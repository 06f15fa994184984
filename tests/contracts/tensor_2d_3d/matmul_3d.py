"""Answers to matmul_3d: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import gathered, hop, own_shard, scattered
from tests.contracts.answers import right
from tests.contracts.ring_and_tree.common import ring_reduce_scatter
from tests.contracts.tensor_2d_3d.common import gathered_by_ring


@right
def cube_with_w_travelling(x, w, *, x_axis, y_axis, z_axis):
    x, n = gathered(x, y_axis), lax.axis_size(x_axis)
    blocks = [scattered(x @ w, z_axis)]
    for _ in range(n - 1):
        w = hop(w, x_axis)
        blocks.append(scattered(x @ w, z_axis))
    in_order = jnp.stack(blocks)[(lax.axis_index(x_axis) - jnp.arange(n)) % n]
    return jnp.concatenate(list(in_order), axis=1)


@wrong("values")
def cube_of_mirrored_rows(x, w, *, x_axis, y_axis, z_axis):
    """Right where `y_axis` has two devices or one."""
    n, blocks = lax.axis_size(y_axis), [x]
    for _ in range(n - 1):
        blocks.append(hop(blocks[-1], y_axis))
    mirrored = jnp.stack(blocks)[(lax.axis_index(y_axis) + jnp.arange(n)) % n]
    products = mirrored.reshape(-1, x.shape[1]) @ gathered(w, x_axis, 1)
    return scattered(products, z_axis)


@right
def cube_untiled(x, w, *, x_axis, y_axis, z_axis):
    rows = lax.all_gather(x, y_axis).reshape(-1, x.shape[1])
    columns = jnp.moveaxis(lax.all_gather(w, x_axis), 0, 1).reshape(len(w), -1)
    parts = (rows @ columns).reshape(lax.axis_size(z_axis), -1, columns.shape[1])
    return lax.psum_scatter(parts, z_axis)


@right
def cube_by_rings(x, w, *, x_axis, y_axis, z_axis):
    products = gathered_by_ring(x, y_axis) @ gathered_by_ring(w, x_axis, 1)
    parts = products.reshape(lax.axis_size(z_axis), -1, products.shape[1])
    return ring_reduce_scatter(parts, z_axis)


@right
def cube_by_exchange(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis) @ gathered(w, x_axis, 1)
    parts = products.reshape(lax.axis_size(z_axis), -1, products.shape[1])
    return lax.all_to_all(parts, z_axis, 0, 0).sum(axis=0)


@wrong("values")
def cube_of_two(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis) @ gathered(w, x_axis, 1)
    start = lax.axis_index(z_axis) * (len(products) // 2)
    return lax.dynamic_slice_in_dim(lax.psum(products, z_axis), start, len(x))


@wrong("values")
def cube_in_bfloat16(x, w, *, x_axis, y_axis, z_axis):
    x_i = gathered(x.astype(jnp.bfloat16), y_axis, 0)
    w_j = gathered(w.astype(jnp.bfloat16), x_axis, 1)
    products = (x_i @ w_j).astype(x.dtype)
    return scattered(products, z_axis)


@wrong("gradient")
def cube_of_fixed_x(x, w, *, x_axis, y_axis, z_axis):
    return cube_untiled(lax.stop_gradient(x), w, x_axis=x_axis, y_axis=y_axis, z_axis=z_axis)


@wrong("communication")
def cube_gathered_again(x, w, *, x_axis, y_axis, z_axis):
    @jax.checkpoint
    def product(x, w):
        return gathered(x, y_axis) @ gathered(w, x_axis, 1)

    return scattered(product(x, w), z_axis)


@wrong("communication")
def cube_of_gathered_products(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis) @ gathered(w, x_axis, 1)
    return own_shard(lax.all_gather(products, z_axis).sum(axis=0), z_axis)
