"""An MLP between blocks whose positions are split over the devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import mesh_order, work_is_split
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.steps import (
    among_zeros,
    enter,
    gathered,
    gathered_by_sum,
    gathered_for_all_reduce,
    gathered_for_own_gradient,
    own_shard,
    scattered,
)
from jaxpar.parallel import sequence

# A reduce-scatter may be an exchange and a sum, and either may be a ring.
MOVES = ("all_gather", "reduce_scatter", "all_to_all", "permute")


def _mlp_of_all_positions(case: Case, x: Array, w_up: Array, w_down: Array) -> list[Expected]:
    """The MLP of all positions, and on each device those that it holds; other axes hold copies."""
    y = jax.nn.gelu(x @ w_up, approximate=True) @ w_down
    axis, sizes = case.kwargs["axis"], case.sizes
    shards = jnp.stack(jnp.split(y, sizes[axis], axis=1))
    others = [size for name, size in sizes.items() if name != axis]
    n, *shape = shards.shape
    shards = jnp.broadcast_to(shards.reshape(n, *[1] * len(others), *shape), (n, *others, *shape))
    whole = jnp.broadcast_to(y, (*sizes.values(), *y.shape)) if n > 1 else None
    return [Expected(mesh_order(case, shards), whole)]


def _case(mesh: str, axis: str, b: int, t: int, d: int, f: int, dtype: str = "float32") -> Case:
    args = {
        "x": ArraySpec((b, t, d), f"b t_{axis} d", dtype),
        "w_up": ArraySpec((d, f), f"d f_{axis}", dtype),
        "w_down": ArraySpec((f, d), f"f_{axis} d", dtype),
    }
    return Case(mesh, args, {"axis": axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("tp", "dp", "tpx"))
    t, d, f = (pick(rng, sizes) for sizes in ((3, 4, 7), (10, 12, 14), (25, 30, 35)))
    mesh = mesh_of(rng, **{axis: 6, other: 2})
    return (
        _case(mesh, axis, pick(rng, (2, 3)), 6 * t, d, 6 * f, "bfloat16"),
        _case(f"{axis}=1,{other}=2", axis, b=2, t=pick(rng, (5, 11)), d=17, f=20),
    )


def _passes(count: int) -> Limit:
    """So many times what an all-gather of x, or a reduce-scatter to its size, sends."""

    def wire_bytes(sizes: Sizes) -> int:
        return count * (sizes.n() - 1) * sizes.bytes("x")

    return Limit(MOVES, "axis", wire_bytes)


CONTRACT = Contract(
    kind="program",
    task="return the MLP's result for this device's positions; the matrices stay split",
    reference=sequence.sequence_parallel_mlp,
    oracle=_mlp_of_all_positions,
    cases=(
        _case("tp=4", "tp", b=4, t=4 * 8, d=16, f=4 * 40),
        _case("dp=2,tpx=3", "tpx", b=9, t=3 * 2, d=15, f=3 * 48),
    ),
    draw=_drawn,
    gradient=("x", "w_up", "w_down"),
    communication=Communication(
        "an all-gather of x and a reduce-scatter of the result, in each direction; backward x may "
        "be gathered once more",
        forward=((_passes(2),),),
        backward=((_passes(3),),),
    ),
    sharding=True,
    flops=work_is_split(),
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
    "backward, by jax.custom_vjp. Or compute both products in rounds, around a ring.",
)


def _partial(x: Array, w_up: Array, w_down: Array) -> Array:
    """What this device's columns and rows contribute to the result."""
    return jax.nn.gelu(x @ w_up) @ w_down


@wrong("values")
def positions_not_gathered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Each device multiplies its own positions only, so that the sum adds up different ones; gather
    x over dim 1 before the columns."""
    return lax.psum(_partial(x, w_up, w_down), axis)


@wrong("values")
def batch_gathered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """x is gathered over dim 0, the batch; its positions are dim 1: lax.all_gather(x, axis, axis=1,
    tiled=True)."""
    return scattered(_partial(gathered(x, axis, 0), w_up, w_down), axis, 1)


@wrong("values")
def batch_scattered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The result is scattered over dim 0, the batch; use scatter_dimension=1, the positions."""
    return scattered(_partial(gathered(x, axis, 1), w_up, w_down), axis, 0)


