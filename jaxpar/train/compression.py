"""Steps whose gradients are averaged over dp in few bits, as `jaxpar train --compress` says."""

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
from jaxpar.cost.compress import Compressed
from jaxpar.mesh import axes_of
from jaxpar.parallel.compress import quantized_all_reduce, sign_all_reduce, top_k_all_reduce
from jaxpar.parallel.zero import state_specs, update_owned
from jaxpar.train.step import Measures, Technique, clipped, jitted

AXIS = "dp"
BLOCK = 256
BITS = {"int8": 8, "int4": 4}
WORDS = "int8, int4, sign or topk=FRACTION, as topk=0.01"


@dataclass(frozen=True)
class Compression:
    """How gradients are compressed.

    Attributes:
        scheme: "int8", "int4", "sign" or "topk".
        fraction: with "topk", the part of the numbers that each device sends.
    """

    scheme: str
    fraction: float = 1.0


class Group(NamedTuple):
    """Leaves that are averaged together, because the same axes split them.

    Where other axes split it, a number may differ between devices that hold another one alike; in
    one block with it, they would round that one differently.

    Attributes:
        axes: the axes of the mesh that split the gradients of these leaves.
        leaves: their places among all leaves.
        numbers: how many numbers a device has of them.
        padded: the same, up to full blocks for each device of dp.
    """

    axes: tuple[str, ...]
    leaves: tuple[int, ...]
    numbers: int
    padded: int


def parse_compression(words: str) -> Compression:
    """Reads "int8", "int4", "sign" or "topk=0.01".

    Raises:
        ValueError: it is none of these.
    """
    scheme, _, fraction = words.partition("=")
    if scheme in (*BITS, "sign") and not fraction and "=" not in words:
        return Compression(scheme)
    try:
        part = float(fraction)
    except ValueError:
        part = math.nan
    if scheme != "topk" or not 0 < part <= 1:
        raise ValueError(
            f"train: --compress {words}: use {WORDS}, where the fraction is above 0 and at most 1"
        )
    return Compression(scheme, part)


def groups_of(
    shapes: PyTree[Any], layouts: PyTree[LeafLayouts], sizes: Mapping[str, int]
) -> tuple[Group, ...]:
    """The groups of all leaves; `shapes` are global, and `sizes` those of the mesh's axes."""
    places: dict[tuple[str, ...], list[int]] = {}
    counts: dict[tuple[str, ...], int] = {}
    pairs = zip(jax.tree.leaves(shapes), jax.tree.leaves(layouts), strict=True)
    for place, (leaf, layout) in enumerate(pairs):
        axes = tuple(sorted(axis for axis in axes_of(layout.owned) if axis in sizes))
        places.setdefault(axes, []).append(place)
        held = leaf.size // math.prod(sizes[axis] for axis in axes)
        counts[axes] = counts.get(axes, 0) + held
    whole = sizes[AXIS] * BLOCK
    return tuple(
        Group(axes, tuple(found), counts[axes], -(-counts[axes] // whole) * whole)
        for axes, found in places.items()
    )


def compressed(groups: Sequence[Group], compression: Compression, devices: int) -> list[Compressed]:
    """What is sent of each group, as the formulas know it."""
    topk = compression.scheme == "topk"
    return [
        Compressed(
            compression.scheme,
            _largest(group, compression) if topk else group.padded,
            BLOCK,
            devices,
        )
        for group in groups
    ]


def error_specs(groups: Sequence[Group], compression: Compression) -> list[list[P]]:
    """The partition specs of the errors of each group: one row for each device."""
    count = 1 if compression.scheme == "topk" else 2
    return [[P((AXIS, *group.axes))] * count for group in groups]


def first_errors(
    groups: Sequence[Group], compression: Compression, sizes: Mapping[str, int]
) -> list[list[Array]]:
    """The errors before the first step: zeros, for all devices together."""

    def of_group(group: Group) -> list[Array]:
        alike = math.prod(sizes[axis] for axis in group.axes)
        each = [group.padded, group.padded // sizes[AXIS]]
        if compression.scheme == "topk":
            each = [group.numbers]
        return [jnp.zeros(sizes[AXIS] * alike * size, jnp.float32) for size in each]

    return [of_group(group) for group in groups]


def exchange(
    gradients: PyTree[Array],
    errors: Sequence[Sequence[Array]],
    groups: Sequence[Group],
    compression: Compression,
) -> tuple[PyTree[Array], list[list[Array]]]:
    """The means of the gradients over dp, in their dtypes, and the errors for the next step."""
    leaves, structure = jax.tree.flatten(gradients)
    new: list[list[Array]] = []
    for group, kept in zip(groups, errors, strict=True):
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

    Its state is a tuple of the optimizer's state and of the errors.
    """

    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, Measures]:
        inner, errors = state
        loss, gradients = technique.find(params, batch, 1.0)
        gradients, errors = exchange(gradients, errors, groups, compression)
        gradients, norm = clipped(gradients, max_norm)
        params, inner = update_owned(gradients, params, inner, optimizer, technique.layouts)
        return params, (inner, errors), Measures(lax.pmean(loss, AXIS), norm)

    states = state_specs(optimizer, technique.layouts), error_specs(groups, compression)
    return jitted(step, mesh, technique, states)


def _averaged(
    flat: Array, errors: Sequence[Array], group: Group, compression: Compression
) -> tuple[Array, ...]:
    """The mean of the numbers of a group over dp, then what was lost."""
    if compression.scheme == "topk":
        return top_k_all_reduce(flat, errors[0], axis=AXIS, k=_largest(group, compression))
    flat = jnp.pad(flat, (0, group.padded - group.numbers))
    if compression.scheme == "sign":
        return sign_all_reduce(flat, *errors, axis=AXIS, block=BLOCK)
    bits = BITS[compression.scheme]
    return quantized_all_reduce(flat, *errors, axis=AXIS, block=BLOCK, bits=bits)


def _largest(group: Group, compression: Compression) -> int:
    """How many of the numbers of a group each device sends with "topk"."""
    return max(1, round(compression.fraction * group.numbers))
