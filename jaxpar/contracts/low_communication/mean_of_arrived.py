"""The mean of the gradients of those devices that finished in time."""

from __future__ import annotations

from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.losses import on_each_device
from jaxpar.contracts.low_communication.common import all_reduce_bytes, groups
from jaxpar.mesh import parse_mesh
from jaxpar.parallel import local


def _mean(case: Case, gradients: Any, arrived: Array) -> list[Expected]:
    flags = groups(case, arrived)[..., 0]  # [n, *others]
    count = jnp.maximum(flags.sum(axis=0), 1)

    def of_leaf(leaf: Array) -> Expected:
        own = axis_first(case, leaf)
        dims = (1,) * (own.ndim - flags.ndim)
        total = jnp.where(flags.reshape(*flags.shape, *dims), own, 0).sum(axis=0)
        return Expected(on_every_device(case, total / count.reshape(*count.shape, *dims)))

    return [of_leaf(leaf) for leaf in jax.tree.leaves(gradients)]


def _case(mesh: str, gradients: Any, axis: str, draw: Literal["holes", "padded"] = "holes") -> Case:
    devices, over = int(np.prod([*parse_mesh(mesh).values()])), all_axes(mesh)
    flag = ArraySpec((devices,), f"b_{over}", "bool", draw)
    number = Function("jaxpar.contracts.low_communication.common:own_number")
    return Case(
        mesh,
        {"gradients": on_each_device(gradients, devices, over), "arrived": Made(number, (flag,))},
        {"axis": axis},
    )


def _gradients(rows: int, columns: int, dtype: str = "float32") -> dict[str, Any]:
    return {
        "w": ArraySpec((rows, columns), "d f", dtype),
        "layers": [ArraySpec((columns,), "f"), ArraySpec((4, 2, rows), "a h d", dtype)],
    }


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """bfloat16; a group of which nobody arrives; many leaves; one device."""
    axis, other = axis_names(rng, 2, besides=("dp", "tp"))
    n, others = pick(rng, ((6, 2), (5, 2), (4, 3)))
    rows, columns = pick(rng, (5, 7)), pick(rng, (9, 11))
    many = {f"layer{i}": ArraySpec((rows, i + 2), "d f") for i in range(10)}
    return (
        _case(mesh_of(rng, **{axis: n, other: others}), _gradients(rows, 8, "bfloat16"), axis),
        _case(f"{other}=3,{axis}=4", _gradients(columns, rows), axis, "padded"),
        _case(f"{axis}=2,{other}=2", many, axis),
        _case(f"{axis}=1,{other}=4", _gradients(columns, columns), axis, "padded"),
    )


