"""Runs a learner's function in their own terminal, where `print` and `breakpoint()` see values.

The judge exports a program from the function, so that no array has a value while its lines run.
Here they run one after the other on simulated devices, outside the judge, and what each device
holds before and after is drawn. Nothing is judged.
"""

from __future__ import annotations

import bdb
import contextlib
import copy
import inspect
import math
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import numpy as np

from jaxpar.contracts.base import Call, Contract
from jaxpar.contracts.case import Case
from jaxpar.contracts.case_in_words import describe_case
from jaxpar.drawing.held import Holders, held_lines, only_holders
from jaxpar.drawing.schedule import Timeline, Track
from jaxpar.grading import partition_specs
from jaxpar.grading.oracle import blocks, draw_inputs
from jaxpar.grading.program_export import sharded_call
from jaxpar.grading.repeated_calls import in_words, outcome, raised
from jaxpar.grading.submission import Submission
from jaxpar.mesh import make_mesh, simulate_devices
from jaxpar.schedules import Table, simulate

SEED, CALLS = 0, 3
RUNS = "-- your function runs --"
LETTERS = "A letter after a value names the only device that held it: a is the first."


class LearnerError(Exception):
    """The learner's code raised an exception; the message is its traceback, of their lines only."""


@dataclass(frozen=True)
class AnswerRun:
    """One file, and the width in which pictures are drawn."""

    contract: Contract
    submission: Submission
    width: int

    def lines(self) -> Iterator[str]:
        """Yields what is to be printed, between which the function runs.

        Raises:
            LearnerError: the learner's code raised an exception.
        """
        if self.contract.kind in ("value", "schedule"):
            yield from self._calls()
            return
        case = min(self.contract.visible, key=_elements)
        simulate_devices(math.prod(case.sizes.values()))
        yield f"{self.contract.id} on {describe_case(case)}"
        yield from self._specs(case) if self.contract.kind == "specs" else self._program(case)

    def _program(self, case: Case) -> Iterator[str]:
        drawn = draw_inputs(case, np.random.default_rng(SEED))
        names = _numbered([name for name, _ in case.arrays()])
        layouts = [leaf.layout for _, leaf in case.arrays()]
        given = {
            name: _by_device(case, blocks(array, case, layout))
            for name, array, layout in zip(names, drawn, layouts, strict=True)
        }
        holders = only_holders([[*shards.values()] for shards in given.values()])
        yield from self._pictures(given, holders)
        yield from ("", *([LETTERS] if holders else []), RUNS)
        function = answer_function(self.submission, self.contract.id)
        with only_their_lines(self.submission.path):
            results = sharded_call(function, case)(*drawn)
            found = {f"result{place}": np.asarray(array) for place, array in results.items()}
        returned = {name: _by_device(case, array) for name, array in found.items()}
        yield from self._pictures(returned, holders)

    def _pictures(
        self, arrays: dict[str, dict[str, np.ndarray]], holders: Holders
    ) -> Iterator[str]:
        for name, shards in arrays.items():
            yield ""
            yield from held_lines(name, shards, holders, self.width)

    def _specs(self, case: Case) -> Iterator[str]:
        yield from ("", RUNS)
        function = answer_function(self.submission, self.contract.id)
        with only_their_lines(self.submission.path):
            specs = partition_specs.returned(function, case)
        wrong = partition_specs.complaint(case, specs)
        if wrong:
            yield from ("", wrong)
            return
        yield from ("", "leaf: shape, spec, what each device holds")
        leaves = partition_specs.leaves(case).items()
        mesh = make_mesh(case.sizes)
        for (place, shape), spec in zip(
            leaves, partition_specs.to_partition_specs(specs), strict=True
        ):
            held = jax.sharding.NamedSharding(mesh, spec).shard_shape(shape)
            yield f"  params{place}: {list(shape)}, {spec}, {list(held)}"

    def _calls(self) -> Iterator[str]:
        """Calls the function as the judge does, with the shortest arguments that are no errors."""
        assert self.contract.values
        calls = self.contract.values(np.random.default_rng(SEED))
        answered = (call for call in calls if not raised(outcome(self.contract.oracle, call)))
        chosen = sorted(answered, key=lambda call: len(repr(call)))[:CALLS]
        yield f"{self.contract.id} with {len(chosen)} of the calls that are judged"
        yield from ("", RUNS)
        function = answer_function(self.submission, self.contract.id)
        for args, kwargs in chosen:
            with only_their_lines(self.submission.path):
                result = function(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            words = in_words(self.contract, (args, kwargs))
            yield ""
            if self.contract.kind == "value":
                yield f"{words} = {result!r}"
            else:
                yield from self._schedule(words, result, (args, kwargs))

    def _schedule(self, words: str, rows: Any, call: Call) -> Iterator[str]:
        assert self.contract.pipeline
        try:
            simulation = simulate(Table.parse(rows), self.contract.pipeline.costs_of(call)[0])
            yield from Timeline((Track(words, simulation),)).to_text(self.width).splitlines()
        except (ValueError, TypeError) as error:
            yield f"{words} = {rows!r}"
            yield f"cannot be drawn: {error}"


def answer_function(submission: Submission, id: str) -> Callable[..., Any]:
    """Runs the learner's file, and returns the function of the exercise.

    Raises:
        LearnerError: the file raised an exception, or defines no such function.
    """
    module = ModuleType("answer")
    module.__dict__["__file__"] = str(submission.path)
    with only_their_lines(submission.path):
        exec(compile(submission.text, submission.path, "exec"), module.__dict__)
        if not inspect.isfunction(function := vars(module).get(id)):
            raise NameError(f"the file defines no function named {id}")
    return function


def _elements(case: Case) -> int:
    return sum(math.prod(leaf.shape) for _, leaf in case.arrays())


def _numbered(names: list[str]) -> list[str]:
    """The names, of which those that occur more than once are numbered: `params (1 of 3)`."""
    seen: dict[str, int] = dict.fromkeys(names, 0)
    numbered = []
    for name in names:
        seen[name] += 1
        several = names.count(name) > 1
        numbered.append(f"{name} ({seen[name]} of {names.count(name)})" if several else name)
    return numbered


def _by_device(case: Case, stacked: np.ndarray) -> dict[str, np.ndarray]:
    """What each device holds, by its place in the mesh: `dp 0, tp 1`."""
    return {
        ", ".join(map("{} {}".format, case.sizes, place)): stacked[place]
        for place in np.ndindex(*case.sizes.values())
    }


@contextlib.contextmanager
def only_their_lines(path: Path) -> Iterator[None]:
    """Turns an exception into a `LearnerError` with the lines of this file."""
    try:
        yield
    except bdb.BdbQuit:
        raise LearnerError("left at the breakpoint") from None
    except Exception as error:
        vars(error).pop("__notes__", None)  # JAX says there what it does with its own frames
        frames = traceback.extract_tb(error.__traceback__)
        theirs = [frame for frame in frames if frame.filename == str(path)]
        lines = [*traceback.format_list(theirs), *traceback.format_exception_only(error)]
        raise LearnerError("".join(lines).rstrip()) from None
