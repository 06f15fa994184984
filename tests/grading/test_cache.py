"""A verdict is found again for the same bytes, and for nothing else."""

import json
from dataclasses import replace
from pathlib import Path

from jaxpar.grading import cache
from jaxpar.grading.cache import VerdictCache
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Measured, PropertyVerdict, Verdict

WHERE = "jaxpar.contracts.devices_and_meshes.add_rank"
FILE = Submission(Path("add_rank.py"), b"x = 1")
VERDICT = Verdict(
    "add_rank", "pass", 10, 10, (PropertyVerdict("values", "pass", 10, 10, "right"),), "", 1.5, 7,
    Measured("wire_bytes", "dp=2", 8, 8),
)  # fmt: skip


def test_a_verdict_comes_back(tmp_path: Path) -> None:
    verdicts = VerdictCache(tmp_path / "cache")
    assert verdicts.get(WHERE, FILE) is None
    verdicts.put(WHERE, FILE, VERDICT)
    assert verdicts.get(WHERE, FILE) == VERDICT
    assert verdicts.get(WHERE, Submission(FILE.path, b"x = 2")) is None
    assert verdicts.get("jaxpar.contracts.devices_and_meshes.local_shape", FILE) is None


def test_another_library_is_another_key(tmp_path: Path, monkeypatch) -> None:
    verdicts = VerdictCache(tmp_path)
    verdicts.put(WHERE, FILE, VERDICT)
    monkeypatch.setattr(cache, "environment", lambda: "another")
    assert verdicts.get(WHERE, FILE) is None


def test_what_may_end_otherwise_is_not_kept(tmp_path: Path) -> None:
    verdicts = VerdictCache(tmp_path)
    verdicts.put(WHERE, FILE, replace(VERDICT, status="timeout"))
    assert verdicts.get(WHERE, FILE) is None


def test_a_file_that_was_changed_or_moved_is_not_believed(tmp_path: Path) -> None:
    verdicts = VerdictCache(tmp_path)
    verdicts.put(WHERE, FILE, VERDICT)
    (file,) = tmp_path.iterdir()
    other = Submission(FILE.path, b"x = 2")
    verdicts.put(WHERE, other, replace(VERDICT, status="fail"))
    (fail,) = set(tmp_path.iterdir()) - {file}
    fail.write_bytes(file.read_bytes())
    assert verdicts.get(WHERE, other) is None
    for text in ("", "{", json.dumps({"key": file.stem, "verdict": {"exercise": 1}})):
        file.write_text(text)
        assert verdicts.get(WHERE, FILE) is None
