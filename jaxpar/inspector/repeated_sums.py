"""Finds sums over devices whose operand is equal on all of them already.

Inside `shard_map`, `lax.psum` of such a value multiplies it by the number of devices. To find it,
this module follows by which mesh axes each value of a StableHLO program may vary: arguments vary by
the axes of their shardings, a device's index by its axis, and any other result as its operands do.
What is not understood may vary by every axis, so a sum that is reported is certain. A sum of
constants is not reported: it counts devices, or adds zeros.
"""

import math
from collections.abc import Mapping, Sequence

from jax.extend.mlir.dialects import sdy

from jaxpar.inspector.groups import make_permute, varying_axes
from jaxpar.inspector.loops import constant_of, producer_of
from jaxpar.inspector.mlir import ir, operations, source
from jaxpar.inspector.report import RepeatedSum
from jaxpar.inspector.stablehlo import adds, groups_of, module_meshes, pairs_of
from jaxpar.inspector.walk import called, check_size, functions_of

Axes = frozenset[str]
"""Axes of the mesh, and `_DATA` in what depends on an argument of the program."""

_DATA = ""
_MAKE_EQUAL = ("stablehlo.all_reduce", "stablehlo.all_gather")
_MAKE_DIFFERENT = ("stablehlo.reduce_scatter", "stablehlo.all_to_all")
_UNKNOWN = (
    "stablehlo.partition_id",
    "stablehlo.replica_id",
    "stablehlo.custom_call",
    "stablehlo.rng",
    "stablehlo.collective_broadcast",
)


def repeated_sums(
    module: ir.Module, mesh: Mapping[str, int] | None = None
) -> tuple[RepeatedSum, ...]:
    """Returns the sums over devices that hold the same value already, each line's only once.

    Programs on several different meshes are left out.

    Args:
        module: The program.
        mesh: The names and sizes of the mesh's axes, in order; by default those of the module.

    Raises:
        ValueError: The program is too large to be walked, or its groups are not understood.
    """
    check_size(module)
    if not any(op.name == "stablehlo.all_reduce" for op in operations(module.operation)):
        return ()
    meshes = {tuple(one.items()) for one in module_meshes(module).values() if one}
    if len(meshes) != 1:
        return ()
    declared = dict(*meshes)
    names = dict(zip(declared, mesh or declared, strict=True))
    return _Flow(module, declared).repeated_sums(names)


