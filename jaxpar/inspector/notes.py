"""Describes, in sentences, what is odd in a program, and how the one that XLA runs differs from it.

For the latter it compares the collectives of the three stages that the inspector reads: as written,
just after partitioning, and at the end.
"""

import math
from collections.abc import Iterable, Sequence

from jaxpar.inspector.dtypes import dtype_bits
from jaxpar.inspector.report import Collective, RepeatedSum, short_source


def describe_repeated_sum(one: RepeatedSum) -> str:
    """Says what a sum of equal values makes of them."""
    over = ", ".join(one.equal)
    where = f" at {short_source(one.source)}" if one.source else ""
    effect = f"sum over {over}{where} multiplies by {one.factor}"
    if one.averaged:
        effect = f"mean over {over}{where} changes nothing"
    return f"the {effect}: its operand is equal on the devices of {over} already"


def unexplained(
    written: Iterable[Collective], partitioned: Iterable[Collective]
) -> tuple[Collective, ...]:
    """Returns the collectives after partitioning that no written collective explains.

    Args:
        written: The collectives of the StableHLO, with the axis names of the same mesh.
        partitioned: The collectives of the HLO just after partitioning, in which the length of a
            loop may be unknown although it is known in the StableHLO.
    """
    unmatched = list(written)
    added = []
    for collective in partitioned:
        match = next((one for one in unmatched if _explains(one, collective)), None)
        if match:
            unmatched.remove(match)
        else:
            added.append(collective)
    return tuple(added)


def _explains(written: Collective, partitioned: Collective) -> bool:
    same_times = partitioned.times in (written.times, None)
    return same_times and _identity(written) == _identity(partitioned)


def _identity(one: Collective) -> tuple[object, ...]:
    return one.kind, one.axes, one.group_size, one.dtype, one.operand_bytes, one.pairs


def describe_changes(before: Sequence[Collective], final: Sequence[Collective]) -> tuple[str, ...]:
    """Says which collectives XLA promoted, combined, hoisted, removed or added.

    Args:
        before: The collectives as written, or as the partitioner made them.
        final: The collectives of the HLO that runs.
    """
    promotions, changes = {}, []
    for kind, axes in dict.fromkeys((one.kind, one.axes) for one in (*before, *final)):
        alike_before = [one for one in before if (one.kind, one.axes) == (kind, axes)]
        alike_final = [one for one in final if (one.kind, one.axes) == (kind, axes)]
        promotions |= _promotions(alike_before, alike_final)
        if change := _describe_change(alike_before, alike_final):
            changes.append(f"{kind} over {', '.join(axes)}: {change}")
    return tuple(
        f"XLA sends {narrow} as {wide} on this backend; the tables count {narrow}"
        for narrow, wide in promotions.items()
    ) + tuple(changes)


def _promotions(before: Sequence[Collective], final: Sequence[Collective]) -> dict[str, str]:
    """Maps each dtype that no longer occurs to the wider dtype that has replaced it."""
    gone, present = _dtypes(before) - _dtypes(final), _dtypes(final)
    widest = max(present, key=dtype_bits, default="bool")
    return {dtype: widest for dtype in gone if dtype_bits(dtype) < dtype_bits(widest)}


def _dtypes(collectives: Iterable[Collective]) -> set[str]:
    return {dtype for one in collectives for dtype in one.dtype.split("+")}


def _describe_change(before: Sequence[Collective], final: Sequence[Collective]) -> str:
    """Says what became of the collectives of one kind and axes; "" if nothing has changed."""
    runs_before, runs_final = _executions(before), _executions(final)
    if runs_before == runs_final:
        return ""
    if math.inf in (runs_before, runs_final):
        return f"{len(before)} counted, {len(final)} left, in loops of unknown length"
    counts = f"{runs_before} counted, {runs_final} run: "
    if runs_final > runs_before:
        return counts + "XLA made them from others, or could not merge them"
    if _elements(before) == _elements(final):
        return counts + "XLA combined several into one"
    if max(one.times or 0 for one in before) > max((one.times or 0 for one in final), default=0):
        return counts + "XLA moved some out of a loop, or removed them"
    return counts + "XLA removed those whose result is unused or already there"


def _executions(collectives: Iterable[Collective]) -> int | float:
    return sum(math.inf if one.times is None else one.times for one in collectives)


def _elements(collectives: Iterable[Collective]) -> int | float:
    """The number of operand elements of all executions; NaN for a tuple of mixed dtypes."""
    return sum(
        math.nan if "+" in one.dtype else one.operand_bytes * 8 // dtype_bits(one.dtype) * one.times
        for one in collectives
        if one.times is not None
    )
