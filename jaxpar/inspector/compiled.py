"""Compiles a program, and keeps its HLO from after the partitioning and from the end.

The inspector reads the former to count collectives, and the latter for memory and for notes on what
XLA has changed.
"""

import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from jaxpar.inspector.dtypes import buffer_bytes, dtype_name
from jaxpar.inspector.hlo_text import parse_hlo
from jaxpar.inspector.report import Memory

# XLA's older emitters (xla_cpu_use_fusion_emitters=False) compile in a third of the time, but write
# out a value once for each of its uses: selects in a row took more than 20 GB to compile.
UNOPTIMIZED: dict[str, Any] = {"xla_backend_optimization_level": 0}
"""Machine code is not optimized, which compiles sooner and changes neither memory nor HLO."""


@dataclass(frozen=True)
class Compiled:
    """A compiled program.

    Attributes:
        executable: The program that can be run.
        partitioned: The HLO text just after SPMD partitioning; None for a single device.
        final: The HLO text of what runs.
    """

    executable: jax.stages.Compiled
    partitioned: str | None
    final: str


def compile_program(lowered: jax.stages.Lowered, *, optimize: bool = False) -> Compiled:
    """Compiles a program.

    Args:
        lowered: What `jax.jit(function).lower(*args)` returned.
        optimize: Whether to optimize the machine code too.
    """
    # After an interruption, XLA may still write dumps while the folder is being removed.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        options: dict[str, Any] = {
            "xla_dump_to": folder,
            "xla_dump_hlo_pass_re": "^spmd-partitioning$",
            # This matches no emitter. Its value is new each time, so that JAX's persistent cache
            # has no hit, because a hit writes no dump.
            "xla_dump_emitter_re": Path(folder).name,
        }
        if not optimize:
            options |= UNOPTIMIZED
        executable = lowered.compile(compiler_options=options)
        dumps = sorted(Path(folder).glob("*.after_spmd-partitioning.*.txt"))
        partitioned = dumps[-1].read_text(encoding="utf-8") if dumps else None
    return Compiled(executable, partitioned, executable.as_text() or "")


def read_memory(compiled: Compiled) -> Memory | None:
    """Returns what one device holds while the program runs; None if the backend does not say.

    On CPU, XLA's own peak does not include temporaries, and none of its figures include constants.
    """
    stats = compiled.executable.memory_analysis()
    if stats is None:
        return None
    module = parse_hlo(compiled.final)
    constants = (
        buffer_bytes(dtype_name(dtype), math.prod(sizes))
        for computation in module.computations.values()
        for instruction in computation.instructions.values()
        if instruction.opcode == "constant"
        for dtype, sizes in instruction.shapes
        if sizes
    )
    results = len(module.computations[module.entry].root.shapes)
    pointers = 8 * results if results > 1 else 0  # a tuple of results is a table of pointers
    return Memory(
        arguments_bytes=stats.argument_size_in_bytes,
        outputs_bytes=stats.output_size_in_bytes - pointers,
        aliases_bytes=stats.alias_size_in_bytes,
        temp_bytes=stats.temp_size_in_bytes,
        constants_bytes=sum(constants),
    )
