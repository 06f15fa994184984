"""What the search finds: within the limit, no longer than what is known, and often the shortest."""

from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.schedules import Costs, check, make_table, peak_in_flight, search, simulate
from jaxpar.schedules.bounds import Bounds
from jaxpar.schedules.generators import limited_schedule
from jaxpar.schedules.partial import Problem
from jaxpar.schedules.search import ONE_STAGE, Rule, length, search_schedule
from jaxpar.schedules.table import Table
from tests.schedules.exact import Question

# In ms for one microbatch and stage of 1.5B parameters, 8 stages, 24 microbatches.
MEASURED = Costs(F=18.522, B=18.086 + 9.337, I=18.086, W=9.337, P=0.601)
COST = st.integers(0, 16).map(lambda eighths: eighths / 8)  # sums are exact
COSTS = st.builds(Costs, F=COST, B=COST, I=COST, W=COST, P=COST)


@pytest.mark.parametrize(
    "costs",
    [
        Costs(),
        Costs(F=2, B=4, I=3, W=1, P=1),
        Costs(F=2, B=5, I=2, W=3),
        Costs(F=1, B=3, I=2, W=2),  # a whole backward saves time, but the gradient comes late
    ],
)
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_nothing_is_shorter_among_all_schedules_of_small_sizes(stages: int, costs: Costs):
    for microbatches in range(1, 5):
        for limit in range(1, min(microbatches, 2 * stages) + 1):
            for span in (False, True)[: 1 if stages * microbatches == 12 else 2]:
                found = search_schedule(stages, microbatches, limit, costs, span=span)
                sizes = stages, microbatches, limit, costs
                assert found.is_shortest
                assert Question(*sizes, found.length, span).is_possible()
                assert not Question(*sizes, found.length - 1, span).is_possible()


@given(st.integers(1, 5), st.integers(1, 7), st.integers(1, 8), COSTS, st.booleans())
def test_found_within_the_limit_and_no_longer_than_what_is_known(
    stages: int, microbatches: int, limit: int, costs: Costs, span: bool
):
    with patch.object(search, "EFFORT", 10_000):
        found = search_schedule(stages, microbatches, limit, costs, span=span)
    table = found.simulation.table
    check(table)
    assert (table.devices, table.stages, table.microbatches) == (stages, stages, microbatches)
    assert max(peak_in_flight(table)) <= limit
    assert simulate(table, costs) == found.simulation
    assert found.least <= found.length == length(found.simulation, span=span)
    known = [make_table(name, stages, microbatches) for name in ONE_STAGE]
    known.append(Table.parse(limited_schedule(stages, microbatches, limit)))
    for other in known:
        if max(peak_in_flight(other)) <= limit:
            assert found.length <= length(simulate(other, costs), span=span)


@given(
    st.builds(
        Problem, st.integers(1, 5), st.integers(1, 7), st.integers(1, 8), COSTS, st.booleans()
    ),
    st.builds(Rule, st.sampled_from([0.5, 1, 3]), st.sampled_from([0, 1]), st.just("FBIW")),
)
def test_a_bound_is_never_above_what_follows(problem: Problem, rule: Rule):
    bounds, partial = Bounds(problem), problem.start()
    seen = [bounds(partial)]
    while choices := rule.ranked(problem, partial):
        partial = problem.after(partial, choices[0])
        seen.append(bounds(partial))
    assert max(seen) == seen[-1] == problem.length(partial)
    simulation = simulate(partial.to_table(), problem.costs)
    assert length(simulation, span=problem.span) == problem.length(partial)


def test_with_equal_times_zb_h1_and_zb_h2_are_the_shortest_of_their_kind():
    assert search_schedule(4, 12).length == simulate(make_table("zb-h1", 4, 12)).makespan
    found = search_schedule(4, 12, 7, span=True)
    assert found.length == found.simulation.ideal == 36
    assert simulate(make_table("zb-h2", 4, 12)).idle_in_span_per_device == [0] * 4


def test_a_limit_below_1f1b():
    found = search_schedule(4, 8, 3)
    assert found.is_shortest and found.length == 31
    assert simulate(Table.parse(limited_schedule(4, 8, 3))).makespan == 48


def test_a_gap_that_is_not_closed_is_told():
    with patch.object(search, "EFFORT", 40_000):
        found = search_schedule(8, 24, 6, MEASURED)
    assert not found.is_shortest
    assert 1 < found.length / found.least < 1.1


def test_as_the_authors_of_zero_bubble_find():
    """The bubble rates of ZB-1p and ZB-2p (arXiv 2401.10241, table 5) for these times.

    With p in flight it is that of ZB-H1. ZB-2p is allowed as many bytes as 2p activations take;
    there, a weight gradient needs 37% of them, and here all, so it takes more than 2p in flight.
    """
    work = 24 * (MEASURED.F + MEASURED.B)

    def bubble(limit: int) -> float:
        with patch.object(search, "EFFORT", 40_000):
            return 1 - work / search_schedule(8, 24, limit, MEASURED, span=True).length

    assert bubble(8) == pytest.approx(0.1585, abs=5e-5)
    assert bubble(16) == pytest.approx(0.1015, abs=5e-5)  # below ZB-H2's 0.1083
    assert bubble(24) == pytest.approx(0.0433, abs=5e-4)


def test_a_whole_backward_may_be_worth_its_time():
    kinds = {
        costs: {action.kind for action in search_schedule(2, 4, 2, costs).simulation.starts}
        for costs in (Costs(B=2), Costs(B=1.75), Costs(B=1))
    }
    assert list(kinds.values()) == [{"F", "I", "W"}, {"F", "B", "I", "W"}, {"F", "B"}]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((0, 4), "search_schedule: stages is 0; it must be 1 or more"),
        ((4, -1), "search_schedule: microbatches is -1; it must be 1 or more"),
        ((4, 8, 0), "limit is 0; a device has at least the microbatch in flight that it works on"),
        ((101, 100), "101 stages and 100 microbatches are more than 10,000 forwards; use fewer"),
    ],
)
def test_sizes_that_no_schedule_has_are_refused(sizes: tuple, message: str):
    with pytest.raises(ValueError, match=message):
        search_schedule(*sizes)
