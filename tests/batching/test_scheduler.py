"""Every request gets all its tokens computed, in order, within budget, slots and pages."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.batching.pages import PagePool
from jaxpar.batching.scheduler import Generation, Scheduler, Work


def scheduler(pages: int = 64, page_size: int = 4, **how: int) -> Scheduler:
    return Scheduler(PagePool(pages, page_size), **{"slots": 4, "chunk": 8, "budget": 12} | how)


def generation(name: str, prompt: int, output: int) -> Generation:
    """A request whose tokens are of its own, so that it shares nothing."""
    tokens = [1000 * ord(name) + place for place in range(prompt)]
    return Generation(name, tokens, prompt + output)


def rows(works: list[Work]) -> list[tuple[str, int, int]]:
    return [(work.generation.name, work.start, work.count) for work in works]


def run(one: Scheduler, works: list[Work]) -> None:
    """Does what a step asks for: the token after another is the next number."""
    for work in works:
        if work.ends_known:
            one.record(work, [work.generation.tokens[-1] + 1])
            if len(work.generation.tokens) == work.generation.limit:
                one.finish(work.generation)
        else:
            one.record(work, [])


def test_decodes_come_first_and_chunks_take_what_is_left() -> None:
    one = scheduler()
    one.add(generation("a", 5, 9))
    one.add(generation("b", 20, 9))
    steps = []
    for _ in range(5):
        works = one.next()
        steps.append(rows(works))
        run(one, works)
    assert steps == [
        [("a", 0, 5), ("b", 0, 7)],
        [("a", 5, 1), ("b", 7, 8)],
        [("a", 6, 1), ("b", 15, 5)],
        [("a", 7, 1), ("b", 20, 1)],
        [("a", 8, 1), ("b", 21, 1)],
    ]


def test_a_row_is_taken_in_the_step_after_its_request_ended() -> None:
    one = scheduler(slots=1)
    one.add(generation("a", 3, 1))
    one.add(generation("b", 3, 1))
    for name in "ab":
        works = one.next()
        assert rows(works) == [(name, 0, 3)]
        run(one, works)
    assert one.next() == []


def test_a_prompt_of_one_token_is_a_decode() -> None:
    one = scheduler()
    one.add(generation("a", 1, 2))
    (work,) = one.next()
    assert work.decodes and work.ends_known


def test_the_youngest_is_preempted_and_computed_again() -> None:
    one = scheduler(pages=4, slots=2)
    one.add(generation("a", 7, 6))
    one.add(generation("b", 7, 6))
    run(one, one.next())
    run(one, one.next())
    assert (one.pool.free, one.preempted) == (0, 0)
    works = one.next()
    assert rows(works) == [("a", 8, 1)]
    assert (one.preempted, [other.name for other in one.waiting]) == (1, ["b"])
    b = one.waiting[0]
    while b.row is None:
        run(one, works)
        works = one.next()
    # One of its pages is still known, so only the tokens behind it are computed again.
    assert rows(works) == [("b", 4, 4)]
    while works:
        run(one, works)
        works = one.next()
    assert len(b.tokens) == b.limit


def test_equal_beginnings_are_computed_once() -> None:
    one = scheduler()
    for name in ("a", "b"):
        one.add(Generation(name, list(range(8)), 10))
        works = one.next()
        if name == "b":
            assert rows(works) == [("a", 8, 1), ("b", 4, 4)]
            assert one.shared == 4
        run(one, works)


def test_drafts_end_with_the_request() -> None:
    one = scheduler(drafts=3, budget=16)
    one.add(generation("a", 4, 4))
    run(one, one.next())
    (work,) = one.next()
    assert (work.count, work.decodes) == (3, True)  # three tokens are left, so two are guessed
    one.record(work, [1, 2])
    assert (work.generation.computed, len(work.generation.tokens)) == (6, 7)
    (work,) = one.next()
    assert work.count == 1


def test_nobody_is_preempted_for_drafts() -> None:
    one = scheduler(pages=5, slots=2, drafts=3, budget=16)
    one.add(generation("a", 7, 9))
    one.add(generation("b", 7, 3))
    for work in one.next():
        one.record(work, [1] if work.ends_known else [])
    assert rows(one.next()) == [("a", 7, 4), ("b", 7, 1)]
    assert one.preempted == 0


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"slots": 0}, "slots is 0"),
        ({"chunk": 0}, "chunk is 0"),
        ({"budget": 3}, "a budget of 3 tokens for 4 slots with 1 each; use 4 or more"),
        ({"drafts": 3}, "a budget of 12 tokens for 4 slots with 4 each; use 16 or more"),
    ],
)
def test_sizes_that_do_not_fit(how: dict[str, int], says: str) -> None:
    with pytest.raises(ValueError, match=f"Scheduler: {says}"):
        scheduler(**how)


def test_requests_that_are_refused() -> None:
    one = scheduler(pages=2)
    one.add(generation("a", 4, 5))
    with pytest.raises(ValueError, match=r"'a' is being served; use another name"):
        one.add(generation("a", 4, 4))
    with pytest.raises(
        ValueError, match="4 tokens of a prompt and 6 more need 3 pages; there are 2; use 9 tokens"
    ):
        one.add(generation("b", 4, 6))


@dataclass
class Stream:
    """Requests at random, of which some are cancelled; checks every step."""

    seed: int
    one: Scheduler
    done: dict[str, int] = field(default_factory=dict)

    def go(self, requests: int) -> None:
        draw, one = random.Random(self.seed), self.one
        live: dict[str, Generation] = {}
        made = 0
        room = one.pool.pages * one.pool.page_size
        for _ in range(100 * requests):
            if made < requests and draw.random() < 0.5:
                prompt = draw.randint(1, room)
                output = draw.randint(1, max(1, room + 1 - prompt))
                # Few different tokens, so that many share a beginning.
                tokens = [draw.randint(0, 1) for _ in range(prompt)]
                live[f"{made}"] = Generation(f"{made}", tokens, prompt + output)
                one.add(live[f"{made}"])
                made += 1
            if live and draw.random() < 0.1:
                one.finish(live.pop(draw.choice(sorted(live))))
            works = one.next()
            self.check(works, live)
            if made == requests and not live:
                break
            for work in works:
                self.do(work, draw, live)
            assert one.pool.free + one.pool.held == one.pool.pages
        assert not live
        assert one.pool.free == one.pool.pages
        assert not one.pool.tables and one.next() == []

    def check(self, works: list[Work], live: dict[str, Generation]) -> None:
        one = self.one
        assert sum(work.count for work in works) <= one.budget
        assert bool(works) == bool(live), "somebody waits for ever"
        taken = [other.row for other in one.running]
        assert len(set(taken)) == len(taken) and None not in taken
        for place in (one.running, one.waiting):
            assert place == sorted(place, key=lambda other: other.arrival)
        assert {*one.running, *one.waiting} == set(live.values())
        assert len({work.generation.name for work in works}) == len(works)
        first_arrived = min(live.values(), key=lambda other: other.arrival, default=None)
        assert first_arrived is None or any(work.generation is first_arrived for work in works)
        for work in works:
            other = work.generation
            assert other.row is not None and work.start == other.computed and work.count > 0
            table = one.pool.tables[other.name]
            assert len(table) * one.pool.page_size >= work.start + work.count
            shared = table[: work.start // one.pool.page_size]
            written = table[len(shared) : one.pool.needed(work.start + work.count)]
            assert all(one.pool.counts[page] == 1 for page in written)

    def do(self, work: Work, draw: random.Random, live: dict[str, Generation]) -> None:
        one, other = self.one, work.generation
        kept = draw.randint(1, work.count) if work.decodes else int(work.ends_known)
        one.record(work, [draw.randint(0, 1) for _ in range(kept)])
        assert len(other.tokens) <= other.limit
        if len(other.tokens) == other.limit:
            one.finish(live.pop(other.name))


@given(
    seed=st.integers(0, 2**32),
    pages=st.integers(1, 12),
    page_size=st.integers(1, 5),
    slots=st.integers(1, 4),
    chunk=st.integers(1, 9),
    drafts=st.integers(0, 3),
    more=st.integers(0, 9),
)
def test_every_request_ends_and_all_pages_come_back(
    seed: int, pages: int, page_size: int, slots: int, chunk: int, drafts: int, more: int
) -> None:
    budget = slots * (1 + drafts) + more
    how = {"slots": slots, "chunk": chunk, "budget": budget, "drafts": drafts}
    Stream(seed, scheduler(pages, page_size, **how)).go(8)
