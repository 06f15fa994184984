"""Stubs are what the library and the contract say, and nothing that gives an answer away."""

import inspect
from pathlib import Path

import pytest

from jaxpar.contracts.base import load
from jaxpar.course.catalog import EXERCISES, Exercise, exercise
from jaxpar.course.folder import Course
from jaxpar.course.stubs import build, stale, stub
from jaxpar.grading.imports import refused_import
from jaxpar.grading.submission import Submission, is_stub
from tests.course.fakes import answer, stub_of, write

pytestmark = pytest.mark.always

ROOT = Path(__file__).parents[2]
each_exercise = pytest.mark.parametrize("row", EXERCISES, ids=lambda row: row.id)


@each_exercise
def test_the_stub_in_the_repository_is_the_derived_one(row: Exercise) -> None:
    committed = Submission(ROOT / row.file, (ROOT / row.file).read_bytes())
    if is_stub(committed, row.id):  # else it is an answer of the person who runs the tests
        assert committed.text == stub(row)


@each_exercise
def test_a_stub_says_what_is_judged_and_keeps_what_is_to_be_predicted(row: Exercise) -> None:
    text, contract = stub(row), load(row.where)
    assert is_stub(Submission(Path(), text.encode()), row.id)
    assert contract.task in text
    assert "Comm:" not in text
    assert "Memory:" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert "\n\n\n\n" not in text
    for name, points in contract.points().items():
        assert f"#   {name:<13} {points}  " in text
    if contract.communication:
        assert contract.communication.words.split()[0] in text


@each_exercise
def test_a_stub_runs_and_raises_its_task(row: Exercise) -> None:
    text, contract = stub(row), load(row.where)
    assert refused_import(text, contract.imports) is None
    names: dict = {}
    exec(compile(text, row.file, "exec"), names)
    function = names[row.id]
    parameters = inspect.signature(contract.reference).parameters
    written = inspect.signature(function).parameters
    assert [(p.name, p.kind, p.default) for p in written.values()] == [
        (p.name, p.kind, p.default) for p in parameters.values()
    ]
    arguments = {name: None for name, p in parameters.items() if p.kind is not p.KEYWORD_ONLY}
    keywords = {name: None for name in parameters if name not in arguments}
    with pytest.raises(NotImplementedError) as raised:
        function(*arguments.values(), **keywords)
    assert str(raised.value) == contract.task


@pytest.mark.parametrize(
    ("id", "judged"),
    [("local_shape", True), ("recursive_doubling_all_reduce", True), ("scatter", False)],
)
def test_an_error_is_asked_for_where_it_is_judged(id: str, judged: bool) -> None:
    assert ("Raises:" in stub(exercise(id))) is judged
    assert "Raises:" in (inspect.getdoc(load(exercise(id).where).reference) or "")


def test_build_writes_what_differs_but_never_over_an_answer(course: Course) -> None:
    missing, edited, solved = EXERCISES[:3]
    course.file(missing).unlink()
    write(course, edited, stub_of(edited).replace(b"Save it", b"Keep it"))
    write(course, solved, answer(solved, "mine"))
    assert list(stale(course.root)) == [missing.file, edited.file, solved.file]
    assert stale(course.root)[edited.file] == "run `jaxpar dev build`"
    assert build(course.root) == [missing.file, edited.file]
    assert "holds an answer; `jaxpar reset " in stale(course.root)[solved.file]
    assert len(stale(course.root)) == 1
    assert course.file(solved).read_text() == answer(solved, "mine")
