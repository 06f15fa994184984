"""The mean of an array over the devices, by one all-reduce."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from jaxpar import collectives
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.collectives.common import NO_GATHER, chunk_bytes
from jaxpar.contracts.draws import all_axes, axis_names, pick
from jaxpar.contracts.variants import Variant


def _mean(case: Case, x: Array) -> list[Expected]:
    return [Expected(on_every_device(case, axis_first(case, x).mean(axis=0)))]


def mean_over_devices(x: Float[Array, ...], *, axis: str) -> Float[Array, ...]:
    """The quadratic mean of every device's x, on every device: the root of the mean square.

    Math: y = sqrt((sum_j x_j**2) / n)
    """
    return jnp.sqrt(collectives.mean_over_devices(x**2, axis=axis))


def _one_all_reduce(sizes: Sizes) -> int:
    return 2 * (sizes.n() - 1) * chunk_bytes(sizes)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """The axis last in its mesh, where n does not divide the size of x; and of one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, wide = pick(rng, (5, 6)), pick(rng, (11, 13, 17))
    mesh = f"{other}=2,{axis}={n}"
    uneven = ArraySpec((2 * n * 7, wide), f"b_{all_axes(mesh)} t", "bfloat16")
    alone = ArraySpec((2 * 3, 4, 1, wide), f"b_{axis}_{other} h t d")
    return (
        Case(mesh, {"x": uneven}, {"axis": axis}),
        Case(f"{axis}=1,{other}=2", {"x": alone}, {"axis": axis}),
    )


CONTRACT = Contract(
    kind="program",
    task="return the mean of x over the devices of `axis`, on every device",
    reference=collectives.mean_over_devices,
    oracle=_mean,
    cases=(
        Case("tp=8", {"x": ArraySpec((8 * 1200,), "b_tp")}, {"axis": "tp"}),
        Case("dp=3,tp=2", {"x": ArraySpec((6 * 6, 5, 2), "b_dp_tp t d")}, {"axis": "dp"}),
    ),
    draw=_drawn,
    gradient=("x",),
    communication=Communication(
        "the bytes of one all-reduce of x, padded to n chunks: at most 2(n-1)/n of it",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", _one_all_reduce),),),
        backward="forward",
    ),
    memory=NO_GATHER,
    hints=(
        "A mean is a sum over the devices and a division on each of them.",
        "lax.psum sums over a mesh axis; lax.axis_size gives the number to divide by.",
    ),
    minimal="Each device must send its x away and receive the mean, which no device knew before: "
    "(n-1)/n of x each way.",
    harder="Take a weight on each device, and return the weighted mean with one all-reduce.",
    variants=(
        Variant(
            mean_over_devices,
            "return the quadratic mean of x over the devices of `axis`, on every device",
            before=jnp.square,
            after=jnp.sqrt,
        ),
    ),
)


@wrong("values")
def sum_for_mean(x: Array, *, axis: str) -> Array:
    """The sum over the devices is not divided by their number."""
    return lax.psum(x, axis)


@wrong("values")
def axis_by_its_name(x: Array, *, axis: str) -> Array:
    """The axis is always "tp" here; use the one that the argument `axis` names."""
    return lax.pmean(x, "tp")


@wrong("values")
def constant_n(x: Array, *, axis: str) -> Array:
    """You divide by a constant, 8, or by the number of all devices; divide by lax.axis_size(axis),
    the size of the axis."""
    return lax.psum(x, axis) / 8


def _mesh_axes() -> tuple[str, ...]:
    return tuple(jax.sharding.get_abstract_mesh().axis_names)


@wrong("values")
def divides_by_whole_mesh(x: Array, *, axis: str) -> Array:
    """The sum over `axis` is divided by the number of devices in the whole mesh; divide by the size
    of `axis`."""
    return lax.psum(x, axis) / lax.axis_size(_mesh_axes())


@wrong("values")
def means_over_whole_mesh(x: Array, *, axis: str) -> Array:
    """The mean is taken over every device of the mesh; take it over `axis` alone."""
    return lax.pmean(x, _mesh_axes())


@wrong("values")
def divides_twice(x: Array, *, axis: str) -> Array:
    """The sum is divided by n twice; lax.pmean has divided already."""
    return lax.pmean(x, axis) / lax.axis_size(axis)


@wrong("values")
def mean_of_elements(x: Array, *, axis: str) -> Array:
    """The elements of x are averaged, too; average over the devices only, element by element."""
    return lax.pmean(jnp.mean(x), axis)


@wrong("values")
def first_axis_of_mesh(x: Array, *, axis: str) -> Array:
    """The mean is taken over the first axis of the mesh; take it over the one that the argument
    `axis` names."""
    return lax.pmean(x, _mesh_axes()[0])


@wrong("values")
def mean_widens_x(x: Array, *, axis: str) -> Array:
    """The result is float32 where x is bfloat16, because n is an array of float32; divide by the
    integer lax.axis_size(axis)."""
    return lax.psum(x, axis) / lax.psum(jnp.float32(1), axis)


@wrong("values")
def needs_even_chunks(x: Array, *, axis: str) -> Array:
    """x is cut into n chunks of equal size, but n need not divide it; pad x, or use lax.psum, which
    does so itself."""
    part = lax.psum_scatter(x.reshape(lax.axis_size(axis), -1), axis) / lax.axis_size(axis)
    return lax.all_gather(part, axis).reshape(x.shape)


@wrong("gradient")
def mean_cuts_gradient(x: Array, *, axis: str) -> Array:
    """The gradient does not pass through the mean; each x gets 1/n of it."""
    return lax.pmean(lax.stop_gradient(x), axis)


@wrong("communication")
def gathers_for_mean(x: Array, *, axis: str) -> Array:
    """Every x is gathered on every device and averaged there: n/2 times the bytes of an
    all-reduce."""
    return jnp.mean(lax.all_gather(x, axis), axis=0)


@wrong("communication")
def averages_in_float32(x: Array, *, axis: str) -> Array:
    """x is converted to float32 before it is sent: twice the bytes where it is bfloat16; average it
    in its own dtype."""
    return lax.pmean(x.astype(jnp.float32), axis).astype(x.dtype)
