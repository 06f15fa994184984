"""From a submission to a verdict, without importing the learner's file or parsing its programs.

The judge has a worker export the answer, which is the evidence, and a reader read and run the
exported programs. It compares their results with the contract, and returns a verdict, from which
the writers print. Values and schedules need no reader, since their evidence is plain data.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import replace

from jaxpar.contracts.base import Contract, with_drawn
from jaxpar.grading import partition_specs
from jaxpar.grading.diagnosis import diagnose
from jaxpar.grading.evidence import collect_evidence, reason_unjudged
from jaxpar.grading.findings import SHOWN_ONLY, Findings, unjudged
from jaxpar.grading.misleading_calls import misleading_call
from jaxpar.grading.oracle import Truth, truth
from jaxpar.grading.processes import OUT_OF_CPU, Cancelled, ChildEnded, ChildPool
from jaxpar.grading.program_judge import ProgramJudge, unknown_references
from jaxpar.grading.reader_client import ReaderClient
from jaxpar.grading.schedule_judge import judge_schedules
from jaxpar.grading.specs_judge import SpecsJudge
from jaxpar.grading.submission import Submission
from jaxpar.grading.value_judge import judge_values
from jaxpar.grading.verdict import Cause, Judgement, Status, Verdict

Attempt = ProgramJudge | SpecsJudge
TruthSource = Callable[[Contract, int, int], Truth]
"""Draws the inputs of a case of a contract with a seed, and computes what they must give."""

SEED_BITS = 32
KNOWN_GOOD_SECONDS = 60
DIAGNOSIS_SECONDS = 20
ENDED = {
    "timeout": "the program does not end within {seconds:g} seconds",
    "killed": "the program ends the process that runs it: {detail}",
    "protocol": "the process that runs the program broke its protocol",
}
DISAGREE = (
    "Devices disagree about a collective: {kind}{line} is under a condition or in a loop of "
    "unknown length, and devices that do not reach it leave the others waiting. "
    "Call it on every device, and choose afterwards with jnp.where."
)


def judge(
    where: str,
    submission: Submission,
    *,
    pool: ChildPool,
    seed: int | None = None,
    hidden_seed: int | None = None,
    truths: TruthSource = truth,
) -> Verdict:
    """Judges one answer against the contract of an exercise.

    Args:
        where: the module of the contract, and `@` with a number where it is a variant.
        submission: the learner's file as it was read.
        pool: where child processes come from.
        seed: repeats an earlier run; drawn at random if not given, and never shown to a child.
        hidden_seed: in a class, draws the further cases, of which nothing is told; at home, `seed`
            does, and they are shown where they fail.
        truths: draws inputs and computes right results; a caller that judges many answers with
            one seed may pass a function that remembers them.

    Raises:
        Cancelled: another thread called `pool.cancel()`.
    """
    pool.begin()
    started = time.monotonic()
    chosen = secrets.randbits(SEED_BITS) if seed is None else seed
    hidden = hidden_seed is not None
    contract = with_drawn(where, hidden_seed if hidden else chosen, hidden=hidden)
    if contract.kind == "value":
        judgement = judge_values(contract, submission, pool, chosen)
    elif contract.kind == "schedule":
        judgement = judge_schedules(contract, submission, pool, chosen)
    else:
        judgement = _judge_program(
            where, contract, submission, pool, lambda index: truths(contract, index, chosen)
        )
    if judgement.status == "timeout" and not hidden:
        judgement = _timed_out(where, contract, pool, judgement)
    if pool.cancelled:
        raise Cancelled
    if judgement.status == "fail" and judgement.diagnosis in ("", SHOWN_ONLY):
        wrong = next((p.name for p in judgement.properties if p.status == "fail"), "")
        meant = misleading_call(submission.text, wrong) or judgement.diagnosis
        judgement = replace(judgement, diagnosis=meant)
    return Verdict(
        exercise=contract.id,
        score=sum(p.score for p in judgement.properties),
        max_score=sum(p.max_score for p in judgement.properties),
        seconds=round(time.monotonic() - started, 3),
        seed=chosen,
        **vars(judgement),
    )


def _judge_program(
    where: str,
    contract: Contract,
    submission: Submission,
    pool: ChildPool,
    truth_of: Callable[[int], Truth],
) -> Judgement:
    """Judges exported programs or specs; the reader works while the worker exports."""
    filename = submission.path.name
    reader = ReaderClient(pool, where, contract, filename)
    try:
        if contract.kind == "program":
            reader.begin_exports(unknown_references(contract))
        evidence = collect_evidence(pool, contract, submission)
        end = reason_unjudged(evidence, pool.limits, contract.kind)
        if end is not None:
            return unjudged(contract, *end, evidence.printed)
        reader.set_time_left(pool.limits.wall_seconds / 3)

        def attempt_with(reader: ReaderClient) -> Attempt:
            findings = Findings(contract)
            if contract.kind == "specs":
                return SpecsJudge(contract, reader, evidence, findings)
            return ProgramJudge(contract, reader, evidence, findings, truth_of)

        try:
            judgement = _finish(attempt_with(reader))
        except ChildEnded:
            reader.close()
            if pool.cancelled:
                raise Cancelled from None
            second = ReaderClient(pool, where, contract, filename)
            judgement = _second_try(where, pool, second, attempt_with(second))
        return replace(judgement, printed=evidence.printed)
    finally:
        reader.close()


def _finish(attempt: Attempt) -> Judgement:
    attempt.judge()
    properties = attempt.findings.properties()
    if all(p.status == "pass" for p in properties):
        return Judgement("pass", properties, measured=attempt.measured)
    only_drawn, diagnosis = attempt.findings.fails_only_on_drawn(), ""
    if not (only_drawn and attempt.contract.hidden):
        attempt.reader.set_time_left(DIAGNOSIS_SECONDS)
        diagnosis = diagnose(attempt) if isinstance(attempt, ProgramJudge) else attempt.diagnose()
    if only_drawn:
        diagnosis = diagnosis or SHOWN_ONLY
    return Judgement("fail", properties, diagnosis, attempt.measured)


def _second_try(where: str, pool: ChildPool, reader: ReaderClient, attempt: Attempt) -> Judgement:
    """Judges once more with a fresh reader, which has all the time.

    If that fails too, a known-good program is run, to tell whether the machine is at fault.
    """
    contract = attempt.contract
    try:
        return _finish(attempt)
    except ChildEnded as ended:
        cause: Cause = ended.cause
        hidden = contract.hidden and ended.cause == "killed"
        detail = "" if hidden else str(ended)  # it may come from a hidden case
    finally:
        reader.close()
    status: Status = cause
    message = _why(cause, detail, pool, attempt)
    if not _known_good_runs(where, contract, pool):
        status = "infrastructure"
        message = f"the reader cannot run any program here: {detail or cause}"
    return unjudged(contract, status, message)


def _why(cause: Cause, detail: str, pool: ChildPool, attempt: Attempt) -> str:
    shown = (f for (_, i), f in attempt.answer.items() if not attempt.contract.is_hidden(i))
    collectives = [c for facts in shown for c in facts.collectives]
    stray = next((c for c in collectives if c.conditional or c.times is None), None)
    if stray is not None:
        line = f" ({stray.source})" if stray.source else ""
        return DISAGREE.format(kind=stray.kind, line=line)
    if detail == OUT_OF_CPU:
        return f"the program does not end within {pool.limits.cpu_seconds} seconds of {detail}"
    last = (detail.strip().splitlines() or [cause])[-1][:300]
    return ENDED[cause].format(seconds=pool.limits.wall_seconds, detail=last)


def _timed_out(where: str, contract: Contract, pool: ChildPool, found: Judgement) -> Judgement:
    """Adds how long the library's program takes on this machine, and how to allow more."""
    started = time.monotonic()
    message = f"{found.diagnosis}."
    if contract.kind in ("program", "specs") and _known_good_runs(where, contract, pool):
        seconds = time.monotonic() - started
        message += f" The library's first program takes {seconds:.0f} s here, start included."
    more = round(4 * pool.limits.wall_seconds)
    message += f" `jaxpar check {contract.id} --timeout {more}` allows more."
    return unjudged(contract, found.status, message, found.printed)


def _known_good_runs(where: str, contract: Contract, pool: ChildPool) -> bool:
    reader = ReaderClient(pool, where, contract)
    reader.set_time_left(KNOWN_GOOD_SECONDS)
    try:
        if contract.partitioned:
            reader.partition(0, partition_specs.of_ours(contract.reference, contract.cases[0]))
        else:
            reader.export("reference", ("forward", 0))
    except ChildEnded:
        return False
    finally:
        reader.close()
    return True
