"""What the worker sends, and the job that it is given: nothing in it tells what is right."""

from __future__ import annotations

import builtins
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jaxpar.contracts.base import Contract
from jaxpar.contracts.case import Function, Made
from jaxpar.grading.cases import encode
from jaxpar.grading.channel import printable
from jaxpar.grading.processes import OUT_OF_CPU, WORKER, Child, ChildEnded, Limits, Pool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Cause, Status

Program = tuple[str, int]
"""`forward` or `gradient`, and the number of the case."""

DTYPES = ("bool", "bfloat16", *(f"float{b}" for b in (16, 32, 64)),
          *(f"{kind}{b}" for kind in ("int", "uint") for b in (8, 16, 32, 64)))  # fmt: skip
LEAST_DEVICES = 12
MAX_OUTPUTS = 256
MAX_PLACE_CHARACTERS = 80


@dataclass
class Evidence:
    """What the worker sent: programs, failures, bad calls, values."""

    programs: dict[Program, tuple[list[dict], bytes]] = field(default_factory=dict)
    failures: dict[Program, dict] = field(default_factory=dict)
    errors: dict[int, dict] = field(default_factory=dict)
    values: dict[int, dict] = field(default_factory=dict)
    printed: str = ""
    ended: ChildEnded | None = None

    @property
    def answered(self) -> bool:
        """Whether the answer could be called."""
        return bool(self.programs or self.values)


def devices_needed(contract: Contract) -> int:
    """Devices to simulate: enough for each case, and so many that they tell of no hidden one."""
    cases = [*contract.cases, *(bad.case for bad in contract.errors)]
    needed = [int(np.prod(list(case.sizes.values()))) for case in cases]
    return max(LEAST_DEVICES, *needed) if needed else 0


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
        "cases": [encode(case) for case in contract.visible],
        "first": 0,
        "hidden": [encode(case) for case in contract.cases[len(contract.visible) :]],
        "errors": [encode(bad.case) for bad in contract.errors],
        "gradient": list(contract.gradient),
        "imports": list(contract.imports),
        "modules": sorted(functions | imports),
        "reference": f"{reference.__module__}:{reference.__name__}",
        "devices": devices_needed(contract),
    }


def collect(pool: Pool, job: dict[str, Any]) -> Evidence:
    """Runs one worker to its end, and keeps what it sent until then; or what is kept already."""
    kept = pool.store.get(job) if pool.store else None
    if kept is not None:
        return kept
    evidence = _run(pool, job)
    if pool.store:
        pool.store.put(job, evidence)
    return evidence


def _run(pool: Pool, job: dict[str, Any]) -> Evidence:
    evidence = Evidence()
    deadline = time.monotonic() + pool.limits.wall_seconds
    worker, more = pool.take(WORKER), {}
    try:
        worker.receive(deadline)
        told = {name: part for name, part in job.items() if name != "hidden"}
        worker.send(told)
        _receive_all(evidence, worker, told, deadline)
        if job["hidden"] and evidence.answered:
            evidence.printed = worker.printed_to_its_end()  # more may be of a hidden case
            more = {"cases": job["hidden"], "first": len(job["cases"]), "errors": []}
            worker.send(more)
            _receive_all(evidence, worker, told | more, deadline)
    except ChildEnded as ended:
        evidence.ended = ended
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        evidence.ended = ChildEnded("protocol", repr(error))
    finally:
        pool.end(worker)
    if more:
        _forget(evidence, len(job["cases"]))
    else:
        evidence.printed = worker.printed()
    return evidence


def _forget(evidence: Evidence, shown: int) -> None:
    """Drops the words about hidden cases: they may tell what these are."""
    failures = [(index, reply) for (_, index), reply in evidence.failures.items()]
    for index, reply in (*failures, *evidence.values.items()):
        if index >= shown and "raised" in reply:
            reply |= {"kind": "hidden", "message": "", "explained": ""}
            reply["raised"] = public_name(reply)


def _receive_all(evidence: Evidence, worker: Child, job: dict, deadline: float) -> None:
    asked = _asked(job)
    while not _store(evidence, worker, asked, deadline):
        pass  # the job bounds the number of replies: each may come once


