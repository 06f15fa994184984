"""Meshes and layouts: axis names, simulated devices, and strings for both.

An *axis* is an axis of the device mesh, and a *dim* is a dimension of an array. A layout names
every dim of an array and appends the axes that split it. In "b_dp t f_tp", for example, dim b is
split over axis dp, dim f is split over axis tp, and dim t is not split.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, PartitionSpec

from jaxpar.axes import check_axis, check_sizes, show_mesh
from jaxpar.axes import few_divisors as few_divisors
from jaxpar.axes import parse_mesh as parse_mesh

Axis = str | tuple[str, ...] | None
"""One mesh axis, several axes taken together (the first is outermost), or None for "not split"."""

ParsedLayout = tuple[tuple[str, tuple[str, ...]], ...]
"""For each dim of an array, its name and the mesh axes that split it."""


def simulate_devices(count: int) -> None:
    """Splits the CPU into `count` simulated devices; call it before JAX first uses a device.

    Raises:
        ValueError: JAX has already started with fewer CPU devices than that.
    """
    before = jax.config.values["jax_num_cpu_devices"]
    try:
        jax.config.update("jax_num_cpu_devices", max(count, before))
        jax.config.update("jax_platforms", "cpu")
    except RuntimeError:  # JAX has started
        available = len(jax.devices("cpu"))
        if available < count:
            raise ValueError(
                f"simulate_devices: {count} devices asked for after JAX has started with "
                f"{available}; call it before the first JAX operation"
            ) from None


def make_mesh(sizes: str | Mapping[str, int]) -> Mesh:
    """Makes a mesh with these axis sizes from the first devices, as many as it needs.

    Raises:
        ValueError: an axis or a size is not valid, or there are too few devices.
    """
    sizes = parse_mesh(sizes) if isinstance(sizes, str) else dict(sizes)
    check_sizes("make_mesh", sizes)
    devices, needed = jax.devices(), math.prod(sizes.values())
    if needed > len(devices):
        raise ValueError(
            f"make_mesh: {show_mesh(sizes)} needs {needed} devices; there are {len(devices)}; call "
            f"jaxpar.mesh.simulate_devices({needed}) before the first JAX operation"
        )
    return jax.make_mesh(
        tuple(sizes.values()),
        tuple(sizes),
        axis_types=(AxisType.Auto,) * len(sizes),
        devices=devices[:needed],
    )


def parse_layout(layout: str) -> ParsedLayout:
    """Parses the dims of a layout and their axes: "b_dp t" is (("b", ("dp",)), ("t", ())).

    Raises:
        ValueError: a dim has no name, an axis is unknown, or an axis appears twice.
    """
    dims = tuple((dim, tuple(axes)) for dim, *axes in (word.split("_") for word in layout.split()))
    used: set[str] = set()
    for dim, axes in dims:
        if not dim.isalnum():
            raise ValueError(f"parse_layout: dim {dim!r} in {layout!r}; name dims as in 'b_dp t'")
        for axis in axes:
            check_axis("parse_layout", axis)
            if axis in used:
                raise ValueError(f"parse_layout: axis {axis} twice in {layout!r}; use it once")
            used.add(axis)
    return dims


def spec(layout: str) -> PartitionSpec:
    """The partition spec of a layout: "b_dp t f_tp" is P("dp", None, "tp")."""
    entries = [axes[0] if len(axes) == 1 else axes or None for _, axes in parse_layout(layout)]
    return PartitionSpec(*entries)


def divide(where: str, dim: str, size: int, axis: Axis, n: int) -> int:
    """The local size of a dim that is split over a mesh axis of size n: `size / n`.

    Raises:
        ValueError: n does not divide `size`; the message begins with `where`.
    """
    if size % n:
        padded = -(-size // n) * n
        name = _name(axis)
        raise ValueError(
            f"{where}: dim {dim} (size {size}) must be divisible by mesh axis {name} (size {n}); "
            f"pad {dim} to {padded} or use {name} in {{{few_divisors(size)}}}"
        )
    return size // n


def local_shape(shape: tuple[int, ...], layout: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape of each device's shard of an array, on a mesh with these axis sizes.

    A scalar has the shape (), and its layout is the empty text.

    Raises:
        ValueError: the layout does not fit the shape or the mesh, or the axes of a dim do not
            divide its size.
    """
    dims = parse_layout(layout)
    if len(dims) != len(shape):
        raise ValueError(
            f"local_shape: shape {tuple(shape)} has {len(shape)} dims and layout {layout!r} names "
            f"{len(dims)}; name each dim once"
        )
    for axis in (axis for _, axes in dims for axis in axes if axis not in sizes):
        raise ValueError(
            f"local_shape: layout {layout!r} uses mesh axis {axis}; the mesh is "
            f"{show_mesh(sizes)}; add {axis} to the mesh or drop it from the layout"
        )
    return tuple(
        divide("local_shape", dim, size, axes, math.prod(sizes[axis] for axis in axes))
        for size, (dim, axes) in zip(shape, dims, strict=True)
    )


