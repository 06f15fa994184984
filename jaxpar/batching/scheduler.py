"""Which requests get which tokens computed in a step: continuous batching. No JAX.

A step first computes one token of each request that generates. What is left of its budget of tokens
goes to prompts, in chunks and in the order of arrival. A request leaves as soon as it ends, and
another takes its row in the next step.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from jaxpar.batching.pages import FullError, PagePool
from jaxpar.checks import check_positive


@dataclass(eq=False)
class Generation:
    """A request while it is served.

    Attributes:
        name: what the request is called.
        tokens: the prompt and what has been generated.
        prompt: how many of them are the prompt.
        limit: how many tokens there may be in all.
        arrival: its place in the order of arrival.
        computed: how many tokens have their keys and values in the cache.
        row: its row in the batch; None while it waits.
    """

    name: str
    tokens: list[int]
    limit: int
    arrival: int = 0
    computed: int = 0
    row: int | None = None
    prompt: int = field(init=False)

    def __post_init__(self) -> None:
        """Takes the first tokens for the prompt."""
        self.prompt = len(self.tokens)

    @property
    def decodes(self) -> bool:
        """Whether only its newest token is left to compute."""
        return self.computed == len(self.tokens) - 1


class Work(NamedTuple):
    """What a step computes for one request: `count` tokens from `start` on.

    In a decode, those behind the newest token are drafts, of which there may be fewer.
    """

    generation: Generation
    start: int
    count: int
    decodes: bool

    @property
    def row(self) -> int:
        """The row of the request, which runs."""
        assert self.generation.row is not None
        return self.generation.row

    @property
    def ends_known(self) -> bool:
        """Whether the token after the last known one follows from it."""
        return self.decodes or self.start + self.count == len(self.generation.tokens)


class Scheduler:
    """Requests that wait, and those that run.

    When pages run out, the request that arrived last is preempted: its pages are taken, and it
    waits, as the first, until all its tokens can be computed again. The one that arrived first is
    never preempted, so each request ends.

    Attributes:
        waiting: those without a row, in the order of arrival.
        running: those with a row, in the order of arrival.
        preempted: how often a request was preempted.
        shared: how many tokens needed no computing, since their pages were shared.

    Source: Yu et al. 2022 (Orca), section 4; Agrawal et al. 2024 (Sarathi-Serve), section 4;
        Kwon et al. 2023 (PagedAttention), section 4.5

    Raises:
        ValueError: a number is below 1, or the budget is too small for a token of each slot.
    """

    def __init__(
        self, pool: PagePool, *, slots: int, chunk: int, budget: int, drafts: int = 0
    ) -> None:
        check_positive("Scheduler", {"slots": slots, "chunk": chunk, "budget": budget})
        if budget < slots * (1 + drafts):
            raise ValueError(
                f"Scheduler: a budget of {budget} tokens for {slots} slots with {1 + drafts} "
                f"each; use {slots * (1 + drafts)} or more, or fewer slots"
            )
        self.pool, self.chunk, self.budget, self.drafts = pool, chunk, budget, drafts
        self.waiting: list[Generation] = []
        self.running: list[Generation] = []
        self.preempted = self.shared = 0
        self._rows = list(reversed(range(slots)))
        self._arrivals = 0

    def add(self, one: Generation) -> None:
        """Lets a request wait.

        Raises:
            ValueError: it could not even run alone, or another one has its name.
        """
        names = {other.name for other in (*self.waiting, *self.running)}
        if one.name in names:
            raise ValueError(
                f"Scheduler: {one.name!r} is being served; use another name, or wait for its end"
            )
        # The last token of all is never computed.
        needed = self.pool.needed(max(one.prompt, one.limit - 1))
        if needed > self.pool.pages:
            most = self.pool.pages * self.pool.page_size + 1
            raise ValueError(
                f"Scheduler: {one.prompt} tokens of a prompt and {one.limit - one.prompt} more "
                f"need {needed} pages; there are {self.pool.pages}; use {most} tokens or fewer"
            )
        one.arrival, self._arrivals = self._arrivals, self._arrivals + 1
        self.waiting.append(one)

    def next(self) -> list[Work]:
        """What the next step computes: decodes first, then chunks; nothing if all have ended."""
        work, left = [], self.budget
        for one in list(self.running):
            if one.row is None:  # it was preempted for one before it
                continue
            drafts = min(self.drafts, one.limit - len(one.tokens) - 1, self._spare(one))
            if one.decodes and self._has_room(one, len(one.tokens) + drafts):
                work.append(Work(one, one.computed, 1 + drafts, decodes=True))
                left -= 1 + drafts
        for one in self.running:
            if not one.decodes and left:
                work.append(self._chunk_of(one, left))
                left -= work[-1].count
        while left and self.waiting and self._admitted(self.waiting[0]):
            work.append(self._chunk_of(self.waiting.pop(0), left))
            left -= work[-1].count
        return work

    def record(self, work: Work, tokens: Sequence[int]) -> None:
        """Says that a work is done, and which tokens follow from it.

        Of a decode with drafts there are as many as were right, and the one after them.
        """
        one = work.generation
        one.computed = work.start + (len(tokens) if work.decodes else work.count)
        one.tokens.extend(tokens)
        self.pool.filled(one.name, one.tokens, one.computed)

    def finish(self, one: Generation) -> None:
        """Lets a request leave, whether it waits or runs."""
        if one.row is None:
            self.waiting.remove(one)
        else:
            self._leave(one)

    def _chunk_of(self, one: Generation, left: int) -> Work:
        count = min(self.chunk, left, len(one.tokens) - one.computed)
        return Work(one, one.computed, count, decodes=one.decodes)

    def _spare(self, one: Generation) -> int:
        """Tokens behind those of a request for which there is room without preempting another."""
        pages = len(self.pool.tables[one.name]) + self.pool.free
        return max(0, pages * self.pool.page_size - len(one.tokens))

    def _has_room(self, one: Generation, length: int) -> bool:
        """Makes room for `length` tokens; False: the request itself had to be preempted."""
        while one.row is not None:
            try:
                copies = self.pool.grow(one.name, length)
            except FullError:
                self._preempt(self.running[-1])
            else:
                assert not copies  # only full pages are shared here, and those are never written
                return True
        return False

    def _admitted(self, one: Generation) -> bool:
        """Gives the first that waits a row and pages for all its tokens, if there are any."""
        if not self._rows or not self.pool.fits(one.tokens, len(one.tokens)):
            return False
        one.computed = self.pool.add(one.name, one.tokens)
        self.shared += one.computed
        one.row = self._rows.pop()
        self.running.append(one)
        return True

    def _preempt(self, one: Generation) -> None:
        self._leave(one)
        one.computed = 0
        self.waiting.insert(0, one)
        self.preempted += 1

    def _leave(self, one: Generation) -> None:
        self.pool.release(one.name)
        self.running.remove(one)
        assert one.row is not None
        self._rows.append(one.row)
        one.row = None
