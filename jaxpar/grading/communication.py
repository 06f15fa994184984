"""Whether a program sends more than its contract allows, and if so, where.

`properties` calls this with the collectives that the reader counted, and makes a finding of the
first excess.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jaxpar.contracts.base import Communication, Limit
from jaxpar.contracts.case import Sizes
from jaxpar.grading.verdict import in_bytes
from jaxpar.inspector.report import Collective

FREE_BYTES = 8
FREE_TIMES = 8
FREE_WIRE_BYTES = 64
SLACK_BYTES = 0.5
SAME_AS_ALL_REDUCE = ("all_reduce", "reduce_scatter", "all_gather")

Totals = dict[str, float]
"""Wire bytes over each axis."""

Loads = defaultdict[tuple[str, str, int], float]
"""Wire bytes by axis, way (sends, receives, or both for everyone) and position on the axis."""


@dataclass(frozen=True)
class Excess:
    """What a program sends beyond a rule."""

    message: str
    expected: str


def describe(collectives: Iterable[Collective]) -> str:
    """Says in one line what a program sends: kinds, axes, how often, bytes on the wire."""
    groups: Counter[tuple] = Counter()
    for c in collectives:
        key = (c.kind, c.axes, c.dtype, c.operand_bytes, c.wire_bytes, c.times is None)
        groups[key] += c.times or 1
    lines = [
        f"{'unknown times' if unknown else times} x {kind} over {'+'.join(axes)} of "
        f"{in_bytes(operand)} ({in_bytes(wire)} on the wire)"
        for (kind, axes, _, operand, wire, unknown), times in groups.items()
    ]
    return "; ".join(lines) or "nothing"


def in_short(collectives: Iterable[Collective]) -> str:
    """Says how often each kind is called, and the bytes of all on the wire."""
    times: Counter[str] = Counter()
    sent = 0.0
    for c in collectives:
        times[c.kind] += c.times or 1
        sent += c.total_wire_bytes or 0
    kinds = ", ".join(f"{count} x {kind}" for kind, count in times.items())
    return f"{kinds}, {in_bytes(sent)}" if kinds else "nothing"


def charged(
    rule: Communication, collectives: Sequence[Collective], passes: int = 1
) -> list[Collective]:
    """Returns the collectives that count under a rule; a few scalars are free in each pass.

    Where nothing may be sent, not even scalars are free.
    """
    if not any(rule.forward):
        return list(collectives)
    small = [c for c in collectives if c.operand_bytes <= FREE_BYTES and c.times is not None]
    times = sum(c.times or 0 for c in small)
    sent = sum(c.total_wire_bytes or 0 for c in small)
    if times > passes * FREE_TIMES or sent > passes * FREE_WIRE_BYTES:
        return list(collectives)
    return [c for c in collectives if c not in small]


def wire_by_axis(collectives: Iterable[Collective]) -> Totals:
    """Returns the busiest device's wire bytes over each axis.

    A collective over two axes counts for both of them.
    """
    return _busiest(_loads(collectives))


def wire_bytes(collectives: Iterable[Collective]) -> float:
    """Returns the busiest device's wire bytes in all; what goes over two axes counts once."""
    return sum(wire_by_axis(replace(c, axes=("+".join(c.axes),)) for c in collectives).values())


def _loads(collectives: Iterable[Collective]) -> Loads:
    """Returns what each device sends and receives; a permute counts for devices in its pairs."""
    loads: Loads = defaultdict(float)
    for c in collectives:
        total = float("inf") if c.times is None else c.times * c.wire_bytes
        for axis in c.axes:
            if c.pairs is None or len(c.axes) > 1:
                loads[axis, "everyone", 0] += total
                continue
            for source, target in c.pairs:
                loads[axis, "sends", source] += total
                loads[axis, "receives", target] += total
    return loads


def _busiest(loads: Loads) -> Totals:
    everyone = {axis: loads.get((axis, "everyone", 0), 0.0) for axis, _, _ in loads}
    totals = dict(everyone)
    for (axis, way, _), total in loads.items():
        if way != "everyone":
            totals[axis] = max(totals[axis], everyone[axis] + total)
    return totals


