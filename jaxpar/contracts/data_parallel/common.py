"""What the exercises of the lesson on data parallelism have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from jaxpar.contracts.base import Expected
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import Case, Sizes
from jaxpar.contracts.steps import enter

ITEM_BYTES = 4  # parameters and losses are float32

Loss = Callable[[Any, Any], Array]
Result = tuple[Array, Any]  # the loss, and its gradient with respect to the parameters


def loss_and_gradients(case: Case, loss_fn: Loss, params: Any, batch: Any) -> list[Expected]:
    """The loss of the whole batch and its gradient, both whole on every device."""
    return whole_on_all(case, jax.value_and_grad(loss_fn)(params, batch))


def one_all_reduce(sizes: Sizes) -> int:
    """Wire bytes of loss and gradients, each leaf padded to n chunks."""
    n = sizes.n()
    elements = [leaf // ITEM_BYTES for leaf in sizes.leaf_bytes("params")]
    return 2 * (n - 1) * ITEM_BYTES * sum(-(-size // n) for size in (1, *elements))


def local_gradients(loss_fn: Loss, params: Any, batch: Any, axis: str) -> Result:
    """The loss and the gradient of this device's shard of the batch alone."""
    return jax.value_and_grad(loss_fn)(enter(params, axis), batch)


def divided(tree: Any, divisor: int) -> Any:
    """Every leaf of a pytree divided by a number."""
    return jax.tree.map(lambda leaf: leaf / divisor, tree)


def microbatch_count(microbatches: Any) -> int:
    """How many microbatches there are: m."""
    return len(jax.tree.leaves(microbatches)[0])
