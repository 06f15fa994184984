import math
from collections.abc import Sequence
from itertools import combinations

import pytest

from jaxpar.cost.roofline import attainable_flops
from jaxpar.drawing.curves import COLUMNS, LETTERS_ON_A_CURVE, ROWS, Curves, Points, Roofline
from tests.drawing.svg import elements, texts

DOWN, UP = [4.0, 2.0, 1.0], [1.0, 2.0, 4.0]
POINTS = {"few rows": 1.0, "a few more": 1.01, "many rows": 500.0}


def curves(**values: Sequence[float]) -> Curves:
    return Curves("Loss < 5", "step", "nats", range(3), values)


def cells(text: str) -> list[str]:
    """The rows of a text picture, between its axes."""
    lines = (line.replace("\u2524", "\u2502", 1) for line in text.splitlines())
    rows = [line.partition("\u2502")[2].ljust(COLUMNS) for line in lines if "\u2502" in line]
    return rows[:ROWS]


def paths(svg: str, colour: str) -> list[list[tuple[float, float]]]:
    """The points of all lines of this colour."""
    found = [
        path.get("d", "").replace("M", "L").split("L")
        for path in elements(svg, "path")
        if f"stroke: {colour}" in path.get("style", "") and path.get("clip-path")
    ]
    return [[(float(x), float(y)) for x, y in map(str.split, points[1:])] for points in found]


def test_a_curve_goes_through_its_values() -> None:
    rows = cells(curves(one=DOWN).to_text())
    assert len(rows) == ROWS
    assert rows[0][0] == rows[-1][-1] == "a"
    assert all("".join(column).split() == ["a"] for column in zip(*rows, strict=True))


def test_curves_that_meet_take_turns() -> None:
    rows = cells(curves(one=DOWN, same=DOWN, up=UP).to_text())
    assert (rows[0].rstrip()[:2], rows[0].rstrip()[-1]) == ("ab", "c")


def test_a_curve_stands_where_its_places_are() -> None:
    rows = cells(Curves("Loss", "tokens", "nats", [0, 90, 100], {"one": [4, 1, 1]}).to_text())
    assert rows[-1].index("a") > 0.8 * COLUMNS


def test_axes_and_names_are_written() -> None:
    text = curves(one=DOWN, two=UP).to_text()
    assert text.startswith("Loss < 5\n========\n\nnats\n4.0 \u2524")
    assert "\n1.0 \u2524" in text and "\n2.5 \u2524" in text
    *_, numbers, across, _, _, _ = text.splitlines()
    assert (numbers.split(), across.strip()) == (["0.0", "0.5", "1.0", "1.5", "2.0"], "step")
    assert text.endswith("\n\na  one\nb  two")
    assert max(map(len, text.splitlines())) <= 80


def test_equal_values_are_a_level_line() -> None:
    text = curves(one=[2.0] * 3).to_text()
    assert cells(text)[0] == "a" * COLUMNS and "\n2 \u2524" in text


def test_svg_has_a_line_for_each_curve() -> None:
    svg = curves(one=DOWN, two=UP).to_svg()
    (one,), (two,) = (paths(svg, colour) for colour in ("#e69f00", "#56b4e9"))
    assert [y for _, y in one] == [y for _, y in reversed(two)]
    assert [x for x, _ in one] == [x for x, _ in two]
    assert one[0][1] < one[1][1] < one[2][1]  # y goes down


def test_svg_has_a_title_units_ticks_and_letters() -> None:
    svg = curves(one=DOWN, two=UP).to_svg()
    assert {"Loss < 5", "step", "nats", "0", "1", "2", "4.0", "a  one", "b  two"} <= set(texts(svg))
    assert len(elements(svg, "use")) > 2 * 2 * LETTERS_ON_A_CURVE  # a disc and a letter


def test_a_picture_is_the_same_file_each_time() -> None:
    assert curves(one=DOWN).to_svg() == curves(one=DOWN).to_svg()


def test_each_place_has_a_value() -> None:
    with pytest.raises(ValueError, match="'one' has 2 values, and there are 3 places"):
        curves(one=[1.0, 2.0])


