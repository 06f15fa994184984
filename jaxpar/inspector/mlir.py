"""Access to JAX's MLIR bindings: parses programs, and reads operations, types and locations."""

import math
from collections.abc import Iterator

from jax.extend.mlir import deserialize_portable_artifact
from jax.interpreters.mlir import ir as ir
from jax.interpreters.mlir import make_ir_context

from jaxpar.inspector.dtypes import dtype_name

BYTECODE = b"ML\xefR"  # the first bytes of MLIR bytecode; the parser would accept text as well


def parse(serialized: bytes) -> ir.Module:
    """Reads an exported program's module from untrusted bytes (`Exported.mlir_module_serialized`).

    Raises:
        ValueError: The bytes are not such a module.
    """
    with make_ir_context():
        try:
            if not serialized.startswith(BYTECODE):
                raise ValueError("no bytecode of MLIR")
            return deserialize_portable_artifact(serialized)
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(
                f"inspector.parse: {len(serialized)} bytes are not a serialized program "
                f"({reason}); use the bytes that jax.export wrote"
            ) from error


def operations(root: ir.Operation) -> Iterator[ir.Operation]:
    """Yields an operation and all operations inside it, including functions that are not called."""
    pending = [root]
    while pending:
        op = pending.pop()
        yield op
        inner = [child.operation for region in op.regions for block in region for child in block]
        pending += reversed(inner)


def symbol(op: ir.Operation, attribute: str) -> str:
    """Returns the name that an attribute of `op` refers to, without its "@"."""
    return ir.FlatSymbolRefAttr(op.attributes[attribute]).value


def array_type(value: ir.Value) -> tuple[str, tuple[int, ...]]:
    """Returns the dtype and the shape of an array value.

    Raises:
        ValueError: The value is not an array, or its shape is not static.
    """
    if not isinstance(value.type, ir.RankedTensorType):
        raise ValueError(f"inspector: a value of type {value.type}; only arrays are understood")
    tensor = ir.RankedTensorType(value.type)
    if not tensor.has_static_shape:
        raise ValueError(f"inspector: shape {tensor} is not static; give every size as a number")
    return dtype_name(str(tensor.element_type)), tuple(tensor.shape)


def array_size(value: ir.Value) -> tuple[str, int]:
    """Returns the dtype and the number of elements of an array value."""
    dtype, shape = array_type(value)
    return dtype, math.prod(shape)


def source(location: ir.Location) -> str | None:
    """Returns "file:line" of the innermost Python frame; JAX has removed its own frames."""
    if isinstance(location, ir.FileLineColLoc):
        return f"{location.filename}:{location.start_line}"
    if isinstance(location, ir.NameLoc):
        return source(location.child_loc)
    if isinstance(location, ir.CallSiteLoc):
        return source(location.callee) or source(location.caller)
    if isinstance(location, ir.FusedLoc):
        parts = [source(part) for part in location.locations if isinstance(part, ir.Location)]
        return next(filter(None, parts), None)
    return None
