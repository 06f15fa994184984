"""Contract of lesson 12: the MLP of sequence parallelism."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from jaxpar.contracts import sequence_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, Limit
from jaxpar.contracts.blocks import mesh_order
from jaxpar.contracts.case import Array, Case, Sizes
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


SEQUENCE_PARALLEL_MLP = Contract(
    id="sequence_parallel_mlp",
    kind="program",
    task="return the MLP's result for this device's positions; the matrices stay split",
    reference=sequence.sequence_parallel_mlp,
    oracle=_mlp,
    cases=(
        Case(
            "tp=4",
            {
                "x": Array((4, 4 * 8, 16), "b t_tp d"),
                "w_up": Array((16, 4 * 40), "d f_tp"),
                "w_down": Array((4 * 40, 16), "f_tp d"),
            },
            {"axis": "tp"},
        ),
        Case(
            "dp=2,tpx=3",
            {
                "x": Array((9, 3 * 2, 15), "b t_tpx d"),
                "w_up": Array((15, 3 * 48), "d f_tpx"),
                "w_down": Array((3 * 48, 15), "f_tpx d"),
            },
            {"axis": "tpx"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=2",
            {
                "x": Array((3, 2 * 5, 12), "b t_tp d"),
                "w_up": Array((12, 2 * 30), "d f_tp"),
                "w_down": Array((2 * 30, 12), "f_tp d"),
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
    mistakes=mistakes.SEQUENCE_PARALLEL_MLP,
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

CONTRACTS = (SEQUENCE_PARALLEL_MLP,)
