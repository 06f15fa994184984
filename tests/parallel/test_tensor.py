"""Tensor-parallel layers equal one device, and send and hold what their docstrings say.

That `parallel_swiglu` and `parallel_attention` equal one device is in their contracts.
"""

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P, lax
from jax.sharding import AbstractMesh, AxisType

from jaxpar import nn
from jaxpar.mesh import make_mesh
from jaxpar.parallel import tensor
from tests.arrays import random
from tests.comm_lines import evaluate, memory
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device, elements

B, T, D, H, F = 2, 5, 6, 4, 24
HEADS = 8
COLUMNS, ROWS, EQUAL = P(None, "tp"), P("tp"), P()
SPLIT_LAST = P(None, None, "tp")


X, HIDDEN, UP, DOWN = random(B, T, D), random(B, T, F), random(D, F), random(F, D)
GATE, UP_BIAS, DOWN_BIAS = random(D, F) / 2, random(F), random(D)


def over_tp(function: Callable, args: tuple, in_specs: tuple, out_specs: P, **how: Any) -> Call:
    names = {"few": int(how.get("num_kv_heads", HEADS) < 4)}
    per_device = partial(function, axis="tp", **how)
    return Call(function, per_device, args, in_specs, out_specs, names=names)


def entered(x: jax.Array) -> jax.Array:
    """What enters is typed as varying and equal in fact, so that its mean is x."""
    return lax.pmean(tensor.enter(x, axis="tp"), "tp")


def linear(x: Any, w: Any, *b: Any) -> jax.Array:
    return x @ w + sum(jnp.expand_dims(bias, (0, 1)) for bias in b)


def mlp(x: Any, w_up: Any, w_down: Any) -> jax.Array:
    return nn.gelu(x @ w_up) @ w_down


def own_kv_heads(kv_heads: int) -> tuple[Call, Callable]:
    """The columns of its head for each of 4 devices, of which neighbours use the same one."""

    def repeated(w: Any) -> jax.Array:
        return jnp.repeat(w.reshape(D, -1, H), 4 // kv_heads, axis=1).reshape(D, -1)

    w = random(D, kv_heads * H)
    spec = EQUAL if kv_heads < 4 else COLUMNS
    return over_tp(tensor.own_kv_heads, (w,), (spec,), COLUMNS, num_kv_heads=kv_heads), repeated


def attention(kv_heads: int) -> Call:
    kv = EQUAL if kv_heads < 4 else COLUMNS
    weights = random(D, HEADS * H), *[random(D, kv_heads * H)] * 2, random(HEADS * H, D)
    specs = EQUAL, COLUMNS, kv, kv, ROWS
    how = {"num_heads": HEADS, "num_kv_heads": kv_heads}
    return over_tp(tensor.parallel_attention, (X, *weights), specs, EQUAL, **how)


CALLS = [
    (
        Call(
            tensor.enter, entered, (X,), (EQUAL,), EQUAL,
            sends=Counter({("all_reduce", "tp"): X.size}),
        ),
        lambda x: x,
    ),
    (over_tp(tensor.column_linear, (X, UP), (EQUAL, COLUMNS), SPLIT_LAST), linear),
    (
        over_tp(tensor.column_linear, (X, UP, UP_BIAS), (EQUAL, COLUMNS, ROWS), SPLIT_LAST),
        linear,
    ),
    (over_tp(tensor.row_linear, (HIDDEN, DOWN), (SPLIT_LAST, ROWS), EQUAL), linear),
    (
        over_tp(tensor.row_linear, (HIDDEN, DOWN, DOWN_BIAS), (SPLIT_LAST, ROWS, EQUAL), EQUAL),
        linear,
    ),
    (over_tp(tensor.parallel_mlp, (X, UP, DOWN), (EQUAL, COLUMNS, ROWS), EQUAL), mlp),
    *(own_kv_heads(kv_heads) for kv_heads in (4, 2, 1)),
]  # fmt: skip
IN_CONTRACTS = [
    over_tp(tensor.parallel_swiglu, (X, GATE, UP, DOWN), (EQUAL, COLUMNS, COLUMNS, ROWS), EQUAL),
    *(attention(kv_heads) for kv_heads in (8, 4, 2, 1)),
]


@pytest.mark.parametrize(("call", "one_device"), CALLS, ids=[str(call) for call, _ in CALLS])
def test_values_and_gradient_equal_one_device(call: Call, one_device: Callable) -> None:
    """The bias of rows is added once, and its gradient is that of one device on each."""
    assert_equal_one_device(call, one_device, "tp=4")


@pytest.mark.parametrize("call", [*(call for call, _ in CALLS), *IN_CONTRACTS], ids=str)
def test_they_send_and_hold_what_they_say(call: Call) -> None:
    assert_docstring_holds(call, "dp=2,tp=4", axis="tp")


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
    assert (different == different[:1]).all()  # `axis` is not dp, so masks are equal over dp
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
    per_device = partial(tensor.dropout, rate=0.5, axis="tp", key=jax.random.key(0))
    call = Call(tensor.dropout, per_device, (random(8, 4),), (ROWS,), ROWS)
    assert_docstring_holds(call, "tp=4", axis="tp")


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


def test_megatron_specs_split_every_matrix_of_layers() -> None:
    params = {
        "attention": {"query": random(3, 8, 16), "key": random(3, 8, 4)},
        "mlp": {"gate": random(8, 12), "down": random(12, 8)},
    }
    specs = tensor.megatron_specs(params | {"norm": {"scale": random(3, 8)}}, axis="tp")
    assert specs.pop("norm") == {"scale": P()}
    whole = sum(leaf.size for leaf in jax.tree.leaves(params))
    held = evaluate(memory(tensor.megatron_specs), {"params": whole, "n": 4})
    assert elements(params, specs, make_mesh("tp=4")) == held
