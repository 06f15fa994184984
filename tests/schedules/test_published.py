"""Published formulas against the simulation, and the table that shows both."""

import pytest
from rich.console import Console

from jaxpar.drawing.schedule import Track
from jaxpar.drawing.schedule_table import render, to_dict
from jaxpar.schedules import NAMES, Costs, make_table, simulate
from jaxpar.schedules.generators import LOOPED
from jaxpar.schedules.published import PUBLISHED

SIZES = [(1, 2), (2, 4), (3, 5), (3, 9), (4, 3), (4, 4), (4, 8), (4, 12)]
COSTS = [Costs(), Costs(F=2, B=3, I=2, W=1), Costs(F=2, B=5, I=3, W=2), Costs(F=3, I=3, W=3)]


def printed(*tracks: Track) -> list[list[str]]:
    """The words of each line of the table and of its notes."""
    console = Console(width=120)
    with console.capture() as capture:
        console.print(render(tracks))
    return [line.split() for line in capture.get().splitlines()]


def test_each_schedule_has_its_paper():
    assert list(PUBLISHED) == list(NAMES)


@pytest.mark.parametrize("costs", COSTS)
@pytest.mark.parametrize("name", NAMES)
def test_simulated_as_published(name: str, costs: Costs):
    compared = 0
    for devices, microbatches in SIZES:
        for chunks in (2, 3) if name in LOOPED else (None,):
            try:
                table = make_table(name, devices, microbatches, chunks)
            except ValueError:
                continue
            simulation, paper = simulate(table, costs), PUBLISHED[name]
            figures = paper.figures(table, costs)
            if figures is None:
                assert paper.only_if
                continue
            assert simulation.peak_in_flight == figures.in_flight
            span = max(simulation.idle_in_span_per_device)
            idle = span if paper.own_span else simulation.makespan - simulation.ideal
            assert figures.idle in (None, idle)
            compared += 1
    assert compared >= 2 or (name == "zb-v" and not costs.F == costs.I == costs.W)


def test_formulas_say_nothing_of_transfers():
    costs = Costs(P=1)
    assert PUBLISHED["gpipe"].figures(make_table("gpipe", 2, 4), costs) is None
    words = printed(Track("gpipe", simulate(make_table("gpipe", 2, 4), costs), "gpipe"))
    assert "published" not in [line[0] for line in words if line]
    assert any("transfers" in line for line in words)


def test_the_table_shows_both():
    first = Track("1f1b", simulate(make_table("1f1b", 4, 8)), "1f1b")
    rows = printed(first, first.rival("zb-h2"))
    assert ["1f1b", "33", "24", "9", "27.3%", "9", "4", "3", "2", "1"] in rows
    assert ["published", "33", "24", "9", "27.3%", "4", "3", "2", "1"] in rows
    assert ["zb-h2", "27", "24", "3", "11.1%", "0", "7", "on", "each"] in rows
    assert ["published", "0", "7", "on", "each"] in rows


def test_a_table_of_ones_own_has_no_paper():
    rows = printed(Track("mine.csv", simulate(make_table("1f1b", 2, 2))))
    assert not any("published" in word for row in rows for word in row)


def test_as_json():
    assert to_dict(simulate(make_table("gpipe", 2, 3), Costs(F=1, B=1))) == {
        "makespan": 8,
        "ideal": 6,
        "bubble": 0.25,
        "bubble_per_device": [0.25, 0.25],
        "peak_in_flight": [3, 3],
        "valid": True,
    }
