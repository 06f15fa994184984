"""The schedule that follows from times alone: within the limit, and as the rule says."""

import pytest

from jaxpar.schedules import Table, check, peak_in_flight, simulate
from jaxpar.schedules.search import search_schedule
from jaxpar.schedules.timed import costs_of_halves, timed_schedule

TIMES = {"f": 4, "i": 5, "w": 3, "transfer": 1}


def test_the_rule_keeps_the_limit_and_the_search_is_shorter():
    table = Table.parse(timed_schedule(5, 8, 6, **TIMES))
    check(table)
    assert max(peak_in_flight(table)) == 6
    costs = costs_of_halves(**TIMES)
    assert simulate(table, costs).makespan == 142
    found = search_schedule(5, 8, 6, costs)
    assert found.is_shortest
    assert found.length == 125


def test_an_i_comes_before_an_f_and_an_f_before_a_w():
    assert timed_schedule(1, 3, 2, **TIMES) == [
        ["0F0", "0I0", "0F1", "0I1", "0W0", "0F2", "0I2", "0W1", "0W2"]
    ]


@pytest.mark.parametrize(
    ("transfer", "row"),
    [
        (0, "0F0 0F1 0F2 0I0 0F3 0I1 0W0 0W1 0I2 0W2 0I3 0W3"),
        (1, "0F0 0F1 0F2 0F3 0I0 0W0 0I1 0W1 0I2 0W2 0I3 0W3"),
    ],
)
def test_the_fourth_forward_fills_the_time_of_a_transfer(transfer: int, row: str):
    assert timed_schedule(2, 4, 4, f=2, i=2, w=1, transfer=transfer)[0] == row.split()


@pytest.mark.parametrize(
    ("sizes", "name"), [((0, 8, 6), "stages"), ((5, 0, 6), "microbatches"), ((5, 8, 0), "limit")]
)
def test_sizes_below_1_are_refused(sizes: tuple[int, int, int], name: str):
    with pytest.raises(ValueError, match=f"timed_schedule: {name} is 0; it must be 1 or more"):
        timed_schedule(*sizes, **TIMES)
