"""Which attention a decoder computes, and at which positions: one seam for all ways to do so.

Every kind maps (q, k, v) of a device's own positions to what these positions attend to.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from jax import Array
from jax.ad_checkpoint import checkpoint_name

from jaxpar import nn
from jaxpar.kernels import fused_attention
from jaxpar.parallel import context

Attend = Callable[[Array, Array, Array], Array]

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
    attend: Attend


class Context(NamedTuple):
    """A way to attend between positions on different devices.

    Attributes:
        attend: the function, which takes the mesh axis as well.
        layout: the positions of each device, as `jaxpar.parallel.context.positions` names them.
    """

    attend: Callable[..., Array]
    layout: str


CONTEXTS = {
    "zigzag": Context(context.zigzag_ring_attention, "zigzag"),
    "ring": Context(context.ring_attention, "contiguous"),
    "gather": Context(context.gather_attention, "zigzag"),
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

    def attend(q: Array, k: Array, v: Array) -> Array:
        if by_tiles(kind, q.shape[2]):
            return fused_attention(q, k, v)
        return checkpoint_name(nn.attention(q, k, v), "attended")

    return attend


def over_devices(kind: str, axis: str) -> Attend:
    """Attention where the devices of an axis split the positions, by one of `CONTEXTS`."""
    return partial(CONTEXTS[kind].attend, axis=axis)