def device_coordinates(rank: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """The coordinates of device number `rank` in a mesh of these sizes, in row-major order.

    In a mesh of 2 by 4 devices, device 5 is at (1, 1): in the second row and the second column.
    A mesh without axes has one device, at ().

    Raises:
        ValueError: the mesh has no device with this rank.
    """
    count = math.prod(sizes)
    if not 0 <= rank < count:
        raise ValueError(
            f"device_coordinates: rank {rank} in a mesh of {count} devices {tuple(sizes)}; "
            f"use a rank from 0 to {count - 1}"
        )
    position = []
    for size in reversed(sizes):
        rank, place = divmod(rank, size)
        position.append(place)
    return tuple(reversed(position))


def check_chunks(where: str, x: jax.Array, axis: Axis) -> int:
    """Checks that x is [n, ...], a chunk for each of the n devices of the axis, and returns n."""
    n = jax.lax.axis_size(axis or ())
    if x.shape[:1] != (n,):
        raise ValueError(
            f"{where}: x has shape {x.shape}; dim 0 must be the size of mesh axis {_name(axis)} "
            f"({n}); reshape x to [{n}, ...], a chunk for each device"
        )
    return n


def check_root(where: str, root: int, axis: Axis) -> int:
    """Checks that the axis has a device number `root`, and returns the number of its devices."""
    n = jax.lax.axis_size(axis or ())
    if not 0 <= root < n:
        raise ValueError(
            f"{where}: root {root} on mesh axis {_name(axis)} (size {n}); "
            f"use a root from 0 to {n - 1}"
        )
    return n


def check_power_of_two(where: str, axis: str) -> int:
    """Checks that the size of the axis is a power of two, and returns it."""
    n = jax.lax.axis_size(axis)
    if n & (n - 1):
        below = 1 << (n.bit_length() - 1)
        raise ValueError(
            f"{where}: mesh axis {axis} has size {n}; the size must be a power of two; "
            f"use {below} or {2 * below} devices, or a ring"
        )
    return n


def varying_axes(x: jax.Array) -> frozenset[str]:
    """The mesh axes over which the type of x, in `shard_map`, lets it differ between devices."""
    return frozenset(jax.typeof(x).manual_axis_type.varying)


def vary(x: jax.Array, axes: Iterable[str]) -> jax.Array:
    """Types x as varying over these axes as well; its values stay the same."""
    missing = tuple(sorted(set(axes) - varying_axes(x)))
    return jax.lax.pcast(x, missing, to="varying") if missing else x


def vary_alike(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Types all the arrays as varying over every axis over which one of them varies."""
    axes = frozenset[str]().union(*map(varying_axes, arrays))
    return tuple(vary(x, axes) for x in arrays)


def axes_of(spec: PartitionSpec) -> tuple[str, ...]:
    """The mesh axes that a partition spec names, in the order of the dims."""
    return tuple(axis for entry in spec for axis in entry_axes(entry))


def entry_axes(entry: Any) -> tuple[str, ...]:
    """The mesh axes that split one dim, by its entry in a partition spec."""
    if entry is None:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def in_mesh_order(axes: Iterable[str]) -> tuple[str, ...]:
    """Mesh axes in the order of the mesh that `shard_map` is over."""
    wanted = set(axes)
    return tuple(a for a in jax.sharding.get_abstract_mesh().axis_names if a in wanted)


def zeros(like: jax.ShapeDtypeStruct) -> jax.Array:
    """Zeros with the shape and dtype of `like`, typed as varying over the same axes."""
    return vary(jax.numpy.zeros(like.shape, like.dtype), like.manual_axis_type.varying)


def _name(axis: Axis) -> str:
    return axis if isinstance(axis, str) else "*".join(axis or ("None",))
