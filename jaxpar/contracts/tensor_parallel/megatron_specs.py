"""Partition specs by which the compiler makes a layer tensor parallel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import tree_map_with_path

from jaxpar import nn
from jaxpar.contracts.base import Communication, Contract, Limit, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes, fill
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.mesh import make_mesh
from jaxpar.parallel import tensor

Params = dict[str, Any]

BATCH, SEQUENCE, HEAD_SIZE = 4, 6, 4  # examples on a device, tokens in one, size of a head


def _forward(case: Case, specs: list[P]) -> jax.stages.Lowered:
    """Layers written for one device, for the compiler to split by these specs."""
    mesh = make_mesh(case.mesh)
    other_axes = tuple(name for name in mesh.axis_names if name != case.kwargs["axis"])
    batch = NamedSharding(mesh, P(other_axes))

    def apply_layers(params: Params, x: jax.Array) -> jax.Array:
        layers = _by_name(params)
        if layers["up"].ndim == 2:
            return _layer(layers, x)
        return lax.scan(lambda x, layer: (_layer(layer, x), None), x, layers)[0]

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in case.arrays()]
    params = fill(case.args["params"], iter(shapes))
    shardings = fill(case.args["params"], iter([NamedSharding(mesh, spec) for spec in specs]))
    jitted = jax.jit(apply_layers, in_shardings=(shardings, batch), out_shardings=batch)
    replicas = mesh.size // mesh.shape[case.kwargs["axis"]]
    x = jax.ShapeDtypeStruct((replicas * BATCH, SEQUENCE, _scale(case).shape[-1]), jnp.float32)
    return jitted.lower(params, x)


def _by_name(params: Params) -> dict[str, Any]:
    """The leaves by their names, wherever in params they are."""
    return {path[-1].key: leaf for path, leaf in jax.tree.leaves_with_path(params)}


def _layer(params: dict[str, Any], x: jax.Array) -> jax.Array:
    for name in ("table", "lookup"):
        if name in params:
            x = x + params[name][None]
    y = nn.rms_norm(x, params["scale"])
    for name in ("bias", "key_bias"):
        if name in params:
            y += params[name][None, None]
    heads = (nn.matmul(y, params[name]) for name in ("query", "key", "value"))
    q, k, v = (z.reshape(*x.shape[:2], -1, HEAD_SIZE).swapaxes(1, 2) for z in heads)
    attended = nn.attention(q, k, v).swapaxes(1, 2).reshape(*x.shape[:2], -1)
    x = x + nn.matmul(attended, params["output"])
    up = nn.matmul(x, params["up"])
    hidden = nn.swiglu(nn.matmul(x, params["gate"]), up) if "gate" in params else nn.gelu(up)
    return x + nn.matmul(hidden, params["down"])


def _scale(case: Case) -> ArraySpec:
    """The scale of the norm, [d] or [l, d]."""
    return _by_name(case.args["params"])["scale"]


def _two_a_layer(sizes: Sizes) -> float:
    """Wire bytes of two all-reduces of a device's activations for each layer."""
    n, (*stacked, d) = sizes.n(), _scale(sizes.case).shape
    layers = stacked[0] if stacked else 1
    return layers * 2 * 2 * (n - 1) / n * 4 * BATCH * SEQUENCE * d


def _params(d: int, heads: int, kv_heads: int, f: int, *layers: int, gated: bool) -> Params:
    def matrix(rows: int, columns: int) -> ArraySpec:
        return ArraySpec((*layers, rows, columns), "l d f" if layers else "d f")

    q, k = heads * HEAD_SIZE, kv_heads * HEAD_SIZE
    params = {
        "attention": {
            "query": matrix(d, q),
            "key": matrix(d, k),
            "value": matrix(d, k),
            "output": matrix(q, d),
        },
        "mlp": {"up": matrix(d, f), "down": matrix(f, d)},
        "norm": {"scale": ArraySpec((*layers, d), "l d" if layers else "d")},
    }
    if gated:
        params["mlp"]["gate"] = matrix(d, f)
    if not layers:
        params["position"] = {"table": ArraySpec((SEQUENCE, d), "t d")}
    return params


