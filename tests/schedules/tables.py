"""Tables for tests, and their properties, computed from the rules and not by the library."""

from fractions import Fraction
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from hypothesis import strategies as st

from jaxpar.schedules import NAMES, Action, Costs, Table
from jaxpar.schedules.generators import LOOPED

Sizes = tuple[str, int, int, int | None]


@st.composite
def sizes(draw: st.DrawFn) -> Sizes:
    """Arguments of `make_table` that it takes."""
    name = draw(st.sampled_from(sorted(NAMES)))
    stages = draw(st.integers(1, 5))
    least = 2 * stages if name == "dualpipe-v" else 1
    microbatches = draw(st.integers(least, 12))
    if name == "interleaved":
        microbatches = stages * draw(st.integers(1, 3))
    return name, stages, microbatches, draw(st.integers(2, 3)) if name in LOOPED else None


def dependencies(table: Table) -> dict[Action, set[Action]]:
    """What each action needs, including needs that follow from others."""
    actions = {action for row in table.rows for action in row if action}
    last = max(action.stage for action in actions)
    needs: dict[Action, set[Action]] = {}
    for stage, kind, microbatch in actions:
        if kind == "F":
            before = {(stage - 1, "F")}
        elif kind == "W":
            before = {(stage, "I")}
        else:
            before = {(last, "F"), (stage, "F"), (stage + 1, "B"), (stage + 1, "I")}
        needs[Action(stage, kind, microbatch)] = {
            Action(s, k, microbatch) for s, k in before
        } & actions
    return needs


def graph(table: Table) -> dict[Action, set[Action]]:
    """The dependencies, with those of each action on the one before it on its device."""
    needs = dependencies(table)
    for row in table.rows:
        actions = [action for action in row if action]
        for before, after in pairwise(actions):
            needs[after].add(before)
    return needs


def can_run(table: Table) -> bool:
    """Whether no action waits for itself."""
    try:
        TopologicalSorter(graph(table)).prepare()
    except CycleError:
        return False
    return True


def longest_paths(table: Table, costs: Costs) -> dict[Action, Fraction]:
    """When each action ends: the longest path to it."""
    ends: dict[Action, Fraction] = {}
    device = {action: d for d, row in enumerate(table.rows) for action in row if action}
    needs = graph(table)
    for action in TopologicalSorter(needs).static_order():
        start = max(
            (
                ends[other] + (Fraction(costs.P) if device[other] != device[action] else 0)
                for other in needs[action]
            ),
            default=Fraction(0),
        )
        ends[action] = start + Fraction(getattr(costs, action.kind))
    return ends
