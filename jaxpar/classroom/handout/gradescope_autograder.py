"""The autograder of a Gradescope assignment: a folder, and the zip file of it to upload."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from jaxpar.classroom.handout.pinned_versions import constraints
from jaxpar.classroom.handout.student_repository import check_empty, template
from jaxpar.classroom.handout.wheel import wheel, zipped
from jaxpar.course.folder import write_files

SCRIPTS = ("setup.sh", "run_autograder")
ARCHIVE = "autograder.zip"


def make_autograder(folder: Path, options: Sequence[str], secret: Path) -> list[str]:
    """Makes an autograder in a folder that is empty or not there; returns its files.

    Args:
        folder: where it goes.
        options: of `jaxpar grade`, without blanks in them.
        secret: the file of the course's secret, which goes with it.

    Raises:
        BadUseError: the folder holds something, or cannot be written.
        OSError: the secret cannot be read.
    """
    check_empty(folder)
    name, packed = wheel()
    kit = {
        **{script: template(script) for script in SCRIPTS},
        "constraints.txt": constraints().encode(),
        "course.secret": secret.read_bytes(),
        "options.txt": " ".join(options).encode() + b"\n",
        name: packed,
    }
    written, _ = write_files(folder, kit | {ARCHIVE: zipped(kit, SCRIPTS)})
    for script in SCRIPTS:
        (folder / script).chmod(0o755)
    return sorted(written)
