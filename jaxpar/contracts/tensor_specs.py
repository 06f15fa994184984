"""Contract of lesson 11: specs from which the compiler makes tensor parallelism."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar import nn
from jaxpar.contracts import tensor_specs_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Limit, MemoryLimit
from jaxpar.contracts.case import Array, Case, Sizes, fill
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
    def matrix(rows: int, columns: int) -> Array:
        return Array((*layers, rows, columns), "l d f" if layers else "d f")

    q, k = heads * _HEAD, kv_heads * _HEAD
    position = {} if layers else {"position": {"table": Array((_SEQUENCE, d), "t d")}}
    return position | {
        "attention": {
            "query": matrix(d, q),
            "key": matrix(d, k),
            "value": matrix(d, k),
            "output": matrix(q, d),
        },
        "mlp": ({"gate": matrix(d, f)} if gated else {})
        | {"up": matrix(d, f), "down": matrix(f, d)},
        "norm": {"scale": Array((*layers, d), "l d" if layers else "d")},
    }


def _with_bias(params: dict[str, Any]) -> dict[str, Any]:
    """With a leaf of a name that no other case has."""
    norm = params["norm"]
    return params | {"norm": norm | {"bias": norm["scale"]}}


MEGATRON_SPECS = Contract(
    id="megatron_specs",
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
    mistakes=mistakes.MEGATRON_SPECS,
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

CONTRACTS = (MEGATRON_SPECS,)
