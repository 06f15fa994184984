"""The form of a program in the corpus: a function on a mesh, and what each device sends."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.interpreters.mlir import ir
from jax.sharding import NamedSharding

from jaxpar.inspector import Collective
from jaxpar.mesh import make_mesh, spec

Sent = tuple[str, str, str, int, float, int | None]
"""Kind, axes, dtype, operand bytes and wire bytes each time, times."""

Array = tuple[tuple[int, ...], str, str]
"""Global shape, dtype, layout."""


@dataclass(frozen=True)
class Program:
    """A program over a mesh, and what each of its devices sends.

    Attributes:
        name: A name of its own, by which it is found in the profile.
        function: If `out` is given, a function of shards; else of global arrays, which the compiler
            splits.
        sent: The collectives as written, in order; "dp+tp" stands for two axes, and "?" before a
            kind for a conditional one.
        mesh: The sizes of its mesh.
        out: The layout of its result.
        arrays: Its arguments.
        run: How often a kind runs, where this depends on XLA or on the data.
    """

    name: str
    function: Callable[..., Any]
    sent: tuple[Sent, ...]
    mesh: str = "dp=2,tp=4"
    out: str | None = "b_dp t_tp"
    arrays: tuple[Array, ...] = (((8, 16), "float32", "b_dp t_tp"),)
    run: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name

    def jitted(self) -> Any:
        """The function over global arrays."""
        function = self.function
        if self.out is not None:
            layouts = tuple(spec(layout) for _, _, layout in self.arrays)
            function = jax.shard_map(
                function, mesh=make_mesh(self.mesh), in_specs=layouts, out_specs=spec(self.out)
            )

        def program(*arrays):
            return function(*arrays)

        program.__name__ = self.name
        return jax.jit(program)

    def shapes(self) -> list[jax.ShapeDtypeStruct]:
        """The shapes, dtypes and shardings of the arguments."""
        mesh = make_mesh(self.mesh)
        return [
            jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, spec(layout)))
            for shape, dtype, layout in self.arrays
        ]

    def data(self) -> list[jax.Array]:
        """The arguments, filled with small whole numbers."""
        numbers = np.random.default_rng(0)
        return [
            jax.device_put(numbers.integers(1, 5, one.shape).astype(one.dtype), one.sharding)
            for one in self.shapes()
        ]

    def executions(self) -> dict[str, int]:
        """How often each kind runs on a device."""
        counted: dict[str, int] = {}
        for kind, *_, times in self.sent:
            kind = kind.removeprefix("?")
            counted[kind] = counted.get(kind, 0) + (times or 0)
        return {kind: times for kind, times in (counted | self.run).items() if times}


def short(collectives: tuple[Collective, ...]) -> tuple[Sent, ...]:
    """Collectives in the short form of the corpus."""
    return tuple(
        (
            "?" * one.conditional + one.kind,
            "+".join(one.axes),
            one.dtype,
            one.operand_bytes,
            one.wire_bytes,
            one.times,
        )
        for one in collectives
    )


def stablehlo(function: Callable[..., Any], **fields: Any) -> ir.Module:
    """The StableHLO that JAX makes of a function of shards."""
    program = Program("program", function, (), **fields)
    return program.jitted().lower(*program.shapes()).compiler_ir("stablehlo")
