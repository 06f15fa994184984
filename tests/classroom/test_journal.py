"""The journal finds a judgement by all that it depends on, and ignores files that differ."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from jaxpar.classroom import journal
from jaxpar.classroom.journal import EvidenceStore, Journal, JudgementKey
from jaxpar.grading.evidence import Evidence
from jaxpar.grading.messages import BadCallOutcome, ExportFailure, Output, ReturnedValue
from jaxpar.grading.processes import ChildEnded
from jaxpar.grading.submission import Submission

KEY = JudgementKey("aa", "scatter", "bb", "cc", "dd", 2)
VERDICT = {"exercise": "scatter", "status": "pass", "score": 10}
JOB = {"source": "x = 1", "cases": []}
EVIDENCE = Evidence(
    {("forward", 0): ((Output((2,), "float32", ()),), b"\0\xff")},
    {("gradient", 1): ExportFailure(("gradient", 1), "error", "no")},
    {0: BadCallOutcome(0, "ValueError", True, True)},
    {3: ReturnedValue(3, [1, 2])},
    "printed",
)


def test_a_record_comes_back_and_another_key_finds_nothing(tmp_path: Path) -> None:
    kept = Journal(tmp_path / "journal")
    assert kept.get(KEY) is None
    kept.put(KEY, VERDICT)
    assert kept.get(KEY) == VERDICT
    others = [
        replace(KEY, **{name: value})
        for name, value in {
            "submission_hash": "ab", "exercise": "gather", "contract_hash": "bc",
            "environment": "cd", "seed_id": "de", "level": 1, "grader_version": 99,
        }.items()
    ]  # fmt: skip
    assert all(kept.get(other) is None for other in others)
    assert len({KEY.name, *(other.name for other in others)}) == 8


@pytest.mark.parametrize(
    "forged",
    [b"", b"{", b"[]", b"null", b'{"key": {}, "verdict": {}}', b'{"verdict": {}}', b"\xff" * 9],
)
def test_a_file_that_is_no_record_of_this_key_is_not_believed(
    tmp_path: Path, forged: bytes
) -> None:
    kept = Journal(tmp_path)
    kept.put(KEY, VERDICT)
    (path,) = (tmp_path / "records").iterdir()
    path.write_bytes(forged)
    assert kept.get(KEY) is None


def test_a_record_under_another_name_is_not_believed(tmp_path: Path) -> None:
    kept = Journal(tmp_path)
    kept.put(KEY, VERDICT)
    (path,) = (tmp_path / "records").iterdir()
    other = replace(KEY, submission_hash="ab")
    path.rename(path.with_name(f"{other.name}.json"))
    assert kept.get(other) is None


def test_a_record_is_the_same_bytes_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Journal(tmp_path / name).put(KEY, VERDICT)
    one, two = (next((tmp_path / n / "records").iterdir()).read_bytes() for n in ("one", "two"))
    assert one == two
    assert json.loads(one)["verdict"] == VERDICT


def test_half_written_files_go_and_the_rest_stays(tmp_path: Path) -> None:
    kept = Journal(tmp_path)
    kept.remove_half_written()
    kept.put(KEY, VERDICT)
    half = tmp_path / "records" / ".aa.json.x1y2"
    half.write_text("{")
    kept.remove_half_written()
    assert not half.exists()
    assert kept.get(KEY) == VERDICT


def test_bytes_are_kept_once_and_found_by_their_hash_only(tmp_path: Path) -> None:
    kept = Journal(tmp_path)
    submission = Submission(Path("scatter.py"), b"x = 1\r\n")
    kept.keep_source(submission)
    kept.keep_source(submission)
    assert kept.source(submission.digest) == b"x = 1\r\n"
    (path,) = (tmp_path / "sources").iterdir()
    path.write_bytes(b"x = 2")
    assert kept.source(submission.digest) is None
    assert kept.source("0" * 64) is None


def test_evidence_comes_back_as_it_was(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path, "here", fresh=False)
    assert store.get(JOB) is None
    store.put(JOB, EVIDENCE)
    assert store.get(JOB) == EVIDENCE
    assert store.get(JOB | {"source": "x = 2"}) is None
    assert EvidenceStore(tmp_path, "elsewhere", fresh=False).get(JOB) is None
    fresh = EvidenceStore(tmp_path, "here", fresh=True)
    assert fresh.get(JOB) is None
    fresh.put(JOB, replace(EVIDENCE, printed="again"))
    found = store.get(JOB)
    assert found and found.printed == "again"


def test_evidence_that_broke_off_is_not_kept(tmp_path: Path) -> None:
    store = EvidenceStore(tmp_path, "here", fresh=False)
    store.put(JOB, replace(EVIDENCE, ended=ChildEnded("killed")))
    assert store.get(JOB) is None


@pytest.mark.parametrize("forged", [b"", b"garbage", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_evidence_that_cannot_be_read_is_made_again(tmp_path: Path, forged: bytes) -> None:
    store = EvidenceStore(tmp_path, "here", fresh=False)
    store.put(JOB, EVIDENCE)
    (path,) = tmp_path.iterdir()
    path.write_bytes(forged)
    assert store.get(JOB) is None


def test_a_contract_s_hash_is_of_its_files(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(journal, "CONTRACTS", tmp_path)
    (tmp_path / "rings").mkdir()
    (tmp_path / "rings" / "a.py").write_text("from jaxpar.contracts.base import Contract\n")
    (tmp_path / "rings" / "b.py").write_text("y = 1\n")
    (tmp_path / "base.py").write_text("x = 1\n")
    first = _hash("rings.a")
    assert len({_hash("rings.b"), _hash("rings.a@1"), first}) == 3
    (tmp_path / "rings" / "b.py").write_text("y = 2\n")
    assert _hash("rings.a") == first
    (tmp_path / "base.py").write_text("x = 2\n")
    assert _hash("rings.a") != first


def _hash(where: str) -> str:
    return journal.contract_hash(f"jaxpar.contracts.{where}")
