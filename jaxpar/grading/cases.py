"""Cases as JSON, so that the learner's process needs no contract."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from jaxpar.contracts.case import ArraySpec, Case, Function, Made


def encode(value: Any) -> Any:
    """A case, or any value inside one, as JSON that keeps tuples and dicts apart."""
    match value:
        case Case():
            return {"mesh": value.mesh, "args": encode(value.args), "kwargs": encode(value.kwargs)}
        case ArraySpec():
            return {"array": asdict(value)}
        case Function():
            return {"function": value.path}
        case Made():
            return {"made": [value.function.path, *map(encode, value.values)]}
        case dict():
            return {"dict": {key: encode(item) for key, item in value.items()}}
        case tuple():
            return {"tuple": [encode(item) for item in value]}
        case list():
            return {"list": [encode(item) for item in value]}
        case None | bool() | int() | float() | str():
            return value
    raise TypeError(f"a case cannot hold {type(value).__name__}")


def decode(data: Any) -> Any:
    """The inverse of `encode`, for values inside a case."""
    if not isinstance(data, dict):
        return data
    ((kind, item),) = data.items()
    match kind:
        case "array":
            return ArraySpec(**{**item, "shape": tuple(item["shape"])})
        case "function":
            return Function(item)
        case "made":
            path, *values = item
            return Made(Function(path), tuple(map(decode, values)))
        case "dict":
            return {key: decode(child) for key, child in item.items()}
        case "tuple":
            return tuple(decode(child) for child in item)
    return [decode(child) for child in item]


def decode_case(data: Any) -> Case:
    """The inverse of `encode` for a case."""
    return Case(data["mesh"], decode(data["args"]), decode(data["kwargs"]))
