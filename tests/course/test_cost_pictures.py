from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jaxpar.course.cost_pictures import ROWS, Bars, Roofline
from jaxpar.course.pictures import draw_bars, draw_roofline

SVG = "{http://www.w3.org/2000/svg}"
MEMORY = {"training": {"parameters": 10.0, "states": 30.0}, "answering": {"parameters": 10.0}}
POINTS = {"few rows": 1.0, "a few more": 1.01, "many rows": 500.0}


def bars(memory: Mapping[str, Mapping[str, float]] = MEMORY, limit: float = 20.0) -> Bars:
    return Bars("Memory < 1 TB", "GB", memory, ("a device", limit))


def rows(text: str) -> dict[str, str]:
    """What stands beside each name."""
    parts = [line.partition("\u2502") for line in text.splitlines()]
    return {name.strip(): rest for name, mark, rest in parts if mark}


def elements(text: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(text).iter(f"{SVG}{tag}"))


def numbers(element: ElementTree.Element, *names: str) -> list[float]:
    return [float(element.get(name, 0)) for name in names]


def test_bars_are_to_one_scale_with_the_limit() -> None:
    shown = rows(bars().to_text())
    cells = shown["training"].split("\u2502")
    assert [cell.strip() for cell in cells] == ["a 10.00", "b 30.00", "40.00 GB"]
    assert [len(cell) + 1 for cell in cells[:2]] == [15, 45]
    assert shown["answering"].split("\u2502")[0] == cells[0]
    assert shown["a device"] == "\u2500" * 30 + " 20.00 GB"


def test_a_limit_above_all_bars_sets_the_scale() -> None:
    assert len(rows(bars(limit=80.0).to_text())["training"].rpartition("\u2502")[0]) == 29


def test_each_term_is_listed_with_its_values() -> None:
    text = bars({**MEMORY, "less": {"parameters": 0.004}}).to_text()
    *_, unit, first, second = text.splitlines()
    assert unit.split() == ["GB", "training", "answering", "less"]
    assert first.split() == ["a", "parameters", "10.00", "10.00", "0.00"]
    assert second.split() == ["b", "states", "30.00", "0.00", "0.00"]
    assert rows(text)["less"].strip() == "0.00 GB"  # no room for a cell


def test_bars_in_svg_have_their_widths_and_stay_inside() -> None:
    text = bars().to_svg()
    _, *cells = elements(text, "rect")
    widths = [numbers(cell, "width")[0] for cell in cells]
    assert widths[:2] == [140, 420]
    (line,) = elements(text, "line")
    x, width = numbers(cells[0], "x", "width")
    assert numbers(line, "x1", "x2") == [x + 2 * width] * 2
    root = ElementTree.fromstring(text)
    assert all(sum(numbers(cell, "x", "width")) < numbers(root, "width")[0] for cell in cells)
    assert "Memory < 1 TB" in "".join(root.itertext())


def roofline() -> Roofline:
    return Roofline("Roof", 100e12, 1e12, POINTS)


def test_the_roof_rises_to_the_ridge_and_programs_lie_on_it() -> None:
    shown = roofline()
    assert shown.ridge == 100
    lines = [line.partition("\u2502")[2] for line in shown.to_text().splitlines()]
    grid = [line for line in lines if line]
    assert len(grid) == ROWS
    assert grid[0].count("\u2500") > 10 and "c" in grid[0]
    assert any("ab" in line for line in grid)  # side by side


def test_a_program_is_bound_by_memory_or_by_arithmetic() -> None:
    first, _, last = roofline().to_text().splitlines()[-3:]
    assert first == "a  few rows: 1 FLOPs for each byte, 1 TFLOP/s, bound by memory"
    assert last == "c  many rows: 500 FLOPs for each byte, 100 TFLOP/s, bound by arithmetic"


def test_the_roof_in_svg_goes_through_its_programs() -> None:
    text = roofline().to_svg()
    _, roof = elements(text, "polyline")
    start, ridge, end = ([*map(float, p.split(","))] for p in roof.get("points", "").split())
    assert ridge[1] == end[1] < start[1]
    low, _, high = (numbers(one, "cx", "cy") for one in elements(text, "circle")[:3])
    assert high[1] == ridge[1] < low[1]
    slope = (start[1] - ridge[1]) / (ridge[0] - start[0])
    assert (start[1] - low[1]) / (low[0] - start[0]) == pytest.approx(slope, rel=1e-2)


def test_the_svg_is_as_wide_as_its_longest_line() -> None:
    name = "queries " * 12
    drawn = [Roofline("Roof", 100e12, 1e12, points).to_svg() for points in (POINTS, {name: 16})]
    usual, wide = (numbers(ElementTree.fromstring(text), "width")[0] for text in drawn)
    assert wide > 8 * len(name) > usual


def test_they_are_written_beside_the_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    pictures = {
        "one": draw_bars("one", "Memory", "GB", MEMORY),
        "two": draw_roofline("two", "Roof", 100e12, 1e12, POINTS),
    }
    printed = capsys.readouterr().out
    for name, picture in pictures.items():
        assert (tmp_path / "pictures" / f"{name}.svg").read_text() == picture.to_svg()
        assert f"{picture.to_text()}\n\n(in colour: pictures/{name}.svg)\n\n" in printed
