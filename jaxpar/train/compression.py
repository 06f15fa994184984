"""Averages over dp in few bits, as `jaxpar train --compress` says, and steps that take them.

What is averaged are the gradients of a step, or what local steps have changed (`rounds`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jaxtyping import PyTree

from jaxpar.collectives.leaves import LeafLayouts
from jaxpar.cost.compress import BLOCK, Compressed
from jaxpar.mesh import axes_of, entry_axes
from jaxpar.parallel.compress import (
    powersgd_all_reduce,
    quantized_all_reduce,
    sign_all_reduce,
    top_k_all_reduce,
)
from jaxpar.parallel.zero import state_specs, update_owned
from jaxpar.train.spikes import skipped_in_a_row, told
from jaxpar.train.step import Measures, Technique, clipped, jitted

AXIS = "dp"
BITS = {"int8": 8, "int4": 4}
WORDS = "int8, int4, sign, topk=FRACTION (above 0, at most 1) or powersgd=RANK (1 or more)"


@dataclass(frozen=True)
class Compression:
    """How gradients, or changes of parameters, are compressed.

    Attributes:
        scheme: "int8", "int4", "sign", "topk" or "powersgd".
        fraction: with "topk", the part of the numbers that each device sends.
        rank: with "powersgd", the columns of each factor.
    """

    scheme: str
    fraction: float = 1.0
    rank: int = 1


class Group(NamedTuple):
    """Leaves that are averaged together, because the same axes split them.

    Where other axes split it, a number may differ between devices that hold another one alike; in
    one block with it, they would round that one differently.

    Attributes:
        axes: the axes of the mesh that split the gradients of these leaves.
        leaves: their places among all leaves.
        numbers: how many numbers a device has of them.
        padded: the same, up to full blocks for each device of dp.
        matrices: with "powersgd", the shape [layers, rows, columns] of what a device has of a
            leaf that is sent as factors; a group of others is averaged as it is, in float32.
    """

    axes: tuple[str, ...]
    leaves: tuple[int, ...]
    numbers: int
    padded: int
    matrices: tuple[int, int, int] | None = None


def parse_compression(words: str) -> Compression:
    """Reads "int8", "int4", "sign", "topk=0.01" or "powersgd=4".

    Raises:
        ValueError: it is none of these.
    """
    scheme, _, number = words.partition("=")
    if scheme in (*BITS, "sign") and not number and "=" not in words:
        return Compression(scheme)
    if scheme == "powersgd" and number.isascii() and number.isdigit() and int(number):
        return Compression(scheme, rank=int(number))
    try:
        part = float(number)
    except ValueError:
        part = math.nan
    if scheme != "topk" or not 0 < part <= 1:
        raise ValueError(f"train: --compress {words}: use {WORDS}")
    return Compression(scheme, part)


def groups_of(
    shapes: PyTree[Any],
    layouts: PyTree[LeafLayouts],
    sizes: Mapping[str, int],
    compression: Compression,
) -> tuple[Group, ...]:
    """The groups of all leaves; `shapes` are global, and `sizes` those of the mesh's axes."""
    whole = sizes[AXIS] * BLOCK
    places: dict[tuple[str, ...], list[int]] = {}
    counts: dict[tuple[str, ...], int] = {}
    groups: list[Group] = []
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(layouts), strict=True)
    for place, (leaf, layout) in enumerate(pairs):
        axes = tuple(sorted(axis for axis in axes_of(layout.owned) if axis in sizes))
        held = leaf.size // math.prod(sizes[axis] for axis in axes)
        matrices = _matrices(leaf.shape, layout.owned, sizes, compression)
        if matrices:
            groups.append(Group(axes, (place,), held, held, matrices))
            continue
        places.setdefault(axes, []).append(place)
        counts[axes] = counts.get(axes, 0) + held
    for axes, found in places.items():
        groups.append(Group(axes, tuple(found), counts[axes], -(-counts[axes] // whole) * whole))
    return tuple(groups)


def _matrices(
    shape: Sequence[int], spec: P, sizes: Mapping[str, int], compression: Compression
) -> tuple[int, int, int] | None:
    """What a device has of a leaf as [layers, rows, columns], if factors of it are fewer numbers.

    As in PyTorch's hook, they must be fewer than half as many.
    """
    if compression.scheme != "powersgd" or len(shape) < 2:
        return None
    entries = [*map(entry_axes, spec), *[()] * (len(shape) - len(spec))]
    *layers, rows, columns = (
        size // math.prod(sizes.get(axis, 1) for axis in split)
        for size, split in zip(shape, entries, strict=True)
    )
    fewer = 2 * compression.rank * (rows + columns) < rows * columns
    return (math.prod(layers), rows, columns) if fewer else None


def compressed(groups: Sequence[Group], compression: Compression, devices: int) -> list[Compressed]:
    """What is sent of each group, as the formulas know it."""
    return [
        Compressed(compression.scheme, _sent_numbers(group, compression), BLOCK, devices)
        for group in groups
    ]


def _sent_numbers(group: Group, compression: Compression) -> int:
    """How many numbers of a group are sent, or have codes that are sent."""
    if compression.scheme == "topk":
        return _largest(group, compression)
    if compression.scheme != "powersgd":
        return group.padded
    if not group.matrices:
        return group.numbers
    layers, rows, columns = group.matrices
    return layers * compression.rank * (rows + columns)


def kept_specs(groups: Sequence[Group], compression: Compression) -> list[list[P]]:
    """The partition specs of what is kept of each group, along dim 0.

    These are errors, one row for each device; and of matrices the right factors, which are equal
    on the devices of dp.
    """

    def of_group(group: Group) -> list[P]:
        own, alike = P((AXIS, *group.axes)), P(group.axes or None)
        if compression.scheme == "powersgd":
            return [own, alike] if group.matrices else []
        return [own] if compression.scheme == "topk" else [own, own]

    return [of_group(group) for group in groups]


def first_kept(
    groups: Sequence[Group], compression: Compression, sizes: Mapping[str, int]
) -> list[list[Array]]:
    """What is kept before the first step, for all devices together: zeros, and random factors."""

    def of_group(group: Group) -> list[Array]:
        alike = math.prod(sizes[axis] for axis in group.axes)
        devices = sizes[AXIS] * alike
        if compression.scheme == "powersgd":
            if not group.matrices:
                return []
            layers, _, columns = group.matrices
            key = jax.random.fold_in(jax.random.key(0), group.leaves[0])
            factor = jax.random.normal(key, (alike * layers * columns * compression.rank,))
            return [jnp.zeros(devices * group.numbers, jnp.float32), factor]
        each = [group.padded, group.padded // sizes[AXIS]]
        if compression.scheme == "topk":
            each = [group.numbers]
        return [jnp.zeros(devices * size, jnp.float32) for size in each]

    return [of_group(group) for group in groups]


def exchange(
    gradients: PyTree[Array],
    before: Sequence[Sequence[Array]],
    groups: Sequence[Group],
    compression: Compression,
) -> tuple[PyTree[Array], list[list[Array]]]:
    """The means of the gradients over dp, in their dtypes, and what is kept for the next step."""
    leaves, structure = jax.tree.flatten(gradients)
    new: list[list[Array]] = []
    for group, kept in zip(groups, before, strict=True):
        flat = jnp.concatenate([leaves[place].ravel() for place in group.leaves])
        mean, *lost = _averaged(flat, kept, group, compression)
        new.append(lost)
        start = 0
        for place in group.leaves:
            leaf = leaves[place]
            part = mean[start : start + leaf.size]
            leaves[place] = part.reshape(leaf.shape).astype(leaf.dtype)
            start += leaf.size
    return structure.unflatten(leaves), new


def make_compressed_step(
    technique: Technique,
    optimizer: optax.GradientTransformation,
    mesh: Mesh,
    groups: Sequence[Group],
    compression: Compression,
    *,
    max_norm: float | None,
) -> jax.stages.Wrapped:
    """The step of `make_step`, whose gradients are those of one device of dp until they are sent.

    Its state is a tuple of the optimizer's state and of what compression keeps.
    """

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Measures]:
        inner, kept = state
        loss, gradients = technique.find(params, batch, 1.0)
        gradients, kept = exchange(gradients, kept, groups, compression)
        gradients, norm = clipped(gradients, max_norm)
        knowing = told(optimizer, norm)
        params, inner = update_owned(gradients, params, inner, knowing, technique.layouts)
        measures = Measures(lax.pmean(loss, AXIS), norm, skipped=skipped_in_a_row(inner))
        return params, (inner, kept), measures

    states = state_specs(optimizer, technique.layouts), kept_specs(groups, compression)
    return jitted(step, mesh, technique, states)


def _averaged(
    flat: Array, kept: Sequence[Array], group: Group, compression: Compression
) -> tuple[Array, ...]:
    """The mean of the numbers of a group over dp, then what is kept for the next step."""
    if compression.scheme == "powersgd":
        return _low_rank(flat.astype(jnp.float32), kept, group, compression.rank)
    if compression.scheme == "topk":
        return top_k_all_reduce(flat, kept[0], axis=AXIS, k=_largest(group, compression))
    flat = jnp.pad(flat, (0, group.padded - group.numbers))
    if compression.scheme == "sign":
        return sign_all_reduce(flat, *kept, axis=AXIS, block=BLOCK)
    bits = BITS[compression.scheme]
    return quantized_all_reduce(flat, *kept, axis=AXIS, block=BLOCK, bits=bits)


def _low_rank(flat: Array, kept: Sequence[Array], group: Group, rank: int) -> tuple[Array, ...]:
    """The mean of matrices as factors, one for each layer; of all else, as it is."""
    if not group.matrices:
        return (lax.pmean(flat, AXIS),)
    error, factor = kept
    layers, _, columns = group.matrices
    all_reduce = jax.vmap(lambda m, q, e: powersgd_all_reduce(m, q, e, axis=AXIS))
    mean, factor, error = all_reduce(
        flat.reshape(group.matrices),
        factor.reshape(layers, columns, rank),
        error.reshape(group.matrices),
    )
    return mean.reshape(-1), error.reshape(-1), factor.reshape(-1)


def _largest(group: Group, compression: Compression) -> int:
    """How many of the numbers of a group each device sends with "topk"."""
    return max(1, round(compression.fraction * group.numbers))
