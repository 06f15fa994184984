"""What a program may contain, checked in its bytes before anything compiles them.

The reader calls this for every program before it counts, compiles or runs it: the bytes may come
from a stranger, and nothing that they declare about themselves is believed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import jax
import numpy as np

from jaxpar.contracts.case import Case
from jaxpar.grading.program_export import Interface
from jaxpar.inspector.mlir import array_size, array_type, ir, operations
from jaxpar.inspector.stablehlo import module_meshes
from jaxpar.inspector.walk import check_size

MAX_TENSOR_ELEMENTS = 1 << 28
MAX_NAME_CHARACTERS = 4096
ALLOWED = re.compile(
    r"builtin\.module|func\.(func|call|return)|sdy\.(mesh|manual_computation|return)|chlo\.\w+"
    r"|stablehlo\.\w+"
)
REFUSED = re.compile(
    r"stablehlo\.(custom_call|infeed|outfeed|send|recv|rng\w*|cross\w*|async\w*|after_all"
    r"|create_token|real_dynamic_slice|set_dimension_size|get_dimension_size|replica_id"
    r"|dynamic_(?!slice$|update_slice$)\w+)|chlo\.dynamic\w*"
)


class Refused(ValueError):
    """The program will not be run; the message says why."""


def check_program(module: ir.Module, case: Case, interface: Interface) -> None:
    """Checks every operation, and that `main` is one manual computation with this interface.

    Nothing in the module about its layout is believed: sizes, shardings and types must be those
    of the contract, axis for axis by position.

    Raises:
        Refused: the program contains anything else.
    """
    for op in operations(module.operation):
        _check_operation(op)
    try:
        check_size(module)
        meshes = module_meshes(module)
    except ValueError as error:
        raise Refused(str(error)) from None
    sizes, *others = meshes.values()
    if list(sizes.values()) != list(case.sizes.values()) or any(o != sizes for o in others):
        raise Refused(f"the program is for {meshes}, not for one mesh {case.mesh}")
    _check_main(module, interface, dict(zip(case.sizes, sizes, strict=True)))


def _check_operation(op: ir.Operation) -> None:
    if not ALLOWED.fullmatch(op.name) or REFUSED.fullmatch(op.name):
        raise Refused(f"the program contains {op.name}, which is not allowed")
    for value in (*op.results, *(a for r in op.regions for b in r for a in b.arguments)):
        try:
            _, elements = array_size(value)
        except ValueError as error:
            raise Refused(str(error)) from None
        if elements > MAX_TENSOR_ELEMENTS:
            raise Refused(f"the program holds an array of {elements} elements")
    if "sym_name" in op.attributes and len(str(op.attributes["sym_name"])) > MAX_NAME_CHARACTERS:
        raise Refused("the program contains a name that is too long")


def _check_main(module: ir.Module, interface: Interface, names: dict[str, str]) -> None:
    """Checks that `main` holds constants, one manual computation over every axis, and a return."""
    main = next(
        op.operation
        for op in module.body
        if op.operation.name == "func.func"
        and ir.StringAttr(op.operation.attributes["sym_name"]).value == "main"
    )
    block = main.regions[0].blocks[0]
    *constants, manual, last = [op.operation for op in block.operations]
    shape = [op.name for op in (*constants, manual, last)]
    expected = ["stablehlo.constant"] * len(constants)
    if shape != [*expected, "sdy.manual_computation", "func.return"]:
        raise Refused("the program does more than one computation over the mesh")
    if list(last.operands) != list(manual.results):
        raise Refused("the program returns something other than what the devices computed")
    axes = re.findall(r'"([^"]*)"', str(manual.attributes["manual_axes"]))
    if sorted(axes) != sorted(names.values()):
        raise Refused(f"the program is manual over {axes} only")

    inputs, results = interface.inputs, interface.results
    arguments = list(block.arguments)
    _check_types("argument", arguments, inputs)
    _check_types("result", list(manual.results), results)
    for kind, structs in (("arg_attrs", inputs), ("res_attrs", results)):
        found = (
            [_declared(attrs) for attrs in ir.ArrayAttr(main.attributes[kind])] if structs else []
        )
        if found != [f"#sdy.sharding{_layout(s, names)}" for s in structs]:
            raise Refused(f"{kind} of the program have other shardings than the contract's")
    whole = {value: f"<@mesh, [{', '.join(['{}'] * _rank(value))}]>" for value in manual.operands}
    given = dict(zip(arguments, (_layout(s, names) for s in inputs), strict=True))
    _check_shardings(manual, "in_shardings", [given.get(v, whole[v]) for v in manual.operands])
    _check_shardings(manual, "out_shardings", [_layout(s, names) for s in results])


def _check_types(
    what: str, values: Sequence[ir.Value], structs: Sequence[jax.ShapeDtypeStruct]
) -> None:
    found = [array_type(value) for value in values]
    expected = [(np.dtype(s.dtype).name, tuple(s.shape)) for s in structs]
    if found != expected:
        raise Refused(f"{what}s of the program are {found}, not {expected}")


def _check_shardings(manual: ir.Operation, attribute: str, expected: list[str]) -> None:
    text = _spelled(manual.attributes[attribute])
    if text != f"#sdy.sharding_per_value<[{', '.join(expected)}]>":
        raise Refused(f"{attribute} of the program are {text}, not {expected}")


def _declared(attributes: ir.Attribute) -> str:
    found = ir.DictAttr(attributes)
    return _spelled(found["sdy.sharding"]) if "sdy.sharding" in found else ""


def _spelled(attribute: ir.Attribute) -> str:
    """Returns the text of an attribute with one name for all meshes, which were found equal."""
    return re.sub(r"<@[\w.$-]+, ", "<@mesh, ", str(attribute))


def _layout(struct: jax.ShapeDtypeStruct, names: dict[str, str]) -> str:
    """Returns the sharding as the module must spell it, with its own names for the axes."""
    entries = [*struct.sharding.spec, *[None] * len(struct.shape)][: len(struct.shape)]
    dims = []
    for entry in entries:
        axes = (entry,) if isinstance(entry, str) else entry or ()
        dims.append("{" + ", ".join(f'"{names[axis]}"' for axis in axes) + "}")
    return f"<@mesh, [{', '.join(dims)}]>"


def _rank(value: ir.Value) -> int:
    return len(array_type(value)[1])
