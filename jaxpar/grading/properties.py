"""Judges the properties of one case from the facts that the reader found.

`program_judge` and `specs_judge` call these functions with the facts about the answer and about the
reference, and add what they return to the findings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from jaxpar.contracts.base import Communication, Contract, FlopsLimit, MemoryLimit
from jaxpar.contracts.case import Case, Sizes
from jaxpar.grading import communication, compare
from jaxpar.grading.findings import NEAR, Finding
from jaxpar.grading.messages import BadCallOutcome
from jaxpar.grading.oracle import Blocks, Truth
from jaxpar.grading.program_export import differentiated
from jaxpar.grading.reader_messages import Facts
from jaxpar.grading.verdict import Measured, in_bytes

SLACK_BYTES = 512


def judge_values(
    contract: Contract,
    case: Case,
    true: Truth,
    answer: Facts,
    reference: Facts,
    got: Sequence[Blocks],
) -> tuple[Finding, bool]:
    """Compares the outputs, and tells whether each device returned the whole of one of them.

    The places and the dtypes of the outputs in `got` are those that `answer` declares; they must
    be those of the reference.
    """
    if len(got) != len(true.expected):
        found, needed = (f"{n} array{'s' * (n != 1)}" for n in (len(got), len(true.expected)))
        message, how = f"returns {found}; it must return {needed}", "wrong number of arrays"
        return Finding(False, message, needed, found, how), False
    whole = near = False
    for output, model, blocks, target in zip(
        answer.outputs, reference.outputs, got, true.expected, strict=True
    ):
        place, dtype = output.place, model.dtype
        if place != model.place:
            here, right = f"result{place}", f"result{model.place}"
            message = f"an array is returned as {here}; it must be {right}"
            return Finding(False, message, right, here, "an array is in another place"), False
        if output.dtype != dtype:
            message = f"the result has dtype {output.dtype}; it must be {dtype}"
            return Finding(False, message, dtype, output.dtype, "wrong dtype"), False
        if contract.law and blocks.shape == target.blocks.shape:
            continue
        if _is_whole(contract, dtype, blocks, target.whole):
            whole = True
            continue
        difference = compare.first_difference(
            case, dtype, blocks, target.blocks, contract.tolerance, place
        )
        if difference:
            return difference, False
        near |= compare.near(dtype, blocks, target.blocks, contract.tolerance)
    broken = _broken_law(contract, case, true, got)
    if broken:
        return Finding(False, f"on {case.mesh}, {broken}"), False
    return _right(contract, case, near), whole


def judge_sharding(whole: bool) -> Finding:
    """Judges whether each device returns its own part, and not the whole result."""
    if whole:
        message = "every device returns the whole result, where it must return its own part"
        return Finding(False, message, "its own part", "the whole")
    return Finding(True, "each device returns its own part", "its own part", "its own part")


def judge_gradient(
    contract: Contract,
    case: Case,
    true: Truth,
    answer: Facts,
    outputs: Sequence[Blocks],
    gradients: Sequence[Blocks],
) -> Finding:
    """Compares outputs and gradients of the differentiated program."""
    near = False
    same = contract.law and not _broken_law(contract, case, true, outputs)
    for output, blocks, target in zip(answer.outputs, outputs, true.expected, strict=True):
        if not (same or compare.same(output.dtype, blocks, target.blocks, contract.tolerance)):
            return Finding(False, f"on {case.mesh}, the differentiated program has other values")
    names = [name for name, _ in differentiated(case, contract.gradient).values()]
    for name, gradient, target in zip(names, gradients, true.gradients, strict=True):
        difference = compare.first_difference(
            case, str(gradient.dtype), gradient, target, contract.tolerance
        )
        if difference:
            message = f"the gradient with respect to {name}, {difference.message}"
            return replace(difference, message=message)
        near |= compare.near(str(gradient.dtype), gradient, target, contract.tolerance)
    return _right(contract, case, near)


def judge_communication(
    rule: Communication,
    case: Case,
    answer: Mapping[str, Facts],
    reference: Mapping[str, Facts],
) -> Finding:
    """Holds the forward program and, if it was read, the gradient program against the rule."""
    sizes, forward = Sizes(case), answer["forward"]
    got = communication.describe(forward.collectives)
    excess = communication.forward_excess(rule, sizes, forward.collectives)
    if excess is None and "gradient" in answer:
        totals = {w: communication.wire_by_axis(f.collectives) for w, f in reference.items()}
        backward = {
            axis: sent - totals["forward"].get(axis, 0.0)
            for axis, sent in totals["gradient"].items()
        }
        both = answer["gradient"].collectives
        excess = communication.backward_excess(rule, sizes, forward.collectives, both, backward)
        if excess:
            got = f"forward and backward: {communication.describe(both)}"
    added = [text for facts in answer.values() for text in facts.unexplained]
    if excess is None and added:
        excess = communication.Excess(f"the compiler sends this for you: {added[0]}", rule.words)
    if excess:
        return Finding(False, excess.message, excess.expected or rule.words, got)
    sent = f"on {case.mesh}, forward sends {communication.in_short(forward.collectives)}"
    if "gradient" in answer:
        both = communication.in_short(answer["gradient"].collectives)
        sent += f"; forward and backward {both}"
    return Finding(True, sent, rule.words, got)


def judge_memory(
    rule: MemoryLimit, case: Case, answer: Mapping[str, Facts], reference: Mapping[str, Facts]
) -> Finding:
    """Holds temp and constant bytes of the compiled programs against the reference's."""
    finding = Finding(None, "not judged: no program to measure")
    for which in rule.programs:
        if which in answer:
            mine, theirs = answer[which], reference[which]
            of_gradient = which == "gradient" and rule.gradient_multiple
            here = replace(rule, multiple=of_gradient or rule.multiple)
            here = replace(here, multiple=_multiple(here, _wire_bytes, mine, theirs))
            finding = judge_temp_bytes(here, case, mine, theirs)
            if not finding.right:
                return finding
    return finding


