"""The stepper: values as `jax.shard_map` computes them, and whose parts each collective moves."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, P, lax

from jaxpar import collectives
from jaxpar.drawing.steps import part_text
from jaxpar.mesh import make_mesh, vary
from jaxpar.stepper import steps, whose_parts

NODES = {"node": 2, "device": 3}
LEVELS = {"inner": "device", "outer": "node"}


def sharded(function: Callable[..., Any], x: np.ndarray, axes: Mapping[str, int]) -> list[Any]:
    def body(shard: Array) -> list[Array]:
        results = jax.tree.leaves(function(shard.reshape(shard.shape[len(axes) :])))
        return [vary(y, axes).reshape((1,) * len(axes) + y.shape) for y in results]

    mesh = make_mesh(dict(axes))
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=P(*axes), out_specs=P(*axes)))(x)


def same_values(function: Callable[..., Any], axes: Mapping[str, int], *shape: int) -> None:
    sizes = tuple(axes.values())
    x = np.random.default_rng(0).normal(size=(*sizes, *shape)).astype(np.float32)
    expected = sharded(function, x, axes)
    for found, want in zip(steps(function, [x], axes).results, expected, strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


def received(function: Callable[..., Any], shape: tuple[int, ...], **axes: int) -> list[str]:
    """What devices receive in each step, and what they return: "d a b c", chunks side by side."""
    run = whose_parts(function, [jax.ShapeDtypeStruct(shape, jnp.float32)], axes)
    return [words(array) for array in (*(frame.after[0] for frame in run.frames), *run.results)]


def words(array: np.ndarray) -> str:
    devices = array.reshape(len(array), -1, array.shape[-1])
    return " ".join(",".join(map(part_text, device)) for device in devices)


@pytest.mark.parametrize(
    "n", [2, 3, 8, *(pytest.param(n, marks=pytest.mark.full) for n in (4, 5, 6, 7))]
)
def test_values_are_those_of_shard_map(n: int) -> None:
    on_axis: dict[str, tuple[int, ...]] = {
        "all_gather": (2,),
        "all_reduce": (3,),
        "all_to_all": (n, 2),
        "all_to_all_by_permutes": (n, 2),
        "mean_over_devices": (3,),
        "reduce_max_location": (3,),
        "reduce_scatter": (n, 2),
        "ring_all_gather": (2,),
        "ring_all_reduce": (5,),
        "ring_reduce_scatter": (n, 2),
        "two_way_ring_all_gather": (2,),
    }
    if n & (n - 1) == 0:
        on_axis |= {"recursive_doubling_all_gather": (2,), "recursive_doubling_all_reduce": (3,)}
    for name, shape in on_axis.items():
        same_values(partial(getattr(collectives, name), axis="tp"), {"tp": n}, *shape)
    rooted = {"broadcast": (2,), "gather": (2,), "reduce": (3,), "scatter": (n, 2)}
    rooted |= {"tree_broadcast": (2,), "tree_reduce": (2,)}
    for name, shape in rooted.items():
        function = partial(getattr(collectives, name), axis="tp", root=n - 1)
        same_values(function, {"tp": n}, *shape)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (partial(collectives.hierarchical_all_gather, **LEVELS), (2,)),
        (partial(collectives.hierarchical_all_reduce, **LEVELS), (5,)),
        (partial(collectives.hierarchical_reduce_scatter, **LEVELS), (6, 2)),
        (partial(collectives.swap_layout, rows="node", columns="device"), (3, 2)),
        (lambda x: lax.psum(x, ("node", "device")), (2,)),
        (lambda x: lax.ppermute(x, ("node", "device"), [(0, 5), (4, 1)]), (2,)),
        (lambda x: x + lax.axis_index(("device", "node")), (2,)),
    ],
)
def test_two_axes(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    same_values(function, NODES, *shape)


def _while(x: Array) -> Array:
    return lax.while_loop(lambda y: y.sum() < 9, lambda y: 2 * abs(y) + 1, x)


def _disagrees(x: Array) -> Array:
    def sends(y: Array) -> Array:
        return lax.ppermute(y, "node", [(0, 1)])

    return lax.cond(lax.axis_index("node") == 0, sends, abs, x)


def _taken(x: Array) -> Array:
    return lax.cond(lax.axis_index("node") == 0, lambda y: 2 * y, lambda y: y + 1, x)


@pytest.mark.parametrize(
    "function",
    [
        jax.grad(lambda x: (lax.all_gather(x, "node") ** 2).sum()),
        jax.checkpoint(lambda x: lax.psum(x, "node") * x),
        jax.jit(lambda x: lax.pmax(x, "device")),
        lambda x: lax.all_gather(x, "device", to="invarying", tiled=True),
        lambda x: lax.scan(lambda c, a: (c + a, c * lax.psum(a, "node")), x[0], x, reverse=True),
        lambda x: lax.scan(lambda c, a: (c, a), x[0], x[:0])[0],
        lambda x: jax.nn.relu(x[np.array([1, 0])]) + jnp.zeros(2) + jax.nn.silu(x),
        lambda x: jnp.sort(x)[::-1].cumsum() + jax.vmap(lambda y: lax.pmax(y, "node"))(x),
        _while,
        _taken,
    ],
)
def test_operations(function: Callable[..., Any]) -> None:
    same_values(function, NODES, 2)


def test_ring_reduce_scatter() -> None:
    function = partial(collectives.ring_reduce_scatter, axis="tp")
    assert received(function, (4,), tp=4) == [
        "d a b c",
        "cd ad ab bc",
        "bcd acd abd abc",
        "abcd abcd abcd abcd",
    ]


def test_ring_all_gather() -> None:
    function = partial(collectives.ring_all_gather, axis="tp")
    expected = ["c a b", "b c a", "a,b,c a,b,c a,b,c"]
    assert received(function, (), tp=3) == expected


def test_recursive_doubling() -> None:
    function = partial(collectives.recursive_doubling_all_reduce, axis="tp")
    assert received(function, (), tp=4) == ["b a d c", "cd cd ab ab", "abcd abcd abcd abcd"]


def test_tree_broadcast() -> None:
    function = partial(collectives.tree_broadcast, axis="tp", root=1)
    assert received(function, (), tp=4) == [". . b .", "b . . b", "b b b b"]


def test_all_to_all() -> None:
    for name in ("all_to_all", "all_to_all_by_permutes"):
        function = partial(getattr(collectives, name), axis="tp")
        assert received(function, (3,), tp=3)[-1] == "a,b,c a,b,c a,b,c"


def test_hierarchy() -> None:
    function = partial(collectives.hierarchical_all_reduce, **LEVELS)
    assert received(function, (2,), node=2, device=2) == [
        "ab ab cd cd",
        "abcd abcd abcd abcd",
        *["abcd,abcd abcd,abcd abcd,abcd abcd,abcd"] * 2,
    ]


def test_a_loop_is_taken_turn_by_turn() -> None:
    def looped(x: Array) -> Array:
        to_next = [(0, 1), (1, 2), (2, 0)]
        return lax.fori_loop(0, 2, lambda _, y: lax.ppermute(y, "tp", to_next) + x, x)

    run = whose_parts(looped, [jax.ShapeDtypeStruct((), jnp.float32)], {"tp": 3})
    assert [(frame.kind, frame.axes, frame.pairs) for frame in run.frames] == [
        ("permute", ("tp",), ((0, 1), (1, 2), (2, 0)))
    ] * 2
    assert [words(frame.after[0]) for frame in run.frames] == ["c a b", "bc ac ab"]


def test_wrong_programs_are_shown_as_such() -> None:
    def twice(x: Array) -> Array:
        return collectives.ring_reduce_scatter(x, axis="tp") + x[0]

    def other_way(x: Array) -> Array:
        return lax.ppermute(x, "tp", [((j + 1) % 3, j) for j in range(3)])

    assert received(twice, (3,), tp=3)[-1] == "a2bc ab2c abc2"
    assert received(other_way, (), tp=3) == ["b c a"] * 2


def test_pairs_on_one_of_two_axes_are_devices_of_both() -> None:
    def swapped(x: Array) -> Array:
        return lax.ppermute(x, "node", [(0, 1), (1, 0)])

    run = steps(swapped, [np.zeros((2, 2))], {"node": 2, "device": 2})
    assert sorted(run.frames[0].pairs) == [(0, 2), (1, 3), (2, 0), (3, 1)]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda x: lax.all_gather(x, ("node", "device")), "all_gather over node and device at"),
        (_disagrees, "devices disagree"),
        (lambda x: lax.while_loop(lambda i: i < 2, lambda i: i * 1, 0) + x, "more than"),
        (
            lambda x: lax.ragged_all_to_all(x, x, *[jnp.zeros(2, int)] * 4, axis_name="node"),
            "ragged_all_to_all cannot be run",
        ),
    ],
)
def test_what_cannot_be_drawn_is_named(function: Callable[..., Any], message: str) -> None:
    x = np.zeros((2, 3, 2), np.float32)
    with pytest.raises(ValueError, match=f"^steps: .*{message}"):
        steps(function, [x], NODES)


def test_what_is_no_sum_of_parts_is_refused() -> None:
    function = partial(collectives.reduce_max_location, axis="tp")
    with pytest.raises(ValueError, match=r"^steps: after step 1 a value is no sum"):
        received(function, (2,), tp=2)
