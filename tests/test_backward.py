"""The backward pass of a stack of layers, whole and in two halves."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar import backward, nn
from jaxpar.model import Settings, init, pieces
from jaxpar.parallel.remat import checkpointed
from tests.arrays import random
from tests.comm_lines import comm, evaluate, memory

L, ROWS, D = 3, 4, 6
WORD = Settings(layers=1, d_model=32, heads=4, sequence=16)


STACK = {"up": random(L, D, 8) / 4, "down": random(L, 8, D) / 4, "bias": random(L, D) / 4}
X, DY = random(ROWS, D) / 4, random(ROWS + 1, D)[1:] / 4


def mlp(layer: Any, x: jax.Array) -> jax.Array:
    y = nn.gelu(x @ layer["up"]) @ layer["down"]
    return x + y + jnp.broadcast_to(layer["bias"], y.shape)


def twice(layer: Any, x: jax.Array) -> jax.Array:
    """A layer that uses one parameter twice and another one never, and that has a loop."""
    y, _ = lax.scan(lambda y, _: (jnp.tanh(y @ layer["up"] @ layer["down"]), None), x, length=2)
    return y * nn.rms_norm(x, scale=layer["up"].sum(axis=1))


def bias(layer: Any, x: jax.Array) -> jax.Array:
    return x + jnp.broadcast_to(layer["bias"], x.shape)


LAYERS = {
    "mlp": mlp,
    "full": checkpointed(mlp, "full"),
    "products": checkpointed(mlp, "products"),
    "jit": jax.jit(mlp),
    "twice": twice,
    "bias": bias,
    "relu": lambda layer, x: jax.nn.relu(x @ layer["up"]) @ layer["down"],
    "no parameter": lambda layer, x: jnp.sin(x),
    "no x": lambda layer, x: jnp.broadcast_to(layer["bias"], x.shape),
}


def in_halves(layer_fn: Callable, params: Any, kept: Any, dy: jax.Array) -> tuple[jax.Array, Any]:
    x, halves = backward.input_gradient(layer_fn, params, kept, dy)
    return x, backward.weight_gradient(layer_fn, params, kept, halves, jnp.zeros_like(dy))


def gradients(take: Callable, layer_fn: Callable, params: Any, x: Any, dy: Any) -> Any:
    y, kept = backward.forward(layer_fn, params, x)
    return y, *take(layer_fn, params, kept, dy)


def one_after_another(layer_fn: Callable, params: Any, x: jax.Array) -> jax.Array:
    return lax.scan(lambda x, layer: (layer_fn(layer, x), None), x, params)[0]


@pytest.mark.parametrize("name", LAYERS)
def test_whole_and_in_halves_it_is_the_gradient(name: str) -> None:
    layer_fn = LAYERS[name]

    @jax.jit
    def every(params: Any, x: Any, dy: Any) -> Any:
        y, pull = jax.vjp(partial(one_after_another, layer_fn), params, x)
        expected = y, *pull(dy)[::-1]
        found = (
            gradients(take, layer_fn, params, x, dy) for take in (backward.backward, in_halves)
        )
        return expected, *found

    expected, *found = every(STACK, X, DY)
    for one in found:
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), one, expected)


@pytest.mark.parametrize("remat", ["none", "products", "full"])
def test_frozen_parameters_have_no_gradients_and_need_nothing_kept(remat: str) -> None:
    """Of two products, one is frozen: what would give its gradient is not kept, nor its weight."""

    def apply(layer: Any, x: jax.Array, frozen: Any) -> jax.Array:
        return checkpointed(mlp, remat)(layer | frozen, x)

    names = ["up", "bias"]
    new = {name: STACK[name] for name in names}
    base = {"down": STACK["down"]}
    whole = gradients(backward.backward, checkpointed(mlp, remat), STACK, X, DY)
    y, kept = backward.forward(apply, new, X, base)
    x, halves = backward.input_gradient(apply, new, kept, DY, base)
    found = (
        (y, *backward.backward(apply, new, kept, DY, base)),
        (y, x, backward.weight_gradient(apply, new, kept, halves, jnp.zeros_like(DY), base)),
    )
    expected = (*whole[:2], {name: whole[2][name] for name in names})
    for one in found:
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-6), one, expected)
    assert not {leaf.shape for leaf in kept} & {leaf.shape for leaf in base.values()}
    _, of_all = backward.forward(checkpointed(mlp, remat), STACK, X)
    assert size(kept) < size(of_all) if remat == "none" else size(kept) == size(of_all)


def costs(function: Callable, *given: Any) -> float:
    """The flops that XLA counts; it counts a loop's body once, and here the stack has one layer."""
    analysis = jax.jit(function).lower(*given).compile().cost_analysis()
    assert analysis
    return analysis["flops"]


@pytest.mark.parametrize("remat", ["none", "full"])
@pytest.mark.parametrize("keep_inputs", [False, True])
def test_two_halves_cost_at_most_a_twentieth_more(remat: str, keep_inputs: bool) -> None:
    """For a decoder's layer; with `keep_inputs` its forward is recomputed, once."""
    layer_fn = checkpointed(pieces(WORD).layer, remat)
    params = jax.eval_shape(partial(init, WORD), jax.random.key(0))["layers"]
    x = jax.ShapeDtypeStruct((2, 16, 32), jnp.float32)

    def kept_of(params: Any, kept: Any) -> Any:
        return backward.forward(layer_fn, params, kept)[1] if keep_inputs else kept

    def whole(params: Any, kept: Any, dy: Any) -> Any:
        return backward.backward(layer_fn, params, kept_of(params, kept), dy)

    def first(params: Any, kept: Any, dy: Any) -> Any:
        kept = kept_of(params, kept)
        return backward.input_gradient(layer_fn, params, kept, dy), kept

    def second(params: Any, kept: Any, halves: Any, dy: Any) -> Any:
        return backward.weight_gradient(layer_fn, params, kept, halves, dy)

    _, kept = jax.eval_shape(partial(backward.forward, layer_fn), params, x)
    given = x if keep_inputs else kept
    (_, halves), _ = jax.eval_shape(first, params, given, x)
    split = costs(first, params, given, x) + costs(second, params, kept, halves, x)
    assert split <= 1.05 * costs(whole, params, given, x)


def size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def test_they_hold_what_they_say() -> None:
    y, kept = forward = jax.eval_shape(partial(backward.forward, mlp), STACK, X)
    first = jax.eval_shape(partial(backward.input_gradient, mlp), STACK, kept, y)
    second = jax.eval_shape(partial(backward.weight_gradient, mlp), STACK, kept, first[1], y)
    whole = jax.eval_shape(partial(backward.backward, mlp), STACK, kept, y)
    names = {"x": X.size, "l": L, "params": size(STACK)}
    names |= {"residuals": size(kept) // L, "halves": size(first[1]) // L}
    for function, held in (
        (backward.forward, forward),
        (backward.input_gradient, first),
        (backward.weight_gradient, second),
        (backward.backward, whole),
    ):
        assert size(held) == evaluate(memory(function), names)
        assert comm(function, "forward") == ()


def test_halves_are_halves() -> None:
    """The first half computes the gradient with respect to the input, and no product besides."""
    _, kept = jax.eval_shape(partial(backward.forward, mlp), STACK, X)
    whole, first = (
        str(jax.make_jaxpr(partial(function, mlp))(STACK, kept, DY)).count("dot_general")
        for function in (backward.backward, backward.input_gradient)
    )
    assert first < whole