def roofline() -> Roofline:
    def attainable(intensity: float) -> float:
        return attainable_flops(intensity, 100e12, 1e12)

    return Roofline("Roof", attainable, 100, POINTS)


def test_the_roof_rises_to_the_ridge_and_programs_lie_on_it() -> None:
    grid = cells(roofline().to_text())
    assert len(grid) == ROWS
    assert grid[0].count("\u2500") > 10 and "c" in grid[0]
    assert any("ab" in line for line in grid)  # side by side
    (ridge,) = {line.index("\u2502") for line in grid[1:]}
    assert grid[0].index("\u252c") == ridge
    assert abs(ridge - grid[0].index("\u2500")) <= 1


def test_a_program_is_bound_by_memory_or_by_arithmetic() -> None:
    first, _, last, ridge = roofline().to_text().splitlines()[-4:]
    assert first == "a  few rows: 1 FLOPs for each byte, 1 TFLOP/s, bound by memory"
    assert last == "c  many rows: 500 FLOPs for each byte, 100 TFLOP/s, bound by arithmetic"
    assert ridge.startswith(
        "\u2502  ridge, 100 FLOPs for each byte: memory is the bound to the left"
    )


def test_both_axes_of_the_roof_have_decades() -> None:
    lines = roofline().to_text().splitlines()
    assert ["0.1", "1", "10", "100", "1,000"] in [line.split() for line in lines]
    heights = [line.partition(" \u2524")[0].strip() for line in lines if "\u2524" in line]
    assert heights == ["100", "10", "1", "0.1"]


def test_the_roof_in_svg_goes_through_its_programs() -> None:
    svg = roofline().to_svg()
    start, ridge, end = paths(svg, "#666666")[0]
    assert ridge[1] == end[1] < start[1] and start[0] < ridge[0] < end[0]
    words = texts(svg)
    assert {"Roof", "TFLOP/s", "0.1", "1", "10", "100", "1,000"} <= set(words)
    assert "ridge: 100 FLOPs for each byte" in words
    assert any(word.startswith("c  many rows: 500 FLOPs") for word in words)


def some_points() -> Points:
    found = {"few": (20.0, 3.0), "a few more": (20.1, 3.0), "many": (50_000.0, 1.0)}
    return Points("Losses", "bytes", "nats", found)


def test_points_stand_on_a_log_scale_and_beside_each_other() -> None:
    text = some_points().to_text()
    rows = cells(text)
    assert rows[0].strip() in ("ab", "ba") and rows[-1].strip() == "c"
    few, many = rows[0].index("a"), rows[-1].index("c")
    assert many - few == pytest.approx(COLUMNS * 3.4 / 4, abs=2)  # of the four decades
    assert ["10", "100", "1,000", "10,000", "100,000"] in map(str.split, text.splitlines())
    assert text.endswith("\na  few: 20, 3\nb  a few more: 20.1, 3\nc  many: 50,000, 1")


def test_points_at_the_edge_stay_on_the_picture() -> None:
    same = {str(number): (9.0, 1.0) for number in range(26)}
    text = Points("Losses", "bytes", "nats", same).to_text()
    assert sorted("".join(cells(text)).replace(" ", "")) == list("abcdefghijklmnopqrstuvwxyz")


def test_points_in_svg_have_names_letters_and_decades() -> None:
    words = texts(some_points().to_svg())
    assert {"Losses", "bytes", "nats", "a", "b", "c", "100", "100,000"} <= set(words)
    assert "c  many: 50,000, 1" in words


def test_letters_of_points_on_one_place_stand_apart_in_svg() -> None:
    same = {str(number): (9.0, 1.0) for number in range(12)}
    svg = Points("Losses", "bytes", "nats", same).to_svg()
    letters = [one for one in elements(svg, "text") if one.text in tuple("abcdefghijkl")]
    places = [(float(one.get("x", "")), float(one.get("y", ""))) for one in letters]
    assert len(places) == 12
    assert min(math.dist(*pair) for pair in combinations(places, 2)) > 9
