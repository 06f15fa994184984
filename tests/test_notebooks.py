"""The notebook of every lesson runs in a kernel, where the stubs are wrong answers."""

import signal
import threading
from pathlib import Path

import nbclient
import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from jaxpar.course.catalog import LESSONS, Lesson
from jaxpar.course.folder import Course, make_course
from jaxpar.course.notebook.lesson_file import write_notebook
from tests.course.fakes import RIGHT

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.always  # no import shows that these tests read the lessons


def client(notebook: nbformat.NotebookNode, folder: Path) -> nbclient.NotebookClient:
    place = {"metadata": {"path": folder}}
    return nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3", resources=place)


@pytest.fixture(autouse=True)
def _import_from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.mark.parametrize(
    "lesson",
    [
        pytest.param(
            lesson,
            id=lesson.name,
            marks=[pytest.mark.full][: place >= 1],
        )
        for place, lesson in enumerate(LESSONS)
    ],
)
def test_it_runs_and_every_stub_is_a_wrong_answer(lesson: Lesson, tmp_path: Path) -> None:
    make_course(tmp_path)
    path = tmp_path / "notebooks" / f"{lesson.name}.ipynb"
    write_notebook(Course(tmp_path), lesson, path, colab=False)
    notebook = nbformat.read(path, as_version=4)
    client(notebook, path.parent).execute()
    verdicts, pictures, printed = [], 0, ""
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            if output.output_type == "execute_result" and cell.source.startswith("%%exercise"):
                verdicts.append(output.data["text/plain"].partition(",")[0])
            pictures += "image/svg+xml" in output.get("data", ())
            printed += output.get("text", "")
    assert verdicts == [f"{row.id}: fail" for row in lesson.asks]
    assert pictures
    assert "in colour" not in printed  # a picture is not printed, too


LOOP = """\
%%exercise device_coordinates
import itertools


def device_coordinates(rank, sizes):
    for _ in itertools.count():
        pass
"""


def test_a_judgement_is_interrupted_and_the_next_one_works(tmp_path: Path) -> None:
    make_course(tmp_path)
    sources = ["%load_ext jaxpar.notebook", LOOP, f"%%exercise device_coordinates\n{RIGHT}"]
    notebook = new_notebook(cells=list(map(new_code_cell, sources)))
    running = client(notebook, tmp_path)
    running.allow_errors = True
    with running.setup_kernel():
        running.execute_cell(notebook.cells[0], 0)
        process = running.km.provisioner.process
        threading.Timer(3, process.send_signal, [signal.SIGINT]).start()
        running.execute_cell(notebook.cells[1], 1)
        running.execute_cell(notebook.cells[2], 2)
    _, (stopped, *_), (right,) = (cell.outputs for cell in notebook.cells)
    assert "exercise: stopped" in stopped.text
    assert right.data["text/plain"].startswith("device_coordinates: pass")
