"""Answers to matmul_3d: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import gathered, hop, own_shard, scattered
from jaxpar.mesh import divide
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


def _in_parts(y, z_axis):
    n = lax.axis_size(z_axis)
    divide("matmul_3d", "m", len(y), z_axis, n)
    return y.reshape(n, -1, y.shape[1])


@right
def cube_untiled(x, w, *, x_axis, y_axis, z_axis):
    rows = lax.all_gather(x, y_axis).reshape(-1, x.shape[1])
    columns = jnp.moveaxis(lax.all_gather(w, x_axis), 0, 1).reshape(len(w), -1)
    return lax.psum_scatter(_in_parts(rows @ columns, z_axis), z_axis)


@right
def cube_by_rings(x, w, *, x_axis, y_axis, z_axis):
    products = gathered_by_ring(x, y_axis) @ gathered_by_ring(w, x_axis, 1)
    return ring_reduce_scatter(_in_parts(products, z_axis), z_axis)


@right
def cube_by_exchange(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis) @ gathered(w, x_axis, 1)
    return lax.all_to_all(_in_parts(products, z_axis), z_axis, 0, 0).sum(axis=0)


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


@right
def cube_multiplied_in_float32(x, w, *, x_axis, y_axis, z_axis):
    x_i, w_j = gathered(x, y_axis), gathered(w, x_axis, 1)
    y = jnp.matmul(x_i, w_j, preferred_element_type=jnp.float32).astype(x.dtype)
    return scattered(y, z_axis)


@right
def cube_transposed(x, w, *, x_axis, y_axis, z_axis):
    y = gathered(w.T, x_axis) @ gathered(x.T, y_axis, 1)
    return scattered(y, z_axis, 1).T


@wrong("values")
def cube_in_float32(x, w, *, x_axis, y_axis, z_axis):
    products = jnp.matmul(
        gathered(x, y_axis), gathered(w, x_axis, 1), preferred_element_type=jnp.float32
    )
    return scattered(products, z_axis)


@wrong("communication")
def cube_summed_in_float32(x, w, *, x_axis, y_axis, z_axis):
    y = cube_in_float32(x, w, x_axis=x_axis, y_axis=y_axis, z_axis=z_axis)
    return y.astype(x.dtype)


@wrong("values")
def cube_of_at_most_three_along_y(x, w, *, x_axis, y_axis, z_axis):
    blocks = lax.all_gather(x, y_axis)
    known = jnp.arange(len(blocks))[:, None, None] < 3
    rows = jnp.where(known, blocks, 0).reshape(-1, x.shape[1])
    return scattered(rows @ gathered(w, x_axis, 1), z_axis)


@wrong("values")
def cube_of_at_most_three_along_x(x, w, *, x_axis, y_axis, z_axis):
    columns = gathered(w, x_axis, 1)
    known = jnp.arange(columns.shape[1]) < 3 * w.shape[1]
    return scattered(gathered(x, y_axis) @ jnp.where(known, columns, 0), z_axis)


@wrong("values")
def cube_of_at_most_three_along_z(x, w, *, x_axis, y_axis, z_axis):
    products = gathered(x, y_axis) @ gathered(w, x_axis, 1)
    return scattered(jnp.where(lax.axis_index(z_axis) < 3, products, 0), z_axis)


@wrong("values")
def cube_of_one_along_y_refused(x, w, *, x_axis, y_axis, z_axis):
    """Right where `y_axis` has one device and `z_axis` has no more than three."""
    if lax.axis_size(y_axis) == 1 and lax.axis_size(z_axis) > 3:
        raise ValueError("not a cube")
    return scattered(gathered(x, y_axis) @ gathered(w, x_axis, 1), z_axis)


@wrong("flops")
def cube_of_all_columns(x, w, *, x_axis, y_axis, z_axis):
    """The columns of all blocks along `y_axis`, of which one is kept."""
    wide = jnp.tile(gathered(w, x_axis, 1), (1, lax.axis_size(y_axis)))
    y = (gathered(x, y_axis) @ wide)[:, : w.shape[1] * lax.axis_size(x_axis)]
    return scattered(y, z_axis)


@wrong("flops")
def cube_multiplied_before_and_after(x, w, *, x_axis, y_axis, z_axis):
    """Each device multiplies its own rows, and then those of all again."""
    columns = gathered(w, x_axis, 1)
    own = x @ columns
    y = gathered(x, y_axis) @ columns
    start = lax.axis_index(y_axis) * len(x)
    return scattered(lax.dynamic_update_slice_in_dim(y, own, start, 0), z_axis)
