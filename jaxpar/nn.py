"""The parts of a transformer on one device, as pure functions that several techniques use.

They compute in the dtype of their arguments. Only what would lose too much precision in 16 bits is
computed in float32 and rounded once: sums of squares, softmax, powers, and the gradient of an
embedding table.
"""

import itertools
import math
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def matmul(x: Float[Array, "*n i"], w: Float[Array, "i o"]) -> Float[Array, "*n o"]:
    """Multiplies every vector of x by w."""
    # The leading dims are flattened into one: otherwise XLA's CPU compiler transposes the gradient
    # in a copy before each product, and a training step takes a tenth longer.
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(*x.shape[:-1], w.shape[1])


def matmuls(
    x: Float[Array, "*n i"], *weights: Float[Array, "i _"]
) -> tuple[Float[Array, "*n _"], ...]:
    """Multiplies every vector of x by each of several matrices, in one product.

    This pays for narrow matrices, because x is read only once, and transposed only once in the
    backward pass. Do not use it for matrices that the compiler shards: it would gather them first,
    in order to concatenate them.
    """
    if len(weights) == 1:
        return (matmul(x, weights[0]),)
    ends = list(itertools.accumulate(w.shape[1] for w in weights))
    return tuple(jnp.split(matmul(x, jnp.concatenate(weights, axis=1)), ends[:-1], axis=-1))


def embed(table: Float[Array, "v d"], tokens: Int[Array, "*n"]) -> Float[Array, "*n d"]:
    """Looks up each token's row of the embedding table."""
    return _at_least_float32(table)[tokens].astype(table.dtype)


def rms_norm(
    x: Float[Array, "*n d"], scale: Float[Array, " d"], epsilon: float = 1e-6
) -> Float[Array, "*n d"]:
    """Divides every vector of x by its root mean square (Zhang and Sennrich 2019)."""
    wide = _at_least_float32(x)
    unit = wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + epsilon)
    return (unit * expand_to(x, scale)).astype(x.dtype)


def layer_norm(
    x: Float[Array, "*n d"],
    scale: Float[Array, " d"],
    bias: Float[Array, " d"],
    epsilon: float = 1e-6,
) -> Float[Array, "*n d"]:
    """Normalizes every vector of x to mean 0 and variance 1 (Ba, Kiros and Hinton 2016)."""
    wide = _at_least_float32(x)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    unit = centred * lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + epsilon)
    return (unit * expand_to(x, scale) + expand_to(x, bias)).astype(x.dtype)


def gelu(x: Float[Array, "*n f"]) -> Float[Array, "*n f"]:
    """GELU in its tanh form, about x times Phi(x) of the normal (Hendrycks and Gimpel 2016)."""
    return jax.nn.gelu(_at_least_float32(x)).astype(x.dtype)


def swiglu(gate: Float[Array, "*n f"], up: Float[Array, "*n f"]) -> Float[Array, "*n f"]:
    """The gated activation of Llama's MLP: silu(gate) * up (Shazeer 2020)."""
    return jax.nn.silu(gate) * up


@dataclass(frozen=True)
class RopeScaling:
    """Rotary positions for longer sequences than a model began with, as in Llama 3.1.

    A frequency that turns less than `low` times in `original` positions is divided by `factor`, one
    that turns more than `high` times stays, and in between it changes from one to the other.

    Source: Grattafiori et al. 2024 (Llama 3); huggingface/transformers, modeling_rope_utils.py
    """

    factor: float
    low: float
    high: float
    original: int

    def scale(self, frequencies: Float[Array, " h"]) -> Float[Array, " h"]:
        """The frequencies for longer sequences."""
        turns = self.original * frequencies / (2 * math.pi)
        kept = jnp.clip((turns - self.low) / (self.high - self.low), 0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


def rotary(
    x: Float[Array, "b a t h"],
    positions: Int[Array, " t"],
    theta: float = 10_000.0,
    scaling: RopeScaling | None = None,
) -> Float[Array, "b a t h"]:
    """Rotates each pair (i, i + h/2) by an angle for its position (Su et al. 2021, section 3.4)."""
    half = x.shape[-1] // 2
    frequencies = theta ** (-jnp.arange(half) / half)
    frequencies = scaling.scale(frequencies) if scaling else frequencies
    angles = (positions[:, None] * frequencies[None])[None, None]  # [1, 1, t, h/2]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention(
    q: Float[Array, "b a t h"],
    k: Float[Array, "b k t h"],
    v: Float[Array, "b k t h"],
) -> Float[Array, "b a t h"]:
    """Causal attention; each of the k kv heads serves a/k consecutive query heads.

    Raises:
        ValueError: the number of kv heads does not divide the number of heads.
    """
    (b, a, t, h), kv_heads = q.shape, k.shape[1]
    check_kv_heads("attention", a, kv_heads)
    # The queries of consecutive heads are stacked, so that each kv head needs only one product.
    q = (q / math.sqrt(h)).reshape(b, kv_heads, -1, h)
    scores = (q @ k.mT).reshape(b, a, t, -1)
    scores = jnp.where(
        jnp.tril(jnp.ones((t, t), bool))[None, None], _at_least_float32(scores), -jnp.inf
    )
    weights = jax.nn.softmax(scores).astype(v.dtype)
    return (weights.reshape(b, kv_heads, -1, t) @ v).reshape(b, a, t, h)


def check_kv_heads(where: str, heads: int, kv_heads: int) -> None:
    """Raises a ValueError that begins with `where` if the kv heads do not divide the heads."""
    if heads % kv_heads:
        divisors = " or ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise ValueError(
            f"{where}: {heads} heads and {kv_heads} kv heads; the kv heads must divide the heads; "
            f"use {divisors}"
        )


def cross_entropy(logits: Float[Array, "*n v"], targets: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Minus the log of the probability that the logits give to each target, in float32."""
    logits = _at_least_float32(logits)
    target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - target


def distillation_loss(
    student: Float[Array, "*n v"], teacher: Float[Array, "*n v"], *, temperature: float
) -> Float[Array, "*n"]:
    """How far the student's probabilities are from the teacher's, in float32.

    Both are softmaxes of logits over `temperature`. It is the Kullback-Leibler divergence times
    temperature**2, without a gradient with respect to the teacher.

    Source: Hinton, Vinyals and Dean 2015 (Distilling the Knowledge in a Neural Network), section 2
    """
    told, given = (
        jax.nn.log_softmax(_at_least_float32(logits) / temperature, axis=-1)
        for logits in (jax.lax.stop_gradient(teacher), student)
    )
    return temperature**2 * (jnp.exp(told) * (told - given)).sum(axis=-1)


def _at_least_float32(x: Array) -> Array:
    """Casts x to float32, unless its dtype is already as wide."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def expand_to(x: Array, weight: Array) -> Array:
    """Adds leading dims of size 1 to a weight [d], so that it has as many dims as x."""
    # It is not broadcast to the shape of x: in `shard_map`, where the weight is equal on all
    # devices, JAX would then sum over the devices a gradient as large as x.
    return jnp.expand_dims(weight, range(x.ndim - 1))
