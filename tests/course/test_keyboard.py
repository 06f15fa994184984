"""Keys and lines as they come from a terminal."""

import pytest

from jaxpar.course.keyboard import CHUNK, DOWN, ESCAPE, HOME, PAGE_DOWN, UP, split_keys


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("h", ["h"]),
        ("\n", ["\n"]),
        ("\r", ["\n"]),
        ("hint\n", ["hint\n"]),
        ("hint\r\nlist\n", ["hint\n", "list\n"]),
        ("96", ["9", "6"]),
        ("hint\nq", ["hint\n", "q"]),
        ("\x1b[A", [UP]),
        ("\x1bOB\x1bOBj", [DOWN, DOWN, "j"]),
        ("\x1b[1~\x1b[6~", [HOME, PAGE_DOWN]),
        ("\x1b", [ESCAPE]),
        ("\x1bx\x1b[15~\x1b[1;5Cq", ["q"]),
    ],
)
def test_a_chunk_is_lines_and_keys(text: str, texts: list[str]) -> None:
    assert split_keys(text) == (texts, "")


def test_a_line_cut_at_the_end_of_a_chunk_is_kept() -> None:
    texts, rest = split_keys("hint\n" + "x" * CHUNK)
    assert texts == ["hint\n"]
    assert rest == "x" * CHUNK