class _Flow:
    """By which axes each value may vary; the sets grow from sweep to sweep until none changes."""

    def __init__(self, module: ir.Module, mesh: dict[str, int]) -> None:
        self._meshes, self._mesh = module_meshes(module), mesh
        self._functions = functions_of(module)
        self._axes: dict[ir.Value, Axes] = {}
        self._groups: dict[ir.Value, Axes | None] = {}
        self._sums: dict[ir.Value, ir.Operation] = {}
        main, self._changed = self._functions["main"].regions[0], True
        while self._changed:
            self._changed = False
            self._entered: set[str] = set()
            self._run(main, frozenset((_DATA,)))

    def repeated_sums(self, names: Mapping[str, str]) -> tuple[RepeatedSum, ...]:
        """Returns the sums whose operand is equal along an axis; each axis has one of `names`."""
        found: dict[RepeatedSum, None] = {}
        for result, op in self._sums.items():
            axes, varies = self._groups[result] or frozenset(), self._of(op.operands)
            if axes - varies and _DATA in varies:
                over, equal = (
                    tuple(names[axis] for axis in self._mesh if axis in some)
                    for some in (axes, axes - varies)
                )
                averaged = _is_divided_by(self._devices(axes), op)
                factor = self._devices(axes - varies)
                found[RepeatedSum(over, equal, factor, averaged, source(op.location))] = None
        return tuple(found)

    def _devices(self, axes: Axes) -> int:
        return math.prod(self._mesh[axis] for axis in axes)

    def _of(self, values: Sequence[ir.Value]) -> Axes:
        return frozenset[str]().union(*(self._axes.get(value, frozenset()) for value in values))

    def _grow(self, value: ir.Value, axes: Axes) -> None:
        known = self._axes.get(value, frozenset())
        if not axes <= known:
            self._axes[value] = known | axes
            self._changed = True

    def _run(
        self, region: ir.Region, arguments: Sequence[Axes] | Axes, *, again: bool = True
    ) -> list[Axes]:
        """Passes arguments to a region, sweeps over it, and returns how its results vary.

        Args:
            region: The body of an operation or of a function.
            arguments: How each argument varies, or how all of them do.
            again: Whether to sweep; if not, the results are those of the last sweep.
        """
        returned: list[Axes] = []
        for block in region:
            if isinstance(arguments, frozenset):
                arguments = [arguments] * len(block.arguments)
            for argument, axes in zip(block.arguments, arguments, strict=True):
                self._grow(argument, axes)
            for op in (op.operation for op in block if again):
                for result, axes in zip(op.results, self._results(op), strict=True):
                    self._grow(result, axes)
            returned = [self._of([value]) for value in list(block.operations)[-1].operands]
        return returned

    def _results(self, op: ir.Operation) -> Sequence[Axes]:
        """Returns how the results of an operation vary, and sweeps over what is inside it."""
        name, operands = op.name, [self._of([value]) for value in op.operands]
        together, everything = frozenset[str]().union(*operands), frozenset((*self._mesh, _DATA))
        if name in _MAKE_EQUAL:
            axes = self._group_axes(op)
            return [everything if axes is None else one - axes for one in operands]
        if name in _MAKE_DIFFERENT or name == "stablehlo.collective_permute":
            axes = self._group_axes(op)
            return [everything if axes is None else one | axes for one in operands]
        if name == "stablehlo.remainder" and (axis := self._index_axis(op)):
            return [frozenset((axis, _DATA))]
        if name in _UNKNOWN:
            return [everything] * len(op.results)
        if name == "stablehlo.optimization_barrier":
            return operands
        if name == "sdy.manual_computation":
            return self._manual(op, operands)
        if name == "stablehlo.while":
            return self._loop(op, operands)
        if name in ("stablehlo.case", "stablehlo.if"):
            branches = [self._run(region, together) for region in op.regions]
            return [together.union(*results) for results in zip(*branches, strict=True)]
        if function := called(op):
            return self._call(function, operands)
        for region in op.regions:
            together = together.union(*self._run(region, together))
        return [together] * len(op.results)

    def _manual(self, op: ir.Operation, operands: Sequence[Axes]) -> list[Axes]:
        """What enters varies by its sharding; what leaves is one array over the axes of its own."""
        before, after = (_sharded(op, name) for name in ("in_shardings", "out_shardings"))
        inside = [one | axes for one, axes in zip(operands, before, strict=True)]
        results = self._run(op.regions[0], inside)
        return [one - axes for one, axes in zip(results, after, strict=True)]

    def _loop(self, op: ir.Operation, operands: Sequence[Axes]) -> list[Axes]:
        """What a loop carries varies as at its start, after a turn, and as its number of turns."""
        carried = [
            self._of([result]) | axes for result, axes in zip(op.results, operands, strict=True)
        ]
        (turns,) = self._run(op.regions[0], carried)
        returned = self._run(op.regions[1], carried)
        return [turns | one | after for one, after in zip(carried, returned, strict=True)]

    def _call(self, name: str, operands: Sequence[Axes]) -> list[Axes]:
        """The arguments of a function vary as those of all its calls together."""
        again = name not in self._entered
        self._entered.add(name)
        return self._run(self._functions[name].regions[0], operands, again=again)

    def _group_axes(self, op: ir.Operation) -> Axes | None:
        """The axes over which a collective extends; None if its groups are not whole axes."""
        key = op.results[0]
        if key not in self._groups:
            if op.name == "stablehlo.collective_permute":
                moved = make_permute(pairs_of(op), self._mesh, ())
                axes = moved.axes if moved and moved.pairs else None
            else:
                groups = groups_of(op, self._meshes, self._mesh)
                axes = varying_axes(groups, self._mesh)
                size = self._devices(frozenset(axes))
                whole = all(len(set(group)) == size for group in groups)
                if not whole or sum(map(len, groups)) != math.prod(self._mesh.values()):
                    axes = None
            self._groups[key] = None if axes is None else frozenset(axes)
            if op.name == "stablehlo.all_reduce" and adds(op):
                self._sums[key] = op
        return self._groups[key]

    def _index_axis(self, op: ir.Operation) -> str | None:
        """The axis whose `lax.axis_index` an operation computes: position // stride % size."""
        before, size = producer_of(op.operands[0]), constant_of(op.operands[1])
        stride = 1
        if before and before.name == "stablehlo.divide":
            stride = constant_of(before.operands[1])
            before = producer_of(before.operands[0])
        if before is None or before.name != "stablehlo.partition_id":
            return None
        sizes = list(self._mesh.items())
        for number, (axis, length) in enumerate(sizes):
            if (stride, size) == (math.prod(n for _, n in sizes[number + 1 :]), length):
                return axis
        return None


def _sharded(op: ir.Operation, attribute: str) -> list[Axes]:
    """The axes by which each value of a `sdy.manual_computation` differs between devices."""
    sets = []
    for value in sdy.TensorShardingPerValueAttr(op.attributes[attribute]).shardings:
        sharding = sdy.TensorShardingAttr(value)
        dims = map(sdy.DimensionShardingAttr, sharding.dimension_shardings)
        axes = [*sharding.unreduced_axes, *(axis for dim in dims for axis in dim.axes)]
        sets.append(frozenset(sdy.AxisRefAttr(axis).name for axis in axes))
    return sets


def _is_divided_by(number: int, op: ir.Operation) -> bool:
    """Whether a result is only divided by a number, in its own line, as in `lax.pmean`."""
    users = [use.owner.operation for use in op.results[0].uses]
    return bool(users) and all(
        user.name == "stablehlo.divide"
        and source(user.location) == source(op.location)
        and user.operands[0] == op.results[0]
        and _number(user.operands[1]) == number
        for user in users
    )


def _number(value: ir.Value) -> float | None:
    """The number that fills a constant array; None if the value is no such array."""
    op = producer_of(value)
    while op is not None and op.name in ("stablehlo.broadcast_in_dim", "stablehlo.convert"):
        op = producer_of(op.operands[0])
    dense = op.attributes["value"] if op is not None and op.name == "stablehlo.constant" else None
    if not isinstance(dense, ir.DenseElementsAttr) or not dense.is_splat:
        return None
    number = dense.get_splat_value()
    return number.value if isinstance(number, ir.FloatAttr | ir.IntegerAttr) else None
