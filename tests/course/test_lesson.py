"""What lessons print with, and how a lesson is run."""

import sys
from pathlib import Path

import pytest

from jaxpar.course.lesson import exercises, run_lesson, show, table
from jaxpar.mesh import spec

LESSON = """\
# %% [markdown]
# # Title
#
# Prose with `code`.

# %%
x = 6


def line():
    return sys._getframe().f_lineno


# %% [markdown]
# ## Predict
#
# How much?

# %%
import sys

print("x is", 7 * x, "on line", line())
"""


ANSWERED = """\
# %% [markdown]
# How many?
#
# <details><summary>Answer</summary>
#
# Seven.
#
# </details>
#
# And now?

# %% tags=["fold"]
print("drawn" + "!")
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lesson.py").write_text(LESSON)
    return tmp_path / "lesson.py"


def test_prose_code_and_output_come_in_order(path: Path, capsys: pytest.CaptureFixture) -> None:
    run_lesson(path)
    printed = capsys.readouterr().out
    parts = ("Title", "Prose with code.", "x = 6", "How much?", "x is 42 on line 11")
    places = [printed.index(part) for part in parts]
    assert places == sorted(places)
    assert "# %%" not in printed


def test_a_terminal_stops_before_each_section(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("jaxpar.course.lesson.is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda *_: asked.append(capsys.readouterr().out) or "")
    run_lesson(path)
    (before_section,) = asked
    assert "x = 6" in before_section and "Predict" not in before_section


@pytest.mark.parametrize("leaves", ["q", EOFError, KeyboardInterrupt])
def test_a_reader_who_leaves_learns_how_to_come_back(
    path: Path,
    leaves: str | type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def answer(*_: str) -> str:
        if isinstance(leaves, str):
            return leaves
        raise leaves

    monkeypatch.setattr("jaxpar.course.lesson.is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", answer)
    assert not run_lesson(path.rename(path.with_name("07_title.py")))
    printed = capsys.readouterr().out
    assert "x = 6" in printed and "Predict" not in printed
    assert printed.endswith("To come back: jaxpar lesson 07\n")


def test_a_pipe_is_not_a_terminal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it waits for a key"))
    run_lesson(path)


def test_show_prints_the_source(capsys: pytest.CaptureFixture) -> None:
    show(spec)
    printed = capsys.readouterr().out
    assert (
        printed.startswith("# jaxpar/mesh.py\ndef spec(") and "PartitionSpec(*entries)" in printed
    )


def test_table_sets_numbers_to_the_right(capsys: pytest.CaptureFixture) -> None:
    table("Bytes", ("what", "bytes"), [("a", 1024.0), ("b", 1.5)])
    title, *rows = capsys.readouterr().out.splitlines()
    assert title == "Bytes"
    assert [row.rstrip() for row in rows if row.strip().startswith(("a", "b"))] == [
        "  a      1,024.0",
        "  b          1.5",
    ]


def test_exercises_are_those_of_the_catalog(capsys: pytest.CaptureFixture) -> None:
    exercises("01")
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("device_coordinates", "local_shape", "add_rank"))
    assert "`jaxpar check device_coordinates`" in printed


def test_an_answer_waits_for_the_reader(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    path.write_text(ANSWERED)
    asked: list[str] = []
    monkeypatch.setattr("jaxpar.course.lesson.is_interactive", lambda: True)
    monkeypatch.setattr("builtins.input", lambda *_: asked.append(capsys.readouterr().out) or "")
    run_lesson(path)
    assert "How many?" in asked[0] and "Seven" not in asked[0]
    rest = capsys.readouterr().out
    assert "Seven." in rest and "And now?" in rest and "details" not in rest


@pytest.mark.parametrize("brief", [True, False])
def test_a_brief_lesson_leaves_out_code_that_only_draws(
    brief: bool, path: Path, capsys: pytest.CaptureFixture
) -> None:
    path.write_text(ANSWERED)
    run_lesson(path, brief=brief)
    printed = capsys.readouterr().out
    assert "drawn!" in printed and "Seven." in printed
    assert ("print(" in printed) is not brief
