"""Exercise megatron_specs: the same, made by the compiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from jax.tree_util import tree_map_with_path

from jaxpar import nn
from jaxpar.contracts.base import Communication, Contract, Limit, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Sizes, fill
from jaxpar.mesh import make_mesh
from jaxpar.parallel import tensor

_BATCH, _SEQUENCE, _HEAD = 4, 6, 4  # examples on a device, tokens in one, size of a head


def _forward(case: Case, specs: list[P]) -> jax.stages.Lowered:
    """Layers written for one device, for the compiler to split by these specs."""
    mesh = make_mesh(case.mesh)
    others = tuple(name for name in mesh.axis_names if name != case.kwargs["axis"])
    batch = NamedSharding(mesh, P(others))

    def apply_layers(params: dict[str, Any], x: jax.Array) -> jax.Array:
        if params["mlp"]["up"].ndim == 2:
            return _layer(params, x)
        return lax.scan(lambda x, layer: (_layer(layer, x), None), x, params)[0]

    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for _, leaf in case.arrays()]
    params = fill(case.args["params"], iter(shapes))
    lie = fill(case.args["params"], iter([NamedSharding(mesh, spec) for spec in specs]))
    jitted = jax.jit(apply_layers, in_shardings=(lie, batch), out_shardings=batch)
    replicas = mesh.size // mesh.shape[case.kwargs["axis"]]
    x = (replicas * _BATCH, _SEQUENCE, _model_size(case))
    return jitted.lower(params, jax.ShapeDtypeStruct(x, jnp.float32))


def _layer(params: dict[str, Any], x: jax.Array) -> jax.Array:
    if "position" in params:
        x = x + params["position"]["table"][None]
    y, attention, mlp = nn.rms_norm(x, params["norm"]["scale"]), params["attention"], params["mlp"]
    if "bias" in params["norm"]:
        y += params["norm"]["bias"][None, None]
    heads = (nn.matmul(y, attention[name]) for name in ("query", "key", "value"))
    q, k, v = (y.reshape(*x.shape[:2], -1, _HEAD).swapaxes(1, 2) for y in heads)
    gathered = nn.attention(q, k, v).swapaxes(1, 2).reshape(*x.shape[:2], -1)
    x = x + nn.matmul(gathered, attention["output"])
    up = nn.matmul(x, mlp["up"])
    hidden = nn.swiglu(nn.matmul(x, mlp["gate"]), up) if "gate" in mlp else nn.gelu(up)
    return x + nn.matmul(hidden, mlp["down"])


def _model_size(case: Case) -> int:
    return case.args["params"]["norm"]["scale"].shape[-1]


def _two_a_layer(sizes: Sizes) -> float:
    """Wire bytes of two all-reduces of a device's activations for each layer."""
    n, (*stacked, d) = sizes.n(), sizes.case.args["params"]["norm"]["scale"].shape
    layers = stacked[0] if stacked else 1
    return layers * 2 * 2 * (n - 1) / n * 4 * _BATCH * _SEQUENCE * d


def _params(d: int, heads: int, kv_heads: int, f: int, *layers: int, gated: bool) -> dict[str, Any]:
    def matrix(rows: int, columns: int) -> ArraySpec:
        return ArraySpec((*layers, rows, columns), "l d f" if layers else "d f")

    q, k = heads * _HEAD, kv_heads * _HEAD
    position = {} if layers else {"position": {"table": ArraySpec((_SEQUENCE, d), "t d")}}
    return position | {
        "attention": {
            "query": matrix(d, q),
            "key": matrix(d, k),
            "value": matrix(d, k),
            "output": matrix(q, d),
        },
        "mlp": ({"gate": matrix(d, f)} if gated else {})
        | {"up": matrix(d, f), "down": matrix(f, d)},
        "norm": {"scale": ArraySpec((*layers, d), "l d" if layers else "d")},
    }


def _with_bias(params: dict[str, Any]) -> dict[str, Any]:
    """With a leaf of a name that no other case has."""
    norm = params["norm"]
    return params | {"norm": norm | {"bias": norm["scale"]}}


CONTRACT = Contract(
    kind="specs",
    task="return a partition spec for each leaf: matrices by columns or by rows, the rest whole",
    reference=tensor.megatron_specs,
    oracle=tensor.megatron_specs,
    partitioned=_forward,
    cases=(
        Case("tp=4", {"params": _params(24, 8, 4, 32, 4, gated=True)}, {"axis": "tp"}),
        Case("dp=2,tpx=3", {"params": _params(30, 6, 3, 24, gated=False)}, {"axis": "tpx"}),
    ),
    hidden=(
        Case(
            "pp=2,tp=2",
            {"params": _with_bias(_params(20, 4, 2, 18, 3, gated=False))},
            {"axis": "tp"},
        ),
    ),
    communication=Communication(
        "forward, the compiler sends two all-reduces of x's size for each layer",
        forward=((Limit(("all_reduce",), "axis", _two_a_layer),),),
    ),
    memory=MemoryLimit(
        "matrices take 1/n of their bytes; intermediate results at most 1.5 times the library's"
    ),
    sharding=True,
    hints=(
        "Write the layer for one device beside the split one. Which dim of each matrix is cut? "
        "Columns are the last dim, rows the one before; there may be a dim l in front.",
        "What x is multiplied by is split by columns; what gives the result, output and down, by "
        "rows. Then nothing is sent until the last product's sum.",
        "jax.tree_util.tree_map_with_path(f, params) calls f(path, leaf); path[-1].key is the "
        "name. P(*[None] * k, axis) splits dim k.",
    ),
    minimal="Each product by rows gives parts of a sum, and there are two in a layer.",
    harder="With fewer kv heads than devices, which spec must key and value have? Inspect the "
    "program with both.",
)


