"""The engine: requests go in, and tokens come out, step by step."""

from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh
from jaxtyping import Array, PyTree

from jaxpar.model import Settings


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: what logits are divided by; 0 takes the most likely token.
        top_k: only so many of the most likely tokens are chosen from; 0: all.
        top_p: only the most likely tokens are, whose probabilities add up to this; 1: all.
        seed: chooses the random numbers. The same seed gives the same text, whatever else is
            computed beside it.

    Raises:
        ValueError: a number is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0


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
    sampling: Sampling = Sampling()
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
    """

    slots: int = 8
    context: int = 512
    chunk: int = 64
    budget: int | None = None
    page_size: int | None = 16
    pages: int | None = None


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


class Engine:
    """A decoder that answers requests. It is used by one thread.

    `params` are as `jaxpar.model.init` makes them; on a mesh with an axis tp its devices split
    each layer, and the cache by kv heads.

    Raises:
        ValueError: the sizes do not fit the model, the mesh or one another.
    """

    def __init__(
        self,
        settings: Settings,
        params: PyTree[Array],
        sizes: Sizes = Sizes(),
        *,
        mesh: Mesh | None = None,
        cache: str = "model",
        draft: Any = None,
    ) -> None:
        raise NotImplementedError

    def submit(self, request: Request) -> None:
        """Lets a request wait for its turn.

        Raises:
            ValueError: it can never be served: it is too long, has no or unknown tokens, or a name
                that is being served.
        """
        raise NotImplementedError

    def cancel(self, name: str) -> None:
        """Ends a request; the next step tells so. One that has ended or never was is left alone."""
        raise NotImplementedError

    def step(self) -> list[Event]:
        """Computes one step, and tells what came of it; nothing, once all requests have ended."""
        raise NotImplementedError

    @property
    def stats(self) -> Stats:
        """What the engine has done, and what it holds now."""
        raise NotImplementedError
