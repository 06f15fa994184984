"""A sum of what is equal on all its devices is found, and no other one."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxpar.inspector import inspect
from jaxpar.inspector.repeated_sums import repeated_sums
from jaxpar.mesh import make_mesh
from tests.inspector.corpus import Program, stablehlo
from tests.inspector.modules import PAIR, all_reduce, module, per_device, permute, plain_module
from tests.inspector.programs import PER_SHARD, ring

PARTLY = (((8, 16), "float32", "b_dp t"),)
"""An argument that is equal along tp."""

DATA = "dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>"
PAIRS = "dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>"


def found(function: Callable, **fields) -> list[tuple]:
    """The equal axes, the factor, and whether it is a mean, of each sum of equal values."""
    fields = {"out": "b_dp t", "arrays": PARTLY, "mesh": "dp=2,tp=4"} | fields
    return [
        (*one.equal, one.factor, one.averaged)
        for one in repeated_sums(stablehlo(function, **fields))
    ]


def index(x, axis):
    return x * lax.axis_index(axis)


def over_tp(x):
    return lax.psum(x, "tp")


def divided_in_another_line(x):
    total = over_tp(x)
    return total / 4


def in_loop(x):
    return lax.fori_loop(0, 3, lambda i, c: over_tp(c / 2), x)


def in_branches(x):
    return lax.cond(x.sum() > 0, over_tp, lambda x: lax.pmean(x, "tp"), x)


def twice_in_functions(x):
    return jax.jit(over_tp)(jax.jit(over_tp)(index(x, "tp")))


def kept_by_a_barrier(x):
    equal, _ = lax.optimization_barrier((x, index(x, "tp")))
    return over_tp(equal)


def gathered(x):
    return over_tp(lax.all_gather(index(x, "tp"), "tp", to="invarying").sum(0))


def gradient(x):  # the gradient of a replicated w is summed already
    return x + over_tp(jax.grad(lambda w: (w * index(x, "tp")).sum())(jnp.cos(x)))


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (over_tp, [("tp", 4, False)]),
        (lambda x: lax.pmean(x, "tp"), [("tp", 4, True)]),
        (lambda x: over_tp(x) / 2, [("tp", 4, False)]),
        (lambda x: lax.psum(x, "tp") / 4 + over_tp(x), [("tp", 4, True), ("tp", 4, False)]),
        (lambda x: over_tp(index(x, "dp")), [("tp", 4, False)]),
        (lambda x: over_tp(over_tp(index(x, "tp"))), [("tp", 4, False)]),
        (lambda x: over_tp(lax.ppermute(x, "dp", ring(2))), [("tp", 4, False)]),
        (lambda x: over_tp(lax.psum(jnp.sort(x), "dp")), [("tp", 4, False)]),
        (divided_in_another_line, [("tp", 4, False)]),
        (in_loop, [("tp", 4, False)]),
        (in_branches, [("tp", 4, False), ("tp", 4, True)]),
        (twice_in_functions, [("tp", 4, False)]),
        (kept_by_a_barrier, [("tp", 4, False)]),
        (gathered, [("tp", 4, False)]),
        (gradient, [("tp", 4, False)]),
    ],
)
def test_a_sum_of_equal_values_is_found(function: Callable, expected: list) -> None:
    assert sorted(found(function)) == sorted(expected)


def varies_after_a_turn(x):
    return lax.fori_loop(0, 3, lambda i, c: index(over_tp(c), "tp"), index(x, "tp"))


def varies_only_in_the_third_turn(x):
    def turn(_, carried):
        a, b, c = carried
        return lax.pcast(over_tp(a), "tp", to="varying") * 0 + b, c, index(c, "tp")

    return lax.fori_loop(0, 3, turn, (lax.pcast(x, "tp", to="varying"),) * 3)[0]


def as_many_turns_as_the_index(x):
    turns = lax.axis_index("tp")
    last = lax.while_loop(
        lambda c: c[0] < turns,
        lambda c: (c[0] + 1, 2 * c[1]),
        (lax.pcast(0, "tp", to="varying"), lax.pcast(x, "tp", to="varying")),
    )
    return over_tp(last[1])


def branch_by_the_index(x):
    x = lax.pcast(x, "tp", to="varying")
    return over_tp(lax.cond(lax.axis_index("tp") > 0, lambda x: 2 * x, lambda x: x, x))


def position_on_both_axes(x):
    return over_tp(x * lax.axis_index(("dp", "tp")))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: over_tp(index(x, "tp")),
        lambda x: over_tp(lax.psum_scatter(index(x, "tp"), "tp", tiled=True)),
        lambda x: over_tp(lax.ppermute(x, "tp", [(0, 1)])),
        lambda x: over_tp(lax.dynamic_slice_in_dim(x, lax.axis_index("tp"), 1)),
        lambda x: x + over_tp(jnp.ones(3)).sum(),
        lambda x: x + lax.psum(1, "tp"),
        lambda x: lax.pmax(x, "tp"),
        varies_after_a_turn,
        varies_only_in_the_third_turn,
        as_many_turns_as_the_index,
        branch_by_the_index,
        position_on_both_axes,
    ],
)
def test_a_sum_of_what_varies_or_is_constant_is_not_named(function: Callable) -> None:
    out = (
        "b_dp_tp t"
        if function in (varies_after_a_turn, varies_only_in_the_third_turn)
        else "b_dp t"
    )
    assert found(function, out=out) == []


@pytest.mark.parametrize("program", PER_SHARD, ids=str)
def test_the_corpus_has_no_such_sum(program: Program) -> None:
    assert repeated_sums(program.jitted().lower(*program.shapes()).compiler_ir("stablehlo")) == ()


@pytest.mark.parametrize(
    ("body", "equal"),
    [
        (all_reduce(DATA), [(("dp",), ("dp",), 2, False)]),
        (all_reduce(PAIRS), []),  # half of an axis
        (f"%moved = {permute()}\n{all_reduce(DATA).replace('(%x)', '(%moved)')}", []),  # one pair
        (all_reduce(DATA).replace("stablehlo.add", "stablehlo.maximum"), []),
    ],
)
def test_groups_and_reductions_by_hand(body: str, equal: list) -> None:
    sums = repeated_sums(module(body))
    assert [(one.axes, one.equal, one.factor, one.averaged) for one in sums] == equal


def test_names_come_from_the_mesh_that_is_given() -> None:
    (one,) = repeated_sums(module(all_reduce(DATA)), {"node": 2, "device": 4})
    assert one.equal == ("node",)
    assert repeated_sums(plain_module("")) == ()


def test_an_array_that_leaves_one_shard_map_enters_the_next_by_its_sharding() -> None:
    mesh = make_mesh("dp=2,tp=4")

    def doubled(axis):
        return jax.shard_map(lambda x: 2 * x, mesh=mesh, in_specs=P(axis), out_specs=P(axis))

    summed = jax.shard_map(over_tp, mesh=mesh, in_specs=P("dp"), out_specs=P("dp"))
    shape = jax.ShapeDtypeStruct((8, 16), "float32")
    report = inspect(lambda x: summed(doubled("tp")(x)), shape)
    assert "the sum over tp at " in report.notes[0]
    assert report.notes[0].endswith(
        "multiplies by 4: its operand is equal on the devices of tp already"
    )


def test_what_differs_although_its_sharding_denies_it_may_vary() -> None:
    positions = f"""%id = stablehlo.partition_id : tensor<ui32>
        %number = stablehlo.convert %id : (tensor<ui32>) -> tensor<f32>
        %both = stablehlo.broadcast_in_dim %number, dims = [] : (tensor<f32>) -> {PAIR}"""
    differs = per_device("%x", positions, "%both")
    body = all_reduce(DATA).replace("%x", "%x_local")
    for value, sums in (("%x", 1), ("%differs", 0)):
        main = f"%differs = {differs}\n%y = {per_device(value, body, '%sum')}"
        repeated = repeated_sums(plain_module(main, 'sdy.mesh @mesh = <["dp"=2, "tp"=4]>'))
        assert len(repeated) == sums


def test_a_mean_of_equal_values_is_told_as_what_it_is() -> None:
    program = Program("program", lambda x: lax.pmean(x, "tp"), (), out="b_dp t", arrays=PARTLY)
    (note, *_) = inspect(program.jitted(), *program.shapes()).notes
    assert note.startswith("the mean over tp at ") and " changes nothing: " in note
