"""Exports the programs of an answer: its forward call, and its gradient.

The worker exports the learner's function with this, and the reader exports the reference and the
mistakes, so that all programs that are compared have the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import export, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpar.contracts.case import ArraySpec, Case, fill
from jaxpar.grading.messages import Output
from jaxpar.mesh import make_mesh, spec, varying_axes

Arguments = tuple[jax.ShapeDtypeStruct, ...]


@dataclass(frozen=True)
class Program:
    """An exported program and its outputs before they are stacked over the mesh."""

    module: bytes
    outputs: tuple[Output, ...]


@dataclass(frozen=True)
class Interface:
    """The types and shardings of a program's arguments and results, as the contract has them."""

    inputs: Arguments
    results: Arguments


def differentiated(case: Case, names: Sequence[str]) -> dict[int, tuple[str, ArraySpec]]:
    """Returns the arrays whose gradient is wanted, by position, with their arguments' names."""
    return {
        i: (name, leaf)
        for i, (name, leaf) in enumerate(case.arrays())
        if name in names and jnp.issubdtype(jnp.dtype(leaf.dtype), jnp.floating)
    }


def forward_interface(case: Case, outputs: Sequence[Output]) -> Interface:
    """Returns the interface of a forward program, with outputs stacked over every mesh axis."""
    results = tuple(_stacked(case, case.sizes, o.shape, o.dtype) for o in outputs)
    return Interface(_inputs(case), results)


def gradient_interface(case: Case, names: Sequence[str], outputs: Sequence[Output]) -> Interface:
    """Returns the interface of a gradient program.

    It has the arguments and results of the forward program, a cotangent for each float output, and
    the gradient with respect to each named argument.
    """
    forward = forward_interface(case, outputs)
    cotangents = tuple(_stacked(case, o.varying, o.shape, o.dtype) for o in outputs if _is_float(o))
    chosen = [forward.inputs[i] for i in differentiated(case, names)]
    gradients = tuple(
        _stacked(case, case.sizes, a.sharding.shard_shape(a.shape), a.dtype) for a in chosen
    )
    return Interface(forward.inputs + cotangents, forward.results + gradients)


def export_forward(function: Callable, case: Case) -> Program:
    """Exports one call of the answer, its outputs stacked device by device."""
    seen: list[Output] = []

    def body(*leaves: jax.Array) -> list[jax.Array]:
        outputs = _call(function, case, leaves)
        seen[:] = [_describe(case, place, output) for place, output in outputs.items()]
        return [_stack(case, output) for output in outputs.values()]

    module = _export(body, case, _inputs(case))
    return Program(module, tuple(seen))


def trace(function: Callable, case: Case) -> None:
    """Traces one call of the answer without lowering it, so that no error is the compiler's."""
    jax.eval_shape(sharded_call(function, case), *_inputs(case))


def sharded_call(function: Callable, case: Case) -> Callable[..., dict[str, jax.Array]]:
    """Returns one call of the answer on the mesh of a case, as a function of global arrays.

    Its outputs are stacked device by device, under their places in the answer's result. Called
    outside `jax.jit`, it runs line by line, and every line sees values.
    """

    def body(*leaves: jax.Array) -> dict[str, jax.Array]:
        outputs = _call(function, case, leaves)
        return {place: _stack(case, output) for place, output in outputs.items()}

    return _shard(body, case, _inputs(case))


def export_gradient(
    function: Callable, case: Case, names: Sequence[str], outputs: Sequence[Output]
) -> Program:
    """Exports the outputs y_i and the gradients of the sum over devices of <c_i, y_i>.

    The cotangents c_i are further arguments of the program.
    """
    interface = gradient_interface(case, names, outputs)
    count = len(_inputs(case))
    chosen = differentiated(case, names)

    def body(*leaves: jax.Array) -> list[jax.Array]:
        arrays = list(leaves[:count])
        cotangents = [
            c.reshape(o.shape)
            for c, o in zip(leaves[count:], (o for o in outputs if _is_float(o)), strict=True)
        ]

        def objective(*parts: jax.Array) -> tuple[list[jax.Array], list[jax.Array]]:
            full = list(arrays)
            for i, part in zip(chosen, parts, strict=True):
                full[i] = part
            results = list(_call(function, case, full).values())
            floats = [r for r in results if jnp.issubdtype(r.dtype, jnp.floating)]
            return floats, results

        _, pullback, results = jax.vjp(objective, *(arrays[i] for i in chosen), has_aux=True)
        return [_stack(case, array) for array in (*results, *pullback(cotangents))]

    return Program(_export(body, case, interface.inputs), tuple(outputs))


