"""The layouts of a model's parameters, and the collectives that lead from one to the next.

Each leaf of the parameters has three layouts:

    used      while a layer computes with it: split only by the axes that split layers
    at rest   between steps: as used, and at stage 3 of ZeRO sharded as well
    owned     where its summed gradient and its optimizer state are: sharded from stage 1 on

Sharded means split further, along one dim, over devices that compute with equal parameters. It is
the first dim whose local size these devices divide; if they divide none, fewer of them share the
leaf, and a leaf that none divides stays as it is used. Leaves under the name `layers` are stacked,
[l, ...], and not sharded along dim l, because a loop takes one layer after the other.

In the `Comm:` lines, `layouts` stands for the axes that shard a leaf.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array, P, lax
from jax.tree_util import tree_map_with_path
from jaxtyping import PyTree

from jaxpar.mesh import axes_of, entry_axes, in_mesh_order, varying_axes

STACKED = "layers"


@dataclass(frozen=True)
class LeafLayouts:
    """The three layouts of one leaf.

    Attributes:
        used: the partition spec while a layer computes with the leaf.
        at_rest: the same between steps.
        owned: the same of its gradient and of its optimizer state.
        dim: the dim that is sharded, or None.
        axes: the mesh axes over which it is sharded, outermost first.
    """

    used: P
    at_rest: P
    owned: P
    dim: int | None = None
    axes: tuple[str, ...] = ()

    @property
    def of_layer(self) -> "LeafLayouts":
        """The layouts of one layer of a stacked leaf."""
        used, at_rest, owned = (P(*spec[1:]) for spec in (self.used, self.at_rest, self.owned))
        dim = None if self.dim is None else self.dim - 1
        return LeafLayouts(used, at_rest, owned, dim, self.axes)


def leaf_layouts(
    params: PyTree[Any],
    used: PyTree[P] | None = None,
    *,
    sizes: Mapping[str, int],
    axes: Sequence[str],
    stage: int,
) -> PyTree[LeafLayouts]:
    """The layouts of every leaf at a stage of ZeRO.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5; Zhao et al. 2023 (PyTorch FSDP), section 3

    Args:
        params: the leaves, or their global shapes.
        used: how each leaf is split while it is used; None: it is whole.
        sizes: the sizes of the mesh's axes.
        axes: the axes whose devices compute with equal parameters, and shard them.
        stage: 0 shards nothing, 1 and 2 shard what is owned, 3 shards what is at rest, too.
    """

    def of_leaf(path: tuple[Any, ...], leaf: Any, spec: P) -> LeafLayouts:
        stacked = any(getattr(key, "key", None) == STACKED for key in path)
        entries = [*map(entry_axes, spec), *[()] * (len(leaf.shape) - len(spec))]
        dim, over = sharded_dim(leaf.shape, entries, sizes, axes, stacked=stacked)
        if not stage or dim is None:
            return LeafLayouts(spec, spec, spec)
        entries[dim] = (*entries[dim], *over)
        owned = P(*(split or None for split in entries[: max(dim + 1, len(spec))]))
        return LeafLayouts(spec, owned if stage == 3 else spec, owned, dim, over)

    used = jax.tree.map(lambda _: P(), params) if used is None else used
    return tree_map_with_path(of_leaf, params, used)


def sharded_dim(
    shape: Sequence[int],
    splits: Sequence[Sequence[str]],
    sizes: Mapping[str, int],
    axes: Sequence[str],
    *,
    stacked: bool,
) -> tuple[int | None, tuple[str, ...]]:
    """The dim along which ZeRO shards a leaf, and the axes over which it does.

    Of `axes`, those take part that have several devices and split no dim of the leaf already. The
    leaf is sharded along the first dim whose local size, that of one device while the leaf is used,
    is a multiple of the number of devices on these axes together; it may be a dim that is split. If
    there is none, the outermost of these axes is left out, and so on. If no axis is left, the
    result is (None, ()). An empty dim is not sharded.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5; Zhao et al. 2023 (PyTorch FSDP), section 3

    Args:
        shape: the global shape of the leaf.
        splits: for each dim, the axes that split it while the leaf is used; they divide its size.
        sizes: the sizes of the mesh's axes.
        axes: the axes whose devices compute with equal parameters, outermost first.
        stacked: whether dim 0 has the layers, which a loop takes one by one; it is not sharded.

    Returns:
        The dim, counted in `shape`, and the axes in the order in which they are given.
    """
    taken = {axis for split in splits for axis in split}
    over = tuple(axis for axis in axes if sizes[axis] > 1 and axis not in taken)
    local = [
        size // math.prod(sizes[axis] for axis in split)
        for size, split in zip(shape, splits, strict=True)
    ]
    while over:
        n = math.prod(sizes[axis] for axis in over)
        for dim in range(int(stacked), len(shape)):
            if local[dim] and local[dim] % n == 0:
                return dim, over
        over = over[1:]
    return None, ()


def fetch(params: PyTree[Array], layouts: PyTree[LeafLayouts]) -> PyTree[Array]:
    """Gathers leaves that are sharded at rest, for use; the transpose sums and scatters gradients.

    Math: y = [x_1, ..., x_n]
    Comm:
        forward: all_gather(layouts) params
        backward: reduce_scatter(layouts) params*n
    Memory: params*n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.3
    """

    def of_leaf(leaf: Array, layout: LeafLayouts) -> Array:
        if layout.at_rest == layout.used:
            return leaf
        return lax.all_gather(leaf, layout.axes, axis=layout.dim or 0, tiled=True)

    return jax.tree.map(of_leaf, params, layouts)


def own(params: PyTree[Array], layouts: PyTree[LeafLayouts]) -> PyTree[Array]:
    """Takes what this device owns of leaves at rest.

    The lines below are for parameters that are typed as varying. For others JAX sums the gradients
    of what the devices own.

    Math: y = x[i] on device i, of n equal parts
    Comm:
        forward: nothing
        backward: nothing
    Memory: params/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """

    def of_leaf(leaf: Array, layout: LeafLayouts) -> Array:
        if layout.at_rest == layout.owned:
            return leaf
        size = leaf.shape[layout.dim or 0] // lax.axis_size(layout.axes)
        start = lax.axis_index(layout.axes) * size
        return lax.dynamic_slice_in_dim(leaf, start, size, layout.dim or 0)

    return jax.tree.map(of_leaf, params, layouts)


def publish(owned: PyTree[Array], layouts: PyTree[LeafLayouts]) -> PyTree[Array]:
    """Gathers leaves that are owned and not sharded at rest: the opposite of `own`.

    The results are typed as equal on the devices that shard them, as parameters must be.

    Math: y = [x_1, ..., x_n]
    Comm:
        forward: all_gather(layouts) owned
        backward: nothing
    Memory: owned*n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.1
    """

    def of_leaf(leaf: Array, layout: LeafLayouts) -> Array:
        if layout.at_rest == layout.owned:
            return leaf
        dim = layout.dim or 0
        return lax.all_gather(leaf, layout.axes, axis=dim, tiled=True, to="invarying")

    return jax.tree.map(of_leaf, owned, layouts)


def scatter_gradients(grads: PyTree[Array], layouts: PyTree[LeafLayouts]) -> PyTree[Array]:
    """Sums the gradients of leaves in use over the devices that shard them; each keeps its shard.

    Math: y = sum_j x_j[i] on device i, of n equal parts
    Comm:
        forward: reduce_scatter(layouts) grads
        backward: all_gather(layouts) grads/n
    Memory: grads/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2
    """

    def of_leaf(leaf: Array, layout: LeafLayouts) -> Array:
        if layout.used == layout.owned:
            return leaf
        return lax.psum_scatter(leaf, layout.axes, scatter_dimension=layout.dim or 0, tiled=True)

    return jax.tree.map(of_leaf, grads, layouts)


def sum_gradients(grads: PyTree[Array], specs: PyTree[P]) -> PyTree[Array]:
    """Sums each gradient over the axes by which its type varies and which its spec does not name.

    `specs` has a partition spec for each gradient, which says how its sum is split. A gradient that
    differs between devices along any other axis is a part of a sum. Which axes these are is in its
    type: `jaxpar.mesh.varying_axes(gradient)`. So no list of special parameters is needed. What is
    equal on all devices of an axis is summed over it already.

    Math: y = sum_j x_j, over the axes in varying_axes(x) that its spec does not name
    Comm:
        forward: all_reduce(specs) grads
        backward: nothing
    Memory: grads
    Source: Shoeybi et al. 2019 (Megatron-LM), section 3; Korthikanti et al. 2022, section 4.2.2
    """

    def of_leaf(leaf: Array, spec: P) -> Array:
        missing = varying_axes(leaf) - set(axes_of(spec))
        return lax.psum(leaf, in_mesh_order(missing)) if missing else leaf

    return jax.tree.map(of_leaf, grads, specs)


def reduce_gradients(grads: PyTree[Array], layouts: PyTree[LeafLayouts]) -> PyTree[Array]:
    """The sum of the gradients of leaves in use, as this device owns it.

    They are scattered first, so that what is summed over the other axes is only a shard.

    Math: y = (sum_j x_j)[i] on device i, of n equal parts
    Comm:
        forward: reduce_scatter(layouts) grads
        backward: all_gather(layouts) grads/n
    Memory: grads/n
    Source: Rajbhandari et al. 2020 (ZeRO), section 5.2; Zhao et al. 2023, section 3.2.2
    """
    return sum_gradients(scatter_gradients(grads, layouts), specs_of(layouts, "owned"))


def specs_of(layouts: PyTree[LeafLayouts], which: str) -> PyTree[P]:
    """The partition specs "used", "at_rest" or "owned" of every leaf.

    Source: Rajbhandari et al. 2020 (ZeRO), section 5
    """
    return jax.tree.map(lambda layout: getattr(layout, which), layouts)
