import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from jaxpar.drawing.elements import COLOURS
from jaxpar.drawing.layout import NOBODY, Panel, Panels, array_panels, panel
from jaxpar.mesh import make_mesh, spec
from tests.drawing.svg import elements, numbers, texts

RING = [(0, 1), (1, 2), (2, 0)]


def lines(*panels: Panel) -> list[str]:
    return Panels("Title", panels).to_text().splitlines()


def test_each_device_has_its_own_letter_and_a_dim_goes_down() -> None:
    shown = lines(panel("before", [[1, 2], [30, 40]]))
    assert shown == [
        "Title",
        "=====",
        "",
        "before",
        "device 0 device 1",
        "\u250c\u2500\u2500\u2500\u2500\u2500\u2510  \u250c\u2500\u2500\u2500\u2500\u2500\u2510",
        "\u2502  1a \u2502  \u2502 30b \u2502",
        "\u2502  2a \u2502  \u2502 40b \u2502",
        "\u2514\u2500\u2500\u2500\u2500\u2500\u2518  \u2514\u2500\u2500\u2500\u2500\u2500\u2518",
    ]


@pytest.mark.parametrize(
    ("owner", "rows"),
    [
        (1, [["1b", "2b"], ["3b", "4b"]]),
        ([0, NOBODY], [["1a", "2a"], ["3", "4"]]),
        ([[2, 3], [NOBODY, 4]], [["1c", "2d"], ["3", "4e"]]),
    ],
)
def test_owners_are_for_all_for_a_row_or_for_a_cell(owner: object, rows: list) -> None:
    shown = lines(panel("", [[[1, 2], [3, 4]]], [np.asarray(owner)], names=["x"]))
    assert [line.strip("\u2502 ").split() for line in shown if "\u2502" in line] == rows


def test_a_grid_has_rows_of_devices() -> None:
    shown = lines(panel("grid", [0, 1, 2], names=["p", "q", "r"], columns=2))
    assert [line.split() for line in shown if line and line.isascii()][3:] == [["p", "q"], ["r"]]


def test_arrows_that_do_not_meet_share_a_line() -> None:
    shown = lines(panel("ring", [0, 0, 0], arrows=RING))
    assert len([line for line in shown if "\u25cf" in line]) == 2  # two steps, and the way back
    assert shown[-1].strip()[0] == "\u25c0"
    shown = lines(panel("swap", [0, 0], arrows=[(0, 1), (1, 0)]))
    assert shown[-1].strip()[0] == "\u25c0" and shown[-1].strip()[-1] == "\u25b6"


def test_eight_devices_fit_a_terminal_and_too_many_cells_do_not() -> None:
    assert max(map(len, lines(panel("", [np.zeros((2, 2), int)] * 8)))) <= 100
    with pytest.raises(ValueError, match=r"'Title' is \d+ columns wide; at most 100"):
        lines(panel("", [np.zeros((1, 40), int)]))


def test_svg_has_numbers_letters_colours_and_arrows() -> None:
    steps = (panel("a < b", [7, 8, 9], arrows=RING), panel("after", [9, 7, 8], [2, 0, NOBODY]))
    svg = Panels("Title", steps).to_svg()
    assert set(texts(svg)) >= {"Title", "a < b", "after", "device 2", "7", "8", "9", "a", "c"}
    assert len(elements(svg, "line")) == len(RING)
    fills = [element.get("fill") for element in elements(svg, "rect")]
    assert [fills.count(colour) for colour in COLOURS[:3]] == [2, 1, 2]


def test_svg_holds_all_it_draws() -> None:
    picture = Panels("T", (panel("", [[1] * 9] * 8), panel("", [[[1] * 6]] * 4, columns=2)))
    svg = picture.to_svg()
    ((right, bottom),) = (numbers(root, "width", "height") for root in elements(svg, "svg"))
    for element in elements(svg, "rect")[1:]:
        x, y, width, height = numbers(element, "x", "y", "width", "height")
        assert x >= 0 and x + width <= right
        assert y >= 0 and y + height <= bottom


def test_a_layout_shows_who_holds_what() -> None:
    sharding = NamedSharding(make_mesh("dp=2,tp=2"), spec("b_tp d"))
    picture = array_panels("Title", jax.device_put(np.arange(4).reshape(4, 1), sharding))
    whole, parts = picture.panels
    assert [row[0][0] for row in whole.blocks[0]] == ["0", "1", "2", "3"]
    assert parts.names == ("dp 0, tp 0", "dp 0, tp 1", "dp 1, tp 0", "dp 1, tp 1")
    held = [[row[0][0] for row in block] for block in parts.blocks]
    assert held == [["0", "1"], ["2", "3"]] * 2
