"""The engine: requests go in, and tokens come out, step by step."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jax import Array
from jax.sharding import Mesh
from jaxtyping import PyTree

from jaxpar.batching.pages import PagePool
from jaxpar.batching.scheduler import Generation, Scheduler, Work
from jaxpar.checks import check_one_of, check_positive
from jaxpar.model import Settings
from jaxpar.serve.batch import Rows
from jaxpar.serve.model import Model, after_each, after_last
from jaxpar.serve.sampling import Sampling as Sampling
from jaxpar.serve.speculate import Draft, DraftModel, NGram, Speculation

CACHES = ("model", "int8")
GREEDY = Sampling()


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Attributes:
        name: what its events are called by; no two that are served have the same.
        prompt: the tokens to go on from; at least one.
        tokens: how many tokens are generated at most.
        sampling: how each is chosen.
        stop: tokens at which it ends; they are not told.
    """

    name: str
    prompt: tuple[int, ...]
    tokens: int
    sampling: Sampling = GREEDY
    stop: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Event:
    """What a step has told of one request.

    Attributes:
        name: the request.
        tokens: the new tokens, in order.
        ended: why it has ended: "length", "stop" or "cancelled"; None: it goes on.
    """

    name: str
    tokens: tuple[int, ...]
    ended: str | None = None


@dataclass(frozen=True)
class Sizes:
    """How much an engine holds and computes at once.

    Attributes:
        slots: how many requests run at once.
        context: how many tokens a request has at most, with its prompt.
        chunk: how many tokens of a prompt are computed at once.
        budget: how many tokens a step computes at most; None: a chunk, and one of each slot.
        page_size: the tokens of a page; None: each slot has a place of its own for `context`.
        pages: how many there are; None: as many as all slots can need.

    Raises:
        ValueError: a number is below 1.
    """

    slots: int = 8
    context: int = 512
    chunk: int = 64
    budget: int | None = None
    page_size: int | None = 16
    pages: int | None = None

    def __post_init__(self) -> None:
        """Checks every number."""
        given = {name: size for name, size in vars(self).items() if size is not None}
        check_positive("Sizes", given)


@dataclass(frozen=True)
class Stats:
    """What an engine has done, and what it holds now.

    Attributes:
        waiting: requests that wait.
        running: requests that run.
        pages_free: pages that no request has.
        pages_held: pages that requests have; with `pages_free` these are all.
        steps: steps so far.
        prefilled: tokens of prompts that were computed, also again after a preemption.
        shared: tokens that needed no computing, since another request had the same beginning.
        generated: tokens that were generated.
        drafted: tokens that were guessed.
        accepted: tokens that were guessed and right.
        preempted: how often a request lost its pages.
        programs: how many programs have been compiled.
    """

    waiting: int = 0
    running: int = 0
    pages_free: int = 0
    pages_held: int = 0
    steps: int = 0
    prefilled: int = 0
    shared: int = 0
    generated: int = 0
    drafted: int = 0
    accepted: int = 0
    preempted: int = 0
    programs: int = 0


class _Begun(NamedTuple):
    """Works that are being computed: the row of each in the result, and what was guessed for it."""

    works: Sequence[Work]
    rows: Sequence[int]
    guesses: Sequence[Sequence[int]]
    chosen: Array


