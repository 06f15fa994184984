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

from jaxpar.collectives.shards import gather_shards, mean_shards, pad_shards, shard_specs

LayerFn = Callable[[Any, Array], Array]
ApplyLayers = Callable[[LayerFn, Any, Array], Array]
Loss = Callable[[Any, Any], Array]
STACKED = "layers"


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
    d. The gradients are sent, and returned, in their own dtype.

    Math: y = mean over both axes of grad[rows of this device], rows [d/n, ...]
    Comm:
        forward: reduce_scatter(shard_axis) grad + all_reduce(replica_axis) grad/n
        backward: all_gather(shard_axis) grad/n
    Memory: grad/n
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3.2.2
    """
    return lax.pmean(mean_shards(grad, axis=shard_axis), replica_axis)


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


def fsdp_specs(
    like: dict[str, PyTree[Any]], *, axis: str, n: int
) -> dict[str, PyTree[PartitionSpec]]:
    """The partition specs of a model's parameters: as in `shard_specs`, but dim l is not split.

    Memory: like/n
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3.2.1
    """
    specs = {
        name: shard_specs(_unstacked(name, part), axis=axis, n=n) for name, part in like.items()
    }
    if STACKED in specs:
        specs[STACKED] = jax.tree.map(lambda spec: PartitionSpec(None, *spec), specs[STACKED])
    return specs


def pad_params(params: dict[str, PyTree[Array]], *, n: int) -> dict[str, PyTree[Array]]:
    """Pads a model's full parameters with zeros, so that n divides the dims that are split.

    Math: y = [params, 0]
    Comm:
        forward: nothing
        backward: nothing
    Memory: params
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3.2.1
    """
    pad = partial(pad_shards, n=n)
    return {
        name: jax.vmap(pad)(part) if name == STACKED else pad(part) for name, part in params.items()
    }


def gather_layers(
    apply_layers: ApplyLayers, like: dict[str, PyTree[Any]], *, axis: str
) -> ApplyLayers:
    """Makes `apply_layers` work on sharded layers: each layer is gathered where it is used.

    `apply_layers` must not keep a layer's parameters for the backward pass, because those are the
    gathered ones. A policy of `jax.checkpoint` that keeps only products, for example, keeps none.

    Math: x_(i+1) = layer_fn(params[i], x_i); params[i] = [shards_1[i], ..., shards_n[i]]
    Comm:
        forward: all_gather(axis) layers/n
        backward: all_gather(axis) layers/n + reduce_scatter(axis) layers
    Memory: x
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3

    Args:
        apply_layers: applies layer after layer, as `scan_layers` does.
        like: the shapes of the model's full parameters.
        axis: the mesh axis over which they are sharded.
    """
    shapes = jax.tree.leaves(_unstacked(STACKED, like[STACKED]))

    def apply(layer_fn: LayerFn, shards: PyTree[Array], x: Array) -> Array:
        def gathered(layer: PyTree[Array], x: Array) -> Array:
            # As leaves, because a layer need not be a dict, as `like` is.
            leaves, structure = jax.tree.flatten(layer)
            return layer_fn(structure.unflatten(gather_shards(leaves, shapes, axis=axis)), x)

        return apply_layers(gathered, shards, x)

    return apply


def fsdp_loss(loss_fn: Loss, like: dict[str, PyTree[Any]], *, axis: str) -> Loss:
    """The mean loss over the devices as a function of this device's shard of the parameters.

    Its gradient is this device's shard of the mean gradient. For hybrid sharding, pass the result
    to `data_parallel_gradients` over the other axis, which then sends only the gradient shards.

    Math: y = (sum_j loss_fn([p_1, ..., p_n], batch_j)) / n, where p are the shards
    Comm:
        forward: all_gather(axis) params/n + all_reduce(axis) 1
        backward: all_gather(axis) layers/n + reduce_scatter(axis) params
    Memory: 1
    Source: Zhao et al. 2023 (PyTorch FSDP), section 3

    Args:
        loss_fn: takes parameters and a batch; its parameters are full, except that the layers are
            still shards, for an `apply_layers` that `gather_layers` made.
        like: the shapes of the model's full parameters.
        axis: the mesh axis over which they are sharded and the batch is split.
    """

    def loss(shards: dict[str, PyTree[Array]], batch: Any) -> Float[Array, ""]:
        params = {
            name: part if name == STACKED else gather_shards(part, like[name], axis=axis)
            for name, part in shards.items()
        }
        return lax.pmean(loss_fn(params, batch), axis)

    return loss


def _unstacked(name: str, like: PyTree[Any]) -> PyTree[Any]:
    """The shapes without the dim l of stacked layers, if `name` says that they are such."""
    if name != STACKED:
        return like
    return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), like)
