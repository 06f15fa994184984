"""What a stack of layers keeps for its gradient, and what it computes again."""

from collections.abc import Callable
from typing import Any

import jax
from jax import Array, lax
from jaxtyping import Float, PyTree

# Products with weights are kept, and the rest (norms, attention, the nonlinearity) is computed
# again, which takes less time on a CPU than to store and load it.
PRODUCTS = jax.checkpoint_policies.dots_with_no_batch_dims_saveable


def scan_layers(
    layer_fn: Callable[[Any, Array], Array],
    params: PyTree[Array],
    x: Float[Array, "..."],
) -> Float[Array, "..."]:
    """Layer after layer; `params` are stacked: each leaf is [l, ...]."""

    def body(x: Array, layer: PyTree[Array]) -> tuple[Array, None]:
        return layer_fn(layer, x), None

    x, _ = lax.scan(jax.checkpoint(body, policy=PRODUCTS, prevent_cse=False), x, params)
    return x
