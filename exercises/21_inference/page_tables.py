"""Exercise page_tables (lesson 21): pages that requests share, until one writes.

Your task: return the pages of each request, and the number of requests that have each page.

Save it while `jaxpar` runs, or check it with `jaxpar check page_tables`.
"""

# What is judged (5 points; values must be right to earn the rest)
#   values        5  right for every call tried, among them random ones
#
# For example, where other results may be as right:
#   page_tables([["add", "a", 5]], page_size=4, pages=6) -> ({"a": [0, 1]}, [1, 1, 0, 0, 0, 0])
#   page_tables([["add", "a", 8]], page_size=4, pages=6) -> ({"a": [0, 1]}, [1, 1, 0, 0, 0, 0])
#   page_tables([["add", "a", 7], ["append", "a"]], page_size=4, pages=6) -> ({"a": [0, 1]}, [1,
#       1, 0, 0, 0, 0])
#   page_tables([["add", "a", 5], ["add", "a", 2]], page_size=4, pages=6) raises ValueError
#
# You may import jax, numpy, optax, flax, jaxtyping, jaxpar.mesh and, of Python's own,
#                collections, dataclasses, functools, itertools, math, operator, typing.

from collections.abc import Sequence
from typing import Any


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
    raise NotImplementedError(
        "return the pages of each request, and the number of requests that have each page"
    )
