"""Timelines of schedules: in a terminal, and as SVG."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.drawing.elements import ASCII, HEIGHTS, round_numbers
from jaxpar.drawing.schedule import COLOURS, Timeline, Track, lighter
from jaxpar.schedules import Costs, make_table, simulate
from tests.drawing.svg import elements, numbers, texts
from tests.schedules.tables import Sizes, sizes

SMALL = """\
1f1b: 2 devices, 3 microbatches; F=1 B=2
time      0         5         10
device 0  F0F1....B0--F2B1--..B2--
device 1  ..F0B0--F1B1--F2B2--....
activations in flight
most 2    ==################======
most 1      ==================

F forward   B backward   . idle
F0 is the forward of microbatch 0."""


def track(name: str, stages: int, microbatches: int, **costs: float) -> Track:
    return Track(name, simulate(make_table(name, stages, microbatches), Costs(**costs)), name)


def lines(timeline: Timeline, width: int = 80, start: str = "device") -> list[str]:
    """What the lines of devices show."""
    found = (line for line in timeline.to_text(width).splitlines() if line.startswith(start))
    return [line[10:] for line in found]


def test_a_small_one_reads_without_colour():
    assert Timeline((track("1f1b", 2, 3),)).to_text().translate(ASCII) == SMALL


def test_a_cell_is_as_wide_as_its_cost():
    one = Timeline((track("1f1b", 1, 2, F=1, B=3),))
    assert lines(one) == ["F0B0----F1B1----"]
    free = Timeline((track("zb-h1", 1, 2, F=2, I=1, W=0),))
    assert lines(free) == ["F0--I0F1--I1"]


def test_colours_say_what_the_letters_say():
    text = Timeline((track("zb-v", 2, 3),)).to_rich(100)
    (row,) = [line for line in text.split("\n") if line.plain.startswith("device 1")]
    shown = {row.plain[span.start : span.end]: str(span.style) for span in row.spans}
    assert shown["1F0"] == f"#000000 on {COLOURS['F']}"
    assert shown["2I0"] == f"#000000 on {lighter(COLOURS['I'])}"


def test_two_have_one_scale_and_do_the_same_work():
    first = track("1f1b", 4, 8)
    second = first.rival("interleaved")
    assert second.simulation.costs == Costs(F=0.5, B=1, I=0.5, W=0.5)
    assert (first.simulation.makespan, second.simulation.makespan) == (33, 28.5)
    shown = lines(Timeline((first, second)))
    assert [len(line) for line in shown] == [2 * 33] * 4 + [2 * 28.5] * 4
    assert first.rival("gpipe").simulation.costs == first.simulation.costs


def test_chunks_count_as_parts_of_a_device():
    first = track("gpipe", 2, 4)
    both = Timeline((first, first.rival("breadth-first")))
    heights = lines(both, start="most")
    assert "in chunks (2 are a whole device)" in both.to_text()
    assert both.peak == 4
    assert max(heights[0]) == max(heights[2]) == HEIGHTS[-1]


def test_a_wide_one_shows_stages_where_there_are_chunks():
    timeline = Timeline((track("interleaved", 2, 2),))
    assert lines(timeline)[0].startswith("0F00F12F02F1......2B0---")
    assert "4F0 is stage 4" in timeline.to_text()
    assert lines(timeline, 50)[0].startswith("F0F1f0f1....b0--..b1--B0--")
    assert "Small letter" in timeline.to_text(50)


def test_a_narrow_one_says_what_it_leaves_out():
    timeline = Timeline((track("1f1b", 4, 8),))
    assert (
        lines(timeline, 76)[3]
        == "......F0B0--F1B1--F2B2--F3B3--F4B4--F5B5--F6B6--F7B7--............"
    )
    assert "narrow" not in timeline.to_text(76)
    assert lines(timeline, 75)[3] == "...FB0FB1FB2FB3FB4FB5FB6FB7......"
    assert "Too narrow for every number: 76 columns, or an SVG file" in timeline.to_text(75)
    assert lines(timeline, 40)[3] == "......F0B0--F1B1--F2B2--F3B3--"
    assert "Cut at time 15 of 33: 76 columns, or an SVG file" in timeline.to_text(40)


@given(sizes(), st.integers(40, 120), st.sampled_from([Costs(), Costs(0.3, 0.7, 0.1, 0.5, 0.2)]))
def test_nothing_is_wider_than_it_may_be(sizes: Sizes, width: int, costs: Costs):
    table = make_table(*sizes)
    one = Track("some", simulate(table, costs))
    timeline = Timeline((one,))
    assert max(map(len, lines(timeline, width))) <= width - 10
    steps = [list(one.in_flight(device)) for device in range(table.devices)]
    assert [max(kept for _, kept in row) for row in steps] == one.simulation.peak_in_flight
    assert all(row[-1][1] == 0 for row in steps)


def test_svg_has_every_cell_with_its_label():
    table = make_table("interleaved", 2, 4)
    svg = Timeline((Track("<mine>.csv", simulate(table)),)).to_svg()
    words = texts(svg)
    cells = [
        box
        for box in elements(svg, "rect")
        if box.get("fill") in (COLOURS["B"], lighter(COLOURS["B"]))
    ]
    assert len(cells) == 2 * 2 * 4 + 1  # and one in the legend
    assert {str(action) for action in table.places} <= set(words)
    assert words[0] == "<mine>.csv: 2 devices, 2 chunks, 4 microbatches; F=1 B=2"
    assert {"F: forward", "B: backward", "idle", "most 5", "most 7"} - set(words) == {"most 7"}


def test_svg_needs_nothing_else_and_fits():
    svg = Timeline((track("1f1b", 3, 5), track("zb-h1", 3, 5))).to_svg()
    assert not re.search(r"href|url\(|@import|<script", svg)
    ((width,),) = (numbers(root, "width") for root in elements(svg, "svg"))
    assert all(sum(numbers(box, "x", "width")) < width for box in elements(svg, "rect")[1:])


def test_a_huge_svg_stays_a_picture():
    svg = Timeline((track("gpipe", 2, 400),)).to_svg()
    boxes = elements(svg, "rect")
    assert numbers(boxes[1], "width")[0] <= 8000
    assert len(boxes) > 2 * 2 * 400
    assert "0F7" not in texts(svg)


def test_no_time_cannot_be_drawn():
    with pytest.raises(ValueError, match="Timeline: the cells of gpipe take no time"):
        Timeline((track("gpipe", 2, 2, F=0, B=0),))


@pytest.mark.parametrize(
    ("low", "high", "least", "numbers"),
    [
        (0, 12, 4, [0, 5, 10]),
        (0, 33, 8, [0, 10, 20, 30]),
        (0, 3, 0.3, [0, 0.5, 1, 1.5, 2, 2.5, 3]),
        (7, 33, 8, [10, 20, 30]),
        (-1.5, 1.5, 0.8, [-1, 0, 1]),
    ],
)
def test_rulers_have_round_numbers(low: float, high: float, least: float, numbers: list[float]):
    assert list(round_numbers(low, high, least)) == numbers
