"""Experts over devices give what every expert on every token gives, and send what they say."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, P

from jaxpar import nn
from jaxpar.experts import route
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import expert
from tests.arrays import random
from tests.parallel.calls import Call, assert_close, assert_docstring_holds, assert_equal_one_device

T, D, F, E, K = 48, 6, 5, 12, 2
MESHES = pytest.mark.parametrize("sizes", ["ep=4", "dp=2,ep=3", "ep=1"])
ROWS, NOWHERE = P("ep"), P()


def routed(t: int = T, skew: float = 0) -> tuple[np.ndarray, ...]:
    """Tokens with the weights and experts that a router chooses; skewed ones prefer the first."""
    x, router = random(t, D), random(D, E)
    offset = skew * np.arange(E, 0, -1, dtype=np.float32)
    chosen = route(x, router, jnp.asarray(offset), top_k=K)
    return x, np.asarray(chosen.weights), np.asarray(chosen.experts)


def matrices() -> tuple[np.ndarray, ...]:
    return random(E, D, F), random(E, F, D)[:, ::-1].swapaxes(1, 2).copy(), random(E, F, D)


def call(function: Callable, skew: float = 0, **how: Any) -> Call:
    """Tokens, weights and experts over ep; what is chosen has no gradient, so it comes last."""

    def per_device(x, weights, w_gate, w_up, w_down, experts):
        return function(x, weights, experts, w_gate, w_up, w_down, axis="ep", **how)

    x, weights, experts = routed(skew=skew)
    args = (x, weights, *matrices(), experts)
    return Call(function, per_device, args, (ROWS,) * 6, ROWS, differentiated=5)


def by_every_expert(n: int, capacity: int | None, x: Array, weights: Array, *rest: Array) -> Array:
    """All experts on all tokens; what exceeds a capacity for each of n devices weighs nothing."""
    *w, experts = rest
    gate, up, down = w
    y = jnp.einsum("etf,efd->etd", nn.swiglu(jnp.einsum("td,edf->etf", x, gate),
                                             jnp.einsum("td,edf->etf", x, up)), down)  # fmt: skip
    kept = weights * kept_choices(np.asarray(experts), n, capacity)
    return sum(y[experts[:, i], np.arange(len(x))] * kept[:, i, None] for i in range(K))


def kept_choices(experts: np.ndarray, n: int, capacity: int | None) -> np.ndarray:
    """Which choices find a row: by device, then by rank of the choice, then by token."""
    kept = np.ones(experts.shape, bool)
    if capacity is not None:
        for device in np.array_split(np.arange(len(experts)), n):
            taken = Counter()
            for choice in range(K):
                for token in device:
                    taken[experts[token, choice]] += 1
                    kept[token, choice] = taken[experts[token, choice]] <= capacity
    return kept


@MESHES
@pytest.mark.parametrize(("capacity", "skew"), [(T * K, 0), (3, 0), (3, 0.1), (1, 5)])
def test_token_choice_equals_every_expert_on_every_token(
    sizes: str, capacity: int, skew: float
) -> None:
    """With room for all, with some dropped, and with all tokens choosing two experts."""
    n = make_mesh(sizes).shape["ep"]
    chosen = call(expert.moe_token_choice, skew, capacity=capacity)
    one_device = with_fixed_choices(partial(by_every_expert, n, capacity), chosen)
    assert_equal_one_device(chosen, one_device, sizes)


@MESHES
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("skew", [0, 5])
def test_dropless_equals_every_expert_on_every_token(sizes: str, skip: bool, skew: float) -> None:
    chosen = call(expert.moe_dropless, skew, block=4, skip=skip)
    one_device = with_fixed_choices(partial(by_every_expert, 1, None), chosen)
    assert_equal_one_device(chosen, one_device, sizes)


def with_fixed_choices(function: Callable, chosen: Call) -> Callable:
    """The function with the experts of a call, which NumPy looks at."""
    return lambda *args: function(*args[:-1], chosen.args[-1])


@MESHES
def test_expert_choice_equals_every_expert_on_every_token(sizes: str) -> None:
    capacity, n = 4, make_mesh(sizes).shape["ep"]
    x, scores = random(T, D), np.exp(random(T, E))
    taken = np.zeros((T, E), bool)
    for device in np.array_split(np.arange(T), n):
        best = np.argsort(-scores[device], axis=0)[:capacity]
        for e in range(E):
            taken[device[best[:, e]], e] = True

    def one_device(x, scores, gate, up, down):
        hidden = nn.swiglu(jnp.einsum("td,edf->tef", x, gate), jnp.einsum("td,edf->tef", x, up))
        return jnp.einsum("tef,efd,te->td", hidden, down, scores * taken)

    call = Call(
        expert.expert_choice,
        partial(expert.expert_choice, capacity=capacity, axis="ep"),
        (x, scores, *matrices()), (ROWS,) * 5, ROWS,
    )  # fmt: skip
    assert_equal_one_device(call, one_device, sizes)


def test_what_they_send_and_hold() -> None:
    token_choice = call(expert.moe_token_choice, capacity=2)
    dropless = call(expert.moe_dropless, block=4)
    expert_choice = Call(
        expert.expert_choice, partial(expert.expert_choice, capacity=3, axis="ep"),
        (random(T, D), random(T, E), *matrices()), (ROWS,) * 5, ROWS,
    )  # fmt: skip
    for one, capacity in ((token_choice, 2), (dropless, 0), (expert_choice, 3)):
        names = {"e": E, "t": T // 4, "capacity": capacity}
        assert_docstring_holds(replace(one, names=names), "ep=4", axis="ep")


def test_dropless_products_are_those_of_full_blocks() -> None:
    """`ragged_dot` computes several times as much on CPUs, and every expert on every token, too."""
    chosen, block, n = call(expert.moe_dropless, block=4), 4, 4
    rows, own = T * K, E // n
    blocks = (rows + own * (block - 1)) // block
    program = chosen.program("ep=4", differentiate=False)
    assert inspect(program, *chosen.args).flops == blocks * block * 6 * D * F


def over(function: Callable, sizes: str, axis: Any, specs: tuple, out: P = NOWHERE) -> Callable:
    mapped = partial(function, axis=axis)
    return jax.jit(jax.shard_map(mapped, mesh=make_mesh(sizes), in_specs=specs, out_specs=out))


@pytest.mark.parametrize(("sizes", "axis"), [("ep=4", "ep"), ("dp=2,ep=4", ("dp", "ep"))])
def test_losses_are_those_of_all_tokens(sizes: str, axis: Any) -> None:
    x, _, experts = routed()
    scores, logits = np.exp(x @ random(D, E)), 3 * x @ random(D, E)
    rows = P(axis)

    def balance(scores: Array) -> Array:
        share = np.bincount(experts.ravel(), minlength=E) / experts.size
        return E * (share * scores.mean(axis=0)).sum()

    loss = over(expert.load_balance_loss, sizes, axis, (rows, rows))
    assert_close(
        jax.value_and_grad(lambda s: loss(s, experts))(scores),
        jax.value_and_grad(balance)(scores),
    )
    z_loss = over(expert.router_z_loss, sizes, axis, (rows,))
    assert_close(
        jax.value_and_grad(z_loss)(logits),
        jax.value_and_grad(lambda z: (jax.nn.logsumexp(z, axis=1) ** 2).mean())(logits),
    )


def test_an_even_load_has_a_loss_of_1() -> None:
    even = np.arange(T * K).reshape(T, K) % E
    loss = over(expert.load_balance_loss, "ep=4", "ep", (ROWS, ROWS))
    np.testing.assert_allclose(loss(np.full((T, E), 1 / E, np.float32), even), 1, rtol=1e-6)


@pytest.mark.parametrize(("sizes", "axis"), [("dp=4", "dp"), ("ep=2,cp=2", ("ep", "cp"))])
def test_a_bias_moves_against_the_load_of_all(sizes: str, axis: Any) -> None:
    """Half of the devices see one expert only, and the other half another."""
    experts = np.repeat([[0], [3]], T // 2, axis=0)
    update = over(partial(expert.update_expert_bias, rate=0.25), sizes, axis, (P(), P(axis)))
    got = update(np.zeros(4, np.float32), experts)
    np.testing.assert_array_equal(got, [-0.25, 0.25, 0.25, -0.25])
    balanced = update(np.ones(2, np.float32), experts % 2)
    np.testing.assert_array_equal(balanced, [1, 1])


def test_what_losses_and_biases_send() -> None:
    scores, experts = random(T, E), np.zeros((T, K), np.int32)
    for function, args in (
        (expert.load_balance_loss, (scores, experts)),
        (expert.router_z_loss, (scores,)),
    ):
        per_device = partial(function, axis="ep")
        loss = Call(function, per_device, args, (ROWS,) * len(args), P(), 1, names={"e": E})
        assert_docstring_holds(loss, "ep=4", axis="ep")
    update = over(partial(expert.update_expert_bias, rate=0.1), "ep=4", "ep", (P(), ROWS))
    (sent,) = inspect(update, np.zeros(E, np.float32), experts).collectives
    assert (sent.kind, sent.operand_bytes) == ("all_reduce", 4 * E)


@pytest.mark.parametrize(
    ("function", "capacity", "says"),
    [
        (expert.moe_token_choice, 0, "capacity is 0; use 1"),
        (expert.expert_choice, 0, "capacity is 0 of 12 tokens; use 1 to 12"),
        (expert.expert_choice, 13, "capacity is 13 of 12 tokens"),
    ],
)
def test_a_capacity_that_cannot_be(function: Callable, capacity: int, says: str) -> None:
    args = (
        (random(T, D), random(T, E), *matrices())
        if function is expert.expert_choice
        else (*routed(), *matrices())
    )
    run = over(partial(function, capacity=capacity), "ep=4", "ep", (ROWS,) * len(args), ROWS)
    with pytest.raises(ValueError, match=says):
        run(*args)
