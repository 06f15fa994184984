"""Calls of an answer with plain arguments: twice, in two fresh processes, in different orders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxpar.contracts.base import Contract
from jaxpar.grading.cases import encode
from jaxpar.grading.evidence import Evidence, collect, stopped, worker_job
from jaxpar.grading.processes import Pool
from jaxpar.grading.submission import Submission
from jaxpar.grading.verdict import Status

Call = tuple[tuple, dict]

RAISES = "raises ValueError"


@dataclass(frozen=True)
class Replies:
    """What an answer returned for each call, or raised, as plain data.

    Attributes:
        got: in the order of the calls.
        again: the same from the process that was asked in the reverse order.
        printed: what the answer printed the first time.
        ended: status and reason, where there are no replies.
    """

    got: list[Any]
    again: list[Any]
    explained: dict[int, str]
    printed: str
    ended: tuple[Status, str] | None = None

    def meaning(self, expected: Sequence[Any]) -> str:
        """What the first exception means that was not asked for."""
        unwanted = (self.explained.get(i) for i, one in enumerate(expected) if one != RAISES)
        return next(filter(None, unwanted), "")


def ask(contract: Contract, submission: Submission, pool: Pool, calls: list[Call]) -> Replies:
    """Calls the answer, each time from another end."""
    job = worker_job(contract, submission, pool.limits)
    job["calls"] = [[encode(tuple(args)), encode(dict(kwargs))] for args, kwargs in calls]
    order = list(range(len(calls)))
    runs: list[Evidence] = []
    for chosen in (order, order[::-1]):
        runs.append(collect(pool, job | {"order": chosen}))
        end = stopped(runs[-1], pool.limits)
        if end is not None:
            return Replies([], [], {}, runs[-1].printed, end)
    got, again = ([_replied(run.values.get(i)) for i in order] for run in runs)
    values = runs[0].values.items()
    explained = {i: value["explained"] for i, value in values if "explained" in value}
    return Replies(got, again, explained, runs[0].printed)


def outcome(function: Callable[..., Any], call: Call) -> Any:
    """What a function of ours returns for a call, or raises, as plain data."""
    args, kwargs = call
    try:
        return _plain(function(*args, **kwargs))
    except ValueError:
        return RAISES
    except Exception as error:
        return f"raises {type(error).__name__}"


def raised(outcome: Any) -> bool:
    """Whether it is no result; no result of an answer is a text."""
    return isinstance(outcome, str) and outcome.startswith("raises ")


def in_words(contract: Contract, call: Call) -> str:
    """The call as a learner would write it."""
    return f"{contract.id}({', '.join(_arguments(*call))})"


def _arguments(args: tuple, kwargs: dict) -> Iterator[str]:
    yield from map(repr, args)
    yield from (f"{name}={value!r}" for name, value in kwargs.items())


def _replied(value: dict | None) -> Any:
    if value is None:
        return "nothing"
    if "raised" in value:
        return RAISES if value.get("is_value_error") else f"raises {value['raised']}"
    try:
        return _plain(value["result"])
    except RecursionError:
        return "lists in lists, too deep to be read"


def _plain(value: Any) -> Any:
    """Tuples as lists, so that both are right."""
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
