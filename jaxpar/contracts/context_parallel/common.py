"""What the exercises of the lesson on context parallelism have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Expected, Limit
from jaxpar.contracts.blocks import mesh_order
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.steps import hop
from jaxpar.flash import Part, attend, merge

PARTS = ("jaxpar.flash.attend", "jaxpar.flash.merge")
"""What the lesson prints, and every answer may import."""

RETURNS = ("permute", "all_gather", "reduce_scatter")
"""Kinds of collective in which keys, values and their gradients may travel for a gradient."""

NEVER = -1e30
OPPOSITE = 3000.0
"""How far from 0 values are that cancel, so that their sums in bfloat16 are plainly wrong."""

LARGE, APART = 400.0, 1.0625
"""Scores of the keys with these values, and how much larger those of the second block are.

exp of such a score is infinite in float32, and bfloat16 has neither it nor a log-sum-exp near it.
"""


def attended(q: Array, k: Array, v: Array, mask: Any = None) -> Array:
    """Attention with all scores at once; without a mask every query sees every key."""
    k, v = (jnp.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = jnp.einsum("bath,bash->bats", q, k) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = jnp.where(mask[None, None], scores, -jnp.inf)
    return jnp.einsum("bats,bash->bath", jax.nn.softmax(scores), v)


def past(t: int) -> Array:
    """Which keys each of t queries sees: those that are not after it."""
    return jnp.tril(jnp.ones((t, t), bool))


def contiguous(n: int, t: int) -> np.ndarray:
    """The positions of n devices with t each, device after device."""
    return np.arange(n * t)


def zigzag(n: int, t: int) -> np.ndarray:
    """The positions of n devices that have chunks i and 2n-1-i of 2n."""
    chunks = np.arange(n * t).reshape(2 * n, -1)
    return np.concatenate([chunks[[i, 2 * n - 1 - i]].ravel() for i in range(n)])


def causal_oracle(order: Callable[[int, int], np.ndarray]) -> Callable[..., list[Expected]]:
    """Causal attention of positions that are split in this order."""

    def oracle(case: Case, q: Array, k: Array, v: Array) -> list[Expected]:
        n = case.sizes[case.kwargs["axis"]]
        places = order(n, q.shape[2] // n)
        mask = jnp.asarray(places[:, None] >= places[None])
        return [Expected(blocks(case, attended(q, k, v, mask)))]

    return oracle


def blocks(case: Case, y: Array) -> Array:
    """What each device holds of [b a s h]: b is split over the other axes, s over `axis`."""
    n = case.sizes[case.kwargs["axis"]]
    others = [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]
    b, a, s, h = y.shape
    parts = y.reshape(*others, b // math.prod(others), a, n, s // n, h)
    return mesh_order(case, jnp.moveaxis(parts, -3, 0))


def split_case(
    mesh: str,
    axis: str,
    *,
    b: int = 1,
    a: int = 4,
    kv: int = 2,
    s: int = 32,
    h: int = 8,
    dtype: str = "float32",
    draw: Any = "normal",
) -> Case:
    """Positions are split over `axis`, and examples over all other axes; b is of one device."""
    others = {name: n for name, n in parse_mesh(mesh).items() if name != axis}
    examples = "_".join(["b", *others])
    b *= math.prod(others.values())

    def heads(count: int, draw: Any) -> ArraySpec:
        return ArraySpec((b, count, s, h), f"{examples} a t_{axis} h", dtype, draw)

    args = {"q": heads(a, draw), "k": heads(kv, "normal"), "v": heads(kv, "normal")}
    return Case(mesh, args, {"axis": axis})


def opposite_blocks(
    block_of: Callable[[Case, int], np.ndarray],
) -> Callable[[Case, list[np.ndarray]], None]:
    """Inputs in bfloat16 that show in which dtype an answer computes over blocks of keys.

    `block_of` takes the case and the number of keys, and returns the number of each key's block.
    """

    def arrange(case: Case, inputs: list[np.ndarray]) -> None:
        """Gives queries in bfloat16 two blocks of keys with large scores, whose values cancel."""
        q, k, v = inputs
        if k.dtype == np.float32:
            return
        block, unit = block_of(case, k.shape[2]), math.sqrt(q.shape[-1])
        one, two = block == 1, block == 2
        # Queries that are not split come after all keys.
        later = block > 2 if q.shape[2] == k.shape[2] else np.ones(q.shape[2], bool)
        k[:, :, two] = k[:, :, one]
        q[..., 0], k[..., 0] = np.where(later, 512, -512), LARGE * unit / 512 * (one | two)
        q[..., 1], k[..., 1] = 8, APART * unit / 8 * two
        # What is left of the values is large enough for the rounding that an answer may do.
        left = v.astype(np.float32) * np.where(one | two, 4, 1)[:, None]
        v[:] = left + OPPOSITE * (one - two * math.exp(-APART))[:, None]

    return arrange


def of_devices(
    order: Callable[[int, int], np.ndarray], *, chunks: int = 1
) -> Callable[[Case, int], np.ndarray]:
    """Blocks of keys that are split in this order; a device has `chunks` of them."""

    def block_of(case: Case, s: int) -> np.ndarray:
        n = case.sizes[case.kwargs["axis"]]
        return order(n, s // n) // (s // (chunks * n))

    return block_of


def kv_bytes(sizes: Sizes) -> int:
    """The bytes of a device's keys and values."""
    return sizes.bytes("k") + sizes.bytes("v")


