"""Causal attention by the kernels that JAX keeps for GPUs and TPUs, or by tiles where none fits.

A kernel keeps a tile of scores in the fast memory on the chip, which a loop of XLA cannot.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jaxtyping import Float

from jaxpar.flash import KEPT, flash_attention, usual_tile
from jaxpar.mesh import vary_alike

# Of a head's numbers, cuDNN takes a multiple of 8, on every GPU that it supports up to 128.
_CUDNN_HEADS = range(8, 129, 8)
# A register of a TPU has 128 lanes, and splash attention works on whole registers.
_LANES = 128


def fused_attention(
    q: Float[Array, "b a t h"], k: Float[Array, "b k t h"], v: Float[Array, "b k t h"]
) -> Float[Array, "b a t h"]:
    """Causal attention that holds no matrix of all scores, as fast as this machine's devices can.

    On GPUs from Ampere on this is the kernel of cuDNN, for 16 bits and heads of 8, 16, ... or 128
    numbers. On TPUs it is splash attention, for multiples of 128 positions and heads of multiples
    of 128 numbers. Elsewhere, and for other sizes, it is `flash_attention`. Each of the k kv heads
    serves a/k consecutive query heads.

    Splash attention does not say over which axes its results vary, so `jax.shard_map` refuses it
    while it checks this, and there attention is by tiles.

    Math: y = softmax(q @ k.T / sqrt(h), over the keys up to the query's position) @ v
    Comm:
        forward: nothing
        backward: nothing
    Memory: q
    Source: Dao 2023 (FlashAttention-2), section 3.1

    Raises:
        ValueError: the kv heads do not divide the heads.
    """
    kernel = kernel_for(jax.devices()[0], q)
    by_tiles = partial(flash_attention, tile=usual_tile(q.shape[2]))
    return (kernel or by_tiles)(q, k, v)


def kernel_for(device: Any, q: Array) -> Callable[..., Array] | None:
    """The kernel that a device of JAX has for attention of these queries [b a t h], if any."""
    t, h = q.shape[2:]
    if device.platform == "gpu" and _is_ampere(device) and h in _CUDNN_HEADS:
        return by_cudnn if q.dtype in (jnp.bfloat16, jnp.float16) else None
    checked = jax.sharding.get_abstract_mesh().manual_axes
    if device.platform == "tpu" and not (checked or t % _LANES or h % _LANES):
        return by_splash
    return None


def by_cudnn(q: Array, k: Array, v: Array) -> Array:
    """Causal attention by the kernel of cuDNN."""
    q, k, v = (x.swapaxes(1, 2) for x in vary_alike(q, k, v))
    kernel = partial(jax.nn.dot_product_attention, is_causal=True, implementation="cudnn")
    attended: Array = _kept(kernel, q, k, v)
    return attended.swapaxes(1, 2)


def by_splash(q: Array, k: Array, v: Array, *, interpret: bool = False) -> Array:
    """Causal attention by the kernel for TPUs; any device can interpret it, slowly."""
    heads, t, h = q.shape[1:]
    mask = splash.MultiHeadMask([splash.CausalMask((t, t))] * heads)

    def kernel(q: Array, k: Array, v: Array) -> Array:
        of_one = splash.make_splash_mha_single_device(mask, interpret=interpret)
        attended: Any = jax.vmap(of_one)(q, k, v)  # with statistics, if they were asked for
        return attended

    attended: Array = _kept(kernel, q * jnp.asarray(h**-0.5, q.dtype), k, v)
    return attended


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _kept(kernel: Callable[..., Array], q: Array, k: Array, v: Array) -> Array:
    """What a kernel computes; a policy of `jax.checkpoint` can keep what its gradient needs."""
    return kernel(q, k, v)


def _forward(
    kernel: Callable[..., Array], q: Array, k: Array, v: Array
) -> tuple[Array, Callable[[Array], tuple[Array, ...]]]:
    """The result, and the kernel's own backward pass, as a tree of the arrays that it keeps."""
    attended, lse = KEPT
    o, backward = jax.vjp(kernel, q, k, v)
    result = checkpoint_name(o, attended)

    def name(kept: Array) -> Array:
        if kept is o:
            return result
        # Beside the result, the log-sum-exp [b a t] is all that the kernel has computed.
        return checkpoint_name(kept, lse) if kept.ndim == o.ndim - 1 else kept

    return result, jax.tree.map(name, backward)


def _backward(
    _: Callable[..., Array], backward: Callable[[Array], tuple[Array, ...]], do: Array
) -> tuple[Array, ...]:
    return backward(do)


_kept.defvjp(_forward, _backward)


def _is_ampere(device: Any) -> bool:
    """Whether a GPU is one of Nvidia's, from Ampere on; other makers' have no such number."""
    generation = getattr(device, "compute_capability", "").partition(".")[0]
    return generation.isdigit() and int(generation) >= 8
