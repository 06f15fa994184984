"""Which pages each request has, and how many requests have each page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpar.batching.page_tables import page_tables
from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.contracts.draws import pick

Events = Sequence[Sequence[Any]]
Tables = tuple[dict[str, list[int]], list[int]]


def _histories(rng: np.random.Generator) -> list[Call]:
    """By hand, one corner each; then random ones, some of which run out; then what is refused."""

    def call(events: Events, page_size: int, pages: int) -> Call:
        return ([list(event) for event in events],), {"page_size": page_size, "pages": pages}

    add, more, free = ["add", "a", 5], ["append", "a"], ["free", "a"]
    fork, other = ["fork", "a", "b"], ["append", "b"]
    calls = [
        call([add], 4, 6),
        call([["add", "a", 8]], 4, 6),  # as many tokens as fit into the pages
        call([["add", "a", 7], more], 4, 6),  # the last page is full after it
        call([["add", "a", 7], more, more], 4, 6),
        call([add, fork], 4, 6),
        call([add, fork, other], 4, 6),  # a copy
        call([add, fork, more, other], 4, 6),  # one copy is enough for two
        call([["add", "a", 8], fork, other, more], 4, 6),  # full pages stay shared
        call([add, fork, free], 4, 6),
        call([add, fork, free, other], 4, 6),  # nobody else has the page
        call([add, fork, other, free, ["add", "c", 9]], 4, 6),
        call([add, fork, ["fork", "b", "c"], ["append", "c"], free, other], 4, 6),
        call([add, free, ["add", "a", 3], ["add", "b", 20]], 4, 6),  # all pages, a name again
        call([["add", "a", 3], ["fork", "a", "b"], other], 1, 4),
        call([], 4, 3),
    ]
    for size, steps in ((4, 20), (3, 30), (7, 40), (16, 60), (1, 25)):
        for spare in (40, 3):
            calls.append(_random(rng, size, steps, spare))
    calls += [_random(rng, int(rng.integers(40, 60)), 30, 300) for _ in range(2)]
    refused = [([add, ["add", "a", 2]], 4, 6), ([more], 4, 6), ([free], 4, 6), ([fork], 4, 6)]
    refused += [([add, ["fork", "a", "a"]], 4, 6), ([add, ["add", "b", 1], fork], 4, 6)]
    refused += [([add, free, free], 4, 6), ([add, free, more], 4, 6), ([["add", "a", 0]], 4, 6)]
    refused += [([add], 4, 1), ([["add", "a", 8], more], 4, 2), ([add, fork, other], 4, 2)]
    refused += [([add], 0, 6), ([], 4, 0), ([add, fork, free, ["add", "c", 1]], 4, 2)]
    return [*calls, *(call(*one) for one in refused)]


def _random(rng: np.random.Generator, size: int, steps: int, spare: int) -> Call:
    """A history in which some events need a page; pages are enough, but for the last event."""
    events: list[list[Any]] = [["add", "r0", int(rng.integers(1, 3 * size + 2))]]
    there, count = ["r0"], 1
    for _ in range(steps):
        kind = pick(rng, ("add", "fork", "append", "append", "append", "append", "free"))
        name, new = pick(rng, there), f"r{count}"
        if kind == "free" and len(there) > 1:
            there.remove(name)
            events.append(["free", name])
        elif kind in ("add", "fork"):
            length = int(rng.integers(1, 3 * size + 2))
            events.append(["add", new, length] if kind == "add" else ["fork", name, new])
            there.append(new)
            count += 1
        elif kind == "append":
            events += [["append", name]] * int(rng.integers(1, size + 2))
    book, most = _Book(size, 999), 1
    for event, *rest in events:
        getattr(book, event)(*rest)
        most = max(most, sum(count > 0 for count in book.counts))
    return ([*events],), {"page_size": size, "pages": most + int(rng.integers(spare))}


def _complaint(calls: list[Call], results: list[Any]) -> str | None:
    """The first call whose tables are not right, by whatever numbers its pages are called."""
    for (args, kwargs), got in zip(calls, results, strict=True):
        size, pages = kwargs["page_size"], kwargs["pages"]
        where = f"page_tables({str(list(args[0]))[:300]}, page_size={size}, pages={pages})"
        try:
            tables, counts = page_tables(*args, **kwargs)
        except ValueError:
            if got != "raises ValueError":
                return f"{where} gives {str(got)[:100]}; it must raise ValueError"
            continue
        text = _wrong(tables, counts, got)
        if text:
            return f"{where}: {text}"
    return None


def _wrong(tables: dict[str, list[int]], counts: list[int], got: Any) -> str | None:
    """What is wrong with a result, or None."""
    if not isinstance(got, list) or len(got) != 2 or not isinstance(got[0], dict):
        return f"gives {str(got)[:100]}; it must give the tables and the counts"
    found, number = got
    if found.keys() != tables.keys():
        return f"has the requests {', '.join(found)}; they are {', '.join(tables) or 'none'}"
    for name, table in found.items():
        right = isinstance(table, list) and all(
            type(page) is int and 0 <= page < len(counts) for page in table
        )
        if not right:
            return f"{name!r} has {str(table)[:100]}; pages are 0 to {len(counts) - 1}"
        if len(table) != len(tables[name]):
            return f"{name!r} has {len(table)} pages; it must have {len(tables[name])}"
    pairs = {(a, b) for name in tables for a, b in zip(found[name], tables[name], strict=True)}
    ours, theirs = (Counter(each) for each in zip(*pairs, strict=True)) if pairs else ({}, {})
    for name in sorted(tables):
        for place, (a, b) in enumerate(zip(found[name], tables[name], strict=True)):
            if ours[a] > 1 or theirs[b] > 1:
                sharers = sorted(n for n in tables if b in tables[n])
                alike = f"share it: {', '.join(sharers)}" if sharers[1:] else "has it alone"
                return f"page {place} of {name!r} is not shared as it must be; {alike}"
    return _wrong_counts(dict(pairs), counts, number)


def _wrong_counts(ours: dict[int, int], counts: list[int], number: Any) -> str | None:
    """What is wrong with the numbers of requests that have each page; `ours` is ours of each."""
    if not isinstance(number, list) or len(number) != len(counts):
        return f"counts are {str(number)[:100]}; there must be {len(counts)}, one for each page"
    for page, count in enumerate(number):
        right = counts[ours[page]] if page in ours else 0
        if type(count) is not int or count != right:
            return f"page {page} has the count {str(count)[:40]}; {right} requests have it"
    return None


CONTRACT = Contract(
    kind="value",
    task="return the pages of each request, and the number of requests that have each page",
    reference=page_tables,
    oracle=page_tables,
    values=_histories,
    complaint=_complaint,
    hints=(
        "Keep for each request its pages and its length, and for each page how many requests have "
        "it. When may a request write into its last page, and what must happen before if not?",
        "A new page is needed where length % page_size == 0, before the token is counted. "
        "Otherwise the token goes into the last page, and if its count is above 1, the request "
        "takes a free page in its place: the count of the old one falls by 1.",
        "A page is free if its count is 0: counts.index(0) finds one, and raises ValueError by "
        "itself if there is none. fork copies the list of pages and raises each count; free lowers "
        "each count.",
    ),
    minimal="Only the last page of a request is ever written, so at most one page is copied for "
    "each request that was forked, however long it is.",
    harder="Let a new request share the full pages of any other one that begins with the same "
    "tokens. How is such a page found at once?",
)


class _Book:
    """Pages by the smallest free number, where one thing may be done in another way."""

    def __init__(self, page_size: int, pages: int) -> None:
        page_tables([], page_size=page_size, pages=pages)  # raises where it must
        self.size = page_size
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}
        self.counts = [0] * pages

    def pages_of(self, length: int) -> int:
        return -(-length // self.size)

    def take(self) -> int:
        page = self.counts.index(0)
        self.counts[page] = 1
        return page

    def add(self, name: str, tokens: int) -> None:
        if tokens < 1 or name in self.tables:
            raise ValueError("no such request")
        self.tables[name] = [self.take() for _ in range(self.pages_of(tokens))]
        self.lengths[name] = tokens

    def fork(self, name: str, new: str) -> None:
        if new in self.tables:
            raise ValueError("the name is taken")
        self.tables[new], self.lengths[new] = list(self.of(name)), self.lengths[name]
        for page in self.tables[new]:
            self.counts[page] += 1

    def append(self, name: str) -> None:
        table = self.of(name)
        if self.lengths[name] % self.size == 0:
            table.append(self.take())
        elif self.counts[table[-1]] > 1:
            self.copy(table)
        self.lengths[name] += 1

    def copy(self, table: list[int]) -> None:
        old = table[-1]
        table[-1] = self.take()
        self.counts[old] -= 1

    def free(self, name: str) -> None:
        for page in self.of(name):
            self.counts[page] -= 1
        del self.tables[name], self.lengths[name]

    def of(self, name: str) -> list[int]:
        if name not in self.tables:
            raise ValueError("no such request")
        return self.tables[name]


def _kept(book: type[_Book], events: Events, page_size: int, pages: int) -> Tables:
    own = book(page_size, pages)
    for event, *rest in events:
        getattr(own, event)(*rest)
    return own.tables, own.counts


@wrong("values")
def page_taken_early(events: Events, *, page_size: int, pages: int) -> Tables:
    """A page is taken one token too early, when the last one has become full; take it when the next
    token needs it."""

    class Book(_Book):
        def pages_of(self, length: int) -> int:
            return length // self.size + 1

        def append(self, name: str) -> None:
            table = self.of(name)
            if self.counts[table[-1]] > 1:
                self.copy(table)
            self.lengths[name] += 1
            if self.lengths[name] % self.size == 0:
                table.append(self.take())

    return _kept(Book, events, page_size, pages)


@wrong("values")
def last_page_rounded_down(events: Events, *, page_size: int, pages: int) -> Tables:
    """A page that is not full is left out; a request has length / page_size pages, rounded up."""

    class Book(_Book):
        def pages_of(self, length: int) -> int:
            return max(1, length // self.size)

    return _kept(Book, events, page_size, pages)


@wrong("values")
def a_page_for_each_token(events: Events, *, page_size: int, pages: int) -> Tables:
    """Each new token takes a page of its own; a page has room for page_size tokens."""

    class Book(_Book):
        def append(self, name: str) -> None:
            self.of(name).append(self.take())
            self.lengths[name] += 1

    return _kept(Book, events, page_size, pages)


@wrong("values")
def shared_page_written(events: Events, *, page_size: int, pages: int) -> Tables:
    """A token is written into a page that other requests have, too, and they would read it; take a
    copy first."""

    class Book(_Book):
        def copy(self, table: list[int]) -> None:
            pass

    return _kept(Book, events, page_size, pages)


@wrong("values")
def copied_at_the_fork(events: Events, *, page_size: int, pages: int) -> Tables:
    """All pages are copied when a request is forked; they can be shared until one of the two
    writes."""

    class Book(_Book):
        def fork(self, name: str, new: str) -> None:
            self.of(name)
            self.add(new, self.lengths[name])

    return _kept(Book, events, page_size, pages)


@wrong("values")
def last_page_copied_at_the_fork(events: Events, *, page_size: int, pages: int) -> Tables:
    """The last page is copied when a request is forked; if one of the two never writes, that was
    for nothing."""

    class Book(_Book):
        def fork(self, name: str, new: str) -> None:
            super().fork(name, new)
            if self.lengths[name] % self.size:
                self.copy(self.tables[new])

    return _kept(Book, events, page_size, pages)


@wrong("values")
def full_page_copied(events: Events, *, page_size: int, pages: int) -> Tables:
    """A shared page is copied even if it is full; the new token goes into a page after it."""

    class Book(_Book):
        def append(self, name: str) -> None:
            if self.counts[self.of(name)[-1]] > 1:
                self.copy(self.tables[name])
            super().append(name)

    return _kept(Book, events, page_size, pages)


@wrong("values")
def all_shared_pages_copied(events: Events, *, page_size: int, pages: int) -> Tables:
    """All pages of the request are copied before it writes; only the last one is written, and the
    others can stay shared."""

    class Book(_Book):
        def copy(self, table: list[int]) -> None:
            for place, old in enumerate(table):
                if self.counts[old] > 1:
                    table[place] = self.take()
                    self.counts[old] -= 1

    return _kept(Book, events, page_size, pages)


@wrong("values")
def count_not_raised(events: Events, *, page_size: int, pages: int) -> Tables:
    """The counts are not raised when a request is forked; both requests have its pages."""

    class Book(_Book):
        def fork(self, name: str, new: str) -> None:
            super().fork(name, new)
            for page in self.tables[new]:
                self.counts[page] -= 1

        def free(self, name: str) -> None:
            for page in self.of(name):
                self.counts[page] = max(0, self.counts[page] - 1)
            del self.tables[name], self.lengths[name]

    return _kept(Book, events, page_size, pages)


@wrong("values")
def freed_while_shared(events: Events, *, page_size: int, pages: int) -> Tables:
    """Pages are free as soon as one request has left that had them; lower their counts by 1, and
    only those that reach 0 are free."""

    class Book(_Book):
        def free(self, name: str) -> None:
            for page in self.of(name):
                self.counts[page] = 0
            del self.tables[name], self.lengths[name]

    return _kept(Book, events, page_size, pages)


@wrong("values")
def count_of_the_copied_page_kept(events: Events, *, page_size: int, pages: int) -> Tables:
    """After a copy, the count of the old page still has the request that took the copy; lower it by
    1."""

    class Book(_Book):
        def copy(self, table: list[int]) -> None:
            table[-1] = self.take()

    return _kept(Book, events, page_size, pages)


@wrong("values")
def pages_never_given_back(events: Events, *, page_size: int, pages: int) -> Tables:
    """The pages of a request that has left stay taken; lower their counts."""

    class Book(_Book):
        def free(self, name: str) -> None:
            self.of(name)
            del self.tables[name], self.lengths[name]

    return _kept(Book, events, page_size, pages)


@wrong("values")
def table_shared_with_the_fork(events: Events, *, page_size: int, pages: int) -> Tables:
    """Both requests of a fork have the same list as their table, so that a page of one is a page of
    the other; copy the list."""

    class Book(_Book):
        def fork(self, name: str, new: str) -> None:
            super().fork(name, new)
            self.tables[new] = self.tables[name]

    return _kept(Book, events, page_size, pages)


@wrong("values")
def histories_not_checked(events: Events, *, page_size: int, pages: int) -> Tables:
    """Raise ValueError where no page is free, a new request has no tokens or a name that is there,
    or an event is about a request that is not there."""
    try:
        return page_tables(events, page_size=page_size, pages=pages)
    except ValueError:
        return {}, []
