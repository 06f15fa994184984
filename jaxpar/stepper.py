"""Runs a function of devices one collective after the other, and keeps what each took and gave.

The function is traced as `jax.shard_map` traces it. Then its operations run one by one on all
devices at once, in this process and on one CPU device: dim 0 of every array has the devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import P
from jax.extend import core
from jax.sharding import AbstractMesh, AxisType

from jaxpar.drawing.steps import Frame, Steps
from jaxpar.mesh import vary

COLLECTIVES = {
    "ppermute": "permute",
    "psum": "all_reduce",
    "psum_invariant": "all_reduce",
    "pmax": "all_reduce",
    "pmin": "all_reduce",
    "all_gather": "all_gather",
    "all_gather_invariant": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
}
"""The kinds of collective, as the inspector names them, by JAX's names of primitives."""
OVER_SEVERAL = ("ppermute", "psum", "psum_invariant", "pmax", "pmin", "all_to_all")
"""Collectives that can go over several axes at once here."""
PRINTS = ("debug_callback", "debug_print")
BODIES = {
    "jit": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "remat2": "jaxpr",
}
"""Primitives that call a function once, and the parameter that holds it."""
MOST_TURNS = 1000
PART = "part"
"""The axis over which `whose_parts` runs a function on the part of one device after the other."""


def steps(function: Callable[..., Any], arguments: Sequence[Any], axes: Mapping[str, int]) -> Steps:
    """Runs a function of one device's arrays on all devices, one collective after the other.

    Args:
        function: what each device runs; it is called inside `jax.shard_map`.
        arguments: for each argument an array [*sizes of axes, *shape on one device].
        axes: the sizes of the mesh's axes, by their names.

    Raises:
        ValueError: the function does what cannot be run in this way; the message names it.
    """
    given = [jnp.asarray(argument) for argument in arguments]
    shapes = [jax.ShapeDtypeStruct(a.shape[len(axes) :], a.dtype) for a in given]
    return _run(_traced(function, shapes, axes), given, axes, axes)


