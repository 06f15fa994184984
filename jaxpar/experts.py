"""Mixture of experts on one device: where each token goes, and the products of the experts.

A router gives each token a score for each of e experts. The token goes to the k best of them, and
what these give is added up by weight, so that a token costs k experts, however many there are.

There are two ways to form the products. With a capacity, every expert has as many rows as every
other, empty ones too, and a choice that finds no row is dropped. Without one, the rows stand expert
after expert, in groups of different sizes, and nothing is dropped.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpar import nn
from jaxpar.mesh import vary_alike

Score = Literal["softmax", "sigmoid"]


class Routing(NamedTuple):
    """Where tokens go.

    Attributes:
        weights: of the experts that a token goes to; for each token their sum is 1.
        experts: these experts, the best first.
        scores: of all experts, between 0 and 1.
        logits: of which the scores are made.
    """

    weights: Float[Array, "t k"]
    experts: Int[Array, "t k"]
    scores: Float[Array, "t e"]
    logits: Float[Array, "t e"]


def route(
    x: Float[Array, "t d"],
    router: Float[Array, "d e"],
    bias: Float[Array, " e"] | None = None,
    *,
    top_k: int,
    score: Score = "softmax",
) -> Routing:
    """Chooses the `top_k` experts with the best scores for each token.

    Returns `Routing(weights, experts, scores, logits)`. The logits are x @ router; the scores are
    their softmax over the experts, or the sigmoid of each. The best expert of a token comes first,
    and of equal ones that with the lowest number. The weights of a token are its chosen scores,
    divided by their sum, and this holds even where all of them are nearly 0. A `bias` is added to
    the scores where experts are chosen, and nowhere else: it balances their load
    (`jaxpar.parallel.expert`), and has no gradient. What comes out is float32, or float64 if x or
    the router is.

    Math: scores = softmax(x @ router); weights = scores_i / sum of the scores of the k best
    Comm:
        forward: nothing
        backward: nothing
    Memory: 2*weights+2*scores
    Source: Shazeer et al. 2017, section 2.1; Jiang et al. 2024 (Mixtral), section 2.1; DeepSeek-AI
        2024 (DeepSeek-V3), section 2.1.2

    Raises:
        ValueError: there are fewer experts than `top_k`, or `top_k` is below 1.
    """
    count = router.shape[1]
    if not 1 <= top_k <= count:
        raise ValueError(f"route: top_k is {top_k} of {count} experts; use 1 to {count}")
    wide = jnp.promote_types(x.dtype, jnp.float32)
    logits = x.astype(wide) @ router.astype(wide)
    logs = jax.nn.log_softmax(logits) if score == "softmax" else jax.nn.log_sigmoid(logits)
    scores = jnp.exp(logs)
    ranked = scores if bias is None else scores + nn.expand_to(scores, bias)
    _, experts = lax.top_k(ranked, top_k)
    # Of the logs, so that scores which are all very small give no 0/0.
    weights = jax.nn.softmax(jnp.take_along_axis(logs, experts, axis=1))
    return Routing(weights, experts, scores, logits)


def assign_slots(experts: Int[Array, "t k"], *, count: int, capacity: int) -> Int[Array, "t k"]:
    """The row of each choice, where each of `count` experts has `capacity` rows.

    Rows are given to the first choices of all tokens in their order, then to the second ones, and
    so on. Expert i has the rows from i * capacity on. A choice whose expert has no row left gets
    the row count * capacity, which does not exist.

    Math: slot = expert * capacity + number of earlier choices of that expert, if below capacity
    Comm:
        forward: nothing
        backward: no derivative
    Memory: experts
    Source: Lepikhin et al. 2020 (GShard), algorithm 1; Fedus, Zoph and Shazeer 2021 (Switch),
        section 2.2
    """
    choices = experts.T.reshape(-1)
    so_far = jnp.cumsum(jax.nn.one_hot(choices, count, dtype=jnp.int32), axis=0)
    place = jnp.take_along_axis(so_far, choices[:, None], axis=1)[:, 0] - 1
    slots = jnp.where(place < capacity, choices * capacity + place, count * capacity)
    return slots.reshape(experts.shape[::-1]).T


def dispatch(
    x: Float[Array, "t d"], slots: Int[Array, "t k"], *, rows: int
) -> Float[Array, "{rows} d"]:
    """Copies each token into its rows; rows without a token are 0.

    Math: y[slots_i] = x for each choice i
    Comm:
        forward: nothing
        backward: nothing
    Memory: rows*x/t
    Source: Lepikhin et al. 2020 (GShard), section 3.1
    """
    empty = jnp.zeros_like(x, shape=(rows, x.shape[1]))
    return empty.at[slots].set(x[:, None], mode="drop")


def combine(
    y: Float[Array, "rows d"], slots: Int[Array, "t k"], weights: Float[Array, "t k"]
) -> Float[Array, "t d"]:
    """Adds up the rows of each token by weight; a row that does not exist counts as 0.

    Math: z = sum_i weights_i * y[slots_i] over the choices i
    Comm:
        forward: nothing
        backward: nothing
    Memory: t*y/rows
    Source: Lepikhin et al. 2020 (GShard), section 3.1
    """
    chosen = y.at[slots].get(mode="fill", fill_value=0)
    return jnp.einsum("tkd,tk->td", chosen, weights).astype(y.dtype)


def with_capacity(
    x: Float[Array, "t d"],
    weights: Float[Array, "t k"],
    experts: Int[Array, "t k"],
    apply: Callable[[Float[Array, "e c d"]], Float[Array, "e c d"]],
    *,
    count: int,
    capacity: int,
) -> Float[Array, "t d"]:
    """Each token goes to its k of `count` experts, each of which takes `capacity` tokens.

    `apply` maps the rows of all experts to what these give. Choices that find no row are dropped.

    Math: y = sum_i weights_i * apply_{experts_i}(x) over the choices i that are not dropped
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: Lepikhin et al. 2020 (GShard), section 3.1
    """
    slots = assign_slots(experts, count=count, capacity=capacity)
    rows = dispatch(x, slots, rows=count * capacity).reshape(count, capacity, -1)
    return combine(apply(rows).reshape(-1, x.shape[1]), slots, weights)


def dropless(
    x: Float[Array, "t d"],
    weights: Float[Array, "t k"],
    experts: Int[Array, "t k"],
    w_gate: Float[Array, "e d f"],
    w_up: Float[Array, "e d f"],
    w_down: Float[Array, "e f d"],
    *,
    first: int | Int[Array, ""] = 0,
    block: int,
    skip: bool = False,
) -> Float[Array, "t d"]:
    """What e experts in a row give to the tokens that choose them, however many these are.

    They are the experts from number `first` on; choices of others add 0. The choices are sorted,
    expert after expert, and multiplied by blocks (`grouped_matmul`, which `block` and `skip` are
    for).

    Math: y = sum_i weights_i * mlp_{experts_i}(x) over the choices i of these experts
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: Gale et al. 2022 (MegaBlocks), sections 4 and 5
    """
    count, k = len(w_gate), experts.shape[1]
    own = experts.reshape(-1) - first
    own = jnp.where((own >= 0) & (own < count), own, count)  # those of others come last
    order = jnp.argsort(own)
    sizes = jnp.bincount(own, length=count + 1)[:count]
    rows = x[order // k]
    gate, up = (grouped_matmul(rows, w, sizes, block=block, skip=skip) for w in (w_gate, w_up))
    y = grouped_matmul(nn.swiglu(gate, up), w_down, sizes, block=block, skip=skip)
    y = y * weights.reshape(-1)[order][:, None]
    return jnp.zeros_like(x, y.dtype).at[order // k].add(y).astype(x.dtype)


def usual_block(rows: int, experts: int) -> int:
    """Rows of a block that fit groups of average size: a power of two from 8 to 128.

    Source: Gale et al. 2022 (MegaBlocks), section 5.1
    """
    return min(128, 1 << max(8, rows // experts).bit_length() - 1)


def apply_experts(
    x: Float[Array, "e t d"],
    w_gate: Float[Array, "e d f"],
    w_up: Float[Array, "e d f"],
    w_down: Float[Array, "e f d"],
) -> Float[Array, "e t d"]:
    """The gated MLP of each expert, on as many rows as of every other.

    Math: y = (silu(x @ w_gate) * (x @ w_up)) @ w_down for each expert
    Comm:
        forward: nothing
        backward: nothing
    Memory: x
    Source: Shazeer 2020 (GLU Variants), section 2
    """
    return nn.swiglu(x @ w_gate, x @ w_up) @ w_down


def grouped_matmul(
    x: Float[Array, "t d"],
    w: Float[Array, "e d f"],
    sizes: Int[Array, " e"],
    *,
    block: int,
    skip: bool = False,
) -> Float[Array, "t f"]:
    """Multiplies each of e groups of rows by its own matrix; rows after the last group give 0.

    The first sizes[0] rows are multiplied by w[0], the next sizes[1] by w[1], and so on. Each group
    is padded to full blocks of `block` rows, so that all rows of a block have the same matrix.
    There are at most (t + e*(block-1)) / block blocks, and all of these are computed, so that the
    number of products is known when the program is traced. With `skip`, only blocks that hold rows
    of a group are computed, and their number is known only when the program runs. On GPUs and TPUs
    this calls `jax.lax.ragged_dot`, whose kernels need no padding; on CPUs, that function
    multiplies all rows by all matrices.

    Math: y_i = x_i @ w_i for the rows of each group i
    Comm:
        forward: nothing
        backward: nothing
    Memory: y
    Source: Gale et al. 2022 (MegaBlocks), section 5

    Raises:
        ValueError: `block` is below 1.
    """
    if block < 1:
        raise ValueError(f"grouped_matmul: block is {block}; use 1 or more rows, such as 128")
    x, w, sizes = vary_alike(*map(jnp.asarray, (x, w, sizes)))
    return _grouped(block, skip, x, w, sizes)


@partial(jax.custom_vjp, nondiff_argnums=(0, 1))
def _grouped(block: int, skip: bool, x: Array, w: Array, sizes: Array) -> Array:
    by_blocks = partial(_by_blocks, block, skip)
    return lax.platform_dependent(x, w, sizes, cpu=by_blocks, default=lax.ragged_dot)


def _forward(block: int, skip: bool, x: Array, w: Array, sizes: Array) -> tuple:
    return _grouped(block, skip, x, w, sizes), (x, w, sizes)


def _backward(block: int, skip: bool, residuals: tuple, dy: Array) -> tuple:
    by_blocks = partial(_gradients_by_blocks, block, skip)
    dx, dw = lax.platform_dependent(*residuals, dy, cpu=by_blocks, default=gradients_by_kernel)
    return dx, dw, None


_grouped.defvjp(_forward, _backward)


def gradients_by_kernel(x: Array, w: Array, sizes: Array, dy: Array) -> tuple[Array, Array]:
    """The gradients of x and w where `jax.lax.ragged_dot` multiplies the groups."""
    _, vjp = jax.vjp(lambda x, w: lax.ragged_dot(x, w, sizes), x, w)
    return vjp(dy)


class _Blocks(NamedTuple):
    """How groups of rows fill blocks.

    Attributes:
        owners: the group of each block; e for the blocks after those of the last group.
        rows: where in all blocks each row goes; beyond their end if it is in no group.
        block: rows of a block.
    """

    owners: Int[Array, " blocks"]
    rows: Int[Array, " t"]
    block: int

    def fill(self, x: Array) -> Float[Array, "blocks block d"]:
        """The rows of x in their blocks."""
        shape = len(self.owners), self.block, x.shape[1]
        flat = jnp.zeros_like(x, shape=(shape[0] * shape[1], shape[2]))
        return flat.at[self.rows].set(x, mode="drop").reshape(shape)

    def read(self, y: Float[Array, "blocks block f"]) -> Float[Array, "t f"]:
        """The rows of blocks in their order."""
        return y.reshape(-1, y.shape[2]).at[self.rows].get(mode="fill", fill_value=0)


def _blocks(sizes: Array, rows: int, block: int) -> _Blocks:
    count = len(sizes)
    full = -(-sizes // block)
    last_block, last_row, row = jnp.cumsum(full), jnp.cumsum(sizes), jnp.arange(rows)
    most = (rows + count * (block - 1)) // block
    owners = jnp.searchsorted(last_block, jnp.arange(most), side="right")
    group = jnp.searchsorted(last_row, row, side="right")
    moved = (last_block - full) * block - (last_row - sizes)
    return _Blocks(owners, row + moved.at[group].get(mode="fill", fill_value=most * block), block)


def _by_blocks(block: int, skip: bool, x: Array, w: Array, sizes: Array) -> Array:
    blocks = _blocks(sizes, len(x), block)
    filled = blocks.fill(x)

    def multiply(i: Array, y: Array) -> Array:
        return y.at[i].set(filled[i] @ w[blocks.owners[i]])

    y = jnp.zeros_like(filled, shape=(*filled.shape[:2], w.shape[2]))
    return blocks.read(_for_each(blocks, len(w), skip, multiply, y))


def _gradients_by_blocks(
    block: int, skip: bool, x: Array, w: Array, sizes: Array, dy: Array
) -> tuple[Array, Array]:
    blocks = _blocks(sizes, len(x), block)
    filled, gradients = blocks.fill(x), blocks.fill(dy)
    wide = jnp.promote_types(w.dtype, jnp.float32)

    def multiply(i: Array, done: tuple[Array, Array]) -> tuple[Array, Array]:
        (dx, dw), owner = done, blocks.owners[i]
        product = jnp.matmul(filled[i].T, gradients[i], preferred_element_type=wide)
        return dx.at[i].set(gradients[i] @ w[owner].T), dw.at[owner].add(product)

    zeros = jnp.zeros_like(filled), jnp.zeros_like(w, wide)
    dx, dw = _for_each(blocks, len(w), skip, multiply, zeros)
    return blocks.read(dx), dw.astype(w.dtype)


def _for_each(
    blocks: _Blocks, groups: int, skip: bool, body: Callable[[Array, Any], Any], carry: Any
) -> Any:
    """Runs `body(i, carry)` for every block; with `skip`, for those of a group alone."""
    count = (blocks.owners < groups).sum() if skip else len(blocks.owners)
    return lax.fori_loop(0, count, body, carry)
