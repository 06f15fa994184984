"""A product with a matrix that is split by rows, and its adapter, in one all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.adapters.common import no_gradient_of_the_base, other_axes, rows_of_others
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    among_zeros,
    as_it_is,
    enter,
    gathered,
    scattered,
    with_gradient_divided,
    with_gradient_of_device_zero,
)
from jaxpar.mesh import vary_alike
from jaxpar.parallel import adapters


def _adapted(case: Case, x: Array, w: Array, a: Array, b: Array) -> list[Expected]:
    y = x @ w + case.kwargs["scale"] * ((x @ a) @ b)
    return [Expected(rows_of_others(case, y))]


def _case(
    mesh: str, axis: str, rows: tuple[int, ...], inner: int, d: int, r: int, scale: float,
    dtype: str = "float32",
) -> Case:  # fmt: skip
    """The leading dims of x, of which the first is split over the other axes, as on one device."""
    split, n = other_axes(mesh, axis, "b")
    names = " ".join([split, *"tuv"[: len(rows) - 1]])
    args = {
        "x": ArraySpec((rows[0] * n, *rows[1:], inner), f"{names} f_{axis}", dtype),
        "w": ArraySpec((inner, d), f"f_{axis} d", dtype),
        "a": ArraySpec((inner, r), f"f_{axis} r", dtype),
        "b": ArraySpec((r, d), "r d", dtype),
    }
    return Case(mesh, args, {"axis": axis, "scale": scale})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, others = pick(rng, ((5, 2), (6, 2), (3, 3)))
    d, r, scale = pick(rng, (23, 27, 29)), pick(rng, (3, 5)), float(rng.uniform(0.3, 0.6))
    mesh = mesh_of(rng, **{axis: n, other: others})
    return (
        _case(mesh, axis, (9, pick(rng, (4, 7))), n * 31, d, r, scale, "bfloat16"),
        _case(f"{axis}=1,{other}=2", axis, (pick(rng, (33, 37)),), 45, d + 4, r + 5, 3 + scale),
    )


def _one_result(sizes: Sizes) -> float:
    """Wire bytes of an all-reduce of y."""
    *_, inner = sizes.case.args["x"].shape
    d = sizes.case.args["w"].shape[1]
    n = sizes.n()
    return 2 * (n - 1) / n * sizes.bytes("x") * n * d / inner


CONTRACT = Contract(
    kind="program",
    task="return x @ w + scale * (x @ a) @ b; this device has its columns of x, rows of w and of a",
    reference=adapters.lora_row_linear,
    oracle=_adapted,
    cases=(
        _case("tp=8", "tp", (128,), 8 * 32, 512, 8, 2.0),
        _case("dp=2,tp=2", "tp", (3, 8), 2 * 36, 40, 4, 0.25),
    ),
    draw=_drawn,
    gradient=("x", "a", "b"),
    communication=Communication(
        "one all-reduce of the result's size forward; backward one of b's size",
        forward=((Limit(("all_reduce",), "axis", _one_result),),),
    ),
    flops=no_gradient_of_the_base(),
    hints=(
        "Both products are sums over the columns of x, of which this device has some: so both are "
        "parts of one and the same sum.",
        "Add scale * (x @ a) @ b to x @ w while both are partial, and then sum once. Between a and "
        "b nothing has to be summed, since the product with b is linear.",
        "lax.psum(x @ w + scale * (x @ a) @ b, axis): x @ a is [.., r], as thin as the adapter.",
    ),
    minimal="The result needs every device's part of the sum; b's gradient, too, since each device "
    "has other columns of x @ a.",
    harder="Sum x @ a over the devices instead, and multiply by b afterwards: for which numbers of "
    "tokens does that send less, with the backward pass?",
)

Parts = Callable[[Array, Array, Array, Array, float], Array]


def _thin(x: Array, w: Array, a: Array, b: Array, scale: float) -> Array:
    return x @ w + scale * ((x @ a) @ b)


def _row_linear(
    x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float,
    parts: Parts = _thin, total: Callable[[Array, str], Array] = lax.psum,
) -> Array:  # fmt: skip
    """The sum over the devices of what each computes, with one step done in another way."""
    return total(parts(x, w, a, b, scale), axis)


@wrong("values")
def parts_not_summed(*arrays: Array, axis: str, scale: float) -> Array:
    """Each device returns only its part of the sum; add the parts with lax.psum."""
    return _row_linear(*arrays, axis=axis, scale=scale, total=as_it_is)


@wrong("values")
def parts_averaged(*arrays: Array, axis: str, scale: float) -> Array:
    """The parts are averaged; they are parts of a sum, so use lax.psum."""
    return _row_linear(*arrays, axis=axis, scale=scale, total=lax.pmean)


@wrong("values")
def adapter_left_out(*arrays: Array, axis: str, scale: float) -> Array:
    """This is x @ w alone; add scale * (x @ a) @ b."""
    return _row_linear(*arrays, axis=axis, scale=scale, parts=lambda x, w, a, b, s: x @ w)


@wrong("values")
def scale_left_out(*arrays: Array, axis: str, scale: float) -> Array:
    """The adapter is not scaled; multiply what it adds by `scale`."""
    return _row_linear(*arrays, axis=axis, scale=1.0)


@wrong("values")
def scale_over_rank(*arrays: Array, axis: str, scale: float) -> Array:
    """The scale is divided by the rank; `scale` is alpha/r already, so use it as it is."""
    return _row_linear(*arrays, axis=axis, scale=scale / arrays[2].shape[1])


@wrong("values")
def everything_scaled(*arrays: Array, axis: str, scale: float) -> Array:
    """x @ w is scaled, too; `scale` belongs to the adapter alone."""

    def parts(x: Array, w: Array, a: Array, b: Array, scale: float) -> Array:
        return scale * (x @ w + (x @ a) @ b)

    return _row_linear(*arrays, axis=axis, scale=scale, parts=parts)


@wrong("values")
def adapter_of_own_columns(
    x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float
) -> Array:
    """What the adapter adds is not summed: each device adds the part of its own columns of x after
    the all-reduce; add it before."""
    return lax.psum(x @ w, axis) + scale * ((x @ a) @ b)


@wrong("values")
def adapter_added_n_times(
    x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float
) -> Array:
    """x @ a is summed over the devices, and what the whole adapter adds is summed once more, so
    that it counts n times; sum once, after everything."""
    h = enter(lax.psum(x @ a, axis), axis)
    return lax.psum(x @ w + scale * (h @ b), axis)


@wrong("values")
def adapter_as_a_row_of_its_own(
    x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float
) -> Array:
    """The adapter is applied to the result of x @ w, not beside it."""
    y = lax.psum(x @ w, axis)
    return y + scale * (y @ b.T) @ b


@wrong("gradient")
def b_is_frozen(x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float) -> Array:
    """b has no gradient; w is frozen, but a and b are trained."""
    return _row_linear(x, w, a, lax.stop_gradient(b), axis=axis, scale=scale)


@wrong("gradient")
def a_is_frozen(x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float) -> Array:
    """a has no gradient; w is frozen, but a and b are trained."""
    return _row_linear(x, w, lax.stop_gradient(a), b, axis=axis, scale=scale)


@wrong("gradient")
def gradient_of_b_averaged(
    x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float
) -> Array:
    """The gradient of b is divided by the number of devices; it is the sum over their columns of
    x @ a."""
    b = with_gradient_divided(enter(b, axis), axis)
    return _row_linear(x, w, a, b, axis=axis, scale=scale)


@wrong("gradient")
def gradient_of_b_on_device_zero(
    x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float
) -> Array:
    """The gradient of b is that of device 0's columns alone; sum it over the devices."""
    b = with_gradient_of_device_zero(enter(b, axis), axis)
    return _row_linear(x, w, a, b, axis=axis, scale=scale)


