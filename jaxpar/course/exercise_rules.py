"""What is judged, in words: properties with points, the calls tried, the imports allowed.

`stubs` writes these lines as a comment into each stub.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case_in_words import arguments_in_words, quoted
from jaxpar.grading.imports import allowed_in_words

WIDTH = 96
CHALLENGES = {
    "wire_bytes": "send the fewest bytes from each device in one call, forward",
    "temp_bytes": "hold the fewest bytes of intermediate results, forward and backward",
    "makespan": "find the shortest schedule",
}


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
            yield f"  mesh {case.mesh}"
            rows = list(arguments_in_words(case))
            room = max(len(name) for name, _ in rows)
            for name, value in rows:
                yield from _hanging(f"    {name:<{room}}  ", value)
        if contract.draw:
            yield "and with others, drawn for each check."
    if contract.values:
        yield ""
        several = contract.complaint or contract.pipeline
        others = ", where other results may be as right" if several else ""
        yield f"For example{others}:"
        for example in _examples(contract):
            yield from _wrapped(example)
        if contract.kind == "schedule":
            yield "and with more devices and microbatches, among them random numbers of both."
    if contract.challenge:
        yield ""
        yield from _challenge(contract)
    yield ""
    yield from _hanging("You may import ", allowed_in_words(contract.imports) + ".")


def _challenge(contract: Contract) -> Iterator[str]:
    """Yields what is measured beside the points, and with what."""
    assert contract.challenge
    if contract.cases:
        first = f"on mesh {contract.cases[0].mesh}, as above"
    else:
        assert contract.values
        args, kwargs = contract.values(np.random.default_rng(0))[0]
        first = f"in {_call(contract, args, kwargs)}"
    yield from _hanging(
        "Open challenge  ",
        f"{CHALLENGES[contract.challenge]}, {first}. Every right answer earns all points. "
        "Its number is shown beside the library's, and the lowest that you have reached is kept.",
    )


def _examples(contract: Contract) -> Iterator[str]:
    """Yields the first calls and the first that must raise; of the long tables, only one.

    That of a challenge, which comes before all others, is not among them.
    """
    assert contract.values
    calls = contract.values(np.random.default_rng(0))[bool(contract.challenge) :]
    results = [_example(contract, *call) for call in calls]
    yield from results[: 1 if contract.kind == "schedule" else 3]
    yield from [line for line in results[3:] if line.endswith("raises ValueError")][:1]


def _example(contract: Contract, args: tuple, kwargs: dict) -> str:
    call = _call(contract, args, kwargs)
    try:
        return f"{call} -> {quoted(contract.oracle(*args, **kwargs))}"
    except ValueError:
        return f"{call} raises ValueError"


def _call(contract: Contract, args: tuple, kwargs: dict) -> str:
    arguments = [quoted(value) for value in args]
    arguments += [f"{name}={quoted(value)}" for name, value in kwargs.items()]
    return f"{contract.id}({', '.join(arguments)})"


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
        order = contract.pipeline.order
        promised = f"the order is {order}" if order else "any order will do"
        return (
            "every stage takes every microbatch forward and backward, and no device waits for "
            f"ever; idle cells need not be there; {promised}"
        )
    if contract.kind == "value":
        return "right for every call tried, among them random ones"
    if contract.kind == "specs":
        return "a partition spec for each leaf, such as its shape and the mesh allow"
    return "every device returns the right result"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent=6 * " ", break_on_hyphens=False
    )


def _hanging(first: str, text: str) -> list[str]:
    indent = " " * len(first)
    return textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent)
