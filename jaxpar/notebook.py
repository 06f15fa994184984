"""What a notebook loads: `%load_ext jaxpar.notebook`, and `check` where there are no magics.

In a cell that begins with `%%exercise gather` an exercise is written and judged. IPython is needed
for that alone, so it is imported only then.
"""

from __future__ import annotations

from typing import Any

from jaxpar.course.catalog import BadUseError
from jaxpar.course.notebook.result import Result
from jaxpar.course.notebook.sitting import check as check_answer


def check(id: str, source: str | None = None) -> Result:
    """Judges an exercise of the course folder around the working directory.

    Args:
        id: the exercise, as `jaxpar list` names it.
        source: what is written into its file first; if None, the file is judged as it is.

    Returns:
        The verdict, which a notebook shows as a table. Its `score` is the number of points.

    Raises:
        BadUseError: there is no such exercise or no course folder, or the file cannot be written.
    """
    return check_answer(id, source)


def load_ipython_extension(shell: Any) -> None:
    """Adds `%%exercise` to a notebook; `%load_ext` calls this.

    Raises:
        BadUseError: IPython is missing.
    """
    try:
        import IPython  # noqa: F401
    except ModuleNotFoundError:
        raise BadUseError(
            "notebook: %%exercise needs IPython, which is missing; install ipykernel, "
            "or call jaxpar.notebook.check"
        ) from None
    from jaxpar.course.notebook.magic import ExerciseMagics

    shell.register_magics(ExerciseMagics)
