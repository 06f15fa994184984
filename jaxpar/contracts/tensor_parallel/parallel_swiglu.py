"""A gated MLP whose matrices are split by columns and by rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import whole_on_all, work_is_split
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import Step, among_zeros, as_it_is, enter, gathered, scattered
from jaxpar.contracts.tensor_parallel.common import (
    ONE_ALL_REDUCE,
    all_reduced_twice,
    enter_and_sum_again,
)
from jaxpar.parallel import tensor


def _gated_mlp(case: Case, x: Array, w_gate: Array, w_up: Array, w_down: Array) -> list[Expected]:
    gate = x @ w_gate
    return whole_on_all(case, (gate * jax.nn.sigmoid(gate) * (x @ w_up)) @ w_down)


def _mlp_case(
    mesh: str, axis: str, b: int, t: int, d: int, f: int,
    *, dtype: str = "float32", draw: Literal["normal", "wide"] = "normal",
) -> Case:  # fmt: skip
    """A case with hidden size f on all devices together; `draw` is that of x."""
    args = {
        "x": ArraySpec((b, t, d), "b t d", dtype, draw),
        "w_gate": ArraySpec((d, f), f"d f_{axis}", dtype),
        "w_up": ArraySpec((d, f), f"d f_{axis}", dtype),
        "w_down": ArraySpec((f, d), f"f_{axis} d", dtype),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "tp", "tpx"))
    t, d, f = (pick(rng, sizes) for sizes in (range(6, 9), (10, 11, 13), range(15, 19)))
    mesh = mesh_of(rng, **{axis: 5, other: 2})
    alone = mesh_of(rng, **{axis: 1, other: 2})
    return (
        _mlp_case(mesh, axis, b=4, t=t, d=d, f=5 * f, dtype="bfloat16"),
        # silu of hundreds, where exp leaves float32
        _mlp_case(alone, axis, b=1, t=t + 3, d=d + 4, f=f + 4, draw="wide"),
    )


CONTRACT = Contract(
    kind="program",
    task="return the gated MLP of x; this device has its part of the hidden size",
    reference=tensor.parallel_swiglu,
    oracle=_gated_mlp,
    cases=(
        _mlp_case("tp=4", "tp", b=2, t=5, d=12, f=4 * 14),
        _mlp_case("dp=2,tpx=3", "tpx", b=3, t=4, d=9, f=3 * 8),
    ),
    draw=_drawn,
    gradient=("x", "w_gate", "w_up", "w_down"),
    communication=Communication(
        "one all-reduce of x's size forward, one backward",
        forward=ONE_ALL_REDUCE,
    ),
    flops=work_is_split(),
    tolerance=2,  # of silu of hundreds, large terms cancel in the gradient
    hints=(
        "silu and * work on each hidden element alone. So a device that has some columns of w_gate "
        "and w_up has all it needs for the same rows of w_down.",
        "Each device's product with w_down is a part of a sum over all hidden elements: one "
        "lax.psum at the very end.",
        "x is used twice. lax.pcast(x, axis, to='varying'), once and before both uses, has one "
        "all-reduce as its derivative; without it, JAX adds one at each use.",
    ),
    minimal="The result needs every device's part of the sum, and so does the gradient of x: an "
    "all-reduce each way.",
    harder="Put w_gate and w_up into one matrix, so that one product does both. In which order "
    "must its columns be, so that each device gets columns of both?",
)


def _swiglu(
    x: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    *,
    axis: str,
    enter: Step = enter,
    activate: Callable[[Array], Array] = jax.nn.silu,
    total: Step = lax.psum,
) -> Array:
    """The gated MLP, with one step done in another way."""
    x = enter(x, axis)
    return total((activate(x @ w_gate) * (x @ w_up)) @ w_down, axis)


@wrong("values")
def partial_results(x: Array, *weights: Array, axis: str) -> Array:
    """Each device returns only its part of a sum; add the parts with lax.psum, after the last
    product."""
    return _swiglu(x, *weights, axis=axis, total=as_it_is)


@wrong("values")
def result_scattered(x: Array, *weights: Array, axis: str) -> Array:
    """Each device returns its part of the result; x is whole on all devices, and the result must
    be, too: use lax.psum, not lax.psum_scatter."""
    return scattered(_swiglu(x, *weights, axis=axis, total=as_it_is), axis, 2)


@wrong("values")
def summed_twice(x: Array, *weights: Array, axis: str) -> Array:
    """The result is summed twice, and n times too large: after one lax.psum it is equal on all
    devices."""
    return _swiglu(x, *weights, axis=axis, total=all_reduced_twice)


@wrong("values")
def averaged_over_axis(x: Array, *weights: Array, axis: str) -> Array:
    """The parts are averaged; they are parts of a sum, so use lax.psum."""
    return _swiglu(x, *weights, axis=axis, total=lax.pmean)


@wrong("values")
def columns_summed(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """x times this device's columns is summed over the devices, too, so that columns of different
    hidden elements are added; sum after w_down only."""
    x = enter(x, axis)
    gate, up = (lax.psum(x @ w, axis) for w in (w_gate, w_up))
    return lax.psum((jax.nn.silu(gate) * up) @ w_down, axis)


def _hidden_summed(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str, total: Step
) -> Array:
    """The hidden elements of all devices are added before the last product."""
    x = enter(x, axis)
    return total(lax.psum(jax.nn.silu(x @ w_gate) * (x @ w_up), axis) @ w_down, axis)


@wrong("values")
def hidden_summed(x: Array, *weights: Array, axis: str) -> Array:
    """lax.psum stands before the product with w_down, and adds hidden elements of different
    columns; each device has the rows of w_down for its own, so sum after the product."""
    return _hidden_summed(x, *weights, axis=axis, total=as_it_is)


@wrong("values")
def hidden_and_result_summed(x: Array, *weights: Array, axis: str) -> Array:
    """lax.psum stands before the product with w_down as well, and adds hidden elements of different
    columns there; sum once, after the product."""
    return _hidden_summed(x, *weights, axis=axis, total=lax.psum)


@wrong("values")
def gate_and_up_swapped(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """silu is taken of x @ w_up; take it of x @ w_gate."""
    return _swiglu(x, w_up, w_gate, w_down, axis=axis)


@wrong("values")
def silu_of_product(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """silu is taken of the product of gate and up; take it of the gate alone, then multiply."""
    x = enter(x, axis)
    return lax.psum(jax.nn.silu((x @ w_gate) * (x @ w_up)) @ w_down, axis)


@wrong("values")
def gate_by_gelu(x: Array, *weights: Array, axis: str) -> Array:
    """The gate goes through gelu; SwiGLU has silu."""
    return _swiglu(x, *weights, axis=axis, activate=jax.nn.gelu)


@wrong("values")
def gate_by_sigmoid(x: Array, *weights: Array, axis: str) -> Array:
    """The gate goes through sigmoid; silu(g) is g * sigmoid(g)."""
    return _swiglu(x, *weights, axis=axis, activate=jax.nn.sigmoid)


@wrong("gradient")
def gradient_summed_twice(x: Array, *weights: Array, axis: str) -> Array:
    """The gradient of x is summed twice, and n times too large: JAX sums it where x becomes
    varying, so a function with lax.psum in its backward pass adds a second sum. lax.pcast(x, axis,
    to='varying') is Megatron's f."""
    return _swiglu(x, *weights, axis=axis, enter=enter_and_sum_again)


