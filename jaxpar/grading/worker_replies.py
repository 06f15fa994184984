"""What a worker replies about a function: its exported programs, its values, or what they raise.

The worker process runs this, and so does `in_process`, which judges trusted answers without a
process. `evidence` checks the replies.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

from jaxpar.grading import messages, partition_specs, program_export
from jaxpar.grading.channel import MAX_MODULE_BYTES
from jaxpar.grading.translate import Explanation, raised_by, translate

MAX_RESULT_CHARACTERS = 1 << 15  # longer results are only described
MAX_MESSAGE_CHARACTERS = 4000
TOO_LARGE = (
    "The program has {size:.1f} MiB, and at most {most:.0f} MiB can be judged. It holds every turn "
    "of a loop of Python, and every element of an array of numpy: use lax.fori_loop or lax.scan, "
    "and make large arrays with jnp."
)
CHANGES_ARGUMENTS = "a result, but changes its arguments in place; work on a copy"
PLAIN = (bool, int, float, str, list, tuple, dict, type(None))

Reply = tuple[messages.WorkerReply, bytes | None]
"""A message, and the bytes that follow it, if any do."""


def replies(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    """Calls or exports the function as the job says, and yields a reply for each case or call."""
    if job.kind in ("value", "schedule"):
        yield from _values(function, job)
    elif job.kind == "specs":
        yield from _specs(function, job)
    else:
        yield from _programs(function, job)


def load_failure(error: BaseException, filename: str) -> messages.ExportFailure:
    """Returns the reply that says why the file cannot be loaded."""
    return _failure(("load", 0), error, filename)


def _programs(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    for i, case in enumerate(job.cases, job.first):
        which = "forward"
        try:
            program = program_export.export_forward(function, case)
            yield _exported((which, i), program)
            if program_export.differentiated(case, job.gradient):
                which = "gradient"
                program = program_export.export_gradient(
                    function, case, job.gradient, program.outputs
                )
                yield _exported((which, i), program)
        except BaseException as error:
            yield _failure((which, i), error, job.filename), None
    for i, case in enumerate(job.errors):
        try:
            program_export.trace(function, case)
            yield messages.BadCallOutcome(i, None, False, False), None
        except BaseException as error:
            deliberate = raised_by(error, job.filename)
            yield messages.BadCallOutcome(i, *_exception(error), deliberate), None


def _exported(which: messages.ProgramKey, program: program_export.Program) -> Reply:
    size = len(program.module)
    if size > MAX_MODULE_BYTES:
        why = TOO_LARGE.format(size=size / 2**20, most=MAX_MODULE_BYTES / 2**20)
        return messages.ExportFailure(which, "result", why), None
    return messages.ExportedProgram(which, program.outputs), program.module


def _values(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    for position in job.order:
        call = copy.deepcopy(job.calls[position])
        reply = _value(position, lambda c=call: function(*c.args, **c.kwargs), job.filename)
        if _differ(call, job.calls[position]):
            reply = messages.ReturnedValue(position, CHANGES_ARGUMENTS)
        yield reply, None


def _differ(call: messages.Call, original: messages.Call) -> bool:
    try:
        return bool(call != original)
    except Exception:  # the answer has put in what cannot be compared, such as an array
        return True


def _specs(function: Callable, job: messages.WorkerJob) -> Iterator[Reply]:
    for i, case in enumerate(job.cases, job.first):
        yield _value(i, lambda c=case: partition_specs.returned(function, c), job.filename), None


def _value(
    position: int, call: Callable[[], Any], filename: str
) -> messages.ReturnedValue | messages.RaisedByCall:
    """Makes one call, and returns its result as plain data, or what it raises."""
    try:
        result = call()
    except BaseException as error:
        explained = translate(error, filename)
        return messages.RaisedByCall(
            position, explained.kind, _with_line(explained), *_exception(error)
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


def _failure(which: tuple[Any, int], error: BaseException, filename: str) -> messages.ExportFailure:
    explained = translate(error, filename)
    return messages.ExportFailure(which, explained.kind, _with_line(explained), *_exception(error))


def _exception(error: BaseException) -> tuple[str, bool]:
    """The name of an exception, and whether it is a ValueError."""
    return type(error).__name__, isinstance(error, ValueError)


def _with_line(explained: Explanation) -> str:
    where = f"line {explained.line}: " if explained.line else ""
    return where + explained.message[:MAX_MESSAGE_CHARACTERS]
