"""Exercise sequence_parallel_mlp: positions split between the blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import mesh_order
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.parallel import sequence

# A reduce-scatter may be an exchange and a sum, and either may be a ring.
MOVES = ("all_gather", "reduce_scatter", "all_to_all", "permute")


def _mlp(case: Case, x: jax.Array, w_up: jax.Array, w_down: jax.Array) -> list[Expected]:
    """The MLP of all positions, and on each device those that it holds; other axes hold copies."""
    y = jax.nn.gelu(x @ w_up, approximate=True) @ w_down
    axis, sizes = case.kwargs["axis"], case.sizes
    parts = jnp.stack(jnp.split(y, sizes[axis], axis=1))
    others = [size for name, size in sizes.items() if name != axis]
    parts = jnp.broadcast_to(
        parts.reshape(len(parts), *[1] * len(others), *parts.shape[1:]),
        (len(parts), *others, *parts.shape[1:]),
    )
    return [Expected(mesh_order(case, parts), jnp.broadcast_to(y, (*sizes.values(), *y.shape)))]


def _passes(count: int) -> Limit:
    """So many times what an all-gather of x, or a reduce-scatter to its size, sends."""

    def wire_bytes(sizes: Sizes) -> int:
        return count * (sizes.n() - 1) * sizes.bytes("x")

    return Limit(MOVES, "axis", wire_bytes)


CONTRACT = Contract(
    kind="program",
    task="return the MLP's result for this device's positions; the matrices stay split",
    reference=sequence.sequence_parallel_mlp,
    oracle=_mlp,
    cases=(
        Case(
            "tp=4",
            {
                "x": ArraySpec((4, 4 * 8, 16), "b t_tp d"),
                "w_up": ArraySpec((16, 4 * 40), "d f_tp"),
                "w_down": ArraySpec((4 * 40, 16), "f_tp d"),
            },
            {"axis": "tp"},
        ),
        Case(
            "dp=2,tpx=3",
            {
                "x": ArraySpec((9, 3 * 2, 15), "b t_tpx d"),
                "w_up": ArraySpec((15, 3 * 48), "d f_tpx"),
                "w_down": ArraySpec((3 * 48, 15), "f_tpx d"),
            },
            {"axis": "tpx"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=2",
            {
                "x": ArraySpec((3, 2 * 5, 12), "b t_tp d"),
                "w_up": ArraySpec((12, 2 * 30), "d f_tp"),
                "w_down": ArraySpec((2 * 30, 12), "f_tp d"),
            },
            {"axis": "tp"},
        ),
    ),
    gradient=("x", "w_up", "w_down"),
    communication=Communication(
        "an all-gather of x and a reduce-scatter of the result, in each direction; backward x may "
        "be gathered once more",
        forward=((_passes(2),),),
        backward=((_passes(3),),),
    ),
    sharding=True,
    hints=(
        "Every device's columns must see every position, and of the sum of all devices' products "
        "each device needs its own positions only. That is one collective at each end.",
        "lax.all_gather(x, axis, axis=1, tiled=True) puts the positions one after another; "
        "lax.psum_scatter(y, axis, scatter_dimension=1, tiled=True) sums, and leaves each device "
        "its own. The derivative of each is the other.",
        "Gather x, times w_up, jax.nn.gelu, times w_down, reduce-scatter. Weights stay where they "
        "are, and there is no psum.",
    ),
    minimal="(n-1)/n of the positions that a device's columns need are elsewhere, and so are "
    "(n-1)/n of the sums that a device's positions need. An all-reduce is both: tensor parallelism "
    "sends as much.",
    harder="Keep only this device's positions for the gradient of w_up, and gather them again "
    "backward, by jax.custom_vjp. Or take both products in rounds round a ring.",
)


Answer = Callable[..., Array]


def _gather(x: Array, axis: str, dim: int = 1) -> Array:
    return lax.all_gather(x, axis, axis=dim, tiled=True)


def _scatter(y: Array, axis: str, dim: int = 1) -> Array:
    return lax.psum_scatter(y, axis, scatter_dimension=dim, tiled=True)


def _with(
    before: Callable[[Array, str], Array] = _gather,
    after: Callable[[Array, str], Array] = _scatter,
    activate: Callable[[Array], Array] = jax.nn.gelu,
) -> Answer:
    """The MLP with something else before the columns, after the rows, or in between."""

    def answer(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
        return after(activate(before(x, axis) @ w_up) @ w_down, axis)

    return answer


@wrong("values")
def positions_not_gathered(*args: Any, **how: Any) -> Any:
    """Each device multiplies its own positions only, so that the sum adds up different ones; gather
    x over dim 1 before the columns."""
    return (_with(lambda x, axis: x, lax.psum))(*args, **how)


@wrong("values")
def batch_gathered(*args: Any, **how: Any) -> Any:
    """x is gathered over dim 0, the batch; its positions are dim 1: lax.all_gather(x, axis, axis=1,
    tiled=True)."""
    return (_with(lambda x, axis: _gather(x, axis, 0)))(*args, **how)


@wrong("values")
def batch_scattered(*args: Any, **how: Any) -> Any:
    """The result is scattered over dim 0, the batch; use scatter_dimension=1, the positions."""
    return (_with(after=lambda y, axis: _scatter(y, axis, 0)))(*args, **how)


@wrong("values")
def model_dim_scattered(*args: Any, **how: Any) -> Any:
    """The result is scattered over dim 2; each device needs whole vectors of its positions:
    scatter_dimension=1."""
    return (_with(after=lambda y, axis: _scatter(y, axis, 2)))(*args, **how)


def _interleaved(x: Array, axis: str) -> Array:
    return lax.all_gather(x, axis, axis=2).reshape(len(x), -1, x.shape[2])


@wrong("values")
def positions_interleaved(*args: Any, **how: Any) -> Any:
    """The gathered positions are interleaved; lax.all_gather with axis=1 and tiled=True puts those
    of the devices one after another."""
    return (_with(_interleaved))(*args, **how)


def _cut(y: Array, axis: str) -> Array:
    """This device's positions of all."""
    size = y.shape[1] // lax.axis_size(axis)
    return lax.dynamic_slice_in_dim(y, lax.axis_index(axis) * size, size, axis=1)


