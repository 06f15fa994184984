"""Vocabulary parallelism equals one device, and sends and holds what it says."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P, lax

from jaxpar import nn
from jaxpar.mesh import make_mesh
from jaxpar.parallel import vocabulary
from tests.arrays import random
from tests.comm_lines import check_lines, measured

MESHES = ("tp=4", "dp=2,tp=3")
B, T, D, V = 2, 10, 6, 24


IDS = np.random.default_rng(0).integers(-V // 2, V + V // 2, (B, T))
LABELS = np.random.default_rng(1).integers(0, V, (B, T))
TABLE, X, HEAD = random(V, D), random(B, T, D), random(D, V)
LOGITS = random(B, T, V) + np.array([200, -200], np.float32).reshape(B, 1, 1)


def summed(ids: Any, table: Any, *, axis: str) -> jax.Array:
    return lax.psum(vocabulary.partial_embedding(ids, table, axis=axis), axis)


def embedding(ids: Any, table: Any) -> jax.Array:
    known = (ids >= 0) & (ids < V)
    return jnp.where(known[..., None], table[jnp.where(known, ids, 0)], 0)


def cross_entropy(logits: Any, labels: Any) -> jax.Array:
    return nn.cross_entropy(logits, jnp.asarray(labels))


ROWS, LAST, EQUAL = P("tp"), P(None, None, "tp"), P()
Call = tuple[Callable, Callable, tuple, tuple, int, P]
"""Function, one on one device, arguments, their specs, which has a gradient, the result's spec."""

CALLS: dict[str, Call] = {
    "partial_embedding": (summed, embedding, (IDS, TABLE), (EQUAL, ROWS), 1, EQUAL),
    "vocab_parallel_embedding": (
        vocabulary.vocab_parallel_embedding, embedding, (IDS, TABLE), (EQUAL, ROWS), 1, EQUAL,
    ),
    "vocab_parallel_logits": (
        vocabulary.vocab_parallel_logits, lambda x, w: x @ w,
        (X, HEAD), (EQUAL, P(None, "tp")), 0, LAST,
    ),
    "vocab_parallel_cross_entropy": (
        vocabulary.vocab_parallel_cross_entropy, cross_entropy,
        (LOGITS, LABELS), (LAST, EQUAL), 0, EQUAL,
    ),
}  # fmt: skip


def with_gradient(function: Callable, args: tuple, of: int, c: Any) -> tuple[Any, Any]:
    """The result, and the gradient of <result, c> with respect to one argument."""
    y, pull = jax.vjp(lambda part: function(*args[:of], part, *args[of + 1 :]), args[of])
    return y, pull(c)[0]


def on_devices(sizes: str, name: str, *, differentiate: bool) -> tuple[Callable, tuple]:
    function, one, args, specs, of, gives = CALLS[name]
    function = partial(function, axis="tp")
    c = random(*jax.eval_shape(one, *args).shape)

    def on_shards(args: tuple, c: Any) -> Any:
        return with_gradient(function, args, of, c) if differentiate else function(*args)

    out = (gives, specs[of]) if differentiate else gives
    mesh = make_mesh(sizes)
    run = jax.jit(jax.shard_map(on_shards, mesh=mesh, in_specs=(specs, gives), out_specs=out))
    return run, (args, c)


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradient_equal_one_device(name: str, sizes: str) -> None:
    run, (args, c) = on_devices(sizes, name, differentiate=True)
    _, one, _, _, of, _ = CALLS[name]
    for got, right in zip(run(args, c), with_gradient(one, args, of, c), strict=True):
        np.testing.assert_allclose(got, right, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("sizes", MESHES)
@pytest.mark.parametrize("name", CALLS)
def test_they_send_and_hold_what_they_say(name: str, sizes: str) -> None:
    n = make_mesh(sizes).shape["tp"]
    _, _, args, specs, _, gives = CALLS[name]
    function = getattr(vocabulary, name)
    forward, both = (
        measured(run.lower(*given))
        for run, given in (on_devices(sizes, name, differentiate=d) for d in (False, True))
    )
    names = {"b": B, "t": T}
    for arg, array, arg_spec in zip(signature(function).parameters, args, specs, strict=False):
        names[arg] = array.size // (n if "tp" in tuple(arg_spec) else 1)
    c = on_devices(sizes, name, differentiate=False)[1][1]
    names["y"] = c.size // (n if "tp" in tuple(gives) else 1)
    if name == "partial_embedding":  # the sum is ours
        forward, both = (sent - Counter({("all_reduce", "tp"): c.size}) for sent in (forward, both))
    check_lines(function, forward, both, names["y"], axes={"axis": "tp"}, names=names)


def loss_of(logits: Any, *, differentiate: bool = False) -> jax.stages.Wrapped:
    def on_shards(logits: Any, labels: Any) -> Any:
        loss = partial(vocabulary.vocab_parallel_cross_entropy, axis="tp")
        y, pull = jax.vjp(lambda logits: loss(logits, labels), logits)
        return (y, pull(y)[0]) if differentiate else y

    specs = (LAST, EQUAL)
    out = (EQUAL, LAST) if differentiate else EQUAL
    return jax.jit(jax.shard_map(on_shards, mesh=make_mesh("tp=4"), in_specs=specs, out_specs=out))


def test_logits_in_bfloat16_are_summed_in_float32() -> None:
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    y, gradient = loss_of(logits, differentiate=True)(logits, LABELS)
    right = cross_entropy(logits.astype(jnp.float32), LABELS)
    assert (y.dtype, gradient.dtype) == (jnp.float32, jnp.bfloat16)
    np.testing.assert_allclose(y, right, rtol=1e-5)


def test_the_loss_holds_no_row_of_all_logits() -> None:
    """It takes less memory than this device's logits once more, however many positions."""
    logits = jax.ShapeDtypeStruct((B, 512, V * 4), jnp.float32)
    labels = jax.ShapeDtypeStruct((B, 512), jnp.int32)
    held = loss_of(logits).lower(logits, labels).compile().memory_analysis()
    assert held
    assert held.temp_size_in_bytes < B * 512 * V * 4


def test_rows_in_bfloat16_are_sent_as_such() -> None:
    function = partial(vocabulary.vocab_parallel_embedding, axis="tp")
    run = jax.jit(
        jax.shard_map(function, mesh=make_mesh("tp=4"), in_specs=(EQUAL, ROWS), out_specs=EQUAL)
    )
    table = jnp.asarray(TABLE, jnp.bfloat16)
    sent = measured(run.lower(IDS, table))
    assert sent == {("all_reduce", "tp"): IDS.size * D / 2}  # counted in words of four bytes
    np.testing.assert_array_equal(run(IDS, table), embedding(IDS, table))