def _is_float(output: Output) -> bool:
    return bool(jnp.issubdtype(jnp.dtype(output.dtype), jnp.floating))


def _call(function: Callable, case: Case, leaves: Sequence[jax.Array]) -> dict[str, jax.Array]:
    """Calls the answer, and returns the arrays of its result by their place in it."""
    arrays = iter(leaves)
    args = [fill(value, arrays) for value in case.args.values()]
    kwargs = {name: fill(value, arrays) for name, value in case.kwargs.items()}
    outputs = jax.tree.leaves_with_path(function(*args, **kwargs))
    if not outputs:
        raise TypeError("the answer returns nothing")
    return {jax.tree_util.keystr(path): jnp.asarray(leaf) for path, leaf in outputs}


def _inputs(case: Case) -> Arguments:
    mesh = make_mesh(case.mesh)
    return tuple(
        jax.ShapeDtypeStruct(
            leaf.shape, jnp.dtype(leaf.dtype), sharding=NamedSharding(mesh, spec(leaf.layout))
        )
        for _, leaf in case.arrays()
    )


def _stacked(
    case: Case, axes: Iterable[str], shape: Sequence[int], dtype: Any
) -> jax.ShapeDtypeStruct:
    """Returns the type of stacked blocks: one leading dim for each axis, split over that axis."""
    sizes = [case.sizes[axis] for axis in axes]
    sharding = NamedSharding(make_mesh(case.mesh), P(*axes))
    return jax.ShapeDtypeStruct((*sizes, *shape), jnp.dtype(dtype), sharding=sharding)


def _describe(case: Case, place: str, array: jax.Array) -> Output:
    varying = tuple(axis for axis in case.sizes if axis in varying_axes(array))
    return Output(tuple(array.shape), str(array.dtype), varying, place)


def _stack(case: Case, array: jax.Array) -> jax.Array:
    """[...] -> [1, ..., 1, ...]: one leading dim for each mesh axis, typed varying over it."""
    missing = tuple(axis for axis in case.sizes if axis not in varying_axes(array))
    if missing:
        array = lax.pcast(array, missing, to="varying")
    return array.reshape((1,) * len(case.sizes) + array.shape)


def _shard(body: Callable, case: Case, inputs: Arguments) -> Callable:
    specs = tuple(a.sharding.spec for a in inputs)
    return jax.shard_map(body, mesh=make_mesh(case.mesh), in_specs=specs, out_specs=P(*case.sizes))


def _export(body: Callable, case: Case, inputs: Arguments) -> bytes:
    jitted = jax.jit(
        _shard(body, case, inputs),
        in_shardings=tuple(a.sharding for a in inputs),
        out_shardings=NamedSharding(make_mesh(case.mesh), P(*case.sizes)),
        keep_unused=True,
    )
    return export.export(jitted, platforms=["cpu"])(*inputs).mlir_module_serialized


def template(interface: Interface) -> export.Exported:
    """Returns an exported program of this interface; a reader takes its header for other bytes."""
    results = interface.results

    def zeros(*_: jax.Array) -> list[jax.Array]:
        return [jnp.zeros(r.shape, r.dtype) for r in results]

    jitted = jax.jit(
        zeros,
        in_shardings=tuple(a.sharding for a in interface.inputs),
        out_shardings=[r.sharding for r in results],
        keep_unused=True,
    )
    return export.export(jitted, platforms=["cpu"])(*interface.inputs)
