"""Exercise parallel_swiglu: a gated MLP by columns and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, wrong
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case
from jaxpar.contracts.tensor_parallel.common import (
    ONE_ALL_REDUCE,
    as_it_is,
    enter,
    sum_again,
    twice,
    whole_columns,
    whole_rows,
)
from jaxpar.parallel import tensor


def _gated_mlp(case: Case, x: jax.Array, *weights: jax.Array) -> list[Expected]:
    w_gate, w_up, w_down = weights
    gate = x @ w_gate
    return whole_on_all(case, (gate / (1 + jnp.exp(-gate)) * (x @ w_up)) @ w_down)


def _mlp(mesh: str, axis: str, b: int, t: int, d: int, f: int) -> Case:
    args = {
        "x": ArraySpec((b, t, d), "b t d"),
        "w_gate": ArraySpec((d, f), f"d f_{axis}"),
        "w_up": ArraySpec((d, f), f"d f_{axis}"),
        "w_down": ArraySpec((f, d), f"f_{axis} d"),
    }
    return Case(mesh, args, {"axis": axis})


CONTRACT = Contract(
    kind="program",
    task="return the gated MLP of x; this device has its part of the hidden size",
    reference=tensor.parallel_swiglu,
    oracle=_gated_mlp,
    cases=(
        _mlp("tp=4", "tp", b=2, t=5, d=12, f=4 * 14),
        _mlp("dp=2,tpx=3", "tpx", b=3, t=4, d=9, f=3 * 8),
    ),
    hidden=(_mlp("tp=2,pp=3", "tp", b=4, t=3, d=10, f=2 * 9),),
    gradient=("x", "w_gate", "w_up", "w_down"),
    communication=Communication(
        "one all-reduce of x's size forward, one backward",
        forward=ONE_ALL_REDUCE,
    ),
    hints=(
        "silu and * work on each hidden element alone. So whoever has some columns of w_gate and "
        "of w_up has all it needs for the same rows of w_down.",
        "Each device's product with w_down is a part of a sum over all hidden elements: one "
        "lax.psum at the very end.",
        "x is used twice. lax.pcast(x, axis, to='varying'), once and before both uses, has one "
        "all-reduce as its derivative; left out, JAX puts one at each use.",
    ),
    minimal="The result needs every device's part of the sum, and so does the gradient of x: an "
    "all-reduce each way.",
    harder="Put w_gate and w_up into one matrix, so that one product does both. In which order "
    "must its columns lie, so that each device gets columns of both?",
)


def _gated(gate: Array, up: Array) -> Array:
    return jax.nn.silu(gate) * up


def _swiglu(
    *,
    enter: Callable[[Array, str], Array] = enter,
    hidden: Callable[[Array, Array], Array] = _gated,
    columns: Callable[[Array, str], Array] = as_it_is,
    total: Callable[[Array, str], Any] = lax.psum,
) -> Callable[..., Array]:
    """A gated MLP with one step done in another way."""

    def function(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
        x = enter(x, axis)
        gate, up = (columns(x @ w, axis) for w in (w_gate, w_up))
        return total(hidden(gate, up) @ w_down, axis)

    return function


@wrong("values")
def partial_results(*args: Any, **how: Any) -> Any:
    """Each device returns its part of a sum; lax.psum adds them, after the last product."""
    return (_swiglu(total=as_it_is))(*args, **how)


def _scattered(x: Array, axis: str) -> Array:
    return lax.psum_scatter(x, axis, scatter_dimension=2, tiled=True)


@wrong("values")
def result_scattered(*args: Any, **how: Any) -> Any:
    """Each device returns its part of the result; x is whole on all devices, and so must be the
    result: lax.psum, not lax.psum_scatter."""
    return (_swiglu(total=_scattered))(*args, **how)


@wrong("values")
def summed_twice(*args: Any, **how: Any) -> Any:
    """The result is summed twice, and n times too large: after one lax.psum it is equal on all
    devices."""
    return (_swiglu(total=twice))(*args, **how)


@wrong("values")
def averaged_over_axis(*args: Any, **how: Any) -> Any:
    """The parts are averaged; they are parts of a sum, so use lax.psum."""
    return (_swiglu(total=lax.pmean))(*args, **how)


@wrong("values")
def columns_summed(*args: Any, **how: Any) -> Any:
    """x times this device's columns is summed over the devices, too, so that columns of different
    hidden elements are added; sum after w_down only."""
    return (_swiglu(columns=lax.psum))(*args, **how)


@wrong("values")
def gate_and_up_swapped(*args: Any, **how: Any) -> Any:
    """silu is taken of x @ w_up; take it of x @ w_gate."""
    return (_swiglu(hidden=lambda g, u: _gated(u, g)))(*args, **how)


@wrong("values")
def silu_of_product(*args: Any, **how: Any) -> Any:
    """silu is taken of the product of gate and up; take it of the gate alone, then multiply."""
    return (_swiglu(hidden=lambda g, u: jax.nn.silu(g * u)))(*args, **how)


@wrong("values")
def gate_by_gelu(*args: Any, **how: Any) -> Any:
    """The gate goes through gelu; SwiGLU has silu."""
    return (_swiglu(hidden=lambda g, u: jax.nn.gelu(g) * u))(*args, **how)


@wrong("values")
def gate_by_sigmoid(*args: Any, **how: Any) -> Any:
    """The gate goes through sigmoid; silu(g) is g * sigmoid(g)."""
    return (_swiglu(hidden=lambda g, u: jax.nn.sigmoid(g) * u))(*args, **how)


@wrong("gradient")
def gradient_summed_twice(*args: Any, **how: Any) -> Any:
    """The gradient of x is summed twice, and n times too large: JAX sums it where x becomes
    varying, so a function with lax.psum in its backward pass adds a second sum. lax.pcast(x, axis,
    to='varying') is Megatron's f."""
    return (_swiglu(enter=sum_again))(*args, **how)


