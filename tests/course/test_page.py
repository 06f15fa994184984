"""A lesson as a page: what it shows, in order, for a browser and for a screen reader."""

import re
from pathlib import Path

import pytest

from jaxpar.course.catalog import BadUseError, lesson
from jaxpar.course.folder import Course
from jaxpar.course.page.lesson_page import lesson_parts, to_html, to_markdown, write_page
from jaxpar.course.page.parts import Part, from_json, to_json
from jaxpar.course.page.recorder import record
from tests.course.elements import Elements

LESSON = """\
# %% [markdown]
# # Lesson 02: one
#
# Prose with *emphasis* & `code`.

# %%
from jaxpar.course.lesson import show, show_report, table
from jaxpar.course.pictures import draw
from jaxpar.course.questions import ask
from jaxpar.drawing.layout import Panels, panel
from jaxpar.inspector import Report
from jaxpar.mesh import spec

# %% [markdown]
# ## Predict

# %%
sent = ask("Bytes that each device sends")
steps = ask("Steps", "count")
print("a < b")

# %% [markdown]
# ## Measure
#
# <details><summary>Answer</summary>
#
# *Seven.*
#
# </details>

# %% tags=["fold"]
draw("one", Panels("A picture", [panel("", [1])]))
table("Bytes <sent>", ("what", "bytes"), [("a & b", 1.5), ("c", 20.0)])
show(spec)

# %% [markdown]
# ## Compare

# %%
sent.compare(896.0, {"7 chunks": 896})
steps.compare(3)

# %% [markdown]
# ## Exercises
"""
ROW = lesson("02")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "lesson.py").write_text(LESSON)
    return tmp_path / "lesson.py"


@pytest.fixture
def course(tmp_path: Path) -> Course:
    course = Course(tmp_path / "course")
    course.file(ROW).parent.mkdir(parents=True)
    course.file(ROW).write_text(LESSON)
    return course


def test_everything_comes_in_the_order_of_the_lesson(path: Path) -> None:
    parts = record(path)
    assert [part.kind for part in parts] == [
        "prose", "code",
        "prose", "code", "html", "html", "printed",
        "prose", "fold", "html", "html", "code",
        "prose", "fold", "html", "html",
        "prose",
    ]  # fmt: skip
    assert parts[6] == Part("printed", "a < b")
    assert parts[11].text.startswith("# jaxpar/mesh.py\ndef spec(")
    assert from_json(to_json(parts)) == parts


def test_nothing_is_printed_or_written_beside_the_page(
    path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    record(path)
    assert capsys.readouterr() == ("", "")
    assert list(path.parent.iterdir()) == [path]


def test_the_page_stands_alone_and_can_be_heard(path: Path) -> None:
    page = Elements(to_html(ROW, record(path)))
    tags = [tag for tag, _ in page.found]
    assert not {"link", "img", "iframe"} & set(tags)
    assert not any("src" in attributes for _, attributes in page.found)
    assert tags.count("main") == 1 and tags.count("h1") == 1
    assert [a["id"] for tag, a in page.found if tag == "h2"] == [
        "predict",
        "measure",
        "compare",
        "exercises",
    ]
    svg = tags.index("svg")
    assert page.found[svg][1]["role"] == "img" and tags[svg + 1] == "title"
    assert tags.count("caption") == tags.count("table") == 2
    assert {a.get("scope") for tag, a in page.found if tag == "th"} == {"col", "row"}
    for shown in ("a < b", "Bytes <sent>", "a & b", "20.0", "Seven.", "PartitionSpec"):
        assert shown in page.text


def test_an_answer_belongs_to_its_question(path: Path) -> None:
    found = Elements(to_html(ROW, record(path))).found
    asked = [a for _, a in found if a.get("class") == "question"]
    answered = [a for _, a in found if a.get("class") == "measured"]
    assert [a["id"] for a in asked] == [a["data-question"] for a in answered]
    assert len({a["id"] for a in asked}) == 2
    assert [float(a["data-measured"] or 0) for a in answered] == [896, 3]


def test_markdown_for_the_site_has_no_blank_line_in_html(path: Path) -> None:
    parts = record(path)
    text = to_markdown(parts)
    assert "```python\nsent = ask(" in text and "```text\na < b\n```" in text
    assert '<details markdown="1"><summary>Code that asks, draws or checks</summary>' in text
    for part in parts:
        assert part.kind != "html" or not re.search(r"\n\s*\n", part.text)


def test_a_page_is_written_by_a_process_of_its_own(course: Course, tmp_path: Path) -> None:
    write_page(course, ROW, tmp_path / "one.html")
    assert "Bytes that each device sends" in (tmp_path / "one.html").read_text()


def test_a_lesson_that_fails_names_its_error(course: Course) -> None:
    course.file(ROW).write_text("# %%\n1 / 0\n")
    with pytest.raises(BadUseError, match=r"failed \(ZeroDivisionError: division by zero\)"):
        lesson_parts(course, ROW)
    course.file(ROW).unlink()
    with pytest.raises(BadUseError, match=r"is missing; `jaxpar init` puts it back"):
        lesson_parts(course, ROW)
