"""Every public collective with arguments that suit it, on a mesh; read off its signature."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh

FUNCTIONS = [f for f in vars(collectives).values() if inspect.isfunction(f)]
OPS = ("sum", "prod", "min", "max", "and", "or", "xor")
AXES = {"axis": "device", "inner": "device", "outer": "node"}


def cases() -> list:
    """Every function with each of its ops, on two meshes."""
    found = []
    for function in FUNCTIONS:
        powers_of_two_only = function.__name__.startswith("recursive_doubling")
        for op in OPS if "op" in inspect.signature(function).parameters else (None,):
            for sizes in ("node=2,device=4", f"node=3,device={2 if powers_of_two_only else 5}"):
                name = "-".join(filter(None, (function.__name__, op, sizes)))
                found.append(pytest.param(function, op, sizes, id=name))
    return found


class Call:
    """A function with its arguments, on every device of a mesh whose devices hold different x."""

    def __init__(self, function: Callable, op: str | None, sizes: str) -> None:
        parameters = inspect.signature(function).parameters
        choices = {**AXES, "root": 1, "shift": 1, "op": op}
        arguments = {name: choices[name] for name in parameters if name != "x"}
        self.per_device = lambda x: function(x, **arguments)
        self.mesh = make_mesh(sizes)
        groups = {name: self.mesh.shape[AXES[name]] for name in parameters if name in AXES}
        chunks = parameters["x"].annotation.dim_str.startswith("n ")
        self.shape = (math.prod(groups.values()),) * chunks + (3, 5)
        self.names = {"x": math.prod(self.shape), "n": groups.get("axis", 0)}
        self.names |= {f"n_{name}": size for name, size in groups.items()}

    def on_devices(self, per_device: Callable[[jax.Array], Any], varying: bool) -> Callable:
        """Gives every device the same x, typed as different on each if `varying`."""
        axes = self.mesh.axis_names

        def on_one_device(x: jax.Array) -> Any:
            results = per_device(jax.lax.pcast(x, axes, to="varying") if varying else x)
            return jax.tree.map(lambda y: y[None], results)

        return jax.shard_map(
            on_one_device, mesh=self.mesh, in_specs=jax.P(), out_specs=jax.P(axes)
        )
