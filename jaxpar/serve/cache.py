"""The cache of keys and values: one layer of it, and where the tokens of each row are in it.

A cache is a list of layers, and a program that gets it donated writes into it. Both would be lost
with an array of all layers: a loop over it copies each layer in each step.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, Shaped

from jaxpar.flash import attend
from jaxpar.mesh import vary
from jaxpar.parallel.decode import (
    attend_page_by_page,
    merge_over_shards,
    slot_attention,
    write_tokens,
)

TOKENS_AT_ONCE = 64  # of a row, in a loop over its pages
MOST = 127  # the largest number of 8 bits that has a negative one


class Layer(NamedTuple):
    """The keys and values of one layer, in p places (slots or pages) for s tokens each.

    Attributes:
        keys: [p, k, s, h]; in 8 bits, if there are scales.
        values: the same.
        key_scales: for each token and head what its elements are multiplied by, [p, k, s, 1]; None:
            they are as they were computed.
        value_scales: the same.
    """

    keys: Shaped[Array, "p k s h"]
    values: Shaped[Array, "p k s h"]
    key_scales: Float[Array, "p k s 1"] | None = None
    value_scales: Float[Array, "p k s 1"] | None = None

    @property
    def size(self) -> int:
        """The tokens of a place."""
        return self.keys.shape[2]

    def write(self, k: Array, v: Array, places: Array, offsets: Array) -> "Layer":
        """The layer with new keys and values, [b, k, t, h], each at its place and offset."""
        new = Layer(k, v)
        if self.key_scales is not None:
            (k, key_scales), (v, value_scales) = in_8_bits(k), in_8_bits(v)
            new = Layer(k, v, key_scales, value_scales)
        return jax.tree.map(lambda x, one: write_tokens(x, one, places, offsets), self, new)

    def read(self, places: Int[Array, "b m"]) -> tuple[Array, Array]:
        """The keys and values of some places of each row, one after the other."""
        here = jax.tree.map(lambda x: _joined(x[places]), self)
        if here.key_scales is None:
            return here.keys, here.values
        return here.keys * here.key_scales, here.values * here.value_scales


def in_8_bits(
    x: Float[Array, "b k t h"],
) -> tuple[Int[Array, "b k t h"], Float[Array, "b k t 1"]]:
    """Integers of 8 bits and their scale: one for each token and head.

    Source: Sheng et al. 2023 (FlexGen), section 4.2, with a scale for each token and head
    """
    wide = x.astype(jnp.float32)
    scale = jnp.abs(wide).max(-1, keepdims=True) / MOST
    return jnp.round(wide / jnp.where(scale > 0, scale, 1)).astype(jnp.int8), scale


class Slots(NamedTuple):
    """Row i is in slot i, or if they are given in slot `rows[i]`; a slot has all its tokens."""

    rows: Int[Array, " b"] | None = None

    def at(self, positions: Int[Array, "b t"], size: int) -> tuple[Array, Array]:
        """The place and the offset of each token, in places for `size` tokens."""
        rows = jnp.arange(len(positions)) if self.rows is None else self.rows
        return jnp.broadcast_to(rows[:, None], positions.shape), positions

    def attend(
        self, q: Array, layer: Layer, lengths: Int[Array, " b"], *, axis: str | None
    ) -> Array:
        """Attention of the last tokens of each row, which has `lengths` of them."""
        keys, values = layer.keys, layer.values
        if self.rows is not None:
            keys, values = layer.read(self.rows[:, None])
        if axis is None:
            return slot_attention(q, keys, values, lengths)
        positions = lengths[:, None] - q.shape[2] + jnp.arange(q.shape[2])[None]
        here = jnp.arange(layer.size) * lax.axis_size(axis) + lax.axis_index(axis)
        part = attend(vary(q, (axis,)), keys, values, here[None, None] <= positions[:, :, None])
        return merge_over_shards(*part, axis=axis).astype(q.dtype)


class Pages(NamedTuple):
    """Row i is in the pages `table[i]`, in the order of its tokens."""

    table: Int[Array, "b m"]

    def at(self, positions: Int[Array, "b t"], size: int) -> tuple[Array, Array]:
        """The place and the offset of each token, in places for `size` tokens."""
        last = self.table.shape[1] - 1
        pages = jnp.take_along_axis(self.table, jnp.minimum(positions // size, last), axis=1)
        return pages, positions % size

    def attend(
        self, q: Array, layer: Layer, lengths: Int[Array, " b"], *, axis: str | None
    ) -> Array:
        """Attention of the last tokens of each row, which has `lengths` of them."""
        # Some pages at once: the products of one are too small to be fast.
        count = max(1, TOKENS_AT_ONCE // layer.size)
        table = jnp.pad(self.table, ((0, 0), (0, -self.table.shape[1] % count)))

        def read(j: Array) -> tuple[Array, Array]:
            return layer.read(lax.dynamic_slice_in_dim(table, j * count, count, axis=1))

        return attend_page_by_page(q, read, lengths, page_size=count * layer.size, axis=axis)


def _joined(x: Shaped[Array, "b m k s h"]) -> Shaped[Array, "b k n h"]:
    """The tokens of the places of each row as those of one place."""
    b, m, k, s, h = x.shape
    return x.swapaxes(1, 2).reshape(b, k, m * s, h)


def own_offsets(offsets: Int[Array, "b t"], size: int, *, axis: str | None) -> Int[Array, "b t"]:
    """The offsets on this device, which has `size` of a place: `size` for those of other devices.

    Device i of n has the tokens at i, i+n, ..., so that all have equally many of any length.
    """
    if axis is None:
        return offsets
    n = lax.axis_size(axis)
    return jnp.where(offsets % n == lax.axis_index(axis), offsets // n, size)


def empty_layer(
    places: int, kv_heads: int, size: int, d_head: int, dtype: jnp.dtype, *, bits: int | None = None
) -> Layer:
    """A layer without tokens; with 8 `bits`, each number is kept in so many."""
    shape, narrow = (places, kv_heads, size, d_head), jnp.int8 if bits == 8 else dtype
    scale = (*shape[:3], 1) if bits == 8 else None
    # Each array is one of its own: it will be donated.
    keys, values = (jnp.zeros(shape, narrow) for _ in range(2))
    scales = (None if scale is None else jnp.zeros(scale) for _ in range(2))
    return Layer(keys, values, *scales)
