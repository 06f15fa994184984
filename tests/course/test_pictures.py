"""Pictures of lessons are printed as lines, and written as SVG files."""

import io
import sys
from pathlib import Path

import pytest

from jaxpar.course.pictures import draw
from jaxpar.drawing.bars import Bars
from jaxpar.drawing.curves import Curves, Points, Roofline
from jaxpar.drawing.layout import Panels, panel
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.schedules import make_table, simulate

ONE = Panels("Title", [panel("", [1])])
TIMELINE = Timeline((Track("gpipe", simulate(make_table("gpipe", 2, 2))),))
PICTURES = {
    "panels": ONE,
    "timeline": TIMELINE,
    "bars": Bars("Memory", "GB", {"training": {"parameters": 1.0}}),
    "curves": Curves("Loss", "step", "loss", range(2), {"one": [2.0, 1.0]}),
    "points": Points("Losses", "bytes", "loss", {"one": (1e5, 1.0), "two": (1e4, 2.0)}),
    "roofline": Roofline("Roof", lambda intensity: min(1e14, 1e12 * intensity), 100, {"one": 10}),
}


@pytest.mark.parametrize("kind", PICTURES)
def test_draw_prints_a_picture_and_writes_it_beside_the_lessons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    (tmp_path / "exercises" / "02_collectives").mkdir(parents=True)
    (tmp_path / "lessons").mkdir()
    monkeypatch.chdir(tmp_path / "lessons")
    picture = PICTURES[kind]
    draw("one", picture)
    assert (tmp_path / "pictures" / "one.svg").read_text() == picture.to_svg()
    assert capsys.readouterr().out == f"{picture.to_text()}\n\n(in colour: pictures/one.svg)\n\n"
    assert picture._repr_svg_() == picture.to_svg()  # what a notebook shows of it


def test_draw_says_when_it_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pictures").write_text("a file where the folder should be")
    monkeypatch.chdir(tmp_path)
    draw("one", ONE)
    assert "was not written" in capsys.readouterr().out


def test_a_terminal_without_boxes_gets_ascii(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    out = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    draw("swap", Panels("Title", [panel("", [1, 2], arrows=[(0, 1), (1, 0)])]))
    for name, picture in PICTURES.items():
        draw(name, picture)
    out.flush()
    printed = out.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "| 1a |" in printed and "<------>" in printed
    assert "F0F1" in printed and "most 2" in printed and "#" in printed
