"""Answers to grouped_matmul: right ones by other routes, and wrong ones."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


def _places(x, w, sizes, block):
    """Where each row goes, the owner of each block, and how many blocks there are."""
    if block < 1:
        raise ValueError(f"block is {block}; use 1 or more")
    count = len(w)
    most = -(-len(x) // block) + count
    full = -(-sizes // block)
    ends, last, row = jnp.cumsum(full), jnp.cumsum(sizes), jnp.arange(len(x))
    group = jnp.searchsorted(last, row, side="right")
    own = jnp.minimum(group, count - 1)
    place = (ends - full)[own] * block + row - (last - sizes)[own]
    owner = jnp.searchsorted(ends, jnp.arange(most), side="right")
    return jnp.where(group < count, place, most * block), jnp.minimum(owner, count - 1), most


def _filled(x, place, most, block):
    empty = jnp.zeros_like(x, shape=(most * block, x.shape[1]))
    return empty.at[place].set(x, mode="drop").reshape(most, block, -1)


def _read(y, place):
    return y.reshape(-1, y.shape[-1]).at[place].get(mode="fill", fill_value=0)


@right
def blocks_by_map(x, w, sizes, *, block, skip=False):
    place, owner, most = _places(x, w, sizes, block)
    blocks = _filled(x, place, most, block)
    return _read(lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner)), place)


@right
def blocks_by_scan_with_remat(x, w, sizes, *, block, skip=False):
    place, owner, most = _places(x, w, sizes, block)

    @jax.checkpoint
    def one(carry, each):
        rows, i = each
        return carry, rows @ lax.dynamic_index_in_dim(w, i, keepdims=False)

    _, y = lax.scan(one, (), (_filled(x, place, most, block), owner))
    return _read(y, place)


@partial(jax.custom_vjp, nondiff_argnums=())
def _multiplied(blocks, w, owner):
    return lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner))


def _gradients(kept, dy):
    blocks, w, owner = kept

    def one(dw, each):
        rows, i, of_rows = each
        product = jnp.matmul(rows.T, of_rows, preferred_element_type=jnp.float32)
        return dw.at[i].add(product), of_rows @ w[i].T

    zeros = 0 * (w.astype(jnp.float32) + dy.astype(jnp.float32).sum())
    dw, dx = lax.scan(one, zeros, (blocks, owner, dy))
    return dx, dw.astype(w.dtype), np.zeros(owner.shape, jax.dtypes.float0)


_multiplied.defvjp(lambda *given: (_multiplied(*given), given), _gradients)


@right
def blocks_with_a_gradient_by_hand(x, w, sizes, *, block, skip=False):
    place, owner, most = _places(x, w, sizes, block)
    return _read(_multiplied(_filled(x, place, most, block), w, owner), place)


@right
def blocks_with_a_row_of_zeros(x, w, sizes, *, block, skip=False):
    """One row more, for what belongs nowhere."""
    place, owner, most = _places(x, w, sizes, block)
    filled = jnp.zeros_like(x, shape=(most * block + 1, x.shape[1])).at[place].set(x)
    blocks = filled[:-1].reshape(most, block, -1)
    y = lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner)).reshape(most * block, -1)
    return jnp.concatenate([y, jnp.zeros_like(y[:1])])[place]


@right
def blocks_gathered_by_row(x, w, sizes, *, block, skip=False):
    """For each place in the blocks, its row of x."""
    place, owner, most = _places(x, w, sizes, block)
    rows = jnp.full_like(place, len(x), shape=(most * block,))
    rows = rows.at[place].set(jnp.arange(len(x)), mode="drop")
    blocks = x.at[rows].get(mode="fill", fill_value=0).reshape(most, block, -1)
    return _read(lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner)), place)


@right
def blocks_with_owners_by_comparison(x, w, sizes, *, block, skip=False):
    place, _, most = _places(x, w, sizes, block)
    ends = jnp.cumsum(-(-sizes // block))
    owner = (jnp.arange(most)[:, None] >= ends[None]).sum(axis=1)
    blocks = _filled(x, place, most, block)
    return _read(lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner)), place)


@wrong("values")
def blocks_of_full_groups(x, w, sizes, *, block, skip=False):
    """As many blocks as if there were no rests: the last groups find no room."""
    if block < 1:
        raise ValueError(block)
    place, owner, _ = _places(x, w, sizes, block)
    most = -(-len(x) // block)
    blocks = _filled(x, place, most, block)
    y = lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner[:most]))
    return _read(y, place)


@wrong("values")
def blocks_with_one_too_few(x, w, sizes, *, block, skip=False):
    """Enough, unless nearly every group has a rest of a row, and so has all of x."""
    place, owner, _ = _places(x, w, sizes, block)
    most = max(1, (len(x) + len(w) * (block - 1)) // block - 1) if block > 1 else len(x)
    blocks = _filled(x, place, most, block)
    return _read(lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner[:most])), place)


@wrong("values")
def blocks_past_the_groups_not_a_number(x, w, sizes, *, block, skip=False):
    place, owner, most = _places(x, w, sizes, block)
    blocks = _filled(x, place, most, block)
    y = lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner))
    return y.reshape(-1, y.shape[-1]).at[place].get(mode="fill", fill_value=jnp.nan)


@wrong("values")
def blocks_of_four_groups(x, w, sizes, *, block, skip=False):
    few = sizes * (jnp.arange(len(sizes)) < 4)
    return blocks_by_map(x, w, few, block=block)


@wrong("values")
def blocks_of_rounded_sizes(x, w, sizes, *, block, skip=False):
    up = jnp.minimum(-(-sizes // block) * block, len(x))
    return blocks_by_map(x, w, up, block=block)


@wrong("values")
def blocks_refused_where_rows_are_left(x, w, sizes, *, block, skip=False):
    if len(x) % block:
        raise ValueError("rows must fill blocks")
    return blocks_by_map(x, w, sizes, block=block)


@wrong("gradient")
def blocks_with_padding_in_the_gradient(x, w, sizes, *, block, skip=False):
    """Padding repeats the last row, whose gradient is then counted again."""
    place, owner, most = _places(x, w, sizes, block)
    blocks = _filled(x, place, most, block)
    y = _read(lax.map(lambda each: each[0] @ w[each[1]], (blocks, owner)), place)
    return y + jnp.where(jnp.isnan(y), 0, 0.5 * (y - lax.stop_gradient(y)))


@wrong("memory")
def blocks_at_once(x, w, sizes, *, block, skip=False):
    place, owner, most = _places(x, w, sizes, block)
    blocks = _filled(x, place, most, block)
    return _read(jax.vmap(lambda rows, i: rows @ w[i])(blocks, owner), place)


@wrong("memory")
def groups_as_large_as_all_rows(x, w, sizes, *, block, skip=False):
    """Each group has room for all rows: e times the work."""
    if block < 1:
        raise ValueError(block)
    last, row = jnp.cumsum(sizes), jnp.arange(len(x))
    group = jnp.searchsorted(last, row, side="right")
    start = (last - sizes).at[group].get(mode="fill", fill_value=0)
    place = jnp.where(group < len(w), group * len(x) + row - start, len(w) * len(x))
    return _read(_filled(x, place, len(w), len(x)) @ w, place)


@wrong("flops")
def blocks_of_two_rows(x, w, sizes, *, block, skip=False):
    return blocks_by_map(x, w, sizes, block=min(block, 2))


@wrong("errors")
def blocks_refused_as_they_divide(x, w, sizes, *, block, skip=False):
    """Python refuses to divide by 0, with another error."""
    -(-len(x) // block)
    return blocks_by_map(x, w, sizes, block=block)
