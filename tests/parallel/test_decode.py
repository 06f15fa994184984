"""Attention through a cache, and the choice of a token, equal one device and plain attention."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P, lax

from jaxpar import nn
from jaxpar.flash import attend
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import decode
from tests.arrays import random
from tests.comm_lines import comm, evaluate, measured, memory, stated
from tests.parallel.calls import Call, assert_close, assert_docstring_holds, elements

B, S, H, D = 6, 20, 4, 12
LENGTHS = np.array([0, 7, 19, 3, 12, 1], np.int32)
COLUMNS, ROWS, EQUAL, HEADS = P(None, "tp"), P("tp"), P(), P(None, "tp")
CACHES = P(None, "tp")


def rotated(x: np.ndarray, position: int) -> np.ndarray:
    """One head's vector at a position, as a numpy loop over pairs."""
    half, out = x.shape[-1] // 2, x.astype(np.float64)
    for i in range(half):
        angle = position * 10_000.0 ** (-i / half)
        one, other = x[..., i].astype(np.float64), x[..., i + half].astype(np.float64)
        out[..., i] = one * np.cos(angle) - other * np.sin(angle)
        out[..., i + half] = other * np.cos(angle) + one * np.sin(angle)
    return out


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One query [a h] and all keys [k s h] that it sees."""
    group = len(q) // len(k)
    k, v = np.repeat(k, group, 0), np.repeat(v, group, 0)
    scores = np.einsum("ah,ash->as", q, k) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return np.einsum("as,ash->ah", weights / weights.sum(-1, keepdims=True), v)


def weights(heads: int, kv_heads: int) -> tuple[np.ndarray, ...]:
    kv = random(D, kv_heads * H)
    return random(D, heads * H), kv, 2 * kv[::-1], random(heads * H, D)


def decoded(heads: int, kv_heads: int) -> Callable:
    """The step as a loop over rows, in float64."""
    w_q, w_k, w_v, w_o = (w.astype(np.float64) for w in weights(heads, kv_heads))

    def step(x: np.ndarray, keys: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, ...]:
        y, keys, values = np.zeros(x.shape), keys.copy(), values.copy()
        for i, at in enumerate(LENGTHS):
            q = rotated((x[i] @ w_q).reshape(heads, H), at)
            keys[i, :, at] = rotated((x[i] @ w_k).reshape(kv_heads, H), at)
            values[i, :, at] = (x[i] @ w_v).reshape(kv_heads, H)
            y[i] = attended(q, keys[i, :, : at + 1], values[i, :, : at + 1]).ravel() @ w_o
        return y, keys, values

    return step


def cached(heads: int, kv_heads: int, n: int) -> tuple[Call, tuple[np.ndarray, ...]]:
    """The call on n devices, and what is expected of it; few kv heads are repeated for devices."""
    copies = max(1, n // kv_heads)
    x, cache = random(B, D), random(B, kv_heads, S, H)
    expected = decoded(heads, kv_heads)(x, cache, cache[:, :, ::-1])
    w_q, w_k, w_v, w_o = weights(heads, kv_heads)

    def shared(w: np.ndarray) -> np.ndarray:
        return np.repeat(w.reshape(D, kv_heads, H), copies, 1).reshape(D, -1)

    caches = (np.repeat(one, copies, 1) for one in (cache, cache[:, :, ::-1]))
    args = x, w_q, shared(w_k), shared(w_v), w_o, *caches, LENGTHS
    specs = EQUAL, COLUMNS, COLUMNS, COLUMNS, ROWS, CACHES, CACHES, EQUAL
    how = {"num_heads": heads, "num_kv_heads": kv_heads, "axis": "tp"}
    call = Call(
        decode.cached_attention,
        partial(decode.cached_attention, **how),
        args,
        specs,
        (EQUAL, CACHES, CACHES),
    )
    y, *both = expected
    return call, (y, *(np.repeat(one, copies, 1) for one in both))


@pytest.mark.parametrize(
    ("sizes", "heads", "kv_heads"),
    [("tp=4", 8, 4), ("dp=2,tp=3", 6, 6), ("tp=4", 8, 2), ("dp=2,tp=6", 12, 2), ("tp=1", 4, 1)],
)
def test_cached_attention_equals_a_loop_over_rows(sizes: str, heads: int, kv_heads: int) -> None:
    """Rows have other lengths, none and almost all of the cache among them."""
    call, expected = cached(heads, kv_heads, make_mesh(sizes).shape["tp"])
    assert_close(call.program(sizes, differentiate=False)(*call.args), expected)


def assert_docstring_holds_forward(call: Call, sizes: str, axis: str = "tp") -> None:
    """Checks what a function without a derivative says it sends and holds."""
    mesh, function = make_mesh(sizes), call.function
    lowered = call.program(sizes, differentiate=False).lower(*call.args)
    held = elements(lowered.out_info, call.out_specs, mesh)
    arguments = [elements(*pair, mesh) for pair in zip(call.args, call.in_specs, strict=True)]
    names = dict(zip(signature(function).parameters, arguments, strict=False))
    names |= {"y": held, **call.names}
    assert comm(function, "backward") is None
    assert measured(lowered) == stated(function, "forward", {"axis": axis}, names)
    assert held == evaluate(memory(function), names)


@pytest.mark.parametrize(("heads", "kv_heads"), [(8, 4), (8, 2)])
def test_cached_attention_sends_one_sum(heads: int, kv_heads: int) -> None:
    call, _ = cached(heads, kv_heads, 4)
    assert_docstring_holds_forward(call, "dp=2,tp=4")


def test_cached_attention_writes_in_place() -> None:
    """Where the caches are donated, a step needs much less than one of them."""
    h, call = 64, cached(8, 8, 4)[0]
    sizes = (B, D), (D, 8 * h), (D, 8 * h), (D, 8 * h), (8 * h, D), *[(B, 8, 2000, h)] * 2
    args = [np.zeros(size, np.float32) for size in sizes]
    program = jax.jit(call.program("tp=4", differentiate=False), donate_argnums=(5, 6))
    held, cache_bytes = inspect(program, *args, LENGTHS).memory, args[5].nbytes / 4
    assert held and held.temp_bytes < cache_bytes / 10
    assert held.aliases_bytes == 2 * cache_bytes


@pytest.mark.parametrize(
    ("heads", "kv_heads", "n", "says"),
    [
        (6, 6, 4, r"dim a \(size 6\) must be divisible by mesh axis tp \(size 4\)"),
        (12, 4, 6, r"4 kv heads on mesh axis tp \(size 6\); .* use tp in {1, 2, 4}, or a multiple"),
    ],
)
def test_heads_that_do_not_fit(heads: int, kv_heads: int, n: int, says: str) -> None:
    local = -(-heads // n)
    shapes = [
        (B, D),
        (D, local * n * H),
        *[(D, n * H)] * 2,
        (local * n * H, D),
        *[(B, n, S, H)] * 2,
    ]
    how = {"num_heads": heads, "num_kv_heads": kv_heads, "axis": "tp"}
    run = jax.shard_map(
        partial(decode.cached_attention, **how),
        mesh=jax.sharding.AbstractMesh((n,), ("tp",), axis_types=(jax.sharding.AxisType.Auto,)),
        in_specs=(EQUAL, COLUMNS, COLUMNS, COLUMNS, ROWS, CACHES, CACHES, EQUAL),
        out_specs=(EQUAL, CACHES, CACHES),
    )
    args = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    with pytest.raises(ValueError, match=f"cached_attention: {says}"):
        jax.eval_shape(run, *args, jax.ShapeDtypeStruct((B,), jnp.int32))


def whole(q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """The last t queries of each row, one at a time."""
    t, y = q.shape[2], np.zeros(q.shape)
    for i, length in enumerate(lengths):
        for j in range(t):
            seen = length - t + j + 1
            y[i, :, j] = attended(q[i, :, j], k[i, :, :seen], v[i, :, :seen])
    return y


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("t", [1, 3])
def test_slots_equal_a_loop_over_queries(heads: int, kv_heads: int, t: int) -> None:
    q, k, v = random(B, heads, t, H), random(B, kv_heads, S, H), random(B, kv_heads, S, H)[::-1]
    lengths = np.array([3, 20, 7, 11, 16, 4])
    got = jax.jit(decode.slot_attention)(20 * q, k, v, lengths)
    assert_close(got, whole(20.0 * q, k, v, lengths))


def test_all_tokens_at_once_are_causal_attention() -> None:
    q, k, v = random(B, 6, S, H), random(B, 2, S, H), random(B, 2, S, H)[::-1]
    got = decode.slot_attention(*map(jnp.asarray, (q, k, v)), jnp.full(B, S))
    assert_close(got, nn.attention(*map(jnp.asarray, (q, k, v))))


PAGES, SIZE, MOST = 40, 4, 6


def paged(
    heads: int, kv_heads: int, t: int, size: int = SIZE
) -> tuple[tuple[Any, ...], np.ndarray]:
    """Pages in any order; what is not a row's is NaN, and its table ends in what is no page."""
    draw = np.random.default_rng(0)
    lengths = np.array([3, 21, 8, 11, 16, 4], np.int32)
    q, k, v = (
        random(B, heads, t, H),
        random(B, kv_heads, S + 4, H),
        random(B, kv_heads, S + 4, H)[::-1],
    )
    table = draw.choice([-1, 0, PAGES, 10**6], (B, MOST)).astype(np.int32)
    free = list(draw.permutation(PAGES))
    k_pages, v_pages = np.full((2, PAGES, kv_heads, size, H), np.nan, np.float32)
    for i, length in enumerate(lengths):
        for start in range(0, length, size):
            page = table[i, start // size] = free.pop()
            for place in range(start, min(start + size, length)):
                k_pages[page, :, place - start] = k[i, :, place]
                v_pages[page, :, place - start] = v[i, :, place]
    return (20 * q, k_pages, v_pages, table, lengths), whole(20.0 * q, k, v, lengths)


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("t", [1, 3])
def test_pages_equal_a_loop_over_queries(heads: int, kv_heads: int, t: int) -> None:
    args, expected = paged(heads, kv_heads, t)
    assert_close(jax.jit(decode.paged_attention)(*args), expected)


@pytest.mark.parametrize("sizes", ["dp=2,tp=3", "dp=3,tp=2"])
def test_pages_of_split_heads_and_rows(sizes: str) -> None:
    """Each device of dp has rows and pages of its own; nothing is sent."""
    parts = make_mesh(sizes).shape["dp"]
    (q, k_pages, v_pages, table, lengths), expected = paged(12, 6, 1)
    specs = P("dp", "tp"), P("dp", "tp"), P("dp", "tp"), P("dp"), P("dp")
    args = q, *(np.tile(one, (parts, 1, 1, 1)) for one in (k_pages, v_pages)), table, lengths
    call = Call(decode.paged_attention, decode.paged_attention, args, specs, P("dp", "tp"))
    assert_close(call.program(sizes, differentiate=False)(*args), expected)
    assert_docstring_holds_forward(call, sizes)


def test_no_more_than_a_page_of_each_row_is_gathered() -> None:
    """With eight times the pages in a table it holds as much, and far less than these pages."""

    def temp_bytes(most: int) -> int:
        pages = np.zeros((PAGES, 4, 16, 8), np.float32)
        args = (
            random(B, 8, 1, 8),
            pages,
            pages,
            np.zeros((B, most), np.int32),
            np.full(B, 16 * most),
        )
        held = inspect(jax.jit(decode.paged_attention), *args).memory
        assert held
        return held.temp_bytes

    assert temp_bytes(64) <= 1.1 * temp_bytes(8)
    assert temp_bytes(64) < 2 * 4 * B * 64 * 4 * 16 * 8 / 8


@pytest.mark.parametrize("sizes", ["cp=4", "dp=2,cp=3"])
def test_pages_whose_tokens_are_split(sizes: str) -> None:
    """Device i of n has the tokens at i, i+n, ... of each page; the parts are merged."""
    n = make_mesh(sizes).shape["cp"]
    (q, k_pages, v_pages, table, lengths), expected = paged(6, 2, 3, size=12)
    inside = np.arange(12).reshape(-1, n).T.ravel()
    pages = P(None, None, "cp")

    def per_device(q: jax.Array, k: jax.Array, v: jax.Array, table: Any, lengths: Any) -> Any:
        read = lambda j: (k[table[:, j]], v[table[:, j]])  # noqa: E731
        how = {"page_size": k.shape[2], "axis": "cp"}
        return decode.attend_page_by_page(q, read, lengths, **how)

    specs = EQUAL, pages, pages, EQUAL, EQUAL
    args = q, k_pages[:, :, inside], v_pages[:, :, inside], table, lengths
    call = Call(decode.attend_page_by_page, per_device, args, specs, EQUAL, names={"h": H})
    assert_close(call.program(sizes, differentiate=False)(*args), expected)
    assert_docstring_holds_forward(call, sizes, axis="cp")


def test_parts_of_devices_are_merged() -> None:
    """A device that saw no key counts for nothing."""
    q, k, v = random(B, 6, 2, H), random(B, 2, 12, H), random(B, 2, 12, H)[::-1]

    def per_device(k: jax.Array, v: jax.Array) -> jax.Array:
        far = lax.axis_index("cp") == 1
        seen = jnp.broadcast_to(~far, (1, 2, k.shape[2]))
        return decode.merge_over_shards(*attend(jnp.asarray(q), k, v, seen), axis="cp")

    call = Call(decode.merge_over_shards, per_device, (k, v), (P(None, None, "cp"),) * 2, EQUAL)
    got = call.program("cp=3", differentiate=False)(k, v)
    kept = [jnp.asarray(np.delete(x, range(4, 8), axis=2)) for x in (k, v)]
    assert_close(got, attend(jnp.asarray(q), *kept)[0])
    part = replace(call, names={"o": q.size, "lse": q.size // H})
    assert_docstring_holds_forward(part, "dp=2,cp=3", axis="cp")


def test_16_bits_stay_16_bits() -> None:
    args, _ = paged(6, 2, 1)
    q, k_pages, v_pages = (jnp.asarray(x, jnp.bfloat16) for x in (args[0] / 20, *args[1:3]))
    got = decode.paged_attention(q, k_pages, v_pages, *map(jnp.asarray, args[3:]))
    right = decode.paged_attention(
        *(x.astype(jnp.float32) for x in (q, k_pages, v_pages)), *map(jnp.asarray, args[3:])
    )
    assert got.dtype == jnp.bfloat16
    np.testing.assert_allclose(got.astype(jnp.float32), right, atol=0.02)


V = 8 * 3


def chosen(logits: np.ndarray, noise: np.ndarray, temperature: np.ndarray, sizes: str) -> Any:
    per_device = partial(decode.sample_parallel, axis="tp")
    args, specs = (logits, noise, temperature), (COLUMNS, COLUMNS, EQUAL)
    call = Call(decode.sample_parallel, per_device, args, specs, EQUAL)
    return call, call.program(sizes, differentiate=False)(*args)


@pytest.mark.parametrize("sizes", ["tp=8", "dp=2,tp=3"])
def test_a_token_is_chosen_as_from_all_logits(sizes: str) -> None:
    """Warm, cold, and the most likely one; the noise is large enough to matter."""
    logits, noise = random(B, V), 3 * random(B, V)[::-1]
    temperature = np.array([0, 0.5, 1, 2, 0, 1], np.float32)
    call, got = chosen(logits, noise, temperature, sizes)
    scores = logits + temperature[:, None] * noise
    np.testing.assert_array_equal(got, scores.argmax(-1))
    assert (scores.argmax(-1) != logits.argmax(-1)).any()
    assert_docstring_holds_forward(call, sizes)


def test_of_equal_logits_the_first_is_chosen() -> None:
    logits = np.zeros((3, V), np.float32)
    logits[1, [5, 9, 20]] = logits[2, [17, 20]] = 1
    _, got = chosen(logits, np.ones_like(logits), np.zeros(3, np.float32), "tp=8")
    np.testing.assert_array_equal(got, [0, 5, 17])


def test_samples_have_the_probabilities_of_the_logits() -> None:
    count = 20_000
    row = np.array([0.0, 1, 2, 0.5, -1, 1, 0, 2], np.float32)
    noise = jax.random.gumbel(jax.random.key(0), (count, len(row)))
    logits = np.tile(row, (count, 1))
    _, got = chosen(logits, np.asarray(noise), np.full(count, 0.7, np.float32), "tp=4")
    expected = np.exp(row / 0.7) / np.exp(row / 0.7).sum()
    found = np.bincount(got, minlength=len(row)) / count
    np.testing.assert_allclose(found, expected, atol=4 * 0.5 / np.sqrt(count))


def distributions(*shape: int) -> np.ndarray:
    logits = 2 * random(*shape)
    return (np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)).astype(np.float32)


def test_accepting_by_hand() -> None:
    """All, none, one, and one after a rejection, which does not count; never what p excludes."""
    q = np.tile(np.array([0.5, 0.25, 0.25, 0], np.float32), (5, 2, 1))
    p = np.tile(np.array([0.25, 0.75, 0, 0], np.float32), (5, 3, 1))
    p[:, 2] = [0, 0, 0, 1]
    draft = np.array([[1, 1], [0, 1], [1, 0], [0, 0], [2, 1]], np.int32)
    uniforms = np.array([[0.9, 0.9], [0.6, 0], [0.9, 0.6], [0.4, 0.4], [0, 0]], np.float32)
    accepted, after = jax.jit(decode.speculative_accept)(draft, q, p, uniforms)
    np.testing.assert_array_equal(accepted, [2, 0, 1, 2, 0])
    rest, bonus = [0, 1, 0, 0], [0, 0, 0, 1]  # max(0, p - q) has one element
    np.testing.assert_allclose(after, [bonus, rest, rest, bonus, rest])


@pytest.mark.parametrize("sizes", ["dp=4", "dp=2,tp=3"])
def test_accepting_on_devices_with_rows_of_their_own(sizes: str) -> None:
    b, t, v = 8, 3, 5
    draft = np.random.default_rng(0).integers(0, v, (b, t)).astype(np.int32)
    q, p = distributions(b, t, v), distributions(b, t + 1, v)
    uniforms = np.random.default_rng(1).random((b, t), np.float32)
    parts, args = make_mesh(sizes).shape["dp"], (draft, q, p, uniforms)
    names = {"b": b // parts, "v": v}
    specs, both = (P("dp"),) * 4, (P("dp"), P("dp"))
    call = Call(
        decode.speculative_accept, decode.speculative_accept, args, specs, both, names=names
    )
    assert_docstring_holds_forward(call, sizes)
    accepted, after = call.program(sizes, differentiate=False)(*args)
    for i in range(b):
        count = 0
        while (
            count < t
            and uniforms[i, count] < p[i, count, draft[i, count]] / q[i, count, draft[i, count]]
        ):
            count += 1
        rest = p[i, count] if count == t else np.maximum(0, p[i, count] - q[i, count])
        assert accepted[i] == count
        np.testing.assert_allclose(after[i], rest / rest.sum(), rtol=1e-5, atol=1e-7)


def test_accepted_tokens_are_distributed_as_the_target() -> None:
    """Whatever the draft is: tokens drawn from q, of which some are replaced."""
    count, v = 40_000, 6
    q, p = distributions(1, 1, v), np.tile(distributions(1, 2, v)[:, :1][..., ::-1], (1, 2, 1))
    keys = jax.random.split(jax.random.key(0), 3)
    draft = jax.random.categorical(keys[0], jnp.log(q[0, 0]), shape=(count, 1))
    uniforms = jax.random.uniform(keys[1], (count, 1))
    wide = (jnp.broadcast_to(jnp.asarray(x), (count, *x.shape[1:])) for x in (q, p))
    accepted, after = jax.jit(decode.speculative_accept)(draft, *wide, uniforms)
    other = jax.random.categorical(keys[2], jnp.log(after))
    first = np.where(np.asarray(accepted) == 1, np.asarray(draft)[:, 0], np.asarray(other))
    np.testing.assert_allclose(np.bincount(first, minlength=v) / count, p[0, 0], atol=0.01)
    overlap = np.minimum(p[0, 0], q[0, 0]).sum()
    assert np.mean(accepted) == pytest.approx(overlap, abs=0.01)


def test_accepting_needs_one_more_distribution_of_the_target() -> None:
    with pytest.raises(ValueError, match=r"2 drafted tokens with 2 distributions .* it needs 3"):
        decode.speculative_accept(
            jnp.zeros((1, 2), jnp.int32), jnp.ones((1, 2, 4)), jnp.ones((1, 2, 4)), jnp.ones((1, 2))
        )


def test_rotary_by_row_is_rotary_of_each_row() -> None:
    x, positions = random(3, 2, 4, 6), np.array([[0, 1, 2, 3], [5, 6, 7, 8], [90, 2, 2, 0]])
    call = Call(
        decode.rotary_by_row, lambda x: decode.rotary_by_row(x, jnp.asarray(positions)),
        (x,), (EQUAL,), EQUAL,
    )  # fmt: skip
    got = call.program("tp=2", differentiate=False)(x)
    for i, j in np.ndindex(3, 4):
        assert_close(got[i, :, j], rotated(x[i, :, j], positions[i, j]))
    assert_docstring_holds(call, "tp=2", axis="tp")


def test_what_sends_nothing_says_so() -> None:
    """Writing has a gradient with respect to both arguments, and attention to all three."""
    cache, new, places = random(4, 2, 8, H), random(B, 2, 3, H), jnp.arange(3 * B).reshape(B, 3)
    write = partial(decode.write_tokens, places=places % 4, offsets=places // 4)
    written = Call(decode.write_tokens, write, (cache, new), (EQUAL,) * 2, EQUAL)
    q, k, v = random(B, 4, 2, H), random(B, 2, S, H), random(B, 2, S, H)
    slots = partial(decode.slot_attention, lengths=jnp.asarray(LENGTHS))
    attended = Call(decode.slot_attention, slots, (q, k, v), (EQUAL,) * 3, EQUAL)
    for call in (written, attended):
        assert_docstring_holds(call, "tp=2", axis="tp")


def test_tokens_that_have_no_place_are_not_written() -> None:
    cache, new = np.zeros((3, 2, 4, 2), np.float32), 1 + np.abs(random(2, 2, 3, 2))
    places, offsets = np.array([[2, 0, 3], [1, 1, 9]]), np.array([[3, 0, 0], [4, 2, 1]])
    got = np.array(jax.jit(decode.write_tokens)(cache, new, places, offsets))
    for place, offset, row, token in ((2, 3, 0, 0), (0, 0, 0, 1), (1, 2, 1, 1)):
        np.testing.assert_array_equal(got[place, :, offset], new[row, :, token])
        got[place, :, offset] = 0
    assert not got.any()