def _deeper(params: Params) -> Params:
    """The same layers in a deeper tree, whose parts, and two further leaves, have other names.

    Within the names of leaves, and of parts, are names of matrices; square matrices do not tell by
    their shape which dim is to be split.
    """
    scale, attention, mlp = params["norm"]["scale"], params["attention"], params["mlp"]
    *stacked, d = scale.shape
    lookup = ArraySpec((*stacked, SEQUENCE, d), "l t d" if stacked else "t d")
    return {
        "model": {
            "layers": {"self_attention": attention, "feed_forward": {"dense": mlp}},
            "query": {"scale": scale, "key_bias": scale},
        },
        "value": {"lookup": lookup},
    }


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp", "tpx"))
    heads, layers = pick(rng, (10, 15)), pick(rng, (5, 10))
    d = heads * HEAD_SIZE
    square = _params(d, heads, heads, d, layers, gated=pick(rng, (False, True)))
    single = _params(d + 8, 2, 2, 4 * d, gated=True)
    return (
        Case(mesh_of(rng, **{axis: 5, other: 2}), {"params": _deeper(square)}, {"axis": axis}),
        Case(
            mesh_of(rng, **{axis: 2, other: 4}),
            {"params": {"block": _deeper(single), "position": single["position"]}},
            {"axis": axis},
        ),
    )


CONTRACT = Contract(
    kind="specs",
    task="return a partition spec for each leaf: matrices split by columns or rows, the rest whole",
    reference=tensor.megatron_specs,
    oracle=tensor.megatron_specs,
    partitioned=_forward,
    cases=(
        Case("tp=4", {"params": _params(24, 8, 4, 32, 4, gated=True)}, {"axis": "tp"}),
        Case("dp=2,tpx=3", {"params": _params(30, 6, 3, 24, gated=False)}, {"axis": "tpx"}),
    ),
    draw=_drawn,
    communication=Communication(
        "forward, the compiler sends two all-reduces of x's size for each layer",
        forward=((Limit(("all_reduce",), "axis", _two_a_layer),),),
    ),
    memory=MemoryLimit(
        "matrices take 1/n of their bytes; intermediate results at most 1.5 times the library's"
    ),
    sharding=True,
    hints=(
        "Compare the layer for one device with the split one: which dim of each matrix is split? "
        "Columns are the last dim, rows the one before it; there may be a dim l in front.",
        "The matrices that x is multiplied by are split by columns; output and down, which give "
        "the result, by rows. Then nothing is sent until the last product is summed.",
        "jax.tree_util.tree_map_with_path(f, params) calls f(path, leaf); path[-1].key is the "
        "name. P(*[None] * k, axis) splits dim k.",
    ),
    minimal="A product with a matrix that is split by rows gives parts of a sum, and a layer has "
    "two of them.",
    harder="If there are fewer kv heads than devices, which spec should key and value have? "
    "Inspect the program with each choice.",
)


COLUMNS, ROWS = -1, -2  # the dim that is split, counted from the last
KEY_AND_VALUE: tuple[str, ...] = ("key", "value")
FIRST: tuple[str, ...] = ("query", *KEY_AND_VALUE, "gate", "up")  # what x is multiplied by
LAST: tuple[str, ...] = ("output", "down")  # what gives the result
RIGHT = dict.fromkeys(FIRST, COLUMNS) | dict.fromkeys(LAST, ROWS)


def _specs(params: Params, axis: str, changed: Mapping[str, int | None]) -> Params:
    """The right specs, but for another dim, or none, in the parts or leaves of these names."""

    def spec(path: tuple[Any, ...], leaf: Any) -> P:
        part, name = path[0].key, path[-1].key
        dim = changed.get(part, changed.get(name, RIGHT.get(name)))
        return P() if dim is None else P(*[None] * (leaf.ndim + dim), axis)

    return tree_map_with_path(spec, params)


@wrong("sharding")
def all_whole(params: Params, *, axis: str) -> Params:
    """Every matrix is whole on every device: nothing is tensor parallel."""
    return jax.tree.map(lambda _: P(), params)


@wrong("sharding")
def only_mlp_split(params: Params, *, axis: str) -> Params:
    """Only the MLP is split; split attention by heads, too."""
    return _specs(params, axis, {"attention": None})


