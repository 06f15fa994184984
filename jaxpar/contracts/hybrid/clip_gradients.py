"""Clipping by the norm of leaves that are split over different axes, each of which counts once."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.hybrid.common import EVERY_KIND, held
from jaxpar.mesh import vary, varying_axes
from jaxpar.parallel import hybrid

_SCALAR_BYTES = 4


def _clipped(case: Case, grads: Any) -> list[Expected]:
    leaves, max_norm = jax.tree.leaves(grads), case.kwargs["max_norm"]
    norm = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in leaves))
    factor = jnp.where(norm > max_norm, max_norm / norm, 1)
    layouts = (leaf.layout for _, leaf in case.arrays())
    scaled = [Expected(held(case, x * factor, at)) for x, at in zip(leaves, layouts, strict=True)]
    return scaled + whole_on_all(case, norm)


def _one_number_to_each(sizes: Sizes) -> float:
    devices = math.prod(sizes.case.sizes.values())
    return _SCALAR_BYTES * (devices - 1) * len(sizes.leaf_bytes("grads"))


def _zeros(shape: tuple[int, ...], layout: str) -> Made:
    return Made(Function("jax.numpy:zeros_like"), (ArraySpec(shape, layout),))


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Three other axes and low precision; nothing but zeros; one array, and one device."""
    a, b, c = axis_names(rng, 3, besides=("dp", "ep", "fsdp", "pp", "tp"))
    k = pick(rng, (17, 19, 23))
    # Few of these elements are large, so that it shows if bfloat16 rounds their squares, and
    # squares of the wide ones are more than float16 holds.
    few = partial(ArraySpec, dtype="bfloat16", draw="spread")
    wide = partial(ArraySpec, dtype="float16", draw="wide")
    low = {
        "layers": [
            {
                "up": few((3 * k, 2, 7, 4), f"l_{a} d_{b} e f_{c}"),
                "down": wide((k, 4 * 11), f"f d_{c}_{b}"),
                "gain": few((k,), "d"),
            }
            for _ in range(2)
        ],
        "ends": (
            few((6 * k, 9), f"v_{c}_{a} d"),
            wide((2 * k, 13), f"d_{b} v"),
            ArraySpec((), ""),
        ),
    }
    zeros = [_zeros((5 * k, 3), f"d_{b} f"), _zeros((k,), "d"), _zeros((2 * k, 10), f"d_{a} f_{b}")]
    alone = ArraySpec((k, 2 * k), f"d_{a} f_{b}")
    return (
        Case(
            mesh_of(rng, **{a: 3, b: 2, c: 2}), {"grads": low}, {"max_norm": pick(rng, (3.0, 7.5))}
        ),
        Case(mesh_of(rng, **{a: 2, b: 5}), {"grads": zeros}, {"max_norm": pick(rng, (0.2, 4.0))}),
        Case(f"{a}=1,{b}=2", {"grads": alone}, {"max_norm": k - 0.75}),
    )


