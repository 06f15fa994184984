"""Contracts of lesson 05: gradients and means of data parallelism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxpar.contracts import (
    data_parallel_mistakes,
    masked_mean_mistakes,
)
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import on_every_device, whole_on_all
from jaxpar.contracts.case import Array, Case, Function, Sizes
from jaxpar.parallel import data

_ITEM_BYTES = 4  # parameters and losses are float32
_SQUARED_ERROR = Function("jaxpar.contracts.losses:squared_error")
_LAYERED_ERROR = Function("jaxpar.contracts.losses:layered_error")


def _gradients(case: Case, loss_fn: Callable, params: Any, batch: Any) -> list[Expected]:
    return whole_on_all(case, jax.value_and_grad(loss_fn)(params, batch))


def _accumulated(case: Case, loss_fn: Callable, params: Any, microbatches: Any) -> list[Expected]:
    batch = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), microbatches)
    return _gradients(case, loss_fn, params, batch)


def _mean_of_real(case: Case, values: jax.Array, mask: jax.Array) -> list[Expected]:
    others = [size for axis, size in case.sizes.items() if axis != case.kwargs["axis"]]
    total, count = (
        part.reshape(len(part), *others, -1).sum(axis=(0, -1))
        for part in (jnp.where(mask, values, 0), mask)
    )
    return [Expected(on_every_device(case, total / count))]


def _one_all_reduce(sizes: Sizes) -> int:
    """Wire bytes of loss and gradients, each leaf padded to n chunks."""
    n = sizes.n()
    elements = [leaf // _ITEM_BYTES for leaf in sizes.leaf_bytes("params")]
    return 2 * (n - 1) * _ITEM_BYTES * sum(-(-size // n) for size in (1, *elements))


def _network(inputs: int, hidden: int) -> dict[str, Array]:
    return {
        "w_in": Array((inputs, hidden), "d f"),
        "bias": Array((hidden,), "f"),
        "w_out": Array((hidden,), "f"),
    }


def _layers(inputs: int, hidden: int, outputs: int) -> list[dict[str, Array]]:
    return [
        {"w": Array((inputs, hidden), "d f"), "scale": Array((hidden,), "f")},
        {"w": Array((hidden, outputs), "f d")},
    ]


DATA_PARALLEL_GRADIENTS = Contract(
    id="data_parallel_gradients",
    kind="program",
    task="return the loss and its gradient with respect to params, means over `axis`",
    reference=data.data_parallel_gradients,
    oracle=_gradients,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": _SQUARED_ERROR,
                "params": _network(6, 16),
                "batch": {
                    "inputs": Array((8 * 20, 6), "b_dp d"),
                    "targets": Array((8 * 20,), "b_dp"),
                },
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "loss_fn": _LAYERED_ERROR,
                "params": _layers(5, 10, 2),
                "batch": (Array((3 * 16, 5), "b_fsdp d"), Array((3 * 16, 2), "b_fsdp f")),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "cp=2,dp=4",
            {
                "loss_fn": _SQUARED_ERROR,
                "params": _network(5, 12),
                "batch": {
                    "inputs": Array((4 * 24, 5), "b_dp d"),
                    "targets": Array((4 * 24,), "b_dp"),
                },
            },
            {"axis": "dp"},
        ),
    ),
    communication=Communication(
        "one all-reduce's bytes of the gradients, plus scalars",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", _one_all_reduce),),),
    ),
    mistakes=data_parallel_mistakes.DATA_PARALLEL_GRADIENTS,
    hints=(
        "Each device can compute the loss and the gradient of its own part; jax.value_and_grad "
        "gives both. Then both are averaged over the devices.",
        "Where params are typed as equal on every device, JAX sums their gradient over the "
        "devices by itself. lax.pcast(params, axis, to='varying') leaves it to you.",
        "lax.pmean takes a whole pytree: the pair of loss and gradients, for example.",
    ),
    minimal="Each device's gradient must leave it, and the mean, which none knew, must come back: "
    "(n-1)/n of the gradients each way.",
    harder="Clip the mean gradient to a norm of 1, and send no more than one scalar for it.",
)

ACCUMULATE_GRADIENTS = Contract(
    id="accumulate_gradients",
    kind="program",
    task="return the mean loss and gradient of m microbatches, one at a time, and over `axis`",
    reference=data.accumulate_gradients,
    oracle=_accumulated,
    cases=(
        Case(
            "dp=8",
            {
                "loss_fn": _SQUARED_ERROR,
                "params": _network(8, 64),
                "microbatches": {
                    "inputs": Array((10, 8 * 32, 8), "m b_dp d"),
                    "targets": Array((10, 8 * 32), "m b_dp"),
                },
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=2,tp=3",
            {
                "loss_fn": _LAYERED_ERROR,
                "params": _layers(24, 32, 8),
                "microbatches": (
                    Array((12, 2 * 2, 24), "m b_fsdp d"),
                    Array((12, 2 * 2, 8), "m b_fsdp f"),
                ),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "loss_fn": _SQUARED_ERROR,
                "params": _network(6, 48),
                "microbatches": {
                    "inputs": Array((7, 4 * 32, 6), "m b_dp d"),
                    "targets": Array((7, 4 * 32), "m b_dp"),
                },
            },
            {"axis": "dp"},
        ),
    ),
    communication=Communication(
        "one all-reduce's bytes of the gradients, however many microbatches, plus scalars",
        forward=((Limit(("all_reduce", "all_to_all", "permute"), "axis", _one_all_reduce),),),
    ),
    memory=MemoryLimit(
        "one microbatch's activations, one gradient, one accumulator: at most 2.5 times "
        "the library's bytes of intermediate results",
        multiple=2.5,
    ),
    mistakes=data_parallel_mistakes.ACCUMULATE_GRADIENTS,
    hints=(
        "Add up the gradients of the microbatches on each device, and reduce once, at the end.",
        "lax.scan over microbatches holds one at a time: the carry is the sum so far, and it "
        "starts from zeros typed as varying, like the gradients.",
        "lax.pcast params before the loop; inside, JAX would sum each gradient over the devices. "
        "jnp.zeros_like of what is cast is typed as the gradients are.",
    ),
    minimal="The sum over the microbatches is the device's own; only its mean over the devices is "
    "news to the others.",
    harder="Let the microbatches have masks, and weigh each by its number of real examples.",
)

MASKED_MEAN = Contract(
    id="masked_mean",
    kind="program",
    task="return the mean of the values whose mask is true, over all devices of `axis`",
    reference=data.masked_mean,
    oracle=_mean_of_real,
    cases=(
        Case(
            "dp=8",
            {
                "values": Array((8 * 40,), "b_dp", draw="sparse"),
                "mask": Array((8 * 40,), "b_dp", "bool", draw="padded"),
            },
            {"axis": "dp"},
        ),
        Case(
            "fsdp=2,tp=3",
            {
                "values": Array((2 * 9, 3 * 4), "b_fsdp t_tp", draw="sparse"),
                "mask": Array((2 * 9, 3 * 4), "b_fsdp t_tp", "bool", draw="padded"),
            },
            {"axis": "fsdp"},
        ),
    ),
    hidden=(
        Case(
            "tp=2,dp=4",
            {
                "values": Array((4 * 15, 2 * 3), "b_dp t_tp", draw="sparse"),
                "mask": Array((4 * 15, 2 * 3), "b_dp t_tp", "bool", draw="padded"),
            },
            {"axis": "dp"},
        ),
    ),
    gradient=("values",),
    communication=Communication(
        "scalars only: a total and a number from each device",
        forward=(
            (
                Limit(
                    ("all_reduce", "all_to_all", "permute"),
                    "axis",
                    lambda s: 2 * _ITEM_BYTES * (s.n() - 1),
                ),
            ),
        ),
        backward="forward",
    ),
    mistakes=masked_mean_mistakes.MISTAKES,
    hints=(
        "A mean is a total divided by a number, and padding may be in neither.",
        "Devices have different numbers of real values, so their means may not be averaged.",
        "Sum total and number over the devices with lax.psum, and divide after that: a device "
        "with padding only has 0 of both.",
    ),
    minimal="Each device must tell two numbers, and hear two.",
    harder="Return the largest of the real values, too.",
)

CONTRACTS = (DATA_PARALLEL_GRADIENTS, ACCUMULATE_GRADIENTS, MASKED_MEAN)