def whose_parts(
    function: Callable[..., Any],
    shapes: Sequence[jax.ShapeDtypeStruct],
    axes: Mapping[str, int],
) -> Steps:
    """Finds how often each value holds the part of each device: what it gave in the beginning.

    The function runs with ones on one device and zeros on the others, once for each device, and
    with ones on all: its values are sums of parts if these are the sum of all the others.

    Args:
        function: as `steps` takes it.
        shapes: the shapes of its arguments on one device.
        axes: as `steps` takes them.

    Returns:
        The steps, of which each array is [devices, *shape on one device, parts].

    Raises:
        ValueError: a value is no sum of parts, or `steps` raises it.
    """
    sizes = tuple(axes.values())
    devices = math.prod(sizes)
    alone = np.concatenate([np.eye(devices), np.ones((1, devices))])  # [probes, devices]
    given = [
        jnp.broadcast_to(
            alone.reshape(-1, *sizes, *[1] * len(s.shape)), (devices + 1, *sizes, *s.shape)
        ).astype(s.dtype)
        for s in shapes
    ]
    run = _run(_traced(function, shapes, axes), given, axes, {PART: devices + 1, **axes})

    def counted(where: str, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        flat = [
            array.reshape(devices + 1, devices, *array.shape[1 + len(sizes) :]) for array in arrays
        ]
        for array in flat:
            if not np.allclose(array[:-1].sum(axis=0), array[-1], atol=1e-4):
                raise ValueError(
                    f"steps: {where} a value is no sum of what the devices gave; only what moves "
                    "and adds them can be drawn; leave out what compares, multiplies or shifts them"
                )
        return tuple(np.moveaxis(array[:-1], 0, -1) for array in flat)

    frames = [
        replace(
            frame,
            before=counted(f"before step {number}", frame.before),
            after=counted(f"after step {number}", frame.after),
        )
        for number, frame in enumerate(run.frames, start=1)
    ]
    return Steps(
        counted("at the start", run.given), tuple(frames), counted("in the result", run.results)
    )


@dataclass(frozen=True)
class _Program:
    """The operations of one device, on arrays with a leading dim of size 1 for each axis.

    `constants` are those of its inputs that are no arguments, and None for each argument.
    """

    operations: core.Jaxpr
    constants: tuple[Any, ...]


def _traced(
    function: Callable[..., Any], shapes: Sequence[jax.ShapeDtypeStruct], axes: Mapping[str, int]
) -> _Program:
    types = (AxisType.Auto,) * len(axes)
    mesh = AbstractMesh(tuple(axes.values()), tuple(axes), axis_types=types)

    def body(*shards: jax.Array) -> list[jax.Array]:
        results = function(*(shard.reshape(shard.shape[len(axes) :]) for shard in shards))
        arrays = [vary(jnp.asarray(leaf), axes) for leaf in jax.tree.leaves(results)]
        return [array.reshape((1,) * len(axes) + array.shape) for array in arrays]

    on_each = jax.shard_map(body, mesh=mesh, in_specs=P(*axes), out_specs=P(*axes))
    stacked = [jax.ShapeDtypeStruct((*axes.values(), *s.shape), s.dtype) for s in shapes]
    whole = jax.make_jaxpr(on_each)(*stacked)
    (equation,) = whole.jaxpr.eqns
    constants = dict(zip(whole.jaxpr.constvars, whole.consts, strict=True))
    values = [v.val if isinstance(v, core.Literal) else constants.get(v) for v in equation.invars]
    return _Program(equation.params["jaxpr"], tuple(values))


def _run(
    program: _Program,
    given: Sequence[jax.Array],
    axes: Mapping[str, int],
    leading: Mapping[str, int],
) -> Steps:
    """Runs a program; `leading` names the dims of `given` before those of one device."""
    sizes, ones = tuple(leading.values()), (1,) * len(axes)
    interpreter = _Interpreter(leading, axes)
    shards = (array.reshape(sizes + ones + array.shape[len(sizes) :]) for array in given)
    inputs = [
        next(shards) if constant is None else interpreter.on_each(constant)
        for constant in program.constants
    ]
    results = interpreter.run(program.operations, (), inputs)
    return Steps(
        tuple(map(np.asarray, given)),
        tuple(interpreter.frames),
        tuple(np.asarray(r).reshape(sizes + r.shape[len(sizes + ones) :]) for r in results),
    )


class _Interpreter:
    """Runs operations on arrays [*leading, ...], and keeps a frame of each collective."""

    def __init__(self, leading: Mapping[str, int], axes: Mapping[str, int]) -> None:
        self.leading, self.axes = leading, axes
        self.frames: list[Frame] = []

    def run(self, program: core.Jaxpr, constants: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Returns the results of a program."""
        values = dict(zip(program.constvars, map(self.on_each, constants), strict=True))
        values |= zip(program.invars, given, strict=True)

        def read(variable: Any) -> Any:
            literal = isinstance(variable, core.Literal)
            return self.on_each(variable.val) if literal else values[variable]

        for equation in program.eqns:
            results = self._equation(equation, [*map(read, equation.invars)])
            values |= zip(equation.outvars, results, strict=True)
        return [*map(read, program.outvars)]

    def on_each(self, value: Any) -> jax.Array:
        """The value on every device, of which JAX forgets in which mesh it was traced."""
        return jnp.broadcast_to(np.asarray(value), (*self.leading.values(), *np.shape(value)))

    def _call(self, program: Any, given: Sequence[Any]) -> list[Any]:
        """Runs a function that an operation holds, with its constants if it has any."""
        if isinstance(program, core.Jaxpr):
            return self.run(program, (), given)
        return self.run(program.jaxpr, program.consts, given)

    def _equation(self, equation: Any, given: list[Any]) -> Sequence[Any]:
        name, params = equation.primitive.name, equation.params
        if name in PRINTS:
            return []
        if name == "pvary":  # the type of a value changes, and not the value
            return given
        if name in BODIES:
            return self._call(params[BODIES[name]], given)
        if name in COLLECTIVES:
            return self._collective(equation, given)
        if name in ("scan", "while", "cond"):
            return getattr(self, f"_{name}")(equation, given)
        if any(map(_sends, _bodies(params))):
            raise ValueError(
                f"steps: a collective inside {name} cannot be drawn; loops, conditions and jit may "
                "hold one; call it there, or outside"
            )
        return self._bind(equation, given)

    def _bind(self, equation: Any, given: list[Any]) -> list[Any]:
        """Runs one operation on each device."""
        primitive = equation.primitive

        def function(_: Any, *arrays: Any) -> list[Any]:
            results = primitive.bind(*arrays, **equation.params)
            return list(results) if primitive.multiple_results else [results]

        for axis, size in reversed([*self.leading.items()]):
            function = jax.vmap(function, axis_name=axis, axis_size=size)
        try:
            return function(self.on_each(0), *given)
        except NotImplementedError:
            raise ValueError(
                f"steps: {primitive.name} cannot be run on all devices at once; draw a function "
                "without it"
            ) from None

    def _collective(self, equation: Any, given: list[Any]) -> list[Any]:
        name, params = equation.primitive.name, equation.params
        named = params.get("axes", params.get("axis_name"))
        over = (named,) if isinstance(named, str) else tuple(named)
        if len(over) > 1 and name not in OVER_SEVERAL:
            raise ValueError(
                f"steps: {COLLECTIVES[name]} over {' and '.join(over)} at once cannot be drawn; go "
                "over one axis after the other"
            )
        pairs = self._pairs(over, params["perm"]) if name == "ppermute" else ()
        results = self._permute(given, pairs) if name == "ppermute" else self._bind(equation, given)
        before, after = (tuple(map(np.asarray, arrays)) for arrays in (given, results))
        self.frames.append(Frame(COLLECTIVES[name], over, pairs, before, after))
        return results

    def _permute(self, given: list[Any], pairs: Sequence[tuple[int, int]]) -> list[Any]:
        """What arrives by these pairs of devices, and zeros elsewhere; `vmap` wants all of them."""
        sources, targets = np.array(pairs, int).reshape(-1, 2).T
        devices, results = math.prod(self.axes.values()), []
        for array in given:
            flat = array.reshape(-1, devices, *array.shape[len(self.leading) :])
            moved = jnp.zeros_like(flat).at[:, targets].set(flat[:, sources])
            results.append(moved.reshape(array.shape))
        return results

    def _pairs(
        self, over: Sequence[str], pairs: Sequence[tuple[int, int]]
    ) -> tuple[tuple[int, int], ...]:
        """Pairs of places on axes as pairs of devices, which are counted along all axes."""
        sizes, places = tuple(self.axes.values()), [list(self.axes).index(axis) for axis in over]
        numbers = np.moveaxis(
            np.arange(math.prod(sizes)).reshape(sizes), places, range(-len(over), 0)
        )
        lines = numbers.reshape(-1, math.prod(self.axes[axis] for axis in over)).tolist()
        return tuple((line[one], line[other]) for line in lines for one, other in pairs)

    def _scan(self, equation: Any, given: list[Any]) -> list[Any]:
        params, body = equation.params, equation.params["jaxpr"].jaxpr
        carried = len(body.outvars) - _stacked(equation.outvars, body.outvars)
        start = len(given) - _stacked(equation.invars, body.invars)
        fixed, carry, rows = given[: start - carried], given[start - carried : start], given[start:]
        dim, turns, stacked = len(self.leading), range(params["length"]), []
        for turn in reversed(turns) if params["reverse"] else turns:
            row = [jnp.take(array, turn, axis=dim) for array in rows]
            results = self._call(params["jaxpr"], [*fixed, *carry, *row])
            carry = results[:carried]
            stacked.append(results[carried:])
        if not turns:
            none = [jnp.zeros(v.aval.shape, v.aval.dtype) for v in equation.outvars[carried:]]
            return [*carry, *map(self.on_each, none)]
        if params["reverse"]:
            stacked.reverse()
        return [*carry, *(jnp.stack(column, axis=dim) for column in zip(*stacked, strict=True))]

    def _while(self, equation: Any, given: list[Any]) -> list[Any]:
        params = equation.params
        of_test, of_body = params["cond_nconsts"], params["body_nconsts"]
        test, body = given[:of_test], given[of_test : of_test + of_body]
        carry = given[of_test + of_body :]
        for _ in range(MOST_TURNS):
            (goes_on,) = self._call(params["cond_jaxpr"], [*test, *carry])
            if not goes_on.any():
                return carry
            turned = self._together(goes_on, params["body_jaxpr"], [*body, *carry])
            carry = [*map(partial(_chosen, goes_on), turned, carry)]
        raise ValueError(f"steps: a loop takes more than {MOST_TURNS} turns; let it end")

    def _cond(self, equation: Any, given: list[Any]) -> list[Any]:
        index, *operands = given
        results: list[Any] = []
        for number in np.unique(np.asarray(index)).tolist():
            takes = index == number
            found = self._together(takes, equation.params["branches"][number], operands)
            results = [*map(partial(_chosen, takes), found, results or found)]
        return results

    def _together(self, takes: jax.Array, program: Any, given: list[Any]) -> list[Any]:
        """Runs what some devices take, which may have a collective only if all do."""
        frames = len(self.frames)
        results = self._call(program, given)
        if len(self.frames) > frames and not takes.all():
            raise ValueError(
                "steps: devices disagree about a condition or the end of a loop, and a collective "
                "in it waits for all of them; let it depend on what is equal on all devices"
            )
        return results


def _chosen(takes: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(takes.reshape(takes.shape + (1,) * (new.ndim - takes.ndim)), new, old)


def _stacked(outside: Sequence[Any], inside: Sequence[Any]) -> int:
    """How many arrays of a scan have a dim more outside of it: a row for each turn."""
    return sum(one.aval.ndim > other.aval.ndim for one, other in zip(outside, inside, strict=True))


def _bodies(value: Any) -> Iterator[core.Jaxpr]:
    """The programs in the parameters of an operation."""
    if isinstance(value, core.ClosedJaxpr):
        yield value.jaxpr
    elif isinstance(value, core.Jaxpr):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _bodies(item)


def _sends(program: core.Jaxpr) -> bool:
    """Whether a program, or one inside it, has a collective."""
    return any(
        equation.primitive.name in COLLECTIVES or any(map(_sends, _bodies(equation.params)))
        for equation in program.eqns
    )
