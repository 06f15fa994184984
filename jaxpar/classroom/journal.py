"""The journal of a course: a record of each judgement, found by all that the judgement depends on.

The grader looks here before it has a file judged, so that a run which is killed and started again
repeats nothing that was done. Beside the records lie the judged files and the workers' evidence.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jaxpar.files import write_atomically
from jaxpar.grading import cache as home
from jaxpar.grading.evidence import Evidence
from jaxpar.grading.submission import Submission

GRADER_VERSION = 1
CLASSROOM = Path(__file__).resolve().parent
CONTRACTS = CLASSROOM.parent / "contracts"


@dataclass(frozen=True)
class JudgementKey:
    """All that a judgement depends on."""

    submission_hash: str
    exercise: str
    contract_hash: str
    environment: str
    seed_id: str
    level: int
    grader_version: int = GRADER_VERSION

    @property
    def name(self) -> str:
        """The name of the file of its record."""
        return _hash(asdict(self))


class Journal:
    """A folder of records, and of the submitted files that they were made from."""

    def __init__(self, folder: Path) -> None:
        """Uses this folder, which need not exist."""
        self._folder = folder

    def get(self, key: JudgementKey) -> dict[str, Any] | None:
        """Returns the record of a judgement if it was made before."""
        try:
            data = json.loads((self._folder / "records" / f"{key.name}.json").read_bytes())
            return data["verdict"] if data["key"] == asdict(key) else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: JudgementKey, record: dict[str, Any]) -> None:
        """Keeps the record of a judgement.

        Raises:
            OSError: the folder cannot be written; nothing was changed.
        """
        text = json.dumps({"key": asdict(key), "verdict": record}, indent=1)
        write_atomically(self._folder / "records" / f"{key.name}.json", text.encode())

    def keep_source(self, submission: Submission) -> None:
        """Keeps the bytes that are judged, so that what is shown and compared later is the same.

        Raises:
            OSError: the folder cannot be written.
        """
        path = self._source(submission.digest)
        if not path.exists():
            write_atomically(path, submission.source)

    def source(self, submission_hash: str) -> bytes | None:
        """Returns the bytes with this hash if they were kept."""
        try:
            source = self._source(submission_hash).read_bytes()
        except OSError:
            return None
        return source if hashlib.sha256(source).hexdigest() == submission_hash else None

    def add_all_of(self, other: Path) -> None:
        """Adds what the journal in another folder has; of two versions the other journal's stays.

        Raises:
            OSError: one of the folders cannot be read, or this one not be written.
        """
        for path in sorted(other.glob("*/[!.]*")):
            data, mine = path.read_bytes(), self._folder / path.relative_to(other)
            if not (mine.is_file() and mine.read_bytes() == data):
                write_atomically(mine, data)

    def _source(self, submission_hash: str) -> Path:
        return self._folder / "sources" / f"{submission_hash}.py"

    def remove_half_written(self) -> None:
        """Removes the temporary files of a run that was killed."""
        for path in self._folder.glob("*/.*"):
            path.unlink(missing_ok=True)


class EvidenceStore:
    """Evidence on disk by its job, so that it can be judged again without running the file."""

    def __init__(self, folder: Path, runs_on: str, *, fresh: bool) -> None:
        """Uses this folder; if `fresh`, nothing is read from it, and what is there is replaced."""
        self._folder, self._runs_on, self._fresh = folder, runs_on, fresh

    def get(self, job: dict[str, Any]) -> Evidence | None:
        """Returns what a worker sent for this job before, unless it must be fresh."""
        if self._fresh:
            return None
        try:
            return Evidence.from_json(json.loads(zlib.decompress(self._path(job).read_bytes())))
        except (OSError, ValueError, KeyError, TypeError, zlib.error):
            return None

    def put(self, job: dict[str, Any], evidence: Evidence) -> None:
        """Keeps what a worker sent, unless the worker ended early.

        Raises:
            OSError: the folder cannot be written.
        """
        if evidence.ended is None:
            data = json.dumps(evidence.to_json()).encode()
            write_atomically(self._path(job), zlib.compress(data, 1))

    def _path(self, job: dict[str, Any]) -> Path:
        return self._folder / f"{_hash([self._runs_on, job])}.z"


def contract_hash(where: str) -> str:
    """Returns the hash of a contract's file and of the contract modules that it imports."""
    digest = hashlib.sha256(where.encode())
    for path in sorted(_files(where.partition("@")[0])):
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def environment() -> str:
    """Returns the hash of the code that judges, without the contracts, and of what it runs on."""
    digest = hashlib.sha256(home.environment(without=("contracts",)).encode())
    for path in sorted(CLASSROOM.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _files(module: str, found: frozenset[Path] = frozenset()) -> frozenset[Path]:
    """Returns the file of a module of contracts, and of those that it imports."""
    base = CONTRACTS / Path(*module.split(".")[2:])
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    if path in found or not path.is_file():
        return found
    found |= {path}
    for name in _imports(path):
        found = _files(name, found)
    return found


def _imports(path: Path) -> list[str]:
    import ast

    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("jaxpar.contracts"):
            names += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    return names


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