CONTRACT = Contract(
    kind="program",
    task="scale the gradients down to `max_norm` where their norm exceeds it, and return the norm",
    reference=hybrid.clip_gradients,
    oracle=_clipped,
    cases=(
        Case(
            "pp=2,fsdp=2,tp=2",
            {
                "grads": {
                    "layers": {
                        "up": ArraySpec((4, 8, 12), "l_pp d_fsdp f_tp"),
                        "gain": ArraySpec((4, 24), "l_pp d"),
                    },
                    "table": ArraySpec((64, 8), "v_fsdp_tp d"),
                    "head": ArraySpec((8, 16), "d f_tp"),
                    "gain": ArraySpec((8,), "d"),
                }
            },
            # More than the norm of what one device has, so that none can decide for itself.
            {"max_norm": 25.0},
        ),
        Case(
            "dp=2,ep=4",
            {
                "grads": [
                    ArraySpec((8, 6, 9), "e_ep d f"),
                    ArraySpec((10, 14), "d f_dp"),
                    ArraySpec((10,), "d"),
                    ArraySpec((64, 10), "v_dp_ep d"),
                ]
            },
            {"max_norm": 100.0},
        ),
        Case(
            "fsdp=3,tp=2",
            {"grads": (ArraySpec((9, 10), "d_fsdp f_tp"), ArraySpec((5,), "d"))},
            {"max_norm": 1.0},
        ),
    ),
    draw=_drawn,
    communication=Communication(
        "numbers only: for each gradient at most one to every other device",
        forward=((Limit(EVERY_KIND, None, _one_number_to_each),),),
    ),
    hints=(
        "Add up the squares of each leaf over the axes that split it, and over no others: along "
        "these the devices have copies. varying_axes(leaf) of jaxpar.mesh names the axes.",
        "Leaves that are split over the same axes need one number together: the sum of their "
        "squares, in float32. lax.psum it over these axes, add up all such sums, and take the "
        "root.",
        "max_norm / jnp.maximum(norm, max_norm) is 1 where the norm is small enough, and never "
        "0/0. A float32 factor makes a bfloat16 leaf float32: cast the product back.",
    ),
    minimal="Every device must know something of all elements, and one number for each set of axes "
    "holds it: where a device has what no other has, it cannot send less.",
    harder="A gradient that is not finite makes the norm NaN or infinite. Skip such a step: return "
    "zeros, on all devices or on none.",
)


def _squares(x: Array) -> Array:
    """The sum of squares of what this device has of a leaf."""
    return jnp.sum(x.astype(jnp.float32) ** 2)


def _own_squares(grads: Any) -> Array:
    """The sum of squares of all that this device has."""
    return _total(map(_squares, jax.tree.leaves(grads)))


def _total(numbers: Iterable[Array]) -> Array:
    return sum(numbers, jnp.float32(0))


def _added(x: Array, axes: Collection[str]) -> Array:
    return lax.psum(x, tuple(axes)) if axes else x


def _of_leaf(x: Array) -> Array:
    """The sum of squares of a leaf, which differs over the axes that split it."""
    return _added(_squares(x), varying_axes(x))


def _norm(grads: Any) -> Array:
    return jnp.sqrt(_total(map(_of_leaf, jax.tree.leaves(grads))))


def _scaled(grads: Any, factor: Array) -> Any:
    return jax.tree.map(lambda x: (x * factor).astype(x.dtype), grads)


def _factor(norm: Array, max_norm: float) -> Array:
    return max_norm / jnp.maximum(norm, max_norm)


def _by(norm: Array, grads: Any, max_norm: float) -> tuple[Any, Array]:
    return _scaled(grads, _factor(norm, max_norm)), norm


def _all_axes() -> tuple[str, ...]:
    return jax.sharding.get_abstract_mesh().axis_names