def _split(choose: Callable[[str, str], int | None], axes: Callable = lambda axis: axis) -> Any:
    """Splits, of each leaf, the dim that `choose` finds by part and name, counted from the last."""

    def function(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
        def lie(path: tuple[Any, ...], leaf: Any) -> P:
            dim = choose(path[0].key, path[-1].key)
            return P() if dim is None else P(*[None] * (len(leaf.shape) + dim), axes(axis))

        return tree_map_with_path(lie, params)

    return function


@wrong("sharding")
def all_whole(*args: Any, **how: Any) -> Any:
    """Every matrix is whole on every device: nothing is tensor parallel."""
    return (_split(lambda *_: None))(*args, **how)


COLUMNS, ROWS = -1, -2


_KV = ("key", "value")


_LAST = ("output", "down")


_FIRST = ("query", *_KV, "gate", "up")


def _right(part: str, name: str) -> int | None:
    if name in _FIRST:
        return COLUMNS
    return ROWS if name in _LAST else None


def _unless(part_or_names: tuple[str, ...], dim: int | None = None) -> Callable:
    """Right, but for these parts or names."""

    def choose(part: str, name: str) -> int | None:
        return dim if part in part_or_names or name in part_or_names else _right(part, name)

    return _split(choose)


@wrong("sharding")
def only_mlp_split(*args: Any, **how: Any) -> Any:
    """Only the MLP is split; split attention by heads, too."""
    return (_unless(("attention",)))(*args, **how)


@wrong("sharding")
def only_attention_split(*args: Any, **how: Any) -> Any:
    """Only attention is split; split the MLP, too."""
    return (_unless(("mlp",)))(*args, **how)


@wrong("sharding")
def kv_whole(*args: Any, **how: Any) -> Any:
    """key and value are whole on every device; they have as many columns of heads to split as
    query."""
    return (_unless(_KV))(*args, **how)


@wrong("sharding")
def scales_split(*args: Any, **how: Any) -> Any:
    """Scales of norms are split, too; they work on whole x, which every device has."""
    return (_unless(("scale",), COLUMNS))(*args, **how)


def _swapped(part: str, name: str) -> int | None:
    return {COLUMNS: ROWS, ROWS: COLUMNS}.get(_right(part, name) or 0)


@wrong("communication")
def rows_and_columns_swapped(*args: Any, **how: Any) -> Any:
    """What comes first is split by rows, and output and down by columns: the compiler sums what
    lies between, and gathers the result. Columns first, rows last."""
    return (_split(_swapped))(*args, **how)


@wrong("communication")
def columns_everywhere(*args: Any, **how: Any) -> Any:
    """output and down are split by columns, too: the compiler gathers what they multiply, and their
    result; split them by rows."""
    return (_unless(_LAST, COLUMNS))(*args, **how)


@wrong("communication")
def rows_everywhere(*args: Any, **how: Any) -> Any:
    """query, key, value, gate and up are split by rows: the compiler sums each of their products;
    split them by columns."""
    return (_unless(_FIRST, ROWS))(*args, **how)


@wrong("communication")
def kv_by_rows(*args: Any, **how: Any) -> Any:
    """key and value are split by rows, and their products are summed: split them by columns, as
    query is."""
    return (_unless(_KV, ROWS))(*args, **how)


@wrong("communication")
def dim_l_split(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
    """Dim l of stacked layers is split, so the compiler gathers a layer to use it; split its
    columns or rows."""
    right = _split(_right)(params, axis=axis)

    def lie(path: tuple[Any, ...], leaf: Any) -> P:
        spec = right[path[0].key][path[-1].key]
        return P(axis) if len(leaf.shape) == 3 else spec

    return tree_map_with_path(lie, params)


@wrong("communication")
def dims_of_one_layer(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
    """A spec begins at the first dim, which is l where layers are stacked; count dims from the
    last."""
    specs = {COLUMNS: P(None, axis), ROWS: P(axis), None: P()}
    return tree_map_with_path(lambda path, _: specs[_right("", path[-1].key)], params)


@wrong("communication")
def largest_dim_split(params: dict[str, Any], *, axis: str) -> dict[str, Any]:
    """The larger dim of each matrix is split, whatever it is for; whether by rows or by columns,
    its place in the layer says."""

    def lie(path: tuple[Any, ...], leaf: Any) -> P:
        if _right("", path[-1].key) is None:
            return P()
        *stacked, rows, columns = leaf.shape
        return P(*[None] * (len(stacked) + (columns > rows)), axis)

    return tree_map_with_path(lie, params)
