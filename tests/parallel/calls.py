"""Compares a function of `jaxpar.parallel` on a mesh with one device, and with its docstring."""

import inspect
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding

from jaxpar.mesh import make_mesh
from tests.comm_lines import Sent, check_lines, measured


@dataclass(frozen=True)
class Call:
    """A function on global arguments.

    Attributes:
        function: the public function.
        per_device: calls it inside `shard_map`; in the sizes of its docstring, the names of the
            arguments stand for their elements on one device, y for those of the result.
        args: the global arguments, pytrees of arrays.
        in_specs: for each argument its partition spec, or a pytree of them.
        out_specs: the same for the result.
        differentiated: how many arguments, from the first, have a gradient; None for all.
        sends: what `per_device` itself sends forward, beside what the function does.
        names: what else the sizes of its docstring name.
    """

    function: Callable
    per_device: Callable
    args: tuple
    in_specs: tuple
    out_specs: Any
    differentiated: int | None = None
    sends: Sent = field(default_factory=Counter)
    names: Mapping[str, int] = field(default_factory=dict)

    def program(self, sizes: str, *, differentiate: bool) -> jax.stages.Wrapped:
        """The function on a mesh; if asked for, with the gradients of |result|**2 / 2."""
        out_specs = (self.out_specs, self.in_specs[: self.differentiated])
        return jax.jit(
            jax.shard_map(
                self.with_gradients(self.per_device) if differentiate else self.per_device,
                mesh=make_mesh(sizes),
                in_specs=self.in_specs,
                out_specs=out_specs if differentiate else self.out_specs,
            )
        )

    def with_gradients(self, function: Callable) -> Callable:
        def both(*args: Any) -> tuple[Any, tuple]:
            count = len(args) if self.differentiated is None else self.differentiated
            y, pull = jax.vjp(lambda *some: function(*some, *args[count:]), *args[:count])
            return y, pull(y)

        return both

    def __str__(self) -> str:
        return self.function.__name__


def assert_equal_one_device(call: Call, one_device: Callable, sizes: str) -> None:
    """Checks the values of a call and its gradients."""
    got = call.program(sizes, differentiate=True)(*call.args)
    assert_close(got, jax.jit(call.with_gradients(one_device))(*call.args))


def assert_close(got: Any, expected: Any) -> None:
    """Compares pytrees of arrays, each in the order of magnitude of its largest element."""
    for one, other in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        near_zero = 1e-5 * np.abs(other).max(initial=0)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=near_zero)


def assert_docstring_holds(call: Call, sizes: str, **axes: str) -> None:
    """Checks the `Comm:` and `Memory:` lines of a function.

    Args:
        call: a call of it, of arrays that divide by the axes.
        sizes: the mesh.
        axes: the mesh axis of each of its axis arguments; n is the size of the first.
    """
    mesh = make_mesh(sizes)
    forward, both = (
        call.program(sizes, differentiate=differentiate).lower(*call.args)
        for differentiate in (False, True)
    )
    held = elements(forward.out_info, call.out_specs, mesh)
    arguments = [elements(*pair, mesh) for pair in zip(call.args, call.in_specs, strict=True)]
    names = dict(zip(inspect.signature(call.per_device).parameters, arguments, strict=False))
    names |= {"y": held, "n": mesh.shape[next(iter(axes.values()))], **call.names}
    sent, sent_by_both = (measured(program) - call.sends for program in (forward, both))
    check_lines(call.function, sent, sent_by_both, held, axes=axes, names=names)


def elements(tree: Any, specs: Any, mesh: Mesh) -> int:
    """How many elements of a pytree one device holds."""

    def of(spec: jax.P, part: Any) -> int:
        sharding = NamedSharding(mesh, spec)
        return sum(math.prod(sharding.shard_shape(x.shape)) for x in jax.tree.leaves(part))

    is_spec = lambda part: isinstance(part, jax.P)  # noqa: E731
    return sum(jax.tree.leaves(jax.tree.map(of, specs, tree, is_leaf=is_spec)))
