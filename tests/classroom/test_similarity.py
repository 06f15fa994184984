"""Answers that are alike are found whatever they are called; the report is for a person."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from jaxpar.classroom import passage_comparer
from jaxpar.classroom.handins import Handin
from jaxpar.classroom.journal import Journal
from jaxpar.classroom.merge import merge
from jaxpar.classroom.passage_comparer import canonical, compare, passages, words
from jaxpar.classroom.records import not_submitted
from jaxpar.classroom.reports import similarity_report
from jaxpar.classroom.reports.similarity_report import write_similarity_report
from jaxpar.classroom.results import Results
from jaxpar.classroom.similarity import (
    OURS,
    AlikeAnswers,
    AlikePair,
    ExerciseAnswers,
    answers_by_exercise,
    find_alike,
)
from jaxpar.cli import similarity as similarity_cli
from jaxpar.cli.similarity import similarity
from jaxpar.course.catalog import BadUseError, Exercise, exercise
from jaxpar.grading.processes import start_plainly
from jaxpar.grading.submission import Submission
from tests.classroom.made_up_class import rows_of

GIVEN = '''from jax import lax

def ring(x, *, axis):
    """Adds all up."""
    raise NotImplementedError
'''
ANNA = """from jax import lax

def ring(x, *, axis):
    n = lax.axis_size(axis)
    pairs = [(i, (i + 1) % n) for i in range(n)]
    total = part = x
    for _ in range(n - 1):
        part = lax.ppermute(part, axis, pairs)
        total = total + part
    return total
"""
COPIED = '''from jax import lax
def ring(x, *, axis):
    """My own work."""
    size = lax.axis_size( axis )  # how many
    edges = [ (device, (device+1) % size)
        for device in range(size) ]

    whole = moving = x
    for step in range(size-1):
        moving = lax.ppermute(moving,axis,edges)
        whole = whole + moving
    return whole
'''
OWN = """import jax
from jax import lax
import jax.numpy as jnp

def ring(x, *, axis):
    def step(carry, _):
        total, part = carry
        part = jnp.roll(lax.pshuffle(part, axis, perm=neighbours(axis)), 0)
        return (total + part, part), None

    (total, _), _ = lax.scan(step, (x, x), None, length=lax.axis_size(axis) - 1)
    return jax.tree.map(jnp.asarray, total)

def neighbours(axis):
    return jnp.roll(jnp.arange(lax.axis_size(axis)), 1).tolist()
"""


def test_layout_comments_and_chosen_names_do_not_count_and_the_library_s_do() -> None:
    assert words("total = lax.psum(x, axis)") == words("t=lax . psum( y,a )  # sum")
    assert words("lax.psum(x, axis)") != words("lax.pmean(x, axis)")
    assert words("range(n)") != words("sum(n)")
    assert words("'a' 'b'") == words('"c"')
    assert words('def f():\n    """Says."""\n    return 1') == words("def g(): return 1")


def test_a_copy_with_other_names_is_found_and_own_work_is_not() -> None:
    anna, copied, own = map(passages, (ANNA, COPIED, OWN))
    assert compare(passages(GIVEN), passages("x = 1"), [anna, copied, own]) == [
        [0, 1, 100, len(anna - passages(GIVEN))]
    ]
    more = passages(COPIED + "\n\nwrong = lax.psum(1, 2) + 3 * 4 - 5")
    ((ours, theirs, percent, _),) = compare(passages(GIVEN), anna, [own, more])
    assert (ours, theirs, percent) == (-1, 1, 100)


def test_the_one_canonical_form_is_in_no_pair_and_is_named() -> None:
    given, anna, copied, own = map(passages, (GIVEN, ANNA, COPIED, OWN))
    assert canonical(given, anna, [anna, own, copied, given]) == [0, 2]
    assert compare(given, anna, [anna, own, copied, given]) == []


def test_what_was_given_does_not_count() -> None:
    given = passages(ANNA)
    assert compare(given, set(), [passages(ANNA), passages(COPIED)]) == []


def test_what_much_of_the_class_wrote_does_not_count() -> None:
    alone = [passages(f"{ANNA}\nx{i} = lax.psum({i}, {i}) + {i} * {i} - {i}") for i in range(12)]
    assert compare(set(), set(), alone) == []
    assert len(compare(set(), set(), alone[:3])) == 3


def test_a_long_text_is_compared_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_comparer, "MOST_WORDS", 40)
    assert passages(ANNA * 50) == passages(ANNA * 60)


def test_answers_are_compared_in_another_process() -> None:
    answers = {"anna": ANNA.encode(), "bert": COPIED.encode(), "carl": OWN.encode()}
    found = find_alike([ExerciseAnswers("ring", GIVEN, OWN, answers)], start_plainly)
    assert [(p.students, p.percent) for p in found.pairs] == [(("anna", "bert"), 100)]
    assert found.pairs[0].texts == (ANNA, COPIED)
    assert found.canonical == {"ring": ["carl"]}
    assert not found.skipped
    longer = {"carl": f"{OWN}\nlast = lax.psum(1, 2) + 3\n".encode()}
    found = find_alike([ExerciseAnswers("ring", GIVEN, OWN, longer)], start_plainly)
    assert [p.students for p in found.pairs] == [(OURS, "carl")]


BREAKS = """
import os, sys
from jaxpar.cli.similarity import similarity
from jaxpar.course.catalog import BadUseError
from jaxpar.classroom import passage_comparer as comparer
real = comparer.passages
def passages(text):
    if "BOMB" in text:
        os.abort()
    return real(text)
