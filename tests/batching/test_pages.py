"""Pages are counted right whatever happens, shared where equal, and copied when written."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jaxpar.batching.pages import Copy, FullError, PagePool


def test_a_request_has_as_many_pages_as_its_tokens_fill() -> None:
    pool = PagePool(5, 4)
    assert pool.add("a", range(8)) == 0
    assert len(pool.tables["a"]) == 2
    assert pool.grow("a", 9) == []
    assert (len(pool.tables["a"]), pool.free, pool.held) == (3, 2, 3)
    pool.release("a")
    assert (pool.free, pool.held, pool.tables) == (5, 0, {})


def test_what_does_not_fit_changes_nothing() -> None:
    pool = PagePool(3, 4)
    pool.add("a", range(8))
    before = dict(pool.tables), pool.free
    assert not pool.fits(range(100, 105), 5)
    with pytest.raises(FullError):
        pool.add("b", range(100, 105))
    with pytest.raises(FullError):
        pool.grow("a", 13)
    assert (dict(pool.tables), pool.free) == before
    assert pool.grow("a", 12) == []


def test_full_pages_with_the_same_beginning_are_shared() -> None:
    pool = PagePool(9, 4)
    pool.add("a", range(10))
    assert pool.add("too early", range(10)) == 0  # nothing is computed yet
    pool.release("too early")
    pool.filled("a", range(10), 7)
    assert pool.add("b", range(10)) == 4  # the second page is not full
    pool.filled("a", range(10), 10)
    assert pool.add("c", [*range(8), 99]) == 8
    assert pool.tables["c"][:2] == pool.tables["a"][:2]
    assert pool.counts[pool.tables["a"][0]] == 3
    assert pool.add("d", [0, 1, 2, 3, 99, 5, 6, 7, 8]) == 4


def test_the_same_tokens_after_others_are_not_shared() -> None:
    pool = PagePool(9, 2)
    pool.add("a", [1, 2, 3, 4, 5])
    pool.filled("a", [1, 2, 3, 4, 5], 5)
    assert pool.add("b", [3, 4, 3, 4, 9]) == 0


def test_the_last_token_is_always_left_to_compute() -> None:
    pool = PagePool(9, 4)
    pool.add("a", range(8))
    pool.filled("a", range(8), 8)
    assert pool.add("b", range(8)) == 4


def test_free_pages_stay_known_until_they_are_taken() -> None:
    pool = PagePool(4, 2)
    tokens = [1, 2, 3, 4, 5]
    pool.add("a", tokens)
    pool.filled("a", tokens, 5)
    pool.release("a")
    assert pool.free == 4
    assert pool.add("b", tokens) == 4
    pool.release("b")
    pool.add("c", range(50, 54))  # takes two pages; those at the beginning of "a" go last
    assert pool.add("d", [1, 2, 7]) == 2
    pool.release("c")
    pool.release("d")
    pool.add("e", range(60, 68))
    pool.release("e")
    assert pool.add("f", tokens) == 0


def test_equal_pages_computed_at_once_are_known_once() -> None:
    pool = PagePool(9, 2)
    tokens = [1, 2, 3, 4, 5]
    for name in "ab":
        pool.add(name, tokens)
    for name in "ab":
        pool.filled(name, tokens, 5)
    pool.release("a")
    assert pool.add("c", tokens) == 4
    pool.release("c")
    assert pool.add("d", [*tokens, 6, 7]) == 4


def test_a_fork_copies_the_page_that_it_writes() -> None:
    pool = PagePool(5, 4)
    pool.add("a", range(6))
    pool.fork("a", "b")
    first, shared = pool.tables["a"]
    assert pool.held == 2
    assert pool.grow("b", 7) == [Copy(shared, pool.tables["b"][1])]
    assert pool.tables["b"][1] != shared
    assert pool.grow("a", 7) == []  # it has its page alone by now
    assert pool.tables["a"] == [first, shared]
    pool.fork("a", "c")
    assert pool.grow("c", 8) != []
    assert pool.grow("c", 9) == []
    with pytest.raises(FullError):
        pool.grow("b", 9)


def test_a_fork_that_ends_a_page_copies_nothing() -> None:
    pool = PagePool(4, 4)
    pool.add("a", range(4))
    pool.fork("a", "b")
    assert pool.grow("a", 5) == pool.grow("b", 5) == []
    assert pool.held == 3


@pytest.mark.parametrize("numbers", [(0, 4), (4, 0)])
def test_numbers_below_1(numbers: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="PagePool: page"):
        PagePool(*numbers)


class Machine(RuleBasedStateMachine):
    """Requests come, share, fork, grow and leave; beside the pool stands what each page holds."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(12, 3)
        self.tokens: dict[str, list[int]] = {}
        self.computed: dict[str, int] = {}
        self.pages: dict[int, list[int | None]] = {page: [None] * 3 for page in range(12)}
        self.made = 0

    def name(self) -> str:
        self.made += 1
        return f"request {self.made}"

    def write(self, name: str, start: int, stop: int) -> None:
        for place in range(start, stop):
            page, offset = divmod(place, 3)
            page = self.pool.tables[name][page]
            assert self.pool.counts[page] == 1, "it writes what another has"
            self.pages[page][offset] = self.tokens[name][place]

    @rule(tokens=st.lists(st.integers(0, 1), min_size=1, max_size=14))
    def add(self, tokens: list[int]) -> None:
        name, fits = self.name(), self.pool.fits(tokens, len(tokens))
        try:
            self.computed[name] = self.pool.add(name, tokens)
        except FullError:
            assert not fits
            return
        assert fits
        self.tokens[name] = list(tokens)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def compute(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        tokens, before = self.tokens[name], self.computed[name]
        stop = data.draw(st.integers(before, len(tokens)))
        self.write(name, before, stop)
        self.computed[name] = stop
        self.pool.filled(name, tokens, stop)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), more=st.lists(st.integers(0, 1), min_size=1, max_size=4))
    def grow(self, data: st.DataObject, more: list[int]) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        tokens, free = self.tokens[name], self.pool.free
        try:
            copies = self.pool.grow(name, len(tokens) + len(more))
        except FullError:
            assert self.pool.free == free
            return
        for source, target in copies:
            self.pages[target] = list(self.pages[source])
        tokens.extend(more)

    @precondition(lambda self: any(self.whole(name) for name in self.tokens))
    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([one for one in sorted(self.tokens) if self.whole(one)]))
        new = self.name()
        self.pool.fork(name, new)
        self.tokens[new], self.computed[new] = list(self.tokens[name]), self.computed[name]

    def whole(self, name: str) -> bool:
        """Whether all that it has room for is written, as when a request is to go two ways."""
        return self.computed[name] == len(self.tokens[name])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.tokens)))
        self.pool.release(name)
        del self.tokens[name], self.computed[name]

    @invariant()
    def all_pages_are_free_or_held(self) -> None:
        pool = self.pool
        assert pool.free + pool.held == pool.pages
        held = [page for table in pool.tables.values() for page in table]
        assert pool.counts == [held.count(page) for page in range(pool.pages)]
        assert pool.tables.keys() == self.tokens.keys()

    @invariant()
    def what_is_computed_is_in_the_pages(self) -> None:
        for name, tokens in self.tokens.items():
            held = [token for page in self.pool.tables[name] for token in self.pages[page]]
            assert held[: self.computed[name]] == tokens[: self.computed[name]]


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
