"""Reads the collectives and flops of StableHLO: the program as written, before XLA changes it.

This is the inspector's first front end, for programs written with `shard_map`. A module here is
StableHLO as `jax.export` or `.lower()` return it. What the compiler adds later is read by `hlo`.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jax.extend.mlir.dialects import sdy
from jax.extend.mlir.dialects import stablehlo as dialect

from jaxpar.inspector.groups import axis_groups, make_collective, make_permute
from jaxpar.inspector.loops import producer_of
from jaxpar.inspector.mlir import array_size, array_type, ir, operations, source
from jaxpar.inspector.report import Collective, Kind
from jaxpar.inspector.walk import Site, walk

Meshes = Mapping[str, Mapping[str, int]]

_KINDS: dict[str, Kind] = {
    "stablehlo.all_reduce": "all_reduce",
    "stablehlo.reduce_scatter": "reduce_scatter",
    "stablehlo.all_gather": "all_gather",
    "stablehlo.all_to_all": "all_to_all",
    "stablehlo.collective_permute": "permute",
    "stablehlo.collective_broadcast": "broadcast",
}
# Some sdy operations make the compiler send something; that is counted in the HLO, not here.
_LOCAL_OPS = re.compile(
    r"(stablehlo|chlo)\.\w+|func\.(call|return)|sdy\.(manual_computation|named_computation|"
    r"return|sharding_constraint|reshard|sharding_group|propagation_barrier)"
)
_COMMUNICATING_OPS = re.compile(
    r".*\.(send|recv|infeed|outfeed|async|cross|all_|collective|ragged).*"
)
_COMMUNICATING_ATTRIBUTES = (
    "replica_groups",
    "source_target_pairs",
    "channel_handle",
    "channel_id",
)
_AXIS_PART = r'<name = "([^"]*)"(?:, sub_axis_info = \((\d+)\)(\d+))?>'
_LOCAL_CALLS = re.compile(
    r"Sharding|SPMD\w+Shape|CustomSPMDPartitioning|annotate_device_placement|"
    r"MoveTo(Host|Device)|AllocateBuffer|"
    r"(mhlo|chlo|stablehlo)\.\w+|(Approx)?TopK|PartialReduce|lapack_\w+|xla\S*_python_\S+|"
    r"(cu|hip)(blas|dnn|fft|solver|sparse|_)\S*|__cu\S+|shape_assertion"
)


def read_module(module: ir.Module, mesh: Mapping[str, int] | None = None) -> tuple[Collective, ...]:
    """Returns the collectives that one run of `main` executes, in program order.

    Args:
        module: The program.
        mesh: The names and sizes of the mesh's axes, in order; by default those of the module.

    Raises:
        ValueError: Something communicates, or may communicate, in an unknown way.
    """
    meshes = module_meshes(module)
    found = (_collective(site, meshes, mesh) for site in walk(module))
    return tuple(collective for collective in found if collective)


def module_meshes(module: ir.Module) -> dict[str, dict[str, int]]:
    """Returns the axis sizes of each mesh that a module declares, by the symbol of the mesh.

    Raises:
        ValueError: A mesh has a device order of its own, so that a position is not a device id.
    """
    meshes = {}
    for op in module.body:
        if op.operation.name == "sdy.mesh":
            mesh = sdy.MeshAttr(op.operation.attributes["mesh"])
            # A mesh without axes but with one device id only says where a callback runs.
            if mesh.axes and mesh.device_ids:
                raise ValueError(
                    f"inspector: {op.operation.attributes['mesh']} lists device ids; "
                    "give jit one mesh whose order is that of its devices"
                )
            axes = [sdy.MeshAxisAttr(axis) for axis in mesh.axes]
            name = ir.StringAttr(op.operation.attributes["sym_name"]).value
            meshes[name] = {axis.name: axis.size for axis in axes}
    return meshes


def is_partly_manual(module: ir.Module) -> bool:
    """Whether a `shard_map` leaves axes to the compiler, so that its shapes are not local ones."""
    meshes = module_meshes(module)
    for op in operations(module.operation):
        if op.name == "sdy.manual_computation":
            attribute = sdy.ManualAxesAttr(op.attributes["manual_axes"])
            manual = {attribute[index] for index in range(len(attribute))}
            sizes = meshes.get(manual_mesh(op) or "", {})
            if any(size > 1 for axis, size in sizes.items() if axis not in manual):
                return True
    return False


def manual_mesh(manual: ir.Operation) -> str | None:
    """Returns the symbol of the mesh that a `sdy.manual_computation` runs on."""
    for attribute in ("in_shardings", "out_shardings"):
        for sharding in sdy.TensorShardingPerValueAttr(manual.attributes[attribute]).shardings:
            reference = sdy.TensorShardingAttr(sharding).mesh_or_ref
            return ir.FlatSymbolRefAttr(reference).value
    return None


@dataclass(frozen=True)
class Products:
    """The matrix products and convolutions that one run of `main` computes.

    Inside `shard_map` these are those of one device. Every branch of a conditional counts. So do
    products of matrices and vectors that are written as multiplications and sums.

    Attributes:
        flops: What they compute together; None if a loop's length is unknown.
        number: How many there are; None if a loop's length is unknown.
        dtypes: Those of the operands, without products that are written as multiplications.
    """

    flops: int | None
    number: int | None
    dtypes: tuple[str, ...]


def read_products(module: ir.Module) -> Products:
    """Returns what a program multiplies."""
    flops = number = 0
    known, dtypes = True, set[str]()
    for site in walk(module):
        name = site.op.name
        each = _FLOPS.get(name, _flops_of_products_added)(site.op)
        if name in _FLOPS:
            dtypes |= {array_type(value)[0] for value in site.op.operands}
        if each and site.times is not None:
            flops, number = flops + each * site.times, number + site.times
        elif each:
            known = False
    return Products(flops if known else None, number if known else None, tuple(sorted(dtypes)))


def count_flops(module: ir.Module) -> int | None:
    """Returns the flops of `read_products`."""
    return read_products(module).flops


def _dot_flops(op: ir.Operation) -> int:
    numbers = dialect.DotDimensionNumbers(op.attributes["dot_dimension_numbers"])
    _, left = array_type(op.operands[0])
    contracted = math.prod(left[dim] for dim in numbers.lhs_contracting_dimensions)
    return 2 * array_size(op.results[0])[1] * contracted


def _convolution_flops(op: ir.Operation) -> int:
    numbers = dialect.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    _, kernel = array_type(op.operands[1])
    per_output = math.prod(kernel) // kernel[numbers.kernel_output_feature_dimension]
    return 2 * array_size(op.results[0])[1] * per_output


def adds(op: ir.Operation) -> bool:
    """Whether a reduction of one array, over dims or over devices, is a sum."""
    body = [inner.operation.name for inner in op.regions[0].blocks[0]]
    return body == ["stablehlo.add", "stablehlo.return"]


def _flops_of_products_added(op: ir.Operation) -> int:
    """The flops of a product that is written as multiplications and sums; else 0.

    Of two matrices, `(x[:, :, None] * w).sum(1)` or, for each k, `y += x[:, k, None] * w[k]`; of a
    matrix and a vector, for each i, `(x[i, :, None] * w).sum(0)`; of two vectors, for each i and j,
    `(x[i] * w[:, j]).sum()`.
    """
    if op.name != "stablehlo.multiply":
        return 0
    left, right = (_dims_before_broadcast(value) for value in op.operands)
    if left - right and right - left:
        is_product = _may_be_added(op, left & right)
    elif any(map(_is_repeated, op.operands)) or _is_of_two_vectors(op):
        is_product = _is_summed_along(op, left & right)
    else:
        is_product = False
    return 2 * array_size(op.results[0])[1] if is_product else 0


def _may_be_added(op: ir.Operation, inner: set[int]) -> bool:
    """Whether an outer product may be added to others, or its elements along a dim of `inner`."""
    moved = _users(op, (*_KEEP_PLACES, *_MOVES))
    in_place = _users(op, _KEEP_PLACES)
    return _is_summed_along(op, inner) or any(
        user.name in _MAY_ADD or (user not in in_place and _summed_dims(user)) for user in moved
    )


def _is_summed_along(op: ir.Operation, dims: set[int]) -> bool:
    """Whether the elements of a result are added up along one of these dims."""
    return any(dims & _summed_dims(user) for user in _users(op, _KEEP_PLACES))


def _summed_dims(op: ir.Operation) -> set[int]:
    """The dims along which an operation adds up the elements of an array, if it does."""
    if op.name != "stablehlo.reduce" or not adds(op):
        return set()
    return set(ir.DenseI64ArrayAttr(op.attributes["dimensions"]))


def _users(op: ir.Operation, through: Collection[str]) -> list[ir.Operation]:
    """The operations that take a result as it is, or after operations of the names `through`."""
    found, pending, seen = [], [op.results[0]], {op.results[0]}
    while pending:
        for use in pending.pop().uses:
            user = use.owner.operation
            if user.name not in through:
                found.append(user)
            elif user.results[0] not in seen:
                seen.add(user.results[0])
                pending.append(user.results[0])
    return found


def _is_repeated(value: ir.Value) -> bool:
    """Whether a value was made of fewer elements by a broadcast, whatever its shape is now."""
    _, size = array_size(value)
    op = producer_of(value)
    while op is not None and op.name in ("stablehlo.convert", "stablehlo.reshape"):
        op = producer_of(op.operands[0])
    if op is None or op.name != "stablehlo.broadcast_in_dim":
        return False
    return 1 < array_size(op.operands[0])[1] < size


def _is_of_two_vectors(op: ir.Operation) -> bool:
    left, right = op.operands
    return left != right and len(array_type(left)[1]) == 1


def _before_conversion(value: ir.Value) -> ir.Operation | None:
    """The operation that computes a value before its dtype is changed."""
    op = producer_of(value)
    while op is not None and op.name == "stablehlo.convert":
        op = producer_of(op.operands[0])
    return op


def _dims_before_broadcast(value: ir.Value) -> set[int]:
    """The dims of an array along which it was not repeated; all, if it is no broadcast."""
    _, shape = array_type(value)
    op = _before_conversion(value)
    if op is None or op.name != "stablehlo.broadcast_in_dim":
        return {dim for dim, size in enumerate(shape) if size > 1}
    _, before = array_type(op.operands[0])
    dims = ir.DenseI64ArrayAttr(op.attributes["broadcast_dimensions"])
    return {dim for dim, size in zip(dims, before, strict=True) if size > 1}


_KEEP_PLACES = ("stablehlo.convert", "stablehlo.select")
_MOVES = (
    "stablehlo.broadcast_in_dim",
    "stablehlo.concatenate",
    "stablehlo.dynamic_slice",
    "stablehlo.dynamic_update_slice",
    "stablehlo.pad",
    "stablehlo.reshape",
    "stablehlo.reverse",
    "stablehlo.slice",
    "stablehlo.transpose",
)
_MAY_ADD = (
    "stablehlo.add",
    "stablehlo.reduce_window",
    "stablehlo.return",
    "stablehlo.scatter",
    "func.call",
    "func.return",
)
_FLOPS = {"stablehlo.dot_general": _dot_flops, "stablehlo.convolution": _convolution_flops}


def _collective(site: Site, meshes: Meshes, given: Mapping[str, int] | None) -> Collective | None:
    op = site.op
    if op.name not in _KINDS:
        _check_local(op)
        return None
    if site.per_element:
        raise ValueError(f"inspector: {_where(op)} is in the body of a reduction; move it out")
    declared = meshes.get(manual_mesh(site.manual) or "") if site.manual else None
    mesh = given or declared or {}
    rest = {
        "times": site.times,
        "conditional": bool(site.branches),
        "branches": site.branches,
        "source": source(op.location),
    }
    operands = [array_size(operand) for operand in op.operands]
    _check_partitioned(op)
    if _KINDS[op.name] == "permute":
        return make_permute(pairs_of(op), mesh, operands, **rest)
    return make_collective(_KINDS[op.name], groups_of(op, meshes, mesh), mesh, operands, **rest)


def _check_local(op: ir.Operation) -> None:
    """Raises an error if an operation, which is no known collective, may still communicate."""
    known = _LOCAL_OPS.fullmatch(op.name) and not _COMMUNICATING_OPS.fullmatch(op.name)
    if not known or any(attribute in op.attributes for attribute in _COMMUNICATING_ATTRIBUTES):
        raise ValueError(f"inspector: {_where(op)} is not known; what it sends cannot be counted")
    if op.name == "stablehlo.custom_call":
        target = ir.StringAttr(op.attributes["call_target_name"]).value
        if not _LOCAL_CALLS.fullmatch(target):
            raise ValueError(
                f"inspector: {_where(op)} calls {target!r}, which may communicate; "
                "what it sends cannot be counted"
            )


def _check_partitioned(op: ir.Operation) -> None:
    """Raises an error if a collective's groups hold replicas rather than positions in the mesh."""
    attributes = op.attributes
    channel = "channel_handle" in attributes and attributes["channel_handle"]
    if not channel or dialect.ChannelHandle(channel).handle <= 0:
        raise ValueError(f"inspector: {_where(op)} has no channel; call it inside shard_map")
    needs_ids = op.name in (
        "stablehlo.all_reduce",
        "stablehlo.reduce_scatter",
        "stablehlo.all_gather",
    )
    if needs_ids and "use_global_device_ids" not in attributes:
        raise ValueError(
            f"inspector: {_where(op)} groups replicas, not devices; call it inside shard_map"
        )


