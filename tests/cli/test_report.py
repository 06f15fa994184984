"""`jaxpar train --track csv` and `jaxpar report`: a run that is resumed, and its page."""

from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from jaxpar.train import setup
from jaxpar.train.record import read_rows
from tests.train.runs import compile_quickly

SMALL = "train --mesh dp=2 --layers 1 --d-model 8 --heads 2 --sequence 16 --batch 8 --every 2"
MORE = "--warmup 3 --validate-every 3 --checkpoint run1 --track csv --json"


def test_a_resumed_command_goes_on_in_its_record(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint of step 4 is lost, and so are the rows of steps 3 and 4."""
    monkeypatch.chdir(tmp_path)
    command = f"{SMALL} {MORE}".split()
    with patch.object(setup, "compile_program", compile_quickly):
        first = run(*command, "--steps", "4").json
        (tmp_path / "run1/step-00000004/manifest.json").unlink()
        second = run(*command, "--steps", "5", "--resume").json
    rows = read_rows(tmp_path / "run1-record")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["loss"] for row in rows] == [*first["losses"][:2], *second["losses"]]
    seconds = [*first["step_seconds"][:2], *second["step_seconds"]]
    assert [row["tokens_per_second"] for row in rows] == [8 * 16 / one for one in seconds]
    rates = [row["learning_rate"] for row in rows]
    assert rates == pytest.approx([1e-3 / 3, 2e-3 / 3, 1e-3, 1e-3, 1e-3])
    validated = {row["step"]: row["validation_loss"] for row in rows if "validation_loss" in row}
    assert validated == {one["step"]: one["loss"] for one in second["validation"]}
    assert list(validated) == [3, 5]
    ended = run("report", "run1-record")
    assert (ended.code, ended.out) == (0, "")
    page = (tmp_path / "run1-record/report.html").read_text()
    assert "step 5 of 5" in page
    assert "has those after step 2, 4, 5." in page