def in_float32(sizes: Sizes, name: str) -> float:
    """The bytes that an argument has on one device in float32."""
    (leaf,) = (spec for argument, spec in sizes.case.arrays() if argument == name)
    return sizes.bytes(name) * (2 if leaf.dtype == "bfloat16" else 1)


def _round_the_ring(sizes: Sizes) -> int:
    return (sizes.n() - 1) * kv_bytes(sizes)


def _there_and_home(sizes: Sizes) -> float:
    """Keys and values once more, and n hops of their gradients, which are sums in float32."""
    gradients = in_float32(sizes, "k") + in_float32(sizes, "v")
    return _round_the_ring(sizes) + sizes.n() * gradients


RING = Communication(
    "permutes to a neighbour only, (n-1) times k and v; backward at most (n-1) times k and v, and "
    "n times their gradients, which may be float32",
    forward=((Limit(("permute",), "axis", _round_the_ring, neighbours=True, exact=True),),),
    backward=((Limit(RETURNS, "axis", _there_and_home),),),
)

Mask = Callable[..., Any]
"""(round, this device, source, t) -> which keys of the source each query sees; None: all."""


def by_position(order: Callable[[int, int], np.ndarray]) -> Callable[[str], Mask]:
    """Masks that compare positions, which are split in this order."""

    def of_axis(axis: str) -> Mask:
        def mask(r: int, i: Array, source: Array, t: int) -> Array:
            n = lax.axis_size(axis)
            places = jnp.asarray(order(n, t)).reshape(n, t)
            return places[i][:, None] >= places[source][None]

        return mask

    return of_axis


def ring_by_hand(
    q: Array,
    k: Array,
    v: Array,
    axis: str,
    mask: Mask,
    *,
    by: int = 1,
    source: Callable[[Array, int], Array] = lambda i, r: i - r,
    rounds: int | None = None,
    arrive: Callable[[tuple[Array, Array], str, int], tuple[Array, Array]] | None = None,
    join: Callable[[list[Part]], Array] | None = None,
) -> Array:
    """A ring in a Python loop, differentiated by JAX, with one step done in another way."""
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), q.shape[2]
    arrive = arrive or (lambda kv, axis, by: (hop(kv[0], axis, by), hop(kv[1], axis, by)))
    parts, kv = [], (k, v)
    for r in range(n if rounds is None else rounds):
        kv = arrive(kv, axis, by) if r else kv
        seen = mask(r, i, source(i, r) % n, t)
        parts.append(attend(q, *kv, None if seen is None else seen[None]))
    return (join or merged)(parts).astype(q.dtype)


def merged(parts: list[Part]) -> Array:
    """The result for the keys of all parts."""
    done, *others = parts
    for part in others:
        done = merge(done, part)
    return done[0]


def merge_without_maximum(one: Part, two: Part) -> Part:
    """As `merge`, but exp overflows where a log-sum-exp is large."""
    first, second = (jnp.exp(lse)[..., None] for _, lse in (one, two))
    both = first + second
    return (one[0] * first + two[0] * second) / both, jnp.log(both)[..., 0]
