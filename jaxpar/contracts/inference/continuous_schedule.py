"""Which requests get which tokens computed in each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from jaxpar.batching.schedule import continuous_schedule
from jaxpar.contracts.base import Call, Contract, wrong

Rows = list[list[tuple[int, int]]]
Requests = Sequence[tuple[int, int, int]]


def _streams(rng: np.random.Generator) -> list[Call]:
    """By hand, one corner each; then random ones; then what is refused."""

    def call(requests: Requests, slots: int, budget: int) -> Call:
        return ([list(one) for one in requests],), {"slots": slots, "budget": budget}

    calls = [
        call([(0, 3, 4)], 1, 8),
        call([(0, 9, 2)], 1, 4),  # a prompt longer than the budget
        call([(0, 3, 5), (0, 3, 2), (0, 3, 2)], 2, 8),  # a slot that is free before the others
        call([(0, 2, 6), (1, 20, 2)], 2, 6),  # decodes while a prompt is computed
        call([(0, 5, 1), (0, 4, 1), (0, 6, 1)], 3, 7),  # prompts that share a step
        call([(5, 2, 2), (0, 2, 2), (2, 1, 1)], 1, 3),  # not in the order of arrival
        call([(3, 1, 1), (9, 1, 2)], 2, 2),  # steps in which nothing is to be done
        call([(0, 5, 3), (0, 9, 2), (1, 1, 2), (7, 3, 1), (0, 2, 2)], 2, 4),
        call([(0, 1, 1)], 1, 1),
        call([(0, 7, 3), (0, 2, 4), (0, 6, 2)], 3, 3),
        call([], 2, 4),
    ]
    for count, slots, spare, longest in (
        (6, 2, 3, 9),
        (9, 3, 0, 12),
        (12, 4, 9, 30),
        (25, 7, 5, 8),
    ):
        for _ in range(2):
            n = int(rng.integers(count, 2 * count))
            arrivals = rng.integers(0, 3 * n, n)
            sizes = rng.integers(1, longest, (n, 2))
            stream = [(int(a), int(p), int(o)) for a, (p, o) in zip(arrivals, sizes, strict=True)]
            more = slots + int(rng.integers(3))
            calls.append(call(stream, more, more + spare + int(rng.integers(4))))
    long = [(0, int(p), int(o)) for p, o in rng.integers(40, 90, (8, 2))]
    many = [(0, int(p), int(o)) for p, o in rng.integers(1, (5, 30), (45, 2))]
    calls += [call(long, 8, 64 + int(rng.integers(9))), call(many, int(rng.integers(30, 38)), 60)]
    # Without requests, where an answer that does not look would never end.
    refused = [([], 0, 4), ([], -1, 4), ([], 4, 3), ([], 2, 0), ([(0, 3, 2)], 3, 2)]
    refused += [([(-1, 3, 2)], 1, 4), ([(0, 0, 2)], 1, 4), ([(0, -3, 2)], 1, 4)]
    refused += [([(0, 3, 0)], 1, 4), ([(0, 3, 2), (0, 3, -1)], 2, 4)]
    return [*calls, *(call(*one) for one in refused)]


CONTRACT = Contract(
    kind="value",
    task="return for each step the pairs (request, tokens) that it computes",
    reference=continuous_schedule,
    oracle=continuous_schedule,
    values=_streams,
    hints=(
        "Keep for each request how many of its tokens are computed, and two lists: those that wait "
        "and those in a slot, each in the order of arrival. What does one step do to them?",
        "A request needs prompt + output - 1 tokens computed in all, for the last one is only "
        "generated. It has one left to compute now if computed >= prompt - 1.",
        "In a step: let those come whose arrival is this step; give one token to each in a slot "
        "with one left; then chunks of min(left of the prompt, left of the budget) to the others "
        "in a slot; then admit while there are budget and a slot. Only after that count what was "
        "computed, and take out who has ended.",
    ),
    minimal="A slot is empty only if nobody waits, and the budget is left unused only if nothing "
    "is left to compute that may be: that is all that a scheduler can do for the number of steps.",
    harder="Pages can run out in the middle of an answer. Who must give some back, so that every "
    "request ends?",
)


@dataclass
class _Served:
    """A request on its way."""

    number: int
    arrival: int
    prompt: int
    output: int
    computed: int = 0
    late: int = 0

    @property
    def needed(self) -> int:
        return self.prompt + self.output - 1

    @property
    def one_left(self) -> bool:
        return self.computed >= self.prompt - 1


@dataclass
class _Rules:
    """How the steps are made; each can be another one."""

    order: Callable[[_Served], tuple] = lambda one: (one.arrival, one.number)
    admits: Callable[[list[_Served], int], bool] = lambda running, slots: len(running) < slots
    chunk: Callable[[_Served, int], int] = lambda one, left: min(one.prompt - one.computed, left)
    prompts_first: bool = False
    several_chunks: bool = True
    budget_for_decodes: bool = True
    needed: Callable[[_Served], int] = lambda one: one.needed
    idle_rows: bool = True
    late: int = 0
    leaves_late: int = 0


def _simulated(requests: Requests, slots: int, budget: int, rules: _Rules) -> Rows:
    continuous_schedule([], slots=slots, budget=budget)  # raises where it must
    for one in requests:
        if one[0] < 0 or one[1] < 1 or one[2] < 1:
            raise ValueError("no such request")
    coming = sorted((_Served(i, *one) for i, one in enumerate(requests)), key=rules.order)
    waiting: list[_Served] = []
    running: list[_Served] = []
    rows: Rows = []
    step = 0
    while coming or waiting or running:
        waiting += [one for one in coming if one.arrival + rules.late <= step]
        coming = [one for one in coming if one.arrival + rules.late > step]
        waiting.sort(key=rules.order)
        row = _one_step(running, waiting, slots, budget, rules)
        if row or rules.idle_rows:
            rows.append([(one.number, count) for one, count in row])
        for one, count in row:
            one.computed += count
        for one in list(running):
            if one.computed >= rules.needed(one):
                one.late += 1
                if one.late > rules.leaves_late:
                    running.remove(one)
        step += 1
    return rows


def _one_step(
    running: list[_Served], waiting: list[_Served], slots: int, budget: int, rules: _Rules
) -> list[tuple[_Served, int]]:
    """What one step computes; those that it admits move to `running`."""
    row: list[tuple[_Served, int]] = []
    left, chunks = budget, 0

    def give(one: _Served, count: int, costs: int) -> None:
        nonlocal left
        if count and left and all(one is not other for other, _ in row):
            row.append((one, count))
            left -= costs

    def decode() -> None:
        for one in running:
            if one.one_left and one.computed < rules.needed(one):
                give(one, 1, rules.budget_for_decodes)

    def fill() -> None:
        nonlocal chunks
        for one in running:
            if not one.one_left and (rules.several_chunks or not chunks):
                give(one, *2 * [rules.chunk(one, left)])
                chunks += 1
        while left and waiting and rules.admits(running, slots):
            count = rules.chunk(waiting[0], left)
            if not count or (chunks and not rules.several_chunks):
                break
            running.append(waiting.pop(0))
            give(running[-1], count, count)
            chunks += 1

    for part in (fill, decode) if rules.prompts_first else (decode, fill):
        part()
    return row


@wrong("values")
def batch_waits_for_its_longest(requests: Requests, *, slots: int, budget: int) -> Rows:
    """A slot stays empty until all requests of the batch have ended; let the first that waits take
    it in the next step."""

    def admits(running: list[_Served], slots: int) -> bool:
        return len(running) < slots and all(one.computed == 0 for one in running)

    return _simulated(requests, slots, budget, _Rules(admits=admits))


@wrong("values")
def slot_free_one_step_late(requests: Requests, *, slots: int, budget: int) -> Rows:
    """A slot is free one step too late; who has generated all tokens leaves at the end of that
    step."""
    return _simulated(requests, slots, budget, _Rules(leaves_late=1))


@wrong("values")
def last_token_computed(requests: Requests, *, slots: int, budget: int) -> Rows:
    """You compute the last token of an answer, too; nothing follows it, so a request computes
    prompt + output - 1 tokens."""
    return _simulated(requests, slots, budget, _Rules(needed=lambda one: one.needed + 1))


@wrong("values")
def first_token_forgotten(requests: Requests, *, slots: int, budget: int) -> Rows:
    """You end a request one token too early; it computes prompt + output - 1 tokens, for the last
    token of the prompt generates the first one."""
    needed = lambda one: max(one.prompt, one.needed - 1)  # noqa: E731
    return _simulated(requests, slots, budget, _Rules(needed=needed))


@wrong("values")
def prompts_before_decodes(requests: Requests, *, slots: int, budget: int) -> Rows:
    """Prompts come before requests that generate, whose users then wait for each new prompt; give
    one token to each of those first."""
    return _simulated(requests, slots, budget, _Rules(prompts_first=True))


@wrong("values")
def prompts_in_one_piece(requests: Requests, *, slots: int, budget: int) -> Rows:
    """A prompt is computed in one piece, and waits until so much budget is left, or all of it; cut
    it, and use what is left in this step."""

    def chunk(one: _Served, left: int) -> int:
        rest = one.prompt - one.computed
        return min(rest, left) if rest <= left or left == budget else 0

    return _simulated(requests, slots, budget, _Rules(chunk=chunk))


@wrong("values")
def one_prompt_in_a_step(requests: Requests, *, slots: int, budget: int) -> Rows:
    """A step computes tokens of one prompt only; go on with the next one while budget is left."""
    return _simulated(requests, slots, budget, _Rules(several_chunks=False))


@wrong("values")
def budget_for_prompts_only(requests: Requests, *, slots: int, budget: int) -> Rows:
    """You give the whole budget to prompts, and more to those that generate; both share it."""
    return _simulated(requests, slots, budget, _Rules(budget_for_decodes=False))


@wrong("values")
def shortest_prompt_first(requests: Requests, *, slots: int, budget: int) -> Rows:
    """The shortest prompt comes first, and a long one may wait for ever; take them in the order of
    arrival."""
    order = lambda one: (one.prompt, one.arrival, one.number)  # noqa: E731
    return _simulated(requests, slots, budget, _Rules(order=order))


@wrong("values")
def in_the_order_of_the_list(requests: Requests, *, slots: int, budget: int) -> Rows:
    """Requests come in the order of the list; take them in the order of arrival, and in that of the
    list where they arrive in the same step."""
    return _simulated(requests, slots, budget, _Rules(order=lambda one: (one.number,)))


@wrong("values")
def arrivals_ignored(requests: Requests, *, slots: int, budget: int) -> Rows:
    """Requests are computed before they have arrived; one is there from step `arrival` on."""
    continuous_schedule(requests, slots=slots, budget=budget)
    now = sorted(range(len(requests)), key=lambda i: requests[i][0])
    rows = continuous_schedule([(0, *requests[i][1:]) for i in now], slots=slots, budget=budget)
    return [[(now[i], count) for i, count in row] for row in rows]


@wrong("values")
def arrives_one_step_late(requests: Requests, *, slots: int, budget: int) -> Rows:
    """Requests can be computed only in the step after their arrival; one is there from step
    `arrival` on, which counts from 0."""
    return _simulated(requests, slots, budget, _Rules(late=1))


@wrong("values")
def idle_steps_left_out(requests: Requests, *, slots: int, budget: int) -> Rows:
    """Steps in which nothing is to be done are left out; each is an empty row, for time goes on."""
    return _simulated(requests, slots, budget, _Rules(idle_rows=False))


@wrong("values")
def slots_without_limit(requests: Requests, *, slots: int, budget: int) -> Rows:
    """More requests run than there are slots; each slot has room in the cache for one."""
    return _simulated(requests, slots, budget, _Rules(admits=lambda running, slots: True))


@wrong("values")
def chunks_of_half_the_budget(requests: Requests, *, slots: int, budget: int) -> Rows:
    """A prompt gets less of the budget than is left; give it all, up to the end of the prompt."""

    def chunk(one: _Served, left: int) -> int:
        return min(one.prompt - one.computed, left, max(1, budget // 2))

    return _simulated(requests, slots, budget, _Rules(chunk=chunk))


@wrong("values")
def requests_not_checked(requests: Requests, *, slots: int, budget: int) -> Rows:
    """Raise ValueError where there are no slots, the budget is below the slots, an arrival is
    negative, or a request has no prompt or generates nothing."""
    try:
        return continuous_schedule(requests, slots=slots, budget=budget)
    except ValueError:
        return []
