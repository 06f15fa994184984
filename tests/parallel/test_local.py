"""Local steps and averages give what devices compute one after the other, and send what they say.

A device is simulated by a plain loop over its batches, on one device.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import local
from tests.arrays import random
from tests.parallel.calls import Call, assert_close, assert_docstring_holds

P = jax.P
MESHES = pytest.mark.parametrize("sizes", ["dp=4", "dp=3,tp=2"])
PARAMS = {"w": random(3, 5), "out": [random(5), random(1)]}
INNER = optax.adamw(0.05, weight_decay=0.1)
OUTER = optax.sgd(0.7, momentum=0.9, nesterov=True)
H = 5


def loss_fn(params: dict, batch: tuple) -> jax.Array:
    x, y = batch
    w, shift = params["out"]
    return jnp.mean((jnp.tanh(x @ params["w"]) @ w + shift - y) ** 2)


def devices(sizes: str) -> int:
    return make_mesh(sizes).shape["dp"]


def batches(n: int) -> tuple:
    """For each of n devices h batches of 4 examples: [n, h, 4, ...]."""
    return random(n, H, 4, 3), 3 * random(n, H, 4)


def of_device(tree: Any, i: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[i], tree)


def stacked(trees: Sequence[Any]) -> Any:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


def mean_of(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), tree)


def one_after_the_other(params: Any, states: Any, data: Any, n: int) -> tuple:
    """The losses, parameters and states of n devices that train by themselves: [n, ...]."""
    results = []
    for i in range(n):
        own, state, losses = params, of_device(states, i), []
        for step in range(H):
            loss, gradients = jax.value_and_grad(loss_fn)(own, of_device(of_device(data, i), step))
            updates, state = INNER.update(gradients, state, own)
            own = optax.apply_updates(own, updates)
            losses.append(loss)
        results.append((jnp.stack(losses), own, state))
    return stacked(results)


def first_states(n: int) -> Any:
    """A state of `INNER` for each device, not that of the beginning: [n, ...]."""
    state = INNER.init(jax.tree.map(jnp.asarray, PARAMS))
    each = [
        jax.tree.map(lambda leaf, i=i: leaf + (leaf.dtype == jnp.float32) * 0.1 * (i + 1), state)
        for i in range(n)
    ]
    return stacked(each)


def on_devices(function: Callable, sizes: str, takes: Any, gives: Any) -> Callable:
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


def own(tree: Any) -> Any:
    """This device's part of a tree that is [n, ...], of which it holds [1, ...]."""
    return of_device(tree, 0)


def back(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], tree)


def local_steps(params: Any, states: Any, data: Any) -> tuple:
    losses, new, state = local.local_steps(
        loss_fn, params, own(states), own(data), INNER, axis="dp"
    )
    return back(losses), back(new), back(state)


def local_sgd(params: Any, states: Any, data: Any) -> tuple:
    loss, new, state = local.local_sgd_round(
        loss_fn, params, own(states), own(data), INNER, axis="dp"
    )
    return loss, new, back(state)


def diloco(params: Any, states: Any, outer_state: Any, data: Any) -> tuple:
    loss, new, state, outer_state = local.diloco_round(
        loss_fn, params, own(states), outer_state, own(data), INNER, OUTER, axis="dp"
    )
    return loss, new, back(state), outer_state


@MESHES
def test_local_steps_are_those_of_each_device(sizes: str) -> None:
    n = devices(sizes)
    given = PARAMS, first_states(n), batches(n)
    takes, gives = (P(), P("dp"), P("dp")), P("dp")
    got = on_devices(local_steps, sizes, takes, gives)(*given)
    assert_close(got, one_after_the_other(*given, n))


@MESHES
def test_a_round_ends_with_the_mean_of_all(sizes: str) -> None:
    n = devices(sizes)
    given = PARAMS, first_states(n), batches(n)
    takes, gives = (P(), P("dp"), P("dp")), (P(), P(), P("dp"))
    losses, params, states = one_after_the_other(*given, n)
    expected = losses.mean(), mean_of(params), states
    assert_close(on_devices(local_sgd, sizes, takes, gives)(*given), expected)


