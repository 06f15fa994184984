"""Reads the `Comm:` and `Memory:` lines of a docstring; the grammar is in `jaxpar.collectives`."""

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

_LINE = re.compile(
    r"(?P<direction>forward|backward)(?: if op in {(?P<ops>[\w, ]+)})?: (?P<says>.+)"
)
_PART = re.compile(
    r"(?P<kind>all_reduce|reduce_scatter|all_gather|all_to_all|permute)"
    r"\((?P<axis>\w+)\) (?P<size>\S+)"
)


@dataclass(frozen=True)
class Part:
    """One kind of collective over one axis argument: `size` elements go in, over all its calls."""

    kind: str
    axis: str
    size: str


def comm(function: Callable, direction: str, op: str | None = None) -> tuple[Part, ...] | None:
    """What the docstring says of a direction; None where there is no derivative."""
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
