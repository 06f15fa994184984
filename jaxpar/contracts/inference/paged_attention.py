"""Attention to a cache in pages, which lie in any order."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, MemoryLimit, wrong
from jaxpar.contracts.case import ArraySpec, Case, Function, Made
from jaxpar.contracts.draws import axis_names, mesh_of, pick
from jaxpar.contracts.inference import common
from jaxpar.contracts.inference.common import seen_attention
from jaxpar.flash import attend, merge
from jaxpar.mesh import vary_alike
from jaxpar.parallel import decode

NOTHING = -1e30
FEW, OPPOSITE = 7, 3008.0  # pages of one row, and values of two of them, which cancel
NO_PAGE = -(2**30)  # less than any number that is drawn; stands for -1
COUNTS = Function(f"{common.__name__}:counts")
ENTRIES = Function("jaxpar.contracts.inference.paged_attention:entries")


def entries(drawn: Array, pages: int) -> Array:
    """The pages of each row, by number."""
    return jnp.where(drawn <= NO_PAGE, drawn - NO_PAGE - 1, drawn % pages)


def _whole(
    case: Case, q: Array, k_pages: Array, v_pages: Array, table: Array, lengths: Array
) -> list[Expected]:
    """The pages of each row in the order of its tokens; each mesh row has pages of its own."""
    rows, heads = case.sizes.values()
    (b, m), (_, kv, s, _), t = table.shape, k_pages.shape, q.shape[2]
    own = jnp.arange(b)[:, None] // (b // rows) * (len(k_pages) // rows)
    place = own + jnp.clip(table, 0, len(k_pages) // rows - 1)
    k, v = (
        jnp.moveaxis(pages[place], 2, 1).reshape(b, kv, m * s, -1) for pages in (k_pages, v_pages)
    )
    positions = lengths[:, None] - t + jnp.arange(t)[None]
    y = seen_attention(q, k, v, jnp.arange(m * s)[None, None] <= positions[:, :, None])
    blocks = y.reshape(rows, b // rows, heads, q.shape[1] // heads, t, -1)
    return [Expected(jnp.moveaxis(blocks, 2, 1))]


def _case(
    mesh: str,
    *,
    b: int = 2,
    a: int = 2,
    kv: int = 1,
    t: int = 1,
    pages: int = 80,
    size: int = 16,
    m: int = 12,
    h: int = 8,
    dtype: str = "float32",
) -> Case:
    """The rows and their pages are split over the first axis, the heads over the second.

    b, a, kv and pages are those of one device.
    """
    (rows, n), (heads, split) = parse_mesh(mesh).items()
    cache = ArraySpec((n * pages, split * kv, size, h), f"p_{rows} k_{heads} s h", dtype)
    args = {
        "q": ArraySpec((n * b, split * a, t, h), f"b_{rows} a_{heads} t h", dtype),
        "k_pages": cache,
        "v_pages": cache,
        "table": Made(ENTRIES, (ArraySpec((n * b, m), f"b_{rows} m", "int32", "large"), pages)),
        "lengths": Made(COUNTS, (ArraySpec((n * b,), f"b_{rows}", "int32", "large"), t, m * size)),
    }
    return Case(mesh, args)


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    rows, heads = axis_names(rng, 2, besides=("dp", "tp", "tpx"))
    wide = {"pages": pick(rng, (41, 43)), "size": 4, "m": pick(rng, (17, 19))}
    t, mesh = pick(rng, (4, 5)), f"{rows}=2,{heads}=2"
    return (
        _case(mesh, b=5, a=9, kv=3, t=t, h=pick(rng, (10, 14)), dtype="bfloat16", **wide),
        _case(f"{heads}=1,{rows}=3", b=4, a=7, kv=7, t=1, pages=23, size=1, m=9, h=6),
        _case(mesh_of(rng, **{rows: 3, heads: 1}), b=3, a=5, kv=1, t=6, pages=11, size=32, m=3),
    )


def _unseen(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN into pages where no row has a token, and entries that are no pages into the tables
    behind the pages of each row; some rows are as short or as long as can be, or end with a page,
    and in 16 bits the pages of one cancel out.
    """
    _, k_pages, v_pages, table, lengths = inputs
    if k_pages.dtype != np.float32:
        _cancel(case, inputs)
    pages, t = case.args["table"].values[1], case.args["lengths"].values[1]
    (b, m), size = table.shape, k_pages.shape[2]
    rows = len(k_pages) // pages
    ends = np.array([t, m * size, -(-t // size) * size])
    lengths[: len(ends)] = ends - t
    counts = t + lengths % (m * size - t + 1)
    seen = np.zeros((rows, pages, size), bool)
    for i, count in enumerate(counts):
        at, used = np.arange(count), -(-count // size)
        table[i, used:] = NO_PAGE - np.where(np.arange(used, m) % 2, 0, 2**20)
        seen[i // (b // rows), table[i, at // size] % pages, at % size] = True
    for cache in (k_pages, v_pages):
        np.moveaxis(cache.reshape(rows, pages, *cache.shape[1:]), 3, 2)[~seen] = np.nan


def _cancel(case: Case, inputs: list[np.ndarray]) -> None:
    """Gives a row pages of its own, with equal scores, of which two have values that cancel."""
    _, k_pages, v_pages, table, lengths = inputs
    row, size = 3, k_pages.shape[2]
    pages, t = case.args["table"].values[1], case.args["lengths"].values[1]
    table %= pages
    table[table < FEW] += FEW
    table[row, :FEW], lengths[row] = np.arange(FEW), FEW * size - t
    k_pages[:FEW] = 0
    v_pages[0], v_pages[FEW - 3] = OPPOSITE, -OPPOSITE  # before all queries


CONTRACT = Contract(
    kind="program",
    task="return attention of q to the tokens of each row, whose pages its table lists in order",
    reference=decode.paged_attention,
    oracle=_whole,
    cases=(
        _case("dp=1,tp=4", b=6),
        _case("dp=2,tpx=3", b=4, a=3, kv=3, t=3, pages=60, size=8, m=14, h=16),
    ),
    draw=_drawn,
    poison=_unseen,
    communication=Communication("nothing is sent", forward=((),)),
    memory=MemoryLimit(
        "a page of each row at a time, not all pages of a row: at most 3 times the library's bytes "
        "of intermediate results",
        multiple=3,
    ),
    errors=(BadCall(_case("dp=1,tp=4", a=6, kv=4), "the kv heads do not divide the heads"),),
    imports=("jaxpar.flash.attend", "jaxpar.flash.merge"),
    # Scores go up to dozens; softmax turns what is rounded off them into relative errors.
    tolerance=4,
    hints=(
        "Token j of row i is in page table[i, j // s], at j % s. Lesson 14 takes softmax part by "
        "part: which parts do the pages make?",
        "lax.fori_loop over j: k_pages[table[:, j]] is the j-th page of every row, [b, k, s, h], "
        "with tokens j*s to j*s + s - 1. attend gives its part, and merge joins it to the others. "
        "Begin with zeros, and a log-sum-exp of -1e30.",
        "Query i of t is at position lengths - t + i, and sees tokens up to this. The mask keeps "
        "NaN out of the scores, but 0 * NaN is NaN: set values behind the end to 0 with jnp.where. "
        "Stop at the longest row: (lengths.max() + s - 1) // s.",
    ),
    minimal="Each key and value is read once. What is held beside them is one page of each row, "
    "and for each query a result and a log-sum-exp.",
    harder="Rows that begin alike share pages. Read a page that several rows have only once.",
)


def _by_pages(
    q: Array, k_pages: Array, v_pages: Array, table: Array, lengths: Array,
    *,
    page: Callable[[Array, Any], Array] = lambda table, j: table[:, j],
    place: Callable[[Any, int, int], Array] = lambda j, s, m: j * s + jnp.arange(s),
    position: Callable[[Array, int], Array] = (
        lambda lengths, t: lengths[:, None] - t + jnp.arange(t)[None]
    ),
    last: Callable[[Array, int], Any] = lambda lengths, s: (lengths.max() + s - 1) // s,
    clean: bool = True,
    heads: Callable[[Array, int], Array] = lambda k, a: k,
    scale: Callable[[int], float] = lambda h: 1.0,
    join: Callable[..., Any] = merge,
) -> Array:  # fmt: skip
    """A loop over pages, with one thing done in another way."""
    q, k_pages, v_pages, table, lengths = vary_alike(q, k_pages, v_pages, table, lengths)
    s, t, m = k_pages.shape[2], q.shape[2], table.shape[1]
    positions = position(lengths, t)

    def with_page(j: Any, done: tuple[Array, Array]) -> tuple[Array, Array]:
        k, v = (heads(x[page(table, j)], q.shape[1]) for x in (k_pages, v_pages))
        at = place(j, s, m)[None]
        seen = at[:, None] <= positions[:, :, None]
        if clean:
            v = jnp.where(seen.any(1)[:, None, :, None], v, 0)
        return join(done, attend(q * scale(q.shape[-1]), k, v, seen))

    nothing = jnp.zeros_like(q, jnp.float32), jnp.full_like(q[..., 0], NOTHING, jnp.float32)
    return lax.fori_loop(0, last(lengths, s), with_page, nothing)[0].astype(q.dtype)


def _seen_in_all(
    q: Array, k_pages: Array, v_pages: Array, table: Array, lengths: Array
) -> tuple[Array, Array, Array]:
    """All keys and values of each row, one after another, and which of them each query sees."""
    (b, m), (_, kv, s, h), t = table.shape, k_pages.shape, q.shape[2]
    k, v = (jnp.moveaxis(x[table], 2, 1).reshape(b, kv, m * s, h) for x in (k_pages, v_pages))
    at, positions = jnp.arange(m * s), lengths[:, None] - t + jnp.arange(t)[None]
    v = jnp.where((at[None] < lengths[:, None])[:, None, :, None], v, 0)
    return k, v, at[None, None] <= positions[:, :, None]


@wrong("values")
def page_and_offset_swapped(*arrays: Array) -> Array:
    """Page and offset are swapped: token j is in page j // s of its row's table, at j % s."""
    return _by_pages(*arrays, place=lambda j, s, m: jnp.arange(s) * m + j)


@wrong("values")
def pages_taken_in_order(*arrays: Array) -> Array:
    """The j-th page of a row is taken to be page j; it is the page that the table lists there."""
    return _by_pages(*arrays, page=lambda table, j: jnp.full_like(table[:, 0], j))


@wrong("values")
def pages_of_the_first_row(*arrays: Array) -> Array:
    """All rows read the pages of the first one; row i reads those in `table[i]`."""
    return _by_pages(*arrays, page=lambda table, j: jnp.full_like(table[:, j], table[0, j]))


@wrong("values")
def one_token_too_many(*arrays: Array) -> Array:
    """Each query sees one token too many; the last query of row i is at position lengths[i] - 1,
    since positions count from 0."""

    def position(lengths: Array, t: int) -> Array:
        return lengths[:, None] - t + jnp.arange(t)[None] + 1

    return _by_pages(*arrays, position=position)


@wrong("values")
def own_token_not_seen(*arrays: Array) -> Array:
    """Queries do not see their own token, which is in the cache already; each sees the tokens up to
    its own."""

    def position(lengths: Array, t: int) -> Array:
        return lengths[:, None] - t + jnp.arange(t)[None] - 1

    return _by_pages(*arrays, position=position)


@wrong("values")
def later_queries_seen(*arrays: Array) -> Array:
    """All t queries of a row see all its tokens, and so those after them; each sees the tokens up
    to its own."""

    def position(lengths: Array, t: int) -> Array:
        return jnp.broadcast_to(lengths[:, None] - 1, (len(lengths), t))

    return _by_pages(*arrays, position=position)


@wrong("values")
def queries_at_the_start(*arrays: Array) -> Array:
    """The queries are taken for the first t tokens of their row; they are the last t, at positions
    from lengths[i] - t on."""

    def position(lengths: Array, t: int) -> Array:
        return jnp.broadcast_to(jnp.arange(t)[None] + 0 * lengths[:1, None], (len(lengths), t))

    return _by_pages(*arrays, position=position)


@wrong("values")
def lengths_ignored(*arrays: Array) -> Array:
    """Queries see all that the pages of their table have; a row has `lengths[i]` tokens, and what
    is behind them may be anything."""

    def position(lengths: Array, t: int) -> Array:
        return jnp.broadcast_to(lengths[:, None] * 0 + 2**20, (len(lengths), t))

    return _by_pages(*arrays, position=position, last=lambda lengths, s: arrays[3].shape[1])


@wrong("values")
def length_of_the_longest_row(*arrays: Array) -> Array:
    """All rows are taken to be as long as the longest one; row i has `lengths[i]` tokens."""

    def position(lengths: Array, t: int) -> Array:
        longest = jnp.full_like(lengths, lengths.max())
        return longest[:, None] - t + jnp.arange(t)[None]

    return _by_pages(*arrays, position=position)


@wrong("values")
def last_page_dropped(*arrays: Array) -> Array:
    """A page that is not full is left out; lengths // s pages are full, and there may be one more:
    round up."""
    return _by_pages(*arrays, last=lambda lengths, s: lengths.max() // s)


@wrong("values")
def only_first_row_long_enough(*arrays: Array) -> Array:
    """The loop ends with the last page of the first row; it must go on to that of the longest
    one."""
    return _by_pages(*arrays, last=lambda lengths, s: (lengths[0] + s - 1) // s)


@wrong("values")
def pages_added(*arrays: Array) -> Array:
    """The results of the pages are added, though the weights of each page add up to 1 by
    themselves; weigh each by exp of its log-sum-exp, as merge does."""

    def join(done: tuple[Array, Array], part: tuple[Array, Array]) -> tuple[Array, Array]:
        return done[0] + part[0], part[1]

    return _by_pages(*arrays, join=join)


@wrong("values")
def last_page_only(*arrays: Array) -> Array:
    """Each page replaces the result of those before it; merge the parts of all pages."""

    def join(done: tuple[Array, Array], part: tuple[Array, Array]) -> tuple[Array, Array]:
        there = part[1] > NOTHING / 2
        return jnp.where(there[..., None], part[0], done[0]), part[1]

    return _by_pages(*arrays, join=join)


@wrong("values")
def nan_times_zero(*arrays: Array) -> Array:
    """Values behind the end of a row are multiplied by a weight of 0, but 0 * NaN is NaN; replace
    them by 0, with jnp.where."""
    return _by_pages(*arrays, clean=False)


@wrong("values")
def paged_scores_not_scaled(*arrays: Array) -> Array:
    """The scores are not divided by sqrt(h)."""
    return _by_pages(*arrays, scale=math.sqrt)


@wrong("values")
def scaled_twice(*arrays: Array) -> Array:
    """The scores are divided by h; attend divides by sqrt(h) already."""
    return _by_pages(*arrays, scale=lambda h: h**-0.5)


@wrong("values")
def paged_heads_tiled(*arrays: Array) -> Array:
    """The kv heads are repeated as a whole, 0 1 0 1, but the query heads of one kv head are
    neighbours, 0 0 1 1."""

    def heads(k: Array, a: int) -> Array:
        return jnp.concatenate([k] * (a // k.shape[1]), axis=1)

    if arrays[0].shape[1] % arrays[1].shape[1]:
        raise ValueError("kv heads do not divide heads")
    return _by_pages(*arrays, heads=heads)


@wrong("values")
def paged_result_in_float32(*arrays: Array) -> Array:
    """The result is float32 whatever q is; cast it to the dtype of q at the end."""
    return _by_pages(*arrays).astype(jnp.float32)


@wrong("communication")
def pages_gathered_over_devices(q: Array, k_pages: Array, v_pages: Array, *rest: Array) -> Array:
    """The pages of all devices are gathered; a device has the pages of its own rows and heads."""
    axis = jax.sharding.get_abstract_mesh().axis_names[-1]
    k_pages, v_pages = (lax.all_gather(x, axis)[lax.axis_index(axis)] for x in (k_pages, v_pages))
    return _by_pages(q, k_pages, v_pages, *rest)


@wrong("memory")
def all_pages_of_a_row(*arrays: Array) -> Array:
    """All pages of all rows are gathered before attention, as long as the table is, and not the
    rows; loop over the pages, and merge their parts."""
    q, k_pages, v_pages, table, lengths = vary_alike(*arrays)
    k, v, seen = _seen_in_all(q, k_pages, v_pages, table, lengths)
    return attend(q, k, v, seen)[0].astype(q.dtype)


@wrong("errors")
def paged_heads_not_checked(*arrays: Array) -> Array:
    """Kv heads that do not divide the heads are not refused; raise ValueError."""

    def heads(k: Array, a: int) -> Array:
        if a % k.shape[1] == 0:
            return k
        return jnp.repeat(k, -(-a // k.shape[1]), axis=1)[:, :a]

    return _by_pages(*arrays, heads=heads)
