"""The text that carries solved exercises from a page to a clone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.explore import answer
from jaxpar.explore.progress import PREFIX, pack, unpack

SOLVED = {"gather": "def gather():\n    return '\u00e4'\n", "bubble_fraction": ""}
IDS = st.from_regex(r"[a-z_]{1,20}", fullmatch=True)


@given(st.dictionaries(IDS, st.text()))
def test_it_comes_out_as_it_went_in(solved: dict[str, str]) -> None:
    assert unpack(pack(solved)) == solved


def test_a_form_gives_it_as_text_that_may_be_broken_into_lines() -> None:
    text = answer("progress", {"solved": SOLVED})["text"]
    lines = "\r\n ".join(text[start : start + 30] for start in range(0, len(text), 30))
    assert unpack(f"\n {lines} \n") == SOLVED


@pytest.mark.parametrize("place", [len(PREFIX) + 2, len(PREFIX) + 20, -1])
def test_a_wrong_letter_is_found(place: int) -> None:
    text = list(pack(SOLVED))
    text[place] = "1" if text[place] == "0" else "0"
    with pytest.raises(ValueError, match="the text is damaged"):
        unpack("".join(text))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no progress of this version"),
        ("jaxpar-progress-2:0:0", "it begins with jaxpar-progress-1:"),
        (pack(SOLVED)[:-4], "the text is damaged"),
        (pack({"../gather": "x"}), "a source for each id of an exercise"),
    ],
)
def test_what_is_something_else_is_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        unpack(text)


@pytest.mark.parametrize("form", [{}, {"solved": ["gather"]}, {"solved": {"gather": 1}}])
def test_a_form_without_sources_is_refused(form: dict[str, object]) -> None:
    assert "it must hold a source for each id" in answer("progress", form)["error"]
