"""Matrices rounded after training, so that products with what went through them change least.

Each function takes a matrix w [d, f] and returns codes [d, f] and the scales of its columns. A
product x @ w becomes (x @ codes) * scales.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Float32, Int8

POWERS = 21  # of activations that `awq` tries, from 0 to 1


def round_columns(
    w: Float32[Array, "d f"], *, bits: int
) -> tuple[Int8[Array, "d f"], Float32[Array, " f"]]:
    """Rounds each number to the nearest multiple of its column's scale, whatever x is.

    Math: scale_k = max_i |w_ik| / (2**(bits-1) - 1); code = round(w / scale)
    Memory: w/4+f
    Source: Dettmers et al. 2022 (LLM.int8()), section 3.1
    """
    scales = _scales(w, bits)
    return jnp.round(w / _not_zero(scales)[None]).astype(jnp.int8), scales


def gptq(
    w: Float32[Array, "d f"], x: Float32[Array, "t d"], *, bits: int, damping: float = 0.01
) -> tuple[Int8[Array, "d f"], Float32[Array, " f"]]:
    """Rounds row after row, and changes the rows that are left to make up for each error.

    x are inputs of the matrix, of some text. With H = x.T @ x, an error e of the weights changes
    the output by e.T @ H @ e, and the upper Cholesky factor U of the inverse of H says how the rows
    below should move: by -U[i, j] / U[i, i] times the error of row i.

    Math: row i: q = scale * round(w_i / scale); w_j = w_j - U_ij (w_i - q) / U_ii for all j >= i
    Memory: w/4+f
    Source: Frantar et al. 2022 (GPTQ), section 3 and algorithm 1

    Args:
        w: the matrix.
        x: inputs of it, from which H is taken.
        bits: of a code, 8 or fewer.
        damping: this part of the mean of H's diagonal is added to the diagonal.
    """
    most, scales = 2 ** (bits - 1) - 1, _scales(w, bits)
    hessian = x.T @ x
    hessian += damping * jnp.diag(hessian).mean() * jnp.eye(len(w))
    upper = jnp.linalg.cholesky(jnp.linalg.inv(hessian)).T  # 0 before the diagonal

    def round_row(i: Array, w: Array) -> Array:
        codes = jnp.clip(jnp.round(w[i] / _not_zero(scales)), -most, most)
        # In row i itself the difference is the error, so that the row becomes codes * scales.
        return w - jnp.outer(upper[i], (w[i] - codes * scales) / upper[i, i])

    rounded = lax.fori_loop(0, len(w), round_row, w)
    return jnp.round(rounded / _not_zero(scales)[None]).astype(jnp.int8), scales


def awq(
    w: Float32[Array, "d f"], x: Float32[Array, "t d"], *, bits: int
) -> tuple[Int8[Array, "d f"], Float32[Array, " f"], Float32[Array, " d"]]:
    """Multiplies rows by a power of their inputs' mean magnitude, and rounds then.

    The rows that large inputs meet become larger, so that less of them is lost. x must then be
    divided by the same numbers, the third result: x @ w becomes ((x / rows) @ codes) * scales. Of
    several powers from 0 to 1, that with the smallest error of the output is taken; 0 changes
    nothing.

    Math: rows_i = (mean_t |x_ti|)**p; code = round(w * rows / scale)
    Memory: w/4+f+d
    Source: Lin et al. 2023 (AWQ), section 3.2
    """
    exact, magnitudes = x @ w, _not_zero(jnp.abs(x).mean(axis=0))

    def scaled(power: Array) -> tuple[Array, tuple[Array, Array, Array]]:
        rows = magnitudes**power
        rows = rows / jnp.sqrt(rows.max() * rows.min())
        codes, scales = round_columns(w * rows[:, None], bits=bits)
        y = ((x / rows[None]) @ codes.astype(w.dtype)) * scales[None]
        return jnp.sum((y - exact) ** 2), (codes, scales, rows)

    errors, tried = lax.map(scaled, jnp.linspace(0, 1, POWERS))
    return jax.tree.map(lambda results: results[jnp.argmin(errors)], tried)


def _scales(w: Float[Array, "d f"], bits: int) -> Float[Array, " f"]:
    return jnp.abs(w).max(axis=0) / (2 ** (bits - 1) - 1)


def _not_zero(numbers: Array) -> Array:
    return jnp.where(numbers == 0, 1, numbers)
