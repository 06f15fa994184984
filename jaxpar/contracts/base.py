"""What every contract is made of, and how the contract of an exercise is found."""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from jaxpar.contracts.case import Case, Sizes

if TYPE_CHECKING:
    import numpy as np
    from jax.sharding import PartitionSpec
    from jax.stages import Lowered

    from jaxpar.schedules import Costs, Table

Kind = Literal["program", "value", "specs", "schedule"]
PropertyName = Literal[
    "values", "gradient", "sharding", "communication", "memory", "flops", "errors",
    "order", "bubble", "in_flight",
]  # fmt: skip
Quantity = Literal["wire_bytes", "temp_bytes", "makespan"]
"""What is measured of a right answer: what a device sends in the forward pass, what the gradient
program holds beside arguments and results, or how long a schedule takes."""
Call = tuple[tuple, dict]
"""One call of an answer with plain arguments: those by position, those by name."""

Answer = TypeVar("Answer", bound=Callable[..., Any])


@dataclass(frozen=True)
class Limit:
    """An upper bound on what is sent over one axis by collectives of these kinds.

    Args:
        kinds: kinds of collective that this limit allows, as the inspector names them.
        over: the keyword argument that names the axis; None for all axes together, where only
            `wire_bytes` is a bound.
        wire_bytes: bound on the wire bytes of one device, all collectives together.
        times: bound on how often, where that is the lesson.
        neighbours: permutes go to the next or the previous device only.
        each_way: the bounds hold for each direction around the ring separately.
        exact: these kinds only; otherwise an all-reduce may be a reduce-scatter and an all-gather.
        operand_bytes: what the collectives take in, one bound for each, where that is the lesson:
            no more collectives than bounds, and the k-th largest keeps to the k-th largest bound.
    """

    kinds: tuple[str, ...]
    over: str | None
    wire_bytes: Callable[[Sizes], float]
    times: Callable[[Sizes], int] | None = None
    neighbours: bool = False
    each_way: bool = False
    exact: bool = False
    operand_bytes: Callable[[Sizes], Sequence[int]] | None = None


@dataclass(frozen=True)
class Communication:
    """What an answer may send.

    Args:
        words: the rule in one line, for the stub and for the verdict.
        forward: alternatives; the answer must keep to all limits of one of them.
        backward: the same for the backward pass; `reference` allows the wire bytes of the
            reference over each axis, `forward` allows those of the forward limits.
    """

    words: str
    forward: tuple[tuple[Limit, ...], ...]
    backward: tuple[tuple[Limit, ...], ...] | Literal["reference", "forward"] = "reference"


@dataclass(frozen=True)
class MemoryLimit:
    """Temp bytes of a device: at most `multiple` times those of the reference.

    For the gradient `gradient_multiple` times, if there is one. Or `traded[0]` times, where wire
    bytes are at most `traded[1]` times those of the reference.
    """

    words: str
    multiple: float = 1.5
    programs: tuple[Literal["forward", "gradient"], ...] = ("forward",)
    gradient_multiple: float | None = None
    traded: tuple[float, float] | None = None


@dataclass(frozen=True)
class FlopsLimit:
    """Flops of matrix products on a device: at most `multiple` times those of the reference.

    Or `traded[0]` times, where temp bytes are at most `traded[1]` times those of the reference.
    With `may_recompute`, a gradient may have those of one forward pass more. The operands are of
    one of `dtypes`, if any are named. With `large`, there are as few products, too: at most
    `multiple` times as many as in the reference, so that none is of fewer rows than need be.
    """

    words: str
    multiple: float = 1.0
    programs: tuple[Literal["forward", "gradient"], ...] = ("gradient",)
    traded: tuple[float, float] | None = None
    may_recompute: bool = False
    dtypes: tuple[str, ...] = ()
    large: bool = False


@dataclass(frozen=True)
class PipelineLimits:
    """What a schedule may cost: at most what the table of the reference does; and what it is.

    Another schedule may cost as little, or less, so its order is held against its name as well.

    Args:
        bubble: the limit on idle time in words, as it is published.
        in_flight: the limit on what each device keeps.
        costs: the times that cells take; the bubble is judged with each. Where they depend on the
            arguments of a call, a function that takes these and returns the times.
        order: the order of the schedule in words, as it is published; empty if any will do.
        complaint: takes a table that can run and that of the reference, and returns the first place
            where it is not in that order, or None.
        most_in_flight: takes the arguments of a call, and returns what each device may keep, where
            that is not what it keeps in the reference's table.
    """

    bubble: str
    in_flight: str
    costs: tuple[Costs, ...] | Callable[..., tuple[Costs, ...]]
    order: str = ""
    complaint: Callable[[Table, Table], str | None] | None = None
    most_in_flight: Callable[..., int] | None = None

    def costs_of(self, call: Call) -> tuple[Costs, ...]:
        """The times that cells take in a call."""
        args, kwargs = call
        return self.costs(*args, **kwargs) if callable(self.costs) else self.costs


