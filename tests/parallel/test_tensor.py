"""Tensor-parallel layers equal one device, and send and hold what their docstrings say."""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P
from jax.sharding import AbstractMesh, AxisType, NamedSharding

from jaxpar import nn
from jaxpar.mesh import make_mesh
from jaxpar.parallel import tensor
from tests.arrays import random
from tests.comm_lines import check_lines, comm, evaluate, measured, memory

MESHES = ("tp=4", "dp=2,tp=3")
B, T, D, H, F = 2, 5, 6, 4, 24
COLUMNS, ROWS, EQUAL = P(None, "tp"), P("tp"), P()
SPLIT_LAST = P(None, None, "tp")


X, HIDDEN, UP, DOWN = random(B, T, D), random(B, T, F), random(D, F), random(F, D)
GATE, UP_BIAS, DOWN_BIAS = random(D, F) / 2, random(F), random(D)


def attention(heads: int, kv_heads: int, x: Any, *weights: Any) -> jax.Array:
    w_q, w_k, w_v, w_o = weights
    q, k, v = ((x @ w).reshape(B, T, -1, H).swapaxes(1, 2) for w in (w_q, w_k, w_v))
    k, v = (jnp.repeat(y, heads // kv_heads, axis=1) for y in (k, v))
    return nn.attention(q, k, v).swapaxes(1, 2).reshape(B, T, -1) @ w_o


def linear(x: Any, w: Any, *b: Any) -> jax.Array:
    return x @ w + sum(jnp.expand_dims(bias, (0, 1)) for bias in b)


def gated(x: Any, w_gate: Any, w_up: Any, w_down: Any) -> jax.Array:
    return (jax.nn.silu(x @ w_gate) * (x @ w_up)) @ w_down


def repeat_heads(neighbours: int, w: Any) -> jax.Array:
    """The columns that all devices use, when so many neighbours use the same head."""
    return jnp.repeat(w.reshape(D, -1, H), neighbours, axis=1).reshape(D, -1)


def plain(x: Any, w_up: Any, w_down: Any) -> jax.Array:
    return jax.nn.gelu(x @ w_up) @ w_down


Call = tuple[Callable, Callable, tuple, tuple, P]
"""The function, the same on one device, its arguments, their specs, and the spec of its result."""

CALLS: dict[str, Call] = {
    "enter": (tensor.enter, lambda x: x, (X,), (EQUAL,), P()),
    "column_linear": (tensor.column_linear, linear, (X, UP), (EQUAL, COLUMNS), SPLIT_LAST),
    "column_linear with a bias": (
        tensor.column_linear, linear, (X, UP, UP_BIAS), (EQUAL, COLUMNS, ROWS), SPLIT_LAST,
    ),
    "row_linear": (tensor.row_linear, linear, (HIDDEN, DOWN), (SPLIT_LAST, ROWS), EQUAL),
    "row_linear with a bias": (
        tensor.row_linear, linear, (HIDDEN, DOWN, DOWN_BIAS), (SPLIT_LAST, ROWS, EQUAL), EQUAL,
    ),
    "parallel_mlp": (tensor.parallel_mlp, plain, (X, UP, DOWN), (EQUAL, COLUMNS, ROWS), EQUAL),
    "parallel_swiglu": (
        tensor.parallel_swiglu, gated, (X, GATE, UP, DOWN), (EQUAL, COLUMNS, COLUMNS, ROWS), EQUAL,
    ),
}  # fmt: skip


def call(name: str, n: int) -> tuple[Call, dict[str, int]]:
    """A call, and the value of `few`; the name of attention is the number of its kv heads."""
    if name in CALLS:
        return CALLS[name], {}
    what, _, kind = name.partition(" ")
    kv_heads = {"MHA": 2 * n, "GQA": n, "few": n // 2, "MQA": 1}[kind]
    few = kv_heads < n
    w_k, w_v = random(D, kv_heads * H), random(D, kv_heads * H) / 2
    kv = EQUAL if few else COLUMNS
    if what == "own_kv_heads":
        own = partial(tensor.own_kv_heads, num_kv_heads=kv_heads)
        return (own, partial(repeat_heads, max(1, n // kv_heads)), (w_k,), (kv,), COLUMNS), {
            "few": few
        }
    function = partial(tensor.parallel_attention, num_heads=2 * n, num_kv_heads=kv_heads)
    weights = random(D, 2 * n * H), w_k, w_v, random(2 * n * H, D)
    specs = (EQUAL, COLUMNS, kv, kv, ROWS)
    return (function, partial(attention, 2 * n, kv_heads), (X, *weights), specs, EQUAL), {
        "few": few
    }


HEADS = ("MHA", "GQA", "few", "MQA")
NAMES = (
    *CALLS, *(f"own_kv_heads {k}" for k in HEADS), *(f"parallel_attention {k}" for k in HEADS),
)  # fmt: skip


def on_devices(sizes: str, name: str, *, differentiate: bool) -> tuple[Callable, tuple]:
    """The call on a mesh, with the gradient of <result, c>, and its arguments with c."""
    mesh = make_mesh(sizes)
    (function, one, args, specs, gives), _ = call(name, mesh.shape["tp"])
    c = random(*jax.eval_shape(one, *args).shape)

    def on_shards(args: tuple, c: Any) -> Any:
        y, pull = jax.vjp(partial(function, axis="tp"), *args)
        if name == "enter":  # typed as varying, equal in fact
            y, c = jax.lax.pmean(y, "tp"), jax.lax.pcast(c, "tp", to="varying")
        return (y, pull(c)) if differentiate else y

    out = (gives, specs) if differentiate else gives
    run = jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=(specs, gives), out_specs=out))
    return run, (args, c)


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("name", NAMES)
def test_values_and_gradient_equal_one_device(name: str, sizes: str) -> None:
    run, (args, c) = on_devices(sizes, name, differentiate=True)
    n = make_mesh(sizes).shape["tp"]
    (_, one, *_), _ = call(name, n)
    y, gradients = run(args, c)
    right, pull = jax.vjp(one, *args)
    np.testing.assert_allclose(y, right, rtol=2e-4, atol=2e-5)
    devices = n if name == "enter" else 1  # each of them has a gradient of its own
    for got, expected in zip(gradients, pull(jnp.asarray(c)), strict=True):
        np.testing.assert_allclose(got, devices * expected, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("name", NAMES)
def test_they_send_and_hold_what_they_say(name: str, sizes: str) -> None:
    n = make_mesh(sizes).shape["tp"]
    (function, _, args, specs, gives), names = call(name, n)
    function = getattr(function, "func", function)
    programs = []
    for differentiate in (False, True):
        run, given = on_devices(sizes, name, differentiate=differentiate)
        programs.append(measured(run.lower(*given)))
    forward, both = programs
    if name == "enter":  # the mean above is ours
        forward, both = (sent - Counter({("all_reduce", "tp"): X.size}) for sent in programs)
    for arg, array, arg_spec in zip(signature(function).parameters, args, specs, strict=False):
        names[arg] = array.size // (n if "tp" in tuple(arg_spec) else 1)
    c = on_devices(sizes, name, differentiate=False)[1][1]
    names["y"] = c.size // (n if "tp" in tuple(gives) else 1)
    check_lines(function, forward, both, names["y"], axes={"axis": "tp"}, names=names)


def test_the_bias_of_rows_is_added_once() -> None:
    """As it is replicated, its gradient is equal on all devices, and nothing is sent."""
    run, (args, c) = on_devices("tp=4", "row_linear with a bias", differentiate=True)
    _, (*_, of_bias) = run(args, c)
    np.testing.assert_allclose(of_bias, c.sum((0, 1)), rtol=1e-5)


def dropped(axis: str | None, seed: int = 0, rate: float = 0.25) -> np.ndarray:
    """What dropout leaves of an array of ones, on each device."""
    mesh = make_mesh("dp=2,tp=3")

    def on_shards(x: jax.Array) -> jax.Array:
        kept = tensor.dropout(x, rate, axis=axis, key=jax.random.key(seed))
        missing = tuple({"dp", "tp"} - set(jax.typeof(kept).manual_axis_type.varying))
        return jax.lax.pcast(kept, missing, to="varying")[None, None]

    run = jax.shard_map(on_shards, mesh=mesh, in_specs=P(), out_specs=P("dp", "tp"))
    return np.asarray(jax.jit(run)(jnp.ones((40, 50))))


def test_dropout_has_one_mask_or_one_for_each_device() -> None:
    same, different = dropped(None), dropped("tp")
    assert (same == same[0, 0]).all()
    assert (different == different[:1]).all()  # over dp it is not asked for
    for one, other in ((0, 1), (0, 2), (1, 2)):
        agree = (different[0, one] == different[0, other]).mean()
        assert agree == pytest.approx(0.75**2 + 0.25**2, abs=0.05)
    assert (dropped(None, seed=1) != same).any()


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.9])
def test_dropout_keeps_the_mean(rate: float) -> None:
    kept = dropped("tp", rate=rate)[0]
    assert set(np.unique(kept)) <= {0, np.float32(1) / np.float32(1 - rate)}
    assert kept.mean() == pytest.approx(1, abs=4 * math.sqrt(rate / (1 - rate) / kept.size))


def test_dropout_sends_nothing() -> None:
    for direction in ("forward", "backward"):
        assert comm(tensor.dropout, direction) == ()
    key = jax.random.key(0)
    mesh = make_mesh("tp=4")

    def both(x: jax.Array) -> Any:
        y, pull = jax.vjp(partial(tensor.dropout, rate=0.5, axis="tp", key=key), x)
        return y, pull(y)

    run = jax.jit(jax.shard_map(both, mesh=mesh, in_specs=ROWS, out_specs=ROWS))
    program = run.lower(random(8, 4))
    assert not measured(program)
    assert evaluate(memory(tensor.dropout), {"x": 8}) == 8


@pytest.mark.parametrize(
    ("heads", "kv_heads", "n", "says"),
    [
        (6, 6, 4, r"dim a \(size 6\) must be divisible by mesh axis tp \(size 4\); pad a to 8"),
        (12, 6, 4, r"6 kv heads on mesh axis tp \(size 4\); .* use tp in {1, 2, 3, 6}, or a mult"),
        (12, 4, 6, r"4 kv heads on mesh axis tp \(size 6\); .* or a multiple of 4"),
    ],
)
def test_heads_that_do_not_fit(heads: int, kv_heads: int, n: int, says: str) -> None:
    mesh = AbstractMesh((n,), ("tp",), axis_types=(AxisType.Auto,))
    kv = COLUMNS if kv_heads >= n else EQUAL
    function = partial(tensor.parallel_attention, num_heads=heads, num_kv_heads=kv_heads, axis="tp")
    specs = (EQUAL, COLUMNS, kv, kv, ROWS)
    run = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=EQUAL)
    shapes = [(B, T, D), (D, heads * H), *[(D, kv_heads * H)] * 2, (heads * H, D)]
    with pytest.raises(ValueError, match=f"parallel_attention: {says}"):
        jax.eval_shape(run, *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))


def test_specs_for_the_compiler() -> None:
    params = {
        "attention": {
            "query": random(3, 8, 16),
            "key": random(3, 8, 4),
            "output": random(3, 16, 8),
        },
        "mlp": {"gate": random(8, 12), "down": random(12, 8)},
    }
    specs = tensor.megatron_specs(params | {"norm": {"scale": random(3, 8)}}, axis="tp")
    assert specs == {
        "attention": {"query": SPLIT_LAST, "key": SPLIT_LAST, "output": P(None, "tp")},
        "mlp": {"gate": P(None, "tp"), "down": P("tp")},
        "norm": {"scale": P()},
    }
    mesh = make_mesh("dp=2,tp=4")
    del specs["norm"]
    is_spec = lambda part: isinstance(part, P)  # noqa: E731
    local = jax.tree.map(
        lambda s, w: math.prod(NamedSharding(mesh, s).shard_shape(w.shape)), specs, params,
        is_leaf=is_spec,
    )  # fmt: skip
    whole = sum(leaf.size for leaf in jax.tree.leaves(params))
    held = evaluate(memory(tensor.megatron_specs), {"params": whole, "n": 4})
    assert sum(jax.tree.leaves(local)) == held
