"""Exercises in cells: what is written, shown and kept; and lessons as notebooks."""

from __future__ import annotations

import _thread
import atexit
import json
import re
import sys
import threading
import types
from typing import Any

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

import jaxpar.notebook
from jaxpar.course.catalog import LESSONS, BadUseError, exercise
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.course.lesson import table
from jaxpar.course.notebook import kernel, magic, sitting
from jaxpar.course.notebook.cell_file import answer_of
from jaxpar.course.notebook.lesson_file import write_notebook
from jaxpar.course.notebook.result import Result
from jaxpar.course.notebook.sitting import NOTHING_ELSE, Sitting, Wishes
from jaxpar.course.pictures import draw
from jaxpar.drawing.layout import Panels, panel
from jaxpar.grading.notebook_cells import exercise_cells
from jaxpar.grading.verdict import Verdict
from jaxpar.grading.writers import plain_lines
from tests.course.elements import Elements
from tests.course.fakes import FakeJudge, answer, stub_of, verdict, write

ROW = exercise("mean_over_devices")  # a device sends something in it
CELL = f"# %%exercise {ROW.id}\n{{}}"
RIGHT, WRONG = (CELL.format(answer(ROW, word)) for word in ("right", "wrong"))


@pytest.fixture
def fake() -> FakeJudge:
    return FakeJudge()


@pytest.fixture
def notebook(course: Course, fake: FakeJudge) -> Sitting:
    return Sitting(course, fake.open)


def check(notebook: Sitting, source: str | None, wishes: Wishes = NOTHING_ELSE) -> Result:
    return notebook.check(ROW.id, source, wishes)


def backups(course: Course) -> list[str]:
    return [path.read_text() for path in sorted((course.state / "backups").glob("*"))]


def test_a_cell_is_written_and_judged_as_in_the_terminal(course: Course, notebook: Sitting) -> None:
    for source, passes in ((WRONG, False), (RIGHT, True)):
        result = check(notebook, source)
        assert course.file(ROW).read_text() == source
        assert repr(result) == "\n".join(plain_lines(verdict(ROW, passes)))
        assert (result.score, result.max_score, result.passed) == (10 * passes, 10, passes)
    assert LearnerRecord(course.state).place() == ROW.id
    assert not backups(course)  # a cell replaces what a cell has written


def test_without_a_source_the_file_is_judged_as_it_is(course: Course, notebook: Sitting) -> None:
    write(course, ROW, answer(ROW, "right"))
    assert check(notebook, None).score == 10
    course.file(ROW).unlink()
    missing = check(notebook, None)
    assert (missing.score, missing.verdict.status) == (0, "not-submitted")


def test_what_others_wrote_is_kept(course: Course, notebook: Sitting) -> None:
    check(notebook, WRONG)
    write(course, ROW, "typed in an editor = 1\n")
    result = check(notebook, RIGHT)
    assert backups(course) == ["typed in an editor = 1\n"]
    assert f".jaxpar/backups/{ROW.id}.1.py" in repr(result)
    assert check(notebook, RIGHT).notes == ()


def test_another_kernel_knows_what_a_cell_has_written(course: Course, fake: FakeJudge) -> None:
    for source in (WRONG, RIGHT):
        check(Sitting(course, fake.open), source)
    assert not backups(course)


def test_a_stub_replaces_no_answer(course: Course, notebook: Sitting) -> None:
    stub = CELL.format(stub_of(ROW).decode())
    check(notebook, stub)
    check(notebook, RIGHT)
    with pytest.raises(BadUseError, match=r"holds an answer, .* still the stub"):
        check(notebook, stub)
    assert course.file(ROW).read_text() == RIGHT


def test_what_cannot_be_kept_is_not_replaced(course: Course, notebook: Sitting) -> None:
    write(course, ROW, "mine = 1\n")
    course.state.write_text("a file where a folder should be")
    with pytest.raises(BadUseError, match=r"exercise: no backup could be written"):
        check(notebook, RIGHT)
    assert course.file(ROW).read_text() == "mine = 1\n"


@pytest.mark.parametrize("source", ["", "\n \n", CELL.format("# nothing\n")])
def test_a_cell_without_code_is_not_written(course: Course, notebook: Sitting, source: str) -> None:
    with pytest.raises(BadUseError, match="there is no code in the cell"):
        check(notebook, source)
    assert course.file(ROW).read_bytes() == stub_of(ROW)


def test_text_that_is_no_text_is_one_line(notebook: Sitting) -> None:
    with pytest.raises(BadUseError, match="not UTF-8"):
        check(notebook, "x = '\ud800'")


def test_the_first_prediction_counts(notebook: Sitting) -> None:
    wrong = check(notebook, WRONG, Wishes(prediction="2 * 64"))
    assert "  predicted  128 bytes\n  measured   96 bytes" in repr(wrong)
    assert wrong.notes == ("That is not what you predicted.",)
    again = check(notebook, RIGHT, Wishes(prediction="96"))
    assert "Your first prediction counts: 128 bytes." in again.notes
    with pytest.raises(BadUseError, match=r"prediction: received 'many'; .* or 2 KiB$"):
        check(notebook, RIGHT, Wishes(prediction="many"))


