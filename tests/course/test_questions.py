"""Questions of a lesson: typed, asked again, skipped, and compared with what is right."""

import builtins
from collections.abc import Iterator

import pytest

from jaxpar.course.pager import Pager, ReaderLeft
from jaxpar.course.prediction import Kind
from jaxpar.course.questions import Question, ask, in_words, sent_by
from jaxpar.inspector.report import Collective, Report

TEXT = "Bytes through the server"


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What a reader at a terminal types, line by line."""
    lines: list[str] = []
    monkeypatch.setattr("jaxpar.course.questions.is_interactive", lambda: True)
    monkeypatch.setattr(builtins, "input", lambda *_: lines.pop(0))
    yield lines
    assert not lines


def test_a_number_is_kept(reader: list[str]) -> None:
    reader[:] = ["3/4 * 2 kB"]
    assert ask(TEXT) == Question(TEXT, "bytes", 1500)


def test_what_is_no_number_is_asked_again(reader: list[str], capsys: pytest.CaptureFixture) -> None:
    reader[:] = ["many", "7 ms"]
    assert ask(TEXT, "seconds") == Question(TEXT, "seconds", 0.007)
    assert "received 'many'; a time is allowed" in capsys.readouterr().out


def test_enter_skips(reader: list[str]) -> None:
    reader[:] = [""]
    assert ask(TEXT).typed is None


@pytest.mark.parametrize("line", ["q", " Q "])
def test_q_leaves(line: str, reader: list[str]) -> None:
    reader[:] = [line]
    with pytest.raises(ReaderLeft):
        ask(TEXT)


def test_nobody_is_asked_where_nobody_reads(capsys: pytest.CaptureFixture) -> None:
    assert ask(TEXT).typed is None
    assert capsys.readouterr().out == f"{TEXT}\n"


def test_a_page_shows_what_comes_before_a_question(
    reader: list[str], capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(builtins, "input", lambda *_: seen.append(capsys.readouterr().out) or "6")
    with Pager().collected():
        print("before")
        ask(TEXT)
        print("after")
    assert "before" in seen[0] and TEXT in seen[0] and "after" not in seen[0]
    rest = capsys.readouterr().out
    assert "after" in rest and "before" not in rest


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (None, "Bytes through the server: 2,400 bytes.\n"),
        (2404.0, "2,400 bytes. You predicted it."),
        (1200.0, "2,400 bytes. You predicted 1,200 bytes, 0.5 of it."),
    ],
)
def test_it_is_compared_with_what_is_right(
    typed: float | None, said: str, capsys: pytest.CaptureFixture
) -> None:
    Question(TEXT, "bytes", typed).compare(2400, {"all-reduce over dp": 2400})
    printed = capsys.readouterr().out
    assert said in printed
    assert ("all-reduce over dp" in printed) is (typed != 2404)


def test_nothing_at_all_can_be_right(capsys: pytest.CaptureFixture) -> None:
    Question(TEXT, "bytes", 0).compare(0)
    Question(TEXT, "bytes", 5).compare(0)
    right, wrong = capsys.readouterr().out.split("\n\n")[:2]
    assert right.endswith("0 bytes. You predicted it.")
    assert wrong.endswith("0 bytes. You predicted 5 bytes.")


def test_what_is_sent_is_told_by_collective_and_axis() -> None:
    reduce = Collective("all_reduce", ("dp",), 8, "float32", 32, 56, times=3)
    gather = Collective("all_gather", ("dp", "tp"), 16, "float32", 4, 60)
    report = Report((reduce, gather, reduce))
    assert sent_by(report) == {"all-reduce over dp": 336, "all-gather over dp, tp": 60}


@pytest.mark.parametrize(
    ("quantity", "kind", "words"),
    [
        (0, "bytes", "0 bytes"), (43_904, "bytes", "43,904 bytes"), (1.79e6, "bytes", "1.79 MB"),
        (16e9, "bytes", "16 GB"), (0.0024, "seconds", "2.4 ms"), (12, "seconds", "12 s"),
        (3e-7, "seconds", "0.3 us"), (2475, "count", "2,475"), (0.6, "count", "0.6"),
    ],
)  # fmt: skip
def test_a_quantity_has_a_unit_that_suits_it(quantity: float, kind: Kind, words: str) -> None:
    assert in_words(quantity, kind) == words
