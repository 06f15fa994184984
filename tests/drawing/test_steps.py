"""Steps in text and as SVG."""

import numpy as np
import pytest

from jaxpar.drawing.steps import Frame, StepPicture, Steps, part_text
from tests.drawing.svg import elements, texts


def sent_round(n: int) -> Steps:
    """A ring of n devices: each sends its part to the next, which adds it to its own."""
    own = np.eye(n)[:, None]  # [devices, elements, parts]
    moved = np.roll(own, 1, axis=0)
    pairs = tuple((device, (device + 1) % n) for device in range(n))
    frame = Frame("permute", ("tp",), pairs, (own,), (moved,))
    return Steps((own,), (frame,), (own + moved,))


def test_letters_say_whose_parts_a_value_holds() -> None:
    assert part_text(np.array([1, 0, 1])) == "ac"
    assert part_text(np.array([1, 2.0001, 0])) == "ab2"
    assert part_text(np.array([1, 1, 1]) / 3) == "abc/3"
    assert part_text(np.array([1, 0.5, -1])) == "ab0.5c-1"
    assert part_text(np.zeros(3)) == "."


def test_steps_in_text() -> None:
    text = StepPicture("Once round", sent_round(3), {"tp": 3}).to_text()
    lines = [line.split() for line in text.splitlines() if line]
    assert lines[2:] == [
        ["at", "the", "start"],
        ["device", "0", "1", "2"],
        ["given", "a", "b", "c"],
        ["step", "1:", "permute", "over", "tp,", "0>1", "1>2", "2>0"],
        ["device", "0", "1", "2"],
        ["sent", "a", "b", "c"],
        ["received", "c", "a", "b"],
        ["at", "the", "end"],
        ["device", "0", "1", "2"],
        ["returned", "ac", "ab", "bc"],
    ]


def test_only_senders_are_drawn_as_such() -> None:
    steps = sent_round(2)
    frame = Frame("permute", ("tp",), ((1, 0),), steps.frames[0].before, steps.frames[0].after)
    text = StepPicture("", Steps(steps.given, (frame,), steps.results), {"tp": 2}).to_text()
    (sent,) = (line.split() for line in text.splitlines() if line.startswith("sent"))
    assert sent == ["sent", "b"]


@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_is_too_long(columns: int) -> None:
    parts = np.ones((8, 20, 8))
    frame = Frame("all_reduce", ("node", "device"), (), (parts,), (parts / 8,))
    steps = Steps((parts,), (frame,), (parts,))
    text = StepPicture("Sums", steps, {"node": 2, "device": 4}).to_text(columns)
    assert max(map(len, text.splitlines())) <= columns
    assert "1,3" in text and "abcdefgh/8" in text and ".." in text


def test_svg_has_a_title_and_a_role_and_an_arrow_for_each_pair() -> None:
    svg = StepPicture("A < B", sent_round(3), {"tp": 3}).to_svg()
    (drawn,) = elements(svg, "g")
    assert drawn.get("role") == "img"
    assert [title.text for title in elements(svg, "title")] == ["A < B"]
    assert len(elements(svg, "line")) == len(elements(svg, "polygon")) == 3
    assert texts(svg)[-3:] == ["ac", "ab", "bc"]
