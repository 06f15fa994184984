"""A class of thirty in which everything goes wrong that may, and what must be said of each.

`python -m tests.classroom.faulty_class FOLDER` writes the class into a new folder, to be graded as
an instructor would: `jaxpar grade FOLDER --out results --exercises mean_over_devices scatter`.
"""

import io
import json
import os
import stat
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jaxpar.course.catalog import exercise
from jaxpar.course.stubs import stub

MEAN, SCATTER = "mean_over_devices", "scatter"
RIGHT_MEAN = f"""from jax import lax


def {MEAN}(x, *, axis):
    return lax.psum(x, axis) / lax.axis_size(axis)
"""
SUM = RIGHT_MEAN.replace(" / lax.axis_size(axis)", "")
RIGHT_SCATTER = f"""import jax.numpy as jnp
from jax import lax


def {SCATTER}(x, *, axis, root):
    size = lax.axis_size(axis)
    if x.shape[0] != size or not 0 <= root < size:
        raise ValueError(f"{SCATTER}: {{x.shape}} and root {{root}} on {{size}} devices")
    return lax.psum_scatter(jnp.where(lax.axis_index(axis) == root, x, jnp.zeros_like(x)), axis)
"""
SNOOP = f"""def {MEAN}(x, *, axis):
    return open("{{path}}").read()
"""
PLACE = f"exercises/02_collectives/{MEAN}.py"


@dataclass(frozen=True)
class Fault:
    """One student.

    Attributes:
        student: the name by which results know the student.
        make: writes what the student hands in; it gets the folder of submissions and the name.
        status: the status of the exercise `mean_over_devices`.
        says: what the column `attention` holds.
    """

    student: str
    make: Callable[[Path, str], object]
    status: str
    says: str = ""


def _file(name: str, data: str | bytes) -> Callable[[Path, str], object]:
    """Returns what writes one file into the student's folder."""

    def make(folder: Path, student: str) -> None:
        path = folder / student / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)

    return make


def _files(**files: str) -> Callable[[Path, str], object]:
    def make(folder: Path, student: str) -> None:
        for name, text in files.items():
            _file(f"{name}.py", text)(folder, student)

    return make


def _two(one: str, other: str) -> Callable[[Path, str], object]:
    def make(folder: Path, student: str) -> None:
        _file(f"first/{MEAN}.py", one)(folder, student)
        _file(f"second/{MEAN}.py", other)(folder, student)

    return make


def _zip(**members: bytes | str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _zip_of_a_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo(f"{MEAN}.py")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    return buffer.getvalue()


def _beside(data: bytes) -> Callable[[Path, str], object]:
    """Returns what puts a zip file beside the folders of the others."""
    return lambda folder, student: (folder / f"{student}.zip").write_bytes(data)


def _link(to: str, name: str) -> Callable[[Path, str], object]:
    def make(folder: Path, student: str) -> None:
        (folder / student).mkdir()
        (folder / student / name).symlink_to(to)

    return make


def _pipe(folder: Path, student: str) -> None:
    (folder / student).mkdir()
    os.mkfifo(folder / student / f"{MEAN}.py")


def _notebook(*sources: str) -> str:
    cells = [{"cell_type": "code", "source": f"%%exercise {MEAN}\n{s}"} for s in sources]
    return json.dumps({"cells": cells, "nbformat": 4, "nbformat_minor": 5})


HANDIN = _zip(**{PLACE: RIGHT_MEAN})
UNREADABLE = "yuri"
FAULTS = (
    Fault("anna", _files(mean_over_devices=RIGHT_MEAN, scatter=RIGHT_SCATTER), "pass"),
    Fault("bert", _file(PLACE, RIGHT_MEAN), "pass"),
    Fault("carl", _file(PLACE, SUM), "fail"),
    Fault("dora", _file(PLACE, "def mean_over_devices(x, *, axis:\n"), "error"),
    Fault("emil", lambda folder, student: (folder / student).mkdir(), "not-submitted"),
    Fault("fritz", _link("/etc/passwd", f"{MEAN}.py"), "not-submitted", "it is a link"),
    Fault("gina", _link("/etc", "exercises"), "not-submitted", "exercises (a link)"),
    Fault("hans", lambda folder, student: (folder / student).symlink_to(folder / "anna"),
          "not-submitted", "the student's folder is a link"),
    Fault("ida", _two(RIGHT_MEAN, SUM), "not-submitted", "handed in twice: first/"),
    Fault("jan", _two(RIGHT_MEAN, RIGHT_MEAN), "pass"),
    Fault("kim", _file(PLACE, RIGHT_MEAN + "#" * 300_000), "not-submitted", "larger than 256000"),
    Fault("lea", _file(f"a/b/c/d/e/{MEAN}.py", RIGHT_MEAN), "not-submitted", "4 folders deep"),
    Fault("max", _file("handin.zip", HANDIN), "pass"),
    Fault("nora", _beside(HANDIN), "pass"),
    Fault("otto", _beside(_zip(**{"handin.zip": HANDIN})), "pass"),
    Fault("paul", _file("handin.zip", HANDIN[:-40]), "not-submitted", "cannot be opened"),
    Fault("quinn", _beside(_zip(**{PLACE: bytes(10**8)})), "not-submitted", "larger than 256000"),
    Fault("rosa", _beside(_zip(**{f"../../../{MEAN}.py": RIGHT_MEAN})), "pass"),
    Fault("sven", _beside(_zip_of_a_link()), "not-submitted", "(a link)"),
    Fault("tina", _file("lab.rar", b"Rar!"), "not-submitted", "only zip files are opened"),
    Fault("ugo", _file("lab.ipynb", _notebook(RIGHT_MEAN)), "pass"),
    Fault("vera", _file("lab.ipynb", _notebook(RIGHT_MEAN, SUM)), "not-submitted", "cell 1 and"),
    Fault("wim", _file(PLACE, b"x = '\xff'"), "not-submitted", "is not UTF-8"),
    Fault("xenia", _file(f"{MEAN} (1).py", RIGHT_MEAN), "not-submitted", f"{MEAN} (1).py"),
    Fault(UNREADABLE, _file(f"unreadable/{MEAN}.py", RIGHT_MEAN), "infrastructure",
          "infrastructure (unreadable/ (cannot be opened (Permission denied)))"),
    Fault("zoe", _pipe, "not-submitted", "not a regular file"),
    Fault("snoop", _file(PLACE, SNOOP.format(path="/root/results/students/anna.json")), "error"),
    Fault("snoop2", _file(PLACE, SNOOP.format(path="/no/such/file")), "error"),
    Fault("stub", _file(PLACE, stub(exercise(MEAN))), "error"),
    Fault("=cmd()\u202e<b>", _file(PLACE, SUM), "fail"),
)  # fmt: skip


def write_class(folder: Path) -> None:
    """Writes what all hand in."""
    folder.mkdir()
    for fault in FAULTS:
        fault.make(folder, fault.student)


if __name__ == "__main__":
    write_class(Path(sys.argv[1]))