def _asked(job: dict) -> set[Program]:
    """The replies that a job may have; none of a hidden case can stand for one that is shown."""
    cases = range(job["first"], job["first"] + len(job["cases"]))
    kinds = ("forward", "gradient") if job["kind"] == "program" else ("value",)
    asked = {(which, i) for which in kinds for i in cases}
    asked |= {("error", i) for i in range(len(job["errors"]))}
    asked |= {("value", i) for i in job.get("order", [])}
    return asked | ({("load", 0)} if job["first"] == 0 else set())


def _store(evidence: Evidence, worker: Child, asked: set[Program], deadline: float) -> bool:
    """Files one reply, which is asked for no more; True after the last."""
    frame = worker.receive(deadline)
    if not isinstance(frame, dict):
        raise ChildEnded("protocol", "bytes, or a list, where a reply must be")
    name = next((n for n in ("program", "failure", "error", "value") if n in frame), None)
    if name is None:
        if frame.get("done") is True:
            return True
        raise ChildEnded("protocol", "a reply of an unknown kind")
    which, index = frame[name] if name in ("program", "failure") else (name, frame[name])
    if (which, index) not in asked or (which == "value") != (name == "value"):
        raise ChildEnded("protocol", "a reply that was not asked for, or the second one")
    asked.remove((which, index))
    if name == "program":
        blob = worker.receive(deadline)
        if not isinstance(blob, bytes) or which not in ("forward", "gradient"):
            raise ChildEnded("protocol", "a program without its bytes, or of no known kind")
        evidence.programs[which, index] = (_outputs(frame["outputs"]), blob)
    elif name == "failure":
        kept = {key: printable(frame[key]) for key in ("kind", "message")}
        evidence.failures[which, index] = kept | {"raised": printable(str(frame.get("raised")))}
    elif name == "error":
        evidence.errors[index] = _raised(frame)
    else:
        evidence.values[index] = _value(frame)
    return False


LOOP = "; is there a loop without an end?"
STOPPED: dict[Cause, str] = {
    "timeout": "no answer within {seconds:g} seconds" + LOOP,
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
        cause, detail = evidence.ended.cause, str(evidence.ended)
        if detail == OUT_OF_CPU:
            return cause, f"no answer within {limits.cpu_seconds} seconds of {OUT_OF_CPU}{LOOP}"
        return cause, STOPPED[cause].format(seconds=limits.wall_seconds)
    return None


def _value(frame: dict) -> dict:
    if "result" in frame:
        return {"result": frame["result"]}
    return _raised(frame) | {key: printable(frame[key]) for key in ("kind", "explained")}


def _raised(frame: dict) -> dict:
    name = None if frame["raised"] is None else printable(frame["raised"])
    return {"raised": name, "is_value_error": frame["is_value_error"] is True}


def public_name(reply: dict) -> str:
    """What a reply says that was raised, if it is Python's own: other names may tell anything."""
    name = reply.get("raised") or ""
    known = getattr(builtins, name, None)
    return name if isinstance(known, type) and issubclass(known, BaseException) else "an error"


def _outputs(described: Any) -> list[dict]:
    """Checks what the worker says of its outputs; the bytes must agree with it later.

    Raises:
        ValueError: it is not a list of shapes, dtypes, axes and places.
    """
    for output in described:
        shape, varying = output["shape"], output["varying"]
        known = output["dtype"] in DTYPES and all(isinstance(axis, str) for axis in varying)
        if not known or not all(isinstance(size, int) and 0 <= size < 1 << 28 for size in shape):
            raise ValueError("an output of unknown type")
    if not isinstance(described, list) or not 0 < len(described) <= MAX_OUTPUTS:
        raise ValueError("the outputs are not a short list")
    return [
        output | {"place": printable(output["place"])[:MAX_PLACE_CHARACTERS]}
        for output in described
    ]


def _functions(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
    elif isinstance(value, Made):
        yield from _functions([value.function, *value.values])
    elif isinstance(value, dict):
        yield from _functions(list(value.values()))
    elif isinstance(value, list | tuple):
        yield from (found for item in value for found in _functions(item))
