"""A mean over the devices that leaves padding out."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import on_every_device
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.data_parallel.common import ITEM_BYTES
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.parallel import data


def _mean_of_real(case: Case, values: Array, mask: Array) -> list[Expected]:
    others = [size for axis, size in case.sizes.items() if axis != case.kwargs["axis"]]
    total, count = (
        part.reshape(len(part), *others, -1).sum(axis=(0, -1))
        for part in (jnp.where(mask, values, 0), mask)
    )
    return [Expected(on_every_device(case, total / count))]


def _case(mesh: str, shape: tuple[int, ...], layout: str, *, axis: str) -> Case:
    args = {
        "values": ArraySpec(shape, layout, draw="sparse"),
        "mask": ArraySpec(shape, layout, "bool", draw="padded"),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (4, 3), (3, 3)))
    shape, layout = (
        (n * pick(rng, (13, 14)), others * pick(rng, (29, 31)), 3),
        f"b_{axis} t_{other} d",
    )
    low = {  # of one sign: what is left of a sum of both may be too little for bfloat16
        "values": ArraySpec(shape, layout, "bfloat16", draw="sparse"),
        "mask": ArraySpec(shape, layout, "bool", draw="holes"),
    }
    shape, layout = (pick(rng, range(21, 25)), 4 * 5), f"b_{axis} t_{other}"
    alone = {
        "values": ArraySpec(shape, layout, draw="spread"),
        "mask": ArraySpec(shape, layout, "bool", draw="holes"),
    }
    # More real values than bfloat16 can count, of one sign: float32 has nearly all of their sum.
    shape, layout = (2 * pick(rng, (13, 15)), 4 * pick(rng, (51, 53))), f"b_{axis} t_{other}"
    many = {
        "values": ArraySpec(shape, layout, draw="positive"),
        "mask": ArraySpec(shape, layout, "bool", draw="holes"),
    }
    return (
        Case(mesh_of(rng, **{axis: n, other: others}), low, {"axis": axis}),
        Case(f"{axis}=1,{other}=4", alone, {"axis": axis}),
        Case(mesh_of(rng, **{axis: 2, other: 4}), many, {"axis": axis}),
    )


def _spoil_padding(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN and infinity where the mask is false."""
    values, mask = inputs
    values[~mask] = np.nan
    values[..., ::2][~mask[..., ::2]] = np.inf


CONTRACT = Contract(
    kind="program",
    task="return the mean of the values whose mask is true, over all devices of `axis`",
    reference=data.masked_mean,
    oracle=_mean_of_real,
    cases=(
        _case("dp=8", (8 * 40,), "b_dp", axis="dp"),
        _case("fsdp=2,tp=3", (2 * 9, 3 * 4), "b_fsdp t_tp", axis="fsdp"),
    ),
    draw=_drawn,
    poison=_spoil_padding,
    gradient=("values",),
    communication=Communication(
        "scalars only: a total and a count from each device",
        forward=(
            (
                Limit(
                    ("all_reduce", "all_to_all", "permute"),
                    "axis",
                    lambda s: 2 * ITEM_BYTES * (s.n() - 1),
                ),
            ),
        ),
        backward="forward",
    ),
    hints=(
        "A mean is a total divided by a count, and padding may be in neither.",
        "Devices have different numbers of real values, so you may not average their means.",
        "Sum the total and the count over the devices with lax.psum, and divide after that; a "
        "device that has nothing but padding adds 0 to both.",
    ),
    minimal="Each device must send two numbers and receive two.",
    harder="Return the largest of the real values, too.",
)


def _total(values: Array, mask: Array) -> Array:
    """The sum of this device's real values."""
    return jnp.sum(values, where=mask)


@wrong("values")
def mean_of_means(values: Array, mask: Array, *, axis: str) -> Array:
    """You average the means of the devices, though they have different numbers of real values; sum
    the totals and the counts over the devices, then divide."""
    mean = _total(values, mask) / jnp.maximum(mask.sum(), 1)
    return lax.pmean(mean, axis)


@wrong("values")
def sum_of_means(values: Array, mask: Array, *, axis: str) -> Array:
    """You add up the means of the devices, though they have different numbers of real values; sum
    the totals and the counts over the devices, then divide."""
    return lax.psum(_total(values, mask) / jnp.maximum(mask.sum(), 1), axis)