@wrong("sharding")
def only_attention_split(params: Params, *, axis: str) -> Params:
    """Only attention is split; split the MLP, too."""
    return _specs(params, axis, {"mlp": None})


@wrong("sharding")
def kv_whole(params: Params, *, axis: str) -> Params:
    """key and value are whole on every device; split their columns, head by head, as those of query
    are."""
    return _specs(params, axis, dict.fromkeys(KEY_AND_VALUE))


@wrong("sharding")
def scales_split(params: Params, *, axis: str) -> Params:
    """The scales of norms are split, too; they multiply all of x, which every device holds
    whole."""
    return _specs(params, axis, {"scale": COLUMNS})


@wrong("sharding")
def names_within_names(params: Params, *, axis: str) -> Params:
    """A name is looked for within the name of a leaf, or of a dict that the leaf is in, so that a
    leaf `key_bias` is split as `key` is; compare the last name only, and all of it."""

    def spec(path: tuple[Any, ...], leaf: Any) -> P:
        names = jax.tree_util.keystr(path)
        dim = next((RIGHT[name] for name in RIGHT if name in names), None)
        if dim is None or leaf.ndim < 2:
            return P()
        return P(*[None] * (leaf.ndim + dim), axis)

    return tree_map_with_path(spec, params)


@wrong("communication")
def rows_and_columns_swapped(params: Params, *, axis: str) -> Params:
    """The first matrices are split by rows, and output and down by columns: the compiler sums the
    products in between, and gathers the result. Split the first ones by columns, and the last ones
    by rows."""
    return _specs(params, axis, dict.fromkeys(FIRST, ROWS) | dict.fromkeys(LAST, COLUMNS))


@wrong("communication")
def columns_everywhere(params: Params, *, axis: str) -> Params:
    """output and down are split by columns, too: the compiler gathers their input and their result;
    split them by rows."""
    return _specs(params, axis, dict.fromkeys(LAST, COLUMNS))


@wrong("communication")
def down_by_columns(params: Params, *, axis: str) -> Params:
    """down is split by columns: the compiler gathers its input and its result; split it by rows, as
    its input is split by columns."""
    return _specs(params, axis, {"down": COLUMNS})


@wrong("communication")
def output_by_columns(params: Params, *, axis: str) -> Params:
    """output is split by columns: the compiler gathers its input and its result; split it by rows,
    as the heads that it takes are split."""
    return _specs(params, axis, {"output": COLUMNS})


@wrong("communication")
def rows_everywhere(params: Params, *, axis: str) -> Params:
    """query, key, value, gate and up are split by rows: the compiler sums each of their products;
    split them by columns."""
    return _specs(params, axis, dict.fromkeys(FIRST, ROWS))


@wrong("communication")
def kv_by_rows(params: Params, *, axis: str) -> Params:
    """key and value are split by rows, and their products are summed: split them by columns, as
    query is."""
    return _specs(params, axis, dict.fromkeys(KEY_AND_VALUE, ROWS))


@wrong("communication")
def dim_l_split(params: Params, *, axis: str) -> Params:
    """Dim l of stacked layers is split, so the compiler gathers a layer to use it; split its
    columns or rows."""
    right = _specs(params, axis, {})
    return jax.tree.map(lambda leaf, spec: P(axis) if leaf.ndim == 3 else spec, params, right)


@wrong("communication")
def dims_of_one_layer(params: Params, *, axis: str) -> Params:
    """A spec begins at the first dim, which is l where layers are stacked; count dims from the
    last."""
    specs = {COLUMNS: P(None, axis), ROWS: P(axis), None: P()}
    return tree_map_with_path(lambda path, _: specs[RIGHT.get(path[-1].key)], params)


@wrong("communication")
def largest_dim_split(params: Params, *, axis: str) -> Params:
    """The larger dim of each matrix is split, whatever the matrix is for; its place in the layer
    decides whether it is split by rows or by columns."""

    def spec(path: tuple[Any, ...], leaf: Any) -> P:
        if path[-1].key not in RIGHT:
            return P()
        *stacked, rows, columns = leaf.shape
        return P(*[None] * (len(stacked) + (columns > rows)), axis)

    return tree_map_with_path(spec, params)