def groups_of(op: ir.Operation, meshes: Meshes, mesh: Mapping[str, int]) -> list[list[int]]:
    """Returns the groups of positions in the mesh that a collective other than a permute spans.

    Raises:
        ValueError: The groups are spelled in an unknown way.
    """
    attribute = op.attributes["replica_groups"]
    if isinstance(attribute, ir.DenseIntElementsAttr):
        groups = [[position for position in row if position >= 0] for row in _rows(attribute)]
        return groups or [list(range(math.prod(mesh.values())))]
    spelled = re.fullmatch(
        r"#stablehlo\.replica_group_mesh_axes<mesh = @([\w.]+), axes = \[(.*)\]>", str(attribute)
    )
    if spelled and spelled[1] in meshes:
        parts = re.findall(_AXIS_PART, spelled[2])
        known = all(axis in meshes[spelled[1]] for axis, _, _ in parts)
        if known and len(parts) == spelled[2].count("<"):
            return axis_groups(parts, meshes[spelled[1]])
    raise ValueError(f"inspector: {_where(op)} spells its groups {attribute}: not understood")


def pairs_of(op: ir.Operation) -> list[tuple[int, int]]:
    """Returns the (source, target) positions in the mesh of a permute."""
    return [(pair[0], pair[1]) for pair in _rows(op.attributes["source_target_pairs"])]


def _rows(attribute: ir.Attribute) -> list[list[int]]:
    dense = ir.DenseIntElementsAttr(attribute)
    rows, columns = ir.RankedTensorType(dense.type).shape
    flat = [int(number) for number in dense]
    return [flat[row * columns : (row + 1) * columns] for row in range(rows)]


def _where(op: ir.Operation) -> str:
    return f"{op.name} at {source(op.location) or 'an unknown line'}"
