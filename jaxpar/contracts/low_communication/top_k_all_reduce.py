"""A mean over the devices of the k largest numbers of each, with error feedback."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import mesh_order, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.low_communication.common import first_above, given, groups, held, where_in
from jaxpar.mesh import parse_mesh
from jaxpar.parallel import compress

ROUNDING = 1e-6  # of the largest magnitude
SENT = 0.01  # of a number that is sent, what may be left of it: more than bfloat16 rounds away


def _averaged(case: Case, x: Array, error: Array) -> list[Expected]:
    """One right result; where numbers are equal, there are others."""
    corrected = groups(case, x) + groups(case, error)
    _, places = lax.top_k(jnp.abs(corrected), case.kwargs["k"])
    sent = jnp.put_along_axis(
        jnp.zeros_like(corrected),
        places,
        jnp.take_along_axis(corrected, places, axis=-1),
        axis=-1,
        inplace=False,
    )
    mean = on_every_device(case, sent.mean(axis=0))
    return [Expected(mean), Expected(mesh_order(case, corrected - sent))]


def _law(case: Case, inputs: list[np.ndarray], outputs: list[np.ndarray]) -> str | None:
    """Each device sends k numbers, nothing larger is left, and what is sent is in the mean."""
    x, error = (given(case, array) for array in inputs)
    mean, left = (held(case, array) for array in outputs)
    corrected, k = x + error, case.kwargs["k"]
    magnitudes = np.abs(corrected)
    slack = ROUNDING * magnitudes.max()
    sent = corrected - left
    counts = (np.abs(sent) > slack).sum(axis=-1, keepdims=True)
    kth = np.sort(magnitudes, axis=-1)[..., -k][..., None]
    most = np.where(np.abs(sent) > slack, np.maximum(SENT * magnitudes, slack), kth + slack)
    if at := first_above(np.abs(left), most):
        return (
            f"{where_in(case, at)} of x + error is {corrected[at]:.6g}, and the new error there is "
            f"{left[at]:.6g}; of the {k} largest magnitudes, from {kth[*at[:-1], 0]:.6g} on, "
            "nothing is left, and of the others all"
        )
    if at := first_above(np.where(kth > slack, np.abs(counts - k), 0), np.zeros(counts.shape)):
        return (
            f"the new error lacks {int(counts[at])} numbers of x + error "
            f"{where_in(case, at).partition(',')[0]}; {k} are sent, and all others are left"
        )
    total = sent.mean(axis=0)
    if at := first_above(np.abs(mean - total), np.full(mean.shape, slack)):
        return (
            f"{where_in(case, at)} of the result is {mean[at]:.6g}; the mean of what the devices "
            f"have sent, x + error less the new error, is {total[at[1:]]:.6g}"
        )
    return None


def _case(
    mesh: str,
    axis: str,
    numbers: int,
    k: int,
    dtype: str = "float32",
    draw: Literal["normal", "ties", "spread"] = "normal",
) -> Case:
    over = all_axes(mesh)
    size = int(np.prod([*parse_mesh(mesh).values()])) * numbers
    x = ArraySpec((size,), f"d_{over}", dtype, draw)
    error = ArraySpec((size,), f"d_{over}", draw=draw)
    return Case(mesh, {"x": x, "error": error}, {"axis": axis, "k": k})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """bfloat16; many equal numbers; one device, which sends all."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, others = pick(rng, ((6, 2), (5, 2), (4, 3)))
    # Their places take more than two bytes.
    numbers, k = pick(rng, range(66_000, 66_100)), pick(rng, range(20, 30))
    return (
        _case(mesh_of(rng, **{axis: n, other: others}), axis, numbers, k, "bfloat16", "spread"),
        _case(f"{other}=2,{axis}=2", axis, pick(rng, range(90, 99)), 7, draw="ties"),
        _case(f"{axis}=1,{other}=2", axis, 11, 11),
    )


def _wire_bytes(sizes: Sizes) -> int:
    return (sizes.n() - 1) * 8 * sizes.case.kwargs["k"]


_FIRST = _case("dp=8", "dp", 1000, 32)

