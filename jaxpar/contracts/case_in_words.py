"""A case in words, for the stub and for a verdict."""

from __future__ import annotations

import math
from typing import Any

from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.mesh import parse_layout


def describe_case(case: Case) -> str:
    """Returns mesh and arguments on one device: `mesh tp=4: x float32[2, 6], axis="tp"`."""
    arguments = [f"{name} {_describe(value, case)}" for name, value in case.args.items()]
    arguments += [f"{name}={quoted(value)}" for name, value in case.kwargs.items()]
    return f"mesh {case.mesh}: {', '.join(arguments)}"


def quoted(value: Any) -> str:
    """The value as our formatter writes it."""
    return repr(value).replace("'", '"')


def _describe(value: Any, case: Case) -> str:
    match value:
        case ArraySpec():
            return f"{value.dtype}[{', '.join(map(str, _device_shape(value, case)))}]"
        case Function():
            return value.path.partition(":")[2]
        case Made():
            made = ", ".join(_describe(item, case) for item in value.values)
            return f"{_describe(value.function, case)}({made})"
        case dict():
            return f"{{{', '.join(f'{key}: {_describe(value[key], case)}' for key in value)}}}"
        case list() | tuple():
            items = ", ".join(_describe(item, case) for item in value)
            return f"[{items}]" if isinstance(value, list) else f"({items})"
    return repr(value)


def _device_shape(array: ArraySpec, case: Case) -> list[int]:
    dims = zip(array.shape, parse_layout(array.layout), strict=True)
    return [size // math.prod(case.sizes[axis] for axis in axes) for size, (_, axes) in dims]
