"""How often an HLO `while` runs: as XLA noted, else read from its counter."""

import re

from jaxpar.inspector.dtypes import dtype_name
from jaxpar.inspector.hlo_text import Computation, HloText, Instruction
from jaxpar.inspector.loops import MIRRORED, count_trips


def trip_count(loop: Instruction, around: Computation, module: HloText) -> int | None:
    """Returns how often the loop's body runs; None if neither XLA nor its counter says.

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
    """What the body adds to its carried value, if that is a constant."""
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
    """Which element of the computation's one parameter a name stands for; None if none."""
    instruction = computation.instructions.get(name)
    if instruction and instruction.opcode == "get-tuple-element":
        name = instruction.operands[0] + "#" + instruction.attribute("index", r"\d+")
    owner, _, index = name.partition("#")
    parameter = computation.instructions.get(owner)
    is_element = index and parameter and parameter.opcode == "parameter"
    return int(index) if is_element else None
