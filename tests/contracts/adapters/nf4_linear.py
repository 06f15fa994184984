"""Answers to nf4_linear: right ones by other routes, and wrong ones."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.adapters import nf4_linear as contract
from jaxpar.contracts.base import wrong
from jaxpar.mesh import vary_alike
from jaxpar.quantize import nf4_dequantize
from tests.contracts.answers import right


def _checked(packed, largest, block):
    if block % 2 or 2 * packed.shape[1] != block * largest.shape[1]:
        raise ValueError("block")


def _part(packed, largest, block, i, dtype):
    codes = lax.dynamic_slice_in_dim(packed, i * (block // 2), block // 2, 1)
    return nf4_dequantize(codes, lax.dynamic_slice_in_dim(largest, i, 1, 1)).astype(dtype)


@right
def by_map(x, packed, largest, *, block):
    _checked(packed, largest, block)
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))
    columns = jax.checkpoint(lambda i: x @ _part(packed, largest, block, i, x.dtype))
    y = lax.map(columns, jnp.arange(largest.shape[1]))
    return jnp.moveaxis(y, 0, -2).reshape(*x.shape[:-1], -1)


@right
def by_updates_of_the_result(x, packed, largest, *, block):
    _checked(packed, largest, block)
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))

    @partial(jax.checkpoint, prevent_cse=False)
    def columns(x, i):
        return x @ _part(packed, largest, block, i, x.dtype)

    def put(y, i):
        return lax.dynamic_update_slice_in_dim(y, columns(x, i), i * block, y.ndim - 1), None

    y = jnp.zeros_like(x, shape=(*x.shape[:-1], 2 * packed.shape[1]))
    return lax.scan(put, y, jnp.arange(largest.shape[1]))[0]


@right
def with_its_own_derivative(x, packed, largest, *, block):
    _checked(packed, largest, block)
    x, packed, largest = vary_alike(x, packed, largest)
    blocks = jnp.arange(largest.shape[1])

    @jax.custom_vjp
    def product(x, packed, largest):
        y = lax.map(lambda i: x @ _part(packed, largest, block, i, x.dtype), blocks)
        return jnp.moveaxis(y, 0, -2).reshape(*x.shape[:-1], -1)

    def backward(kept, g):
        packed, largest = kept

        def add(total, i):
            own = lax.dynamic_slice_in_dim(g, i * block, block, g.ndim - 1)
            return total + (own @ _part(packed, largest, block, i, g.dtype).T), None

        zeros = jnp.zeros_like(g, shape=(*g.shape[:-1], len(packed)))
        return lax.scan(add, zeros, blocks)[0], None, None

    product.defvjp(lambda *arrays: (product(*arrays), arrays[1:]), backward)
    return product(x, packed, largest)


@wrong("values")
def for_blocks_of_two_sizes(x, packed, largest, *, block):
    _checked(packed, largest, block)
    if block not in (32, 64):
        raise KeyError("another block")
    return by_map(x, packed, largest, block=block)


@wrong("values")
def for_two_dims(x, packed, largest, *, block):
    _checked(packed, largest, block)
    rows, _ = x.reshape(len(x), -1).shape
    return by_map(x.reshape(rows, len(packed)), packed, largest, block=block)


@wrong("memory")
def whole_matrix_computed_again(x, packed, largest, *, block):
    """With a checkpoint, the whole matrix is held forward and backward, though not between."""

    def product(x, packed, largest):
        return contract.whole_matrix(x, packed, largest, block=block)

    return jax.checkpoint(product)(x, packed, largest)


@wrong("memory")
def in_two_halves(x, packed, largest, *, block):
    """Half of the columns at a time, with half a matrix of numbers."""
    _checked(packed, largest, block)
    if largest.shape[1] % 2:
        return by_map(x, packed, largest, block=block)
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))

    def half(i):
        codes = lax.dynamic_slice_in_dim(packed, i * packed.shape[1] // 2, packed.shape[1] // 2, 1)
        size = largest.shape[1] // 2
        return x @ nf4_dequantize(
            codes, lax.dynamic_slice_in_dim(largest, i * size, size, 1)
        ).astype(x.dtype)

    y = lax.map(jax.checkpoint(half), jnp.arange(2))
    return jnp.moveaxis(y, 0, -2).reshape(*x.shape[:-1], -1)


@wrong("memory")
def columns_in_a_python_loop(x, packed, largest, *, block):
    """A loop that XLA sees unrolled, so that it decodes many blocks at once."""
    _checked(packed, largest, block)
    x, packed, largest = vary_alike(x, packed, lax.stop_gradient(largest))
    columns = jax.checkpoint(lambda x, i: x @ _part(packed, largest, block, i, x.dtype))
    return jnp.concatenate([columns(x, i) for i in range(largest.shape[1])], axis=-1)


@wrong("values")
def codes_of_the_first_block(x, packed, largest, *, block):
    _checked(packed, largest, block)
    first = jnp.tile(packed[:, : block // 2], (1, largest.shape[1]))
    return by_map(x, first, largest, block=block)
