"""The parts of a transformer as pure functions of arrays, which several techniques share.

They compute in the dtype of their arguments. Only what would lose too much in 16 bits is computed
in float32 and rounded once: sums of squares, softmax, powers, and the gradient of a table.
"""

import itertools
import math

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int


def matmul(x: Float[Array, "*n i"], w: Float[Array, "i o"]) -> Float[Array, "*n o"]:
    """Every vector of x times w."""
    # All positions in one dim: with more, XLA's CPU compiler turns the gradient round in a copy
    # before each product, and a training step takes a tenth longer.
    return (x.reshape(-1, x.shape[-1]) @ w).reshape(*x.shape[:-1], w.shape[1])


def matmuls(
    x: Float[Array, "*n i"], *weights: Float[Array, "i _"]
) -> tuple[Float[Array, "*n _"], ...]:
    """Every vector of x times each of some matrices, in one product.

    It pays for narrow matrices: x is read, and in the backward pass transposed, once. Matrices that
    the compiler splits it would first put together over the devices.
    """
    if len(weights) == 1:
        return (matmul(x, weights[0]),)
    ends = list(itertools.accumulate(w.shape[1] for w in weights))
    return tuple(jnp.split(matmul(x, jnp.concatenate(weights, axis=1)), ends[:-1], axis=-1))


def embed(table: Float[Array, "v d"], tokens: Int[Array, "*n"]) -> Float[Array, "*n d"]:
    """The row of each token."""
    return _wide(table)[tokens].astype(table.dtype)


def rms_norm(x: Float[Array, "*n d"], scale: Float[Array, " d"]) -> Float[Array, "*n d"]:
    """Every vector of x divided by its root mean square (Zhang and Sennrich 2019)."""
    wide = _wide(x)
    unit = wide * lax.rsqrt(jnp.mean(wide * wide, axis=-1, keepdims=True) + 1e-6)
    return (unit * _over(x, scale)).astype(x.dtype)


def layer_norm(
    x: Float[Array, "*n d"], scale: Float[Array, " d"], bias: Float[Array, " d"]
) -> Float[Array, "*n d"]:
    """Every vector of x with mean 0 and variance 1 (Ba, Kiros and Hinton 2016)."""
    wide = _wide(x)
    centred = wide - jnp.mean(wide, axis=-1, keepdims=True)
    unit = centred * lax.rsqrt(jnp.mean(centred * centred, axis=-1, keepdims=True) + 1e-6)
    return (unit * _over(x, scale) + _over(x, bias)).astype(x.dtype)


def gelu(x: Float[Array, "*n f"]) -> Float[Array, "*n f"]:
    """The tanh form of GELU: x times the chance of less than x (Hendrycks and Gimpel 2016)."""
    return jax.nn.gelu(_wide(x)).astype(x.dtype)


def swiglu(gate: Float[Array, "*n f"], up: Float[Array, "*n f"]) -> Float[Array, "*n f"]:
    """What `up` says, as far as `gate` lets it through (Shazeer 2020)."""
    return jax.nn.silu(gate) * up


def rotary(x: Float[Array, "b a t h"], positions: Int[Array, " t"]) -> Float[Array, "b a t h"]:
    """Pairs (i, i + h/2) of x turned by their position's angle (Su et al. 2021, section 3.4)."""
    half = x.shape[-1] // 2
    frequencies = 10_000.0 ** (-jnp.arange(half) / half)
    angles = (positions[:, None] * frequencies[None])[None, None]  # [1, 1, t, h/2]
    cos, sin = jnp.cos(angles).astype(x.dtype), jnp.sin(angles).astype(x.dtype)
    first, second = x[..., :half], x[..., half:]
    return jnp.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def attention(
    q: Float[Array, "b a t h"], k: Float[Array, "b k t h"], v: Float[Array, "b k t h"]
) -> Float[Array, "b a t h"]:
    """Causal attention; heads a share the kv heads k in turn, a/k neighbours each.

    Raises:
        ValueError: there are not a whole number of heads for each kv head.
    """
    (b, a, t, h), kv_heads = q.shape, k.shape[1]
    if a % kv_heads:
        divisors = " or ".join(str(n) for n in range(1, a + 1) if a % n == 0)
        raise ValueError(
            f"attention: {a} heads and {kv_heads} kv heads; the kv heads must divide the heads; "
            f"use {divisors}"
        )
    # Neighbours' queries stand one after another, so that one product serves a kv head.
    q = (q / math.sqrt(h)).reshape(b, kv_heads, -1, h)
    scores = (q @ k.mT).reshape(b, a, t, t)
    past = jnp.tril(jnp.ones((t, t), bool))[None, None]
    weights = jax.nn.softmax(jnp.where(past, _wide(scores), -jnp.inf)).astype(v.dtype)
    return (weights.reshape(b, kv_heads, -1, t) @ v).reshape(b, a, t, h)


def cross_entropy(logits: Float[Array, "*n v"], targets: Int[Array, "*n"]) -> Float[Array, "*n"]:
    """Minus the log of the probability that the logits give to each target, in float32."""
    logits = _wide(logits)
    target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    return jax.nn.logsumexp(logits, axis=-1) - target


def _wide(x: Array) -> Array:
    """In float32, unless it has as many bits already."""
    return x.astype(jnp.promote_types(x.dtype, jnp.float32))


def _over(x: Array, weight: Array) -> Array:
    """The weight [d] in as many dims as x."""
    # Not broadcast to x's shape: in `shard_map` JAX would sum a gradient of that shape over the
    # devices, where the weight is equal on all.
    return jnp.expand_dims(weight, range(x.ndim - 1))
