"""The evidence: what a worker sends about an answer, which is requested, checked and kept here.

The worker runs the learner's Python, so nothing in its frames is trusted: each reply is decoded by
its declared types, must have been asked for, and is accepted only once. The judge then passes the
programs among the evidence to a reader, and compares plain values with the contract itself.
"""

from __future__ import annotations

import base64
import builtins
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxpar.contracts.base import Contract, Kind
from jaxpar.contracts.case import Function, Made
from jaxpar.grading import messages
from jaxpar.grading.channel import printable
from jaxpar.grading.deadline import Deadline
from jaxpar.grading.messages import Call, Output, ProgramKey
from jaxpar.grading.processes import OUT_OF_CPU, WORKER, Child, ChildEnded, ChildPool, Limits
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Cause, Status

DTYPES = ("bool", "bfloat16", *(f"float{b}" for b in (16, 32, 64)),
          *(f"{kind}{b}" for kind in ("int", "uint") for b in (8, 16, 32, 64)))  # fmt: skip
LEAST_DEVICES = 12
MAX_OUTPUTS = 256
MAX_DIM_SIZE = 1 << 28
MAX_PLACE_CHARACTERS = 80

ReplyKey = tuple[str, int]
"""Which reply to a job: a program's key, or `load`, `error` or `value`, and a number."""


@dataclass
class Evidence:
    """What a worker has sent about one answer.

    Attributes:
        programs: the declared outputs and the bytes of each exported program.
        failures: why a program could not be exported, or the file not be loaded.
        errors: the outcome of each call that must raise ValueError, by its number.
        values: what each call with plain data returned or raised, by its number.
        printed: what the answer printed in the cases that are shown.
        ended: how the worker ended, if it ended before it had answered everything.
    """

    programs: dict[ProgramKey, tuple[tuple[Output, ...], bytes]] = field(default_factory=dict)
    failures: dict[ReplyKey, messages.ExportFailure] = field(default_factory=dict)
    errors: dict[int, messages.BadCallOutcome] = field(default_factory=dict)
    values: dict[int, messages.ReturnedValue | messages.RaisedByCall] = field(default_factory=dict)
    printed: str = ""
    ended: ChildEnded | None = None

    @property
    def answered(self) -> bool:
        """Whether a program was exported, or a call returned or raised something."""
        return bool(self.programs or self.values)

    def add(self, reply: messages.WorkerReply, blob: bytes = b"") -> None:
        """Adds a reply; `blob` holds the bytes of the program if the reply is about one."""
        match reply:
            case messages.ExportedProgram(program, outputs):
                self.programs[program] = outputs, blob
            case messages.ExportFailure(which):
                self.failures[which] = reply
            case messages.BadCallOutcome(number):
                self.errors[number] = reply
            case messages.ReturnedValue(number) | messages.RaisedByCall(number):
                self.values[number] = reply

    def to_json(self) -> dict[str, Any]:
        """Returns the evidence as plain data for JSON, without how the worker ended."""
        programs = [
            [
                messages.encode(messages.ExportedProgram(program, outputs)),
                base64.b64encode(blob).decode(),
            ]
            for program, (outputs, blob) in self.programs.items()
        ]
        others = (*self.failures.values(), *self.errors.values(), *self.values.values())
        return {"programs": programs, "others": messages.encode(others), "printed": self.printed}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Evidence:
        """Returns the evidence that `to_json` made this data from.

        Raises:
            ValueError, KeyError, TypeError: the data is something else.
        """
        evidence = cls(printed=data["printed"])
        for program, blob in data["programs"]:
            evidence.add(messages.decode(messages.ExportedProgram, program), base64.b64decode(blob))
        for reply in data["others"]:
            evidence.add(messages.decode(messages.WorkerReply, reply))
        return evidence


def devices_needed(contract: Contract) -> int:
    """Returns how many devices to simulate: as many as a case needs, or `LEAST_DEVICES`.

    The minimum keeps the number from revealing that a hidden case needs more than those shown.
    """
    cases = [*contract.cases, *(bad.case for bad in contract.errors)]
    needed = [math.prod(case.sizes.values()) for case in cases]
    return max(LEAST_DEVICES, *needed) if needed else 0