@wrong("gradient")
def silu_overflows(x: Array, *weights: Array, axis: str) -> Array:
    """exp(-g) overflows for g below -88, and the gradient is NaN there; use jax.nn.silu, or
    jax.nn.sigmoid."""
    return _swiglu(x, *weights, axis=axis, activate=lambda g: g / (1 + jnp.exp(-g)))


@wrong("communication")
def f_left_implicit(x: Array, *weights: Array, axis: str) -> Array:
    """JAX makes x varying at each of its uses, and each sends an all-reduce of its own in the
    backward pass; call lax.pcast(x, axis, to='varying') once, before the first use."""
    return _swiglu(x, *weights, axis=axis, enter=as_it_is)


@wrong("communication")
def tensor_weights_gathered(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str
) -> Array:
    """All weights are gathered, and every device computes everything; use your own columns and
    rows, and sum the results."""
    gate, up = (x @ gathered(w, axis, 1) for w in (w_gate, w_up))
    return (jax.nn.silu(gate) * up) @ gathered(w_down, axis)


@wrong("communication")
def hidden_gathered(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The hidden elements are gathered, and w_down with them; multiply your own by your rows of
    w_down, and sum the results."""
    x = enter(x, axis)
    hidden = gathered(jax.nn.silu(x @ w_gate) * (x @ w_up), axis, 2)
    return hidden @ gathered(w_down, axis)


@wrong("communication")
def sum_typed_varying(x: Array, *weights: Array, axis: str) -> Array:
    """What lax.all_gather gives is equal on all devices, but typed as varying, so its gradient is
    summed once more; lax.psum sends as much, and types it as equal."""
    y_partial = _swiglu(x, *weights, axis=axis, total=as_it_is)
    return gathered(scattered(y_partial, axis, 2), axis, 2)


@wrong("communication")
def partials_gathered(x: Array, *weights: Array, axis: str) -> Array:
    """Every device's partial result is gathered, then added: n/2 times the bytes of lax.psum."""
    y_partial = _swiglu(x, *weights, axis=axis, total=as_it_is)
    return lax.all_gather(y_partial, axis).sum(axis=0)


@wrong("flops")
def whole_width_among_zeros(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str
) -> Array:
    """Every device multiplies matrices of the whole hidden size, with zeros for the columns and
    rows of the others; multiply x by your own columns only."""
    w_gate, w_up = (among_zeros(w, axis, 1) for w in (w_gate, w_up))
    return _swiglu(x, w_gate, w_up, among_zeros(w_down, axis), axis=axis)
