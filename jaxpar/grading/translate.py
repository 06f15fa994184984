"""Errors of Python and JAX in the learner's words: which line, what it means, what to write.

This runs in the worker, which has the exception with its traceback; the explanation is part of the
reply. The rules are in `jax_errors`, `python_errors` and `torch_names`.
"""

from __future__ import annotations

import linecache
import opcode
import re
from dataclasses import dataclass
from types import TracebackType

from jaxpar.grading.jax_errors import JAX_ERRORS
from jaxpar.grading.python_errors import PYTHON_ERRORS
from jaxpar.grading.torch_names import TORCH_NAMES

MAX_CHARACTERS = 20_000
RULES = TORCH_NAMES + PYTHON_ERRORS + JAX_ERRORS

_MENTIONED_BY = {
    "callback": r"callback",
    "ragged": r"ragged_all_to_all",
    "signature": r"def {name}\(",
}
"""Errors that come after tracing, without a frame: what to look for in the file instead."""


@dataclass(frozen=True)
class Explanation:
    """An error, translated.

    Attributes:
        kind: a short name of the error, `unknown` when no rule knows it.
        line: line of the learner's file, where it can be told.
        message: one to three sentences.
    """

    kind: str
    line: int | None
    message: str


def translate(error: BaseException, filename: str) -> Explanation:
    """Explains an error that the code in `filename` raised, or caused within a library."""
    if isinstance(error, SyntaxError) and error.filename == filename:
        return Explanation("syntax", error.lineno, f"Python cannot read this line: {error.msg}.")
    where, line = _place(error, filename)
    kind, message, parts = explain(where, f"{type(error).__name__}: {_text_of(error)}")
    return Explanation(kind, line or _mentioned(kind, parts, filename), message)


def raised_by(error: BaseException, filename: str) -> bool:
    """Whether a `raise` or an `assert` in `filename` raised the error, not what it called."""
    return _place(error, filename)[0] == "raised"


def explain(where: str, error: str) -> tuple[str, str, dict[str, str]]:
    """Returns kind and meaning of an error, and the parts of its text that its rule names.

    Args:
        where: who raised it; see `_place`.
        error: its type and its text, as in `ValueError: no such axis`.
    """
    for kind, pattern, message in RULES:
        if found := re.search(pattern, f"{where} {error}", re.DOTALL):
            parts = {name: text.strip(" .") for name, text in found.groupdict("").items()}
            return kind, message.format_map(parts), parts
    name, _, text = error.partition(": ")
    first_line = (text.strip() or "no message").splitlines()[0][:300]
    first_line = re.sub(r" at 0x[0-9a-f]+", "", first_line)
    return "unknown", f"{name}: {first_line}", {}


def _text_of(error: BaseException) -> str:
    try:
        return str(error)[:MAX_CHARACTERS]
    except Exception:  # the learner may have defined an error whose __str__ fails
        return ""


def _place(error: BaseException, filename: str) -> tuple[str, int | None]:
    """Returns who raised the error, and the line of the learner's file that caused it.

    `raised`: the learner's code, by a raise or an assert. `inside`: something that this code
    called. `later`: JAX, after tracing, with the traced line as the cause. `outside`: nothing in
    the traceback is the learner's.
    """
    if frame := _last_frame(error.__traceback__, filename):
        operation = opcode.opname[frame.tb_frame.f_code.co_code[frame.tb_lasti]]
        return "raised" if operation == "RAISE_VARARGS" else "inside", frame.tb_lineno
    if error.__cause__ and (frame := _last_frame(error.__cause__.__traceback__, filename)):
        return "later", frame.tb_lineno
    return "outside", None


def _last_frame(traceback: TracebackType | None, filename: str) -> TracebackType | None:
    last = None
    while traceback:
        if traceback.tb_frame.f_code.co_filename == filename:
            last = traceback
        traceback = traceback.tb_next
    return last


def _mentioned(kind: str, parts: dict[str, str], filename: str) -> int | None:
    """Returns the first line of the file that mentions what this kind of error is about."""
    if kind not in _MENTIONED_BY:
        return None
    wanted = _MENTIONED_BY[kind].format_map(parts)
    lines = enumerate(linecache.getlines(filename), start=1)
    return next((number for number, text in lines if re.search(wanted, text)), None)
