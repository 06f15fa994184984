"""Trip counts: how often a counted loop runs, and how a `stablehlo.while` counts.

A collective inside a loop is counted as often as the loop runs; where that cannot be read from the
program, the number is unknown and never guessed.
"""

import re

from jax.extend.mlir.dialects import stablehlo

from jaxpar.inspector.mlir import array_type, ir

MIRRORED = {"LT": "GT", "GT": "LT", "LE": "GE", "GE": "LE"}


def trip_count(loop: ir.Operation) -> int | None:
    """Returns how often a `stablehlo.while` runs its body; None if its counter does not tell.

    A counter is a carried integer that the condition compares with a constant, and to which the
    body adds a constant.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    compare = producer_of(_returned(condition)[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    attribute = compare.attributes["comparison_direction"]
    direction = stablehlo.ComparisonDirectionAttr(attribute).value
    left, right = compare.operands
    if _argument(left, condition) is None:
        left, right, direction = right, left, MIRRORED.get(direction, direction)
    counter = _argument(left, condition)
    if counter is None:
        return None
    start, stop = constant_of(loop.operands[counter]), constant_of(right)
    step = _step(body, counter)
    if start is None or stop is None or step is None:
        return None
    return count_trips(direction, start, stop, step, array_type(left)[0])


def count_trips(direction: str, start: int, stop: int, step: int, dtype: str) -> int | None:
    """Returns how often a loop runs; None if its counter skips `stop` or overflows.

    Args:
        direction: The loop goes on while the counter compares so with `stop`: "LT", "LE", ...
        start: The counter's first value.
        stop: The value that the counter is compared with.
        step: What each iteration adds to the counter.
        dtype: The counter's dtype.
    """
    integer = re.fullmatch(r"(u?)int(\d+)", dtype)
    if not integer or step == 0:
        return None
    strict, inclusive = ("LT", "LE") if step > 0 else ("GT", "GE")
    if direction == inclusive:
        stop += 1 if step > 0 else -1
    elif direction == "NE":
        if (stop - start) % step or (stop - start) // step < 0:
            return None
    elif direction != strict:
        return None
    trips = max(0, -((start - stop) // step))
    lowest = 0 if integer[1] else -(2 ** (int(integer[2]) - 1))
    overflows = not 0 <= start + trips * step - lowest < 2 ** int(integer[2])
    return None if overflows else trips


def _step(body: ir.Block, counter: int) -> int | None:
    """Returns what the body adds to its carried value `counter`; None if that is no constant."""
    update = producer_of(_returned(body)[counter])
    if update is None or update.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    left, right = update.operands
    if update.name == "stablehlo.add" and _argument(right, body) == counter:
        left, right = right, left
    amount = constant_of(right)
    if _argument(left, body) != counter or amount is None:
        return None
    return amount if update.name == "stablehlo.add" else -amount


def constant_of(value: ir.Value) -> int | None:
    """Returns the constant value of a scalar, also where loops carry it unchanged; else None."""
    while (producer := producer_of(value)) is None:
        argument = ir.BlockArgument(value)
        loop = argument.owner.owner.operation
        if loop.name != "stablehlo.while":
            return None
        body = loop.regions[1].blocks[0]
        if _argument(_returned(body)[argument.arg_number], body) != argument.arg_number:
            return None
        value = loop.operands[argument.arg_number]
    dense = producer.attributes["value"] if producer.name == "stablehlo.constant" else None
    if not isinstance(dense, ir.DenseIntElementsAttr) or ir.RankedTensorType(dense.type).rank:
        return None
    return int(dense[0])


def _returned(block: ir.Block) -> list[ir.Value]:
    return list(block.operations[len(block.operations) - 1].operands)


def producer_of(value: ir.Value) -> ir.Operation | None:
    """The operation that computes a value; None for an argument of a block."""
    owner = value.owner
    return None if isinstance(owner, ir.Block) else owner.operation


def _argument(value: ir.Value, block: ir.Block) -> int | None:
    """The number of the argument of `block` that the value is; None if it is not one."""
    if not isinstance(value, ir.BlockArgument):
        return None
    argument = ir.BlockArgument(value)
    return argument.arg_number if argument.owner == block else None
