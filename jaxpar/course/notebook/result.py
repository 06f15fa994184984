"""What a notebook shows of a verdict: a table, or the lines of the terminal where it cannot."""

from __future__ import annotations

from dataclasses import dataclass

from jaxpar.drawing.pages import render
from jaxpar.grading.verdict import Verdict
from jaxpar.grading.writers import (
    NO_VALUES,
    TITLES,
    TRACER,
    failure_lines,
    headline,
    measured_rows,
    new_best,
    plain_lines,
)


@dataclass(frozen=True, repr=False)
class Result:
    """A verdict, and what a notebook says beside it.

    Attributes:
        verdict: the verdict.
        predicted: the bytes that the learner predicted, if any.
        best: the lowest number that the learner had reached before, if it is a challenge.
        notes: a line each: hints, where a backup is, whether a prediction was right.
        solution: the library's own answer and the file that it is in, where they are shown.
    """

    verdict: Verdict
    predicted: int | None = None
    best: int | None = None
    notes: tuple[str, ...] = ()
    solution: tuple[str, str] | None = None

    @property
    def score(self) -> int:
        """The points earned."""
        return self.verdict.score

    @property
    def max_score(self) -> int:
        """The points of the exercise."""
        return self.verdict.max_score

    @property
    def passed(self) -> bool:
        """Whether every property passed."""
        return self.verdict.passed

    def __repr__(self) -> str:
        """The lines of the terminal, then the notes, then the solution."""
        lines = [*plain_lines(self.verdict, self.predicted, self.best)]
        if self.notes:
            lines += ["", *self.notes]
        if self.solution:
            source, file = self.solution
            lines += ["", f"# {file}", source]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The same as a part of a page: it takes the colours around it, and runs nothing."""
        verdict, measured = self.verdict, self.verdict.measured
        return render(
            "jaxpar.course.notebook",
            "verdict.html",
            verdict=verdict,
            headline=headline(verdict),
            failure="\n".join(failure_lines(verdict, verdict.first_failure())),
            title=measured and TITLES[measured.quantity].format(measured.case),
            numbers=measured_rows(measured, self.predicted, self.best) if measured else [],
            new_best=new_best(verdict, self.best),
            no_values=NO_VALUES.format(verdict.exercise) if TRACER.search(verdict.printed) else "",
            notes=self.notes,
            solution=self.solution,
        )
