"""What a layer keeps for its gradient, as a list of arrays."""

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

_LINE = re.compile(r"(\w+)\[([\d,]*)\](?:\{[^}]*\})? (.*)")  # {V:tp}: varies over tp


class Kept(NamedTuple):
    """An array that a layer keeps for its gradient.

    Attributes:
        what: JAX's words for it: the name that it was given, or the operation that it comes from.
        dtype: JAX's name of the element type.
        shape: its shape.
    """

    what: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """How much it takes."""
        return buffer_bytes(self.dtype, math.prod(self.shape))


def kept_arrays(
    layer_fn: LayerFn,
    layer_params: Any,
    x: Array | jax.ShapeDtypeStruct,
    *,
    remat: str | Sequence[str],
) -> list[Kept]:
    """What one layer keeps for its gradient: its input is in the list, its parameters are not.

    Nothing is computed. A loop over layers keeps each array l times, but once what is the same
    in every layer, such as a causal mask.

    Args:
        layer_fn: `layer_fn(layer_params, x)` is the next x.
        layer_params: arrays, or `jax.ShapeDtypeStruct` in their place.
        x: the same.
        remat: as `jaxpar.parallel.remat.scan_layers` takes it.

    Raises:
        ValueError: `remat` is unknown.
    """

    def named_arguments(params: Any, x: Array) -> Array:
        return layer_fn(params, x)

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        print_saved_residuals(checkpointed(named_arguments, remat), layer_params, x)
    lines = filter(None, map(_LINE.fullmatch, printed.getvalue().splitlines()))
    return [
        Kept(what, _dtype(dtype), tuple(map(int, re.findall(r"\d+", sizes))))
        for dtype, sizes, what in (line.groups() for line in lines)
        if not what.startswith("from the argument params")
    ]


def _dtype(spelling: str) -> str:
    return spelling if spelling == "bool" else dtype_name(spelling)
