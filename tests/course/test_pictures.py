import io
import sys
from pathlib import Path
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from jaxpar.course.drawing import COLOURS, Picture
from jaxpar.course.pictures import NOBODY, draw, draw_layout, draw_schedules, draw_steps, panel
from jaxpar.mesh import make_mesh, spec
from jaxpar.schedules import make_table, simulate
from jaxpar.schedules.drawing import Track

SVG = "{http://www.w3.org/2000/svg}"
RING = [(0, 1), (1, 2), (2, 0)]


def lines(*panels: object) -> list[str]:
    return Picture("Title", panels).to_text().splitlines()


def elements(picture: Picture, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(picture.to_svg()).iter(f"{SVG}{tag}"))


def texts(picture: Picture) -> list[str]:
    return ["".join(element.itertext()) for element in elements(picture, "text")]


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
    picture = Picture("Title", steps)
    assert set(texts(picture)) >= {"Title", "a < b", "after", "device 2", "7", "8", "9", "a", "c"}
    assert len(elements(picture, "line")) == len(RING)
    fills = [element.get("fill") for element in elements(picture, "rect")]
    assert [fills.count(colour) for colour in COLOURS[:3]] == [2, 1, 2]


def test_svg_holds_all_it_draws() -> None:
    picture = Picture("T", (panel("", [[1] * 9] * 8), panel("", [[[1] * 6]] * 4, columns=2)))
    root = ElementTree.fromstring(picture.to_svg())
    for element in elements(picture, "rect")[1:]:
        x, y, width, height = (
            float(element.get(name, 0)) for name in ("x", "y", "width", "height")
        )
        assert x >= 0 and x + width <= float(root.get("width", 0))
        assert y >= 0 and y + height <= float(root.get("height", 0))


def test_draw_writes_beside_the_lessons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "exercises" / "02_collectives").mkdir(parents=True)
    (tmp_path / "lessons").mkdir()
    monkeypatch.chdir(tmp_path / "lessons")
    picture = draw("one", "Title", panel("", [1]))
    assert (tmp_path / "pictures" / "one.svg").read_text() == picture.to_svg()
    assert capsys.readouterr().out == f"{picture.to_text()}\n\n(in colour: pictures/one.svg)\n\n"


def test_draw_says_when_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures").write_text("a file where the folder should be")
    monkeypatch.chdir(tmp_path)
    draw("one", "Title", panel("", [1]))
    assert "was not written" in capsys.readouterr().out


def test_a_terminal_without_boxes_gets_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    draw("one", "Title", panel("", [1, 2], arrows=[(0, 1), (1, 0)]))
    draw_schedules("two", Track("gpipe", simulate(make_table("gpipe", 2, 2))))
    out.flush()
    printed = out.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "| 1a |" in printed and "<------>" in printed
    assert "F0F1" in printed and "most 2" in printed and "#" in printed


def test_schedules_stand_one_above_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tracks = (Track(name, simulate(make_table(name, 2, 3))) for name in ("gpipe", "1f1b"))
    drawing = draw_schedules("two", *tracks)
    printed = capsys.readouterr().out
    assert printed.index("gpipe: 2 devices") < printed.index("1f1b: 2 devices")
    assert (tmp_path / "pictures" / "two.svg").read_text() == drawing.to_svg()


def test_a_layout_shows_who_holds_what(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sharding = NamedSharding(make_mesh("dp=2,tp=2"), spec("b_tp d"))
    picture = draw_layout("layout", "Title", jax.device_put(np.arange(4).reshape(4, 1), sharding))
    whole, parts = picture.panels
    assert [row[0][0] for row in whole.blocks[0]] == ["0", "1", "2", "3"]
    assert parts.names == ("dp 0, tp 0", "dp 0, tp 1", "dp 1, tp 0", "dp 1, tp 1")
    held = [[row[0][0] for row in block] for block in parts.blocks]
    assert held == [["0", "1"], ["2", "3"]] * 2


def test_steps_mark_where_a_number_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    moments = [np.array([1.0, 2.0]), np.array([3.0, np.nan])]
    before, after = draw_steps("steps", "Title", moments, [[(1, 0)]]).panels
    assert before.blocks == (((("1", 0),),), ((("2", 1),),))
    assert after.blocks == (((("3", None),),), (((".", None),),))
    assert before.arrows == ((1, 0),)
