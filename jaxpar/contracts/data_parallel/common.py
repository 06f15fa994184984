"""What the exercises of the lesson on data parallel have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax

from jaxpar.contracts.base import Expected
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes

ITEM_BYTES = 4  # parameters and losses are float32


SQUARED_ERROR = Function("jaxpar.contracts.losses:squared_error")


LAYERED_ERROR = Function("jaxpar.contracts.losses:layered_error")


def gradients(case: Case, loss_fn: Callable, params: Any, batch: Any) -> list[Expected]:
    """The loss and its gradients on one device, expected whole on every device."""
    return whole_on_all(case, jax.value_and_grad(loss_fn)(params, batch))


def one_all_reduce(sizes: Sizes) -> int:
    """Wire bytes of loss and gradients, each leaf padded to n chunks."""
    n = sizes.n()
    elements = [leaf // ITEM_BYTES for leaf in sizes.leaf_bytes("params")]
    return 2 * (n - 1) * ITEM_BYTES * sum(-(-size // n) for size in (1, *elements))


def network(inputs: int, hidden: int) -> dict[str, ArraySpec]:
    """The parameters of two layers as a dict."""
    return {
        "w_in": ArraySpec((inputs, hidden), "d f"),
        "bias": ArraySpec((hidden,), "f"),
        "w_out": ArraySpec((hidden,), "f"),
    }


def layers(inputs: int, hidden: int, outputs: int) -> list[dict[str, ArraySpec]]:
    """The parameters of two layers as a list of dicts."""
    return [
        {"w": ArraySpec((inputs, hidden), "d f"), "scale": ArraySpec((hidden,), "f")},
        {"w": ArraySpec((hidden, outputs), "f d")},
    ]


Loss = Callable[[Any, Any], Array]


Result = tuple[Array, Any]


def local_gradients(loss_fn: Loss, params: Any, batch: Any, axis: str) -> Result:
    """Loss and gradient of this device's part alone."""
    return jax.value_and_grad(loss_fn)(lax.pcast(params, axis, to="varying"), batch)


def divided(tree: Any, divisor: int) -> Any:
    """Every leaf of a pytree divided by a number."""
    return jax.tree.map(lambda leaf: leaf / divisor, tree)
