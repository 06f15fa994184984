"""What the exercises of the lesson on data parallelism have in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxpar.contracts.base import Expected, FlopsLimit
from jaxpar.contracts.blocks import whole_on_all
from jaxpar.contracts.case import ArraySpec, Case, Function, Sizes, array_leaves
from jaxpar.contracts.draws import pick
from jaxpar.contracts.steps import enter

ITEM_BYTES = 4  # losses are float32, and what has fewer bytes may be sent as float32

Loss = Callable[[Any, Any], Array]
Result = tuple[Array, Any]  # the loss, and its gradient with respect to the parameters


def loss_and_gradients(case: Case, loss_fn: Loss, params: Any, batch: Any) -> list[Expected]:
    """The loss of the whole batch and its gradient, both whole on every device."""
    return whole_on_all(case, jax.value_and_grad(loss_fn)(params, batch))


def parameter_counts(sizes: Sizes) -> list[int]:
    """The elements of each leaf of the parameters, which every device holds whole."""
    return [math.prod(leaf.shape) for leaf in array_leaves(sizes.case.args["params"])]


def one_all_reduce(sizes: Sizes) -> int:
    """Wire bytes of loss and gradients in float32, each leaf padded to n chunks."""
    n = sizes.n()
    return 2 * (n - 1) * ITEM_BYTES * sum(-(-size // n) for size in (1, *parameter_counts(sizes)))


def own_examples_only() -> FlopsLimit:
    """Each device computes with its own examples; loss and gradient may be computed apart.

    That is half as much again, as is computing the forward pass once more. The examples of two
    devices are twice as much.
    """
    return FlopsLimit(
        "each device computes with its own examples only: at most 1.6 times the library's flops in "
        "matrix products",
        multiple=1.6,
        programs=("forward",),
    )


def nested_error(params: dict[str, Any], batch: dict[str, Any]) -> Array:
    """The error of a network deep in a tree, with a table that integers in the batch look up.

    All errors are large on one side, so that the gradients of examples do not cancel.
    """
    numbers, x = batch["seen"]
    x = x + params["table"][numbers % len(params["table"])]
    for block in params["blocks"]:
        kernel, down = block["up"]["kernel"], block["down"]
        hidden = jnp.tanh(x @ kernel / len(kernel) + block["up"]["shift"][None])
        x = x + hidden @ down / len(down)
    y = jnp.einsum("bd,gdf->bgf", x, params["heads"]) / x.shape[-1]
    return jnp.mean((y - batch["wanted"] - 8) ** 2)


def linear_error(weights: Array, examples: Array) -> Array:
    """The error of a linear function; the last column of the examples is the target."""
    return jnp.mean((examples[:, :-1] @ weights - examples[:, -1]) ** 2)


def nested_params(rng: np.random.Generator) -> dict[str, Any]:
    """The parameters of `nested_error`, of two dtypes, with more layers than the stub's have."""
    d, f = pick(rng, (9, 11)), pick(rng, (49, 50, 51))
    up = {"kernel": ArraySpec((d, f), "d f", "bfloat16"), "shift": ArraySpec((f,), "f")}
    return {
        "blocks": [{"down": ArraySpec((f, d), "f d", "bfloat16"), "up": up}] * 3,
        "heads": ArraySpec((7, d, 1), "g d f"),
        "table": ArraySpec((pick(rng, (17, 19, 21)), d), "v d", "bfloat16"),
    }


def nested_error_args(
    params: dict[str, Any], **batch: tuple[str, tuple[int, ...]]
) -> dict[str, Any]:
    """The arguments `loss_fn`, `params` and a third one, as `squared_error_args` makes them."""
    ((name, (layout, examples)),) = batch.items()
    heads, d, outputs = params["heads"].shape
    third = {
        "seen": (
            ArraySpec(examples, layout, "int32"),
            ArraySpec((*examples, d), f"{layout} d"),
        ),
        "wanted": ArraySpec((*examples, heads, outputs), f"{layout} g f"),
    }
    return {
        "loss_fn": Function("jaxpar.contracts.data_parallel.common:nested_error"),
        "params": params,
        name: third,
    }


def linear_error_args(width: int, **batch: tuple[str, tuple[int, ...]]) -> dict[str, Any]:
    """The same for `linear_error`: parameters and batch are one array each, and no dict."""
    ((name, (layout, examples)),) = batch.items()
    return {
        "loss_fn": Function("jaxpar.contracts.data_parallel.common:linear_error"),
        "params": ArraySpec((width,), "d", "float16"),
        name: ArraySpec((*examples, width + 1), f"{layout} d"),
    }


def local_gradients(loss_fn: Loss, params: Any, batch: Any, axis: str) -> Result:
    """The loss and the gradient of this device's shard of the batch alone."""
    return jax.value_and_grad(loss_fn)(enter(params, axis), batch)


def leaf_by_leaf(loss_fn: Loss, params: Any, batch: Any) -> Any:
    """The gradient, for each leaf of `params` in a pass of its own."""
    leaves, structure = jax.tree.flatten(params)

    def gradient(i: int) -> Array:
        def loss_of(leaf: Array) -> Array:
            return loss_fn(structure.unflatten([*leaves[:i], leaf, *leaves[i + 1 :]]), batch)

        return jax.grad(loss_of)(leaves[i])

    return structure.unflatten([gradient(i) for i in range(len(leaves))])


def divided(tree: Any, divisor: int) -> Any:
    """Every leaf of a pytree divided by a number."""
    return jax.tree.map(lambda leaf: leaf / divisor, tree)


def microbatch_count(microbatches: Any) -> int:
    """How many microbatches there are: m."""
    return len(jax.tree.leaves(microbatches)[0])
