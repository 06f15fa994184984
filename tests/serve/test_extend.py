"""The decoder with a cache equals the decoder without one, and never copies the cache."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from jaxpar.inspector import inspect
from jaxpar.model import Settings, Split, init, logits
from jaxpar.serve.cache import Layer, Pages, Slots, empty_layer, in_8_bits
from jaxpar.serve.extend import extend, in_inference, unstacked
from tests.arrays import random
from tests.compile_options import QUICKLY

TINY = partial(Settings, vocabulary=16, layers=2, d_model=16, heads=4, d_ff=32, sequence=32)
KINDS = {
    "llama": TINY(kv_heads=2),
    "gpt": TINY(norm="layer", positions="learned", mlp="gelu", tied=True),
    "experts": TINY(kv_heads=1, experts=4, shared_experts=1),
    "capacity": TINY(experts=4, capacity_factor=4.0, balance="bias"),
    "muP": TINY(mup_base=8),
}
B, T = 3, 24
quickly = partial(jax.jit, compiler_options=QUICKLY)


def caches(settings: Settings, where: Slots | Pages, bits: int | None = None) -> list[Layer]:
    places, size = (B, 32) if isinstance(where, Slots) else (24, 4)
    make = partial(empty_layer, places, settings.key_heads, size, settings.d_head, jnp.float32)
    return [make(bits=bits) for _ in range(settings.layers)]


def in_chunks(
    settings: Settings, chunks: list[list[int]], where: Slots | Pages, bits: int | None = None
) -> tuple[np.ndarray, Array]:
    """The logits of random tokens, added in chunks, of which each row has its own length."""
    params = init(settings, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (B, T), 0, settings.vocabulary)
    wide = max(map(max, chunks))
    settings = in_inference(settings)
    step = quickly(partial(extend, settings, split=Split()))
    ready, cache = quickly(partial(unstacked, settings))(params), caches(settings, where, bits)
    starts, found = np.zeros(B, np.int32), np.zeros((B, T, settings.vocabulary), np.float32)
    padded = np.pad(np.asarray(tokens), ((0, 0), (0, wide)))
    for counts in chunks:
        new = np.stack([padded[i, at : at + wide] for i, at in enumerate(starts)])
        cache, got = step(ready, cache, new, starts, np.array(counts, np.int32), where)
        for i, count in enumerate(counts):
            found[i, starts[i] : starts[i] + count] = got[i, :count]
        starts = starts + np.array(counts, np.int32)
    assert (starts == T).all()
    return found, quickly(partial(logits, settings))(without_dropped(params), tokens)


def without_dropped(params: Any) -> Any:
    """The parameters without the places for shares of choices that are dropped."""
    mlp = {name: leaf for name, leaf in params["layers"]["mlp"].items() if name != "dropped"}
    return params | {"layers": params["layers"] | {"mlp": mlp}}


CHUNKS = [[5, 1, 12], [1, 7, 0], [8, 8, 8], [10, 8, 4]]
TABLE = np.random.default_rng(0).permutation(24).reshape(3, 8).astype(np.int32)
PLACES = {"slots": Slots(), "other slots": Slots(jnp.array([2, 0, 1])), "pages": Pages(TABLE)}


@pytest.mark.parametrize(
    ("kind", "place"),
    [("llama", "pages"), ("llama", "slots"), ("llama", "other slots")]
    + [(kind, "pages") for kind in KINDS if kind != "llama"],
)
def test_chunks_equal_the_whole_sequence(kind: str, place: str) -> None:
    """Rows get their tokens in other chunks, some of them none for a while."""
    found, expected = in_chunks(KINDS[kind], CHUNKS, PLACES[place])
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_one_token_at_a_time() -> None:
    found, expected = in_chunks(KINDS["llama"], [[1] * B] * T, PLACES["pages"])
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_in_8_bits_nearly() -> None:
    found, expected = in_chunks(KINDS["llama"], CHUNKS, PLACES["pages"], bits=8)
    worst = np.abs(found - expected).max() / np.abs(expected).max()
    assert 1e-4 < worst < 0.03
    again, _ = in_chunks(KINDS["llama"], [[1] * B] * T, PLACES["pages"], bits=8)
    np.testing.assert_allclose(again, found, atol=2e-5)  # whatever the chunks are


def test_8_bits_have_a_scale_for_each_token_and_head() -> None:
    x = random(2, 3, 4, 8) * np.array([1, 100, 1e-6], np.float32)[None, :, None, None]
    x[1, 2, 3] = 0
    small, scale = in_8_bits(jnp.asarray(x))
    assert small.dtype == jnp.int8
    assert (np.abs(small).max(-1) == 127).sum() == 2 * 3 * 4 - 1
    half_a_step = np.abs(x).max(-1, keepdims=True) / 127 / 2
    assert (np.abs(small * scale - x) <= 1.001 * half_a_step).all()


def test_only_the_logits_that_are_asked_for() -> None:
    settings = KINDS["llama"]
    params = quickly(partial(unstacked, settings))(init(settings, jax.random.key(0)))
    tokens = jax.random.randint(jax.random.key(1), (B, 8), 0, 16)
    counts, nothing = np.array([8, 3, 1], np.int32), np.zeros(B, np.int32)
    args = params, caches(settings, Slots()), tokens, nothing, counts, Slots()
    add = partial(extend, settings, split=Split())
    _, every = quickly(add)(*args)
    _, one = quickly(add)(*args, only=counts - 1)
    assert one.shape == (B, 1, 16)
    np.testing.assert_allclose(one[:, 0], every[jnp.arange(B), counts - 1], atol=1e-6)


@pytest.mark.parametrize("kind", ["slots", "pages", "8 bits"])
def test_a_step_needs_little_beside_a_donated_cache(kind: str) -> None:
    """Far less than one layer's cache, of which there are four; and no weights are copied."""
    b, s, size = 16, 256, 32
    settings = Settings(layers=4, d_model=64, heads=4, kv_heads=2)
    params = quickly(partial(unstacked, settings))(init(settings, jax.random.key(0)))
    where = Slots() if kind == "slots" else Pages(np.zeros((b, s // size), np.int32))
    places = (b, s) if kind == "slots" else (b * s // size, size)
    bits = 8 if kind == "8 bits" else None
    cache = [
        empty_layer(places[0], 2, places[1], settings.d_head, jnp.float32, bits=bits)
        for _ in range(settings.layers)
    ]
    step = jax.jit(partial(extend, settings, split=Split()), donate_argnums=1)
    nothing = np.zeros(b, np.int32)
    held = inspect(step, params, cache, nothing[:, None], nothing, nothing, where).memory
    cache_bytes = sum(leaf.nbytes for leaf in jax.tree.leaves(cache))
    page_bytes = 2 * 4 * b * size * 2 * settings.d_head
    assert held and held.aliases_bytes == cache_bytes
    # A loop has a page of each row at once; slots have the scores of all tokens.
    scores_bytes = 4 * b * settings.heads * s
    assert held.temp_bytes < 4 * (scores_bytes if kind == "slots" else page_bytes)
    assert held.temp_bytes < 2 * 4 * b * s * 2 * settings.d_head