@wrong("values")
def own_norm(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """This is the norm of what one device has; add up the squares of all parts of a leaf before
    you take the root."""
    return _by(jnp.sqrt(_own_squares(grads)), grads, max_norm)


@wrong("values")
def copies_counted(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The squares of every leaf are added up over all devices, so that a leaf of which several
    devices have copies counts several times. Add it up over the axes that split it alone."""
    own = vary(_own_squares(grads), _all_axes())
    return _by(jnp.sqrt(lax.psum(own, _all_axes())), grads, max_norm)


@wrong("values")
def squares_averaged(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The squares are averaged over the devices; the parts of a leaf are different elements, whose
    squares add up."""
    own = vary(_own_squares(grads), _all_axes())
    return _by(jnp.sqrt(lax.pmean(own, _all_axes())), grads, max_norm)


@wrong("values")
def norms_of_devices_added(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The norms of the parts of a leaf are added; add up squares, and take the root at the end."""
    norms = [_added(jnp.sqrt(_squares(x)), varying_axes(x)) for x in jax.tree.leaves(grads)]
    return _by(jnp.sqrt(_total(norm**2 for norm in norms)), grads, max_norm)


@wrong("values")
def norms_of_leaves_added(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The norms of the leaves are added; add up the squares of all leaves, and take one root."""
    return _by(_total(jnp.sqrt(_of_leaf(x)) for x in jax.tree.leaves(grads)), grads, max_norm)


@wrong("values")
def norm_without_root(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """This is the square of the norm; take its root."""
    return _by(_norm(grads) ** 2, grads, max_norm)


@wrong("values")
def small_ones_scaled_up(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The gradients get the norm `max_norm` even where theirs is smaller; scale them down only."""
    norm = _norm(grads)
    return _scaled(grads, max_norm / norm), norm


@wrong("values")
def zeros_divided_by_zero(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The norm may be 0, and 0/0 is NaN; divide by what is never 0, such as the larger of the norm
    and `max_norm`."""
    norm = _norm(grads)
    return _scaled(grads, jnp.minimum(norm, max_norm) / norm), norm


@wrong("values")
def each_leaf_by_its_norm(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """Each leaf is scaled by its own norm, which changes the direction of the step; scale all of
    them by one factor."""
    by_itself = lambda x: _by(jnp.sqrt(_of_leaf(x)), x, max_norm)[0]  # noqa: E731
    return jax.tree.map(by_itself, grads), _norm(grads)


@wrong("values")
def elements_clipped(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """Each element is clipped by itself; it is the norm that is limited, by one factor for all."""
    return jax.tree.map(lambda x: jnp.clip(x, -max_norm, max_norm), grads), _norm(grads)


@wrong("values")
def devices_decide(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """Each device compares the norm of what it has with `max_norm`; all must compare the norm of
    all leaves, or some devices scale their parts and others do not."""
    own, norm = jnp.sqrt(_own_squares(grads)), _norm(grads)
    return _scaled(grads, jnp.where(own > max_norm, _factor(norm, max_norm), 1)), norm


@wrong("values")
def norm_after_clipping(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The norm of the scaled gradients is returned; return the one that they had before."""
    norm = _norm(grads)
    return _scaled(grads, _factor(norm, max_norm)), jnp.minimum(norm, max_norm)


@wrong("values")
def not_scaled(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The norm is right, and the gradients are as they were; scale them where it is too large."""
    return grads, _norm(grads)


@wrong("values")
def squares_of_low_precision(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The squares are computed in the dtype of the leaves: in float16 those of more than 255 are
    infinite, and bfloat16 keeps three digits; cast each leaf to float32 first."""
    squares = [_added(jnp.sum(x**2), varying_axes(x)) for x in jax.tree.leaves(grads)]
    return _by(jnp.sqrt(_total(x.astype(jnp.float32) for x in squares)), grads, max_norm)


@wrong("values")
def results_in_float32(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """A leaf of low precision times a float32 factor is float32; cast it back to its dtype."""
    norm = _norm(grads)
    factor = _factor(norm, max_norm)
    return jax.tree.map(lambda x: x.astype(jnp.float32) * factor, grads), norm


@wrong("values")
def norm_of_low_precision(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The norm is returned in the dtype of the leaves; it is a float32, whatever they are."""
    scaled, norm = _by(_norm(grads), grads, max_norm)
    return scaled, norm.astype(jax.tree.leaves(grads)[0].dtype)


@wrong("communication")
def leaves_gathered(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The parts of all devices are gathered; the sum of the squares of each part is enough."""

    def whole(x: Array) -> Array:
        axes = tuple(varying_axes(x))
        return lax.all_gather(x, axes) if axes else x

    return _by(jnp.sqrt(_own_squares(jax.tree.map(whole, grads))), grads, max_norm)


@wrong("communication")
def squares_added_one_by_one(grads: Any, *, max_norm: float) -> tuple[Any, Array]:
    """The squares are added up over the devices one by one; add them up on each device first, and
    send one number."""
    wide = jax.tree.map(lambda x: x.astype(jnp.float32) ** 2, jax.tree.leaves(grads))
    squares = _total(jnp.sum(_added(x, varying_axes(x))) for x in wide)
    return _by(jnp.sqrt(squares), grads, max_norm)
