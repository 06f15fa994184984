"""Pages to read: one for the class, one for each student; each is a file of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

from jaxpar.classroom.checks import checks
from jaxpar.classroom.class_summary import Answers, Tally
from jaxpar.classroom.gradebook import Entry
from jaxpar.classroom.reports.frame import own, page, row, share, short, status, table
from jaxpar.classroom.sandbox.levels import NAMES, NONE
from jaxpar.classroom.untrusted_text import markup

MOST_MISTAKES = 30
STUDENTS = "students"
SHORT_HASH = 16


def class_page(title: str, found: Tally, entries: Iterable[Entry]) -> Iterator[bytes]:
    """What the class did, property by property, and what it misunderstood."""
    return page(title, _class_body(title, found, entries))


def student_page(title: str, entry: Entry) -> Iterator[bytes]:
    """A student's verdicts in full; nothing of another student's."""
    return page(f"{entry.result['student']}: {title}", _student_body(title, entry))


def _class_body(title: str, found: Tally, entries: Iterable[Entry]) -> Iterator[str]:
    count = len(found.scores)
    yield f"<h1>{short(title)}</h1>"
    yield f"<p>{count} student{'s' * (count != 1)}: {short(found.spread())}.</p>"
    yield from map(_isolation, sorted(found.levels))
    if found.attention:
        yield "<h2>For a person</h2><ul>"
        for reason, some in found.attention.items():
            yield f"<li>{short(reason)}: {markup(some.words())}</li>"
        yield "</ul>"
    yield "<h2>Most frequent mistakes</h2>"
    yield from _mistakes(found)
    yield "<h2>Scores by property</h2>"
    yield "<p>How many answers are right, of those that were handed in and could be judged.</p>"
    yield from _properties(found)
    yield "<h2>Students</h2>"
    yield from _students(entries)


def _isolation(level: int) -> str:
    name = short(NAMES.get(level, "an unknown level"))
    return f'<p class="note">Graded {name}.</p>' if level == NONE else f"<p>Isolation: {name}.</p>"


def _mistakes(found: Tally) -> Iterator[str]:
    if not found.mistakes:
        yield "<p>None.</p>"
        return
    head = ("answers", "exercise", "mistake", "what the student reads", "who")
    rows = (
        row(
            (
                share(some.count, found.exercises[mistake.exercise].handed_in),
                own(mistake.exercise),
                own(mistake.name),
                markup(mistake.sentence),
                markup(some.words()),
            )
        )
        for mistake, some in found.frequent()[:MOST_MISTAKES]
    )
    yield from table(head, rows)
    if len(found.mistakes) > MOST_MISTAKES:
        yield f'<p class="quiet">and {len(found.mistakes) - MOST_MISTAKES} more kinds</p>'


def _properties(found: Tally) -> Iterator[str]:
    names = list(dict.fromkeys(name for a in found.exercises.values() for name in a.right))
    head = ("exercise", "handed in", "mean", "all points", *map(short, names))
    rows = (row(_answers(id, a, names), (1, 2)) for id, a in found.exercises.items())
    yield from table(head, rows, (1, 2), sortable=True)


def _answers(exercise: str, answers: Answers, names: Iterable[str]) -> list[str]:
    count = answers.handed_in
    mean = f"{answers.points / count:.1f} of {answers.max_score}" if count else ""
    parts = (share(answers.right[n], count) if n in answers.right else "" for n in names)
    return [own(exercise), str(count), mean, share(answers.full, count), *parts]


def _students(entries: Iterable[Entry]) -> Iterator[str]:
    head = (
        "student", "name", "section", "score", "handed in", "right", "late days", "difference",
        "for a person",
    )  # fmt: skip
    numbers = (3, 4, 5, 6, 7)
    yield from table(head, (row(_student(e), numbers) for e in entries), numbers, sortable=True)


def _student(entry: Entry) -> list[str]:
    link = f"{STUDENTS}/{quote(entry.name)}.html"
    there = [r for r in entry.exercises if r["status"] != "not-submitted"]
    late, difference = entry.person.late_days, entry.difference
    return [
        f'<a href="{short(link)}">{short(entry.result["student"])}</a>',
        short(entry.person.name),
        short(entry.person.section),
        f"{entry.result['score']} of {entry.result['max_score']}",
        f"{len(there)} of {len(entry.exercises)}",
        str(sum(r["status"] == "pass" for r in there)),
        "" if late is None else str(late),
        "" if difference is None else f"{difference:+d}" if difference else "0",
        markup("; ".join(entry.for_a_person())),
    ]


def _student_body(title: str, entry: Entry) -> Iterator[str]:
    result = entry.result
    yield f"<h1>{short(entry.person.name or result['student'])}: {short(title)}</h1>"
    yield f"<p><b>{result['score']} of {result['max_score']} points.</b></p>"
    yield _isolation(result["level"])
    rows = (
        row((_link(r), status(r["status"]), f"{r['score']} of {r['max_score']}"), (2,))
        for r in entry.exercises
    )
    yield from table(("exercise", "status", "points"), rows, (2,))
    for record in entry.exercises:
        if record["status"] != "not-submitted":
            yield from _record(record)
    if result["ignored"]:
        yield "<h2>Not looked at</h2><ul>"
        yield from (f"<li>{short(path)}</li>" for path in result["ignored"])
        yield "</ul>"


def _link(record: dict[str, Any]) -> str:
    name = own(record["exercise"])
    if record["status"] == "not-submitted":
        return f'{name}<br><span class="quiet">{short(record["diagnosis"])}</span>'
    return f'<a href="#{short(record["exercise"])}">{name}</a>'


def _record(record: dict[str, Any]) -> Iterator[str]:
    name = short(record["exercise"])
    yield f'<h3 id="{name}">{name}</h3>'
    rows = (
        row((own(c.name), status(c.status), f"{c.score} of {c.max_score}", _pre(c.text)), (2,))
        for c in checks(record)
    )
    yield from table(("property", "status", "points", "what was found"), rows, (2,))
    if record["printed"]:
        yield f"<p>Your program printed:</p><pre>{markup(record['printed'])}</pre>"
    if "submission_hash" in record:
        names = ("submission_hash", "contract_hash", "environment", "seed_id")
        hashes = (f"{n.replace('_', ' ')} {short(record[n][:SHORT_HASH])}" for n in names)
        yield f'<p class="quiet">{", ".join(hashes)}</p>'


def _pre(value: str) -> str:
    return markup(value).replace("\n", "<br>")