def collect_evidence(
    pool: ChildPool,
    contract: Contract,
    submission: Submission,
    calls: Sequence[Call] = (),
    order: Sequence[int] = (),
) -> Evidence:
    """Runs one worker and returns what it has sent, unless the store holds that evidence already.

    Args:
        pool: where the worker comes from; its store may hold the evidence.
        contract: the exercise; drawn cases are sent after the others have been answered.
        submission: the learner's file.
        calls: the calls with plain data, for a value or a schedule.
        order: the order in which these calls are made.
    """
    job = _worker_job(contract, submission, pool.limits, tuple(calls), tuple(order))
    drawn = messages.DrawnCases(contract.cases[len(contract.visible) :], len(contract.visible))
    key = {"job": messages.encode(job), "drawn": messages.encode(drawn)}
    kept = pool.store.get(key) if pool.store else None
    if kept is not None:
        return kept
    evidence = _run_worker(pool, job, drawn)
    if contract.hidden:
        _forget_words(evidence, drawn.first)
    if pool.store:
        pool.store.put(key, evidence)
    return evidence


def _worker_job(
    contract: Contract,
    submission: Submission,
    limits: Limits,
    calls: tuple[Call, ...],
    order: tuple[int, ...],
) -> messages.WorkerJob:
    """Returns the job for a worker, without drawn cases and without any expected value."""
    reference = contract.reference
    functions = {f.path.partition(":")[0] for case in contract.cases for f in _functions(case.args)}
    imports = {name.rpartition(".")[0] for name in contract.imports}
    return messages.WorkerJob(
        **limits.job(),
        exercise=contract.id,
        kind=contract.kind,
        source=submission.text,
        filename=submission.path.name,
        cases=contract.visible,
        first=0,
        errors=tuple(bad.case for bad in contract.errors),
        gradient=tuple(contract.gradient),
        imports=tuple(contract.imports),
        modules=tuple(sorted(functions | imports)),
        reference=f"{reference.__module__}:{reference.__name__}",
        devices=devices_needed(contract),
        calls=calls,
        order=order,
    )


def _run_worker(pool: ChildPool, job: messages.WorkerJob, drawn: messages.DrawnCases) -> Evidence:
    evidence = Evidence()
    deadline = Deadline(pool.limits.wall_seconds)
    worker, told = pool.take(WORKER), False
    try:
        messages.decode(messages.Ready, worker.receive(deadline))
        worker.send(messages.encode(job))
        _receive_replies(evidence, worker, _asked(job), deadline)
        if drawn.cases and evidence.answered:
            evidence.printed = worker.printed_to_its_end()  # later text may tell a hidden case
            told = True
            worker.send(messages.encode(drawn))
            _receive_replies(evidence, worker, _asked(job.with_drawn(drawn)), deadline)
    except ChildEnded as ended:
        evidence.ended = ended
    except ValueError as error:
        evidence.ended = ChildEnded("protocol", repr(error))
    finally:
        pool.end(worker)
    if not told:
        evidence.printed = worker.printed()
    return evidence


def _forget_words(evidence: Evidence, first_hidden: int) -> None:
    """Drops the messages about hidden cases, which may reveal what these cases are."""
    for which, failure in evidence.failures.items():
        if which[1] >= first_hidden:
            name = public_name(failure.raised)
            evidence.failures[which] = replace(failure, kind="hidden", message="", raised=name)
    for number, reply in evidence.values.items():
        if number >= first_hidden and isinstance(reply, messages.RaisedByCall):
            name = public_name(reply.raised)
            evidence.values[number] = replace(reply, kind="hidden", explained="", raised=name)


def _receive_replies(
    evidence: Evidence, worker: Child, asked: set[ReplyKey], deadline: Deadline
) -> None:
    """Adds the replies to a job to the evidence until the worker is done.

    Raises:
        ChildEnded: the worker ended, or sent what was not asked for.
        ProtocolError: a frame is not a reply.
    """
    while True:  # the job bounds the number of replies: each may come once
        reply: messages.WorkerReply = messages.decode(
            messages.WorkerReply, worker.receive(deadline)
        )
        if isinstance(reply, messages.Done):
            return
        key = _key(reply)
        if key not in asked:
            raise ChildEnded("protocol", "a reply that was not asked for, or the second one")
        asked.remove(key)
        blob = worker.receive(deadline) if isinstance(reply, messages.ExportedProgram) else b""
        if not isinstance(blob, bytes):
            raise ChildEnded("protocol", "a program without its bytes")
        evidence.add(_checked(reply), blob)


def _asked(job: messages.WorkerJob) -> set[ReplyKey]:
    """Returns which replies a job may have; those of shown and of drawn cases do not overlap."""
    cases = range(job.first, job.first + len(job.cases))
    kinds = ("forward", "gradient") if job.kind == "program" else ("value",)
    asked = {(kind, number) for kind in kinds for number in cases}
    asked |= {("error", number) for number in range(len(job.errors))}
    asked |= {("value", number) for number in job.order}
    return asked | ({("load", 0)} if job.first == 0 else set())