def _spoil_late_gradients(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN and infinity into the gradients of devices that are late."""
    *gradients, arrived = inputs
    for leaf in gradients:
        of_devices = leaf.reshape(len(arrived), -1)
        of_devices[~arrived] = np.nan
        of_devices[~arrived, ::2] = np.inf


CONTRACT = Contract(
    kind="program",
    task="return the mean of the gradients over those devices of `axis` where `arrived` is true",
    reference=local.mean_of_arrived,
    oracle=_mean,
    cases=(
        _case("dp=8", _gradients(28, 8), "dp"),
        _case("dp=3,tp=2", _gradients(15, 12), "dp"),
    ),
    draw=_drawn,
    poison=_spoil_late_gradients,
    communication=Communication(
        "one all-reduce's bytes of the gradients, and one of a count",
        forward=(
            (
                Limit(
                    ("all_reduce", "all_to_all", "permute"), "axis", all_reduce_bytes("gradients")
                ),
            ),
        ),
    ),
    hints=(
        "A mean is a total divided by a count, and late devices may be in neither. All devices "
        "still take part in the all-reduce: a late one has nothing to add.",
        "0 * NaN is NaN: take jnp.where(arrived, leaf, 0) before the sum, not a product.",
        "lax.psum of arrived.astype(int) counts. Divide by jnp.maximum(count, 1), in the dtype of "
        "each leaf.",
    ),
    minimal="Each device must send its gradient away and receive the mean, whoever is late: "
    "(n-1)/n of the gradients each way.",
    harder="Let the late gradients count in the next step, with half their weight.",
)


def _masked(gradients: Any, arrived: Array) -> Any:
    return jax.tree.map(lambda leaf: jnp.where(arrived, leaf, 0), gradients)


def _count(arrived: Array, axis: str) -> Array:
    return lax.psum(arrived.astype(jnp.int32), axis)


def _divided(total: Any, count: Array) -> Any:
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(count, 1).astype(leaf.dtype), total)


def _right(gradients: Any, arrived: Array, axis: str) -> Any:
    return _divided(lax.psum(_masked(gradients, arrived), axis), _count(arrived, axis))


@wrong("values")
def late_gradients_multiplied(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Late gradients are multiplied by 0, which NaN and infinity survive; replace them by zeros
    with jnp.where."""
    product = jax.tree.map(lambda leaf: leaf * arrived.astype(leaf.dtype), gradients)
    return _divided(lax.psum(product, axis), _count(arrived, axis))


@wrong("values")
def divided_by_n(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The total is divided by the number of all devices; divide by how many arrived."""
    return lax.pmean(_masked(gradients, arrived), axis)


@wrong("values")
def divided_by_nobody(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Where nobody arrived, 0 / 0 is NaN; the mean is 0 there, so divide by 1 at least."""
    count = _count(arrived, axis)
    total = lax.psum(_masked(gradients, arrived), axis)
    return jax.tree.map(lambda leaf: leaf / count.astype(leaf.dtype), total)


@wrong("values")
def late_devices_count(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The mean is of all devices; leave out those that are late."""
    return lax.pmean(gradients, axis)


@wrong("values")
def chosen_after_the_sum(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Late gradients are in the sum, and devices that are late return zeros; replace a late
    gradient before the sum, and return the mean everywhere."""
    mean = _divided(lax.psum(gradients, axis), _count(arrived, axis))
    return _masked(mean, arrived)


@wrong("values")
def late_devices_get_nothing(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Devices that are late return zeros; they need the mean as well, or their parameters differ
    from those of the others."""
    return _masked(_right(gradients, arrived, axis), arrived)


@wrong("values")
def late_devices_keep_theirs(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Devices that are late return their own gradients; they need the mean as well."""
    mean = _right(gradients, arrived, axis)
    return jax.tree.map(lambda new, old: jnp.where(arrived, new, old), mean, gradients)


@wrong("values")
def total_of_arrived(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The gradients are added up and not divided by how many arrived."""
    return lax.psum(_masked(gradients, arrived), axis)


@wrong("values")
def mean_of_late(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The mean is of the devices that are late; take those where `arrived` is true."""
    return _right(gradients, ~arrived, axis)


@wrong("values")
def constant_n(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The total is divided by a constant, 8; divide by how many arrived."""
    total = lax.psum(_masked(gradients, arrived), axis)
    return jax.tree.map(lambda leaf: leaf / 8, total)


@wrong("values")
def nobody_counts_as_one(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The count begins at 1, so that it is one too many; take the larger of the count and 1."""
    total = lax.psum(_masked(gradients, arrived), axis)
    return _divided(total, _count(arrived, axis) + 1)


@wrong("values")
def arrived_on_all_axes(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The mean is over the whole mesh; take it over `axis` alone."""
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    return _divided(
        lax.psum(_masked(gradients, arrived), axes), lax.psum(arrived.astype(jnp.int32), axes)
    )


@wrong("values")
def means_widened(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The means come out in float32; each must have the dtype of its gradient, so divide by the
    count in that dtype."""
    mean = _right(gradients, arrived, axis)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), mean)


@wrong("communication")
def everything_gathered(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Every gradient is gathered and averaged on each device: n/2 times the bytes of an
    all-reduce."""
    total = jax.tree.map(
        lambda leaf: lax.all_gather(leaf, axis).sum(axis=0), _masked(gradients, arrived)
    )
    return _divided(total, _count(arrived, axis))


@wrong("communication")
def counted_for_each_number(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """A count is sent for each number of the gradients, which doubles the bytes; all have the same
    one, so send it once."""
    ones = jax.tree.map(lambda leaf: jnp.where(arrived, jnp.ones_like(leaf), 0), gradients)
    total, count = lax.psum((_masked(gradients, arrived), ones), axis)
    return jax.tree.map(lambda leaf, ones: leaf / jnp.maximum(ones, 1), total, count)


@wrong("communication")
def counted_for_each_leaf(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The count is sent once for each leaf; all have the same one, so send it once."""

    def mean(leaf: Array) -> Array:
        total = lax.psum(jnp.where(arrived, leaf, 0), axis)
        return total / jnp.maximum(_count(arrived, axis), 1).astype(leaf.dtype)

    return jax.tree.map(mean, gradients)


@wrong("communication")
def summed_in_float32(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """The gradients are sent in float32, whatever their dtype; send them in that dtype."""
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradients)
    mean = _right(wide, arrived, axis)
    return jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), mean, gradients)


@wrong("communication")
def late_devices_stay_away(gradients: Any, arrived: Array, *, axis: str) -> Any:
    """Only devices that arrived call the all-reduce, and the others are waited for without end;
    call it on every device, and let late ones add zeros."""
    count = _count(arrived, axis)
    here = lax.cond(
        count > 0,
        lambda tree: lax.psum(tree, axis),
        lambda tree: jax.tree.map(lambda leaf: lax.psum(0 * leaf, axis), tree),
        _masked(gradients, arrived),
    )
    return _divided(here, count)
