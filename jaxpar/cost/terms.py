"""A term of a sum: a formula that a person can read, and the numbers in it.

The text of the formula is the formula: it is what is computed, so that what is shown cannot differ
from what is added up. Numbers may be numpy arrays, one element for each of many plans.
"""

import ast
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import CodeType
from typing import Any

import numpy as np

_FUNCTIONS = {
    "ceil": np.ceil,
    "max": np.maximum,
    "min": np.minimum,
    "sqrt": np.sqrt,
    "where": np.where,
}
_NODES = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Call, ast.Name, ast.Constant,
    ast.operator, ast.unaryop, ast.cmpop, ast.expr_context,
)  # fmt: skip


@dataclass(frozen=True)
class Term:
    """One term of a sum, in the unit of the sum.

    Attributes:
        name: what it is, as in "optimizer".
        formula: arithmetic of names and numbers, with ceil, max, min, sqrt and where.
        numbers: what each name stands for.
    """

    name: str
    formula: str
    numbers: Mapping[str, Any]

    @cached_property
    def value(self) -> Any:
        """The value of the formula for these numbers."""
        # `_compiled` refuses everything except arithmetic.
        return eval(_compiled(self.formula), {"__builtins__": {}}, {**_FUNCTIONS, **self.numbers})

    @property
    def filled(self) -> str:
        """The formula with numbers for names."""

        def number(name: re.Match[str]) -> str:
            word = name.group()
            return word if word in _FUNCTIONS else show_number(self.numbers[word])

        return re.sub(r"[A-Za-z_]\w*", number, self.formula)


def make_term(name: str, formula: str, numbers: Mapping[str, Any]) -> Term:
    """A term with those of the numbers that its formula names."""
    used = _compiled(formula).co_names
    return Term(name, formula, {word: numbers[word] for word in used if word not in _FUNCTIONS})


def make_terms(formulas: Mapping[str, str], numbers: Mapping[str, Any]) -> list[Term]:
    """A term for each formula by name, with those of the numbers that it names."""
    return [make_term(name, formula, numbers) for name, formula in formulas.items()]


def total(terms: Iterable[Term]) -> Any:
    """The sum of the terms."""
    return sum(term.value for term in terms)


def show_number(number: Any) -> str:
    """A number as a person writes it: an integer with commas, a fraction to four digits."""
    if float(number).is_integer() and abs(number) < 1e15:
        return f"{int(number):,}"
    return f"{float(number):,.4g}"


@cache
def _compiled(formula: str) -> CodeType:
    tree = ast.parse(formula, mode="eval")
    strange = [node for node in ast.walk(tree) if not isinstance(node, _NODES)]
    assert not strange, f"{formula}: {ast.unparse(strange[0])} is not arithmetic"
    return compile(tree, formula, "eval")
