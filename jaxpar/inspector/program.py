"""One call that lowers, compiles and reads a program."""

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax

from jaxpar.inspector.compiled import compile_program, read_memory
from jaxpar.inspector.hlo import count_hlo_flops, read_hlo
from jaxpar.inspector.mlir import ir
from jaxpar.inspector.notes import unexplained, what_xla_did
from jaxpar.inspector.report import Report
from jaxpar.inspector.stablehlo import (
    count_flops,
    is_partly_manual,
    module_meshes,
    read_module,
)


def inspect(function: Callable[..., Any], *args: Any) -> Report:
    """Reports what one device sends, computes and holds when `function(*args)` runs.

    Code in `shard_map` is counted as written; what the compiler adds to it, or makes of
    `jax.jit` with shardings, as the compiler has split it. Nothing is run.

    Args:
        function: A function that JAX can trace, jitted or not.
        *args: Its arguments, or `jax.ShapeDtypeStruct` with shardings in their place.

    Raises:
        ValueError: Something communicates in a way that is not understood.
    """
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    lowered = jitted.lower(*args)
    module = lowered.compiler_ir("stablehlo")
    compiled = compile_program(lowered)
    memory = read_memory(compiled)
    if compiled.partitioned is None:
        return Report(read_module(module), count_flops(module), memory)
    mesh = _first_mesh(module)
    partitioned = read_hlo(compiled.partitioned, mesh)
    partly_manual = is_partly_manual(module)
    written = () if partly_manual else read_module(module)
    added = partitioned
    if written:
        added = unexplained(read_module(module, mesh), partitioned)
    return Report(
        collectives=written + added,
        flops=count_hlo_flops(compiled.partitioned),
        memory=memory,
        notes=(
            *_about_the_compiler(len(written), len(added), partly_manual),
            *what_xla_did(partitioned, read_hlo(compiled.final, mesh)),
        ),
    )
