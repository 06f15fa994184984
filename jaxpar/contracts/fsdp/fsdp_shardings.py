"""Partition specs by which the compiler makes a model fully sharded."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax
from jax.sharding import AbstractMesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.base import Contract, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, fill
from jaxpar.contracts.draws import axis_names, pick
from jaxpar.mesh import make_mesh
from jaxpar.parallel import fsdp

Params = dict[str, Any]

BATCH, SEQUENCE = 4, 8  # examples on a device, tokens in one


def _training_step(case: Case, specs: list[P]) -> jax.stages.Lowered:
    """A step of AdamW written for one device, for the compiler to split by these specs."""
    mesh = make_mesh(case.mesh)
    batch = NamedSharding(mesh, P(mesh.axis_names))
    optimizer = optax.adamw(1e-3)

    loss = _loss if "embedding" in case.args["params"] else _nested_loss

    def step(params: Any, state: Any, tokens: jax.Array) -> tuple[Any, Any]:
        gradients = jax.grad(loss)(params, tokens, batch)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in case.arrays()]
    params = fill(case.args["params"], iter(shapes))
    state = jax.eval_shape(optimizer.init, params)
    of_params = fill(case.args["params"], iter([NamedSharding(mesh, spec) for spec in specs]))
    replicated = NamedSharding(mesh, P())
    of_state = optax.tree_map_params(
        optimizer, lambda _, own: own, state, of_params, transform_non_params=lambda _: replicated
    )
    jitted = jax.jit(
        step, in_shardings=(of_params, of_state, batch), out_shardings=(of_params, of_state)
    )
    tokens = jax.ShapeDtypeStruct((mesh.size * BATCH, SEQUENCE + 1), jnp.int32)
    return jitted.lower(params, state, tokens)


def _loss(params: Params, tokens: jax.Array, batch: NamedSharding) -> jax.Array:
    """Predicts the last token of each row from the mean of those before it."""

    def split(x: jax.Array) -> jax.Array:
        return lax.with_sharding_constraint(x, batch)  # else the compiler may split dim d

    def layer(x: jax.Array, params: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        hidden = split(jnp.tanh((x * params["scale"][None]) @ params["up"]))
        return split(x + hidden @ params["down"]), None

    x = split(params["embedding"][tokens[:, :-1]].mean(axis=1))
    x, _ = lax.scan(jax.checkpoint(layer, prevent_cse=False), x, params["layers"])
    head = params["head"] if "head" in params else params["embedding"].T
    logits = split((x * params["norm"][None]) @ head)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, -1]).mean()


def _nested_loss(params: Params, tokens: jax.Array, batch: NamedSharding) -> jax.Array:
    """The same for layers of two parts and heads; the other leaves are under any one name."""

    def split(x: jax.Array) -> jax.Array:
        return lax.with_sharding_constraint(x, batch)

    def layer(x: jax.Array, params: Any) -> tuple[jax.Array, None]:
        inner, (outer, shift) = params
        heads = split(jnp.tanh(jnp.einsum("bd,dhk->bhk", x, inner["kernel"])))
        return split(x + jnp.einsum("bhk,hkd->bd", heads, outer) + shift[None]), None

    (outside,) = (part for name, part in params.items() if name != "layers")
    table, ends = outside
    x = split(table[tokens[:, :-1]].mean(axis=1))
    x, _ = lax.scan(jax.checkpoint(layer, prevent_cse=False), x, params["layers"])
    logits = split((x * ends["gain"][None]) @ ends["out"] + ends["counts"][None])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, -1]).mean()


def _model(vocabulary: int, d: int, f: int, layers: int, *, tied: bool) -> Params:
    model = {
        "embedding": ArraySpec((vocabulary, d), "v d"),
        "layers": {
            "scale": ArraySpec((layers, d), "l d"),
            "up": ArraySpec((layers, d, f), "l d f"),
            "down": ArraySpec((layers, f, d), "l f d"),
        },
        "norm": ArraySpec((d,), "d"),
    }
    return model if tied else model | {"head": ArraySpec((d, vocabulary), "d v")}


def _nested_model(
    name: str, vocabulary: int, d: int, heads: tuple[int, int], layers: int
) -> Params:
    """Params of `_nested_loss`, of low precision; `name` is that of all that is outside layers."""

    def leaf(layout: str, *shape: int) -> ArraySpec:
        return ArraySpec(shape, layout, "bfloat16")

    outer = leaf("l h k d", layers, *heads, d), leaf("l d", layers, d)
    ends = {
        "out": leaf("d v", d, vocabulary),
        "gain": leaf("d", d),
        "counts": leaf("v", vocabulary),
    }
    return {
        name: [leaf("v d", vocabulary, d), ends],
        "layers": [{"kernel": leaf("l d h k", layers, d, *heads)}, outer],
    }


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """Nested params with more dims, in which n divides dim l and one other; those of the stub."""
    axis, *others = axis_names(rng, 3, besides=("pp", "dp", "fsdp", "tp"))
    n = pick(rng, (5, 6))
    # A whole leaf of the layers is large, and one layer's part of it is not.
    vocabulary, (d, h) = n * pick(rng, (25, 27, 29)), pick(rng, ((7, 3), (11, 2)))
    name = pick(rng, ("sublayers", "layers_aside", "no_layers"))
    width, layers = 45, 10
    flat = _model(2 * pick(rng, (51, 53, 59)), width, 2 * pick(rng, (41, 43)), layers, tied=False)
    return (
        Case(
            f"{axis}={n},{others[0]}=2",
            {"params": _nested_model(name, vocabulary, d, (h, n), 2 * n)},
            {"axis": axis, "minimum_size": vocabulary},
        ),
        Case(
            f"{others[0]}=2,{axis}=2,{others[1]}=3",
            {"params": flat},
            {"axis": axis, "minimum_size": layers * width + 1},
        ),
    )


CONTRACT = Contract(
    kind="specs",
    task="return a partition spec for each leaf: large ones split over `axis`, small ones whole",
    reference=fsdp.fsdp_shardings,
    oracle=fsdp.fsdp_shardings,
    partitioned=_training_step,
    cases=(
        Case(
            "fsdp=4",
            {"params": _model(130, 64, 96, 8, tied=False)},
            {"axis": "fsdp", "minimum_size": 64 * 130},
        ),
        Case(
            "pp=2,dp=3",
            {"params": _model(96, 45, 57, 6, tied=True)},
            {"axis": "dp", "minimum_size": 4 * 45},
        ),
    ),
    draw=_drawn,
    memory=MemoryLimit(
        "parameters and AdamW's state take 1/n of their bytes, small leaves apart; intermediate "
        "results at most 1.5 times the library's"
    ),
    sharding=True,
    hints=(
        "A spec has an entry for each dim: None, or the axis that splits it. P() replicates a "
        "leaf, P(None, 'fsdp') splits its second dim over fsdp.",
        "mesh.shape[axis] is n. Split any dim that n divides, but not the first one under "
        "params['layers']: the compiler would gather all layers in every turn of the loop.",
        "Use jax.tree.map over params['layers'] and over the rest; they differ only in how many "
        "leading dims to skip. leaf.size is the number of elements.",
    ),
    minimal="Every element of a large leaf is on only one device along `axis`. Splitting small "
    "leaves would save bytes, too, but each would cost two more collectives, and every message has "
    "its latency.",
    harder="Split the embedding over two axes, and still replicate the small leaves.",
)


def specs_by_leaf(params: Params, spec: Callable[[Any, int], P]) -> Params:
    """The spec of each leaf: `spec` of it and of how many of its first dims must stay whole."""
    return {
        name: jax.tree.map(lambda leaf, first=int(name == "layers"): spec(leaf, first), part)
        for name, part in params.items()
    }


def _split(leaf: Any, first: int, n: int, axis: str | tuple[str, ...]) -> P:
    """A spec with the axis on the first dim, from `first` on, that n divides."""
    for dim in range(first, leaf.ndim):
        if leaf.shape[dim] % n == 0:
            return P(*[None] * dim, axis)
    return P()


def _split_where(
    params: Params, n: int, axis: str | tuple[str, ...], large: Callable[[Any], bool]
) -> Params:
    """Splits the leaves for which `large` is true."""
    return specs_by_leaf(
        params, lambda leaf, first: _split(leaf, first, n, axis) if large(leaf) else P()
    )


def _split_always(
    params: Params, axis: str, minimum_size: int, choose: Callable[[tuple[int, ...]], int]
) -> Params:
    """Splits the dim that `choose` takes from a shape, whether or not n divides it."""

    def spec(leaf: Any, first: int) -> P:
        dim = first + choose(leaf.shape[first:])
        return P() if leaf.size < minimum_size else P(*[None] * dim, axis)

    return specs_by_leaf(params, spec)


@wrong("values")
def first_dim_always(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """The first dim is split even where n does not divide it; look for a dim that n divides."""
    return _split_always(params, axis, minimum_size, lambda shape: 0)


@wrong("values")
def last_dim_always(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """The last dim is split even where n does not divide it; look for a dim that n divides."""
    return _split_always(params, axis, minimum_size, lambda shape: len(shape) - 1)


@wrong("values")
def largest_dim_always(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """The largest dim is split even where n does not divide it; look for a dim that n divides."""
    return _split_always(params, axis, minimum_size, lambda shape: shape.index(max(shape)))


@wrong("values")
def first_dim_of_large_leaves(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """The first dim of every large leaf is split, even where n does not divide it, and where it is
    dim l of the stacked layers; look for another dim that n divides."""
    return jax.tree.map(lambda leaf: P(axis) if leaf.size >= minimum_size else P(), params)


@wrong("values")
def first_dim_of_every_leaf(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """The first dim of every leaf is split, large or small, and whether or not n divides it; choose
    for each leaf whether to split it, and a dim that n divides."""
    return jax.tree.map(lambda leaf: P(axis), params)


@wrong("sharding")
def everything_replicated(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """Every device holds everything: this is data parallelism."""
    return jax.tree.map(lambda _: P(), params)


@wrong("sharding")
def only_largest_leaf(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """Only the largest leaf is split; split every leaf that is not small."""
    largest = max(leaf.size for leaf in jax.tree.leaves(params))
    return _split_where(params, mesh.shape[axis], axis, lambda leaf: leaf.size == largest)


@wrong("sharding")
def small_leaves_split(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """Small leaves are split, too; each of them costs collectives, and saves almost nothing."""
    return _split_where(params, mesh.shape[axis], axis, lambda leaf: True)


@wrong("sharding")
def minimum_of_bytes(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """`minimum_size` is compared with bytes; it is a number of elements."""
    return _split_where(params, mesh.shape[axis], axis, lambda leaf: 4 * leaf.size >= minimum_size)


@wrong("sharding")
def minimum_of_one_layer(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """`minimum_size` is compared with one layer's part of a stacked leaf; compare it with the whole
    leaf."""

    def spec(leaf: Any, first: int) -> P:
        large = math.prod(leaf.shape[first:]) >= minimum_size
        return _split(leaf, first, mesh.shape[axis], axis) if large else P()

    return specs_by_leaf(params, spec)


@wrong("sharding")
def minimum_stays_whole(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """A leaf of exactly `minimum_size` elements stays whole; only smaller ones may."""
    return _split_where(params, mesh.shape[axis], axis, lambda leaf: leaf.size > minimum_size)


@wrong("sharding")
def n_of_all_devices(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """A dim is split only if the number of all devices divides it; n is the size of `axis`,
    mesh.shape[axis]."""
    return _split_where(params, mesh.size, axis, lambda leaf: leaf.size >= minimum_size)


@wrong("sharding")
def over_all_axes(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """Leaves are split over all axes of the mesh; split them over `axis` alone, and replicate them
    over the other axes, so that parameters are gathered over `axis` only."""
    axes = tuple(mesh.shape)
    return _split_where(params, mesh.size, axes, lambda leaf: leaf.size >= minimum_size)


@wrong("sharding")
def first_dim_never(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """The first dim of every leaf stays whole; only that of the stacked layers must."""

    def spec(leaf: Any, _: int) -> P:
        return P() if leaf.size < minimum_size else _split(leaf, 1, mesh.shape[axis], axis)

    return specs_by_leaf(params, spec)


@wrong("sharding")
def layers_by_part_of_name(
    params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int
) -> Params:
    """Whatever has `layers` in its path is taken for the stacked layers; only the leaves of
    params['layers'] are."""

    def spec(path: Any, leaf: Any) -> P:
        first = int("layers" in jax.tree_util.keystr(path))
        return P() if leaf.size < minimum_size else _split(leaf, first, mesh.shape[axis], axis)

    return jax.tree_util.tree_map_with_path(spec, params)


@wrong("memory")
def layers_split(params: Params, *, mesh: AbstractMesh, axis: str, minimum_size: int) -> Params:
    """Dim l of the stacked layers is split, so the compiler gathers all layers to use one; split
    another dim."""

    def spec(leaf: Any, _: int) -> P:
        return P() if leaf.size < minimum_size else _split(leaf, 0, mesh.shape[axis], axis)

    return specs_by_leaf(params, spec)
