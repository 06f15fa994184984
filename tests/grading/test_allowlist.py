"""Crafted programs are refused before anything compiles them; the reader's death is a verdict."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from jax.extend.mlir import serialize_portable_artifact
from jax.interpreters.mlir import ir, make_ir_context

from jaxpar.contracts.base import load
from jaxpar.grading.allowlist import Refused, check_program
from jaxpar.grading.evidence import collect, worker_job
from jaxpar.grading.processes import WORKER, ChildEnded, Pool
from jaxpar.grading.program import Interface, export_forward, forward_interface
from jaxpar.grading.session import ReaderSession, Refusal
from jaxpar.grading.submission import Submission
from jaxpar.inspector.mlir import parse

WHERE = "jaxpar.contracts.collectives:mean_over_devices"
CONTRACT = load(WHERE)
CASE = CONTRACT.cases[1]
VERSION = "1.9.0"
BODY = "sdy.return "
NEGATIVE = {"shape": [-1], "dtype": "float32", "varying": []}

Honest = tuple[str, Interface]


@pytest.fixture(scope="module")
def honest() -> Honest:
    program = export_forward(CONTRACT.reference, CASE)
    text = str(parse(program.module))
    return text, forward_interface(CASE, program.outputs)


def module(text: str) -> ir.Module:
    with make_ir_context():
        return ir.Module.parse(text)


def insert(line: str) -> Callable[[str], str]:
    """Adds a line to the body of the manual computation."""
    return lambda text: text.replace(BODY, f"{line}\n      {BODY}", 1)


def test_an_honest_program_is_let_through(honest: Honest) -> None:
    text, interface = honest
    check_program(module(text), CASE, interface)


def test_names_are_not_believed(honest: Honest) -> None:
    """Axis names come from positions, so other names for the same axes change nothing."""
    text, interface = honest
    renamed = text.replace('"dp"', '"east"').replace('"tp"', '"west"')
    check_program(module(renamed), CASE, interface)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            insert("%z = stablehlo.custom_call @steal() : () -> tensor<f32>"),
            "custom_call",
        ),
        (
            insert(
                "%t = stablehlo.create_token : !stablehlo.token\n"
                '%z:2 = "stablehlo.infeed"(%t) : (!stablehlo.token) -> '
                "(tensor<f32>, !stablehlo.token)"
            ),
            "create_token|infeed",
        ),
        (
            insert(
                "%k = stablehlo.constant dense<1> : tensor<2xui64>\n"
                "%a, %b = stablehlo.rng_bit_generator %k, algorithm = DEFAULT : "
                "(tensor<2xui64>) -> (tensor<2xui64>, tensor<4xui32>)"
            ),
            "rng",
        ),
        (
            insert("%z = stablehlo.constant dense<0.0> : tensor<536870912xf32>"),
            "536870912 elements",
        ),
        (lambda t: re.sub(r'"dp"=3, "tp"=2', '"dp"=2, "tp"=3', t), "not for one mesh"),
        (lambda t: re.sub(r'("dp"=3, "tp"=2)\]', r"\1], device_ids=[1, 0, 2, 3, 4, 5]", t), "ids"),
        (lambda t: t.replace('{"dp"}, {"tp"}', '{"tp"}, {"dp"}'), "shardings"),
        (
            lambda t: t.replace('out_shardings=[<@mesh, [{"dp"}', 'out_shardings=[<@mesh, [{}', 1),
            "shardings|type",
        ),
        (lambda t: re.sub(r"return %\d+ : ", "return %other : ", _second_constant(t)), "returns"),
        (lambda t: t.replace("sdy.return", "func.call @f() : () -> ()\n      sdy.return", 1)
         .rstrip().removesuffix("}") + "func.func private @f() {\n func.call @f() : () -> ()\n"
         " return\n}\n}", "calls itself"),
    ],
)  # fmt: skip
def test_a_crafted_program_is_refused(
    honest: Honest, change: Callable[[str], str], reason: str
) -> None:
    text, interface = honest
    changed = change(text)
    assert changed != text
    try:
        crafted = module(changed)
    except ir.MLIRError:
        return  # not even a module: the parser refuses it for us
    with pytest.raises(Refused, match=reason):
        check_program(crafted, CASE, interface)


def _second_constant(text: str) -> str:
    """Adds a constant of the result's type to main, outside the manual computation."""
    match = re.search(r"-> \((tensor<[^>]*>)", text) or re.search(r"-> (tensor<[^ ]*>)", text)
    assert match
    line = f"%other = stablehlo.constant dense<0.0> : {match[1]}\n    return"
    return text.replace("    return", f"    {line}", 1)


def test_bytes_that_are_no_program(honest: Honest) -> None:
    """In a real reader: junk, a cut program and flipped bytes end in a refusal or its death."""
    good = serialize_portable_artifact(module(honest[0]), VERSION)
    outputs = [{"shape": [6, 5, 2], "dtype": "float32", "varying": []}]
    flipped = bytearray(good)
    flipped[len(good) // 2] ^= 0xFF
    with Pool() as pool:
        for blob in (b"", b"junk", good[: len(good) // 2], bytes(flipped)):
            reader = ReaderSession(pool, WHERE, CONTRACT)
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
        job = worker_job(CONTRACT, Submission(Path("a.py"), b"x = 1"), pool.limits)
        evidence = collect(pool, job)
    assert evidence.ended is not None
    assert evidence.ended.cause == "protocol"
