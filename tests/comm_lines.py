"""Compares the `Comm:` and `Memory:` lines of a docstring with what programs send and hold.

The grammar of these lines is in `jaxpar.collectives`.
"""

import inspect
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import jax
import pytest

from jaxpar.inspector.stablehlo import read_module

WIRE = {  # what crosses the wire for each element that goes in
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "permute": lambda n: 1,
}

Sent = Counter[tuple[str, str]]
"""The elements that go into the collectives of each kind over each mesh axis."""

_LINE = re.compile(
    r"(?P<direction>forward|backward)(?: if op in {(?P<ops>[\w, ]+)})?: (?P<says>.+)"
)
_PART = re.compile(
    r"(?P<kind>all_reduce|reduce_scatter|all_gather|all_to_all|permute)"
    r"\((?P<axis>\w+)\) (?P<size>\S+)"
)


@dataclass(frozen=True)
class Part:
    """One kind of collective over one axis argument; in all its calls `size` elements go in."""

    kind: str
    axis: str
    size: str


def check_lines(
    function: Callable,
    forward: Sent,
    both: Sent,
    held: float,
    *,
    axes: Mapping[str, str],
    names: Mapping[str, int],
) -> None:
    """Checks the lines of a function.

    Args:
        function: the function with the docstring.
        forward: what its forward pass sends.
        both: what its forward and backward pass send together.
        held: the elements of its result on one device.
        axes: the mesh axis of each axis argument.
        names: the values of what a size may name.
    """
    assert forward == stated(function, "forward", axes, names)
    assert both - forward == stated(function, "backward", axes, names)
    assert held == evaluate(memory(function), names)


def stated(
    function: Callable,
    direction: str,
    axes: Mapping[str, str],
    names: Mapping[str, int],
    op: str | None = None,
) -> Sent:
    """What the docstring says that a direction sends."""
    sent: Sent = Counter()
    for part in comm(function, direction, op) or ():
        sent[part.kind, axes[part.axis]] += evaluate(part.size, names)
    return +sent


def measured(program: jax.stages.Lowered) -> Sent:
    """What a program sends; every element has four bytes here."""
    sent: Sent = Counter()
    for collective in read_module(program.compiler_ir("stablehlo")):
        (axis,) = collective.axes
        assert collective.times and not collective.conditional
        elements = collective.times * collective.operand_bytes / 4
        expected = 4 * elements * WIRE[collective.kind](collective.group_size)
        assert collective.total_wire_bytes == pytest.approx(expected)
        sent[collective.kind, axis] += elements
    return sent


def comm(function: Callable, direction: str, op: str | None = None) -> tuple[Part, ...] | None:
    """What the docstring says about a direction; None if the function has no derivative."""
    for line in _section(function, "Comm").splitlines():
        match = _LINE.fullmatch(line)
        assert match, f"{function.__name__}: {line!r} is not a Comm: line"
        if match["direction"] == direction and (not match["ops"] or op in match["ops"].split(", ")):
            return _parts(match["says"])
    raise AssertionError(f"{function.__name__}: no Comm: line for {direction}")


def memory(function: Callable) -> str:
    """The size of the result that the docstring states."""
    return _section(function, "Memory")


def evaluate(size: str, names: Mapping[str, int]) -> float:
    """The value of a size expression."""
    return eval(size, {"__builtins__": {}, "ceil": math.ceil, "log2": math.log2, **names})


def _section(function: Callable, name: str) -> str:
    """The text after `name:`, dedented, each continued line joined to the one it continues."""
    match = re.search(rf"^{name}:(.*(?:\n +.+)*)", inspect.getdoc(function) or "", re.MULTILINE)
    assert match, f"{function.__name__}: no {name}: section"
    return re.sub(r"\n {5,}", " ", match[1]).replace("\n    ", "\n").strip()


def _parts(says: str) -> tuple[Part, ...] | None:
    if says == "no derivative":
        return None
    if says == "nothing":
        return ()
    matches = [(part, _PART.fullmatch(part)) for part in says.split(" + ")]
    wrong = [part for part, match in matches if not match]
    assert not wrong, f"{wrong} in {says!r}: write <kind>(<axis argument>) <size>"
    return tuple(Part(**match.groupdict()) for _, match in matches if match)
