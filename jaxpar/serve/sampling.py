"""The choice of tokens from logits: temperature, top-k and top-p, with a seed for each request.

The noise of a token depends on nothing but the seed of its request and its position. So a request
has the same text alone and in any company, after a preemption, and with drafts.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int, UInt

from jaxpar.mesh import vary
from jaxpar.parallel.decode import sample_parallel

MOST_SEED = 2**31 - 1


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen.

    Attributes:
        temperature: what logits are divided by; 0 takes the most likely token.
        top_k: only so many of the most likely tokens are chosen from; 0: all.
        top_p: only the most likely tokens are, as few as have this probability together; 1: all.
        seed: chooses the random numbers. The same seed gives the same text, whatever else is
            computed beside it.

    Raises:
        ValueError: a number is out of range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Checks every number."""
        allowed = {
            "temperature": (0 <= self.temperature < float("inf"), "0 or more"),
            "top_k": (self.top_k >= 0, "0, which takes all, or more"),
            "top_p": (0 < self.top_p <= 1, "a number above 0 and up to 1, which takes all"),
            "seed": (0 <= self.seed <= MOST_SEED, f"0 to {MOST_SEED}"),
        }
        for name, (right, what) in allowed.items():
            if not right:
                raise ValueError(f"Sampling: {name} is {getattr(self, name)}; use {what}")


class Choices(NamedTuple):
    """The `Sampling` of each row, as arrays [b]."""

    temperature: Float[Array, " b"]
    top_k: Int[Array, " b"]
    top_p: Float[Array, " b"]
    seed: Int[Array, " b"]


def choose(
    logits: Float[Array, "b v"],
    positions: Int[Array, " b"],
    choices: Choices,
    *,
    axis: str | None,
) -> Int[Array, " b"]:
    """The token at each position, from its logits, whose vocabulary an axis may split.

    Where all temperatures are 0, no noise is drawn.
    """
    logits = logits.astype(jnp.float32)

    def kept_and_noise(logits: Array) -> tuple[Array, Array]:
        limited = jnp.any((choices.top_k > 0) | (choices.top_p < 1))
        kept = lax.cond(limited, lambda x: truncated(x, choices, axis=axis), lambda x: x, logits)
        return kept, _noise(choices.seed, positions, logits, axis=axis)

    def as_they_are(logits: Array) -> tuple[Array, Array]:
        return logits, jnp.zeros_like(logits)

    warm = jnp.any(choices.temperature > 0)
    logits, noise = lax.cond(warm, kept_and_noise, as_they_are, logits)
    if axis is not None:
        return sample_parallel(logits, noise, choices.temperature, axis=axis)
    return jnp.argmax(logits + choices.temperature[:, None] * noise, -1)


def truncated(
    logits: Float[Array, "b v"], choices: Choices, *, axis: str | None
) -> Float[Array, "b v"]:
    """The logits of the most likely tokens, and -inf for the others: first top-k, then top-p.

    Tokens as likely as the last one that is kept are kept, too. Nothing is sorted: a threshold is
    found bit by bit, for which devices with a part of the vocabulary each exchange one number.

    Source: Fan et al. 2018 (Hierarchical Neural Story Generation), section 5.4; Holtzman et al.
        2020 (The Curious Case of Neural Text Degeneration), section 3.1
    """

    def total(x: Array) -> Array:
        return x.sum(-1) if axis is None else lax.psum(x.sum(-1), axis)

    def only(logits: Array, weights: Array, wanted: Array) -> Array:
        """The largest logits, as few as have the wanted weight together."""
        order = _ordered(logits)

        def weight(threshold: Array) -> Array:
            return total(jnp.where(order >= threshold[:, None], weights, 0))

        threshold = _largest(lambda threshold: weight(threshold) >= wanted, len(logits))
        return jnp.where(order >= threshold[:, None], logits, -jnp.inf)

    # What no weight reaches keeps all.
    top_k = jnp.where(choices.top_k > 0, choices.top_k, jnp.inf)
    logits = only(logits, jnp.ones_like(logits), top_k)
    warm = jnp.where(choices.temperature > 0, choices.temperature, 1)
    top = lax.stop_gradient(logits.max(-1))
    top = top if axis is None else lax.pmax(top, axis)
    weights = jnp.exp((logits - top[:, None]) / warm[:, None])
    top_p = jnp.where(choices.top_p < 1, choices.top_p * total(weights), jnp.inf)
    return only(logits, weights, top_p)


def _largest(fits: Callable[[Array], Array], rows: int) -> UInt[Array, " b"]:
    """For each row, the largest number of 32 bits that fits, where all below it do, or else 0."""

    def with_bit(i: Array, found: Array) -> Array:
        more = found | (jnp.uint32(1) << (31 - i).astype(jnp.uint32))
        return jnp.where(fits(more), more, found)

    return lax.fori_loop(0, 32, with_bit, jnp.zeros(rows, jnp.uint32))


def _ordered(x: Float[Array, "b v"]) -> UInt[Array, "b v"]:
    """Numbers of 32 bits in the order of these floats; none is 0."""
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    negative = bits >> 31 == 1
    return jnp.where(negative, ~bits, bits | jnp.uint32(1 << 31))


def _noise(
    seeds: Int[Array, " b"],
    positions: Int[Array, " b"],
    like: Float[Array, "b v"],
    *,
    axis: str | None,
) -> Float[Array, "b v"]:
    """Gumbel noise for each token; a device has that of its part of the vocabulary."""
    v = like.shape[1]
    n = 1 if axis is None else lax.axis_size(axis)

    def of_row(seed: Array, position: Array) -> Array:
        return jax.random.gumbel(jax.random.fold_in(jax.random.key(seed), position), (n * v,))

    noise = jax.vmap(of_row)(seeds, positions)
    if axis is None:
        return noise
    return lax.dynamic_slice_in_dim(vary(noise, (axis,)), lax.axis_index(axis) * v, v, axis=1)