@MESHES
def test_the_outer_optimizer_steps_towards_the_mean(sizes: str) -> None:
    """Over two rounds, of which the second begins with momentum."""
    n = devices(sizes)
    takes, gives = (P(), P("dp"), P(), P("dp")), (P(), P(), P("dp"), P())
    step = on_devices(diloco, sizes, takes, gives)
    got = expected = (None, PARAMS, first_states(n), OUTER.init(PARAMS))
    for _ in range(2):
        got = step(*got[1:], batches(n))
        _, params, states, outer_state = expected
        losses, each, states = one_after_the_other(params, states, batches(n), n)
        delta = jax.tree.map(jnp.subtract, params, mean_of(each))
        updates, outer_state = OUTER.update(delta, outer_state, params)
        expected = losses.mean(), optax.apply_updates(params, updates), states, outer_state
    assert_close(got, expected)


def test_a_round_of_one_step_of_descent_is_data_parallelism() -> None:
    """Whatever the data: the mean of n steps is the step by the mean gradient."""
    params, (x, y), sgd = PARAMS, batches(4), optax.sgd(0.1)

    def one_round(params: Any, data: Any) -> Any:
        one = jax.tree.map(lambda leaf: leaf[:, :1], data)
        return local.local_sgd_round(loss_fn, params, sgd.init(params), own(one), sgd, axis="dp")[1]

    got = on_devices(one_round, "dp=4", (P(), P("dp")), P())(params, (x, y))
    whole = x[:, 0].reshape(-1, 3), y[:, 0].reshape(-1)
    gradients = jax.grad(loss_fn)(params, whole)
    assert_close(got, jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients))


FRAGMENTS = ((2,), (0, 1))  # of the leaves out[0], out[1], w


def streaming(params: Any, anchors: Any, states: Any, step: int, every: int) -> tuple:
    new, anchors, states = local.streaming_round(
        own(params), anchors, states, OUTER, step, fragments=FRAGMENTS, every=every, axis="dp"
    )
    return back(new), anchors, states


@MESHES
@pytest.mark.parametrize(
    ("step", "due"), [(0, 0), (7, 0), (3, 1), (10, 1), (1, None), (2, None), (6, None)]
)
def test_a_fragment_at_a_time_is_synchronised(sizes: str, step: int, due: int | None) -> None:
    n, every = devices(sizes), 7
    params = jax.tree.map(lambda leaf: random(n, *leaf.shape), PARAMS)
    anchors = jax.tree.map(lambda leaf: leaf + 1, PARAMS)
    leaves = jax.tree.leaves(anchors)
    states = [OUTER.init([leaves[place] for place in fragment]) for fragment in FRAGMENTS]
    states = jax.tree.map(lambda leaf: leaf + 0.5, states)
    program = partial(streaming, step=step, every=every)
    takes, gives = (P("dp"), P(), P()), (P("dp"), P(), P())
    got = on_devices(program, sizes, takes, gives)(params, anchors, states)

    kept, news, new_states = leaves, jax.tree.leaves(params), [*states]
    if due is not None:
        old = [kept[place] for place in FRAGMENTS[due]]
        delta = [a - news[place].mean(axis=0) for a, place in zip(old, FRAGMENTS[due], strict=True)]
        updates, new_states[due] = OUTER.update(delta, states[due], old)
        moved: Any = optax.apply_updates(old, updates)
        for place, leaf in zip(FRAGMENTS[due], moved, strict=True):
            kept[place], news[place] = leaf, jnp.stack([leaf] * n)
    assert_close(got, (news, kept, new_states))
    for number, fragment in enumerate(FRAGMENTS):
        if number != due:  # bit for bit
            for place in fragment:
                same = jax.tree.leaves(got[0])[place], jax.tree.leaves(params)[place]
                np.testing.assert_array_equal(*same)