def test_a_prediction_of_what_is_not_measured_is_told(notebook: Sitting) -> None:
    row = exercise("local_shape")
    result = notebook.check(row.id, answer(row, "right"), Wishes(prediction="96"))
    assert result.notes == ("What each device sends is not measured in this exercise.",)


def test_hints_come_one_by_one_until_it_passes(notebook: Sitting) -> None:
    wishes = Wishes(hint=True)
    assert [check(notebook, WRONG, wishes).notes[0][:11] for _ in range(3)] == [
        "Hint 1 of 2", "Hint 2 of 2", "Hint 2 of 2"
    ]  # fmt: skip
    assert not check(notebook, RIGHT, wishes).notes


def test_the_solution_comes_with_a_pass_or_where_it_was_seen(
    course: Course, notebook: Sitting
) -> None:
    wishes = Wishes(solution=True)
    wrong = check(notebook, WRONG, wishes)
    assert wrong.solution is None
    assert "The solution is shown once" in repr(wrong)
    assert "lax.psum" in repr(check(notebook, RIGHT, wishes))
    LearnerRecord(course.state).remember_seen(ROW.id)
    assert check(notebook, WRONG, wishes).solution


def test_ctrl_c_stops_a_judgement_and_the_next_one_works(
    course: Course, notebook: Sitting, fake: FakeJudge
) -> None:
    def interrupt() -> None:
        assert fake.started.wait(10)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    slow = CELL.format(answer(ROW, "slow"))
    with pytest.raises(KeyboardInterrupt):
        check(notebook, slow)
    assert fake.cancels == 1
    assert course.file(ROW).read_text() == slow
    assert check(notebook, RIGHT).passed


def test_a_judge_that_fails_says_so_and_goes_on(notebook: Sitting) -> None:
    with pytest.raises(RuntimeError, match="out of order"):
        check(notebook, CELL.format(answer(ROW, "crash")))
    assert check(notebook, RIGHT).passed


def test_a_verdict_is_a_table_for_whoever_reads_or_hears_it() -> None:
    crafted = Verdict(
        **{**vars(verdict(ROW, False)), "printed": "<script>alert(1)</script> Traced<"}
    )
    result = Result(crafted, 96, None, ("a <note>",), ("x = '<b>'", "file.py"))
    page = Elements(result._repr_html_())
    tags = [tag for tag, _ in page.found]
    assert tags.count("caption") == tags.count("table") == 2
    assert not {"script", "note", "b", "style", "link"} & set(tags)
    heads = [attributes["scope"] for tag, attributes in page.found if tag == "th"]
    assert set(heads) == {"col", "row"}
    assert "color" not in result._repr_html_()  # what is around it decides
    words = set(repr(result).split()) - {"#"}
    assert words <= set(page.text.split())


@pytest.fixture
def shell(course: Course, fake: FakeJudge, monkeypatch: pytest.MonkeyPatch) -> InteractiveShell:
    opened = Sitting(course, fake.open)
    monkeypatch.chdir(course.root)
    for module in (magic, sitting):
        monkeypatch.setattr(module, "sitting_in", lambda course: opened)
    config = Config()
    config.HistoryManager.enabled = False
    shell = InteractiveShell(config=config)
    atexit.unregister(shell.atexit_operations)  # it collects garbage after JAX has been left
    jaxpar.notebook.load_ipython_extension(shell)
    return shell


@pytest.mark.parametrize("options", ["", " --predict 3/4 * 128 --hint"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize("start", ["", "\n\n"])
def test_the_file_is_what_grading_finds_in_the_notebook(
    course: Course, shell: InteractiveShell, start: str, end: str, options: str
) -> None:
    cell = f"{start}%%exercise {ROW.id}{options}\n{answer(ROW, 'right').strip()}{end}"
    result = shell.run_cell(cell).result
    assert isinstance(result, Result) and result.passed
    saved = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    (graded,) = exercise_cells(nbformat.writes(saved).encode())
    assert course.file(ROW).read_text() == graded.source


def test_code_may_call_the_magic(course: Course, shell: InteractiveShell) -> None:
    body = answer(ROW, "right")
    shell.run_cell(f"get_ipython().run_cell_magic('exercise', {ROW.id!r}, {body!r})")
    assert course.file(ROW).read_text() == RIGHT


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gathr", "exercise: there is no exercise 'gathr'; did you mean gather?"),
        ("gath", "the whole name comes first: %%exercise gather"),
        ("--hint gather", "the whole name comes first: %%exercise gather"),
        ("gather --oops", "unrecognized arguments: --oops"),
        ("", "the following arguments are required: id"),
        ("gather --predict x", "prediction: received 'x'"),
    ],
)
def test_a_wrong_first_line_is_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], line: str, says: str
) -> None:
    ran = shell.run_cell(f"%%exercise {line}\nx = 1")
    assert not ran.success  # so that `Run All` stops here
    printed = capsys.readouterr().err
    assert says in printed
    assert len(printed.strip().splitlines()) == 1


