"""Reading a predicted number of bytes: `96`, `3/4 * 128`, `1.5 kB`, `2 KiB`.

Before a learner sees what a right program sends, a sitting asks for a prediction.
"""

from __future__ import annotations

import ast
import operator
import re
from fractions import Fraction

UNITS = {"": 1, "b": 1, "byte": 1, "bytes": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9,
         "kib": 2**10, "mib": 2**20, "gib": 2**30}  # fmt: skip
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
    match = re.fullmatch(r"([\d\s.()+*/-]+?)\s*([a-z]*)", text.strip().lower())
    if match and len(text) <= MAX_LETTERS and match[2] in UNITS:
        try:
            count = _value(ast.parse(match[1].strip(), mode="eval").body) * UNITS[match[2]]
        except (SyntaxError, ValueError, ZeroDivisionError):
            count = Fraction(-1)
        if count >= 0:
            return round(count)
    raise ValueError(
        f"prediction: received {text.strip()!r}; a number of bytes is allowed, "
        "such as 96, 3/4 * 128 or 2 KiB; press Enter alone to skip"
    )


def _value(node: ast.expr) -> Fraction:
    match node:
        case ast.Constant(value=int() | float()):
            return Fraction(str(node.value))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(left), _value(right))
    raise ValueError("not a sum of numbers")
