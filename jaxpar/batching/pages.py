"""The pages of a cache: which request has which, what requests share, and what is free. No JAX.

A page has the keys and values of `page_size` tokens, of all layers. The table of a request lists
its pages in the order of its tokens. A full page whose tokens, and all before them, are those of
another request is shared, and counted. A page that nobody has is free; what is in it stays known
until another request takes the page, so that a later request with the same beginning finds it.
"""

from collections.abc import Sequence
from typing import NamedTuple

from jaxpar.checks import check_positive


class FullError(Exception):
    """There are not enough free pages."""


class Copy(NamedTuple):
    """What must be copied before a request writes: all of one page into another."""

    source: int
    target: int


class PagePool:
    """The pages of one cache.

    Attributes:
        page_size: the tokens of a page.
        tables: for each request, by its name, its pages in the order of its tokens.
        lengths: for each request, how many tokens its pages have room for already.
        counts: for each page, how many requests have it.

    Source: Kwon et al. 2023 (PagedAttention), sections 4.1 to 4.4

    Raises:
        ValueError: a number is below 1.
    """

    def __init__(self, pages: int, page_size: int) -> None:
        check_positive("PagePool", {"pages": pages, "page_size": page_size})
        self.page_size = page_size
        self.tables: dict[str, list[int]] = {}
        self.lengths: dict[str, int] = {}
        self.counts = [0] * pages
        # Keys are the free pages; the first is taken first. A dict takes one out at once.
        self._free: dict[int, None] = dict.fromkeys(range(pages))
        # What is in a page has a number, which is never given again. A page is found by the number
        # of the page before it, and by its own tokens.
        self._contents = [0] * pages
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}
        self._keys: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._numbered = 0

    @property
    def pages(self) -> int:
        """The number of pages."""
        return len(self.counts)

    @property
    def free(self) -> int:
        """The number of pages that no request has."""
        return len(self._free)

    @property
    def held(self) -> int:
        """The number of pages that requests have; a shared one counts once."""
        return sum(count > 0 for count in self.counts)

    def needed(self, length: int) -> int:
        """The pages of so many tokens."""
        return -(-length // self.page_size)

    def fits(self, tokens: Sequence[int], length: int) -> bool:
        """Whether `add` would find the pages for these tokens, followed by others up to `length`.

        A page that is free and known to have what is shared counts as taken.
        """
        shared = self._shared(tokens)
        return self.needed(length) - len(shared) <= self.free - sum(
            not self.counts[page] for page in shared
        )

    def add(self, name: str, tokens: Sequence[int]) -> int:
        """Gives a new request the pages of its tokens, and returns how many need no computing.

        These are the tokens of full pages that are shared. At least one token is left, since a
        request needs the result of its last one.

        Raises:
            FullError: there are not enough free pages; nothing has changed.
        """
        if not self.fits(tokens, len(tokens)):
            raise FullError
        shared = self._shared(tokens)
        for page in shared:
            self._hold(page)
        own = [self._take() for _ in range(self.needed(len(tokens)) - len(shared))]
        self.tables[name], self.lengths[name] = [*shared, *own], len(tokens)
        return len(shared) * self.page_size

    def grow(self, name: str, length: int) -> list[Copy]:
        """Gives a request room for `length` tokens, and returns what must be copied before.

        It will write behind what it has. If the page there is shared, it gets a copy of its own.

        Raises:
            FullError: there are not enough free pages; nothing has changed.
        """
        table, before = self.tables[name], self.lengths[name]
        if length <= before:
            return []
        place, within = divmod(before, self.page_size)
        copies = within > 0 and self.counts[table[place]] > 1
        new = self.needed(length) - len(table)
        if new + copies > self.free:
            raise FullError
        made = []
        if copies:
            source = table[place]
            table[place] = self._take()
            self._drop(source)
            made.append(Copy(source, table[place]))
        table += [self._take() for _ in range(new)]
        self.lengths[name] = length
        return made

    def fork(self, name: str, new: str) -> None:
        """Gives another request all pages of this one, to write behind them in its own way."""
        self.tables[new], self.lengths[new] = list(self.tables[name]), self.lengths[name]
        for page in self.tables[new]:
            self._hold(page)

    def filled(self, name: str, tokens: Sequence[int], computed: int) -> None:
        """Says that the first `computed` of these tokens are in the pages of a request.

        Those pages that became full are known from now on, and can be shared.
        """
        table, size, number = self.tables[name], self.page_size, 0
        first = computed // size
        while first > 0 and not self._contents[table[first - 1]]:
            first -= 1
        if first:
            number = self._contents[table[first - 1]]
        for place in range(first, computed // size):
            page, key = table[place], (number, tuple(tokens[place * size : (place + 1) * size]))
            self._numbered += 1
            number = self._contents[page] = self._numbered
            # Two requests may have computed the same at once; the first page is the known one.
            if key in self._known:
                number = self._contents[page] = self._contents[self._known[key]]
            else:
                self._known[key], self._keys[page] = page, key

    def release(self, name: str) -> None:
        """Takes all pages from a request; what it shares stays with the others."""
        del self.lengths[name]
        # The last page first, as what is known is found from the first page on.
        for page in reversed(self.tables.pop(name)):
            self._drop(page)

    def _shared(self, tokens: Sequence[int]) -> list[int]:
        """The known pages that these tokens begin with, but for the last token."""
        size, number, found = self.page_size, 0, []
        for start in range(0, len(tokens) - size, size):
            page = self._known.get((number, tuple(tokens[start : start + size])))
            if page is None:
                break
            found.append(page)
            number = self._contents[page]
        return found

    def _hold(self, page: int) -> None:
        self._free.pop(page, None)
        self.counts[page] += 1

    def _take(self) -> int:
        """The page that is free for the longest time, with nothing known of it any more."""
        page = next(iter(self._free))
        self._hold(page)
        if key := self._keys.pop(page, None):
            del self._known[key]
        self._contents[page] = 0
        return page

    def _drop(self, page: int) -> None:
        self.counts[page] -= 1
        if not self.counts[page]:
            self._free[page] = None
