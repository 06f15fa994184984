"""Contract of lesson 15: the forward pass of GPipe, whose derivative is the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from jaxpar.contracts import gpipe_mistakes as mistakes
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import mesh_order
from jaxpar.contracts.case import Array, Case, Function, Sizes
from jaxpar.parallel import gpipe


def _piped(case: Case, stage_fn: Callable, params: Any, microbatches: jax.Array) -> list[Expected]:
    """Device 0's microbatches through all stages: on the last device, zeros on the others."""
    n, others = Sizes(case).n(), list(case.sizes.values())[1:]
    y = microbatches.reshape(n, -1, *microbatches.shape[1:])[0]
    for i in range(n):
        stage = jax.tree.map(lambda leaf, i=i: jnp.split(leaf, n)[i], params)
        y = jax.vmap(partial(stage_fn, stage))(y)
    blocks = jnp.concatenate([jnp.zeros((n - 1, *y.shape), y.dtype), y[None]])
    blocks = blocks.reshape(n, *[1] * len(others), *y.shape)
    return [Expected(mesh_order(case, jnp.broadcast_to(blocks, (n, *others, *y.shape))))]


def _microbatches(sizes: Sizes) -> int:
    return sizes.case.args["microbatches"].shape[0] // sizes.n()


def _ticks(sizes: Sizes) -> int:
    return _microbatches(sizes) + sizes.n() - 1


def _one_each_tick(sizes: Sizes) -> int:
    return _ticks(sizes) * sizes.bytes("microbatches") // _microbatches(sizes)


_TO_NEXT = Limit(("permute",), "axis", _one_each_tick, times=_ticks, neighbours=True)

PIPELINE_FORWARD = Contract(
    id="pipeline_forward",
    kind="program",
    task="return device 0's microbatches after all stages, on the last device: one each tick",
    reference=gpipe.pipeline_forward,
    oracle=_piped,
    cases=(
        Case(
            "pp=4",
            {
                "stage_fn": Function("jaxpar.contracts.layers:residual_mlp"),
                "params": {
                    "up": Array((4 * 16, 32), "d_pp f"),
                    "down": Array((4 * 32, 16), "f_pp d"),
                },
                "microbatches": Array((4 * 6, 2, 8, 16), "m_pp b t d"),
            },
            {"axis": "pp"},
        ),
        Case(
            "node=3,device=2",
            {
                "stage_fn": Function("jaxpar.contracts.layers:tanh_layer"),
                "params": (Array((3 * 24, 24), "d_node f"), Array((3 * 24,), "f_node")),
                "microbatches": Array((3 * 2, 20, 24), "m_node b d"),
            },
            {"axis": "node"},
        ),
    ),
    hidden=(
        Case(
            "pp=5,tp=2",
            {
                "stage_fn": Function("jaxpar.contracts.layers:residual_mlp"),
                "params": {
                    "up": Array((5 * 12, 20), "d_pp f"),
                    "down": Array((5 * 20, 12), "f_pp d"),
                },
                "microbatches": Array((5 * 3, 16, 12), "m_pp b d"),
            },
            {"axis": "pp"},
        ),
    ),
    gradient=("params", "microbatches"),
    communication=Communication(
        "m+n-1 permutes of one microbatch to a neighbour, and as many backward; nothing else",
        forward=((_TO_NEXT,),),
        backward=((_TO_NEXT,),),
    ),
    memory=MemoryLimit(
        "what m+n-1 ticks keep: at most twice the library's bytes of intermediate results, "
        "forward and backward",
        multiple=2,
        programs=("forward", "gradient"),
    ),
    mistakes=mistakes.PIPELINE_FORWARD,
    hints=(
        "All devices do the same in a tick: take a microbatch, call stage_fn, send the result to "
        "the next device. Device 0 takes microbatch t at tick t, the others what arrived.",
        "The last device makes the result of microbatch 0 at tick n-1, that of the last one at "
        "tick m+n-2. What devices make before and after is of no use, and nobody should see it.",
        "lax.scan over m+n-1 ticks: carry what arrived by lax.ppermute, and stack what each tick "
        "makes. The start must vary over `axis`: make it of something that does, or lax.pcast it.",
    ),
    minimal="Each microbatch crosses each of the n-1 boundaries once. A loop that sends in every "
    "tick sends m+n-1 times: n-1 of them are from ticks in which a device waits.",
    harder="Let a device that waits compute nothing, by lax.cond, and look at temp bytes of the "
    "gradient: weights are kept in every tick, unless jax.checkpoint is around the cond.",
)

CONTRACTS = (PIPELINE_FORWARD,)