@wrong("communication")
def f_left_implicit(*args: Any, **how: Any) -> Any:
    """JAX makes x varying at each of its uses, and each sends an all-reduce of its own in the
    backward pass; lax.pcast(x, axis, to='varying') once, before the first use."""
    return (_swiglu(enter=as_it_is))(*args, **how)


@wrong("communication")
def tensor_weights_gathered(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str
) -> Array:
    """All weights are gathered, and every device computes everything; use your own columns and
    rows, and sum the results."""
    gate, up = (x @ whole_columns(w, axis) for w in (w_gate, w_up))
    return _gated(gate, up) @ whole_rows(w_down, axis)


@wrong("communication")
def hidden_gathered(x: Array, w_gate: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The hidden elements are gathered, and w_down with them; multiply your own by your rows of
    w_down, and sum the results."""
    x = enter(x, axis)
    hidden = lax.all_gather(_gated(x @ w_gate, x @ w_up), axis, axis=2, tiled=True)
    return hidden @ whole_rows(w_down, axis)


def _scattered_and_gathered(x: Array, axis: str) -> Array:
    return lax.all_gather(_scattered(x, axis), axis, axis=2, tiled=True)


@wrong("communication")
def sum_typed_varying(*args: Any, **how: Any) -> Any:
    """What lax.all_gather gives is equal on all devices, but typed as varying, so its gradient is
    summed once more; lax.psum sends as much, and types it as equal."""
    return (_swiglu(total=_scattered_and_gathered))(*args, **how)


def _gathered_and_added(x: Array, axis: str) -> Array:
    return lax.all_gather(x, axis).sum(axis=0)


@wrong("communication")
def partials_gathered(*args: Any, **how: Any) -> Any:
    """Every device's partial result is gathered, then added: n/2 times the bytes of lax.psum."""
    return (_swiglu(total=_gathered_and_added))(*args, **how)
