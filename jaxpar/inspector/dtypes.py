"""Element types: their spelling in MLIR and HLO, their name in JAX, and their size."""

import re

_BITS = {"bool": 8, "bfloat16": 16, "complex64": 64, "complex128": 128}
_SPELLINGS = {
    "i1": "bool",
    "pred": "bool",
    "bf16": "bfloat16",
    "complex<f32>": "complex64",
    "complex<f64>": "complex128",
    "c64": "complex64",
    "c128": "complex128",
}
_PREFIXES = {"i": "int", "si": "int", "s": "int", "ui": "uint", "u": "uint", "f": "float"}


def dtype_name(spelling: str) -> str:
    """Returns JAX's name of a type in MLIR's or HLO's spelling: "uint8" for "ui8" and for "u8"."""
    if spelling in _SPELLINGS:
        return _SPELLINGS[spelling]
    if match := re.fullmatch(r"(si|ui|i|s|u|f)(2|4|8|16|32|64)", spelling):
        return _PREFIXES[match[1]] + match[2]
    if match := re.fullmatch(r"f([48])(e\w+)", spelling.lower()):
        return f"float{match[1]}_{match[2]}"
    raise ValueError(
        f"inspector: element type {spelling!r} has no known size; "
        "use integers, floats, complex numbers or booleans"
    )


def dtype_bits(name: str) -> int:
    """Returns the number of bits of one element of a dtype, given by its name in JAX."""
    match = re.match(r"(?:u?int|float)(\d+)", name)
    return int(match[1]) if match else _BITS[name]


def buffer_bytes(name: str, elements: int) -> int:
    """Returns the number of bytes of a packed buffer, in which two int4 take one byte."""
    return -(-elements * dtype_bits(name) // 8)
