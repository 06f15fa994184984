"""Layouts of leaves: where each is split, and that what leads between them loses nothing."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from jaxpar.collectives import leaves
from jaxpar.collectives.leaves import LeafLayouts, leaf_layouts, sharded_dim, specs_of
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import axes_of, make_mesh, varying_axes
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds

P = jax.P


class Sharding(NamedTuple):
    """A mesh, the axes that shard leaves, and how these are split while they are used."""

    sizes: str
    axes: tuple[str, ...]
    used: Any

    def layouts(self, stage: int) -> Any:
        sizes = make_mesh(self.sizes).shape
        return leaf_layouts(TREE, self.used, sizes=sizes, axes=self.axes, stage=stage)


# Leaves that all, some or none of the devices divide; split while used or not; without elements.
TREE = {
    "first": random(12, 5),
    "split": [random(24, 7), random(5, 24)],
    "fewer": random(6, 7),
    "none": (random(5), random(7, 11), random(1)),
    "scalar": random(),
    "empty": random(0, 3),
    "layers": {"w": random(12, 4, 3), "b": random(12, 7)},
}
TREE = jax.tree.map(jnp.asarray, TREE)
WHOLE = jax.tree.map(lambda _: P(), TREE)
BY_TP = WHOLE | {"split": [P("tp"), P(None, "tp")]}
BY_PP = BY_TP | {"layers": {"w": P("pp"), "b": P("pp")}}
SHARDINGS = (
    Sharding("dp=4", ("dp",), None),
    Sharding("dp=3,tp=2", ("dp",), BY_TP),
    Sharding("dp=2,cp=2,tp=2", ("dp", "cp"), BY_TP),
    Sharding("pp=2,fsdp=2,cp=2,tp=2", ("fsdp", "cp"), BY_PP),
)
each_sharding = pytest.mark.parametrize("sharding", SHARDINGS, ids=lambda one: one.sizes)
SIZES = {"pp": 2, "dp": 2, "cp": 3, "tp": 2}


def on_devices(function: Callable, sizes: str, takes: Any, gives: Any) -> jax.stages.Wrapped:
    mesh = make_mesh(sizes)
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives))


def assert_equal(got: Any, expected: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=2e-6, atol=1e-6)


class Used(NamedTuple):
    """What `sharded_dim` takes of a leaf."""

    shape: tuple[int, ...]
    splits: tuple[tuple[str, ...], ...]
    sizes: dict[str, int]
    axes: tuple[str, ...]
    stacked: bool

    def free(self) -> tuple[str, ...]:
        """The axes that can shard it."""
        split = {axis for axes in self.splits for axis in axes}
        return tuple(axis for axis in self.axes if self.sizes[axis] > 1 and axis not in split)

    def divides(self, dim: int, over: tuple[str, ...]) -> bool:
        """Whether all shards along a dim are equal, and not empty."""
        parts = math.prod(self.sizes[axis] for axis in (*self.splits[dim], *over))
        return self.shape[dim] > 0 and self.shape[dim] % parts == 0


@st.composite
def leaves_in_use(draw: st.DrawFn) -> Used:
    """Leaves of up to four dims; each axis splits one of these, or may shard, or does neither."""
    sizes = {axis: draw(st.integers(1, 4)) for axis in ("pp", "dp", "fsdp", "cp", "tp")}
    axes = tuple(axis for axis in sizes if draw(st.booleans()))
    local = draw(st.lists(st.sampled_from([0, 1, 2, 3, 4, 5, 6, 12, 24]), max_size=4))
    place = {axis: draw(st.integers(0, 2 * len(local))) for axis in sizes}
    splits = [tuple(axis for axis in sizes if place[axis] == dim) for dim in range(len(local))]
    shape = [
        size * math.prod(sizes[axis] for axis in split)
        for size, split in zip(local, splits, strict=True)
    ]
    stacked = bool(local) and draw(st.booleans())
    return Used(tuple(shape), tuple(splits), sizes, axes, stacked)


@given(leaves_in_use())
def test_no_outer_axis_is_left_out_in_vain_and_no_dim_passed_over(leaf: Used) -> None:
    """What is found is the first of all that would do: with more axes first, then by dims."""
    dim, over = sharded_dim(*leaf[:-1], stacked=leaf.stacked)
    free = leaf.free()
    would_do = [
        (some, free[left_out:])
        for left_out in range(len(free))
        for some in range(int(leaf.stacked), len(leaf.shape))
        if leaf.divides(some, free[left_out:])
    ]
    assert (dim, over) == (would_do[0] if would_do else (None, ()))


@pytest.mark.parametrize(
    ("shape", "used", "axes", "expected"),
    [
        ((4, 6), P(), ("dp",), (P("dp"), 0, ("dp",))),
        ((5, 6), P(), ("dp",), (P(None, "dp"), 1, ("dp",))),
        ((5, 7), P(), ("dp",), (P(), None, ())),
        ((), P(), ("dp",), (P(), None, ())),
        ((0, 4), P(), ("dp",), (P(None, "dp"), 1, ("dp",))),
        ((0,), P(), ("dp",), (P(), None, ())),
        ((7, 6), P(), ("dp", "cp"), (P(None, ("dp", "cp")), 1, ("dp", "cp"))),
        # What both axes together do not divide, the last may; the first alone does not try.
        ((4, 9), P(), ("dp", "cp"), (P(None, "cp"), 1, ("cp",))),
        ((4, 5), P(), ("dp", "cp"), (P(), None, ())),
        # It is the local size that counts, and the shards are inside of what is used.
        ((4, 9), P("tp"), ("dp",), (P(("tp", "dp")), 0, ("dp",))),
        ((6, 4), P("tp"), ("dp",), (P("tp", "dp"), 1, ("dp",))),
        ((2, 3), P("tp", None), ("dp",), (P("tp", None), None, ())),
        ((24, 5), P(("pp", "tp")), ("dp", "cp"), (P(("pp", "tp", "dp", "cp")), 0, ("dp", "cp"))),
        # An axis that splits a leaf already does not shard it, nor does one with a single device.
        ((8, 9), P("dp"), ("dp", "cp"), (P("dp", "cp"), 1, ("cp",))),
        ((8, 9), P("dp"), ("dp",), (P("dp"), None, ())),
        ((8, 9), P(), ("one",), (P(), None, ())),
    ],
)
def test_a_leaf_is_sharded_along_the_first_dim_that_divides(
    shape: tuple, used: P, axes: tuple, expected: tuple
) -> None:
    like = jax.ShapeDtypeStruct(shape, jnp.float32)
    (found,) = leaf_layouts([like], [used], sizes=SIZES | {"one": 1}, axes=axes, stage=1)
    assert found == LeafLayouts(used, used, *expected)


@pytest.mark.parametrize(
    ("shape", "used", "owned", "of_layer"),
    [
        ((4, 6), P(), P(None, "dp"), P("dp")),
        ((4, 6), P("pp", "tp"), P("pp", "tp"), P("tp")),  # 6 over tp leaves 3
        ((4, 8), P("pp", "tp"), P("pp", ("tp", "dp")), P(("tp", "dp"))),
        ((4, 5, 6), P(), P(None, None, "dp"), P(None, "dp")),
        ((4, 5), P(), P(), P()),
        ((4,), P("pp"), P("pp"), P()),
    ],
)
def test_stacked_leaves_are_not_sharded_along_layers(
    shape: tuple, used: P, owned: P, of_layer: P
) -> None:
    """Under the name `layers`, at any depth; one layer has the layouts without dim l."""
    like = {"part": {"layers": [jax.ShapeDtypeStruct(shape, jnp.float32)]}}
    specs = {"part": {"layers": [used]}}
    found = leaf_layouts(like, specs, sizes=SIZES, axes=("dp",), stage=3)["part"]["layers"][0]
    assert (found.used, found.at_rest, found.owned) == (used, owned, owned)
    one = found.of_layer
    assert (one.used, one.at_rest, one.owned) == (P(*used[1:]), of_layer, of_layer)
    assert one.axes == found.axes == (() if owned == used else ("dp",))
    assert one.dim == (None if found.dim is None else found.dim - 1)


@pytest.mark.parametrize(
    ("stage", "at_rest", "owned"),
    [(0, P(), P()), (1, P(), P("dp")), (2, P(), P("dp")), (3, P("dp"), P("dp"))],
)
def test_each_stage_shards_more(stage: int, at_rest: P, owned: P) -> None:
    layouts = leaf_layouts({"w": random(4, 3)}, sizes=SIZES, axes=("dp",), stage=stage)
    found = [specs_of(layouts, which) for which in ("used", "at_rest", "owned")]
    assert found == [{"w": P()}, {"w": at_rest}, {"w": owned}]


@each_sharding
@pytest.mark.parametrize("stage", [0, 1, 3])
@pytest.mark.parametrize(
    ("move", "takes", "gives"),
    [
        (leaves.own, "at_rest", "owned"),
        (leaves.publish, "owned", "at_rest"),
        (leaves.fetch, "at_rest", "used"),
    ],
)
def test_leaves_stay_as_they_are_from_layout_to_layout(
    sharding: Sharding, stage: int, move: Callable, takes: str, gives: str
) -> None:
    """Of the same global arrays, devices hold what the next layout says, and are typed so."""
    layouts = sharding.layouts(stage)

    def moved(params: Any) -> Any:
        return jax.tree.map(typed, move(params, layouts), specs_of(layouts, gives))

    def typed(leaf: jax.Array, spec: P) -> jax.Array:
        """What is gathered for use is typed as varying, though it is equal."""
        others = tuple(varying_axes(leaf) - {*axes_of(spec)})
        assert move is leaves.fetch or not others
        return lax.pmean(leaf, others) if others else leaf

    specs = specs_of(layouts, takes), specs_of(layouts, gives)
    assert_equal(on_devices(moved, sharding.sizes, (specs[0],), specs[1])(TREE), TREE)


def parts_of(
    sharding: Sharding, over: Callable[[LeafLayouts], tuple[str, ...]]
) -> tuple[Any, Any, Any]:
    """A part of each leaf in use for every device of its axes in `over`; specs; their sums."""
    sizes, layouts = make_mesh(sharding.sizes).shape, sharding.layouts(stage=3)

    def parts(leaf: jax.Array, layout: LeafLayouts) -> jax.Array:
        count = math.prod(sizes[axis] for axis in over(layout))
        return jnp.asarray(random(count, *leaf.shape))

    each = jax.tree.map(parts, TREE, layouts)
    specs = jax.tree.map(lambda layout: P(over(layout) or None, *layout.used), layouts)
    return each, specs, jax.tree.map(partial(jnp.sum, axis=0), each)


@each_sharding
def test_scattered_gradients_are_sums(sharding: Sharding) -> None:
    layouts = sharding.layouts(stage=1)
    each, specs, total = parts_of(sharding, lambda layout: layout.axes)

    def scatter(each: Any) -> Any:
        return leaves.scatter_gradients(first_of(each), layouts)

    owned = specs_of(layouts, "owned")
    assert_equal(on_devices(scatter, sharding.sizes, (specs,), owned)(each), total)


@each_sharding
@pytest.mark.parametrize("stage", [0, 1, 3])
def test_reduced_gradients_are_sums_over_all_who_use_a_leaf(sharding: Sharding, stage: int) -> None:
    layouts = sharding.layouts(stage)
    axes = make_mesh(sharding.sizes).axis_names
    each, specs, total = parts_of(
        sharding, lambda layout: tuple(a for a in axes if a not in axes_of(layout.used))
    )

    def reduce(each: Any) -> Any:
        return leaves.reduce_gradients(first_of(each), layouts)

    owned = specs_of(layouts, "owned")
    assert_equal(on_devices(reduce, sharding.sizes, (specs,), owned)(each), total)


@each_sharding
def test_the_derivative_of_fetch_is_the_sum_of_what_all_ask_for(sharding: Sharding) -> None:
    layouts = sharding.layouts(stage=3)
    asked, specs, total = parts_of(sharding, lambda layout: layout.axes)

    def derivative(params: Any, asked: Any) -> Any:
        _, pull = jax.vjp(lambda params: leaves.fetch(params, layouts), params)
        return pull(first_of(asked))[0]

    at_rest = specs_of(layouts, "at_rest")
    program = on_devices(derivative, sharding.sizes, (at_rest, specs), at_rest)
    assert_equal(program(TREE, asked), total)


def first_of(each: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[0], each)


@pytest.mark.parametrize(
    ("varying", "owned", "summed"),
    [
        ((), P(), ()),
        (("cp",), P(), ("cp",)),
        (("tp", "dp"), P(), ("dp", "tp")),
        (("dp",), P("dp"), ()),
        (("dp", "tp"), P(None, ("tp", "dp")), ()),
        (("dp", "cp", "tp"), P("tp", "dp"), ("cp",)),
        (("dp", "cp", "tp"), P("cp"), ("dp", "tp")),
    ],
)
def test_gradients_are_summed_over_the_axes_by_which_only_they_differ(
    varying: tuple, owned: P, summed: tuple
) -> None:
    """Over these in one collective, in the order of the mesh; over no other axis."""
    sizes = "dp=2,cp=2,tp=2"
    each = random(2 ** len(summed), 4, 8)
    before = []

    def total(each: jax.Array) -> jax.Array:
        before.append(varying_axes(each[0]))
        (found,) = leaves.sum_gradients([each[0]], [owned])
        assert varying_axes(found) == {*axes_of(owned)}
        return found

    program = on_devices(total, sizes, (P(summed or None, *owned),), owned)
    lowered = program.lower(each)
    assert before == [frozenset(varying)]
    module = lowered.compiler_ir("stablehlo")
    assert module is not None
    sent = [(one.kind, one.axes) for one in read_module(module)]
    assert sent == ([("all_reduce", summed)] if summed else [])
    assert_equal(program(each), jnp.sum(each, axis=0))


def test_low_precision_is_kept() -> None:
    low = {"a": jnp.arange(8, dtype=jnp.bfloat16), "b": jnp.arange(5, dtype=jnp.bfloat16)}
    layouts = leaf_layouts(low, sizes={"dp": 2}, axes=("dp",), stage=1)

    def there_and_back(params: Any) -> Any:
        return leaves.publish(leaves.own(params, layouts), layouts)

    assert_equal(on_devices(there_and_back, "dp=2", P(), P())(low), low)


EVEN = {"a": random(12, 5), "layers": [random(3, 24), random(3, 2, 8)]}
EACH = jax.tree.map(lambda leaf: random(4, *leaf.shape), EVEN)
AT_1, AT_3 = (leaf_layouts(EVEN, sizes={"dp": 4}, axes=("dp",), stage=stage) for stage in (1, 3))
OWNED = specs_of(AT_1, "owned")
VARYING = jax.tree.map(lambda _: P("dp"), EVEN)


def stacked(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[None], tree)


CALLS = [
    Call(leaves.own, lambda params: leaves.own(first_of(params), AT_1), (EACH,), (VARYING,), OWNED),
    Call(leaves.publish, lambda owned: leaves.publish(owned, AT_1), (EVEN,), (OWNED,), P()),
    Call(
        leaves.fetch, lambda params: stacked(leaves.fetch(params, AT_3)), (EVEN,), (OWNED,), VARYING
    ),
    Call(
        leaves.scatter_gradients,
        lambda grads: leaves.scatter_gradients(first_of(grads), AT_1),
        (EACH,), (VARYING,), OWNED,
    ),
    Call(
        leaves.sum_gradients,
        lambda grads: leaves.sum_gradients(first_of(grads), specs_of(AT_1, "used")),
        (EACH,), (VARYING,), P(),
    ),
    Call(
        leaves.reduce_gradients,
        lambda grads: leaves.reduce_gradients(first_of(grads), AT_1),
        (EACH,), (VARYING,), OWNED,
    ),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "dp=4,tp=2", layouts="dp", specs="dp")
