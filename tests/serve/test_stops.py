"""A string ends a text at the same place, however the text is cut into pieces."""

from hypothesis import given
from hypothesis import strategies as st

from jaxpar.serve.stops import Stops

LETTERS = st.text("ab", max_size=12)


def told(stops: list[str], pieces: list[str]) -> tuple[str, bool]:
    one, text = Stops(stops), ""
    for piece in pieces:
        text += one.feed(piece)
        if one.found:
            return text, True
    return text + one.end(), False


def expected(stops: list[str], text: str) -> tuple[str, bool]:
    """Looks at every beginning of the text, the shortest first."""
    for end in range(len(text) + 1):
        ended = [stop for stop in stops if text[:end].endswith(stop)]
        if ended:
            return text[: end - max(map(len, ended))], True
    return text, False


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=4),
    pieces=st.lists(LETTERS, max_size=6),
)
def test_pieces_do_not_matter(stops: list[str], pieces: list[str]) -> None:
    assert told(stops, pieces) == expected(stops, "".join(pieces))


def test_nothing_is_held_back_that_no_string_begins_with() -> None:
    one = Stops(["\n\n", "end"])
    assert [one.feed(piece) for piece in ("a", "\n", "b", "e", "n", "x")] == [
        "a", "", "\nb", "", "", "enx",
    ]  # fmt: skip
