"""Crafted programs are refused before anything compiles them; the reader's death is a verdict."""

from __future__ import annotations

import re
import time
from operator import attrgetter
from pathlib import Path

import pytest
from jax.extend.mlir import serialize_portable_artifact
from jax.interpreters.mlir import ir, make_ir_context

from jaxpar.classroom.attacks.crafted_programs import CHANGES, Change
from jaxpar.contracts.base import load
from jaxpar.grading.allowlist import Refused, check_program
from jaxpar.grading.evidence import collect_evidence
from jaxpar.grading.messages import Output
from jaxpar.grading.processes import WORKER, ChildEnded, Pool
from jaxpar.grading.program_export import Interface, export_forward, forward_interface
from jaxpar.grading.reader_client import ReaderClient, Refusal
from jaxpar.grading.submission import Submission
from jaxpar.inspector.mlir import parse

WHERE = "jaxpar.contracts.collectives.mean_over_devices"
CONTRACT = load(WHERE)
CASE = CONTRACT.cases[1]
VERSION = "1.9.0"
NEGATIVE = {"shape": [-1], "dtype": "float32", "varying": []}

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
    """In a real reader: junk, a cut program and flipped bytes end in a refusal or its death."""
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


class Liar:
    """A worker that says what it likes."""

    def __init__(self, frames: list) -> None:
        self._frames = [{"ready": True}, *frames]

    def send(self, value: dict, blobs: list[bytes] | None = None) -> None:
        """Takes the job and forgets it."""

    def receive(self, deadline: float) -> object:
        assert deadline > time.monotonic()
        return self._frames.pop(0)

    def printed(self) -> str:
        return ""


@pytest.mark.parametrize(
    "frames",
    [
        ["hello"],
        [b"bytes first"],
        [[1, 2]],
        [{"program": ["forward", 0], "outputs": []}, {"no": "bytes"}],
        [{"program": ["forward"], "outputs": []}, b""],
        [{"program": [{}, 0], "outputs": []}, b""],
        [{"program": ["forward", 0], "outputs": {}}, b""],
        [{"program": ["forward", 0], "outputs": [NEGATIVE]}, b""],
        [{"program": ["forward", 0], "outputs": [{"shape": [1], "dtype": "object", "varying": []}]},
         b""],
        [{"program": ["forward", 0], "outputs": [{"shape": "12", "dtype": "bool", "varying": []}]},
         b""],
        [{"value": "x", "result": 1}],
        [{"value": 0, "raised": "TypeError", "is_value_error": False}],
        [{"failure": ["forward", 0]}],
        [{"failure": ["forward", 0], "kind": [], "message": "x"}],
        [{"failure": ["forward", 0], "kind": "x", "message": 7}],
        [{"error": 0, "raised": 7, "is_value_error": True}],
        [{"nothing": 1}] * 100,
    ],
)  # fmt: skip
def test_a_worker_that_lies_is_a_verdict(frames: list, monkeypatch: pytest.MonkeyPatch) -> None:
    with Pool() as pool:
        monkeypatch.setattr(pool, "take", lambda module: Liar(frames) if module == WORKER else None)
        monkeypatch.setattr(pool, "end", lambda child: None)
        evidence = collect_evidence(pool, CONTRACT, Submission(Path("a.py"), b"x = 1"))
    assert evidence.ended is not None
    assert evidence.ended.cause == "protocol"