@wrong("values")
def empty_device_counts_as_one(values: Array, mask: Array, *, axis: str) -> Array:
    """A device that has no real value counts as if it had one; it must add 0 to the total and to
    the count, and you divide by no count of one device."""
    count = jnp.maximum(mask.sum(), 1)
    return lax.psum(_total(values, mask), axis) / lax.psum(count, axis)


@wrong("values")
def padding_multiplied(values: Array, mask: Array, *, axis: str) -> Array:
    """Padding is multiplied by 0, which NaN and infinity survive; leave it out with
    jnp.sum(values, where=mask), or replace it by zeros with jnp.where."""
    total, count = lax.psum(((values * mask).sum(), mask.sum()), axis)
    return total / count


@wrong("values")
def first_values_counted(values: Array, mask: Array, *, axis: str) -> Array:
    """You take the first values of each device, as many as are real; padding may stand between
    real values, so choose them with the mask."""
    total = jnp.where(jnp.arange(mask.size) < mask.sum(), values.ravel(), 0).sum()
    return lax.psum(total, axis) / lax.psum(mask.sum(), axis)


@wrong("values")
def nan_of_padding(values: Array, mask: Array, *, axis: str) -> Array:
    """Each device divides by its own count of real values, and a device that has none computes 0/0,
    a nan that spoils the mean; sum totals and counts over the devices, then divide."""
    return lax.pmean(_total(values, mask) / mask.sum(), axis)


@wrong("values")
def nan_stays_local(values: Array, mask: Array, *, axis: str) -> Array:
    """Each device returns the mean of its own values, which is nan where it has no real one; sum
    totals and counts over the devices, then divide."""
    return _total(values, mask) / mask.sum()


@wrong("values")
def padding_counted(values: Array, mask: Array, *, axis: str) -> Array:
    """You divide the total by the number of all values; count the real ones only."""
    return lax.pmean(_total(values, mask) / mask.size, axis)


@wrong("values")
def padding_averaged(values: Array, mask: Array, *, axis: str) -> Array:
    """The mask is not used: padding is averaged with the real values."""
    return lax.pmean(values.mean(), axis)


@wrong("values")
def padding_added(values: Array, mask: Array, *, axis: str) -> Array:
    """The padded values are in the total; leave them out with the mask."""
    return lax.psum(values.sum(), axis) / lax.psum(mask.sum(), axis)


@wrong("values")
def numerator_only(values: Array, mask: Array, *, axis: str) -> Array:
    """You sum the totals over the devices, but divide by the count of real values on this device;
    sum the counts, too."""
    return lax.psum(_total(values, mask), axis) / jnp.maximum(mask.sum(), 1)


@wrong("values")
def numerator_as_mean(values: Array, mask: Array, *, axis: str) -> Array:
    """You divide the mean of the devices' totals by the count on all devices, so the result is n
    times too small; take the sum of the totals."""
    return lax.pmean(_total(values, mask), axis) / lax.psum(mask.sum(), axis)


@wrong("values")
def mean_stays_local(values: Array, mask: Array, *, axis: str) -> Array:
    """Each device returns the mean of its own values; sum totals and counts over the devices."""
    return _total(values, mask) / jnp.maximum(mask.sum(), 1)


@wrong("values")
def sum_of_real(values: Array, mask: Array, *, axis: str) -> Array:
    """This is the sum of the real values; divide it by their number."""
    return lax.psum(_total(values, mask), axis)


@wrong("gradient")
def masked_mean_cuts_gradient(values: Array, mask: Array, *, axis: str) -> Array:
    """Your gradient is 1 over the number of real values on this device; it must be 1 over their
    number on all devices."""
    total = lax.psum(lax.stop_gradient(_total(values, mask)), axis)
    mine = _total(values, mask) - lax.stop_gradient(_total(values, mask))
    return total / lax.psum(mask.sum(), axis) + mine / jnp.maximum(mask.sum(), 1)


@wrong("communication")
def gathers_values(values: Array, mask: Array, *, axis: str) -> Array:
    """Every device's values are gathered; a total and a count from each are enough."""
    values, mask = lax.all_gather((values, mask), axis)
    return _total(values, mask) / mask.sum()


@wrong("communication")
def adds_devices_first(values: Array, mask: Array, *, axis: str) -> Array:
    """You sum the values over the devices one by one; sum them on each device first, and send a
    total and a count."""
    total, count = lax.psum((jnp.where(mask, values, 0), mask.astype(values.dtype)), axis)
    return total.sum() / count.sum()
