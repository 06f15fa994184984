"""Crafted programs are refused before anything compiles them; the reader's death is a verdict."""

from __future__ import annotations

import re
from operator import attrgetter

import pytest
from jax.extend.mlir import serialize_portable_artifact
from jax.interpreters.mlir import ir, make_ir_context

from jaxpar.classroom.attacks.crafted_programs import CHANGES, Change
from jaxpar.contracts.base import load
from jaxpar.grading.allowlist import Refused, check_program
from jaxpar.grading.messages import Output
from jaxpar.grading.processes import ChildEnded, Pool
from jaxpar.grading.program_export import Interface, export_forward, forward_interface
from jaxpar.grading.reader_client import ReaderClient, Refusal
from jaxpar.inspector.mlir import parse

WHERE = "jaxpar.contracts.collectives.mean_over_devices"
CONTRACT = load(WHERE)
CASE = CONTRACT.cases[1]
VERSION = "1.9.0"

Honest = tuple[str, Interface]
NAME = attrgetter("name")


@pytest.fixture(scope="module")
def honest() -> Honest:
    program = export_forward(CONTRACT.reference, CASE)
    text = str(parse(program.module))
    return text, forward_interface(CASE, program.outputs)


def module(text: str) -> ir.Module:
    with make_ir_context():
        return ir.Module.parse(text)


def test_an_honest_program_is_let_through(honest: Honest) -> None:
    text, interface = honest
    check_program(module(text), CASE, interface)


def test_names_are_not_believed(honest: Honest) -> None:
    """Axis names come from positions, so other names for the same axes change nothing."""
    text, interface = honest
    renamed = text.replace('"dp"', '"east"').replace('"tp"', '"west"')
    check_program(module(renamed), CASE, interface)


@pytest.mark.parametrize("change", [c for c in CHANGES if c.ends == ("fail",)], ids=NAME)
def test_a_crafted_program_is_refused(honest: Honest, change: Change) -> None:
    text, interface = honest
    changed = re.sub(change.pattern, change.replacement, text, count=1)
    assert changed != text
    with pytest.raises(Refused, match=change.says):
        check_program(module(changed), CASE, interface)


@pytest.mark.full
def test_bytes_that_are_no_program(honest: Honest) -> None:
    """A real reader refuses junk, a cut program and flipped bytes, or is ended by them."""
    good = serialize_portable_artifact(module(honest[0]), VERSION)
    outputs = [Output((6, 5, 2), "float32", ())]
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    with Pool() as pool:
        for blob in (b"", b"junk", good[: len(good) // 2], bytes(flipped)):
            reader = ReaderClient(pool, WHERE, CONTRACT)
            with pytest.raises((Refusal, ChildEnded)):
                reader.read(("forward", 1), outputs, blob)
            reader.close()