def forward_excess(
    rule: Communication, sizes: Sizes, collectives: Sequence[Collective]
) -> Excess | None:
    """Returns what the forward program sends beyond the nearest alternative; None if nothing."""
    return _nearest(rule.forward, sizes, charged(rule, collectives))


def backward_excess(
    rule: Communication,
    sizes: Sizes,
    forward: Sequence[Collective],
    both: Sequence[Collective],
    reference: Totals,
) -> Excess | None:
    """Returns what the backward pass sends beyond its rule.

    The backward pass is what the gradient program sends and the forward program does not.
    """
    if not isinstance(rule.backward, str):
        return _nearest(
            rule.backward, sizes, _without(charged(rule, both, 2), charged(rule, forward))
        )
    allowed = dict(reference)
    if rule.backward == "forward":
        for option in rule.forward:
            for axis, sent in _option_totals(option, sizes).items():
                allowed[axis] = max(allowed.get(axis, 0.0), sent)
    loads = _loads(charged(rule, both, 2))
    for place, sent in _loads(charged(rule, forward)).items():
        loads[place] -= sent
    for axis, backward in _busiest(loads).items():
        limit = allowed.get(axis, 0.0)
        if not backward <= limit + SLACK_BYTES:
            message = (
                f"on {sizes.case.mesh}, the backward pass puts {in_bytes(backward)} on the wire "
                f"over {axis}; at most {in_bytes(limit)} are needed"
            )
            return Excess(message, f"backward: {in_bytes(limit)} over {axis}")
    return None


def _option_totals(option: Sequence[Limit], sizes: Sizes) -> Totals:
    totals: Totals = {}
    for limit in option:
        if limit.over is None:  # no axis has a bound of its own
            continue
        axis = sizes.case.kwargs[limit.over]
        both_ways = 2 if limit.each_way else 1
        totals[axis] = totals.get(axis, 0.0) + both_ways * limit.wire_bytes(sizes)
    return totals


def _without(both: Sequence[Collective], forward: Sequence[Collective]) -> list[Collective]:
    """Returns the collectives of both passes, less as many alike as the forward pass has."""
    left = Counter(map(_shape, forward))
    result = []
    for c in both:
        if left[_shape(c)]:
            left[_shape(c)] -= 1
        else:
            result.append(c)
    return result


def _shape(c: Collective) -> tuple:
    return c.kind, c.axes, c.operand_bytes, c.times


def _nearest(
    options: Sequence[Sequence[Limit]], sizes: Sizes, collectives: Sequence[Collective]
) -> Excess | None:
    excesses = [_option_excess(option, sizes, collectives) for option in options]
    if any(not found for found in excesses):
        return None
    return min(excesses, key=len)[0]


def _option_excess(
    option: Sequence[Limit], sizes: Sizes, collectives: Sequence[Collective]
) -> list[Excess]:
    """Returns every way in which the collectives break one alternative."""
    under: dict[int, list[Collective]] = {i: [] for i in range(len(option))}
    found: list[Excess] = []
    for c in collectives:
        index = next((i for i, limit in enumerate(option) if _covers(limit, sizes, c)), None)
        if index is None:
            found.append(_unlisted(sizes, c))
        elif c.times is None:
            message = f"{c.kind} over {'+'.join(c.axes)} is in a loop of unknown length{_at(c)}"
            found.append(Excess(message, "a number of trips known when traced"))
        else:
            under[index].append(c)
    for i, limit in enumerate(option):
        found += _limit_excess(limit, sizes, under[i])
    return found


def _covers(limit: Limit, sizes: Sizes, c: Collective) -> bool:
    kinds = limit.kinds
    if "all_reduce" in kinds and not limit.exact:
        kinds = (*kinds, *SAME_AS_ALL_REDUCE)
    over = c.axes if limit.over is None else (sizes.case.kwargs[limit.over],)
    return c.kind in kinds and c.axes == over


