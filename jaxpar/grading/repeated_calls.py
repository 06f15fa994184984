"""Calls an answer with plain data twice: in two fresh processes, in opposite orders.

The judges of values and of schedules use this. An answer whose results differ between the two
depends on earlier calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxpar.contracts.base import Call, Contract, Mistake
from jaxpar.grading import messages
from jaxpar.grading.evidence import Evidence, collect_evidence, reason_unjudged
from jaxpar.grading.messages import RaisedByCall, ReturnedValue
from jaxpar.grading.processes import ChildPool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Status

RAISES = "raises ValueError"
MOST_SHOWN = 1000


@dataclass(frozen=True)
class Outcomes:
    """What an answer returned for each call, or raised, as plain data.

    Attributes:
        got: in the order of the calls.
        again: the same, from the process that was asked in the reverse order.
        explained: what an exception means, by the number of the call.
        printed: what the answer printed the first time.
        ended: status and reason, where the answer could not be called to the end.
    """

    got: list[Any]
    again: list[Any]
    explained: dict[int, str]
    printed: str
    ended: tuple[Status, str] | None = None

    def meaning(self, expected: Sequence[Any]) -> str:
        """Returns what the first unexpected exception means, or an empty text if there is none."""
        unwanted = (self.explained.get(i) for i, one in enumerate(expected) if one != RAISES)
        return next(filter(None, unwanted), "")


def call_twice(
    contract: Contract, submission: Submission, pool: ChildPool, calls: list[Call]
) -> Outcomes:
    """Makes all calls of the answer in one process, and in another from the last to the first."""
    sent = [messages.Call(tuple(args), dict(kwargs)) for args, kwargs in calls]
    order = range(len(calls))
    runs: list[Evidence] = []
    for chosen in (order, order[::-1]):
        runs.append(collect_evidence(pool, contract, submission, sent, chosen))
        end = reason_unjudged(runs[-1], pool.limits, contract.kind)
        if end is not None:
            return Outcomes([], [], {}, runs[-1].printed, end)
    got, again = ([_outcome_of(run.values.get(i)) for i in order] for run in runs)
    explained = {
        i: reply.explained for i, reply in runs[0].values.items() if isinstance(reply, RaisedByCall)
    }
    return Outcomes(got, again, explained, runs[0].printed)


def outcome(function: Callable[..., Any], call: Call) -> Any:
    """Returns what a function of ours returns for a call as plain data, or what it raises."""
    args, kwargs = call
    try:
        result = _plain(function(*args, **kwargs))
    except ValueError:
        return RAISES
    except Exception as error:
        return f"raises {type(error).__name__}"
    if isinstance(result, float) and not math.isfinite(result):
        return float.__repr__(result)  # in words, as a worker describes it
    return result


def raised(outcome: Any) -> bool:
    """Whether an outcome is an exception, which is a text; no result of an answer is a text."""
    return isinstance(outcome, str) and outcome.startswith("raises ")


def matching_sentence(
    mistakes: Sequence[Mistake],
    calls: list[Call],
    got: list[Any],
    expected: list[Any],
    same: Callable[[Any, Any], bool],
    alike: Callable[[Any, Any], bool] | None = None,
) -> str:
    """Returns the sentence of the first mistake with the results of an answer, or an empty text.

    If no mistake has the same results for all calls, only the calls that must not raise are
    compared, because an answer that fails to raise where it must may have another mistake as well.

    Args:
        mistakes: those that are compared, in this order.
        calls: the calls.
        got: what the answer returned or raised for each.
        expected: what is right.
        same: whether a result equals the right one.
        alike: whether a result equals that of a mistake; the same as `same`, if not given.
    """
    alike = alike or same
    everywhere = list(zip(calls, got, expected, strict=True))
    answered = [triple for triple in everywhere if not raised(triple[2])]
    if all(same(one, right) for _, one, right in answered):
        answered = []
    for some in filter(None, (everywhere, answered)):
        for mistake in mistakes:
            if all(alike(one, outcome(mistake.function, call)) for call, one, _ in some):
                return mistake.sentence
    return ""


def in_words(contract: Contract, call: Call) -> str:
    """Returns the call as a learner would write it; of a long one the beginning."""
    arguments = ", ".join(_arguments(*call))
    if len(arguments) > MOST_SHOWN:
        arguments = f"{arguments[:MOST_SHOWN]}... and so on"
    return f"{contract.id}({arguments})"


def _arguments(args: tuple, kwargs: dict) -> Iterator[str]:
    yield from map(repr, args)
    yield from (f"{name}={value!r}" for name, value in kwargs.items())


def _outcome_of(reply: ReturnedValue | RaisedByCall | None) -> Any:
    if reply is None:
        return "nothing"
    if isinstance(reply, RaisedByCall):
        return RAISES if reply.is_value_error else f"raises {reply.raised}"
    try:
        return _plain(reply.result)
    except RecursionError:
        return "lists in lists, too deep to be read"


def _plain(value: Any) -> Any:
    """Returns the value with tuples as lists, so that an answer may return either."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
