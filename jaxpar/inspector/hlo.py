"""Reads the collectives and flops of HLO: what each device does after XLA has partitioned it.

This is the inspector's second front end, for programs that the compiler splits. The first one,
`stablehlo`, reads what a program's author wrote.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from jaxpar.inspector.dtypes import dtype_name
from jaxpar.inspector.groups import axis_groups, make_collective, make_permute
from jaxpar.inspector.hlo_text import Computation, HloText, Instruction, parse_hlo, shapes_of
from jaxpar.inspector.loops import MIRRORED, count_trips
from jaxpar.inspector.report import Collective, Kind

_KINDS: dict[str, Kind] = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
    "collective-broadcast": "broadcast",
}
_COMMUNICATES = re.compile(r"(send|recv|infeed|outfeed|ragged|collective|all-|cross-).*")
_RANGE = r"\[([\d,]+)\](?:T\(([\d,]+)\))?"
_CALLS = {"call": "to_apply", "async-start": "calls", "fusion": "calls"}
_BRANCHES = ("branch_computations", "true_computation", "false_computation")


@dataclass(frozen=True)
class HloSite:
    """An instruction as the run of a program reaches it.

    Attributes:
        instruction: The instruction.
        computation: The computation that it is in.
        times: How often it runs in one run of the program; None if that is not known.
        conditional: Whether it is inside a branch of a conditional.
    """

    instruction: Instruction
    computation: Computation
    times: int | None
    conditional: bool


def walk_hlo(module: HloText) -> Iterator[HloSite]:
    """Yields the instructions that a run reaches, in order; a call is followed by what it calls."""

    def visit(name: str, times: int | None, conditional: bool) -> Iterator[HloSite]:
        computation = module.computations[name]
        for instruction in computation.instructions.values():
            yield HloSite(instruction, computation, times, conditional)
            opcode = instruction.opcode
            if opcode == "while":
                trips = trip_count(instruction, computation, module)
                checks = None if trips is None else trips + 1
                for part, runs in (("condition", checks), ("body", trips)):
                    total = None if times is None or runs is None else times * runs
                    yield from visit(instruction.called(part)[0], total, conditional)
            elif opcode == "conditional":
                for part in _BRANCHES:
                    for branch in instruction.called(part):
                        yield from visit(branch, times, True)
            elif opcode in _CALLS:
                yield from visit(instruction.called(_CALLS[opcode])[0], times, conditional)

    yield from visit(module.entry, 1, False)


def trip_count(loop: Instruction, around: Computation, module: HloText) -> int | None:
    """Returns how often a loop's body runs; None if neither XLA's note nor its counter tells.

    Args:
        loop: A `while`.
        around: The computation that it is in.
        module: The program.
    """
    if noted := re.search(r'"known_trip_count":\{"n":"(\d+)"\}', loop.backend_config):
        return int(noted[1])
    condition, body = (module.computations[loop.called(part)[0]] for part in ("condition", "body"))
    compare = condition.root
    if compare.opcode != "compare":
        return None
    left, right = compare.operands
    direction = compare.attribute("direction", r"\w+")
    if _element(left, condition) is None:
        left, right, direction = right, left, MIRRORED.get(direction, direction)
    counter = _element(left, condition)
    if counter is None:
        return None
    carried = around.instructions[loop.operands[0]]
    if carried.opcode != "tuple":
        return None
    start = _constant(carried.operands[counter], around)
    stop, step = _constant(right, condition), _step(counter, body)
    if start is None or stop is None or step is None:
        return None
    return count_trips(direction, start, stop, step, dtype_name(loop.shapes[counter][0]))


def _step(counter: int, body: Computation) -> int | None:
    """Returns what the body adds to its carried value `counter`; None if that is no constant."""
    update = body.instructions.get(body.root.operands[counter])
    if update is None or update.opcode not in ("add", "subtract"):
        return None
    left, right = update.operands
    if update.opcode == "add" and _element(right, body) == counter:
        left, right = right, left
    amount = _constant(right, body)
    if _element(left, body) != counter or amount is None:
        return None
    return amount if update.opcode == "add" else -amount


def _constant(name: str, computation: Computation) -> int | None:
    instruction = computation.instructions.get(name)
    while instruction and instruction.opcode == "copy":
        instruction = computation.instructions.get(instruction.operands[0])
    if instruction is None or instruction.opcode != "constant":
        return None
    (value,) = instruction.operands or ("",)
    return int(value) if re.fullmatch(r"-?\d+", value) else None


def _element(name: str, computation: Computation) -> int | None:
    """The index of the element of the computation's parameter that has this name, if it is one."""
    instruction = computation.instructions.get(name)
    if instruction and instruction.opcode == "get-tuple-element":
        name = instruction.operands[0] + "#" + instruction.attribute("index", r"\d+")
    owner, _, index = name.partition("#")
    parameter = computation.instructions.get(owner)
    is_element = index and parameter and parameter.opcode == "parameter"
    return int(index) if is_element else None


