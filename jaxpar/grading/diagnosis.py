"""Which known mistake a wrong answer equals: the same result, or the same traffic or memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from jaxpar.contracts.base import Mistake
from jaxpar.grading import compare
from jaxpar.grading.evidence import Program
from jaxpar.grading.program_judge import ProgramJudge
from jaxpar.grading.session import Facts, Refusal
from jaxpar.inspector.report import Collective

MEMORY_TOLERANCE = 0.1


def diagnose(judge: ProgramJudge) -> str:
    """The sentence of the first mistake that equals the answer; else what its errors mean."""
    wrong = next((p.name for p in judge.findings.properties() if p.status == "fail"), None)
    candidates = [m for m in judge.contract.mistakes if m.fails == wrong]
    for mistake in candidates:
        try:
            if _equals(judge, mistake):
                return mistake.sentence
        except Refusal:
            continue
    failures = judge.evidence.failures
    return next((f["message"] for (which, _), f in failures.items() if which != "error"), "")


def _equals(judge: ProgramJudge, mistake: Mistake) -> bool:
    """Whether answer and mistake agree in every case by the property that the mistake fails."""
    if mistake.fails == "errors":
        return True
    which = "gradient" if mistake.fails == "gradient" else "forward"
    return all(_agrees(judge, mistake, (which, i)) for i in range(len(judge.contract.cases)))


def _agrees(judge: ProgramJudge, mistake: Mistake, program: Program) -> bool:
    try:
        facts = judge.reader.export(mistake.name, program)
    except Refusal:
        return program not in judge.answer
    if program not in judge.answer:
        return False
    if mistake.fails in ("values", "sharding"):
        return _same_outputs(judge, mistake, program, facts)
    if mistake.fails == "gradient":
        return _same_gradients(judge, mistake, program, facts)
    mine, theirs = judge.answer[program], facts
    if _traffic(mine.collectives) != _traffic(theirs.collectives):
        return False
    if mistake.fails == "memory" and mine.memory and theirs.memory:
        near = abs(mine.memory.temp_bytes - theirs.memory.temp_bytes)
        return near <= MEMORY_TOLERANCE * theirs.memory.temp_bytes
    backward: Program = ("gradient", program[1])
    if backward in judge.answer:
        both = judge.reader.export(mistake.name, backward)
        return _traffic(judge.answer[backward].collectives) == _traffic(both.collectives)
    return True


def _same_outputs(judge: ProgramJudge, mistake: Mistake, program: Program, facts: Facts) -> bool:
    inputs = judge.truths[program[1]].inputs
    theirs = judge.reader.run(mistake.name, program, inputs, facts.outputs)
    mine = judge.results[program]
    return len(mine) == len(theirs) and all(
        compare.same(str(b.dtype), a, b, judge.contract.tolerance) and a.dtype == b.dtype
        for a, b in zip(mine, theirs, strict=True)
    )


def _same_gradients(judge: ProgramJudge, mistake: Mistake, program: Program, facts: Facts) -> bool:
    _, theirs = judge.run_gradient(mistake.name, program, facts.outputs)
    mine = judge.results.get(program, [])
    return len(mine) == len(theirs) and all(
        compare.same(str(b.dtype), a, b, judge.contract.tolerance)
        for a, b in zip(mine, theirs, strict=True)
    )


def _traffic(collectives: Iterable[Collective]) -> Counter[tuple]:
    """How often what is sent over which axes, and for permutes how far round the ring."""
    sent: Counter[tuple] = Counter()
    for c in collectives:
        n = c.group_size
        far = max((min((b - a) % n, (a - b) % n) for a, b in c.pairs or ()), default=0)
        sent[c.kind, c.axes, c.dtype, c.operand_bytes, far] += c.times or 1
    return sent