def _unlisted(sizes: Sizes, c: Collective) -> Excess:
    message = (
        f"on {sizes.case.mesh}, {c.kind} over {'+'.join(c.axes)} of {in_bytes(c.operand_bytes)}"
        f"{_at(c)} is not among what this exercise may send"
    )
    return Excess(message, "")


def _limit_excess(limit: Limit, sizes: Sizes, collectives: list[Collective]) -> list[Excess]:
    if limit.over is None:
        return _excess_in_all(limit, sizes, collectives)
    n = sizes.n(limit.over)
    if limit.neighbours:
        far = next((c for c in collectives if not _to_neighbours(c, n)), None)
        if far is not None:
            message = f"on {sizes.case.mesh}, a permute{_at(far)} goes beyond the next device"
            return [Excess(message, "pairs (i, i+1) or (i, i-1), modulo n")]
    ways = _by_way(collectives, n) if limit.each_way else [("", collectives)]
    found = []
    for way, group in ways:
        sent = wire_by_axis(group).get(sizes.case.kwargs[limit.over], 0.0)
        allowed = limit.wire_bytes(sizes)
        if sent > allowed + SLACK_BYTES:
            message = (
                f"on {sizes.case.mesh}, {in_bytes(sent)} go over the wire{way}; "
                f"{in_bytes(allowed)} are enough"
            )
            found.append(Excess(message, f"at most {in_bytes(allowed)}{way}"))
        times = sum(c.times for c in group if c.times is not None)
        if limit.times is not None and times > limit.times(sizes):
            message = f"on {sizes.case.mesh}, {times} steps{way}; {limit.times(sizes)} are enough"
            found.append(Excess(message, f"at most {limit.times(sizes)} steps{way}"))
    return found + _operands_excess(limit, sizes, collectives)


def _excess_in_all(limit: Limit, sizes: Sizes, collectives: list[Collective]) -> list[Excess]:
    sent, allowed = wire_bytes(collectives), limit.wire_bytes(sizes)
    if sent <= allowed + SLACK_BYTES:
        return []
    message = f"on {sizes.case.mesh}, {in_bytes(sent)} go over the wire over all axes; "
    return [
        Excess(f"{message}{in_bytes(allowed)} are allowed", f"at most {in_bytes(allowed)} in all")
    ]


def _operands_excess(limit: Limit, sizes: Sizes, collectives: list[Collective]) -> list[Excess]:
    if limit.operand_bytes is None:
        return []
    allowed = sorted(limit.operand_bytes(sizes), reverse=True)
    times = sum(c.times for c in collectives if c.times is not None)
    expected = f"one of each: {', '.join(map(in_bytes, allowed))}"
    if times > len(allowed):
        message = f"on {sizes.case.mesh}, {times} collectives; {len(allowed)} are enough"
        return [Excess(message, expected)]
    taken = [c.operand_bytes for c in collectives for _ in range(c.times or 0)]
    for got, bound in zip(sorted(taken, reverse=True), allowed, strict=False):
        if got > bound:
            message = (
                f"on {sizes.case.mesh}, a collective takes {in_bytes(got)} where "
                f"{in_bytes(bound)} are enough"
            )
            return [Excess(message, expected)]
    return []


def _to_neighbours(c: Collective, n: int) -> bool:
    return c.pairs is not None and all((b - a) % n in (1, n - 1) for a, b in c.pairs)


def _by_way(collectives: list[Collective], n: int) -> list[tuple[str, list[Collective]]]:
    """Divides permutes into those to the next and to the previous device; some are in both."""
    up = [c for c in collectives if c.pairs and any((b - a) % n == 1 for a, b in c.pairs)]
    down = [c for c in collectives if c.pairs and any((b - a) % n != 1 for a, b in c.pairs)]
    return [(" to the next device", up), (" to the previous device", down)]


def _at(c: Collective) -> str:
    return f" ({c.source})" if c.source else ""
