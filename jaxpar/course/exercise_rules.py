"""What is judged, in words: properties with points, the calls tried, the imports allowed.

`stubs` writes these lines as a comment into each stub.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import Any

import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.grading.imports import allowed_in_words
from jaxpar.mesh import parse_layout

WIDTH = 96


def rule_lines(contract: Contract) -> Iterator[str]:
    """Yields the lines of the comment in a stub."""
    points = contract.points()
    total, first = sum(points.values()), contract.first
    yield f"What is judged ({total} points; {first} must be right to earn the rest)"
    for name, score in points.items():
        yield from _hanging(f"  {name:<13} {score}  ", _rule(contract, name))
    if contract.cases:
        yield ""
        on_each = ", on each device" if contract.kind == "program" else ""
        yield f"Tried with{on_each}:"
        for case in contract.cases:
            yield from _wrapped(describe_case(case))
    if contract.values:
        yield ""
        several = contract.complaint or contract.pipeline
        others = ", where other results may be as right" if several else ""
        yield f"For example{others}:"
        for example in _examples(contract):
            yield from _wrapped(example)
        if contract.kind == "schedule":
            yield "and with more devices and microbatches, among them random numbers of both."
    yield ""
    yield from _hanging("You may import ", allowed_in_words(contract.imports) + ".")


def describe_case(case: Case) -> str:
    """Returns mesh and arguments on one device: `mesh tp=4: x float32[2, 6], axis="tp"`."""
    arguments = [f"{name} {_describe(value, case)}" for name, value in case.args.items()]
    arguments += [f"{name}={_quoted(value)}" for name, value in case.kwargs.items()]
    return f"mesh {case.mesh}: {', '.join(arguments)}"


def _examples(contract: Contract) -> Iterator[str]:
    """Yields the first calls and the first that must raise; of the long tables, only one."""
    assert contract.values
    results = [_example(contract, *call) for call in contract.values(np.random.default_rng(0))]
    yield from results[: 1 if contract.kind == "schedule" else 3]
    yield from [line for line in results[3:] if line.endswith("raises ValueError")][:1]


def _example(contract: Contract, args: tuple, kwargs: dict) -> str:
    arguments = [_quoted(value) for value in args]
    arguments += [f"{name}={_quoted(value)}" for name, value in kwargs.items()]
    call = f"{contract.id}({', '.join(arguments)})"
    try:
        return f"{call} -> {_quoted(contract.oracle(*args, **kwargs))}"
    except ValueError:
        return f"{call} raises ValueError"


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


def _rule(contract: Contract, name: str) -> str:
    if name == "communication" and contract.communication:
        return contract.communication.words
    if name == "flops" and contract.flops:
        return contract.flops.words
    if name == "memory" and contract.memory:
        return contract.memory.words
    if name == "bubble" and contract.pipeline:
        return contract.pipeline.bubble
    if name == "in_flight" and contract.pipeline:
        return contract.pipeline.in_flight
    if name == "errors":
        return f"ValueError where {'; '.join(bad.because for bad in contract.errors)}"
    if name == "gradient":
        return f"the gradient with respect to {', '.join(contract.gradient)}"
    if name == "sharding" and contract.kind == "specs":
        return "large leaves are split over the axis alone, small ones are replicated"
    if name == "sharding":
        return "each device returns its own part only"
    if contract.kind == "schedule":
        assert contract.pipeline
        return (
            "every stage takes every microbatch forward and backward, and no device waits for "
            f"ever; idle cells need not be there; the order is {contract.pipeline.order}"
        )
    if contract.kind == "value":
        return "right for every call tried, among them random ones"
    if contract.kind == "specs":
        return "a partition spec for each leaf, such as its shape and the mesh allow"
    return "every device returns the right result"


def _quoted(value: Any) -> str:
    """The value as our formatter writes it."""
    return repr(value).replace("'", '"')


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent=6 * " ", break_on_hyphens=False
    )


def _hanging(first: str, text: str) -> list[str]:
    indent = " " * len(first)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent)