def test_a_folder_without_a_course_is_one_line(
    shell: InteractiveShell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    shell.run_cell("%%exercise gather\nx = 1")
    assert "UsageError: jaxpar: no course in / or above it" in capsys.readouterr().err


def test_ctrl_c_is_one_line(
    shell: InteractiveShell, fake: FakeJudge, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        assert fake.started.wait(10)
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    assert not shell.run_cell(f"%%exercise {ROW.id}\n{answer(ROW, 'slow')}").success
    assert "exercise: stopped; the cell is written" in capsys.readouterr().err


def test_check_finds_the_course(shell: InteractiveShell) -> None:
    assert jaxpar.notebook.check(ROW.id, answer(ROW, "right")).score == 10


def test_without_ipython_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    with pytest.raises(BadUseError, match=r"needs IPython, which is missing; install ipykernel"):
        jaxpar.notebook.load_ipython_extension(None)


LESSON = next(lesson for lesson in LESSONS if ROW in lesson.asks)
SOURCE = f"""\
# %% [markdown]
# # Lesson

# %% tags=["fold"]
x = 1

# %%
exercises("{LESSON.number}")

# %% [markdown]
# ## On paper
"""


@pytest.fixture
def lesson(course: Course) -> Course:
    path = course.file(LESSON)
    path.parent.mkdir()
    path.write_text(SOURCE)
    return course


def test_a_lesson_becomes_a_notebook_with_its_stubs(lesson: Course) -> None:
    path = lesson.root / "notebooks" / "one.ipynb"
    assert write_notebook(lesson, LESSON, path, colab=False) is None
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    sources = [cell.source for cell in notebook.cells]
    assert sources[0] == "# Lesson" and sources[-1] == "## On paper"
    assert sources[2] == f'exercises("{LESSON.number}")'
    assert sources[4] == "%load_ext jaxpar.notebook"
    assert notebook.cells[1].metadata.jupyter.source_hidden
    for row, found in zip(LESSON.asks, exercise_cells(path.read_bytes()), strict=True):
        assert found.source.rstrip() == f"# %%exercise {row.id}\n{stub_of(row).decode()}".rstrip()
        answered = answer_of(sources[found.number - 1])
        assert answered and answered.source == found.source


def test_a_notebook_is_not_overwritten_silently(lesson: Course) -> None:
    path = lesson.root / "notebooks" / "one.ipynb"
    for _ in range(2):
        assert write_notebook(lesson, LESSON, path, colab=False) is None
    path.write_text("my answers")
    backup = write_notebook(lesson, LESSON, path, colab=False)
    assert backup == lesson.state / "backups" / "one.1.ipynb"
    assert backup.read_text() == "my answers"
    assert json.loads(path.read_text())["cells"]


def test_colab_begins_with_an_installation_and_devices(
    lesson: Course, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lesson.root / "colab.ipynb"
    write_notebook(lesson, LESSON, path, colab=True)
    cells = nbformat.read(path, as_version=4).cells
    assert "Restart" in cells[0].source
    assert re.fullmatch(r"%pip install --quiet jaxpar-[\d.]+-py3-none-any.whl", cells[1].source)
    assert cells[2].source.endswith("simulate_devices(8)")
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", str(lesson.root / "home"))
    exec(cells[2].source, {})
    assert (lesson.root / "home/jaxpar" / ROW.file).is_file()


def test_a_lesson_that_is_missing_is_one_line(course: Course) -> None:
    with pytest.raises(BadUseError, match=r"notebook: .* is missing; `jaxpar init` puts it back"):
        write_notebook(course, LESSON, course.root / "one.ipynb", colab=False)


def test_a_notebook_shows_pictures_and_tables_in_place_of_text(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[tuple[str, str, str]] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernel, "show", lambda *what: shown.append(what))
    shell = types.SimpleNamespace(kernel=None)
    fake = types.SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", fake)
    picture = Panels("Title", [panel("", [1])])
    draw("one", picture)
    table("Bytes <sent>", ("what", "bytes"), [("a & b", 1.5), ("c", 20.0)])
    assert shown[0] == ("image/svg+xml", picture.to_svg(), picture.to_text())
    kind, html, text = shown[1]
    assert kind == "text/html"
    page = Elements(html)
    assert "Bytes <sent>" in page.text and "a & b" in page.text and "20.0" in page.text
    assert [a["scope"] for tag, a in page.found if tag == "th"] == ["col", "col"]
    assert "20.0" in text and "\x1b" not in text
    assert not capsys.readouterr().out
    assert not list(tmp_path.iterdir())
