"""Attention by parts and by tiles equals attention, computes half of it, and holds little."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxpar import flash, nn
from jaxpar.inspector import inspect
from jaxpar.inspector.report import Report
from jaxpar.mesh import make_mesh
from tests.parallel.calls import assert_close

HEADS = {"MHA": (4, 4), "GQA": (6, 2), "MQA": (3, 1)}
B, T, H = 2, 24, 5
DOCUMENTS = np.repeat([[0, 1, 2, 3], [5, 5, 4, 9]], [5, 1, 7, 11], axis=1)

each_kind_of_heads = pytest.mark.parametrize("heads", HEADS.values(), ids=HEADS)


def random(*shape: int, dtype: str = "float32", seed: int = 0) -> Array:
    generator = np.random.default_rng([seed, *shape])
    return jnp.asarray(generator.standard_normal(shape), dtype)


def arguments(heads: tuple[int, int], t: int = T, *, h: int = H, dtype: str = "float32") -> tuple:
    a, kv_heads = heads
    k, v = (random(B, kv_heads, t, h, dtype=dtype, seed=seed) for seed in (1, 2))
    return random(B, a, t, h, dtype=dtype), k, v


def by_mask(mask: np.ndarray) -> Callable:
    """Attention with every score of a mask [b t s], in float32."""

    def attention(q: Array, k: Array, v: Array) -> Array:
        k, v = (jnp.repeat(x, q.shape[1] // k.shape[1], axis=1) for x in (k, v))
        scores = jnp.einsum("bath,bash->bats", q, k) / np.sqrt(q.shape[-1])
        weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -jnp.inf))
        return jnp.einsum("bats,bash->bath", weights, v)

    return attention


def both_passes(function: Callable) -> Callable:
    """The result, and the gradients for a result that weighs every element differently."""

    def run(q: Array, k: Array, v: Array) -> tuple:
        y, pull = jax.vjp(function, q, k, v)
        return y, pull(random(*y.shape, seed=3).astype(y.dtype))

    return jax.jit(run)


def assert_equal(one: Callable, other: Callable, args: tuple) -> None:
    assert_close(both_passes(one)(*args), both_passes(other)(*args))


@each_kind_of_heads
@pytest.mark.parametrize("tile", [1, 4, 24])
def test_flash_attention_is_attention(heads: tuple[int, int], tile: int) -> None:
    args = arguments(heads)
    assert_equal(partial(flash.flash_attention, tile=tile), nn.attention, args)
    assert_equal(partial(flash.chunked_attention, chunk=tile), nn.attention, args)


PAST = np.tril(np.ones((T, T), bool))[None]


@pytest.mark.parametrize("tile", [3, 8])
@pytest.mark.parametrize("window", [2, 4, 5, 24])
def test_a_window(window: int, tile: int) -> None:
    mask = PAST & ~np.tril(PAST[0], -window)
    function = partial(flash.window_attention, window=window, tile=tile)
    assert_equal(function, by_mask(mask), arguments(HEADS["GQA"]))


def test_a_window_of_one_position_is_its_value() -> None:
    q, k, v = arguments(HEADS["MHA"])
    assert_close(flash.window_attention(q, k, v, window=1, tile=4), v)


@pytest.mark.parametrize("tile", [3, 8])
def test_documents(tile: int) -> None:
    """Those of the two examples end at different positions."""
    same = DOCUMENTS[:, :, None] == DOCUMENTS[:, None]

    def packed(q: Array, k: Array, v: Array) -> Array:
        return flash.packed_attention(q, k, v, jnp.asarray(DOCUMENTS), tile=tile)

    assert_equal(packed, by_mask(PAST & same), arguments(HEADS["GQA"]))


@each_kind_of_heads
def test_parts_merge_in_any_order(heads: tuple[int, int]) -> None:
    """Also where a query sees no key of a part."""
    q, k, v = arguments(heads)

    def in_parts(q: Array, k: Array, v: Array) -> Array:
        cuts = [slice(16, 24), slice(0, 3), slice(3, 16)]
        mask = jnp.asarray(PAST)
        parts = [flash.attend(q, k[:, :, c], v[:, :, c], mask[:, :, c]) for c in cuts]
        return flash.merge(flash.merge(*parts[:2]), parts[2])[0]

    assert_equal(in_parts, nn.attention, (q, k, v))
    everything = flash.attend(q, k, v)[0]
    assert_close(everything, by_mask(np.ones((1, T, T), bool))(q, k, v))


def test_scores_may_leave_the_range_of_exp() -> None:
    q, k, v = arguments(HEADS["GQA"])
    right = nn.attention(90 * q, k, v)
    assert_close(flash.flash_attention(90 * q, k, v, tile=4), right)
    assert_close(flash.chunked_attention(90 * q, k, v, chunk=4), right)


def test_tiles_need_not_start_at_the_first_key() -> None:
    """A query whose first tile holds no key for it forgets that tile."""
    q, k, v = arguments(HEADS["GQA"])
    order = jnp.arange(T)
    strictly = replace(flash.causal(t=T, size=4), positions=(order, order + 1))
    o, lse = flash.attend_by_tiles(q, k, v, strictly)
    right, right_lse = flash.attend(q, k, v, jnp.asarray(np.tril(PAST, -1)))
    assert_close((o[:, :, 1:], lse[:, :, 1:]), (right[:, :, 1:], right_lse[:, :, 1:]))
    assert lse[:, :, 0].max() < -1e29
    assert np.isfinite(o).all()


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_16_bits_in_and_out_and_more_between(dtype: str) -> None:
    args = arguments(HEADS["GQA"], dtype=dtype)
    wide = [x.astype(jnp.float32) for x in args]
    got = both_passes(partial(flash.flash_attention, tile=4))(*args)
    for x, right in zip(
        jax.tree.leaves(got), jax.tree.leaves(both_passes(nn.attention)(*wide)), strict=True
    ):
        assert x.dtype == dtype
        np.testing.assert_allclose(x.astype(jnp.float32), right, atol=0.02 * np.abs(right).max())
    assert flash.attend(*args)[0].dtype == jnp.float32


def reports(function: Callable, t: int, h: int = 8) -> tuple[Report, Report]:
    """Of the forward pass, and of both."""
    args = arguments((4, 2), t, h=h)
    return inspect(jax.jit(function), *args), inspect(both_passes(function), *args)


@pytest.mark.parametrize(("t", "tile"), [(128, 32), (256, 16)])
def test_the_part_that_no_query_sees_is_not_computed(t: int, tile: int) -> None:
    """Two products of a tile in the forward pass, and five in the backward pass."""
    n, whole = t // tile, B * 4 * t * t * 8 * 2
    forward, both = reports(partial(flash.flash_attention, tile=tile), t)
    assert forward.flops == 2 * whole * (n + 1) / (2 * n)
    assert both.flops == 7 * whole * (n + 1) / (2 * n)
    forward, _ = reports(partial(flash.window_attention, tile=tile, window=tile + 1), t)
    assert forward.flops == 2 * whole * (2 * n - 1) / n**2
    forward, both = reports(partial(flash.chunked_attention, chunk=tile), t)
    assert forward.flops == 2 * whole
    assert both.flops == 10 * whole


def test_what_is_held_grows_with_the_length_not_its_square() -> None:
    def temp(function: Callable, t: int) -> int:
        _, both = reports(function, t)
        assert both.memory
        return both.memory.temp_bytes

    tiled = partial(flash.flash_attention, tile=32)
    for function in (tiled, partial(flash.chunked_attention, chunk=32)):
        assert temp(function, 1024) < 2.2 * temp(function, 512)
        assert 10 * temp(function, 1024) < temp(nn.attention, 1024)


def test_arguments_that_vary_over_different_axes() -> None:
    """Keys are equal on all devices of tp, and their gradient is a sum over them."""
    q, k, v = arguments((4, 1))
    split = jax.P(None, "tp")

    def each(q: Array, k: Array, v: Array) -> tuple:
        y, pull = jax.vjp(partial(flash.flash_attention, tile=4), q, k, v)
        return y, pull(y)

    def whole(q: Array, k: Array, v: Array) -> tuple:
        y, pull = jax.vjp(nn.attention, q, k, v)
        return y, pull(y)

    specs = split, jax.P(), jax.P()
    run = jax.shard_map(each, mesh=make_mesh("tp=4"), in_specs=specs, out_specs=(split, specs))
    assert_close(jax.jit(run)(q, k, v), whole(q, k, v))


@pytest.mark.parametrize(
    ("t", "tile"), [(4096, 128), (24, 24), (1000, 125), (509, 509), (1018, 1018), (544, 68), (1, 1)]
)
def test_the_usual_tile_divides_the_length(t: int, tile: int) -> None:
    assert flash.usual_tile(t) == tile


def test_sizes_that_do_not_fit() -> None:
    q, k, v = arguments((4, 2))
    for call, says in (
        (
            partial(flash.flash_attention, tile=5),
            "flash_attention: tile is 5 and dim t is 24; .* 6",
        ),
        (
            partial(flash.chunked_attention, chunk=0),
            "chunked_attention: chunk is 0 and dim t is 24",
        ),
        (partial(flash.window_attention, tile=4, window=0), "window_attention: window is 0; use 1"),
    ):
        with pytest.raises(ValueError, match=says):
            call(q, k, v)
    with pytest.raises(ValueError, match=r"flash_attention: 3 heads and 2 kv heads; .* use 1 or 3"):
        flash.flash_attention(q[:, :3], k, v, tile=4)
