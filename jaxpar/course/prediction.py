"""Reading a predicted quantity: `96`, `3/4 * 128`, `1.5 kB`, `2 KiB`, `0.3 ms`, `70 B`.

Before a learner sees what a program sends or how long it takes, a sitting or a lesson asks for a
prediction.
"""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction
from typing import Literal

from jaxpar.grading.verdict import Measured

Kind = Literal["bytes", "seconds", "count"]

UNITS: dict[Kind, dict[str, int | Fraction]] = {
    "bytes": {"": 1, "b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9,
              "tb": 10**12, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
    "seconds": {"": 1, "s": 1, "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6),
                "min": 60, "h": 3600, "d": 86_400},
    "count": {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12},
}  # fmt: skip
EXAMPLES: dict[Kind, str] = {
    "bytes": "a number of bytes is allowed, such as 96, 3/4 * 128 or 2 KiB",
    "seconds": "a time is allowed, such as 0.2, 3/4 ms or 2 h",
    "count": "a number is allowed, such as 96, 3/4 * 128 or 70 B",
}
OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
MAX_LETTERS = 100


def parse_bytes(text: str) -> int:
    """Returns the bytes in `text`: a number or a calculation, with or without a unit after it.

    Raises:
        ValueError: the text is neither.
    """
    return round(parse_quantity(text, "bytes"))


def parse_quantity(text: str, kind: Kind) -> Fraction:
    """Returns the bytes, seconds or things in `text`: a number or a calculation, and a unit.

    Raises:
        ValueError: the text is neither a number nor a calculation.
    """
    plain = re.sub(r",(?=\d{3})", "", text.strip().lower())
    match = re.fullmatch(r"([\d\s.()+*/-]+?)\s*([a-z]*)", plain)
    if match and len(text) <= MAX_LETTERS and match[2] in UNITS[kind]:
        try:
            quantity = _value(ast.parse(match[1].strip(), mode="eval").body) * UNITS[kind][match[2]]
        except (SyntaxError, ValueError, ZeroDivisionError):
            quantity = Fraction(-1)
        if quantity >= 0:
            return quantity
    raise ValueError(
        f"prediction: received {text.strip()!r}; {EXAMPLES[kind]}; press Enter alone to skip"
    )


def outcome(predicted: int | None, measured: Measured | None) -> str:
    """Says whether it was predicted what each device sends; nothing if no prediction was made."""
    if predicted is None or measured is None or measured.quantity != "wire_bytes":
        return ""
    return "As you predicted." if predicted == measured.value else "That is not what you predicted."


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            return Fraction(str(node.value))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("not a sum of numbers")
