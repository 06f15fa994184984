"""The autograder of a Gradescope assignment: a folder, and the zip file of it to upload.

On Gradescope's machine its scripts install the wheel and run `jaxpar grade` on one submission.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxpar.classroom.handout.pinned_versions import constraints
from jaxpar.classroom.handout.student_repository import template, write_new_folder
from jaxpar.classroom.handout.wheel import wheel, zipped

SCRIPTS = ("setup.sh", "run_autograder")
ARCHIVE = "autograder.zip"


def make_autograder(
    folder: Path, options: Sequence[str], secret: Path, whole_course: Mapping[str, bytes]
) -> list[str]:
    """Makes an autograder in a folder that is empty or not there, and returns its files.

    Args:
        folder: where it goes.
        options: options of `jaxpar grade`, without blanks in them.
        secret: the file with the secret of the course, which goes with it.
        whole_course: the files that every course folder has, which go into the wheel.

    Raises:
        ValueError: the folder holds something, or cannot be written.
        OSError: the secret cannot be read.
    """
    name, packed = wheel(whole_course)
    kit = {
        **{script: template(script) for script in SCRIPTS},
        "constraints.txt": constraints().encode(),
        "course.secret": secret.read_bytes(),
        "options.txt": " ".join(options).encode() + b"\n",
        name: packed,
    }
    written = write_new_folder(folder, kit | {ARCHIVE: zipped(kit, SCRIPTS)})
    for script in SCRIPTS:
        (folder / script).chmod(0o755)
    return written
