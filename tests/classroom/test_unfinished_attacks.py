"""A run of attacks that was stopped goes on where it was, and one that ended begins anew."""

from pathlib import Path
from typing import Any

import pytest

from jaxpar.classroom.attacks import suite
from jaxpar.classroom.attacks.attack import Attack
from jaxpar.classroom.attacks.suite import Suite, forecast
from jaxpar.classroom.attacks.unfinished import UnfinishedRun
from jaxpar.classroom.sandbox.levels import Sandbox

ATTACKS = [Attack(f"attack {i}", "group", f"source {i // 2}", ("fail",)) for i in range(6)]
RECORD = {"status": "fail", "score": 0, "printed": ""}


class NoBait:
    """Stands for the bait, which needs a port and a service."""

    def __init__(self, user: int | None) -> None:
        pass

    def close(self) -> None:
        pass


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that are judged, without a process; the list decides when a run is stopped."""
    seen: list[str] = []

    def judge(self: Suite, attack: Attack, bait: Any, pool: Any) -> tuple[dict[str, Any], str]:
        if seen[-1:] == ["source 1"]:
            raise KeyboardInterrupt
        seen.append(attack.source)
        return RECORD, ""

    monkeypatch.setattr(suite, "Bait", NoBait)
    monkeypatch.setattr(Suite, "_record_and_harm", judge)
    return seen


def test_a_stopped_run_goes_on(tmp_path: Path, judged: list[str]) -> None:
    file, sandbox = tmp_path / "cache" / "attacks.jsonl", Sandbox(2)
    first = Suite(sandbox, UnfinishedRun(file, sandbox))
    with pytest.raises(KeyboardInterrupt):
        list(first.run(ATTACKS))
    assert judged == ["source 0", "source 1"]
    judged.clear()

    again = Suite(sandbox, UnfinishedRun(file, sandbox))
    assert again.known(ATTACKS) == 2
    assert "2 of them are known from a run that was stopped" in forecast(ATTACKS, 2)
    outcomes = list(again.run(ATTACKS))
    assert judged == ["source 2"]
    assert [outcome.attack for outcome in outcomes] == ATTACKS
    assert all(outcome.held for outcome in outcomes)

    again.forget(ATTACKS[:2])
    assert UnfinishedRun(file, sandbox).get("source 1") == (RECORD, "")
    assert UnfinishedRun(file, sandbox).get("source 0") is None
    again.forget(ATTACKS)
    assert not file.exists()


def test_another_level_and_a_broken_file_are_not_believed(tmp_path: Path) -> None:
    file = tmp_path / "attacks.jsonl"
    UnfinishedRun(file, Sandbox(2)).put("source", (RECORD, ""))
    assert UnfinishedRun(file, Sandbox(2)).get("source")
    assert UnfinishedRun(file, Sandbox(1)).get("source") is None
    file.write_text("half of a li")
    assert UnfinishedRun(file, Sandbox(2)).get("source") is None