CONTRACT = Contract(
    kind="program",
    task="return the mean of the k largest numbers of each device over `axis`, and what is left",
    reference=compress.top_k_all_reduce,
    oracle=_averaged,
    law=_law,
    cases=(_FIRST, _case("dp=3,tp=2", "dp", 700, 50)),
    draw=_drawn,
    errors=(
        BadCall(replace(_FIRST, kwargs={**_FIRST.kwargs, "k": 1001}), "k = 1,001 of 1,000"),
        BadCall(replace(_FIRST, kwargs={**_FIRST.kwargs, "k": 0}), "k = 0"),
    ),
    communication=Communication(
        "an all-gather of k numbers and of their k places, 4 bytes each",
        forward=((Limit(("all_gather", "permute"), "axis", _wire_bytes),),),
    ),
    hints=(
        "Each device sends other places, so nothing can be added up on the way: all devices gather "
        "what all have sent, and add it up themselves.",
        "lax.top_k(jnp.abs(v), k) gives the places; v[places] are the numbers, with their signs. "
        "What is left of v is v.at[places].set(0).",
        "lax.all_gather both; then jnp.zeros(...).at[all_places].add(all_values), because several "
        "devices may send the same place, divided by the number of devices.",
    ),
    minimal="A number is of no use without its place, and every device needs those of all others.",
    harder="Send the places in fewer bits: as the distance from one to the next, in a byte.",
)


def _largest(v: Array, k: int) -> tuple[Array, Array]:
    """The k numbers of largest magnitude, and their places."""
    places = lax.top_k(jnp.abs(v), k)[1]
    return v[places], places


def _sum(values: Array, places: Array, size: int, axis: str) -> Array:
    """The sum of what all devices send."""
    values, places = (lax.all_gather(one, axis) for one in (values, places))
    return jnp.zeros_like(values, shape=size).at[places].add(values)


def _reduced(v: Array, axis: str, k: int) -> tuple[Array, Array]:
    values, places = _largest(v, k)
    return _sum(values, places, v.size, axis) / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def error_never_added(x, error, *, axis, k):
    """`error` is never added, so what is not sent now is lost for good; take the largest of x +
    error."""
    return _reduced(x + 0 * error, axis, k)


@wrong("values")
def largest_of_x_alone(x, error, *, axis, k):
    """The k places are those of the largest of x; take those of x + error, and what waits long
    enough is sent."""
    places, v = _largest(x, k)[1], x + error
    total = _sum(v[places], places, v.size, axis)
    return total / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def error_dropped(x, error, *, axis, k):
    """The new error is zeros; return what is not sent."""
    mean, left = _reduced(x + error, axis, k)
    return mean, 0 * left


@wrong("values")
def sent_numbers_kept(x, error, *, axis, k):
    """The new error is what was sent; it must be what was not: x + error with 0 at the k places."""
    mean, left = _reduced(x + error, axis, k)
    return mean, x + error - left


@wrong("values")
def error_unchanged(x, error, *, axis, k):
    """The error is returned as it came; it must be what is left of x + error."""
    return _reduced(x + error, axis, k)[0], error


@wrong("values")
def error_of_x_alone(x, error, *, axis, k):
    """The new error is what is left of x; what is left of the old error belongs to it as well."""
    mean, left = _reduced(x + error, axis, k)
    return mean, jnp.where(left == 0, left, x)


@wrong("values")
def error_against_the_mean(x, error, *, axis, k):
    """The new error is x + error less the mean; it is x + error less what this device sent."""
    mean, _ = _reduced(x + error, axis, k)
    return mean, x + error - mean


@wrong("values")
def magnitudes_sent(x, error, *, axis, k):
    """The magnitudes of the largest numbers are sent, without their signs; lax.top_k of jnp.abs
    gives you places, at which the numbers themselves are."""
    v = x + error
    values, places = lax.top_k(jnp.abs(v), k)
    total = _sum(values, places, v.size, axis)
    return total / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def largest_above_zero(x, error, *, axis, k):
    """The k largest numbers are sent, not those of largest magnitude; large negative ones must be
    among them."""
    v = x + error
    values, places = lax.top_k(v, k)
    total = _sum(values, places, v.size, axis)
    return total / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def set_in_place_of_add(x, error, *, axis, k):
    """Where several devices send the same place, only one of them counts; use .at[places].add."""
    v = x + error
    values, places = _largest(v, k)
    values, all_places = (lax.all_gather(one, axis) for one in (values, places))
    total = jnp.zeros_like(v)
    for i in range(len(values)):
        total = total.at[all_places[i]].set(values[i])
    return total / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def own_places_for_all(x, error, *, axis, k):
    """The numbers of all devices are put at the places of this one; gather the places as well."""
    v = x + error
    values, places = _largest(v, k)
    total = jnp.zeros_like(v).at[places].set(lax.psum(values, axis))
    return total / lax.axis_size(axis), v.at[places].set(0)


