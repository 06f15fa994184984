"""MX formats, on one device: floats of 8 or 4 bits, of which 32 share a power of two as scale."""

import jax.numpy as jnp
from jax import Array
from jax.typing import DTypeLike
from jaxtyping import Float

BLOCK = 32


def mx_quantize(
    x: Float[Array, "*n size"], *, dtype: DTypeLike
) -> tuple[Float[Array, "*n size"], Float[Array, "*n blocks"]]:
    """Rounds each block of 32 numbers to small floats, times one power of two.

    With the dtype float8_e4m3fn this is MXFP8, with float4_e2m1fn it is MXFP4. The power of two
    takes a byte (float8_e8m0fnu) and brings the largest magnitude of the block to the largest
    binade of the dtype; what is above its largest number becomes that.

    Math: scale = 2**(floor(log2 max |x|) - floor(log2 max of dtype)); element = x / scale, rounded
    Memory: x*bits/32+x/128
    Source: Rouhani et al. 2023 (OCP Microscaling Formats v1.0), sections 5 and 6.3

    Raises:
        ValueError: 32 does not divide the numbers.
    """
    if x.shape[-1] % BLOCK:
        raise ValueError(
            f"mx_quantize: {x.shape[-1]} numbers in blocks of {BLOCK}; blocks must be full; pad x"
        )
    blocks = x.reshape(*x.shape[:-1], -1, BLOCK)
    most = float(jnp.finfo(dtype).max)
    largest = jnp.abs(blocks).max(axis=-1)
    exponents = jnp.frexp(jnp.where(largest == 0, 1, largest))[1] - jnp.frexp(jnp.float32(most))[1]
    scales = jnp.exp2(exponents.astype(x.dtype))
    elements = jnp.clip(blocks / scales[..., None], -most, most).astype(dtype)
    return elements.reshape(x.shape), scales.astype(jnp.float8_e8m0fnu)


def mx_dequantize(
    elements: Float[Array, "*n size"], scales: Float[Array, "*n blocks"], *, dtype: DTypeLike
) -> Float[Array, "*n size"]:
    """The numbers, in this dtype, that elements and the scales of their blocks stand for.

    Memory: elements
    Source: Rouhani et al. 2023 (OCP Microscaling Formats v1.0), section 5
    """
    blocks = elements.reshape(*scales.shape, -1).astype(dtype)
    return (blocks * scales.astype(dtype)[..., None]).reshape(elements.shape)
