"""How what XLA runs differs from what was written, in sentences."""

import math
from collections.abc import Iterable, Sequence

from jaxpar.inspector.dtypes import dtype_bits
from jaxpar.inspector.report import Collective


def unexplained(
    written: Iterable[Collective], partitioned: Iterable[Collective]
) -> tuple[Collective, ...]:
    """Returns the collectives after partitioning that no written one accounts for.

    Args:
        written: Of the StableHLO, its axes named after the same mesh.
        partitioned: Of the HLO just after partitioning, where XLA may know a loop's length less
            well.
    """
    left = [(_identity(collective), collective.times) for collective in written]
    added = []
    for collective in partitioned:
        identity, times = _identity(collective), collective.times
        match = next((one for one in left if one[0] == identity and times in (one[1], None)), None)
        if match:
            left.remove(match)
        else:
            added.append(collective)
    return tuple(added)


def _identity(one: Collective) -> tuple[object, ...]:
    return one.kind, one.axes, one.group_size, one.dtype, one.operand_bytes, one.pairs


def what_xla_did(before: Sequence[Collective], final: Sequence[Collective]) -> tuple[str, ...]:
    """Says what XLA promoted, combined, hoisted, removed or added.

    Args:
        before: The collectives as written or as partitioning made them.
        final: The collectives of the HLO that runs.
    """
    promotions, changes = {}, []
    for kind, axes in dict.fromkeys((one.kind, one.axes) for one in (*before, *final)):
        mine, theirs = (
            [one for one in ones if (one.kind, one.axes) == (kind, axes)]
            for ones in (before, final)
        )
        promotions |= _promotions(mine, theirs)
        if change := _change(mine, theirs):
            changes.append(f"{kind} over {', '.join(axes)}: {change}")
    return tuple(
        f"XLA sends {narrow} as {wide} on this backend; the tables count {narrow}"
        for narrow, wide in promotions.items()
    ) + tuple(changes)


def _promotions(before: Sequence[Collective], final: Sequence[Collective]) -> dict[str, str]:
    """Dtypes that are gone, each with the wider one that is there instead."""
    gone, there = _dtypes(before) - _dtypes(final), _dtypes(final)
    widest = max(there, key=dtype_bits, default="bool")
    return {dtype: widest for dtype in gone if dtype_bits(dtype) < dtype_bits(widest)}


def _dtypes(collectives: Iterable[Collective]) -> set[str]:
    return {dtype for one in collectives for dtype in one.dtype.split("+")}


def _change(before: Sequence[Collective], final: Sequence[Collective]) -> str:
    """What became of the collectives of one kind and axes; "" if nothing."""
    runs_before, runs_final = _executions(before), _executions(final)
    if runs_before == runs_final:
        return ""
    if math.inf in (runs_before, runs_final):
        return f"{len(before)} counted, {len(final)} left, in loops of unknown length"
    counts = f"{runs_before} counted, {runs_final} run: "
    if runs_final > runs_before:
        return counts + "XLA made them from others, or could not share them"
    if _elements(before) == _elements(final):
        return counts + "XLA combined several into one"
    if max(one.times or 0 for one in before) > max((one.times or 0 for one in final), default=0):
        return counts + "XLA moved some out of a loop, or removed them"
    return counts + "XLA removed those whose result is unused or already there"


def _executions(collectives: Iterable[Collective]) -> int | float:
    return sum(math.inf if one.times is None else one.times for one in collectives)


def _elements(collectives: Iterable[Collective]) -> int | float:
    """Elements given in by all executions, whatever their dtype; NaN for mixed tuples."""
    return sum(
        math.nan if "+" in one.dtype else one.operand_bytes * 8 // dtype_bits(one.dtype) * one.times
        for one in collectives
        if one.times is not None
    )