def _key(reply: messages.WorkerReply) -> ReplyKey | None:
    match reply:
        case messages.ExportedProgram(which) | messages.ExportFailure(which):
            return which
        case messages.BadCallOutcome(number):
            return "error", number
        case messages.ReturnedValue(number) | messages.RaisedByCall(number):
            return "value", number
    return None


def _checked(reply: messages.WorkerReply) -> messages.WorkerReply:
    """Makes the texts of a reply safe to print; a failure where its outputs cannot be judged."""
    match reply:
        case messages.ExportedProgram(program, outputs):
            if not outputs:  # `export_forward` reports a function that returns nothing
                raise ChildEnded("protocol", "a program without results")
            if why := _why_refused(outputs):
                return messages.ExportFailure(program, "result", why)
            return replace(reply, outputs=tuple(map(_checked_output, outputs)))
        case messages.ExportFailure() | messages.BadCallOutcome() | messages.RaisedByCall():
            texts = {name: text for name, text in vars(reply).items() if isinstance(text, str)}
            return replace(reply, **{name: printable(text) for name, text in texts.items()})
    return reply


def _why_refused(outputs: Sequence[Output]) -> str:
    """Why results of these types cannot be judged; empty if they can."""
    if len(outputs) > MAX_OUTPUTS:
        return f"The function returns {len(outputs)} arrays; at most {MAX_OUTPUTS} can be judged."
    for output in map(_checked_output, outputs):
        name = f"The result{output.place}"
        if output.dtype not in DTYPES:
            return f"{name} has the dtype {output.dtype}; return the one that the docstring names."
        if not all(0 <= size < MAX_DIM_SIZE for size in output.shape):
            return (
                f"{name} has the shape {output.shape}; a dim may have at most {MAX_DIM_SIZE - 1}."
            )
    return ""


def _checked_output(output: Output) -> Output:
    """Bounds what the worker says of an output; the bytes of the program must agree with it."""
    place, dtype = (printable(t)[:MAX_PLACE_CHARACTERS] for t in (output.place, output.dtype))
    return replace(output, place=place, dtype=dtype)


def public_name(raised: str | None) -> str:
    """Returns the name of an exception if it is one of Python's own, else "an error".

    A name that the answer has chosen could reveal what a hidden case is.
    """
    name = raised or ""
    known = getattr(builtins, name, None)
    return name if isinstance(known, type) and issubclass(known, BaseException) else "an error"


LONG_PROGRAM = (
    "is there a loop without an end, or one of Python over layers or microbatches? Each of its "
    "turns makes the program longer, where lax.scan compiles its body once"
)
LONG_WORK = "perhaps a loop has no end, or the work grows too fast with the sizes"
STOPPED: dict[Cause, str] = {
    "killed": "the process that ran the answer ended early",
    "protocol": "the process that ran the answer broke its protocol",
    "memory": "the answer needs more memory than it may have",
}


def reason_unjudged(evidence: Evidence, limits: Limits, kind: Kind) -> tuple[Status, str] | None:
    """Returns status and reason of an answer that cannot be judged at all; None if it can be."""
    failures = list(evidence.failures.values())
    if failures and not evidence.programs:
        kinds: dict[str, Status] = {"not-implemented": "fail", "result": "fail", "memory": "memory"}
        return kinds.get(failures[0].kind, "error"), failures[0].message
    for reply in evidence.values.values():
        if isinstance(reply, messages.RaisedByCall) and reply.kind == "not-implemented":
            return "fail", reply.explained
    if evidence.ended is not None:
        cause, detail = evidence.ended.cause, str(evidence.ended)
        if detail == OUT_OF_CPU:
            return cause, _too_slow(f"{limits.cpu_seconds} seconds of {OUT_OF_CPU}", kind)
        if cause == "timeout":
            return cause, _too_slow(f"{limits.wall_seconds:g} seconds", kind)
        return cause, STOPPED[cause]
    return None


def _too_slow(limit: str, kind: Kind) -> str:
    likely = LONG_PROGRAM if kind == "program" else LONG_WORK
    return f"no answer within {limit}; {likely}"


def _functions(value: Any) -> Iterator[Function]:
    if isinstance(value, Function):
        yield value
    elif isinstance(value, Made):
        yield from _functions([value.function, *value.values])
    elif isinstance(value, dict):
        yield from _functions(list(value.values()))
    elif isinstance(value, list | tuple):
        yield from (found for item in value for found in _functions(item))
