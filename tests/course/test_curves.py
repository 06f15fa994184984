from pathlib import Path
from xml.etree import ElementTree

import pytest

from jaxpar.course.curves import COLUMNS, ROWS, Curves
from jaxpar.course.pictures import draw_curves

DOWN, UP = [4.0, 2.0, 1.0], [1.0, 2.0, 4.0]


def cells(curves: Curves) -> list[str]:
    lines = curves.to_text().splitlines()
    return [line.partition("\u2502")[2].ljust(COLUMNS) for line in lines if "\u2502" in line]


def test_a_curve_goes_through_its_values() -> None:
    rows = cells(Curves("Loss", "step", {"one": DOWN}))
    assert len(rows) == ROWS
    assert rows[0][0] == rows[-1][-1] == "a"
    assert all("".join(column).split() == ["a"] for column in zip(*rows, strict=True))


def test_curves_that_meet_take_turns() -> None:
    rows = cells(Curves("Loss", "step", {"one": DOWN, "same": DOWN, "up": UP}))
    assert (rows[0].rstrip()[:2], rows[0].rstrip()[-1]) == ("ab", "c")


def test_axes_and_names_are_written() -> None:
    text = Curves("Loss", "step", {"one": DOWN, "two": UP}).to_text()
    assert text.startswith("Loss\n====\n")
    assert "4.00 \u2502" in text and "1.00 \u2502" in text
    across = next(line for line in text.splitlines() if "step" in line)
    assert across.split() == ["0", "step", "2"]
    assert text.endswith("\n\na  one\nb  two")
    assert max(map(len, text.splitlines())) <= 80


def test_svg_has_a_line_for_each_curve_and_holds_it() -> None:
    root = ElementTree.fromstring(Curves("a < b", "step", {"one": DOWN, "two": UP}).to_svg())
    lines = [line.get("points", "") for line in root.iter() if line.tag.endswith("polyline")]
    points = [[tuple(map(float, p.split(","))) for p in line.split()] for line in lines]
    (frame, one, two, *_) = points
    assert len(lines) == 1 + 2 * 2  # the axes; each curve, and its sample beside its name
    assert [y for _, y in one] == [y for _, y in reversed(two)]
    assert one[0] == frame[0] and one[-1] == frame[-1]
    assert max(x for x, _ in one) < float(root.get("width", 0))
    assert "a < b" in "".join(root.itertext())


def test_curves_are_written_beside_the_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    curves = draw_curves("one", "Loss", "step", {"one": DOWN})
    assert (tmp_path / "pictures" / "one.svg").read_text() == curves.to_svg()
    assert capsys.readouterr().out == f"{curves.to_text()}\n\n(in colour: pictures/one.svg)\n\n"