def test_each_fragment_is_due_once_in_every_so_many_steps() -> None:
    """And sends its own bytes then: w has 60, the others 24."""
    params = jax.tree.map(lambda leaf: random(4, *leaf.shape), PARAMS)
    states = [OUTER.init([PARAMS["w"]]), OUTER.init(PARAMS["out"])]
    sent = []
    for step in range(8):
        program = partial(streaming, step=step, every=4)
        program = on_devices(program, "dp=4", (P("dp"), P(), P()), (P("dp"), P(), P()))
        sent.append(inspect(program, params, PARAMS, states).wire_bytes_by_axis().get(("dp",), 0))
    assert sent == [1.5 * 60, 0, 1.5 * 24, 0] * 2


@pytest.mark.parametrize("sizes", ["dp=8", "dp=4,tp=2", "tp=2", "dp=1,tp=2"])
def test_a_peer_in_each_step_gives_the_mean_in_the_end(sizes: str) -> None:
    axis = "dp" if "dp" in sizes else "tp"
    n = make_mesh(sizes).shape[axis]
    params, first = {"w": random(n, 3), "b": [random(n)]}, 5  # any step may be the first

    def averaged(params: Any, *, steps: int) -> Any:
        for step in range(first, first + steps):
            params = local.one_peer_average(params, axis=axis, step=step)
        return params

    def after(steps: int) -> Any:
        program = partial(averaged, steps=steps)
        return on_devices(program, sizes, P(axis), P(axis))(params)

    if n > 1:
        distance = 2 ** (first % (n.bit_length() - 1))
        half = jax.tree.map(lambda leaf: (leaf + np.roll(leaf, distance, axis=0)) / 2, params)
        assert_close(after(1), half)
    mean = jax.tree.map(lambda leaf: np.broadcast_to(leaf.mean(axis=0), leaf.shape), params)
    assert_close(after(n.bit_length() - 1), mean)


@pytest.mark.parametrize("late", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("sizes", "arrived"),
    [("dp=4", [1, 0, 1, 1]), ("dp=4", [0, 0, 0, 1]), ("dp=4", [0] * 4), ("dp=3,tp=2", [0, 1, 1])],
)
def test_late_gradients_do_not_matter(sizes: str, arrived: list[int], late: float) -> None:
    n, here = devices(sizes), np.array(arrived, bool)
    gradients = {"w": random(n, 4, 3), "b": jnp.asarray(random(n, 5), jnp.bfloat16)}

    def mean(gradients: Any, arrived: Any) -> Any:
        return local.mean_of_arrived(own(gradients), arrived[0], axis="dp")

    def spoiled(leaf: Any) -> jax.Array:
        came = here.reshape(n, *[1] * (leaf.ndim - 1))
        return jnp.asarray(jnp.where(came, leaf, late), leaf.dtype)

    gradients_or_late = jax.tree.map(spoiled, gradients)
    got = on_devices(mean, sizes, (P("dp"), P("dp")), P())(gradients_or_late, here)
    assert (got["w"].dtype, got["b"].dtype) == ("float32", "bfloat16")
    for name, tolerance in (("w", 1e-6), ("b", 1e-2)):
        total = np.asarray(gradients[name], np.float32)[here].sum(axis=0)
        np.testing.assert_allclose(
            np.asarray(got[name], np.float32), total / max(1, here.sum()), atol=tolerance
        )