def judge_temp_bytes(rule: MemoryLimit, case: Case, answer: Facts, reference: Facts) -> Finding:
    """Holds temp and constant bytes of one program against the reference's."""
    held, least = _temp_bytes(answer), _temp_bytes(reference)
    allowed = int(rule.multiple * least + SLACK_BYTES)
    limit, seen = f"at most {in_bytes(allowed)}", in_bytes(held)
    if held > allowed:
        message = f"on {case.mesh}, intermediate results take {seen}; {limit} are allowed"
        return Finding(False, message, limit, seen)
    message = f"on {case.mesh}, intermediate results take {seen}; {in_bytes(allowed)} are allowed"
    return Finding(True, message, limit, seen)


def judge_flops(
    rule: FlopsLimit, case: Case, answer: Mapping[str, Facts], reference: Mapping[str, Facts]
) -> Finding:
    """Holds the flops of matrix products, as written, against the reference's."""
    finding = Finding(None, "not judged: no program to count")
    for which in rule.programs:
        if which in answer:
            again = reference["forward"] if rule.may_recompute and which == "gradient" else None
            where = f"on {case.mesh}", which
            finding = _judge_products(rule, where, answer[which], reference[which], again)
            if not finding.right:
                return finding
    return finding


def _judge_products(
    rule: FlopsLimit, where: tuple[str, str], answer: Facts, reference: Facts, again: Facts | None
) -> Finding:
    """Holds the products of one program against the reference's, which may be formed `again`."""
    mesh, which = where
    done, least = answer.flops, reference.flops
    if done is None or least is None:
        message = f"{mesh}, a matrix product is in a loop of unknown length"
        return Finding(False, message, "a number of trips known when traced", "unknown")
    others = [dtype for dtype in answer.product_dtypes if dtype not in rule.dtypes]
    if rule.dtypes and others:
        limit, seen = (" and ".join(dtypes) for dtypes in (rule.dtypes, others))
        message = f"{mesh}, matrix products multiply {seen}; only {limit} is allowed"
        return Finding(False, message, limit, seen)
    multiple = _multiple(rule, _temp_bytes, answer, reference)
    allowed = int(multiple * least) + ((again and again.flops) or 0)
    limit, seen = f"at most {allowed:,} flops", f"{done:,} flops"
    if done > allowed:
        message = f"{mesh}, a device computes {seen} ({which}); {limit} are allowed"
        return Finding(False, message, limit, seen)
    most = int(multiple * (reference.products or 0)) + ((again and again.products) or 0)
    if rule.large and (answer.products or 0) > most:
        limit, seen = f"at most {most:,} matrix products", f"{answer.products:,} matrix products"
        message = (
            f"{mesh}, a device computes {seen} ({which}), of few rows each; {limit} are allowed"
        )
        return Finding(False, message, limit, seen)
    return Finding(True, f"{mesh}, a device computes {seen}; {allowed:,} are allowed", limit, seen)


