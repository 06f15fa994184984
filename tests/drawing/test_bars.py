from collections.abc import Mapping
from xml.etree import ElementTree

from jaxpar.drawing.bars import BAR, Bars
from tests.drawing.svg import elements, numbers, texts

MEMORY = {"training": {"parameters": 10.0, "states": 30.0}, "answering": {"parameters": 10.0}}


def bars(memory: Mapping[str, Mapping[str, float]] = MEMORY, limit: float = 20.0) -> Bars:
    return Bars("Memory < 1 TB", "GB", memory, ("a device", limit))


def rows(text: str) -> dict[str, str]:
    """What stands beside each name."""
    parts = [line.partition("\u2502") for line in text.splitlines()]
    return {name.strip(): rest for name, mark, rest in parts if mark}


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
    assert [numbers(cell, "width")[0] for cell in cells[:2]] == [BAR / 4, BAR * 3 / 4]
    (limit,) = (line for line in elements(text, "line") if line.get("stroke-dasharray"))
    x, width = numbers(cells[0], "x", "width")
    assert numbers(limit, "x1", "x2") == [x + 2 * width] * 2
    root = ElementTree.fromstring(text)
    assert all(sum(numbers(cell, "x", "width")) < numbers(root, "width")[0] for cell in cells)


def test_bars_in_svg_have_numbers_names_ticks_and_units() -> None:
    text = bars().to_svg()
    words = texts(text)
    assert words[0] == "Memory < 1 TB"
    assert {"a parameters 10.00", "b states 30.00", "40.00 GB", "a device: 20.00 GB"} <= set(words)
    assert {"0", "5", "40", "GB", "a  parameters", "b  states"} <= set(words)
    titles = [element.text for element in elements(text, "title")]
    assert titles == ["parameters: 10 GB", "states: 30 GB", "parameters: 10 GB"]
