"""Collectives and flops of HLO text: what each device does once XLA has split the program."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from jaxpar.inspector.dtypes import dtype_name
from jaxpar.inspector.groups import axis_groups, grouped, permuted
from jaxpar.inspector.hlo_loops import trip_count
from jaxpar.inspector.hlo_text import Computation, HloText, Instruction, parse_hlo, shapes_of
from jaxpar.inspector.report import Collective, Kind

_KINDS: dict[str, Kind] = {
    "all-reduce": "all_reduce",
    "reduce-scatter": "reduce_scatter",
    "all-gather": "all_gather",
    "all-to-all": "all_to_all",
    "collective-permute": "permute",
    "collective-broadcast": "broadcast",
}
_TALKING = re.compile(r"(send|recv|infeed|outfeed|ragged|collective|all-|cross-).*")
_RANGE = r"\[([\d,]+)\](?:T\(([\d,]+)\))?"
_CALLS = {"call": "to_apply", "async-start": "calls", "fusion": "calls"}
_BRANCHES = ("branch_computations", "true_computation", "false_computation")


@dataclass(frozen=True)
class HloSite:
    """An instruction where a run meets it; fields as in `walk.Site`."""

    instruction: Instruction
    computation: Computation
    times: int | None
    conditional: bool


def walk_hlo(module: HloText) -> Iterator[HloSite]:
    """Yields what the entry computation runs, each call followed by what it calls.

    Args:
        module: The program.
    """

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


def read_hlo(text: str, mesh: Mapping[str, int]) -> tuple[Collective, ...]:
    """Returns the collectives that one run executes, in program order.

    Args:
        text: The HLO module, printed after it was split over devices.
        mesh: Names and sizes of the axes, by position.

    Raises:
        ValueError: Something communicates, or may, in a way that is not understood.
    """
    module = parse_hlo(text)
    found = (_collective(site, module, mesh) for site in walk_hlo(module))
    return tuple(collective for collective in found if collective)


def count_hlo_flops(text: str) -> int | None:
    """Returns one device's flops of matrix products and convolutions; None if not known.

    Every branch of a conditional counts.

    Args:
        text: The HLO module, printed after it was split over devices.
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
        if _TALKING.fullmatch(opcode) and not opcode.endswith(("-done", "-update")):
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
        return permuted(pairs, mesh, operands, **rest)
    return grouped(_KINDS[opcode], _groups(instruction, mesh), mesh, operands, **rest)


def _groups(instruction: Instruction, mesh: Mapping[str, int]) -> list[list[int]]:
    """Positions of each group, from any of HLO's spellings: a list, a range in tiles, axes."""
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
    """Positions 0, 1, ... in that shape, its dims then taken in that order."""
    sizes = _numbers(shape)
    return np.arange(math.prod(sizes)).reshape(sizes).transpose(_numbers(order) or None)
