"""Finds answers that are alike, for a person to read; no points depend on it.

The files that were judged are found in the journal by their hash, and compared in a process that
is confined like those that judge them. `reports/similarity_report.py` writes down what is found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxpar.classroom.journal import Journal
from jaxpar.classroom.results import Results
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.processes import Child, ChildEnded, Limits, Start

COMPARER = "jaxpar.classroom.passage_comparer"
LIMITS = Limits(wall_seconds=120, memory_bytes=2 << 30, cpu_seconds=60)
OURS = "our own answer"


@dataclass(frozen=True)
class ExerciseAnswers:
    """The answers to one exercise.

    Attributes:
        id: the id of the exercise.
        given: the text that everybody was given.
        ours: our own answer.
        answers: the text that was judged, by student.
    """

    id: str
    given: str
    ours: str
    answers: dict[str, bytes]


@dataclass(frozen=True)
class AlikePair:
    """Two answers that are alike.

    Attributes:
        exercise: the id of the exercise.
        students: the names of both; one of them may be `OURS`.
        percent: how much of the shorter answer is in the other.
        passages: how many passages that is.
        texts: both answers.
    """

    exercise: str
    students: tuple[str, str]
    percent: int
    passages: int
    texts: tuple[str, str] = field(repr=False)


@dataclass
class AlikeAnswers:
    """What was found in a class.

    Attributes:
        pairs: the pairs that are alike, most alike first.
        canonical: by exercise, the students whose answer is the library's own form, which is in
            no pair.
        skipped: the exercise and the student of what could not be compared.
    """

    pairs: list[AlikePair] = field(default_factory=list)
    canonical: dict[str, list[str]] = field(default_factory=dict)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def by_students(self) -> list[tuple[tuple[str, str], list[AlikePair]]]:
        """Returns the pairs of each two students, those with the most passages alike first."""
        both: dict[tuple[str, str], list[AlikePair]] = defaultdict(list)
        for pair in self.pairs:
            both[pair.students].append(pair)
        return sorted(both.items(), key=lambda item: -sum(p.passages for p in item[1]))


def answers_by_exercise(
    results: Results, texts: Mapping[str, tuple[str, str]]
) -> Iterator[ExerciseAnswers]:
    """Yields the answers in a folder of results, one exercise after the other.

    Args:
        results: the folder of results.
        texts: what everybody was given, and our own answer, by exercise.
    """
    journal = Journal(results.folder / "journal")
    for exercise, (given, ours) in texts.items():
        answers = {}
        for name, result in results.named():
            hashes = {r["exercise"]: r.get("submission_hash") for r in result["exercises"]}
            source = journal.source(hashes.get(exercise) or "")
            if source is not None:
                student = result["student"]
                answers[name if student in answers else student] = source
        if answers:
            yield ExerciseAnswers(exercise, given, ours, answers)


def find_alike(exercises: Iterable[ExerciseAnswers], start: Start) -> AlikeAnswers:
    """Compares the answers to each exercise; a text that ends the process is left out and named."""
    found = AlikeAnswers()
    for exercise in exercises:
        students = list(exercise.answers)
        while students:
            try:
                pairs, canonical = _compare(exercise, students, start)
                found.pairs += pairs
                if canonical:
                    found.canonical[exercise.id] = canonical
                break
            except _ProcessBroke as broken:
                whose = [students.pop(broken.at)] if broken.at >= 0 else students
                found.skipped += [(exercise.id, student) for student in whose]
                students = [student for student in students if broken.at >= 0]
    found.pairs.sort(key=lambda pair: (-pair.percent, -pair.passages, pair.exercise, pair.students))
    return found


class _ProcessBroke(Exception):
    """The process ended at the text of the student number `at`; if negative, at no student's."""

    def __init__(self, at: int) -> None:
        super().__init__(at)
        self.at = at


def _compare(
    exercise: ExerciseAnswers, students: list[str], start: Start
) -> tuple[list[AlikePair], list[str]]:
    """Returns the pairs that are alike, and whose answers are the library's own form."""
    answers = [exercise.answers[student] for student in students]
    texts = [exercise.given.encode(), exercise.ours.encode(), *answers]
    child, place = Child(COMPARER, start), -1
    deadline = Deadline(LIMITS.wall_seconds)
    try:
        child.receive(deadline)
        child.send({**LIMITS.job(), "texts": len(texts)})
        for place, text in enumerate(texts, -2):
            child.send({"text": place}, [text])
            child.receive(deadline)
        place = -1
        reply = child.receive(deadline)
        pairs = [_pair(exercise, students, found) for found in reply["pairs"]]
        return pairs, [students[place] for place in reply["canonical"]]
    except (ChildEnded, KeyError, IndexError, TypeError, ValueError):
        raise _ProcessBroke(place) from None
    finally:
        child.kill()


def _pair(exercise: ExerciseAnswers, students: list[str], found: list[Any]) -> AlikePair:
    *places, percent, passages = found
    (one, text), (other, other_text) = (
        (OURS, exercise.ours)
        if place < 0
        else (students[place], exercise.answers[students[place]].decode(errors="replace"))
        for place in places
    )
    return AlikePair(exercise.id, (one, other), int(percent), int(passages), (text, other_text))
