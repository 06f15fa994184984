"""The simulator against formulas, golden integers, and longest paths."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.schedules import (
    Costs,
    Table,
    bubble_fraction,
    make_table,
    peak_in_flight,
    simulate,
    stash_size,
)
from tests.schedules.tables import Sizes, longest_paths, sizes

SIZES = [(1, 2), (2, 4), (3, 6), (4, 8), (4, 12), (5, 20)]


def test_idle_time_of_zero_bubble_schedules_within_each_devices_span():
    assert simulate(make_table("zb-h1", 4, 12)).idle_in_span_per_device == [3, 2, 1, 0]
    assert simulate(make_table("zb-h2", 4, 12)).idle_in_span_per_device == [0, 0, 0, 0]
    assert simulate(make_table("zb-v", 4, 12)).idle_in_span_per_device == [0, 0, 0, 0]


@pytest.mark.parametrize(("p", "m"), SIZES)
@pytest.mark.parametrize(("f", "w"), [(1, 1), (2, 1), (10, 9)])
def test_the_makespan_of_v_schedules(p, m, f, w):
    """Where F = I; `test_published.py` compares all that the papers give in numbers."""
    costs = Costs(F=f, B=f + w, I=f, W=w)
    dual_pipe = simulate(make_table("dualpipe-v", p, m), costs)
    assert dual_pipe.makespan - dual_pipe.ideal == (p - 1) * (2 * f - w)
    if f == w:  # then no device idles in its span, and the last one starts p - 1 forwards later
        zb_v = simulate(make_table("zb-v", p, m), costs)
        assert zb_v.makespan - zb_v.ideal == (p - 1) * f


@pytest.mark.parametrize(("p", "m"), [(1, 1), (4, 1), (4, 3), *SIZES])
def test_bubble_fraction_is_what_the_simulation_finds(p, m):
    for name in ("gpipe", "1f1b"):
        result = simulate(make_table(name, p, m))
        assert result.bubble == pytest.approx(bubble_fraction(p, m, 1))
        assert result.bubble_per_device == pytest.approx([bubble_fraction(p, m, 1)] * p)
    if m % p == 0:
        for v in (2, 3):
            result = simulate(make_table("interleaved", p, m, v))
            assert result.bubble == pytest.approx(bubble_fraction(p, m, v))


def test_a_transfer_is_free_on_one_device():
    one = Table.parse([["0F0", "1F0", "1B0", "0B0"]])
    two = Table.parse([["0F0", "0B0"], ["1F0", "1B0"]])
    costs = Costs(P=5)
    assert simulate(one, costs).makespan == 6
    result = simulate(two, costs)
    assert result.makespan == 16
    assert list(result.starts.values()) == [0, 6, 7, 14]
    assert [str(action) for action in result.critical_path] == ["0F0", "1F0", "1B0", "0B0"]


def test_idle_cells_cost_nothing():
    table = Table.parse([["", "0F0", "", "0B0"], ["1F0", "", "", "", "1B0", ""]])
    assert simulate(table).makespan == 6


def test_free_actions_give_no_bubble():
    result = simulate(make_table("1f1b", 2, 2), Costs(F=0, B=0))
    assert (result.makespan, result.bubble, result.ideal) == (0, 0, 0)


@pytest.mark.parametrize("cost", [-1, math.inf, math.nan])
def test_impossible_costs_are_refused(cost):
    with pytest.raises(ValueError, match=f"Costs: W is {cost}; a cost is a finite number, 0 or"):
        Costs(W=cost)


COST = st.integers(0, 7).map(lambda eighths: eighths / 8)  # sums are exact


@given(sizes(), st.builds(Costs, F=COST, B=COST, I=COST, W=COST, P=COST))
def test_actions_end_when_the_longest_path_to_them_ends(size: Sizes, costs: Costs):
    table = make_table(*size)
    result = simulate(table, costs)
    ends = longest_paths(table, costs)
    assert result.ends == ends
    assert result.makespan == max(ends.values())
    assert result.ideal <= result.makespan
    assert all(0 <= idle <= 1 for idle in result.bubble_per_device)


@given(sizes(), st.builds(Costs, F=COST, B=COST, I=COST, W=COST, P=COST))
def test_the_critical_path_is_as_long_as_the_whole(size: Sizes, costs: Costs):
    table = make_table(*size)
    result = simulate(table, costs)
    path = result.critical_path
    length = Fraction(0)
    for before, after in zip([None, *path], path, strict=False):
        if before and table.device_of(before.stage) != table.device_of(after.stage):
            length += Fraction(costs.P)
        assert result.starts[after] == length
        length += Fraction(getattr(costs, after.kind))
    assert length == result.makespan


@given(sizes(), st.builds(Costs, F=COST, B=COST, I=COST, W=COST, P=COST))
def test_in_flight_is_counted_from_starts_and_ends(size: Sizes, costs: Costs):
    table = make_table(*size)
    result = simulate(table, Costs(**{k: v + 1 for k, v in vars(costs).items()}))
    for row, peak in zip(table.rows, result.peak_in_flight, strict=True):
        changes = [(result.starts[a], 1) for a in row if a and a.kind == "F"]
        changes += [(result.ends[a], -1) for a in row if a and a.kind in "BW"]
        kept = [sum(by for at, by in changes if at <= now) for now, _ in changes]
        assert max(kept) == peak
    assert stash_size(table.to_rows()) == peak_in_flight(table) == result.peak_in_flight
