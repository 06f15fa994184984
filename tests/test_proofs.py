"""A proof holds until something changes that it depends on, and no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import proofs

CONTRACT = "jaxpar/contracts/rings/pass_on.py"
FILES = {
    "jaxpar/__init__.py": "",
    "jaxpar/rings.py": '"""Rings."""\nHOPS = 1\n',
    "jaxpar/trees.py": '"""Trees."""\nSTEPS = 1\n',
    "jaxpar/cost/__init__.py": "",
    "jaxpar/cost/sizes.toml": "size = 1\n",
    "jaxpar/grading/limits.toml": "limit = 1\n",
    "jaxpar/grading/words.toml": "word = 1\n",
    "jaxpar/grading/forms/page.html": "one",
    "jaxpar/grading/in_process.py": 'READER = "jaxpar.grading.reader"\n',
    "jaxpar/grading/reader.py": 'LIMIT = 1\nFILE = "words.toml"\n',
    "jaxpar/grading/unused.py": 'LIMIT = 1\nFILE = "limits.toml"\n',
    CONTRACT: 'from jaxpar.rings import HOPS\n\ndef wrong():\n    """One sentence."""\n',
    "jaxpar/contracts/rings/common.py": "SIZE = 1\n",
    "tests/contracts/rings/pass_on.py": "def right():\n    return 1\n",
    "tests/contracts/test_contracts.py": "JUDGED = 1\n",
    "lessons/03_rings.py": "def show():\n    import jaxpar.trees\n",
}

HASHES = {CONTRACT: "1", "tests/test_trees.py": "2"}


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(proofs, "ROOT", tmp_path)
    monkeypatch.setattr(proofs, "RECORD", tmp_path / "proofs.json")
    return tmp_path


def subject_hash(subject: str) -> str:
    """The hash as a new process finds it."""
    for part in vars(proofs).values():
        if hasattr(part, "cache_clear") and part.__module__ == proofs.__name__:
            part.cache_clear()
    return proofs.subject_hash(subject)


@pytest.mark.parametrize(
    ("subject", "file", "text"),
    [
        (CONTRACT, CONTRACT, FILES[CONTRACT].replace("One", "Another")),
        (CONTRACT, "jaxpar/rings.py", '"""Rings."""\nHOPS = 2\n'),
        (CONTRACT, "jaxpar/grading/reader.py", "LIMIT = 2\n"),
        (CONTRACT, "tests/contracts/rings/pass_on.py", "def right():\n    return 2\n"),
        (CONTRACT, "tests/contracts/test_contracts.py", "JUDGED = 2\n"),
        (CONTRACT, "jaxpar/grading/forms/page.html", "two"),
        (CONTRACT, "jaxpar/grading/words.toml", "word = 2\n"),
        ("lessons/03_rings.py", "jaxpar/trees.py", "STEPS = 2\n"),
        ("lessons/03_rings.py", "jaxpar/__init__.py", "import jax\n"),
    ],
)
def test_a_change_of_what_it_depends_on_ends_a_proof(
    tree: Path, subject: str, file: str, text: str
) -> None:
    before = subject_hash(subject)
    (tree / file).write_text(text)
    assert subject_hash(subject) != before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("jaxpar/rings.py", '"""Rings of devices."""\nHOPS = 1  # to the next device\n'),
        ("jaxpar/trees.py", "STEPS = 2\n"),
        ("jaxpar/grading/unused.py", 'LIMIT = 2\nFILE = "limits.toml"\n'),
        ("jaxpar/contracts/rings/common.py", "SIZE = 2\n"),
        ("jaxpar/cost/sizes.toml", "size = 2\n"),
        ("jaxpar/grading/limits.toml", "limit = 2\n"),
        (CONTRACT, "# A comment.\n" + FILES[CONTRACT]),
    ],
)
def test_any_other_change_leaves_it(tree: Path, file: str, text: str) -> None:
    before = subject_hash(CONTRACT)
    (tree / file).write_text(text)
    assert subject_hash(CONTRACT) == before


@pytest.fixture
def record(tree: Path, monkeypatch: pytest.MonkeyPatch) -> proofs.Recorder:
    monkeypatch.setattr(proofs, "subjects", lambda: list(HASHES))
    monkeypatch.setattr(proofs, "subject_hash", HASHES.get)
    return proofs.Recorder()


def test_a_subject_is_recorded_when_all_of_its_tests_have_passed(record: proofs.Recorder) -> None:
    record.ended(CONTRACT, 2, passed=True)
    record.ended("tests/test_trees.py", 1, passed=True)
    assert proofs.recorded() == {"tests/test_trees.py": "2"}
    record.ended(CONTRACT, 2, passed=True)
    assert proofs.recorded() == HASHES


def test_a_subject_of_which_a_test_failed_leaves_the_record(record: proofs.Recorder) -> None:
    record.ended(CONTRACT, 1, passed=True)
    record.ended("tests/test_trees.py", 1, passed=True)
    again = proofs.Recorder()
    again.ended(CONTRACT, 2, passed=False)
    assert proofs.recorded() == {"tests/test_trees.py": "2"}
    again.ended(CONTRACT, 2, passed=True)
    again.ended(CONTRACT, 2, passed=True)
    assert proofs.recorded() == {"tests/test_trees.py": "2"}


def test_the_record_is_kept_for_each_environment(
    record: proofs.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.ended(CONTRACT, 1, passed=True)
    monkeypatch.setattr(proofs, "environment", lambda: "elsewhere")
    assert proofs.recorded() == {}
    record.ended("tests/test_trees.py", 1, passed=True)
    assert proofs.recorded() == {"tests/test_trees.py": "2"}


def test_what_is_no_subject_any_more_leaves_the_record(
    record: proofs.Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record.ended(CONTRACT, 1, passed=True)
    monkeypatch.setattr(proofs, "subjects", lambda: ["tests/test_trees.py"])
    proofs.Recorder().ended("tests/test_trees.py", 1, passed=True)
    assert proofs.recorded() == {"tests/test_trees.py": "2"}
