"""What `doctor --grading` does: attacks the isolation of submissions, and tells what held."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from jaxpar.cli.base import LEFT, errors_as_bad_use, show, warn
from jaxpar.course.catalog import BadUseError

if TYPE_CHECKING:
    from jaxpar.classroom.attacks.attack import Attack
    from jaxpar.classroom.attacks.suite import Outcome
    from jaxpar.classroom.sandbox.levels import Sandbox

TOLD_EACH = 20  # attacks between two lines, where there is no terminal


def attacks_held(only: Sequence[str], as_json: bool) -> bool:
    """Runs the attacks on the best level, prints what held, and returns whether all did.

    Args:
        only: the groups of attacks to run; all if empty.
        as_json: whether to print JSON.
    """
    from jaxpar.classroom.attacks.suite import ATTACKS, Suite, forecast
    from jaxpar.classroom.attacks.unfinished import UnfinishedRun, default_file
    from jaxpar.classroom.sandbox.levels import best_sandbox

    attacks = _chosen(ATTACKS, only)
    with errors_as_bad_use():
        sandbox = best_sandbox()
    suite = Suite(sandbox, UnfinishedRun(default_file(), sandbox))
    warn(f"Isolation: {sandbox.name}.")
    warn(forecast(attacks, suite.known(attacks)))
    outcomes: list[Outcome] = []
    progress = _Progress(len(attacks))
    try:
        for outcome in suite.run(attacks):
            outcomes.append(outcome)
            progress.tell(outcome.attack.group)
    except KeyboardInterrupt:
        progress.end()
        warn(f"Stopped after {len(outcomes)} of {len(attacks)}; the same command goes on there.")
        raise typer.Exit(LEFT) from None
    progress.end()
    suite.forget(attacks)
    data = {"level": sandbox.level, "attacks": [outcome.to_dict() for outcome in outcomes]}
    show(as_json, data, _lines(outcomes, sandbox))
    return all(outcome.held for outcome in outcomes)


def copy_python_to(folder: Path, as_json: bool) -> None:
    """Copies Python and jaxpar to a folder that all can read, and says what to do with it."""
    from jaxpar.classroom.handout.python_copy import copy_python
    from jaxpar.course.folder import fixed_files

    with errors_as_bad_use():
        command = copy_python(folder, fixed_files())
    lines = [
        f"{folder}: Python and jaxpar as they are here; all can read it, only you can write it.",
        f"Next: {command} doctor --grading",
        f"Then: {command} grade ...",
    ]
    show(as_json, {"command": str(command)}, lines)


def _chosen(attacks: Sequence[Attack], only: Sequence[str]) -> list[Attack]:
    groups = list(dict.fromkeys(attack.group for attack in attacks))
    unknown = [name for name in only if name not in groups]
    if unknown:
        raise BadUseError(
            f"doctor: --only {unknown[0]!r}: no group of attacks; there is {', '.join(groups)}"
        )
    return [attack for attack in attacks if attack.group in (only or groups)]


class _Progress:
    """Says how far the attacks are: on a terminal in one line, else now and then in a new one."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._begun = total, 0, time.monotonic()

    def tell(self, group: str) -> None:
        """Counts one more attack."""
        self._done += 1
        minutes = (time.monotonic() - self._begun) / 60
        text = f"{self._done} of {self._total}, {minutes:.1f} minutes: {group}"
        if sys.stderr.isatty():
            print(f"\r{text:<60}", end="", file=sys.stderr, flush=True)
        elif self._done % TOLD_EACH == 0:
            warn(text)

    def end(self) -> None:
        """Ends the line."""
        if sys.stderr.isatty():
            print(file=sys.stderr)


def _lines(outcomes: list[Outcome], sandbox: Sandbox) -> Iterator[str]:
    """Yields a line for each group of attacks, and one for each attack that was not held."""
    yield f"{sandbox.name} held against"
    for group in dict.fromkeys(outcome.attack.group for outcome in outcomes):
        those = [outcome for outcome in outcomes if outcome.attack.group == group]
        yield f"  {group:<28} {sum(o.held for o in those):>3} of {len(those):>3} attacks"
    broken = [outcome for outcome in outcomes if not outcome.held]
    for one in broken:
        yield f"NOT HELD: {one.attack.group}: {one.attack.name}: {one.why}"
    for level, reason in sandbox.why_not.items():
        yield f"Not on level {level}: {reason}"
    yield "Do not grade untrusted files here." if broken else "Every attack was held."