@dataclass(frozen=True)
class Expected:
    """One output as it must be.

    Args:
        blocks: what each device must hold, [*mesh sizes, *local shape].
        whole: what each device holds, [*mesh sizes, *shape], if every device returns the array of
            which it must hold its part only: right values and no sharding.
    """

    blocks: Any
    whole: Any = None


@dataclass(frozen=True)
class Mistake:
    """A wrong answer that people write.

    Attributes:
        name: the name of its function.
        function: the wrong answer itself.
        fails: the property by which it must fail.
        sentence: what the learner is told when an answer equals this mistake.
    """

    name: str
    function: Callable[..., Any]
    fails: PropertyName
    sentence: str


def wrong(fails: PropertyName) -> Callable[[Answer], Answer]:
    """Marks a function as a wrong answer, and says which property must fail first.

    In the file of an exercise, a marked function is a known mistake: its name is the mistake's
    name, and its docstring is the sentence for the learner.
    """

    def mark(function: Answer) -> Answer:
        function.fails = fails
        return function

    return mark


def mistakes_in(module: ModuleType) -> tuple[Mistake, ...]:
    """The functions of a module that are marked as wrong, in the order of their definitions."""
    return tuple(
        Mistake(name, function, function.fails, sentence_of(function))
        for name, function in vars(module).items()
        if hasattr(function, "fails")
    )


def sentence_of(mistake: Callable[..., Any]) -> str:
    """What the learner is told of a mistake: the docstring of its function, in one line."""
    return " ".join((mistake.__doc__ or "").split())


@dataclass(frozen=True)
class BadCall:
    """A call that must raise ValueError while it is traced."""

    case: Case
    because: str


