"""The residuals of a layer: the arrays that it keeps for its backward pass."""

import contextlib
import io
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax import Array
from jax.ad_checkpoint import print_saved_residuals

from jaxpar.inspector.dtypes import buffer_bytes, dtype_name
from jaxpar.parallel.remat import LayerFn, checkpointed

# A line such as "f32[4,16]{V:tp} named 'query' from ...", where {V:tp} says that it varies over tp.
_LINE = re.compile(r"(\w+)\[([\d,]*)\](?:\{[^}]*\})? (.*)")


class Residual(NamedTuple):
    """An array that a layer keeps for its backward pass.

    Attributes:
        what: JAX's description: the name that the array was given, or the operation that made it.
        dtype: JAX's name of the element type.
        shape: the shape of the array.
    """

    what: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """The size of the array."""
        return buffer_bytes(self.dtype, math.prod(self.shape))


def saved_residuals(
    layer_fn: LayerFn,
    layer_params: Any,
    x: Array | jax.ShapeDtypeStruct,
    *,
    remat: str | Sequence[str],
) -> list[Residual]:
    """Lists what one layer keeps for its backward pass: its input, but not its parameters.

    Nothing is computed. A loop over l layers keeps each array l times, except those that are equal
    in every layer, such as a causal mask, which it keeps once.

    Args:
        layer_fn: `layer_fn(layer_params, x)` is the next x.
        layer_params: arrays, or `jax.ShapeDtypeStruct` in their place.
        x: an array, or a `jax.ShapeDtypeStruct` in its place.
        remat: what is recomputed, as in `jaxpar.parallel.remat.scan_layers`.

    Raises:
        ValueError: `remat` is unknown.
    """

    def with_named_arguments(params: Any, x: Array) -> Array:
        return layer_fn(params, x)

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_saved_residuals(checkpointed(with_named_arguments, remat), layer_params, x)
    residuals = []
    for line in printed.getvalue().splitlines():
        match = _LINE.fullmatch(line)
        if match and not match[3].startswith("from the argument params"):
            dtype = match[1] if match[1] == "bool" else dtype_name(match[1])
            shape = tuple(int(size) for size in match[2].split(",") if size)
            residuals.append(Residual(match[3], dtype, shape))
    return residuals
