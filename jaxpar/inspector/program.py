"""Inspects a program: lowers it, compiles it, and reads what it sends, computes and holds."""

import contextlib
import importlib.util
import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax

from jaxpar.inspector.compiled import Compiled, compile_program, read_memory
from jaxpar.inspector.hlo import count_hlo_flops, read_hlo
from jaxpar.inspector.mlir import ir
from jaxpar.inspector.notes import describe_changes, describe_repeated_sum, unexplained
from jaxpar.inspector.repeated_sums import repeated_sums
from jaxpar.inspector.report import Collective, Report
from jaxpar.inspector.stablehlo import count_flops, is_partly_manual, module_meshes, read_module
from jaxpar.mesh import simulate_devices

SIMULATED_DEVICES = 8
COUNT_FLAG = "xla_force_host_platform_device_count"


def inspect(function: Callable[..., Any], *args: Any) -> Report:
    """Reports what one device sends, computes and holds when `function(*args)` runs.

    Code in `shard_map` is counted as written. What the compiler adds to it, or makes of `jax.jit`
    with shardings, is counted after partitioning. The program is not run.

    Args:
        function: A function that JAX can trace, jitted or not.
        *args: Its arguments, or `jax.ShapeDtypeStruct` with shardings in their place.

    Raises:
        ValueError: Something communicates in an unknown way.
    """
    jitted = function if hasattr(function, "lower") else jax.jit(function)
    lowered = jitted.lower(*args)
    lowered = getattr(lowered, "lowered", lowered)  # equinox.filter_jit wraps JAX's own
    return inspect_compiled(lowered, compile_program(lowered))


def inspect_compiled(lowered: jax.stages.Lowered, compiled: Compiled) -> Report:
    """Reports as `inspect` does, for a program that is already compiled, say in order to run it.

    Args:
        lowered: The program before it was compiled.
        compiled: What `compile_program` made of it.

    Raises:
        ValueError: Something communicates in an unknown way.
    """
    module = lowered.compiler_ir("stablehlo")
    assert isinstance(module, ir.Module)
    memory = read_memory(compiled)
    if compiled.partitioned is None:
        return Report(read_module(module), count_flops(module), memory)
    mesh = next(filter(None, module_meshes(module).values()), {})
    partitioned = read_hlo(compiled.partitioned, mesh)
    partly_manual = is_partly_manual(module)
    written, added, repeated = (), partitioned, ()
    if not partly_manual:
        written, repeated = read_module(module), repeated_sums(module)
        added = unexplained(read_module(module, mesh), partitioned)
    return Report(
        collectives=written + added,
        flops=count_hlo_flops(compiled.partitioned),
        memory=memory,
        notes=(
            *map(describe_repeated_sum, repeated),
            *_partitioning_notes(len(written), len(added), partly_manual),
            *_final_notes(partitioned, compiled.final, mesh),
        ),
    )


def inspect_path(target: str) -> Report:
    """Inspects the program that "path.py:make" makes.

    Args:
        target: A Python file and a function in it that returns (function, arguments).

    Raises:
        ValueError: There is no such file or function, it returns something else, or it raises;
            the message then names the line.
    """
    name = target.rpartition(":")[0]
    _simulate_devices(Path(name))
    try:
        function, arguments = load_target(target)
        return inspect(function, *arguments)
    except (Exception, SystemExit) as error:
        line = _line_in(name, error)
        if line is None and isinstance(error, ValueError):  # one of the inspector's own errors
            raise
        where = f"{name}:{line}" if line else name
        reason = (str(error).splitlines() or [""])[0]
        message = f"inspect: {where}: {type(error).__name__}: {reason}".removesuffix(": ")
        raise ValueError(message) from None


def load_target(target: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Runs a Python file and calls its function, which returns (function, arguments).

    Args:
        target: "path.py:make".

    Raises:
        ValueError: There is no such file or function, or it returns something else.
    """
    name, _, maker = target.rpartition(":")
    path = Path(name)
    if not name or not maker.isidentifier():
        raise ValueError(f"inspect: {target!r} names no function; write it as path.py:make")
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(f"inspect: {name!r} is not a Python file here; check the path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    make = getattr(module, maker, None)
    if not callable(make):
        raise ValueError(f"inspect: {name} defines no function {maker!r}; check the name")
    returned = make()
    match returned:
        case (function, tuple() | list() as arguments) if callable(function):
            return function, tuple(arguments)
    raise ValueError(
        f"inspect: {target} returned {type(returned).__name__}; "
        "return (function, args) with args a tuple of arrays or jax.ShapeDtypeStruct"
    )


def _simulate_devices(path: Path) -> None:
    """Simulates devices, unless JAX has started or the environment or the file chooses them."""
    flags = os.environ.get("XLA_FLAGS", "")
    if path.is_file():
        flags += path.read_text(encoding="utf-8", errors="ignore")
    chosen = {"JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS"} & os.environ.keys()
    if not chosen and COUNT_FLAG not in flags:
        with contextlib.suppress(ValueError):  # JAX has started
            simulate_devices(SIMULATED_DEVICES)


def _line_in(name: str, error: BaseException) -> int | None:
    """The innermost line of the file in the error's traceback."""
    if isinstance(error, SyntaxError) and error.filename and _is_same_file(error.filename, name):
        return error.lineno
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((frame.lineno for frame in frames if _is_same_file(frame.filename, name)), None)


def _is_same_file(one: str, other: str) -> bool:
    return Path(one).resolve() == Path(other).resolve()


def _partitioning_notes(written: int, added: int, partly_manual: bool) -> tuple[str, ...]:
    if partly_manual:
        return ("shard_map leaves axes to the compiler: all is counted after it split the program",)
    if added and not written:
        return ("the compiler makes every collective: counted after it split the program",)
    if added:
        return (f"the last {added} are not in the program: the compiler sends them for you",)
    return ()


def _final_notes(
    partitioned: Sequence[Collective], final: str, mesh: Mapping[str, int]
) -> tuple[str, ...]:
    try:
        return describe_changes(partitioned, read_hlo(final, mesh))
    except ValueError as error:  # instructions of a backend; the counts do not depend on them
        return (f"what XLA made of it at the end is not known ({error})",)