class Engine:
    """A decoder that answers requests. It is used by one thread.

    `params` are as `jaxpar.model.init` makes them. On a mesh the devices of tp split each layer,
    and the cache by kv heads; those of cp split the cache by positions. `cache` says in which form
    keys and values are kept: "model", as they are computed, or "int8". Two programs are compiled at
    once, and no others later: one for a chunk of a prompt, one for a token of each slot with the
    drafts behind it. A draft that is a model has two of its own.

    Raises:
        ValueError: the sizes do not fit the model, the mesh or one another.
    """

    def __init__(
        self,
        settings: Settings,
        params: PyTree[Array],
        sizes: Sizes | None = None,
        *,
        mesh: Mesh | None = None,
        cache: str = "model",
        speculation: Speculation | None = None,
    ) -> None:
        self.settings, self.sizes = settings, (sizes := sizes or Sizes())
        _check(settings, sizes, cache, speculation)
        self._drafts = speculation.most if speculation else 0
        self._pool = _pool(sizes)
        self._scheduler = Scheduler(
            self._pool,
            slots=sizes.slots,
            chunk=sizes.chunk,
            budget=sizes.budget or sizes.chunk + sizes.slots * (1 + self._drafts),
            drafts=self._drafts,
        )
        bits = 8 if cache == "int8" else None
        model = partial(
            Model, mesh=mesh, places=self._pool.pages, size=self._pool.page_size, bits=bits
        )
        pages = None if sizes.page_size is None else self._pool.needed(sizes.context)
        rows = partial(Rows, pages=pages)
        self._chunk_rows = partial(rows, 1, sizes.chunk, own=False)
        self._decode_rows = partial(rows, sizes.slots, 1 + self._drafts, own=True)
        chunk, decode = self._chunk_rows().batch(), self._decode_rows().batch()
        self._model = model(settings, params)
        self._chunk = self._model.compiled(after_last, chunk)
        self._decode = self._model.compiled(after_each, decode)
        self._draft: Draft | None = None
        if speculation and speculation.settings:
            smaller = model(speculation.settings, speculation.params)
            self._draft = DraftModel(smaller, self._drafts, chunk, decode)
        elif speculation:
            self._draft = NGram()
        self._requests: dict[str, Request] = {}
        self._generations: dict[str, Generation] = {}
        self._told: list[Event] = []
        self._steps = self._prefilled = self._generated = self._drafted = self._accepted = 0

    @property
    def busy(self) -> bool:
        """Whether a step would compute or tell anything."""
        return bool(self._generations or self._told)

    @property
    def stats(self) -> Stats:
        """What the engine has done, and what it holds now."""
        scheduler, pool = self._scheduler, self._pool
        return Stats(
            waiting=len(scheduler.waiting),
            running=len(scheduler.running),
            pages_free=pool.free,
            pages_held=pool.held,
            steps=self._steps,
            prefilled=self._prefilled,
            shared=scheduler.shared,
            generated=self._generated,
            drafted=self._drafted,
            accepted=self._accepted,
            preempted=scheduler.preempted,
            programs=self._model.programs + (self._draft.programs if self._draft else 0),
        )

    def submit(self, request: Request) -> None:
        """Lets a request wait for its turn.

        Raises:
            ValueError: it can never be served: it is too long, has no or unknown tokens, or a name
                that is being served.
        """
        prompt, context = len(request.prompt), self.sizes.context
        where = f"Engine: request {request.name!r}"
        if not prompt or request.tokens < 1:
            raise ValueError(
                f"{where}: {prompt} tokens of a prompt and {request.tokens} to generate; use 1 or "
                "more of each"
            )
        if prompt + request.tokens > context:
            left = context - prompt
            raise ValueError(
                f"{where}: {prompt} tokens of a prompt and {request.tokens} to generate; a request "
                f"has at most {context} in all; use a shorter prompt"
                + (f", or at most {left} tokens" if left > 0 else "")
            )
        v = self.settings.vocabulary
        if unknown := [token for token in request.prompt if not 0 <= token < v]:
            raise ValueError(
                f"{where}: token {unknown[0]}; the vocabulary has {v}; use 0 to {v - 1}"
            )
        one = Generation(request.name, list(request.prompt), prompt + request.tokens)
        self._scheduler.add(one)
        self._requests[request.name], self._generations[request.name] = request, one

    def cancel(self, name: str) -> None:
        """Ends a request; the next step tells so. One that has ended or never was is left alone."""
        if name in self._generations:
            self._end(name)
            self._told.append(Event(name, (), "cancelled"))

    def step(self) -> list[Event]:
        """Computes one step, and tells what came of it; nothing, once all requests have ended."""
        told, self._told = self._told, []
        works = self._scheduler.next()
        self._steps += bool(works)
        decodes = [work for work in works if work.decodes]
        # All is begun before anything is waited for.
        results = [self._run_decode(decodes)] if decodes else []
        results += [self._run_chunk(work) for work in works if not work.decodes]
        for begun in results:
            chosen = np.asarray(begun.chosen).tolist()
            for work, row, guess in zip(begun.works, begun.rows, begun.guesses, strict=True):
                told += self._tell(work, chosen[row], guess)
        return told

    def _run_decode(self, works: Sequence[Work]) -> _Begun:
        """Begins a token of each row, with drafts behind it."""
        rows = self._decode_rows()
        for work in works:
            self._fill(rows, work.row, work)
        guesses: Sequence[Sequence[int]] = [[] for _ in works]
        if self._draft:
            guesses = self._draft.guess(works, rows.batch())
            for work, guess in zip(works, guesses, strict=True):
                rows.guess(work.row, guess)
        self._drafted += sum(map(len, guesses))
        return _Begun(works, [work.row for work in works], guesses, self._decode(rows.batch()))

    def _run_chunk(self, work: Work) -> _Begun:
        """Begins a chunk of a prompt."""
        rows = self._chunk_rows()
        self._fill(rows, 0, work)
        if self._draft:
            self._draft.see(rows.batch())
        return _Begun([work], [0], [[]], self._chunk(rows.batch()))

    def _fill(self, rows: Rows, row: int, work: Work) -> None:
        name = work.generation.name
        rows.fill(row, work, self._pool.tables[name], self._requests[name].sampling)

    def _tell(self, work: Work, chosen: Sequence[int], guess: Sequence[int]) -> list[Event]:
        """What has come of a work, whose next tokens were chosen as these."""
        one = work.generation
        self._prefilled += 0 if work.decodes else work.count
        if not work.ends_known:
            self._scheduler.record(work, [])
            return []
        right = 0
        while right < len(guess) and guess[right] == chosen[right]:
            right += 1
        new = chosen[: right + 1]
        self._scheduler.record(work, new)
        self._accepted += right
        self._generated += len(new)
        stop = self._requests[one.name].stop
        shown = next((new[:i] for i, token in enumerate(new) if token in stop), new)
        ended = "stop" if len(shown) < len(new) else None
        if ended is None and len(one.tokens) == one.limit:
            ended = "length"
        if ended:
            self._end(one.name)
        return [Event(one.name, tuple(shown), ended)]

    def _end(self, name: str) -> None:
        self._scheduler.finish(self._generations.pop(name))
        del self._requests[name]


