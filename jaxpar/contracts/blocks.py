"""What oracles and limits need: what each device holds of an array, and bytes of collectives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpar.contracts.base import Expected, FlopsLimit
from jaxpar.contracts.case import Case, Sizes


def work_is_split(multiple: float = 1.1) -> FlopsLimit:
    """Each device does its part of the work, with no more than so many times the flops."""
    return FlopsLimit(
        f"each device does its part of the matrix products: at most {multiple} times the library's "
        "flops; a gradient may compute the forward pass again",
        multiple=multiple,
        programs=("forward", "gradient"),
        may_recompute=True,
    )


def spoil_all_but_root(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN into every other element of x, if it holds floats, on all devices but the root.

    The first dim of x is split over every mesh axis, in the order of the mesh.
    """
    (x,) = inputs
    if jnp.issubdtype(x.dtype, jnp.floating):
        blocks = x.reshape(*case.sizes.values(), -1)
        others = np.arange(case.sizes[case.kwargs["axis"]]) != case.kwargs["root"]
        np.moveaxis(blocks, _position(case, "axis"), 0)[others, ..., ::2] = np.nan


def axis_first(case: Case, x: jax.Array, over: str = "axis") -> jax.Array:
    """Cuts x into what each device holds: [n, *sizes of the other mesh axes, *local shape].

    Args:
        case: the case that x belongs to.
        x: a global array whose first dim is split over every mesh axis, in the order of the mesh.
        over: the keyword argument that names the axis of size n.
    """
    blocks = x.reshape(*case.sizes.values(), -1, *x.shape[1:])
    return jnp.moveaxis(blocks, _position(case, over), 0)


def mesh_order(case: Case, blocks: jax.Array, over: str = "axis") -> jax.Array:
    """Takes [n, *sizes of the other mesh axes, *shape] to [*mesh sizes, *shape]."""
    return jnp.moveaxis(blocks, 0, _position(case, over))


def on_every_device(case: Case, block: jax.Array, over: str = "axis") -> jax.Array:
    """Repeats [*sizes of the other mesh axes, *shape] along the axis: [*mesh sizes, *shape]."""
    n = case.sizes[case.kwargs[over]]
    return mesh_order(case, jnp.broadcast_to(block, (n, *block.shape)), over)


def whole_on_all(case: Case, tree: Any) -> list[Expected]:
    """Every leaf of a pytree, whole on every device."""
    sizes = case.sizes.values()
    return [Expected(jnp.broadcast_to(x, (*sizes, *x.shape))) for x in jax.tree.leaves(tree)]


def ring_bytes(passes: float, name: str = "x", over: str = "axis") -> Callable[[Sizes], float]:
    """Wire bytes of `passes` times (n - 1) / n of an argument: 2 are one all-reduce."""

    def wire_bytes(sizes: Sizes) -> float:
        n = sizes.n(over)
        return passes * (n - 1) / n * sizes.bytes(name)

    return wire_bytes


def _position(case: Case, over: str) -> int:
    return list(case.sizes).index(case.kwargs[over])
