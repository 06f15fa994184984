"""Fully sharded data parallelism: a layer's parameters are gathered only while it is computed.

Every device of the axis holds a shard of each parameter, and computes on its own shard of the
batch. A model's parameters are a dict, in which the leaves under `layers` are stacked: each is
[l, ...].
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AbstractMesh, Mesh, PartitionSpec
from jax.tree_util import keystr, tree_map_with_path
from jaxtyping import Float, PyTree

from jaxpar.collectives.leaves import STACKED, LeafLayouts, fetch

LayerFn = Callable[[Any, Array], Array]
ApplyLayers = Callable[[LayerFn, Any, Array], Array]
Loss = Callable[[Any, Any], Array]


def fsdp_apply(
    layer_fn: Callable[[Any, Array], Array],
    like: PyTree[Any],
    flat_shards: Float[Array, "l s"],
    x: Float[Array, "..."],
    *,
    axis: str,
) -> Float[Array, "..."]:
    """Applies layer after layer, and gathers each before its use, also in the backward pass.

    `layer_fn(layer_params, x) -> x` takes the full parameters of one layer, whose shapes are those
    of `like`. For each layer, its leaves in the order of `jax.tree.leaves`, each flattened by rows,
    follow one another in one array, which is padded at its end so that n divides its length. Row i
    of `flat_shards` holds this device's part of layer i. x is this device's shard of the batch, and
    so is the result. The gradient with respect to `flat_shards` is the sum of all devices'
    gradients, in these parts.

    Math: x_(i+1) = layer_fn(params[i], x_i); flat(params[i]) = [shards_1[i], ..., shards_n[i]]
    Comm:
        forward: all_gather(axis) flat_shards
        backward: all_gather(axis) flat_shards + reduce_scatter(axis) flat_shards*n
    Memory: x
    Source: Zhao et al. 2023 (PyTorch FSDP), sections 3 and 4.2 (flat parameters)
    """
    shapes, structure = jax.tree.flatten(like)
    ends = np.cumsum([shape.size for shape in shapes])

    def body(x: Array, shard: Array) -> tuple[Array, None]:
        *flat, _ = jnp.split(lax.all_gather(shard, axis, tiled=True), ends)
        leaves = [part.reshape(shape.shape) for part, shape in zip(flat, shapes, strict=True)]
        return layer_fn(structure.unflatten(leaves), x), None

    # Without the checkpoint, all gathered layers would be kept for the backward pass.
    return lax.scan(jax.checkpoint(body, prevent_cse=False), x, flat_shards)[0]


def hybrid_gradients(grad: PyTree[Array], *, shard_axis: str, replica_axis: str) -> PyTree[Array]:
    """This device's rows of the mean gradient, for parameters in hybrid sharding.

    The parameters are sharded over `shard_axis` (the devices of a node, say), and replicated over
    `replica_axis` (the nodes). `grad` is the gradient on this device's shard of the batch with
    respect to the full parameters: each leaf is [d, ...], and the n devices of `shard_axis` divide
    d. Each gradient is sent, and returned, in its own dtype.

    Math: y = mean over both axes of grad[rows of this device], rows [d/n, ...]
    Comm:
        forward: reduce_scatter(shard_axis) grad + all_reduce(replica_axis) grad/n
        backward: all_gather(shard_axis) grad/n
    Memory: grad/n
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3.2.2
    """

    def mean(leaf: Array) -> Array:
        rows = lax.psum_scatter(leaf, shard_axis, scatter_dimension=0, tiled=True)
        return lax.pmean(rows / lax.axis_size(shard_axis), replica_axis)

    return jax.tree.map(mean, grad)


def fsdp_shardings(
    params: dict[str, PyTree[Any]], *, mesh: Mesh | AbstractMesh, axis: str, minimum_size: int
) -> dict[str, PyTree[PartitionSpec]]:
    """Partition specs with which the compiler makes FSDP out of a one-device program.

    `params` are arrays, or anything that has a shape and a size. The result is the same pytree with
    a partition spec for each leaf; a part of it may have any depth. Leaves of fewer than
    `minimum_size` elements are replicated. Of each other leaf one dim is split over the n devices
    of `axis`, and n must divide its size.
    Leaves under `params["layers"]` are stacked, [l, ...]: a loop takes one layer after the other,
    so dim l is not split.

    Math: a device holds size/n elements of a leaf if size >= minimum_size, and all of it otherwise
    Memory: params/n
    Source: Xu et al. 2021 (GSPMD), section 3.2

    Raises:
        ValueError: n divides no dim of a leaf that has to be split.
    """
    n = mesh.shape[axis]

    def spec(name: str, path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        if leaf.size < minimum_size:
            return PartitionSpec()
        for dim, size in enumerate(leaf.shape):
            if dim >= (name == STACKED) and size % n == 0:
                return PartitionSpec(*[None] * dim, axis)
        raise ValueError(
            f"fsdp_shardings: {name}{keystr(path)} has shape {leaf.shape}; mesh axis {axis} "
            f"(size {n}) must divide a dim; pad one, or use minimum_size > {leaf.size}"
        )

    return {name: tree_map_with_path(partial(spec, name), part) for name, part in params.items()}


def gather_layers(apply_layers: ApplyLayers, layouts: PyTree[LeafLayouts]) -> ApplyLayers:
    """Makes `apply_layers` work on sharded layers: each layer is gathered where it is used.

    `apply_layers` must not keep a layer's parameters for the backward pass, because those are the
    gathered ones. A policy of `jax.checkpoint` that keeps only products, for example, keeps none.

    Math: x_(i+1) = layer_fn(params[i], x_i); params[i] = [shards_1[i], ..., shards_n[i]]
    Comm:
        forward: all_gather(layouts) layers/n
        backward: all_gather(layouts) layers/n + reduce_scatter(layouts) layers
    Memory: x
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3

    Args:
        apply_layers: applies layer after layer, as `scan_layers` does.
        layouts: those of the stacked layers.
    """

    def apply(layer_fn: LayerFn, shards: PyTree[Array], x: Array) -> Array:
        return apply_layers(gathered_layer(layer_fn, layouts), shards, x)

    return apply


def gathered_layer(layer_fn: LayerFn, layouts: PyTree[LeafLayouts]) -> LayerFn:
    """A layer that takes its shards, and gathers them; `layouts` are those of stacked layers.

    Math: y = layer_fn([shards_1, ..., shards_n], x)
    Comm:
        forward: all_gather(layouts) layer/n
        backward: reduce_scatter(layouts) layer
    Memory: x
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3
    """
    of_layer = [layout.of_layer for layout in jax.tree.leaves(layouts)]

    def gathered(layer: PyTree[Array], x: Array) -> Array:
        # As leaves, because a layer need not be a dict, as `layouts` are.
        leaves, structure = jax.tree.flatten(layer)
        return layer_fn(structure.unflatten(fetch(leaves, of_layer)), x)

    return gathered


def fsdp_loss(loss_fn: Loss, layouts: dict[str, PyTree[LeafLayouts]]) -> Loss:
    """The loss of this device's batch, as a function of its shards of a model's parameters.

    The parameters outside of layers are gathered once. Those of the layers are passed on as they
    are, for an `apply_layers` that `gather_layers` made. The gradient is this device's shard of the
    sum of all devices' gradients.

    Math: y = loss_fn([p_1, ..., p_n], batch), where p are the shards
    Comm:
        forward: all_gather(layouts) params/n
        backward: all_gather(layouts) layers/n + reduce_scatter(layouts) params
    Memory: 1
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3
    """

    def loss(shards: dict[str, PyTree[Array]], batch: Any) -> Float[Array, ""]:
        params = {
            name: part if name == STACKED else fetch(part, layouts[name])
            for name, part in shards.items()
        }
        return loss_fn(params, batch)

    return loss