def _pool(sizes: Sizes) -> PagePool:
    """The pages; a slot is a page that has all tokens of a request."""
    if sizes.page_size is None:
        return PagePool(sizes.slots, sizes.context)
    of_one = -(-sizes.context // sizes.page_size)
    return PagePool(sizes.pages or sizes.slots * of_one, sizes.page_size)


def _check(settings: Settings, sizes: Sizes, cache: str, speculation: Speculation | None) -> None:
    """Refuses sizes that do not fit the model or one another."""
    check_one_of("Engine", "cache", cache, CACHES)
    if settings.positions == "learned" and sizes.context > settings.sequence:
        raise ValueError(
            f"Engine: a context of {sizes.context} tokens; the learned positions of the model "
            f"reach {settings.sequence}; use {settings.sequence} or fewer"
        )
    if sizes.page_size is None and (sizes.pages or cache == "int8"):
        what = f"{sizes.pages} pages" if sizes.pages else "a cache in int8"
        raise ValueError(
            f"Engine: {what} without a page_size: such a cache is in pages; give page_size, or "
            "leave it out"
        )
    if speculation and speculation.settings:
        ours, theirs = settings.vocabulary, speculation.settings.vocabulary
        if ours != theirs:
            raise ValueError(
                f"Engine: a draft with a vocabulary of {theirs}, and a model with one of {ours}; "
                "use a draft that was trained with the same tokenizer"
            )
