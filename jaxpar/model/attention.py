"""Which attention a decoder computes, and at which positions: one seam for all ways to do so.

Every kind maps (q, k, v) of a device's own positions to what these positions attend to. The numbers
of the documents of all positions, [b s], are None where attention crosses from one to the next.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name

from jaxpar import nn
from jaxpar.flash import attend, packed_attention, usual_tile
from jaxpar.kernels import fused_attention
from jaxpar.parallel import context

Attend = Callable[[Array, Array, Array, Array | None], Array]

KINDS = ("flash", "plain")
# From this many positions on, attention by tiles is faster than with a matrix of all scores.
FLASH_FROM = 512


class Cached(NamedTuple):
    """How new tokens attend where the keys and values of earlier ones are in a cache.

    Attributes:
        positions: those of the new tokens, which differ from row to row, [b, t].
        attend: the function, which writes their keys and values, too.
    """

    positions: Array
    attend: Callable[[Array, Array, Array], Array]


class Context(NamedTuple):
    """A way to attend between positions on different devices.

    Attributes:
        attend: the function, which takes the mesh axis as well.
        layout: the positions of each device, as `jaxpar.parallel.context.positions` names them.
        takes_documents: whether it can keep attention within documents.
    """

    attend: Callable[..., Array]
    layout: str
    takes_documents: bool = False


CONTEXTS = {
    "zigzag": Context(context.zigzag_ring_attention, "zigzag"),
    "ring": Context(context.ring_attention, "contiguous"),
    "gather": Context(context.gather_attention, "zigzag", takes_documents=True),
    "ulysses": Context(context.ulysses_attention, "contiguous"),
}
RINGS = ("zigzag", "ring")


def by_tiles(kind: str | None, t: int) -> bool:
    """Whether a kind of attention on one device, or None for what is faster, is by tiles.

    Where the devices have a kernel for it, that kernel takes the place of the loop over tiles.
    """
    return kind == "flash" or (kind is None and t >= FLASH_FROM)


def on_one_device(kind: str | None) -> Attend:
    """Attention where a device has all positions: "flash", "plain", or None for what is faster."""

    def attention(q: Array, k: Array, v: Array, documents: Array | None) -> Array:
        t = q.shape[2]
        if not by_tiles(kind, t):
            plain = nn.attention(q, k, v) if documents is None else _within(documents, q, k, v)
            return checkpoint_name(plain, "attended")
        if documents is None:
            return fused_attention(q, k, v)
        return packed_attention(q, k, v, documents, tile=usual_tile(t))

    return attention


def over_devices(kind: str, axis: str) -> Attend:
    """Attention where the devices of an axis split the positions, by one of `CONTEXTS`."""
    of_kind = partial(CONTEXTS[kind].attend, axis=axis)

    def attention(q: Array, k: Array, v: Array, documents: Array | None) -> Array:
        return of_kind(q, k, v) if documents is None else of_kind(q, k, v, documents=documents)

    return attention


def _within(documents: Array, q: Array, k: Array, v: Array) -> Array:
    """Causal attention within documents, by a matrix of all scores."""
    t = q.shape[2]
    before = jnp.tril(jnp.ones((t, t), bool))[None]
    same = documents[:, :, None] == documents[:, None]
    return attend(q, k, v, before & same)[0].astype(v.dtype)
