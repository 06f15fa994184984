"""Hints one by one, and the solution once it is due."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable

from jaxpar.contracts.base import Contract
from jaxpar.course.catalog import BadUseError
from jaxpar.course.command import command
from jaxpar.course.learner_record import LearnerRecord


def next_hint(record: LearnerRecord, contract: Contract) -> tuple[int, str]:
    """Returns the number of the hint to show now, and what went wrong while it was recorded.

    After the last hint has been shown, it is the last one again.
    """
    number = min(record.hints_shown(contract.id) + 1, len(contract.hints))
    return number, record.remember_hints(contract.id, number)


def hints_left(record: LearnerRecord, contract: Contract) -> int:
    """Returns how many hints were not shown yet; if none are left, the learner may give up."""
    return len(contract.hints) - record.hints_shown(contract.id)


def allow_solution(record: LearnerRecord, contract: Contract, give_up: bool) -> str:
    """Lets the solution be seen before the exercise passes; returns what went wrong.

    Raises:
        BadUseError: the learner does not want to give up, or has not seen every hint.
    """
    if record.seen(contract.id):
        return ""
    left = hints_left(record, contract)
    if left or not give_up:
        way = f"with --give-up after the last hint ({left} to go)" if left else "add --give-up"
        raise BadUseError(
            f"solution: it is shown once `{command()} check {contract.id}` passes; or {way}"
        )
    return record.remember_seen(contract.id)


def solution(contract: Contract) -> tuple[str, str]:
    """The source of the reference and of its helpers, and the file of the library they are in."""
    file = contract.reference.__module__.replace(".", "/")
    functions = [contract.reference]
    for function in functions:  # the list grows in the loop: a helper may have helpers
        functions += [helper for helper in _helpers(function) if helper not in functions]
    return "\n\n".join(map(inspect.getsource, functions)), f"{file}.py"


def _helpers(function: Callable) -> list[Callable]:
    """The private functions of its module that a function names."""
    module = inspect.getmodule(function)
    private = re.findall(r"\b_[a-z]\w*", inspect.getsource(function))
    found = [getattr(module, name, None) for name in dict.fromkeys(private)]
    return [f for f in found if inspect.isfunction(f) and f.__module__ == function.__module__]
