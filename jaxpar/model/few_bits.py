"""The matrices of layers in 8 or 4 bits: codes, and a scale for each block of a row.

They are numbers again only while their layer is computed, forward and backward, so that of all
layers one at most is held as numbers.
"""

from typing import Any

from jax import Array
from jaxtyping import PyTree

from jaxpar.cost.adapters import BLOCK
from jaxpar.parallel.tensor import COLUMNS, ROWS
from jaxpar.quantize import dequantize_blocks, nf4_dequantize, nf4_quantize, quantize_blocks

CODES, SCALES = "codes", "scales"


def encode(layers: PyTree[Any], bits: int) -> PyTree[Array]:
    """The parameters of layers with codes and scales in place of each matrix."""

    def of_part(name: str, part: Any) -> Any:
        if name in (*COLUMNS, *ROWS):
            return _encoded(part, bits)
        return encode(part, bits) if isinstance(part, dict) else part

    return {name: of_part(name, part) for name, part in layers.items()}


def decode(layer: PyTree[Any], bits: int) -> PyTree[Any]:
    """The parameters of a layer with its matrices as numbers."""
    if not isinstance(layer, dict):
        return layer
    if CODES in layer:
        codes, scales = layer[CODES], layer[SCALES]
        return nf4_dequantize(codes, scales) if bits == 4 else dequantize_blocks(codes, scales)
    return {name: decode(part, bits) for name, part in layer.items()}


def _encoded(w: Array, bits: int) -> dict[str, Any]:
    if bits == 4:
        codes, scales = nf4_quantize(w, block=BLOCK)
    else:
        codes, scales = quantize_blocks(w, block=BLOCK, bits=bits)
    return {CODES: codes, SCALES: scales}
