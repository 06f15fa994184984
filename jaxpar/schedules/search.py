"""Searches the shortest schedule for given costs and a limit of activations in flight.

First come the published schedules that keep the limit. Then schedules are built in the order of
time, each by another rule for what comes first. At last, the best rule is departed from: many
partial schedules grow side by side, and those that promise most are kept. If none had to be
dropped, no schedule is shorter.

Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 3
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import NamedTuple

from jaxpar.schedules.bounds import Bounds
from jaxpar.schedules.generators import LOOPED, NAMES, V_SHAPED, limited_schedule, make_table
from jaxpar.schedules.partial import Choice, Partial, Problem
from jaxpar.schedules.rules import check
from jaxpar.schedules.simulator import Costs, Number, Simulation, simulate
from jaxpar.schedules.table import Table

ONE_STAGE = tuple(name for name in NAMES if name not in (*LOOPED, *V_SHAPED))
"""The published schedules in which each device holds one stage."""

MOST_FORWARDS = 10_000
EFFORT = 400_000  # what takes 1 or 2 seconds; in tests less
# What `Rule` means by them; the first ones do well most often.
DEPTHS = (1.5, 0.9, 2, 0.6, 1.25, 0.8, 3, 0.7, 1.1, 0.4)
PATIENCE = (0.5, 0, 0.25, 1)
ROUNDING = 1e-9


@dataclass(frozen=True)
class Found:
    """The shortest schedule that was found.

    Attributes:
        simulation: The schedule, and when its actions run.
        limit: The most microbatches that it was allowed to have in flight on a device.
        span: Whether its length is the longest span of a device, and not its makespan.
        length: How long it is.
        least: No schedule of the same sizes, with one stage on each device, is shorter than this
            within the limit.
        named: The published schedules with one stage on each device, within the limit or not.
    """

    simulation: Simulation
    limit: int
    span: bool
    length: Number
    least: Number
    named: dict[str, Simulation]

    @property
    def is_shortest(self) -> bool:
        """Whether it is proved that no schedule is shorter."""
        return self.length <= self.least * (1 + ROUNDING)


def search_schedule(
    stages: int,
    microbatches: int,
    limit: int | None = None,
    costs: Costs | None = None,
    *,
    span: bool = False,
) -> Found:
    """Searches the shortest schedule in which no device has more than `limit` in flight.

    Each device holds one stage. A microbatch is in flight on a device from the start of its F to
    the end of its B, or of its W where the backward is split. No published schedule with one stage
    on each device is shorter, if it keeps the limit.

    Args:
        stages: The number of devices.
        microbatches: Their number.
        limit: In microbatches; `stages` unless given, which is what 1F1B needs.
        costs: The time of each kind of action, and of a transfer.
        span: Whether to shorten the longest time from a device's own first action to its last, and
            not the makespan. It counts where no device waits for the others between two steps.

    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 3

    Raises:
        ValueError: no schedule keeps the limit, or there are too few or too many microbatches.
    """
    costs, limit = costs or Costs(), stages if limit is None else limit
    _check_sizes(stages, microbatches, limit)
    named = {name: simulate(make_table(name, stages, microbatches), costs) for name in ONE_STAGE}
    known = [one for one in named.values() if max(one.peak_in_flight) <= limit]
    known.append(simulate(Table.parse(limited_schedule(stages, microbatches, limit)), costs))
    best = min(known, key=lambda one: length(one, span=span))
    problem = Problem(stages, microbatches, limit, costs, span)
    bounds = Bounds(problem)
    shorter, is_shortest = _shorter(bounds, problem, length(best, span=span))
    if shorter:
        table = shorter.to_table()
        check(table)
        best = simulate(table, costs)
    time = length(best, span=span)
    return Found(best, limit, span, time, time if is_shortest else bounds.least, named)


def length(simulation: Simulation, *, span: bool) -> Number:
    """The makespan; or the longest time from a device's own first action to its last."""
    if not span:
        return simulation.makespan
    devices = zip(simulation.busy_per_device, simulation.idle_in_span_per_device, strict=True)
    return max(busy + idle for busy, idle in devices)