def read_hlo(text: str, mesh: Mapping[str, int]) -> tuple[Collective, ...]:
    """Returns the collectives that one run executes, in program order.

    Args:
        text: The HLO module, printed after SPMD partitioning.
        mesh: The names and sizes of the mesh's axes, in order.

    Raises:
        ValueError: Something communicates, or may communicate, in an unknown way.
    """
    module = parse_hlo(text)
    found = (_collective(site, module, mesh) for site in walk_hlo(module))
    return tuple(collective for collective in found if collective)


def count_hlo_flops(text: str) -> int | None:
    """Returns one device's flops in matrix products and convolutions; None if they are not known.

    Every branch of a conditional counts.
    """
    total = 0
    for site in walk_hlo(parse_hlo(text)):
        if count := _FLOPS.get(site.instruction.opcode):
            if site.times is None:
                return None
            total += site.times * count(site.instruction, site.computation)
    return total


def _dot_flops(dot: Instruction, computation: Computation) -> int:
    ((_, left),) = shapes_of(dot.operands[0], computation)
    ((_, result),) = dot.shapes
    dims = re.findall(r"\d+", dot.attribute("lhs_contracting_dims", r"\{[\d,]*\}"))
    return 2 * math.prod(result) * math.prod(left[int(dim)] for dim in dims)


def _convolution_flops(convolution: Instruction, computation: Computation) -> int:
    ((_, kernel),) = shapes_of(convolution.operands[1], computation)
    ((_, result),) = convolution.shapes
    labels = convolution.attribute("dim_labels", r"\w+").split("_")[1]
    return 2 * math.prod(result) * math.prod(kernel) // kernel[labels.index("o")]


_FLOPS = {"dot": _dot_flops, "convolution": _convolution_flops}


def _collective(site: HloSite, module: HloText, mesh: Mapping[str, int]) -> Collective | None:
    instruction = site.instruction
    opcode = instruction.opcode.removesuffix("-start")
    if opcode not in _KINDS:
        if _COMMUNICATES.fullmatch(opcode) and not opcode.endswith(("-done", "-update")):
            raise ValueError(f"inspector: HLO {opcode!r} is not known; its bytes are not counted")
        return None
    rest = {
        "times": site.times,
        "conditional": site.conditional,
        "source": module.frames.get(instruction.attribute("stack_frame_id", r"\d+")),
    }
    operands = [
        (dtype_name(dtype), math.prod(sizes))
        for operand in instruction.operands
        for dtype, sizes in shapes_of(operand, site.computation)
    ]
    if _KINDS[opcode] == "permute":
        numbers = instruction.attribute("source_target_pairs", r"\{[\d,{}]*\}")
        pairs = [(int(a), int(b)) for a, b in re.findall(r"\{(\d+),(\d+)\}", numbers)]
        return make_permute(pairs, mesh, operands, **rest)
    return make_collective(_KINDS[opcode], _groups(instruction, mesh), mesh, operands, **rest)


def _groups(instruction: Instruction, mesh: Mapping[str, int]) -> list[list[int]]:
    """The positions of each group, in any of HLO's three spellings.

    These are a list, as in {{0,1},{2,3}}; a tiled range, as in [2,2]<=[4]; and axes, as in
    mesh['x'=2,'y'=2] {'y'}.
    """
    spelled = instruction.attribute("replica_groups", r".*?(?=, (?!device_ids)\w+=|$)")
    if re.fullmatch(r"\{[\d,{}]*\}", spelled):
        listed = [_numbers(row) for row in re.findall(r"\{([\d,]+)\}", spelled)]
        return listed or [list(range(math.prod(mesh.values())))]
    if tiles := re.fullmatch(rf"\[\d+,(\d+)\]<={_RANGE}", spelled):
        return _range(tiles[2], tiles[3]).reshape(-1, int(tiles[1])).tolist()
    if axes := re.fullmatch(
        rf"mesh\[([^\]]*)\](?:, device_ids=\({_RANGE}\))? \{{([^{{}}]*)\}}", spelled
    ):
        sizes = {axis: int(size) for axis, size in re.findall(r"'([^']*)'=(\d+)", axes[1])}
        parts = re.findall(r"'([^']*)'(?::\((\d+)\)(\d+))?", axes[4])
        if all(axis in sizes for axis, _, _ in parts):
            positions = _range(axes[2] or str(math.prod(sizes.values())), axes[3]).ravel()
            return [positions[group].tolist() for group in axis_groups(parts, sizes)]
    raise ValueError(f"inspector: HLO replica_groups={spelled!r} have a form that is not known")


def _numbers(text: str | None) -> list[int]:
    return [int(number) for number in (text or "").split(",") if number]


def _range(shape: str, order: str | None) -> np.ndarray:
    """The positions 0, 1, ... in an array of this shape, transposed to this order of its dims."""
    sizes = _numbers(shape)
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(_numbers(order) or None)
