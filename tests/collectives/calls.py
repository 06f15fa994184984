"""Every public collective, with arguments that are derived from its signature."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax

from jaxpar import collectives
from jaxpar.mesh import make_mesh

AXES = {
    "axis": "device", "inner": "device", "outer": "node", "rows": "node", "columns": "device",
}  # fmt: skip
OPS = ("sum", "prod", "min", "max", "and", "or", "xor")
BITS = ("and", "or", "xor")
ROOT, SHIFT = 1, -2


@dataclass(frozen=True)
class Call:
    """A collective on a mesh of these sizes, with one of its reductions if it has several."""

    function: Callable
    sizes: str
    op: str | None

    @cached_property
    def mesh(self) -> jax.sharding.Mesh:
        return make_mesh(self.sizes)

    @cached_property
    def parameters(self) -> dict[str, inspect.Parameter]:
        return dict(inspect.signature(self.function).parameters)

    @cached_property
    def groups(self) -> dict[str, int]:
        """How many devices are on the axis that each axis argument names."""
        return {name: self.mesh.shape[AXES[name]] for name in self.parameters if name in AXES}

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of x on each device: 15 elements, chunks of 15, or what any split divides."""
        dims, n = self.parameters["x"].annotation.dim_str, math.prod(self.groups.values())
        return (n, 2 * n) if dims == "b d" else (n,) * dims.startswith("n ") + (3, 5)

    def per_device(self, x: jax.Array) -> Any:
        choices = {**AXES, "root": ROOT, "shift": SHIFT, "op": self.op}
        arguments = {name: choices[name] for name in self.parameters if name != "x"}
        return self.function(x, **arguments)

    def __str__(self) -> str:
        return "-".join(filter(None, (self.function.__name__, self.op, self.sizes)))


def calls() -> list[Call]:
    """Every function with each of its reductions, on two meshes."""
    found = []
    for function in filter(inspect.isfunction, vars(collectives).values()):
        second = 2 if function.__name__.startswith("recursive_doubling") else 5
        for op in OPS if "op" in inspect.signature(function).parameters else (None,):
            found.append(Call(function, "node=2,device=4", op))
            found.append(Call(function, f"node=3,device={second}", op))
    return found


def on_devices(function: Callable[[jax.Array], Any], mesh: jax.sharding.Mesh) -> Callable:
    """`function` on every device: x and the results have a leading dim for each mesh axis."""
    levels, layout = len(mesh.shape), jax.P(*mesh.axis_names)

    def on_one_device(x: jax.Array) -> Any:
        y = function(x.reshape(x.shape[levels:]))
        return jax.tree.map(lambda leaf: leaf[(None,) * levels], y)

    return jax.shard_map(on_one_device, mesh=mesh, in_specs=layout, out_specs=layout)
