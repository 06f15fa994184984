"""Runs attacks through the chain of processes that grades a class, and tells which were held.

An attack was held if its verdict is among those expected, it earned no more than an honest file,
it changed nothing outside the sandbox, and its record holds no text that could steer a terminal and
nothing about a hidden case.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpar.classroom.attacks.attack import MARK, Attack
from jaxpar.classroom.attacks.bait import Bait
from jaxpar.classroom.attacks.crafted_programs import CRAFTED_PROGRAMS
from jaxpar.classroom.attacks.crashes_and_hangs import CRASHES_AND_HANGS
from jaxpar.classroom.attacks.dishonest_programs import DISHONEST_PROGRAMS
from jaxpar.classroom.attacks.escapes import ESCAPES, REACHED
from jaxpar.classroom.attacks.false_answers import FALSE_ANSWERS
from jaxpar.classroom.attacks.folders import FOLDERS
from jaxpar.classroom.attacks.forged_hidden_replies import FORGED_HIDDEN_REPLIES
from jaxpar.classroom.attacks.forged_replies import FORGED_REPLIES
from jaxpar.classroom.attacks.hidden_case_leaks import HIDDEN_CASE_LEAKS
from jaxpar.classroom.attacks.unfinished import Found, UnfinishedRun
from jaxpar.classroom.handins import MISSING, read_handin, work_in
from jaxpar.classroom.records import not_submitted, to_record
from jaxpar.classroom.sandbox.levels import Sandbox
from jaxpar.classroom.untrusted_text import MOST_TEXT
from jaxpar.contracts.base import load, with_drawn
from jaxpar.grading.judge import judge
from jaxpar.grading.processes import Pool

ATTACKS = (
    *ESCAPES,
    *CRASHES_AND_HANGS,
    *FORGED_REPLIES,
    *FORGED_HIDDEN_REPLIES,
    *HIDDEN_CASE_LEAKS,
    *CRAFTED_PROGRAMS,
    *DISHONEST_PROGRAMS,
    *FALSE_ANSWERS,
    *FOLDERS,
)
HIDDEN_SEED = 1
SECONDS_EACH = 1.8
MOST_SHOWN = MOST_TEXT + 10  # with the dots where a text was cut


@dataclass(frozen=True)
class Outcome:
    """What came of an attack.

    Attributes:
        attack: the attack.
        record: the record that a class would have in its results.
        harm: what was changed or left behind outside the sandbox; empty if nothing was.
    """

    attack: Attack
    record: dict[str, Any]
    harm: str

    @property
    def why(self) -> str:
        """Says what the attack gained or broke; empty if it was held."""
        attack, made = self.attack, self.record
        if f"{REACHED}{attack.name}" in made["printed"].splitlines():
            return "it reached what it tried"
        if self.harm:
            return self.harm
        if made["status"] not in attack.ends:
            return f"it ends with {made['status']}, not with {' or '.join(attack.ends)}"
        if made["score"] > attack.honest:
            return f"it earns {made['score']} points where an honest file earns {attack.honest}"
        if not all(_clean(text) for text in _texts(made)):
            return "a text of its own is shown as it is"
        if attack.hidden and any(word in text for text in _texts(made) for word in _untold(attack)):
            return "it shows what a hidden case is"
        return ""

    @property
    def held(self) -> bool:
        """Whether the attack gained nothing and broke nothing."""
        return not self.why

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data for JSON; the score is what was gained beyond an honest file."""
        gained = max(0, self.record["score"] - self.attack.honest)
        return {
            "name": self.attack.name,
            "status": self.record["status"],
            "score": gained,
            "held": self.held,
        }


@dataclass
class Suite:
    """Runs attacks one at a time on one level of isolation."""

    sandbox: Sandbox
    unfinished: UnfinishedRun | None = None
    _shared: dict[str, Found] = field(default_factory=dict)

    def known(self, attacks: Iterable[Attack]) -> int:
        """Returns how many files of these attacks a run that was stopped has judged."""
        return sum(self._find(key) is not None for key in _files(attacks))

    def forget(self, attacks: Iterable[Attack]) -> None:
        """Removes what is kept of runs that were stopped, once these attacks have all been run."""
        if self.unfinished:
            self.unfinished.forget(_files(attacks))

    def run(self, attacks: Iterable[Attack] = ATTACKS) -> Iterator[Outcome]:
        """Yields the outcome of each attack; those that share a file are judged once."""
        bait = Bait(self.sandbox.user)
        try:
            with Pool(start=self.sandbox.start) as pool:
                for attack in attacks:
                    key = attack.source or attack.name
                    found = self._find(key) or self._record_and_harm(attack, bait, pool)
                    if self.unfinished and not self._find(key):
                        self.unfinished.put(key, found)
                    self._shared[key] = found
                    yield Outcome(attack, *found)
        finally:
            bait.close()

    def _find(self, key: str) -> Found | None:
        known = self.unfinished.get(key) if self.unfinished else None
        return self._shared.get(key) or known

    def _record_and_harm(self, attack: Attack, bait: Bait, pool: Pool) -> Found:
        """Returns the record of an attack, and what it harmed."""
        try:
            return self._grade(attack, bait, pool), bait.harm()
        except Exception as error:  # No attack may make the grader raise anything.
            nothing = not_submitted(load(attack.where).id, 0, "")
            return nothing, f"it ends the grader: {type(error).__name__}: {error}"

    def _grade(self, attack: Attack, bait: Bait, pool: Pool) -> dict[str, Any]:
        """Grades a folder that is handed in, from reading it to the verdict."""
        contract = load(attack.where)
        exercise = contract.id
        above = Path(tempfile.mkdtemp(prefix="jaxpar-attack-"))
        try:
            folder = above / "student"
            folder.mkdir()
            if attack.hand_in:
                attack.hand_in(folder)
            else:
                (folder / f"{exercise}.py").write_text(bait.line() + attack.source)
            handin = read_handin(work_in(folder), [exercise])
        finally:
            shutil.rmtree(above)
        if exercise not in handin.files:
            points = sum(contract.points().values())
            return not_submitted(exercise, points, handin.refused.get(exercise, MISSING))
        pool.limits = attack.limits
        hidden_seed = HIDDEN_SEED if attack.hidden else None
        judged = judge(attack.where, handin.files[exercise], pool=pool, hidden_seed=hidden_seed)
        return to_record(judged)


def forecast(attacks: Sequence[Attack], known: int) -> str:
    """Returns in a sentence how much there is to do, if so many files are known already."""
    files = len(_files(attacks))
    minutes = max(1, round((files - known) * SECONDS_EACH / 60))
    before = f" {known} of them are known from a run that was stopped." if known else ""
    return (
        f"{len(attacks)} attacks in {files} file{'s' * (files != 1)}, one at a time: about "
        f"{minutes} minute{'s' * (minutes != 1)}.{before}"
    )


def _files(attacks: Iterable[Attack]) -> set[str]:
    """Returns what is judged once for all attacks that share it."""
    return {attack.source or attack.name for attack in attacks}


def _untold(attack: Attack) -> list[str]:
    """Returns what no text may hold: what the attack tells of hidden cases, and their meshes."""
    contract = with_drawn(attack.where, HIDDEN_SEED)
    return [MARK, *(case.mesh for case in contract.cases[contract.shown :])]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part)


def _clean(text: str) -> bool:
    return len(text) <= MOST_SHOWN and all(c.isprintable() or c in "\n\t" for c in text)
