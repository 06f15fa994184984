"""Trip counts are read from counters of every kind, and never guessed."""

import jax.numpy as jnp
import pytest
from jax import lax

from jaxpar.inspector.stablehlo import read_module
from tests.inspector.corpus import stablehlo
from tests.inspector.modules import loop, module, permute
from tests.inspector.programs import shift


def times(body: str) -> int | None:
    (one,) = read_module(module(body))
    return one.times


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({}, 5),
        ({"start": 2, "step": 2}, 2),
        ({"stop": 6, "step": 2, "direction": "NE"}, 3),
        ({"direction": "LE"}, 6),
        ({"start": 9, "stop": 2, "direction": "GT", "update": "subtract"}, 7),
        ({"start": 9, "stop": 2, "step": -3, "direction": "GE"}, 3),
        ({"start": 7}, 0),
        ({"start": 250, "stop": 255, "dtype": "ui8"}, 5),
    ],
)
def test_counters(form: dict, expected: int) -> None:
    assert times(loop(**form)) == expected


@pytest.mark.parametrize(
    "form",
    [
        {"step": 0},
        {"step": -1},
        {"stop": 5, "step": 2, "direction": "NE"},  # steps over 5
        {"direction": "EQ"},
        {"stop": 120, "step": 100, "dtype": "i8"},  # 200 does not fit into i8 and becomes -56
        {"start": 3, "stop": 0, "direction": "GE", "update": "subtract", "dtype": "ui8"},
        {"update": "multiply"},
    ],
)
def test_counters_that_do_not_say(form: dict) -> None:
    assert times(loop(**form)) is None


def test_mirrored_comparison_and_sum() -> None:
    body = loop().replace("LT, %i, %stop", "GT, %stop, %i").replace("%i, %step", "%step, %i")
    assert times(body) == 5


def test_bound_carried_by_a_loop_around() -> None:
    """The inner loop compares with a constant that the outer loop only carries."""
    inner = loop().replace("%stop = stablehlo.constant dense<5> : tensor<i32>", "")
    body = f"""
        %five = stablehlo.constant dense<5> : tensor<i32>
        %none = stablehlo.constant dense<0> : tensor<i32>
        %outer:2 = stablehlo.while(%n = %none, %stop = %five) : tensor<i32>, tensor<i32>
        cond {{
          %more = stablehlo.compare LT, %n, %stop : (tensor<i32>, tensor<i32>) -> tensor<i1>
          stablehlo.return %more : tensor<i1>
        }} do {{
          {inner}
          %one = stablehlo.constant dense<1> : tensor<i32>
          %m = stablehlo.add %n, %one : tensor<i32>
          stablehlo.return %m, %stop : tensor<i32>, tensor<i32>
        }}"""
    assert times(body) == 25
    assert times(body.replace("return %m, %stop", "return %m, %m")) is None


def test_a_condition_runs_once_more_than_its_body() -> None:
    body = loop().replace("cond {", f"cond {{ %seen = {permute('%y')}")
    in_condition, in_body = read_module(module(body))
    assert (in_condition.times, in_body.times) == (6, 5)


def test_loops_of_unknown_length_are_marked() -> None:
    def until_large(x):
        return lax.while_loop(
            lambda x: lax.psum(x.sum(), ("dp", "tp")) < 100, lambda x: shift(2 * x)[0], x
        )

    condition, body = read_module(stablehlo(until_large))
    assert (condition.kind, condition.times) == ("all_reduce", None)
    assert (body.kind, body.times, body.total_wire_bytes) == ("permute", None, None)


def test_a_traced_bound_is_unknown() -> None:
    def program(x):
        return lax.fori_loop(0, jnp.int32(x[0, 0]), lambda _, x: shift(x)[0], x)

    (one,) = read_module(stablehlo(program))
    assert one.times is None


def test_a_loop_that_counts_down() -> None:
    def program(x):
        return lax.while_loop(lambda c: c[1] > 2, lambda c: (shift(c[0])[0], c[1] - 3), (x, 20))[0]

    (one,) = read_module(stablehlo(program))
    assert one.times == 6