@dataclass(frozen=True, eq=False)  # a contract is itself; what is compiled for it is kept by it
class Contract:
    """What a right answer to one exercise is.

    Args:
        kind: `program` for an SPMD function, `value` for plain numbers in and out, `specs` for
            partition specs of params, by which the compiler splits a program of ours, `schedule`
            for a pipeline's table, as rows of cells.
        task: one line that says what to write; the body of the stub.
        reference: the library function, of the exercise's name.
        oracle: for a program, `oracle(case, *global arrays)` in the precision of its arguments
            returns one `Expected` per output; for a value or a schedule, a right result for the
            arguments.
        hints: from a nudge to nearly the answer.
        minimal: why no right answer can send or hold less; shown after passing.
        harder: one harder variant to try; shown after passing.
        cases: two or more, which differ in mesh and size, and are shown in the stub.
        draw: draws further cases, which differ from those shown in all that could be written into
            an answer; `with_drawn` adds them.
        poison: puts NaN and infinity into those inputs of a drawn case that must not matter, or
            what is seldom drawn; the first sentence of its docstring is shown with such a case.
        shown: where drawn cases have been added to `cases`, how many of these are in the stub.
        hidden: whether nothing may be told of drawn cases but the property that fails, and how.
        mistakes: wrong answers, each with the property that rejects it; `load` adds those that the
            exercise's file marks as wrong.
        variants: other exercises of the same name, each made of the contract as it is written; the
            secret of a course chooses one of all.
        values: for a value or a schedule, draws the (args, kwargs) that it is called with.
        also_right: oracles of a value exercise that differ, where several answers are published;
            all results of an answer must be of one.
        complaint: where a value exercise has many right results, takes all calls and their
            results and returns the first thing wrong with them, or None; the oracle's result is
            then an example only.
        law: where a program has many right results, since it loses bits, takes a case, its inputs
            (global arrays) and the blocks of all outputs, and returns the first thing wrong with
            them, or None; the oracle's result is then an example only.
        partitioned: for specs, `partitioned(case, specs)` lowers that program, jitted.
        pipeline: for a schedule, what it may cost.
        challenge: what a right answer may lower further and further, measured on the first case
            or call, which is the same in every run.
        gradient: names of the arguments whose gradient is judged.
        imports: earlier exercises or library functions that an answer may import.
        tolerance: multiple of the usual tolerance; more than 1 needs a reason.
    """

    kind: Kind
    task: str
    reference: Callable[..., Any]
    oracle: Callable[..., Any]
    hints: tuple[str, ...]
    minimal: str
    harder: str
    cases: tuple[Case, ...] = ()
    draw: Callable[[np.random.Generator], tuple[Case, ...]] | None = None
    poison: Callable[[Case, list[np.ndarray]], None] | None = None
    shown: int | None = None
    hidden: bool = False
    mistakes: tuple[Mistake, ...] = ()
    variants: tuple[Callable[[Contract], Contract], ...] = ()
    values: Callable[[np.random.Generator], list[Call]] | None = None
    also_right: tuple[Callable[..., Any], ...] = ()
    complaint: Callable[[list[Call], list[Any]], str | None] | None = None
    law: Callable[[Case, list[np.ndarray], list[np.ndarray]], str | None] | None = None
    partitioned: Callable[[Case, list[PartitionSpec]], Lowered] | None = None
    pipeline: PipelineLimits | None = None
    challenge: Quantity | None = None
    gradient: tuple[str, ...] = ()
    communication: Communication | None = None
    memory: MemoryLimit | None = None
    flops: FlopsLimit | None = None
    sharding: bool = False
    errors: tuple[BadCall, ...] = ()
    imports: tuple[str, ...] = ()
    tolerance: float = 1.0

    @property
    def id(self) -> str:
        """The name of the exercise and of its function."""
        return self.reference.__name__

    @property
    def first(self) -> PropertyName:
        """The property without which no other earns points."""
        return "order" if self.kind == "schedule" else "values"

    def is_drawn(self, index: int) -> bool:
        """Whether a case was drawn, and is not in the stub."""
        return self.shown is not None and index >= self.shown

    def is_hidden(self, index: int) -> bool:
        """Whether nothing may be told of a case."""
        return self.hidden and self.is_drawn(index)

    def mistake(self, name: str) -> Mistake:
        """The first mistake of this name.

        Raises:
            KeyError: there is none.
        """
        for mistake in self.mistakes:
            if mistake.name == name:
                return mistake
        raise KeyError(name)

    @property
    def visible(self) -> tuple[Case, ...]:
        """The cases that are in the stub."""
        return self.cases[: self.shown]

    def rounds(self) -> tuple[range, ...]:
        """The cases that are judged together; after a round with an error there is no other."""
        shown, every = len(self.visible), len(self.cases)
        return (range(every),) if self.hidden else (range(shown), range(shown, every))

    def points(self) -> dict[str, int]:
        """Points of each property that applies; what does not apply goes to values."""
        if self.kind == "value":
            return {"values": 5}
        if self.kind == "schedule":
            return {"order": 4, "bubble": 3, "in_flight": 3}
        if self.kind == "specs":
            if self.communication is None:
                return {"values": 2, "sharding": 4, "memory": 4}
            return {"values": 2, "sharding": 3, "communication": 3, "memory": 2}
        points = {
            "gradient": (bool(self.gradient), 1),
            "sharding": (self.sharding, 1),
            "communication": (self.communication is not None, 3),
            "memory": (self.memory is not None, 1),
            "flops": (self.flops is not None, 1),
            "errors": (bool(self.errors), 1),
        }
        earned = {name: most for name, (applies, most) in points.items() if applies}
        return {"values": 10 - sum(earned.values())} | earned


@cache
def load(where: str) -> Contract:
    """The contract of an exercise.

    Args:
        where: the exercise's file as a module, `jaxpar.contracts.topic.exercise`; with `@k` for
            variant k of `variants(where)`, where 0 is the exercise as written.
    """
    name, _, variant = where.partition("@")
    module = importlib.import_module(name)
    written: Contract = module.CONTRACT
    found = replace(written, mistakes=(*mistakes_in(module), *written.mistakes))
    return found.variants[int(variant) - 1](found) if int(variant or 0) else found


@lru_cache(maxsize=512)
def with_drawn(where: str, seed: int, *, hidden: bool = False) -> Contract:
    """The contract of an exercise with the cases that a seed draws, after those of the stub.

    Args:
        where: as `load` takes it.
        seed: draws the cases.
        hidden: whether nothing may be told of them.
    """
    import numpy as np

    contract = load(where)
    if contract.draw is None:
        return contract
    drawn = contract.draw(np.random.default_rng([seed, zlib.crc32(contract.id.encode())]))
    cases = (*contract.cases, *drawn)
    return replace(contract, cases=cases, shown=len(contract.cases), hidden=hidden)


def variants(where: str) -> int:
    """How many variants of an exercise there are, with the one that is in the course."""
    return 1 + len(load(where.partition("@")[0]).variants)
