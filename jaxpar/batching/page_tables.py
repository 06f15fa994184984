"""The page tables after a list of events, with pages that several requests share.

This is for teaching. The engine asks the pool itself.
"""

from collections.abc import Sequence
from typing import Any

from jaxpar.batching.pages import FullError, PagePool


def page_tables(
    events: Sequence[Sequence[Any]], *, page_size: int, pages: int
) -> tuple[dict[str, list[int]], list[int]]:
    """Which pages each request has, and how many requests have each page, after all events.

    A page has room for `page_size` tokens, and there are `pages` of them, numbered from 0 on.
    A request has just as many pages as its tokens need. Events happen in their order:

    - `("add", name, tokens)`: a new request with so many tokens gets pages of its own.
    - `("fork", name, new)`: a new request gets all tokens of `name`. It shares all its pages, and
      none is copied.
    - `("append", name)`: a token is written behind those of the request. If its place is in a page
      that other requests have, too, the request gets a copy of this page in its place, and the
      others keep theirs. If its last page is full, it gets one page more.
    - `("free", name)`: the request leaves. A page that no request has any more is free.

    Any page may be taken that no request has.

    Returns:
        For each request that has not left, its pages in the order of its tokens; and for each page,
        how many requests have it.

    Source: Kwon et al. 2023 (PagedAttention), sections 4.1 to 4.4

    Raises:
        ValueError: no page is free where one is needed, a new request has the name of one that is
            there or no tokens, an event is about a request that is not there, or `page_size` or
            `pages` is below 1.
    """
    pool = PagePool(pages, page_size)
    try:
        for event in events:
            _apply(pool, *event)
    except FullError:
        raise ValueError(
            f"page_tables: no page is free, of {pages} with {page_size} tokens each; use more "
            "pages, or free a request first"
        ) from None
    return pool.tables, pool.counts


def _apply(pool: PagePool, event: str, name: str, more: Any = None) -> None:
    """Lets an event happen."""
    begins = {"add": name, "fork": more}.get(event)
    if begins in pool.tables or (event != "add" and name not in pool.tables):
        there = ", ".join(pool.tables) or "none"
        raise ValueError(f"page_tables: {event} of {name!r}; the requests are: {there}")
    if event == "add" and more < 1:
        raise ValueError(f"page_tables: {name!r} has {more} tokens; use 1 or more")
    if event == "add":
        pool.add(name, [0] * more)
    elif event == "fork":
        pool.fork(name, more)
    elif event == "append":
        pool.grow(name, pool.lengths[name] + 1)
    else:
        pool.release(name)
