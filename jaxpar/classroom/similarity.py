"""Answers that are alike: a report for a person to read, never points.

The files that were judged are compared, by their hash, in a process that is confined as those
are which judge them.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxpar.classroom.journal import Journal
from jaxpar.classroom.results import Results
from jaxpar.grading.processes import Child, ChildEnded, Limits, Start

COMPARER = "jaxpar.classroom.passage_comparer"
LIMITS = Limits(wall_seconds=120, memory_bytes=2 << 30, cpu_seconds=60)
OURS = "our own answer"


@dataclass(frozen=True)
class Group:
    """The answers to one exercise.

    Attributes:
        exercise: its id.
        given: the text that everybody was given.
        ours: our own answer.
        answers: by student, the text that was judged.
    """

    exercise: str
    given: str
    ours: str
    answers: dict[str, bytes]


@dataclass(frozen=True)
class Pair:
    """Two answers that are alike.

    Attributes:
        exercise: its id.
        students: their names; one of them may be ours.
        percent: the share of the shorter one that is in the other.
        passages: how many passages that are.
        texts: both answers.
    """

    exercise: str
    students: tuple[str, str]
    percent: int
    passages: int
    texts: tuple[str, str] = field(repr=False)


@dataclass
class Alike:
    """What was found in a class.

    Attributes:
        pairs: most alike first.
        skipped: exercise and student of what could not be compared.
    """

    pairs: list[Pair] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def together(self) -> list[tuple[tuple[str, str], list[Pair]]]:
        """The pairs of each two students, those with the most passages alike first."""
        both: dict[tuple[str, str], list[Pair]] = defaultdict(list)
        for pair in self.pairs:
            both[pair.students].append(pair)
        return sorted(both.items(), key=lambda item: -sum(p.passages for p in item[1]))


def groups(results: Results, texts: Mapping[str, tuple[str, str]]) -> Iterator[Group]:
    """The answers in a folder of results, one exercise after the other.

    Args:
        results: the folder.
        texts: by exercise, what everybody was given, and our own answer.
    """
    kept = Journal(results.folder / "journal")
    for exercise, (given, ours) in texts.items():
        answers = {}
        for name, result in results.named():
            hashes = {r["exercise"]: r.get("submission_hash") for r in result["exercises"]}
            source = kept.source(hashes.get(exercise) or "")
            if source is not None:
                student = result["student"]
                answers[name if student in answers else student] = source
        if answers:
            yield Group(exercise, given, ours, answers)


def alike(wanted: Iterable[Group], start: Start) -> Alike:
    """Compares the answers of each group; a text that ends the process is left out, and named."""
    found = Alike()
    for group in wanted:
        students = list(group.answers)
        while students:
            try:
                found.pairs += _compare(group, students, start)
                break
            except _Broken as broken:
                whose = [students.pop(broken.place)] if broken.place >= 0 else students
                found.skipped += [(group.exercise, student) for student in whose]
                students = [student for student in students if broken.place >= 0]
    found.pairs.sort(key=lambda pair: (-pair.percent, -pair.passages, pair.exercise, pair.students))
    return found


class _Broken(Exception):
    """The process ended at this student's text; a place below 0: at no student's."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


def _compare(group: Group, students: list[str], start: Start) -> list[Pair]:
    texts = [group.given.encode(), group.ours.encode(), *(group.answers[s] for s in students)]
    child, place = Child(COMPARER, start), -1
    deadline = time.monotonic() + LIMITS.wall_seconds
    try:
        child.receive(deadline)
        child.send({**LIMITS.job(), "texts": len(texts)})
        for place, text in enumerate(texts, -2):
            child.send({"text": place}, [text])
            child.receive(deadline)
        place = -1
        return [_pair(group, students, found) for found in child.receive(deadline)["pairs"]]
    except (ChildEnded, KeyError, IndexError, TypeError, ValueError):
        raise _Broken(place) from None
    finally:
        child.kill()


def _pair(group: Group, students: list[str], found: list[Any]) -> Pair:
    one, other, percent, passages = found
    names = [OURS if place < 0 else students[place] for place in (one, other)]
    texts = [
        group.ours if place < 0 else group.answers[students[place]].decode(errors="replace")
        for place in (one, other)
    ]
    (a, text_a), (b, text_b) = zip(names, texts, strict=True)
    return Pair(group.exercise, (a, b), int(percent), int(passages), (text_a, text_b))
