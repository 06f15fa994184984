"""A class of made-up students: most are right, some wrong, and some hand in less."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.sides.answers import right
from jaxpar.course.catalog import EXERCISES, Exercise
from jaxpar.course.stubs import stub

TWICE = """

import jax
_right = {name}


def {name}(*args, **kwargs):
    return jax.tree.map(lambda y: 2 * y, _right(*args, **kwargs))
"""


def make(folder: Path, students: int, exercises: Sequence[Exercise] = EXERCISES) -> None:
    """Writes one folder per student; no two files are the same."""
    routes = {row: right(row) for row in exercises}
    for number in range(students):
        for place, (row, texts) in enumerate(routes.items()):
            kind = (number + place) % 10
            if kind == 9:  # not handed in
                continue
            text = stub(row) if kind == 8 else texts[number % len(texts)]
            if kind == 7:
                text += TWICE.format(name=row.id)
            path = folder / f"student{number:03}" / row.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n# by student {number}\n")


@contextmanager
def folder() -> Iterator[Path]:
    """A folder that submissions and results go to, open to the users that graders drop to."""
    path = Path(tempfile.mkdtemp(prefix="jaxpar-class-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def begin(place: Path, out: str, names: Sequence[str], *more: str) -> subprocess.Popen[bytes]:
    """Starts to grade the class in `place`, at the best level of isolation."""
    command = [sys.executable, "-P", "-m", "jaxpar.cli", "grade", str(place / "class")]
    command += ["--out", str(place / out), "--secret-file", str(place / "secret"), "--unsafe"]
    command += [*more, "--exercises", *names]
    variables = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, env=variables, cwd="/")


def results(place: Path, out: str) -> dict[str, bytes]:
    """The result of every student, byte by byte."""
    return {path.name: path.read_bytes() for path in (place / out / "students").glob("*.json")}
