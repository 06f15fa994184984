"""A broadcast in ceil(log2 n) steps: every device that holds the array sends it on."""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device, spoil_all_but_root
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.contracts.ring_and_tree.common import DOUBLING, distances, ring_case


def _from_root(case: Case, x: Array) -> list[Expected]:
    return [Expected(on_every_device(case, axis_first(case, x)[case.kwargs["root"]]))]


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, few, width = pick(rng, (9, 10, 11)), pick(rng, (3, 5)), pick(rng, (6, 7, 8))
    return (
        ring_case(
            f"{axis}={n}",  # four steps, and zeros that must arrive, too
            ArraySpec((n * 5, width), f"b_{axis} d", "bfloat16", "sparse"),
            axis=axis,
            root=pick(rng, (1, 2, 3, 6, 7, 8)),
        ),
        ring_case(
            f"{axis}={few},{other}=2",
            ArraySpec((few * 2 * 3, 1, width, 2), f"b_{axis}_{other} t h d", "int32", "large"),
            axis=axis,
            root=0,
        ),
        ring_case(
            f"{other}=2,{axis}=1",
            ArraySpec((2 * 3, width), f"b_{other}_{axis} d"),
            axis=axis,
            root=0,
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return the root's x on every device of `axis`, in ceil(log2 n) permutes",
    reference=collectives.tree_broadcast,
    oracle=_from_root,
    cases=(
        ring_case("tp=8", ArraySpec((8 * 40,), "b_tp"), axis="tp", root=5),
        ring_case(
            "dp=6,tp=2", ArraySpec((12 * 4, 5, 4), "b_dp_tp t d", "bfloat16"), axis="dp", root=4
        ),
    ),
    draw=_drawn,
    poison=spoil_all_but_root,
    gradient=("x",),
    communication=Communication(
        "permutes only, ceil(log2 n) of them, each of x",
        forward=((DOUBLING,),),
        backward="forward",
    ),
    hints=(
        "In every step, all devices that hold the root's x send it on: how many hold it then?",
        "Count places from the root: p = (i - root) % n. Before a step places 0 to h-1 hold it; "
        "in the step, place p sends to place p + h, as long as there is one.",
        "lax.ppermute gives zeros where no pair ends: keep x there with jnp.where. The pairs are "
        "((root + p) % n, (root + p + h) % n) for p in range(min(h, n - h)).",
    ),
    minimal="A step can at most double the number of devices that hold x, so ceil(log2 n) steps "
    "are needed.",
    harder="Write the tree reduce: the same tree, from the leaves to the root.",
)


def _send(x: Array, axis: str, root: int, senders: Sequence[int], by: int) -> Array:
    """What arrives when the devices at these places behind the root send `by` places on."""
    n = lax.axis_size(axis)
    pairs = [((root + p) % n, (root + p + by) % n) for p in senders]
    return lax.ppermute(x, axis, pairs)


def _keep(x: Array, received: Array, place: Array, held: int) -> Array:
    """What was received, on the devices that it was sent to; x on the others."""
    return jnp.where((held <= place) & (place < 2 * held), received, x)


def _behind(axis: str, root: int) -> Array:
    """How many places behind the root this device is."""
    return (lax.axis_index(axis) - root) % lax.axis_size(axis)


def _tree(x: Array, axis: str, root: int, place: Array) -> Array:
    """The broadcast from the root, if `place` is the place of this device behind it."""
    n = lax.axis_size(axis)
    for held in distances(n):
        senders = range(min(held, n - held))
        x = _keep(x, _send(x, axis, root, senders, held), place, held)
    return x


@wrong("values")
def root_is_zero(x: Array, *, axis: str, root: int) -> Array:
    """The x of device 0 is sent; send that of `root`."""
    return _tree(x, axis, 0, _behind(axis, 0))


@wrong("values")
def place_from_zero(x: Array, *, axis: str, root: int) -> Array:
    """You decide by the index of the device whether it keeps what it receives; count its place from
    the root."""
    return _tree(x, axis, root, lax.axis_index(axis))


@wrong("values")
def zeros_without_source(x: Array, *, axis: str, root: int) -> Array:
    """lax.ppermute gives zeros to a device that no pair sends to, and here they overwrite x; keep x
    there with jnp.where."""
    n = lax.axis_size(axis)
    for held in distances(n):
        x = _send(x, axis, root, range(min(held, n - held)), held)
    return x


@wrong("values")
def adds_what_arrives(x: Array, *, axis: str, root: int) -> Array:
    """What arrives is added to x; it must replace it."""
    n = lax.axis_size(axis)
    for held in distances(n):
        x = x + _send(x, axis, root, range(min(held, n - held)), held)
    return x


@wrong("values")
def assumes_power_of_two(x: Array, *, axis: str, root: int) -> Array:
    """The steps are log2 n rounded down, so for other n the last devices receive nothing; round
    up."""
    n, place = lax.axis_size(axis), _behind(axis, root)
    for k in range(n.bit_length() - 1):
        x = _keep(x, _send(x, axis, root, range(1 << k), 1 << k), place, 1 << k)
    return x


@wrong("values")
def three_steps_of_tree(x: Array, *, axis: str, root: int) -> Array:
    """You always make three steps, which are enough for 8 devices; make ceil(log2 n), where n is
    the size of the axis."""
    n, place = lax.axis_size(axis), _behind(axis, root)
    for held in (1, 2, 4):
        x = _keep(x, _send(x, axis, root, range(min(held, n - held)), held), place, held)
    return x


@wrong("values")
def tree_by_mask(x: Array, *, axis: str, root: int) -> Array:
    """What the others hold is multiplied by 0, which NaN and infinity survive; replace it by zeros
    with jnp.where."""
    n = lax.axis_size(axis)
    x = x * (lax.axis_index(axis) == root).astype(x.dtype)
    for held in distances(n):
        x = x + _send(x, axis, root, range(min(held, n - held)), held)
    return x


@wrong("values")
def tree_from_float32(x: Array, *, axis: str, root: int) -> Array:
    """The zeros of the other devices are float32, and so is the result, whatever x is; take
    jnp.zeros_like(x)."""
    n = lax.axis_size(axis)
    x = jnp.where(lax.axis_index(axis) == root, x, jnp.zeros(x.shape))
    for held in distances(n):
        x = x + _send(x, axis, root, range(min(held, n - held)), held)
    return x


@wrong("values")
def only_root_sends(x: Array, *, axis: str, root: int) -> Array:
    """Only the root sends, to one device in each step; let all that hold its x send it on."""
    place = _behind(axis, root)
    for held in distances(lax.axis_size(axis)):
        x = jnp.where(place == held, _send(x, axis, root, [0], held), x)
    return x


@wrong("gradient")
def tree_cuts_gradient(x: Array, *, axis: str, root: int) -> Array:
    """The gradient does not come back to the root; it gets the sum over all devices."""
    n, place = lax.axis_size(axis), _behind(axis, root)
    for held in distances(n):
        received = _send(lax.stop_gradient(x), axis, root, range(min(held, n - held)), held)
        x = _keep(x, received, place, held)
    return x


@wrong("communication")
def root_sends_to_each(x: Array, *, axis: str, root: int) -> Array:
    """The root sends to one device after the other in n-1 steps; let all that hold its x send it
    on."""
    place = _behind(axis, root)
    for p in range(1, lax.axis_size(axis)):
        x = jnp.where(place == p, _send(x, axis, root, [0], p), x)
    return x


@wrong("communication")
def chain_for_tree(x: Array, *, axis: str, root: int) -> Array:
    """x goes from device to device in n-1 steps; let all that hold it send it on."""
    place = _behind(axis, root)
    for p in range(1, lax.axis_size(axis)):
        x = jnp.where(place == p, _send(x, axis, root, [p - 1], 1), x)
    return x


@wrong("communication")
def masked_sum(x: Array, *, axis: str, root: int) -> Array:
    """An all-reduce adds the root's x to zeros; build a tree from lax.ppermute here."""
    is_root = lax.axis_index(axis) == root
    return lax.psum(jnp.where(is_root, x, jnp.zeros_like(x)), axis)


@wrong("communication")
def gathers_for_root(x: Array, *, axis: str, root: int) -> Array:
    """Every device's x is gathered for the root's: n-1 times x, and not by permutes."""
    return lax.all_gather(x, axis)[root]