@wrong("values")
def sum_for_mean(x, error, *, axis, k):
    """What the devices send is added up and not divided by their number."""
    mean, left = _reduced(x + error, axis, k)
    return mean * lax.axis_size(axis), left


@wrong("values")
def divided_by_k(x, error, *, axis, k):
    """The sum is divided by k; divide by the number of devices."""
    mean, left = _reduced(x + error, axis, k)
    return mean * lax.axis_size(axis) / k, left


@wrong("values")
def constant_n(x, error, *, axis, k):
    """The number of devices is a constant, 8; lax.axis_size(axis) is the size of the axis."""
    mean, left = _reduced(x + error, axis, k)
    return mean * lax.axis_size(axis) / 8, left


@wrong("values")
def mean_of_senders(x, error, *, axis, k):
    """Each place is divided by how many devices sent it; divide by the number of all devices, since
    the others add what they keep in a later step."""
    v = x + error
    values, places = _largest(v, k)
    total, count = (_sum(one, places, v.size, axis) for one in (values, jnp.ones_like(values)))
    return total / jnp.maximum(count, 1), v.at[places].set(0)


@wrong("values")
def largest_of_the_sum(x, error, *, axis, k):
    """The k largest are taken of the mean of all devices, for which everything was sent; each
    device takes those of its own."""
    v = x + error
    mean = lax.pmean(v, axis)
    values, places = _largest(mean, k)
    return jnp.zeros_like(mean).at[places].set(values), v.at[places].set(0)


@wrong("values")
def all_as_large_as_the_kth(x, error, *, axis, k):
    """The new error lacks every number as large as the k-th, though only k are sent; where several
    are equal, what is not sent must be left."""
    v = x + error
    values, places = _largest(v, k)
    total = _sum(values, places, v.size, axis)
    left = jnp.where(jnp.abs(v) >= jnp.abs(values).min(), 0, v)
    return total / lax.axis_size(axis), left


@wrong("values")
def results_in_dtype_of_x(x, error, *, axis, k):
    """The results have the dtype of x, and bfloat16 rounds most of an error away; both are
    float32."""
    mean, left = _reduced(x + error, axis, k)
    return mean.astype(x.dtype), left.astype(x.dtype)


@wrong("communication")
def summed_densely(x, error, *, axis, k):
    """All numbers are summed, most of which are 0; send k of them with their places."""
    v = x + error
    places = _largest(v, k)[1]
    left = v.at[places].set(0)
    return lax.pmean(v - left, axis), left


@wrong("communication")
def everything_gathered(x, error, *, axis, k):
    """Everything is gathered, and the largest are taken after that; take them first, and send k of
    them with their places."""
    v = x + error
    every = lax.all_gather(v, axis)
    sent = jnp.stack([row - row.at[_largest(row, k)[1]].set(0) for row in every])
    return sent.mean(axis=0), v.at[_largest(v, k)[1]].set(0)


@wrong("communication")
def largest_sent_among_zeros(x, error, *, axis, k):
    """The k numbers of each device are put among zeros for the others and summed, twice the bytes
    of an all-gather; gather them."""
    v, n, i = x + error, lax.axis_size(axis), lax.axis_index(axis)
    values, places = _largest(v, k)
    every = [
        lax.psum(jnp.zeros_like(one, shape=(n, k)).at[i].set(one), axis) for one in (values, places)
    ]
    total = jnp.zeros_like(v).at[every[1]].add(every[0])
    return total / n, v.at[places].set(0)


@wrong("errors")
def any_k_taken(x, error, *, axis, k):
    """Raise ValueError where k is below 1, or above the size of x."""
    return _reduced(x + error, axis, min(max(k, 1), x.size))
