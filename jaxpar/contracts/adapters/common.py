"""What the exercises of the lesson on adapters have in common."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import FlopsLimit
from jaxpar.contracts.blocks import on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Function
from jaxpar.quantize import nf4_dequantize

ADAPTED_ERROR = Function(f"{__name__}:adapted_error")
TABLED_ERROR = Function(f"{__name__}:tabled_error")


def no_gradient_of_the_base(multiple: float = 1.1) -> FlopsLimit:
    """The products of the library, forward and with the gradient; nothing is computed again."""
    return FlopsLimit(
        f"no product for a gradient of the frozen matrix: at most {multiple} times the library's "
        "flops, forward and with the gradient",
        multiple=multiple,
        programs=("forward", "gradient"),
    )


def rows_of_others(case: Case, y: Array) -> Array:
    """What each device holds of y, whose dim 0 is split over all mesh axes but `axis`."""
    others = [size for name, size in case.sizes.items() if name != case.kwargs["axis"]]
    blocks = y.reshape(*others, len(y) // math.prod(others), *y.shape[1:])
    return on_every_device(case, blocks)


def other_axes(mesh: str, axis: str, dim: str) -> tuple[str, int]:
    """The layout of a dim that is split over all mesh axes but one, and over how many devices."""
    sizes = {name: size for name, size in parse_mesh(mesh).items() if name != axis}
    return "_".join([dim, *sizes]), math.prod(sizes.values())


def adapted_error(base: Any, adapters: Any, batch: dict[str, Array]) -> Array:
    """The error of square matrices with adapters: inputs [b, d], targets [b, d]."""
    x = batch["inputs"]
    for w, adapter in zip(base, adapters, strict=True):
        x = x + jnp.tanh(x @ w / len(w) + (x @ adapter["a"]) @ adapter["b"] / len(w))
    return jnp.mean((x - batch["targets"]) ** 2)


def tabled_error(base: Any, adapters: Any, batch: Any) -> Array:
    """The error of a table and one matrix, in other dtypes; the adapters are vectors and scalars.

    All errors are large on one side, so that the gradients of examples do not cancel.
    """
    numbers, wanted = batch
    x = base["table"][numbers % len(base["table"])] * adapters["gain"][0][None]
    a, b = adapters["low"]
    y = x @ base["head"] + (x @ a) @ b + adapters["gain"][1][None]
    return jnp.mean((y / len(a) - wanted - 8) ** 2)


def tied_layer(base: dict[str, Array], adapter: dict[str, Array], x: Array) -> Array:
    """Two matrices, w [d, f] and down [f, d], with one adapter that both use; x [b, d]."""
    w, down = base["w"], base["down"]
    hidden = jnp.tanh(x @ w / len(w) + (x @ adapter["a"]) @ adapter["b"] / len(w))
    return x + hidden @ down / len(down) + (hidden @ adapter["b"].T) @ adapter["a"].T / len(down)


def coded_layer(base: tuple[Array, Array], adapter: tuple[Array, Array], x: Array) -> Array:
    """One square matrix of NF4 codes, with an adapter; x [..., d]."""
    w = nf4_dequantize(*base).astype(x.dtype)
    a, b = adapter
    return x + jnp.tanh(x @ w / len(w) + (x @ a) @ b / len(w))


def codes(rows: int, columns: int, block: int, rows_layout: str, columns_layout: str) -> Any:
    """Packed codes of a matrix, all of them, and the largest magnitudes of its blocks."""
    return (
        ArraySpec((rows, columns // 2), f"{rows_layout} {columns_layout}", "uint8", "large"),
        ArraySpec((rows, columns // block), f"{rows_layout} {columns_layout}", draw="positive"),
    )
