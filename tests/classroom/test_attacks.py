"""Attacks gain nothing, reach nothing and leave nothing behind, on each level of isolation.

`jaxpar doctor --grading` runs all of them; here only some are run with a reader, and attacks by
programs are tested in `test_allowlist.py` and `test_refused.py` without one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import replace
from functools import cache

import pytest

from jaxpar.classroom.attacks.attack import MARK, VALUE, Attack
from jaxpar.classroom.attacks.suite import ATTACKS, HIDDEN_SEED, Outcome
from jaxpar.contracts.base import with_drawn
from tests.classroom.readable_python import LEVELS, readable_python, why_not

__all__ = ["readable_python"]

WITH_READER = (
    "programs in another order", "programs of 17 MB", "outputs of a hundred dims",
    "outputs over axes that do not exist", "custom call xla_ffi_python_cpu_callback",
    "a shape that overflows", "half of a program", "a program with byte 11 in 32 flipped",
    "a patched shard_map, so that the compiler sends", "a gradient program that sends nothing",
    "the first case's program for both", "outputs said to be equal everywhere",
    "a program that never ends", "export returns other bytes", "numpy says that all is close",
    "a mesh that is turned round",
    "print the hidden cases", "the hidden cases as last words",
    "the hidden cases as the message of a failure, and no program",
    "the hidden cases as what is not written yet", "a late failure of a case that is shown",
    "what is not written at a line that tells",
    "answer both frames as the worker does", "programs that were shown for hidden cases",
)  # fmt: skip
SAMPLED = ("channel", "answers")
TRIES = ("reading", "writing", "processes", "kernel", "network")
ELSEWHERE = ("crafted programs", "hidden communication", "programs")
GROUPS = sorted({a.group for a in ATTACKS} - {*TRIES, *ELSEWHERE})
SCRIPT = """
import json, sys
from jaxpar.classroom.attacks.suite import ATTACKS, Suite
from jaxpar.classroom.sandbox import levels
level, slot, names = json.load(sys.stdin)
suite = Suite(levels.Sandbox(level, levels.user_of(slot)))
for one in suite.run([attack for attack in ATTACKS if attack.name in names]):
    print(json.dumps([one.attack.name, one.why, json.dumps(one.record)]), flush=True)
"""


def broken(python: str, level: int, attacks: list[Attack]) -> list[str]:
    """Runs attacks, and returns which were not held, or held for another reason than stated."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    asked = json.dumps([level, 100 + int(worker[2:]), [a.name for a in attacks]])
    done = subprocess.run(
        [python, "-c", SCRIPT], input=asked, capture_output=True, text=True, check=False
    )
    outcomes = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(outcomes) == len(attacks), done.stderr[-2000:]
    says = {attack.name: attack.says for attack in attacks}
    trouble = [f"{name}: {why}" for name, why, _ in outcomes if why]
    return trouble + [
        f"{name}: does not say {says[name]!r}: {record}"
        for name, _, record in outcomes
        if not re.search(says[name], record)
    ]


@cache
def best_level(python: str) -> int:
    found = next((level for level in LEVELS if not why_not(level, python)), None)
    if found is None:
        pytest.skip("; ".join(why_not(level, python) for level in LEVELS))
    return found


def chosen(*groups: str) -> list[Attack]:
    """Attacks without a reader, and a few with one; of the two largest groups, every second."""
    cheap = [a for a in ATTACKS if a.where == VALUE or a.name in WITH_READER]
    return [
        attack
        for group in groups
        for attack in [a for a in cheap if a.group == group][:: 2 if group in SAMPLED else 1]
    ]


@pytest.mark.parametrize("level", LEVELS)
def test_a_process_reaches_nothing(level: int, readable_python: str) -> None:
    reason = why_not(level, readable_python)
    if reason:
        pytest.skip(reason)
    shared = [attack for attack in chosen(*TRIES, "resources") if "REACHED" in attack.source]
    assert not broken(readable_python, level, shared)


@pytest.mark.full
@pytest.mark.parametrize("group", [*GROUPS, *ELSEWHERE])
def test_an_attack_gains_nothing(group: str, readable_python: str) -> None:
    attacks = chosen(group)
    assert not broken(readable_python, best_level(readable_python), attacks)


def test_there_are_enough_attacks_each_with_a_name_of_its_own() -> None:
    names = [attack.name for attack in ATTACKS]
    assert len(set(names)) == len(names) >= 70
    assert set(WITH_READER) <= set(names)


@pytest.mark.parametrize(
    ("status", "score", "printed", "why"),
    [
        ("pass", 5, "", ""),
        ("fail", 0, "", "it ends with fail"),
        ("pass", 6, "", "it earns 6 points where an honest file earns 5"),
        ("pass", 5, "REACHED x", "it reached what it tried"),
        ("pass", 5, "\x1b[2J", "a text of its own"),
    ],
)
def test_an_attack_that_gains_is_told(status: str, score: int, printed: str, why: str) -> None:
    attack = Attack("x", "group", "", ("pass",), 5)
    outcome = Outcome(attack, {"status": status, "score": score, "printed": printed}, "")
    assert outcome.why.startswith(why)
    assert outcome.held is (not why)
    assert outcome.to_dict()["score"] == max(0, score - 5)


@pytest.mark.parametrize(
    ("text", "held"), [(f"line {MARK}", False), ("on {hidden}: nan", False), ("on tp=8", True)]
)
def test_an_attack_that_tells_of_a_hidden_case_is_told(text: str, held: bool) -> None:
    attack = Attack("x", "group", "", ("fail",), hidden=True)
    *_, last = with_drawn(attack.where, HIDDEN_SEED).cases
    text = text.format(hidden=last.mesh)
    record = {"status": "fail", "score": 0, "printed": "", "properties": [{"message": text}]}
    assert Outcome(attack, record, "").held is held
    assert Outcome(replace(attack, hidden=False), record, "").held