@wrong("values")
def model_dim_scattered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The result is scattered over dim 2; each device needs whole vectors of its positions:
    scatter_dimension=1."""
    return scattered(_partial(gathered(x, axis, 1), w_up, w_down), axis, 2)


@wrong("values")
def positions_interleaved(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The gathered positions are interleaved; lax.all_gather with axis=1 and tiled=True puts those
    of the devices one after another."""
    x = lax.all_gather(x, axis, axis=2).reshape(len(x), -1, x.shape[2])
    return scattered(_partial(x, w_up, w_down), axis, 1)


@wrong("values")
def positions_of_own_product(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Each device keeps its positions of its own product; that is a part of the sum, so use
    lax.psum_scatter."""
    return own_shard(_partial(gathered(x, axis, 1), w_up, w_down), axis, 1)


@wrong("values")
def products_summed_twice(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The products are summed twice, and the result is n times too large; lax.psum_scatter alone
    sums."""
    y = lax.psum(_partial(gathered(x, axis, 1), w_up, w_down), axis)
    return scattered(enter(y, axis), axis, 1)


@wrong("values")
def products_averaged(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The sum is divided by the number of devices; the products are parts of a sum, not of a
    mean."""
    return scattered(_partial(gathered(x, axis, 1), w_up, w_down), axis, 1) / lax.axis_size(axis)


@wrong("values")
def gelu_of_scattered_sum(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """GELU comes last; it belongs between the two products, on each device's columns."""
    return jax.nn.gelu(scattered(gathered(x, axis, 1) @ w_up @ w_down, axis, 1))


@wrong("values")
def exact_gelu(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """This is the exact GELU; use the tanh form, jax.nn.gelu(x, approximate=True)."""
    hidden = jax.nn.gelu(gathered(x, axis, 1) @ w_up, approximate=False)
    return scattered(hidden @ w_down, axis, 1)


@wrong("values")
def result_in_float32(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The result is float32 whatever comes in; it must have the dtype of x."""
    y = scattered(_partial(gathered(x, axis, 1), w_up, w_down), axis, 1)
    return y.astype(jnp.float32)


@wrong("sharding")
def all_positions_returned(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Every device returns all positions, as tensor parallelism does; leave each device its own by
    lax.psum_scatter."""
    return lax.psum(_partial(gathered(x, axis, 1), w_up, w_down), axis)


@wrong("gradient")
def gradient_of_own_columns(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The gradient of x comes from this device's columns only; sum over the devices, as the
    derivative of lax.all_gather does."""
    x = gathered_for_own_gradient(x, axis, 1)
    return scattered(_partial(x, w_up, w_down), axis, 1)


@wrong("communication")
def positions_cut_from_sum(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """All positions are summed on all devices, and each cuts out its own; lax.psum_scatter sums
    only what a device keeps, at half the bytes."""
    return own_shard(lax.psum(_partial(gathered(x, axis, 1), w_up, w_down), axis), axis, 1)


@wrong("communication")
def gradient_cut_from_sum(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Backward, the gradient of all positions is all-reduced, and each device cuts out its own;
    lax.all_gather without to="invarying" has a reduce-scatter there."""
    x = gathered_for_all_reduce(x, axis, 1)
    return scattered(_partial(x, w_up, w_down), axis, 1)


@wrong("communication")
def products_gathered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Every device gathers all devices' products and adds them up: n times the bytes of
    lax.psum_scatter."""
    products = lax.all_gather(_partial(gathered(x, axis, 1), w_up, w_down), axis)
    return own_shard(products.sum(axis=0), axis, 1)


@wrong("communication")
def positions_gathered_by_sum(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Positions are padded with zeros and summed, which sends twice the bytes of lax.all_gather."""
    return scattered(_partial(gathered_by_sum(x, axis, 1), w_up, w_down), axis, 1)


@wrong("communication")
def positions_in_float32(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Positions and sums go over the wire in float32, whatever dtype x has; send them in that of
    x."""
    wide = (a.astype(jnp.float32) for a in (x, w_up, w_down))
    return sequence.sequence_parallel_mlp(*wide, axis=axis).astype(x.dtype)


@wrong("communication")
def weights_not_x_gathered(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """The weights are gathered, although they are larger than x; leave them split, and gather x."""
    return _partial(x, gathered(w_up, axis, 1), gathered(w_down, axis))


@wrong("flops")
def whole_hidden_among_zeros(x: Array, w_up: Array, w_down: Array, *, axis: str) -> Array:
    """Every device multiplies matrices of the whole hidden size, with zeros for the columns and
    rows of the others; multiply all positions by your own columns only."""
    whole = among_zeros(w_up, axis, 1), among_zeros(w_down, axis)
    return scattered(_partial(gathered(x, axis, 1), *whole), axis, 1)
