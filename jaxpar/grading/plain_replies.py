"""What a worker replies about plain data: what a function returns or raises, and how to say so.

Nothing here needs JAX, so a web page judges with it, too.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from jaxpar.grading import messages
from jaxpar.grading.translate import Explanation, translate

MAX_RESULT_CHARACTERS = 1 << 15  # longer results are only described
MAX_MESSAGE_CHARACTERS = 4000
CHANGES_ARGUMENTS = "a result, but changes its arguments in place; work on a copy"
PLAIN = (bool, int, float, str, list, tuple, dict, type(None))

Reply = messages.ReturnedValue | messages.RaisedByCall


def load_failure(error: BaseException, filename: str) -> messages.ExportFailure:
    """Returns the reply that says why the file cannot be loaded."""
    return failure(("load", 0), error, filename)


def values(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    """Makes the calls of a job in their order, and yields a reply for each."""
    for position in job.order:
        call = copy.deepcopy(job.calls[position])
        reply = value(position, lambda c=call: function(*c.args, **c.kwargs), job.filename)
        if _differ(call, job.calls[position]):
            reply = messages.ReturnedValue(position, CHANGES_ARGUMENTS)
        yield reply


def _differ(call: messages.Call, original: messages.Call) -> bool:
    try:
        return bool(call != original)
    except Exception:  # the answer has put in what cannot be compared, such as an array
        return True


def value(position: int, call: Callable[[], Any], filename: str) -> Reply:
    """Makes one call, and returns its result as plain data, or what it raises."""
    try:
        result = call()
    except BaseException as error:
        explained = translate(error, filename)
        return messages.RaisedByCall(
            position, explained.kind, _with_line(explained), *exception_of(error)
        )
    text = ""
    try:
        text = json.dumps(result, allow_nan=False, default=_numbers)
        plain = json.loads(text)
    except Exception:  # what the answer returns may have code of its own
        plain = ""
    if isinstance(plain, str):  # a text counts as not plain: it stands for a description
        plain = _not_plain(result)
    elif len(text) > MAX_RESULT_CHARACTERS:
        plain = f"{len(text):,} characters long, which is too much"
    return messages.ReturnedValue(position, plain)


def _numbers(value: Any) -> Any:
    """The plain numbers in an array of numpy or JAX."""
    if hasattr(value, "shape") and hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError


def _not_plain(value: Any) -> str:
    """Describes in words a value that is not plain data."""
    if issubclass(type(value), float):  # infinite, or not a number
        return float.__repr__(value)
    parts = value if type(value) in (list, tuple) else ()
    others = [_type_name(part) for part in parts if type(part) not in PLAIN]
    inside = f" with a {others[0]} in it" if others else ""
    return f"a {_type_name(value)}{inside}, not plain data"


def _type_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")


def failure(which: tuple[Any, int], error: BaseException, filename: str) -> messages.ExportFailure:
    """Returns the reply that says what was raised, in the words of the course, and where."""
    explained = translate(error, filename)
    return messages.ExportFailure(
        which, explained.kind, _with_line(explained), *exception_of(error)
    )


def exception_of(error: BaseException) -> tuple[str, bool]:
    """The name of an exception, and whether it is a ValueError."""
    return type(error).__name__, isinstance(error, ValueError)


def _with_line(explained: Explanation) -> str:
    where = f"line {explained.line}: " if explained.line else ""
    return where + explained.message[:MAX_MESSAGE_CHARACTERS]