@wrong("values")
def positions_of_own_product(*args: Any, **how: Any) -> Any:
    """Each device keeps its positions of its own product; that is a part of the sum, so use
    lax.psum_scatter."""
    return (_with(after=_cut))(*args, **how)


def _summed_twice(y: Array, axis: str) -> Array:
    return _scatter(lax.pcast(lax.psum(y, axis), axis, to="varying"), axis)


@wrong("values")
def products_summed_twice(*args: Any, **how: Any) -> Any:
    """The products are summed twice, and the result is n times too large; lax.psum_scatter alone
    sums."""
    return (_with(after=_summed_twice))(*args, **how)


@wrong("values")
def products_averaged(*args: Any, **how: Any) -> Any:
    """The sum is divided by the number of devices; the products are parts of a sum, not of a
    mean."""
    return (_with(after=lambda y, axis: _scatter(y, axis) / lax.axis_size(axis)))(*args, **how)


@wrong("values")
def gelu_of_scattered_sum(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """GELU comes last; it belongs between the two products, on each device's columns."""
    return jax.nn.gelu(_scatter(_gather(x, axis) @ w_up @ w_down, axis))


@wrong("values")
def exact_gelu(*args: Any, **how: Any) -> Any:
    """This is the exact GELU; use the tanh form, jax.nn.gelu(x, approximate=True)."""
    return (_with(activate=lambda x: jax.nn.gelu(x, approximate=False)))(*args, **how)


@wrong("sharding")
def all_positions_returned(*args: Any, **how: Any) -> Any:
    """Every device returns all positions, as tensor parallelism does; leave each device its own by
    lax.psum_scatter."""
    return (_with(after=lax.psum))(*args, **how)


def _gather_whose_gradient(backward: Callable[[Array, str], Array]) -> Callable:
    """An all-gather with another derivative than its own."""

    def gather(x: Array, axis: str) -> Array:
        with_derivative = jax.custom_vjp(lambda x: _gather(x, axis))
        with_derivative.defvjp(
            lambda x: (_gather(x, axis), None), lambda _, c: (backward(c, axis),)
        )
        return with_derivative(x)

    return gather


@wrong("gradient")
def gradient_of_own_columns(*args: Any, **how: Any) -> Any:
    """The gradient of x is of this device's columns only; sum over the devices, as the derivative
    of lax.all_gather does."""
    return (_with(_gather_whose_gradient(_cut)))(*args, **how)


@wrong("communication")
def positions_cut_from_sum(*args: Any, **how: Any) -> Any:
    """All positions are summed on all devices, and each cuts out its own; lax.psum_scatter sums
    only what a device keeps, at half the bytes."""
    return (_with(after=lambda y, axis: _cut(lax.psum(y, axis), axis)))(*args, **how)


@wrong("communication")
def gradient_cut_from_sum(*args: Any, **how: Any) -> Any:
    """Backward, the gradient of all positions is all-reduced, and each device cuts out its own;
    lax.all_gather without to="invarying" has a reduce-scatter there."""
    return (_with(lambda x, axis: lax.all_gather(x, axis, axis=1, tiled=True, to="invarying")))(
        *args, **how
    )


@wrong("communication")
def products_gathered(*args: Any, **how: Any) -> Any:
    """Every device gathers all devices' products and adds them up: n times the bytes of
    lax.psum_scatter."""
    return (_with(after=lambda y, axis: _cut(lax.all_gather(y, axis).sum(axis=0), axis)))(
        *args, **how
    )


def _by_sum(x: Array, axis: str) -> Array:
    n, (b, t, d) = lax.axis_size(axis), x.shape
    whole = lax.pcast(jnp.zeros((b, n * t, d), x.dtype), axis, to="varying")
    return lax.psum(lax.dynamic_update_slice_in_dim(whole, x, lax.axis_index(axis) * t, 1), axis)


@wrong("communication")
def positions_gathered_by_sum(*args: Any, **how: Any) -> Any:
    """Positions are put into zeros and summed: twice the bytes of lax.all_gather."""
    return (_with(_by_sum))(*args, **how)


@wrong("communication")
def weights_not_x_gathered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The weights are gathered, which are larger than x; leave them split, and gather x."""
    return jax.nn.gelu(x @ _gather(w_up, axis)) @ _gather(w_down, axis, 0)
