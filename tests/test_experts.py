"""Routing, rows of experts, and products of groups give what every expert on every token gives."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar import experts
from jaxpar.inspector import inspect
from tests.arrays import random

T, D, F, E, BLOCK = 37, 8, 6, 5, 4


def test_route_chooses_the_best_and_weighs_them() -> None:
    x, router = random(T, D), random(D, E)
    got = experts.route(x, router, top_k=2)
    exponentials = np.exp(x @ router)
    scores = exponentials / exponentials.sum(axis=1, keepdims=True)
    order = np.argsort(-scores, axis=1)[:, :2]
    chosen = np.take_along_axis(scores, order, axis=1)
    np.testing.assert_array_equal(got.experts, order)
    np.testing.assert_allclose(got.scores, scores, rtol=1e-5)
    np.testing.assert_allclose(got.weights, chosen / chosen.sum(axis=1, keepdims=True), rtol=1e-5)


def test_a_bias_chooses_and_does_not_weigh() -> None:
    x, router = random(T, D), random(D, E)
    bias = jnp.array([0.0, 2, 0, 0, -2])
    got = experts.route(x, router, bias, top_k=2, score="sigmoid")
    assert (got.experts[:, 0] == 1).all()
    assert not (got.experts == 4).any()
    chosen = np.take_along_axis(np.asarray(got.scores), np.asarray(got.experts), axis=1)
    np.testing.assert_allclose(got.scores, 1 / (1 + np.exp(-x @ router)), rtol=1e-5)
    np.testing.assert_allclose(got.weights, chosen / chosen.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_weights_of_tiny_scores_are_numbers(score: experts.Score) -> None:
    router = jnp.zeros((D, E)).at[0].set(jnp.array([0.0, -1, 800, -2, -3])) - 1000
    bias = jnp.zeros(E).at[2].set(-10.0)
    got = experts.route(jnp.eye(D)[:1], router, bias, top_k=2, score=score)
    np.testing.assert_allclose(got.weights.sum(), 1, rtol=1e-6)


def test_routing_is_in_float32() -> None:
    """In bfloat16, many of these scores would be equal."""
    x, router = (jnp.asarray(random(*shape), jnp.bfloat16) for shape in ((T, D), (D, 64)))
    got = experts.route(x, router, top_k=3)
    assert {got.weights.dtype, got.scores.dtype} == {jnp.dtype("float32")}
    wide = experts.route(x.astype("float32"), router.astype("float32"), top_k=3)
    np.testing.assert_array_equal(got.experts, wide.experts)


@pytest.mark.parametrize("top_k", [0, 6])
def test_more_experts_than_there_are(top_k: int) -> None:
    with pytest.raises(ValueError, match=f"top_k is {top_k} of 5 experts; use 1 to 5"):
        experts.route(random(T, D), random(D, E), top_k=top_k)


def test_slots_are_given_by_rank_then_by_token() -> None:
    chosen = jnp.array([[0, 1], [1, 0], [0, 2], [0, 1]])
    slots = experts.assign_slots(chosen, count=3, capacity=2)
    # Of expert 0, tokens 0 and 2 take the rows; of expert 1, token 1 and then token 0.
    np.testing.assert_array_equal(slots, [[0, 3], [2, 6], [1, 4], [6, 6]])


def test_what_is_dispatched_comes_back_by_weight() -> None:
    x, weights = random(4, D), random(4, 2)
    slots = jnp.array([[0, 3], [2, 6], [1, 4], [6, 6]])
    rows = experts.dispatch(x, slots, rows=6)
    np.testing.assert_array_equal(rows, np.stack([x[0], x[2], x[1], x[0], x[2], 0 * x[0]]))
    share = np.array([weights[0].sum(), weights[1, 0], weights[2].sum(), 0])
    np.testing.assert_allclose(experts.combine(rows, slots, weights), x * share[:, None], rtol=1e-5)


SIZES = {
    "all": [10, 3, 1, 15, 8],
    "some rows in no group": [10, 0, 3, 0, 7],
    "one has everything": [0, 0, T, 0, 0],
    "nothing": [0, 0, 0, 0, 0],
    "full blocks": [8, 4, 4, 12, 8],
}


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_groups_are_multiplied_by_their_own_matrices(sizes: list[int], skip: bool) -> None:
    x, w, dy = random(T, D), random(E, D, F), random(T, F)
    given = jnp.array(sizes)
    multiply = partial(experts.grouped_matmul, sizes=given, block=BLOCK, skip=skip)
    y, vjp = jax.vjp(jax.jit(multiply), x, w)
    owner = np.searchsorted(np.cumsum(sizes), np.arange(T), side="right")
    expected, dx, dw = np.zeros((T, F)), np.zeros((T, D)), np.zeros((E, D, F))
    for row, group in enumerate(owner):
        if group < E:
            expected[row] = x[row] @ w[group]
            dx[row] = w[group] @ dy[row]
            dw[group] += np.outer(x[row], dy[row])
    for got, right in zip((y, *vjp(dy)), (expected, dx, dw), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)


def test_a_kernel_of_another_platform_computes_the_same() -> None:
    """What runs on GPUs and TPUs, run here."""
    x, w, dy, sizes = random(T, D), random(E, D, F), random(T, F), jnp.array([10, 0, 3, 0, 7])
    _, vjp = jax.vjp(lambda x, w: experts.grouped_matmul(x, w, sizes, block=BLOCK), x, w)
    for one, other in zip(vjp(dy), experts.gradients_by_kernel(x, w, sizes, dy), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        experts.grouped_matmul(x, w, sizes, block=BLOCK),
        lax.ragged_dot(x, w, sizes), rtol=1e-4, atol=1e-5,
    )  # fmt: skip


def test_products_are_of_full_blocks_and_no_more() -> None:
    x, w, sizes = random(T, D), random(E, D, F), jnp.array([10, 0, 3, 0, 7])
    report = inspect(partial(experts.grouped_matmul, block=BLOCK), x, w, sizes)
    blocks = (T + E * (BLOCK - 1)) // BLOCK
    assert report.flops == blocks * BLOCK * 2 * D * F

    def gradients(x, w, dy):
        return jax.vjp(lambda x, w: experts.grouped_matmul(x, w, sizes, block=BLOCK), x, w)[1](dy)

    assert inspect(gradients, x, w, random(T, F)).flops == 2 * report.flops


def test_gradients_of_many_blocks_are_summed_in_float32() -> None:
    rows = 2048
    x, w = jnp.ones((rows, 1), jnp.bfloat16), jnp.ones((1, 1, 1), jnp.bfloat16)
    grouped = partial(experts.grouped_matmul, sizes=jnp.array([rows]), block=1)
    dw = jax.grad(lambda w: grouped(x, w).astype("float32").sum())(w)
    assert dw.dtype == jnp.bfloat16
    assert dw.item() == rows


def test_a_block_has_rows() -> None:
    with pytest.raises(ValueError, match="block is 0; use 1 or more"):
        experts.grouped_matmul(random(T, D), random(E, D, F), jnp.zeros(E, jnp.int32), block=0)
