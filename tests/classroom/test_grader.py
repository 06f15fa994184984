"""The grader judges each file once, blames no student for its own trouble, and loses nothing."""

import errno
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from jaxpar.classroom import grader, journal
from jaxpar.classroom.grader import MOST_RETRIES
from jaxpar.grading.processes import OUT_OF_CPU, Cancelled
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Verdict
from tests.classroom.judge_stub import StubClass, by_text, exercise_id, verdict


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubClass:
    made = StubClass(tmp_path, monkeypatch)
    made.hand_in("anna", scatter="pass", gather="fail")
    made.hand_in("bert", scatter="error")
    return made


def test_every_student_has_a_result_with_every_exercise(stub: StubClass) -> None:
    (stub.submissions / "bert" / "notes.txt").touch()
    stub.grade()
    anna, bert = stub.results
    assert (anna["student"], anna["score"], anna["max_score"], anna["level"]) == ("anna", 10, 20, 2)
    assert [r["exercise"] for r in anna["exercises"]] == ["scatter", "gather"]
    assert stub.statuses("bert") == {"scatter": "error", "gather": "not-submitted"}
    assert bert["ignored"] == ["notes.txt"]
    for name in ("submission_hash", "contract_hash", "environment", "seed_id"):
        assert isinstance(anna["exercises"][0][name], str)
    assert len(stub.told) == 4


def test_the_same_again_judges_nothing_and_writes_the_same(stub: StubClass) -> None:
    stub.grade()
    before = stub.written()
    stub.grade()
    assert not stub.judged
    assert stub.written() == before
    assert all(graded.known and not graded.moved for graded in stub.told)


def test_a_changed_file_alone_is_judged_again(stub: StubClass) -> None:
    stub.grade()
    stub.hand_in("anna", gather="pass")
    stub.grade()
    assert stub.judged == ["gather"]
    assert stub.statuses("anna") == {"scatter": "pass", "gather": "pass"}
    assert not any(graded.moved for graded in stub.told)  # since the file is another one


def test_fresh_judges_all_and_says_what_moved(stub: StubClass) -> None:
    stub.grade()
    stub.answer = lambda where, _: verdict(exercise_id(where))
    stub.grade(fresh=True)
    assert len(stub.judged) == 3
    moved = {(g.student, g.record["exercise"]) for g in stub.told if g.moved}
    assert moved == {("anna", "gather"), ("bert", "scatter")}