ONE = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), batches(4))  # [n*h, 4, ...]
MOMENTUM = optax.sgd(0.1, momentum=0.9)
STATES = jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 4), MOMENTUM.init(PARAMS))
CALLS = [
    Call(
        local.local_steps,
        lambda params, state, batches: local.local_steps(
            loss_fn, params, state, batches, MOMENTUM, axis="dp"
        ),
        (PARAMS, STATES, ONE), (P(), P("dp"), P("dp")), (P("dp"), P("dp"), P("dp")), 0,
        names={"h": H},
    ),
    Call(
        local.local_sgd_round,
        lambda params, state, batches: local.local_sgd_round(
            loss_fn, params, state, batches, MOMENTUM, axis="dp"
        ),
        (PARAMS, STATES, ONE), (P(), P("dp"), P("dp")), (P(), P(), P("dp")), 0,
    ),
    Call(
        local.diloco_round,
        lambda params, inner_state, outer_state, batches: local.diloco_round(
            loss_fn, params, inner_state, outer_state, batches, MOMENTUM, OUTER, axis="dp"
        ),
        (PARAMS, STATES, OUTER.init(PARAMS), ONE),
        (P(), P("dp"), P(), P("dp")), (P(), P(), P("dp"), P()), 0,
    ),
    Call(
        local.streaming_round,
        lambda params, anchors, outer_states: local.streaming_round(
            params, anchors, outer_states, OUTER, 7, fragments=FRAGMENTS, every=7, axis="dp"
        ),
        (
            jax.tree.map(lambda leaf: jnp.concatenate([leaf] * 4), PARAMS),
            PARAMS,
            (OUTER.init([PARAMS["w"]]), OUTER.init(PARAMS["out"])),
        ),
        (P("dp"), P(), P()), (P("dp"), P(), P()), 0, names={"due": PARAMS["w"].size},
    ),
    Call(
        local.one_peer_average,
        lambda params: local.one_peer_average(params, axis="dp", step=3),
        ({"w": random(8, 3), "b": random(4)},), (P("dp"),), P("dp"),
    ),
    Call(
        local.mean_of_arrived,
        lambda gradients, arrived: local.mean_of_arrived(gradients, arrived[0], axis="dp"),
        ({"w": random(8, 3), "b": random(4)}, np.ones(4, bool)), (P("dp"), P("dp")), P(), 0,
    ),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "dp=4,tp=2", axis="dp")


def test_a_round_sends_the_parameters_once_however_long_it_is() -> None:
    """128 numbers of 8 devices: 896 bytes, and 7 of the loss."""
    params, adam = {"w": jnp.ones((16, 8))}, optax.adam(0.1)

    def error(params: Any, x: jax.Array) -> jax.Array:
        return ((x @ params["w"]) ** 2).mean()

    def one_round(params: Any, data: jax.Array) -> Any:
        return local.local_sgd_round(error, params, adam.init(params), data, adam, axis="dp")[:2]

    program = on_devices(one_round, "dp=8", (P(), P("dp")), P())
    report = inspect(program, params, jnp.zeros((8 * H, 4, 16)))
    sent = sorted((one.total_wire_bytes, one.times) for one in report.collectives)
    assert sent == [(7, 1), (896, 1)]


@pytest.mark.parametrize(
    ("fragments", "every", "message"),
    [
        (((0,), (1,), (2,)), 2, "3 fragments, each due once in 2 steps"),
        (((0,), (2,)), 5, r"fragments \[\[0\], \[2\]\] of 3 leaves"),
        (((0, 1), (1, 2)), 5, "must be in one fragment"),
        (((0, 1), (2, 3)), 5, "each place from 0 to 2"),
    ],
)
def test_fragments_that_do_not_fit_are_refused(fragments: tuple, every: int, message: str) -> None:
    params = jax.tree.map(jnp.asarray, PARAMS)
    with pytest.raises(ValueError, match=message):
        local.streaming_round(
            params, params, (), OUTER, 0, fragments=fragments, every=every, axis="dp"
        )


@pytest.mark.parametrize("sizes", ["dp=6", "dp=3,tp=2"])
def test_peers_of_another_number_are_refused(sizes: str) -> None:
    program = on_devices(
        lambda x: local.one_peer_average(x, axis="dp", step=0), sizes, P("dp"), P("dp")
    )
    with pytest.raises(ValueError, match="must be a power of two"):
        program(jnp.zeros((devices(sizes), 2)))