comparer.passages = passages
comparer.main()
"""


def test_a_text_that_breaks_the_parser_is_named_and_the_others_are_compared() -> None:
    def start(module: str) -> subprocess.Popen[bytes]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-c", BREAKS], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=-1,
            cwd=Path(__file__).parents[2], start_new_session=True,
        )  # fmt: skip

    answers = {"anna": ANNA.encode(), "bomb": b"# BOMB", "bert": COPIED.encode()}
    found = find_alike([ExerciseAnswers("ring", GIVEN, "", answers)], start)
    assert [p.students for p in found.pairs] == [("anna", "bert")]
    assert found.skipped == [("ring", "bomb")]
    nothing = find_alike([ExerciseAnswers("ring", "BOMB", "", answers)], start)
    assert not nothing.pairs
    assert nothing.skipped == [("ring", student) for student in answers]


def _results(folder: Path, *, exercise: str = "ring", **answers: str) -> Results:
    results = Results(folder)
    for student, text in answers.items():
        submission = Submission(Path("ring.py"), text.encode())
        Journal(folder / "journal").keep_source(submission)
        made = not_submitted(exercise, 10, "") | {"submission_hash": submission.digest}
        results.write(Handin(student), [made, not_submitted("tree", 10, "")], 1)
    return results


def test_the_files_that_were_judged_are_compared_and_merged_ones_too(tmp_path: Path) -> None:
    _results(tmp_path / "one", anna=ANNA)
    _results(tmp_path / "two", bert=COPIED)
    merge([tmp_path / "one", tmp_path / "two"], tmp_path / "all")
    (group,) = answers_by_exercise(
        Results(tmp_path / "all"), {"ring": (GIVEN, OWN), "tree": ("", "")}
    )
    assert group == ExerciseAnswers(
        "ring", GIVEN, OWN, {"anna": ANNA.encode(), "bert": COPIED.encode()}
    )


def test_a_changed_source_is_not_compared(tmp_path: Path) -> None:
    results = _results(tmp_path, anna=ANNA)
    (path,) = (tmp_path / "journal" / "sources").iterdir()
    path.write_text(OWN)
    assert not list(answers_by_exercise(results, {"ring": ("", "")}))


def test_the_report_shows_both_texts_and_obeys_no_string(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\u202e\udcff"
    pairs = [
        AlikePair("ring", ("=cmd()", evil), 97, 40, (evil, "b = 2")),
        AlikePair("tree", ("=cmd()", evil), 60, 20, ("c", "d")),
    ]
    found = AlikeAnswers(pairs, {"ring": [evil]}, [("ring", evil)])
    write_similarity_report(found, tmp_path, "Lab 1")
    page = (tmp_path / similarity_report.PAGE).read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page
    assert "b = 2" in page
    assert "\x1b" not in page
    assert "No points depend on" in page
    lines = rows_of(tmp_path / similarity_report.TABLE)
    assert lines[0] == list(similarity_report.HEADER)
    assert lines[1][1] == "'=cmd()"
    assert lines[1][3:] == ["97", "40"]
    assert found.by_students() == [(("=cmd()", evil), pairs)]


def test_the_command_writes_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def choose(*, unsafe: bool) -> SimpleNamespace:
        assert not unsafe
        return SimpleNamespace(start=start_plainly)

    monkeypatch.setattr("jaxpar.classroom.sandbox.levels.best_sandbox", choose)
    _results(tmp_path, exercise="scatter", anna=ANNA, bert=COPIED, carl=OWN)
    similarity(tmp_path, exercises=["scatter"])
    shown = capsys.readouterr().out
    assert "anna and bert: alike in 1 exercise\n" in shown
    assert "carl" not in shown
    assert (tmp_path / similarity_report.PAGE).is_file()
    with pytest.raises(BadUseError, match="holds no results; name a folder that"):
        similarity(tmp_path / "gone")


def test_a_variant_is_compared_with_its_own_stub_and_with_both_references(tmp_path: Path) -> None:
    row = exercise("scatter")
    original, variant = (similarity_cli._texts(replace(row, variant=n)) for n in (0, 1))
    assert "Chunk n-1-i of the root" in variant[0] and variant[0] != original[0]
    assert "x[::-1]" in variant[1] and original[1] in variant[1]
    assert "x[::-1]" not in original[1]


def test_the_command_takes_the_variants_of_the_course(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    def texts(row: Exercise) -> tuple[str, str]:
        seen.add(row.variant)
        return "", ""

    monkeypatch.setattr(
        "jaxpar.classroom.sandbox.levels.best_sandbox",
        lambda **_: SimpleNamespace(start=start_plainly),
    )
    monkeypatch.setattr(similarity_cli, "_texts", texts)
    _results(tmp_path / "out", exercise="scatter", anna=ANNA)
    for number in range(9):
        secret = tmp_path / f"secret{number}"
        secret.write_text(f"{number}" * 32)
        secret.chmod(0o600)
        similarity(tmp_path / "out", exercises=["scatter"], variants=True, secret_file=secret)
    assert seen == {0, 1}


def test_nothing_alike_is_said(tmp_path: Path) -> None:
    write_similarity_report(AlikeAnswers(), tmp_path, "Lab 1")
    assert "None." in (tmp_path / similarity_report.PAGE).read_text()