def judge_error(because: str, outcome: BadCallOutcome | None) -> Finding:
    """Judges whether a bad call raised ValueError while it was traced."""
    raised = (outcome and outcome.raised) or "nothing"
    if outcome and outcome.raised and outcome.is_value_error:
        return Finding(True, f"{because} raises ValueError", "ValueError", raised)
    message = f"{because} must raise ValueError; {raised} is raised"
    return Finding(False, message, "ValueError", raised)


def measure(
    contract: Contract,
    case: Case,
    answer: Mapping[str, Facts],
    reference: Mapping[str, Facts],
) -> Measured | None:
    """Returns the number of a challenge, or else what a device sends if it may send something.

    What could not be measured, such as a collective in a loop of unknown length, has no number.
    """
    quantity = contract.challenge or (contract.communication and "wire_bytes")
    if quantity is None:
        return None
    which = "gradient" if quantity == "temp_bytes" else "forward"
    number_of = _temp_bytes if quantity == "temp_bytes" else _wire_bytes
    if which not in answer or not math.isfinite(number_of(answer[which])):
        return None
    mine, library = (round(number_of(facts[which])) for facts in (answer, reference))
    return Measured(quantity, case.mesh, mine, library, contract.challenge is not None)


def meshes(contract: Contract) -> str:
    """Returns the meshes of the shown cases, for a message."""
    return " and ".join(dict.fromkeys(case.mesh for case in contract.visible))


def _broken_law(
    contract: Contract, case: Case, true: Truth, outputs: Sequence[Blocks]
) -> str | None:
    """The first thing wrong with outputs by the contract's law; None if it has no law."""
    if contract.law is None:
        return None
    with np.errstate(invalid="ignore"):  # of results that are not finite
        return contract.law(case, true.inputs, list(outputs))


def _right(contract: Contract, case: Case, near: bool) -> Finding:
    """Returns the finding of a right result, which tells whether it is near the limit."""
    where = f"{NEAR}: on {case.mesh}, rounding takes more than half of what is allowed; " * near
    return Finding(True, f"{where}right on {meshes(contract)}", near=near)


def _is_whole(contract: Contract, dtype: str, blocks: Blocks, whole: Blocks | None) -> bool:
    if whole is None or blocks.shape != whole.shape:
        return False
    return compare.same(dtype, blocks, whole, contract.tolerance)


def _multiple(
    rule: FlopsLimit | MemoryLimit,
    traded_bytes: Callable[[Facts], float],
    answer: Facts,
    reference: Facts,
) -> float:
    """Returns which multiple of the reference's cost is allowed.

    Where a rule lets memory be traded for communication or flops, a program that takes few of the
    traded bytes is allowed another multiple.
    """
    if rule.traded:
        multiple, of_bytes = rule.traded
        if traded_bytes(answer) <= of_bytes * traded_bytes(reference):
            return multiple
    return rule.multiple


def _wire_bytes(facts: Facts) -> float:
    return communication.wire_bytes(facts.collectives)


def _temp_bytes(facts: Facts) -> int:
    assert facts.memory is not None
    return facts.memory.temp_bytes + facts.memory.constants_bytes
