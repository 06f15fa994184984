"""A case in words, for the stub and for a verdict."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from typing import Any

from jaxpar.contracts.case import ArraySpec, Case, Function, Made


def describe_case(case: Case) -> str:
    """Returns mesh and arguments on one device: `mesh tp=4: x float32[2, 6]; axis "tp"`."""
    arguments = (f"{name} {value}" for name, value in arguments_in_words(case))
    return f"mesh {case.mesh}: {'; '.join(arguments)}"


def arguments_in_words(case: Case) -> Iterator[tuple[str, str]]:
    """Yields the name of each argument, and what it is on one device."""
    for name, value in case.args.items():
        yield name, _describe(value, case)
    for name, value in case.kwargs.items():
        yield name, quoted(value)


def quoted(value: Any) -> str:
    """The value as our formatter writes it."""
    return repr(value).replace("'", '"')


def _describe(value: Any, case: Case) -> str:
    match value:
        case ArraySpec():
            return f"{value.dtype}[{', '.join(map(str, _device_shape(value, case)))}]"
        case Function():
            return _purpose(value)
        case Made():
            return _describe_made(value, case)
        case dict():
            return f"{{{', '.join(f'{key}: {_describe(value[key], case)}' for key in value)}}}"
        case list() | tuple():
            items = ", ".join(_describe(item, case) for item in value)
            return f"[{items}]" if isinstance(value, list) else f"({items})"
    return repr(value)


def _describe_made(made: Made, case: Case) -> str:
    """The purpose of the function that makes it, and the arrays of which it is made."""
    if made.function.path == "functools:partial":
        return _describe(made.values[0], case)
    parts = dict.fromkeys(_describe(item, case) for item in made.values if _holds_arrays(item))
    return _purpose(made.function) + f", made from {' and '.join(parts)}" * bool(parts)


def _holds_arrays(value: Any) -> bool:
    match value:
        case ArraySpec():
            return True
        case Made():
            return _holds_arrays(value.values)
        case dict():
            return any(map(_holds_arrays, value.values()))
        case list() | tuple():
            return any(map(_holds_arrays, value))
    return False


def _purpose(function: Function) -> str:
    """What a function of ours says it is; of another object, such as an optimizer, its name."""
    found = function.function
    if not inspect.isfunction(found):
        return function.path.rpartition(":")[2].lower()
    first, *_ = (inspect.getdoc(found) or found.__name__).splitlines()
    return first[0].lower() + first[1:].removesuffix(".")


def _device_shape(array: ArraySpec, case: Case) -> list[int]:
    from jaxpar.mesh import parse_layout  # which imports JAX

    dims = zip(array.shape, parse_layout(array.layout), strict=True)
    return [size // math.prod(case.sizes[axis] for axis in axes) for size, (_, axes) in dims]