class Rule(NamedTuple):
    """What comes first: what starts first, but for two exceptions.

    Attributes:
        depth: A forward comes last if more than this, times the number of stages from here on, are
            ahead of their backwards.
        patience: A weight gradient lets others go first that start within this share of its time.
        order: The kinds, in the order in which they come if nothing else decides.
    """

    depth: float
    patience: float
    order: str

    def ranked(self, problem: Problem, partial: Partial) -> list[Choice]:
        """What may come next; first what should."""
        return sorted(problem.choices(partial), key=lambda one: self._rank(problem, partial, one))

    def _rank(self, problem: Problem, partial: Partial, choice: Choice) -> tuple:
        _, device, kind, start = choice
        ahead = partial.forwards[device] - partial.backwards[device]
        too_deep = kind == "F" and ahead >= self.depth * (problem.stages - device)
        wait = self.patience * problem.costs.W if kind == "W" else 0
        return too_deep, start + wait, self.order.index(kind)


def _shorter(bounds: Bounds, problem: Problem, best: Number) -> tuple[Partial | None, bool]:
    """A schedule that is shorter than `best`, if one is found, and whether none can be shorter."""
    least = bounds.least * (1 + ROUNDING)
    if best <= least:
        return None, True
    built: list[tuple[Number, Rule, Partial]] = []
    for rule in _rules(problem):
        partial = _built(problem, rule)
        built.append((problem.length(partial), rule, partial))
        if built[-1][0] <= least:
            return partial, True
    end, rule, partial = min(built, key=lambda one: one[0])
    shorter, is_complete = _widened(bounds, problem, rule, min(end, best))
    return shorter or (partial if end < best else None), is_complete


def _rules(problem: Problem) -> list[Rule]:
    """The rules to try, those that often do well first: all, or fewer if there is much to do."""
    kinds = ["".join(kinds) for kinds in permutations(problem.backward_kinds)]
    rules = [
        Rule(depth, PATIENCE[(start + place) % len(PATIENCE)], order)
        for start in range(len(PATIENCE))
        for place, depth in enumerate(DEPTHS)
        for backwards in kinds
        for order in (f"F{backwards}W", f"{backwards}FW")
    ]
    # Where few forwards may be ahead of their backwards, they had better not wait for others.
    rules.sort(key=lambda rule: (rule.depth <= 1) != rule.order.startswith("F"))
    return rules[: max(8, EFFORT // (20 * problem.stages * problem.microbatches))]


def _built(problem: Problem, rule: Rule) -> Partial:
    """A whole schedule, built by a rule."""
    partial = problem.start()
    while choices := rule.ranked(problem, partial):
        partial = problem.after(partial, choices[0])
    return partial


def _widened(
    bounds: Bounds, problem: Problem, rule: Rule, best: Number
) -> tuple[Partial | None, bool]:
    """The shortest schedule below `best` among those near a rule, and whether all were tried.

    Partial schedules with as many actions grow side by side. One is dropped if it cannot end before
    `best`, or if another one with the same actions has everything as early. If too many are left,
    those are dropped whose bound is late, or that have often departed from the rule.
    """
    actions = 3 * problem.stages * problem.microbatches
    width = EFFORT // (actions * (problem.stages + 4))
    departure = bounds.work / 12
    levels: list[dict] = [{} for _ in range(actions + 3)]  # by number and kinds of actions
    levels[0][()] = [(0, 0, problem.start())]
    found, is_complete = None, True
    for number, level in enumerate(levels):
        grown = sorted((one for some in level.values() for one in some), key=lambda one: one[0])
        level.clear()
        is_complete &= len(grown) <= width
        for _, departures, partial in grown[:width]:
            choices = rule.ranked(problem, partial)
            if not choices and problem.length(partial) < best:
                best, found = problem.length(partial), partial
            for more, choice in enumerate(choices, departures):
                new = problem.after(partial, choice)
                rivals = levels[number + 1 + (choice.kind == "B")].setdefault(new.done, [])
                if any(rival.is_as_early(new) for *_, rival in rivals):
                    continue
                bound = bounds(new)
                if bound < best:
                    rivals.append((bound + more * departure, more, new))
    return found, is_complete


def _check_sizes(stages: int, microbatches: int, limit: int) -> None:
    for name, size in (("stages", stages), ("microbatches", microbatches)):
        if size < 1:
            raise ValueError(
                f"search_schedule: {name} is {size}; it must be 1 or more; use for example 4"
            )
    if limit < 1:
        raise ValueError(
            f"search_schedule: limit is {limit}; a device has at least the microbatch in flight "
            f"that it works on; use 1 or more, for example {stages}"
        )
    if stages * microbatches > MOST_FORWARDS:
        raise ValueError(
            f"search_schedule: {stages} stages and {microbatches} microbatches are more than "
            f"{MOST_FORWARDS:,} forwards; use fewer"
        )
