"""Finds the known mistake that a wrong answer equals, by its results, its traffic or its memory.

The judge calls this when all properties of a program have been judged, and the sentence that is
found here becomes the diagnosis in the verdict.

Of several mistakes with the same results, the one that sends the same is named. An answer that
raises in some cases is compared in the others if it is wrong there, since a right result says
nothing about a mistake.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from jaxpar.contracts.base import Contract, Mistake
from jaxpar.grading import compare
from jaxpar.grading.messages import ProgramKey
from jaxpar.grading.oracle import Blocks
from jaxpar.grading.processes import ChildEnded
from jaxpar.grading.program_judge import ProgramJudge
from jaxpar.grading.reader_client import Refusal
from jaxpar.grading.reader_messages import Facts, MistakeName
from jaxpar.grading.translate import explain
from jaxpar.inspector.notes import describe_repeated_sum
from jaxpar.inspector.report import Collective

MEMORY_TOLERANCE = 0.1
ANOTHER_TYPE = "The function refuses bad arguments with {}; the docstring promises ValueError."
NOTHING_ARRIVED = (
    "A device ends with zeros only: lax.ppermute gives zeros to a device that no pair sends to. "
    "Keep there what it held, with jnp.where."
)


def diagnose(judge: ProgramJudge) -> str:
    """Returns the sentence of a mistake that the answer equals, or what its first error means."""
    wrong = next((p.name for p in judge.findings.properties() if p.status == "fail"), None)
    if wrong == "errors" and (another := _another_type(judge)):
        return ANOTHER_TYPE.format(another)
    if found := _equal_mistake(judge, [m for m in judge.contract.mistakes if m.fails == wrong]):
        return found.sentence
    if wrong == "values" and _ends_with_zeros(judge):
        return NOTHING_ARRIVED
    return _first_error(judge) or _repeated_sum(judge, wrong)


def _another_type(judge: ProgramJudge) -> str | None:
    """The exception other than ValueError that the answer raises itself for a bad call, if any."""
    outcomes = judge.evidence.errors.values()
    return next((o.raised for o in outcomes if o.deliberate and not o.is_value_error), None)


def _equal_mistake(judge: ProgramJudge, candidates: Iterable[Mistake]) -> Mistake | None:
    """The first mistake that equals the answer; of several, the first that also sends the same.

    A reader that dies or is too slow ends the search, and changes nothing else of the verdict.
    """
    equal: list[Mistake] = []
    with contextlib.suppress(ChildEnded):
        for mistake in candidates:
            with contextlib.suppress(Refusal):
                if _equals(judge, mistake):
                    equal.append(mistake)
                    if _sends_the_same(judge, mistake):
                        return mistake
    return equal[0] if equal else None


def _equals(judge: ProgramJudge, mistake: Mistake) -> bool:
    """Whether an answer agrees with a mistake in every case, in the property that it fails."""
    if mistake.fails == "errors":
        return True
    which = _program(judge.contract, mistake)
    told = (index for index in judge.judged if not judge.contract.is_hidden(index))
    programs: list[ProgramKey] = [(which, index) for index in told]
    exported = [program for program in programs if program in judge.answer]
    if not any(_is_wrong(judge, program) for program in exported):
        exported = programs  # then the answer must raise where the mistake does, too
    return all(_agrees(judge, mistake, program) for program in exported)


def _program(contract: Contract, mistake: Mistake) -> Literal["forward", "gradient"]:
    """Returns the kind of program in which the mistake shows."""
    rule = {"memory": contract.memory, "flops": contract.flops}.get(mistake.fails)
    if rule:
        return rule.programs[-1] if contract.gradient else "forward"
    return "gradient" if mistake.fails == "gradient" else "forward"


def _is_wrong(judge: ProgramJudge, program: ProgramKey) -> bool:
    which, index = program
    true, got = judge.truths[index], judge.results.get(program, [])
    right = true.gradients if which == "gradient" else [e.blocks for e in true.expected]
    return not _all_same(judge, got, right)


def _all_same(judge: ProgramJudge, got: Sequence[Blocks], others: Sequence[Blocks]) -> bool:
    return len(got) == len(others) and all(
        compare.alike(str(a.dtype), a, b, judge.contract.tolerance)
        for a, b in zip(got, others, strict=True)
    )


def _sends_the_same(judge: ProgramJudge, mistake: Mistake) -> bool:
    return all(
        _traffic(facts.collectives)
        == _traffic(judge.reader.export(MistakeName(mistake.name), program).collectives)
        for program, facts in judge.answer.items()
        if not judge.contract.is_hidden(program[1])
    )


def _first_error(judge: ProgramJudge) -> str:
    for index, case in enumerate(judge.contract.visible):
        for which in ("forward", "gradient"):
            if failure := judge.evidence.failures.get((which, index)):
                return f"on {case.mesh}: {failure.message}"
    return ""


def _repeated_sum(judge: ProgramJudge, wrong: str | None) -> str:
    """Names a sum of equal values in the program of the property that is wrong, if there is one."""
    which = {"values": "forward", "gradient": "gradient"}.get(wrong or "")
    repeated = [
        one
        for (kind, index), facts in judge.answer.items()
        for one in facts.repeated
        if kind == which and not judge.contract.is_hidden(index)
    ]
    if not repeated:
        return ""
    words = describe_repeated_sum(min(repeated, key=lambda one: one.averaged))
    return f"{words[0].upper()}{words[1:]}."


def _ends_with_zeros(judge: ProgramJudge) -> bool:
    """Whether a device wrongly ends with zeros only, and a permute sends nothing to some device."""
    for (which, index), blocks in judge.results.items():
        facts = judge.answer[which, index]
        some_idle = any(
            c.pairs and len({target for _, target in c.pairs}) < c.group_size
            for c in facts.collectives
        )
        if which == "forward" and some_idle and not judge.contract.is_hidden(index):
            n = math.prod(judge.contract.cases[index].sizes.values())
            both = blocks[0], judge.truths[index].expected[0].blocks
            got, right = (held.reshape(n, -1).any(axis=1) for held in both)
            if right.all() and not got.all():
                return True
    return False


def _agrees(judge: ProgramJudge, mistake: Mistake, program: ProgramKey) -> bool:
    try:
        facts = judge.reader.export(MistakeName(mistake.name), program)
    except Refusal as refusal:
        return _raises_the_same(judge, program, str(refusal).removeprefix(f"{mistake.name}: "))
    if program not in judge.answer:
        return False
    if mistake.fails in ("values", "sharding"):
        return _same_outputs(judge, mistake, program, facts)
    if mistake.fails == "gradient":
        return _same_gradients(judge, mistake, program, facts)
    mine, theirs = judge.answer[program], facts
    if _traffic(mine.collectives) != _traffic(theirs.collectives):
        return False
    if judge.contract.flops and _products(mine) != _products(theirs):
        return False
    if mistake.fails in ("memory", "flops") and mine.memory and theirs.memory:
        near = abs(mine.memory.temp_bytes - theirs.memory.temp_bytes)
        return near <= MEMORY_TOLERANCE * theirs.memory.temp_bytes
    backward: ProgramKey = ("gradient", program[1])
    if backward in judge.answer:
        both = judge.reader.export(MistakeName(mistake.name), backward)
        return _traffic(judge.answer[backward].collectives) == _traffic(both.collectives)
    return True


def _raises_the_same(judge: ProgramJudge, program: ProgramKey, error: str) -> bool:
    """Whether the answer failed to export with the same error, `type: text`, as the mistake."""
    failure = judge.evidence.failures.get(program)
    return failure is not None and failure.message.endswith(explain("inside", error)[1])


def _same_outputs(judge: ProgramJudge, mistake: Mistake, program: ProgramKey, facts: Facts) -> bool:
    inputs = judge.truths[program[1]].inputs
    theirs = judge.reader.run(MistakeName(mistake.name), program, inputs, facts.outputs)
    mine = judge.results.get(program, [])
    return len(mine) == len(theirs) and all(
        compare.alike(str(b.dtype), a, b, judge.contract.tolerance) and a.dtype == b.dtype
        for a, b in zip(mine, theirs, strict=True)
    )


def _same_gradients(
    judge: ProgramJudge, mistake: Mistake, program: ProgramKey, facts: Facts
) -> bool:
    _, theirs = judge.run_gradient(MistakeName(mistake.name), program, facts.outputs)
    return _all_same(judge, judge.results.get(program, []), theirs)


def _products(facts: Facts) -> tuple[int | None, tuple[str, ...]]:
    return facts.flops, facts.product_dtypes


def _traffic(collectives: Iterable[Collective]) -> Counter[tuple]:
    """Counts how often each collective runs; permutes of different distances count separately."""
    sent: Counter[tuple] = Counter()
    for c in collectives:
        n = c.group_size
        far = max((min((b - a) % n, (a - b) % n) for a, b in c.pairs or ()), default=0)
        sent[c.kind, c.axes, c.dtype, c.operand_bytes, far] += c.times or 1
    return sent
