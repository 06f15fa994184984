"""Tokens are chosen as a sort of all logits says, on one device and on several."""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import P

from jaxpar.mesh import make_mesh
from jaxpar.serve.sampling import Choices, Sampling, choose, truncated
from tests.arrays import random

B, V = 7, 24


def choices(*rows: Sampling) -> Choices:
    columns = zip(*((one.temperature, one.top_k, one.top_p, one.seed) for one in rows), strict=True)
    dtypes = np.float32, np.int32, np.float32, np.int32
    return Choices(*(np.array(*pair) for pair in zip(columns, dtypes, strict=True)))


ROWS = (
    Sampling(),
    Sampling(1.0, seed=1),
    Sampling(2.0, top_k=3, seed=2),
    Sampling(1.5, top_p=0.5, seed=3),
    Sampling(1.0, top_k=5, top_p=0.7, seed=4),
    Sampling(1.0, top_k=100, top_p=0.001, seed=5),
    Sampling(0.0, top_k=2, top_p=0.5, seed=6),
)


def kept(logits: np.ndarray, rows: tuple[Sampling, ...]) -> np.ndarray:
    """Which tokens are chosen from, by sorting."""
    out = np.zeros(logits.shape, bool)
    for i, one in enumerate(rows):
        order = np.argsort(-logits[i])[: one.top_k or None]
        scaled = logits[i][order].astype(np.float64) / (one.temperature or 1)
        chances = np.exp(scaled - scaled.max())
        before = np.cumsum(chances / chances.sum()) - chances / chances.sum()
        out[i, order[(before < one.top_p) | (one.top_p == 1)]] = True
    return out


@cache
def program(sizes: str | None, function: Callable) -> Callable:
    """The function on one device, or on those of tp, which split the vocabulary."""
    if sizes is None:
        return jax.jit(partial(function, axis=None))
    out, rest = (P(None, "tp"), [P()]) if function is truncated else (P(), [P(), P()])
    run = jax.shard_map(
        partial(function, axis="tp"),
        mesh=make_mesh(sizes), in_specs=(P(None, "tp"), *rest), out_specs=out,
    )  # fmt: skip
    return jax.jit(run)


def on(sizes: str | None, function: Callable, *args: Any) -> Any:
    return program(sizes, function)(*args)


each = pytest.mark.parametrize("sizes", [None, "tp=4", "dp=2,tp=3"])


@each
def test_the_most_likely_tokens_are_kept(sizes: str | None) -> None:
    logits = 3 * random(B, V)
    got = on(sizes, truncated, logits, choices(*ROWS))
    expected = kept(logits, ROWS)
    assert len(set(expected.sum(1))) > 3
    np.testing.assert_array_equal(np.isfinite(got), expected)
    np.testing.assert_array_equal(np.asarray(got)[expected], logits[expected])


@given(
    seed=st.integers(0, 2**32),
    top_k=st.integers(0, 30),
    top_p=st.floats(0.01, 1),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
)
def test_any_top_k_and_top_p(seed: int, top_k: int, top_p: float, scale: float) -> None:
    logits = (scale * np.random.default_rng(seed).standard_normal((3, V))).astype(np.float32)
    one = Sampling(1.0, top_k, top_p)
    got = np.isfinite(on(None, truncated, logits, choices(one, one, one)))
    # At a sum that equals top_p, rounding decides.
    low, high = (
        kept(logits, (Sampling(1.0, top_k, min(1, max(1e-6, p))),) * 3)
        for p in (top_p - 1e-5, top_p + 1e-5)
    )
    assert (low <= got).all() and (got <= high).all()


def test_equal_logits_are_kept_together() -> None:
    logits = np.array([[1, 3, 3, 0, 3, -2]], np.float32)
    got = on(None, truncated, logits, choices(Sampling(1.0, top_k=2)))
    np.testing.assert_array_equal(np.isfinite(got), [[False, True, True, False, True, False]])


@each
def test_cold_rows_take_the_most_likely_token(sizes: str | None) -> None:
    logits, positions = random(B, V), np.arange(B)
    cold = [Sampling(0.0, one.top_k, one.top_p, one.seed) for one in ROWS]
    np.testing.assert_array_equal(
        on(sizes, choose, logits, positions, choices(*cold)), logits.argmax(-1)
    )
    mixed = np.asarray(on(sizes, choose, logits, positions, choices(*ROWS)))
    assert (mixed == logits.argmax(-1))[[0, 6]].all()


@pytest.mark.parametrize("sizes", ["tp=4", "dp=2,tp=3"])
def test_devices_choose_the_token_that_one_device_would(sizes: str) -> None:
    for seed in range(5):
        logits, positions = random(B, V) + seed, np.arange(B) + 10 * seed
        one = on(None, choose, logits, positions, choices(*ROWS))
        np.testing.assert_array_equal(on(sizes, choose, logits, positions, choices(*ROWS)), one)


def test_a_token_depends_on_its_seed_and_position_alone() -> None:
    logits = np.tile(random(1, V), (B, 1))
    positions = np.array([3, 3, 4, 3, 9, 4, 3])
    rows = [Sampling(1.0, seed=seed) for seed in (1, 1, 1, 2, 2, 1, 1)]
    got = np.asarray(on(None, choose, logits, positions, choices(*rows)))
    assert got[0] == got[1] == got[6] and got[2] == got[5]
    alone = on(None, choose, logits[:1], positions[3:4], choices(rows[3]))
    assert alone[0] == got[3]
    many = [
        int(on(None, choose, logits, positions + at, choices(*rows))[0]) for at in range(0, 60, 5)
    ]
    assert len(set(many)) > 3


def test_samples_have_the_probabilities_of_what_is_kept() -> None:
    count, row = 20_000, np.array([0.0, 1, 2, 0.5, -1, 1.5], np.float32)
    wide = jax.tree.map(lambda x: np.repeat(x, count), choices(Sampling(0.7, top_k=3, seed=0)))
    wide = wide._replace(seed=np.arange(count, dtype=np.int32))
    logits = np.tile(row, (count, 1))
    got = on(None, choose, logits, np.zeros(count, np.int32), wide)
    expected = np.where(kept(row[None], (Sampling(0.7, top_k=3),))[0], np.exp(row / 0.7), 0)
    found = np.bincount(got, minlength=len(row)) / count
    np.testing.assert_allclose(found, expected / expected.sum(), atol=4 * 0.5 / np.sqrt(count))
    assert (found > 0).sum() == 3


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"temperature": -1}, "temperature is -1; use 0 or more"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0}, "top_p is 0; use a number above 0 and up to 1"),
        ({"top_p": 1.1}, r"top_p is 1\.1"),
        ({"seed": -1}, "seed is -1; use 0 to 2147483647"),
    ],
)
def test_numbers_out_of_range(how: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=f"Sampling: {says}"):
        Sampling(**how)
