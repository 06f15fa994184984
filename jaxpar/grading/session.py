"""The judge's side of the two child processes of one judgement."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from jaxpar.contracts.base import Case, Contract, Function
from jaxpar.grading.cases import encode
from jaxpar.grading.processes import READER, WORKER, Child, ChildEnded, Limits, Pool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Cause, Status
from jaxpar.inspector.report import Collective, Memory

Program = tuple[str, int]
"""`forward` or `gradient`, and the number of the case."""

DTYPES = ("bool", "bfloat16", *(f"float{b}" for b in (16, 32, 64)),
          *(f"{kind}{b}" for kind in ("int", "uint") for b in (8, 16, 32, 64)))  # fmt: skip
MAX_OUTPUTS = 256


@dataclass(frozen=True)
class Facts:
    """What the reader found in one program."""

    collectives: tuple[Collective, ...]
    memory: Memory
    hidden: tuple[str, ...]
    outputs: tuple[dict, ...]


@dataclass
class Evidence:
    """What the worker sent: programs, failures, bad calls, values."""

    programs: dict[Program, tuple[list[dict], bytes]] = field(default_factory=dict)
    failures: dict[Program, dict] = field(default_factory=dict)
    errors: dict[int, dict] = field(default_factory=dict)
    values: dict[int, dict] = field(default_factory=dict)
    printed: str = ""
    ended: ChildEnded | None = None


def devices_needed(contract: Contract) -> int:
    """Devices of the largest mesh of the cases, bad calls included."""
    cases = [*contract.cases, *(bad.case for bad in contract.errors)]
    return max((int(np.prod(list(case.sizes.values()))) for case in cases), default=0)


def worker_job(contract: Contract, submission: Submission, limits: Limits) -> dict[str, Any]:
    """The job of a worker for a program; nothing in it tells what is right."""
    reference = contract.reference
    functions = {f.path.partition(":")[0] for case in contract.cases for f in _functions(case.args)}
    imports = {name.rpartition(".")[0] for name in contract.imports}
    return {
        **limits.job(),
        "exercise": contract.id,
        "kind": contract.kind,
        "source": submission.text,
        "filename": submission.path.name,
        "cases": [encode(case) for case in contract.cases],
        "errors": [encode(bad.case) for bad in contract.errors],
        "gradient": list(contract.gradient),
        "imports": list(contract.imports),
        "modules": sorted(functions | imports),
        "reference": f"{reference.__module__}:{reference.__name__}",
        "devices": devices_needed(contract),
    }


def collect(pool: Pool, job: dict[str, Any]) -> Evidence:
    """Runs one worker to its end, and keeps what it sent until then."""
    evidence = Evidence()
    deadline = time.monotonic() + pool.limits.wall_seconds
    worker = pool.take(WORKER)
    try:
        worker.receive(deadline)
        worker.send(job)
        for _ in range(2 * len(job["cases"]) + len(job["errors"]) + len(job.get("order", [])) + 1):
            if _store(evidence, worker, deadline):
                break
        else:
            raise ChildEnded("protocol", "more replies than the job asks for")
    except ChildEnded as ended:
        evidence.ended = ended
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        evidence.ended = ChildEnded("protocol", repr(error))
    finally:
        pool.end(worker)
        evidence.printed = worker.printed()
    return evidence


def _store(evidence: Evidence, worker: Child, deadline: float) -> bool:
    """Files one reply; True after the last."""
    frame = worker.receive(deadline)
    if not isinstance(frame, dict):
        raise ChildEnded("protocol", "bytes, or a list, where a reply must be")
    if "program" in frame:
        which, index = frame["program"]
        if which not in ("forward", "gradient"):
            raise ChildEnded("protocol", "a program of an unknown kind")
        blob = worker.receive(deadline)
        if not isinstance(blob, bytes):
            raise ChildEnded("protocol", "a program without its bytes")
        evidence.programs[which, int(index)] = (_outputs(frame["outputs"]), blob)
    elif "failure" in frame:
        which, index = frame["failure"]
        evidence.failures[str(which), int(index)] = frame
    elif "error" in frame:
        evidence.errors[int(frame["error"])] = frame
    elif "value" in frame:
        evidence.values[int(frame["value"])] = frame
    return bool(frame.get("done"))


STOPPED: dict[Cause, str] = {
    "timeout": "no answer within {seconds:g} seconds; is there a loop without an end?",
    "killed": "the process that ran the answer ended early",
    "protocol": "the process that ran the answer broke its protocol",
    "memory": "the answer needs more memory than it may have",
}


def stopped(evidence: Evidence, limits: Limits) -> tuple[Status, str] | None:
    """Status and reason of an answer that could not be called, or exported in no case."""
    failures = list(evidence.failures.values())
    if failures and not evidence.programs:
        kinds: dict[str, Status] = {"not-implemented": "fail", "memory": "memory"}
        return kinds.get(failures[0]["kind"], "error"), failures[0]["message"]
    unwritten = [v for v in evidence.values.values() if v.get("kind") == "not-implemented"]
    if unwritten:
        return "fail", unwritten[0]["explained"]
    if evidence.ended is not None:
        cause = evidence.ended.cause
        return cause, STOPPED[cause].format(seconds=limits.wall_seconds)
    return None


def _outputs(described: Any) -> list[dict]:
    """Checks what the worker says of its outputs; the bytes must agree with it later.

    Raises:
        ValueError: it is not a list of shapes, dtypes and axes.
    """
    for output in described:
        shape, varying = output["shape"], output["varying"]
        known = output["dtype"] in DTYPES and all(isinstance(axis, str) for axis in varying)
        if not known or not all(isinstance(size, int) and 0 <= size < 1 << 28 for size in shape):
            raise ValueError("an output of unknown type")
    if not isinstance(described, list) or len(described) > MAX_OUTPUTS:
        raise ValueError("the outputs are not a short list")
    return described


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
        job = {**pool.limits.job(), "where": where, "devices": devices_needed(contract)}
        self._reader.send(job)
        self._started = False

    def close(self) -> None:
        """Ends the process."""
        self._pool.end(self._reader)

    def renew_deadline(self) -> None:
        """Gives what follows the whole wall clock."""
        self._deadline = time.monotonic() + self._pool.limits.wall_seconds

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

    def run(
        self, name: str, program: Program, inputs: Sequence[np.ndarray], results: Sequence[dict]
    ) -> list[np.ndarray]:
        """Runs a program that was read; results are checked against their declared types."""
        blobs = [np.ascontiguousarray(array).tobytes() for array in inputs]
        _, raw = self._ask({"run": _key(name, program)}, blobs)
        sizes = tuple(self._contract.cases[program[1]].sizes.values())
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


def _functions(value: Any) -> list[Function]:
    if isinstance(value, Function):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return (
        [f for i in items for f in _functions(i)]
        if isinstance(items, list | tuple) or (isinstance(value, dict))
        else []
    )


def _key(name: str, program: Program) -> str:
    return f"{name}/{program[0]}/{program[1]}"


def _facts(reply: dict, outputs: Sequence[dict]) -> Facts:
    collectives = tuple(
        Collective(**{**c, "axes": tuple(c["axes"]), "pairs": _pairs(c["pairs"])})
        for c in reply["collectives"]
    )
    return Facts(collectives, Memory(**reply["memory"]), tuple(reply["hidden"]), tuple(outputs))


def _pairs(pairs: list | None) -> tuple[tuple[int, int], ...] | None:
    return None if pairs is None else tuple((a, b) for a, b in pairs)


def _dtype(name: str) -> np.dtype:
    import jax.numpy as jnp

    return jnp.dtype(name)
