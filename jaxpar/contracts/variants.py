"""Variants of exercises: the same work, another result, for a class that may know the library's.

The secret of a course chooses for each exercise whether it is as written or one of these.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float, Int32, Num, Shaped

from jaxpar import collectives
from jaxpar.contracts.base import Contract, Expected, Mistake
from jaxpar.contracts.case import Case

Change = Callable[[jax.Array], jax.Array]


def mean_over_devices(x: Float[Array, "..."], *, axis: str) -> Float[Array, "..."]:
    """The quadratic mean of every device's x, on every device: the root of the mean square.

    Math: y = sqrt((sum_j x_j**2) / n)
    """
    return jnp.sqrt(collectives.mean_over_devices(x**2, axis=axis))


def scatter(x: Num[Array, "n ..."], *, axis: str, root: int) -> Num[Array, "..."]:
    """Chunk n-1-i of the root's x, on device i: the last device has the first chunk.

    Math: y = x_root[n-1-i] on device i
    """
    return collectives.scatter(x[::-1], axis=axis, root=root)


def gather(x: Shaped[Array, "..."], *, axis: str, root: int) -> Shaped[Array, "n ..."]:
    """Every device's x on the root, the last device's first; zeros on the others.

    Math: y[j] = x_(n-1-j) on the root, 0 elsewhere
    """
    return collectives.gather(x, axis=axis, root=root)[::-1]


def reduce_max_location(
    x: Num[Array, "..."], *, axis: str
) -> tuple[Num[Array, "..."], Int32[Array, "..."]]:
    """The largest absolute value of all devices and the index of the device that holds it.

    On every device, element by element. Where several devices hold it, the lowest index.

    Math: y = max_j |x_j|, and min {j : |x_j| = y}
    """
    return collectives.reduce_max_location(jnp.abs(x), axis=axis)


def all_to_all_by_permutes(x: Shaped[Array, "n ..."], *, axis: str) -> Shaped[Array, "n ..."]:
    """Chunk j of x to device n-1-j, in n - 1 steps: in step k, device i sends to device i + k.

    Math: y[j] = x_j[n-1-i] on device i
    """
    return collectives.all_to_all_by_permutes(x[::-1], axis=axis)


def ring_reduce_scatter(x: Num[Array, "n ..."], *, axis: str) -> Num[Array, "..."]:
    """The sum of every device's chunk i+1, on device i, and of chunk 0 on the last device.

    Partial sums travel round a ring, and grow on their way.

    Math: y = sum_j x_j[(i + 1) % n] on device i
    """
    return collectives.ring_reduce_scatter(jnp.roll(x, -1, axis=0), axis=axis)


def with_variant(
    contract: Contract,
    reference: Callable[..., Any],
    task: str,
    *,
    before: Change | None = None,
    after: Change | None = None,
) -> Contract:
    """A contract with one more variant, in which each device's x or result is changed.

    Args:
        contract: of an exercise on one array x, whose first dim is split over the whole mesh.
        reference: the same function for the variant: its signature and docstring make the stub.
        task: one line that says what to write.
        before: takes each device's x to what the exercise as written is of.
        after: takes each of its results to the variant's.
    """

    def changed(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def variant(x: jax.Array, **how: Any) -> Any:
            results = function(before(x) if before else x, **how)
            return jax.tree.map(after, results) if after else results

        return variant

    def oracle(case: Case, x: jax.Array) -> list[Expected]:
        blocks = x.reshape(*case.sizes.values(), -1, *x.shape[1:])
        expected = contract.oracle(case, _on_each(case, before, blocks).reshape(x.shape))
        return [
            Expected(_on_each(case, after, e.blocks), _on_each(case, after, e.whole))
            for e in expected
        ]

    mistakes = [replace(m, function=changed(m.function)) for m in contract.mistakes]
    as_written = Mistake("another_variant", contract.reference, fails="values")
    varied = replace(
        contract,
        reference=reference,
        oracle=oracle,
        task=task,
        mistakes=(*mistakes, as_written),
    )
    return replace(contract, variants=(*contract.variants, varied))


def _on_each(case: Case, change: Change | None, blocks: Any) -> Any:
    """Changes what each device holds, [*mesh sizes, *local shape]."""
    if change is None or blocks is None:
        return blocks
    for _ in case.sizes:
        change = jax.vmap(change)
    return change(blocks)
