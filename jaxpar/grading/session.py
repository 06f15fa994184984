"""The judge's side of one reader process."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import Case
from jaxpar.grading.evidence import Program, devices_needed
from jaxpar.grading.processes import READER, Pool
from jaxpar.inspector.report import Collective, Memory

MAX_RESULT_BYTES = 1e8


@dataclass(frozen=True)
class Facts:
    """What the reader found in one program."""

    collectives: tuple[Collective, ...]
    flops: int | None
    product_dtypes: tuple[str, ...]
    memory: Memory | None
    hidden: tuple[str, ...]
    outputs: tuple[dict, ...]


class ReaderSession:
    """One reader process, and what was read in it."""

    def __init__(
        self, pool: Pool, where: str, contract: Contract, filename: str | None = None
    ) -> None:
        """Starts the reader on a contract; it loads while the worker exports.

        Args:
            pool: where the process comes from.
            where: the contract, as `module:id`.
            contract: the same, loaded.
            filename: of the answer; a source location in another file is not believed.
        """
        self._pool, self._contract, self._filename = pool, contract, filename
        self._reader = pool.take(READER)
        self._deadline = time.monotonic() + pool.limits.wall_seconds
        job = {
            **pool.limits.job(),
            "where": where,
            "hidden": contract.shown is not None,
            "devices": devices_needed(contract),
        }
        self._reader.send(job)
        self._started = False

    def close(self) -> None:
        """Ends the process."""
        self._pool.end(self._reader)

    def give(self, seconds: float) -> None:
        """Gives what follows this much time."""
        self._deadline = time.monotonic() + seconds

    def read(self, program: Program, outputs: Sequence[dict], blob: bytes) -> Facts:
        """Reads one program of the answer under the key `answer`."""
        request = {"key": _key("answer", program), "program": program, "outputs": list(outputs)}
        facts = _facts(self._ask(request, [blob])[0], outputs)
        return replace(facts, collectives=tuple(map(self._located, facts.collectives)))

    def export(self, name: str, program: Program) -> Facts:
        """Exports and reads a mistake, or `reference`."""
        request = {"key": _key(name, program), "mistake": name, "of": program}
        reply, _ = self._ask(request, [])
        return _facts(reply, reply.get("outputs", []))

    def partition(self, index: int, specs: list) -> Facts:
        """Facts of the program of a case, where the compiler splits it by these specs."""
        reply, _ = self._ask({"specs": specs, "case": index}, [])
        return _facts(reply, [])

    def run(
        self, name: str, program: Program, inputs: Sequence[np.ndarray], results: Sequence[dict]
    ) -> list[np.ndarray]:
        """Runs a program that was read; results are checked against their declared types.

        Raises:
            Refusal: it cannot be run, or its results are too large to be held here.
        """
        sizes = tuple(self._contract.cases[program[1]].sizes.values())
        size = sum(math.prod(sizes + tuple(r["shape"])) * _dtype(r["dtype"]).itemsize
                   for r in results)  # fmt: skip
        if size > MAX_RESULT_BYTES:
            raise Refusal(f"the results take {size / 1e9:.1f} GB on all devices; at most 0.1 GB")
        blobs = [np.ascontiguousarray(array).tobytes() for array in inputs]
        _, raw = self._ask({"run": _key(name, program)}, blobs)
        return [
            np.frombuffer(blob, _dtype(r["dtype"])).reshape(sizes + tuple(r["shape"]))
            for r, blob in zip(results, raw, strict=True)
        ]

    def _located(self, collective: Collective) -> Collective:
        name, _, line = (collective.source or "").rpartition(":")
        own = name == self._filename and line.isdigit()
        return replace(collective, source=f"line {line}" if own else None)

    def _ask(self, request: dict, blobs: list[bytes]) -> tuple[dict, list[bytes]]:
        while not self._started:
            self._started = bool(self._reader.receive(self._deadline).get("started"))
        self._reader.send({**request, "blobs": len(blobs)}, blobs)
        reply = self._reader.receive(self._deadline)
        if "refused" in reply:
            raise Refusal(reply["refused"])
        count = reply.get("results", 0)
        return reply, [self._reader.receive(self._deadline) for _ in range(count)]


class Refusal(ValueError):
    """The reader will not run a program; the message says why."""


def cotangent_inputs(case: Case, outputs: Sequence[dict], drawn: Sequence) -> list[np.ndarray]:
    """c_i for each float output, summed over the axes on which its type does not vary."""
    arrays = []
    for output, cotangent in zip(outputs, drawn, strict=True):
        if cotangent is not None:
            invariant = tuple(
                i for i, axis in enumerate(case.sizes) if axis not in output["varying"]
            )
            arrays.append(cotangent.sum(axis=invariant).astype(_dtype(output["dtype"])))
    return arrays


def _key(name: str, program: Program) -> str:
    return f"{name}/{program[0]}/{program[1]}"


def _facts(reply: dict, outputs: Sequence[dict]) -> Facts:
    collectives = tuple(
        Collective(**{**c, "axes": tuple(c["axes"]), "pairs": _pairs(c["pairs"])})
        for c in reply["collectives"]
    )
    memory = Memory(**reply["memory"]) if reply["memory"] else None
    dtypes, hidden = tuple(reply["product_dtypes"]), tuple(reply["hidden"])
    return Facts(collectives, reply["flops"], dtypes, memory, hidden, tuple(outputs))


def _pairs(pairs: list | None) -> tuple[tuple[int, int], ...] | None:
    return None if pairs is None else tuple((a, b) for a, b in pairs)


def _dtype(name: str) -> np.dtype:
    import jax.numpy as jnp

    return jnp.dtype(name)
