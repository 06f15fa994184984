"""What the exercises of the lesson on ring and tree have in common."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Limit
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.steps import hop


def ring_case(mesh: str, x: ArraySpec, **kwargs: str | int) -> Case:
    """A case with one array x."""
    return Case(mesh, {"x": x}, kwargs)


def distances(n: int) -> list[int]:
    """1, 2, 4, ... below n."""
    return [1 << k for k in range((n - 1).bit_length())]


def _doubling_steps(sizes: Sizes) -> int:
    return len(distances(sizes.n()))


# One permute of x for each doubling.
DOUBLING = Limit(
    ("permute",),
    "axis",
    lambda sizes: _doubling_steps(sizes) * sizes.bytes("x"),
    times=_doubling_steps,
)


def chunks(x: Array, n: int) -> Array:
    """An array as n flat chunks of equal size, padded with zeros: [n, elements]."""
    return jnp.pad(x.ravel(), (0, -x.size % n)).reshape(n, -1)


def received(x: Array, axis: str, hops: int, by: int = 1) -> list[Array]:
    """What arrives on this device in each hop, where each device passes on what came last."""
    blocks = [x]
    for _ in range(hops):
        blocks.append(hop(blocks[-1], axis, by))
    return blocks[1:]


def in_device_order(x: Array, before: list[Array], after: list[Array], *, axis: str) -> Array:
    """A stack of n blocks: before[k] at i - 1 - k, after[k] at i + 1 + k, and x at i."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    slots = [x] + [jnp.zeros_like(x)] * (n - 1)  # slots[k] goes to i + k
    for k, block in enumerate(before, start=1):
        slots[-k % n] = block
    for k, block in enumerate(after, start=1):
        slots[k % n] = block
    return jnp.stack(slots)[(jnp.arange(n) - i) % n]
