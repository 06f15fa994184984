"""The cell magic `%%exercise`: reads its first line, and shows errors as one line.

Only IPython imports this file, since it needs IPython itself.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from IPython.core.error import UsageError
from IPython.core.magic import Magics, cell_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from jaxpar.course.catalog import BadUseError, exercise
from jaxpar.course.folder import course_around
from jaxpar.course.notebook.cell_file import answer_of
from jaxpar.course.notebook.result import Result
from jaxpar.course.notebook.sitting import Wishes, check, sitting_in


@magics_class
class ExerciseMagics(Magics):
    """Adds `%%exercise` to a shell."""

    def __init__(self, shell: Any) -> None:
        """Prepares the first judgement, if there is a course folder already."""
        super().__init__(shell)
        self._cell = ""
        shell.events.register("pre_run_cell", self._remember)
        if course := course_around(Path.cwd()):
            sitting_in(course)

    def _remember(self, info: Any) -> None:
        """Keeps the whole cell: a magic is told neither its first line nor how it ends."""
        self._cell = info.raw_cell or ""

    @magic_arguments()
    @argument("id", help="the exercise, as `jaxpar list` names it")
    @argument("--hint", action="store_true", help="show the next hint")
    @argument("--solution", action="store_true", help="show the solution, once yours passes")
    @argument(
        "--predict",
        nargs="+",
        default=[],
        metavar="BYTES",
        help="what each device will send in one call, forward: 96, 3/4 * 128 or 2 KiB",
    )
    @cell_magic("exercise")
    def exercise_cell(self, line: str, cell: str) -> Result:
        """Writes this cell into the file of an exercise, and judges it."""
        given = parse_argstring(self.exercise_cell, line)
        wishes = Wishes(given.hint, given.solution, " ".join(given.predict))
        try:
            _need_whole_name(line, given.id)
            return check(given.id, self._source(line, cell), wishes)
        except BadUseError as error:
            raise UsageError(str(error)) from None
        except KeyboardInterrupt:
            raise UsageError("exercise: stopped; the cell is written, and was not judged") from None

    def _source(self, line: str, cell: str) -> str:
        """What is written: the cell, or what it would be where code has called the magic."""
        answer = answer_of(self._cell)
        return answer.source if answer else f"# %%exercise {line}\n{cell}"


def _need_whole_name(line: str, id: str) -> None:
    """Refuses what class grading would not find in the saved notebook."""
    name = exercise(id).id
    if line.split()[0] != name:
        raise BadUseError(
            f"exercise: %%exercise {line}; the whole name comes first: %%exercise {name}"
        )
