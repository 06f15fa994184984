"""The judging thread: what is wanted is judged, what is not is dropped."""

import queue
from collections.abc import Iterator
from contextlib import contextmanager

from jaxpar.course.catalog import EXERCISES
from jaxpar.course.check import Judge, Verdicts
from jaxpar.course.events import Event, Job, JudgementEnded, Trouble
from jaxpar.course.folder import Course
from jaxpar.course.judge_thread import JudgeThread
from jaxpar.grading.submission import Submission
from tests.course.fakes import FakeJudge, answer

ROW = EXERCISES[0]
Events = queue.SimpleQueue[Event]


@contextmanager
def running(
    course: Course, fake: FakeJudge
) -> Iterator[tuple[JudgeThread, queue.SimpleQueue[Event]]]:
    events: Events = queue.SimpleQueue()
    thread = JudgeThread(fake.open, Verdicts(course.verdicts), events.put)
    thread.start()
    yield thread, events
    thread.stop()
    assert not thread.is_alive()


def job(number: int, course: Course, word: str) -> Job:
    source = answer(ROW, word).encode()
    return Job(number, ROW, Submission(course.file(ROW), source))


def judged(events: Events) -> JudgementEnded:
    event = events.get(timeout=10)
    assert isinstance(event, JudgementEnded)
    return event


def test_a_verdict_is_posted_and_kept(course: Course) -> None:
    with running(course, FakeJudge()) as (thread, events):
        wanted = job(1, course, "right")
        thread.want(wanted)
        event = judged(events)
        thread.want(wanted)  # as where the session does not know of the verdict yet
    assert (event.job, event.problem) == (1, "")
    assert event.verdict
    assert Verdicts(course.verdicts).get(ROW.where, wanted.submission) == event.verdict
    assert events.empty()


def test_new_bytes_cancel_the_judgement_of_the_old(course: Course) -> None:
    fake = FakeJudge()
    with running(course, fake) as (thread, events):
        thread.want(job(1, course, "slow"))
        assert fake.started.wait(10)
        thread.want(job(2, course, "right"))
        assert judged(events).job == 2
    assert fake.cancels == 1
    assert events.empty()


def test_stopping_ends_a_judgement_that_would_not_end(course: Course) -> None:
    fake = FakeJudge()
    with running(course, fake) as (thread, events):
        thread.want(job(1, course, "slow"))
        assert fake.started.wait(10)
    assert events.empty()


def test_a_judge_that_fails_goes_on_with_the_next(course: Course) -> None:
    with running(course, FakeJudge()) as (thread, events):
        thread.want(job(1, course, "crash"))
        event = judged(events)
        assert event.verdict is None
        assert "RuntimeError: out of order" in event.problem
        thread.want(job(2, course, "right"))
        assert judged(events).verdict


def test_a_verdict_that_cannot_be_kept_is_posted_all_the_same(course: Course) -> None:
    course.state.write_text("a file where a folder should be")
    with running(course, FakeJudge()) as (thread, events):
        thread.want(job(1, course, "right"))
        event = judged(events)
    assert event.verdict
    assert "could not be saved" in event.problem


def test_a_judge_that_cannot_be_had_is_one_line(course: Course) -> None:
    @contextmanager
    def closed() -> Iterator[Judge]:
        raise OSError("no processes left")
        yield

    events: Events = queue.SimpleQueue()
    thread = JudgeThread(closed, Verdicts(course.verdicts), events.put)
    thread.start()
    event = events.get(timeout=10)
    thread.stop()
    assert isinstance(event, Trouble)
    assert "no processes left" in event.line
