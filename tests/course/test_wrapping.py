"""Long lines of code are broken between tokens, and those of prose between words."""

import tokenize
from io import StringIO

import pytest
from rich.console import Console
from rich.text import Text

from jaxpar.course.wrapping import Code, Entries, wrapped


def lines(source: str, width: int) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(Code(source))
    return capture.get().splitlines()


@pytest.mark.parametrize(
    ("source", "width", "expected"),
    [
        (
            'names = ["w_up", "relu(x @ w_up)"]',
            30,
            ['names = ["w_up",', '        "relu(x @ w_up)"]'],
        ),
        (
            'f(parts, names=[f"device {name}" for name in "abcd"])',
            40,
            ['f(parts, names=[f"device {name}" for', '        name in "abcd"])'],
        ),
        ("call_of_something(argument)", 22, ["call_of_something(", "        argument)"]),
        (
            "x = 1  # a remark of some length",
            22,
            ["x = 1  # a remark of", "        # some length"],
        ),
        ("abcdefghijklmnopqrst", 16, ["abcdefghijklmnop", "        qrst"]),
        ('"""One line\nand a longer one, of words."""', 20,
         ['"""One line', "and a longer one, of", '        words."""']),
        ("this is ( no Python that can be read", 20,
         ["this is ( no Python", "        that can be", "        read"]),
    ],
)  # fmt: skip
def test_a_line_is_broken_where_a_reader_would(
    source: str, width: int, expected: list[str]
) -> None:
    assert lines(source, width) == expected


def test_what_fits_stays_as_it_is() -> None:
    source = "def f(x):\n    return x  # the same"
    assert lines(source, 80) == source.splitlines()


def test_code_in_pieces_has_the_same_tokens() -> None:
    source = 'draw("a b", [panel(x, w, names=f"{x} of {w}"), *rest], key=lambda one: one["a b"])'
    pieces = "\n".join(lines(f"({source})", 40))

    def tokens(text: str) -> list[str]:
        found = (token.string for token in tokenize.generate_tokens(StringIO(text).readline))
        return [text for text in found if text.strip()]

    assert len(pieces.splitlines()) > 2
    assert tokens(pieces) == tokens(f"({source})")


def test_wide_letters_count_twice() -> None:
    pieces = wrapped(Text("\u4e00" * 12), 16)
    assert [piece.cell_len for piece in pieces] == [16, 16]
    assert "".join(piece.plain.strip() for piece in pieces) == "\u4e00" * 12


def test_an_entry_is_never_broken() -> None:
    console = Console(width=24, color_system=None)
    with console.capture() as capture:
        console.print(Entries(Text("n next  s solution  c check all  q quit")))
    assert capture.get().splitlines() == [
        "n next  s solution",
        "        c check all",
        "        q quit",
    ]
