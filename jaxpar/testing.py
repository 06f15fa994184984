"""Budgets for tests of your own program: what a device may send and hold.

    assert_sends(step, (params, batch), {"dp": "all_reduce <= 8 MB", "dp,tp": "2 permute"})
    assert_holds(step, (params, batch), "temp <= 2 MB; total <= 16 MiB")

The program is compiled and not run. A budget is one condition, or several with ";" between them:
`NAME <= SIZE` or `NAME == SIZE`, where a size has a unit, and for collectives also `COUNT NAME`.
"""

import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any

from rich.console import Console

from jaxpar.checks import check_one_of
from jaxpar.inspector import Memory, Report, inspect, render
from jaxpar.inspector.report import KINDS

PARTS = (*(field.name.removesuffix("_bytes") for field in fields(Memory)), "total")
UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
NOTHING = "nothing"
_SIZE = re.compile(r"(\w+) *(<=|==) *((?:\d+|\d{1,3}(?:,\d{3})+)(?:\.\d+)?) *([A-Za-z]+)")
_COUNT = re.compile(r"(\d+) +(\w+)")
_COLUMNS = 92  # pytest indents by 8


@dataclass(frozen=True)
class _Condition:
    text: str
    name: str
    operator: str
    limit: float
    unit: str

    def problem(self, measured: float) -> str:
        """Says how far the measured number is from what is allowed; "" if it is allowed."""
        excess = round(measured - self.limit, 1)  # to the digits that are shown
        if excess == 0 or (excess < 0 and self.operator == "<="):
            return ""
        return (
            f"{self.name}, {_amount(measured, self.unit)}; the budget is {self.text!r}: "
            f"{_amount(abs(excess), self.unit)} too {'many' if excess > 0 else 'few'}"
        )


def assert_sends(
    function: Callable[..., Any],
    args: Sequence[Any],
    budget: Mapping[str, str] | Mapping[str | tuple[str, ...], str],
) -> None:
    """Asserts that a program sends what its budget allows, and nothing that it does not name.

    Counts and bytes are those of all collectives of one kind over the same axes, in one call, on
    one device; bytes are wire bytes, by ring algorithms. Every branch of a conditional counts.

    Args:
        function: A function that JAX can trace, jitted or not.
        args: Its arguments, or `jax.ShapeDtypeStruct` with shardings in their place.
        budget: For an axis of the mesh, or several as "dp,tp" or ("dp", "tp"), conditions on the
            collectives over them, as "2 all_gather; all_gather <= 1 MB", or "nothing".

    Raises:
        AssertionError: It sends something else. The message ends with the inspector's tables.
        ValueError: The budget is malformed, or the inspector cannot read the program.
    """
    __tracebackhide__ = True
    where = "assert_sends"
    if not isinstance(budget, Mapping):
        raise ValueError(
            f"{where}: the budget is {budget!r}; write one for each axis, as "
            "{'dp': 'all_reduce <= 8 MB'}"
        )
    conditions = [
        (_axes(key), one)
        for key, text in budget.items()
        if text != NOTHING
        for one in _parse(where, text, KINDS)
    ]
    report = _inspect(where, function, args)
    named = {(frozenset(axes), one.name) for axes, one in conditions}
    conditions += [
        (axes, _Condition(NOTHING, kind, "==", 0, "bytes"))
        for axes, kind in dict.fromkeys((sent.axes, sent.kind) for sent in report.collectives)
        if (frozenset(axes), kind) not in named
    ]
    problems = ((axes, one.problem(_sent(report, axes, one))) for axes, one in conditions)
    _fail_if(where, [f"{', '.join(axes)}: {text}" for axes, text in problems if text], report)


def assert_holds(function: Callable[..., Any], args: Sequence[Any], budget: str) -> None:
    """Asserts that a device holds no more than a budget allows while a program runs.

    Args:
        function: A function that JAX can trace, jitted or not.
        args: Its arguments, or `jax.ShapeDtypeStruct` with shardings in their place.
        budget: Conditions on arguments, outputs, temp (intermediate results), constants, aliases
            (outputs in place of arguments) and total, as "temp <= 2 MB; total <= 16 MiB".

    Raises:
        AssertionError: It holds something else. The message ends with the inspector's tables.
        ValueError: The budget is malformed, or the inspector cannot read the program.
    """
    __tracebackhide__ = True
    where = "assert_holds"
    conditions = list(_parse(where, budget, PARTS))
    report = _inspect(where, function, args)
    if report.memory is None:
        raise ValueError(f"{where}: this backend tells nothing of memory; run the test on CPU")
    held = {part: getattr(report.memory, f"{part}_bytes") for part in PARTS}
    _fail_if(where, [text for one in conditions if (text := one.problem(held[one.name]))], report)


def _parse(where: str, budget: str, names: Sequence[str]) -> Iterator[_Condition]:
    for text in map(str.strip, budget.split(";")) if isinstance(budget, str) else [repr(budget)]:
        if size := _SIZE.fullmatch(text):
            name, operator, number, unit = size.groups()
            check_one_of(where, f"the unit in {text!r}", unit, [*UNITS])
            limit = float(Decimal(number.replace(",", "")) * UNITS[unit])
            condition = _Condition(text, name, operator, limit, "bytes")
        elif (count := _COUNT.fullmatch(text)) and names is KINDS:
            condition = _Condition(text, count[2], "==", int(count[1]), "times")
        else:
            or_count = f", or '2 {names[0]}'" if names is KINDS else ""
            raise ValueError(
                f"{where}: {text!r} is no condition; write '{names[0]} <= 8 MB' with <= or =="
                f"{or_count}, and ';' between several"
            )
        check_one_of(where, f"the name in {text!r}", condition.name, names)
        yield condition


def _axes(key: str | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(str.strip, key.split(","))) if isinstance(key, str) else key


def _inspect(where: str, function: Callable[..., Any], args: Sequence[Any]) -> Report:
    if not isinstance(args, tuple | list):
        raise ValueError(
            f"{where}: args is of type {type(args).__name__}; give a tuple, as (params, batch)"
        )
    return inspect(function, *args)


def _sent(report: Report, axes: Iterable[str], condition: _Condition) -> float:
    numbers = [
        one.times if condition.unit == "times" else one.total_wire_bytes
        for one in report.collectives
        if (set(one.axes), one.kind) == (set(axes), condition.name)
    ]
    return sum(math.inf if number is None else number for number in numbers)


def _fail_if(where: str, problems: Sequence[str], report: Report) -> None:
    __tracebackhide__ = True
    if problems:
        tables = io.StringIO()
        Console(file=tables, width=_COLUMNS, force_terminal=False).print(render(report))
        lines = "\n".join(f"  {problem}" for problem in problems)
        raise AssertionError(f"{where}: not as budgeted\n{lines}\n\n{tables.getvalue()}")


def _amount(number: float, unit: str) -> str:
    if number == math.inf:
        return f"an unknown number of {unit}"
    return f"{number:,.1f} {unit if number != 1 else unit[:-1]}".replace(".0 ", " ")