@wrong("communication")
def two_whole_sums(x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float) -> Array:
    """x @ w and what the adapter adds are summed apart: twice the bytes; add them first."""
    return lax.psum(x @ w, axis) + lax.psum(scale * ((x @ a) @ b), axis)


@wrong("communication")
def thin_sum_apart(x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float) -> Array:
    """x @ a is summed over the devices in an all-reduce of its own; the product with b is linear,
    so the sum of the results is enough."""
    return lax.psum(x @ w, axis) + scale * (lax.psum(x @ a, axis) @ b)


@wrong("communication")
def adapter_gathered(x: Array, w: Array, a: Array, b: Array, *, axis: str, scale: float) -> Array:
    """x and a are gathered for the adapter; this device's columns of x need its rows of a only."""
    h = gathered(x, axis, x.ndim - 1) @ gathered(a, axis)
    y = lax.psum(x @ w, axis) + scale * (h @ b)
    return lax.pmean(y, axis)


@wrong("communication")
def summed_in_float32(*arrays: Array, axis: str, scale: float) -> Array:
    """The parts are summed in float32, whatever they are; send them in their own dtype, of which
    bfloat16 takes half the bytes."""

    def total(y: Array, axis: str) -> Array:
        return lax.psum(y.astype(jnp.float32), axis).astype(y.dtype)

    return _row_linear(*arrays, axis=axis, scale=scale, total=total)


@wrong("communication")
def scattered_then_gathered(*arrays: Array, axis: str, scale: float) -> Array:
    """What lax.all_gather gives is equal on all devices, but typed as varying, so its gradient is
    summed once more; lax.psum sends as much, and types it as equal."""

    def total(y: Array, axis: str) -> Array:
        flat = jnp.pad(y.reshape(-1), (0, -y.size % lax.axis_size(axis)))
        return gathered(scattered(flat, axis), axis)[: y.size].reshape(y.shape)

    return _row_linear(*arrays, axis=axis, scale=scale, total=total)


def _merged(x: Array, w: Array, a: Array, b: Array, scale: float) -> Array:
    return x @ (w + scale * (a @ b))


@wrong("communication")
def merged_first(*arrays: Array, axis: str, scale: float) -> Array:
    """The adapter is added to w before the product, so that a gradient as large as w is computed,
    and summed over data-parallel devices; multiply by the thin matrices one after the other:
    (x @ a) @ b."""
    return _row_linear(*arrays, axis=axis, scale=scale, parts=_merged)


@wrong("communication")
def thick_adapter(*arrays: Array, axis: str, scale: float) -> Array:
    """a @ b is computed first: it is as large as w, and so is its gradient, which is summed over
    data-parallel devices; (x @ a) @ b has two thin products."""

    def parts(x: Array, w: Array, a: Array, b: Array, scale: float) -> Array:
        return x @ w + scale * (x @ (a @ b))

    return _row_linear(*arrays, axis=axis, scale=scale, parts=parts)


@wrong("flops")
def all_rows_among_zeros(*arrays: Array, axis: str, scale: float) -> Array:
    """Every device multiplies matrices of all rows, with zeros for those of the others; multiply by
    your own rows only."""

    def parts(x: Array, w: Array, a: Array, b: Array, scale: float) -> Any:
        x, w, a, b = vary_alike(x, w, a, b)
        x = among_zeros(x, axis, x.ndim - 1)
        return _thin(x, among_zeros(w, axis), among_zeros(a, axis), b, scale)

    return _row_linear(*arrays, axis=axis, scale=scale, parts=parts)