def test_only_changed_keeps_verdicts_whatever_has_changed_here(
    stub: StubClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    stub.grade()
    monkeypatch.setattr(journal, "environment", lambda: "another")
    stub.grade(only_changed=True)
    assert not stub.judged
    stub.grade()
    assert len(stub.judged) == 3


def test_a_verdict_that_is_kept_keeps_its_isolation(stub: StubClass) -> None:
    stub.level = 3
    stub.grade()
    stub.level = 1
    stub.grade(only_changed=True)
    assert {result["level"] for result in stub.results} == {3}
    stub.grade()
    assert {result["level"] for result in stub.results} == {1}


def test_a_submission_that_kills_its_process_scores_zero(stub: StubClass) -> None:
    stub.hand_in("anna", scatter="killed")
    stub.grade()
    assert stub.statuses("anna")["scatter"] == "killed"
    assert stub.judged.count("scatter") == 1 + 2  # bert's, and anna's: once more alone


def test_where_nothing_runs_it_is_infrastructure_and_tried_again_later(stub: StubClass) -> None:
    stub.hand_in("anna", scatter="killed")
    stub.healthy = False
    stub.grade()
    assert stub.statuses("anna")["scatter"] == "infrastructure"
    assert stub.judged.count("scatter") == 1 + 2 * (1 + MOST_RETRIES)  # bert's, anna's
    stub.healthy = True
    for how in ({"only_changed": True}, {}):
        stub.grade(**how)
        assert stub.judged == (["scatter"] * 2 if "only_changed" in how else [])
    assert stub.statuses("anna")["scatter"] == "killed"


def test_a_retry_that_works_counts(stub: StubClass) -> None:
    left = ["infrastructure", "killed"]

    def answer(where: str, submission: Submission) -> Verdict:
        exercise = exercise_id(where)
        return verdict(exercise, left.pop() if left and exercise == "gather" else "pass")

    stub.answer, stub.healthy = answer, False
    stub.grade(jobs=1)
    assert stub.statuses("anna") == {"scatter": "pass", "gather": "pass"}


def test_a_judge_that_breaks_on_one_file_does_not_end_the_run(stub: StubClass) -> None:
    def answer(where: str, submission: Submission) -> Verdict:
        if submission.text.startswith("fail"):
            raise ZeroDivisionError("a secret value")
        return by_text(where, submission)

    stub.answer = answer
    stub.grade()
    assert stub.statuses("anna") == {"scatter": "pass", "gather": "infrastructure"}
    assert "ZeroDivisionError" in stub.results.records("anna")["gather"]["diagnosis"]
    assert "secret value" not in str(stub.written())


@pytest.mark.parametrize("status", ["timeout", "killed"])
def test_what_another_may_have_caused_is_repeated_alone(stub: StubClass, status: str) -> None:
    for student in ("carl", "dora"):
        stub.hand_in(student, scatter=status, gather="pass")
    stub.grade()
    assert stub.judged.count("scatter") == 2 + 2 * 2
    assert stub.judged[-2:] == ["scatter", "scatter"]
    assert stub.alone[-2:] == [True, True]
    assert stub.statuses("dora") == {"scatter": status, "gather": "pass"}


def test_alone_it_may_be_in_time(stub: StubClass) -> None:
    times = []

    def answer(where: str, submission: Submission) -> Verdict:
        times.append(where)
        status = "timeout" if len(times) == 1 else "pass"
        return verdict(exercise_id(where), status)

    stub.answer = answer
    stub.grade()
    assert set(stub.statuses("anna").values()) == {"pass"}
    assert "timeout" not in str(stub.written())


@pytest.mark.parametrize("jobs", [1, 2])
def test_processor_time_decides_at_once_and_so_does_a_run_alone(stub: StubClass, jobs: int) -> None:
    diagnosis = f"no answer within 30 seconds of {OUT_OF_CPU}" if jobs == 2 else "no answer"
    stub.answer = lambda where, _: verdict(exercise_id(where), "timeout", diagnosis, 0)
    stub.grade(jobs=jobs)
    assert len(stub.judged) == 3


def test_a_full_disk_ends_the_run_and_the_next_goes_on(
    stub: StubClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(20):
        stub.hand_in(f"student{i:02}", scatter="pass", gather="pass")
    real, room = grader.journal.write_atomically, [15]

    def write(path: Path, data: bytes) -> None:
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, data)

    monkeypatch.setattr(journal, "write_atomically", write)
    with pytest.raises(OSError, match="No space left"):
        stub.grade()
    done = len(stub.judged)
    assert 0 < done < 43
    room[0] = 1000
    stub.grade()
    assert len(stub.judged) <= 43 - (done - 2)  # two were under way
    assert len(list(stub.results)) == 22


def test_an_interruption_ends_the_run_and_the_next_goes_on(
    stub: StubClass, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(10):
        stub.hand_in(f"student{i:02}", scatter="pass")
    works = list(stub.works())

    def interrupted():
        yield from works[:5]
        raise KeyboardInterrupt

    monkeypatch.setattr(stub, "works", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stub.grade()
    done = len(stub.judged)
    assert stub.running == 0
    monkeypatch.setattr(stub, "works", lambda: works)
    stub.grade()
    assert len(stub.judged) + done >= 13
    assert len(list(stub.results)) == 12


def test_an_interruption_waits_for_what_is_running(stub: StubClass) -> None:
    """If the interpreter ended while a thread is inside XLA, XLA would abort the process."""

    def answer(where: str, submission: Submission) -> Verdict:
        if len(stub.judged) == 3:  # the last: the main thread waits
            time.sleep(0.1)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            time.sleep(0.3)
        return by_text(where, submission)

    stub.answer = answer
    with pytest.raises(KeyboardInterrupt):
        stub.grade(jobs=1)
    assert stub.running == 0


def test_an_interruption_ends_what_is_running(stub: StubClass) -> None:
    """The children of a running judgement are killed; the judge then says `Cancelled`."""

    def answer(where: str, submission: Submission) -> Verdict:
        if where.endswith("gather"):
            raise Cancelled
        return by_text(where, submission)

    stub.answer = answer
    stub.grade()
    assert "gather" not in stub.statuses("anna")


def test_many_students_do_not_pile_up(stub: StubClass) -> None:
    """Hand-ins are read as they are judged, not all at once."""
    read = []
    stub.answer = lambda where, s: (time.sleep(0.005), by_text(where, s))[1]
    for i in range(30):
        stub.hand_in(f"student{i:02}", scatter="pass", gather="pass")
    works = stub.works()
    ahead = []

    def lazily():
        for work in works:
            ahead.append(len(read) * 2 - len(stub.judged))
            read.append(work)
            yield work

    stub.works = lazily  # type: ignore[method-assign]
    stub.grade()
    assert max(ahead) <= 10


def test_two_names_alike_have_a_result_each(stub: StubClass) -> None:
    names = ["c" * 200, "c" * 199 + "d", "d\x1b[31m", "d\x1b[32m", "\u202ed", os.fsdecode(b"\xff")]
    for name in names:
        stub.hand_in(name, scatter="pass")
    stub.grade()
    results = list(stub.results)
    assert len(results) == 2 + len(names)
    assert all(name.isascii() and name.isprintable() for name in stub.written())
    assert all(r["student"].isprintable() for r in results)
