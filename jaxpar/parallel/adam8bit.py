"""Adam whose two moments are kept in 8 bits: 2 bytes for each parameter in place of 8.

A moment is a code of 8 bits for each number, and the largest magnitude of each block of them.
Blocks are cut from the last dim of a leaf, so that a shard of the leaf has whole blocks, and its
state is sharded as the leaf is. How long a block is depends on the whole leaf alone, not on the
mesh, so that a checkpoint of one mesh can be resumed on another.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Float, Int, PyTree, UInt8

from jaxpar.cost.eight_bits import block_of
from jaxpar.mesh import vary_alike
from jaxpar.quantize import decode_blocks, dynamic_codebook, encode_blocks

SIGNED = dynamic_codebook(signed=True)
UNSIGNED = dynamic_codebook(signed=False)
SLICE = 1 << 14  # numbers that are in float32 at a time


class Adam8bitState(NamedTuple):
    """The state of Adam in 8 bits; each tree has the structure of the parameters.

    Where a block has one number only, the largest magnitudes are the moments themselves, in
    float32, and the codes say nothing.

    Attributes:
        count: the steps taken so far.
        m_codes: codes of the means of the gradients, in the signed dynamic codebook.
        m_largest: the largest magnitude of each block of them.
        v_codes: codes of the means of the squared gradients, in the unsigned dynamic codebook.
        v_largest: the largest of each block of them.
    """

    count: Int[Array, ""]
    m_codes: PyTree[UInt8[Array, "..."]]
    m_largest: PyTree[Float[Array, "..."]]
    v_codes: PyTree[UInt8[Array, "..."]]
    v_largest: PyTree[Float[Array, "..."]]


def adam8bit_update(
    grads: PyTree[Array], state: Adam8bitState, *, b1: float, b2: float, eps: float
) -> tuple[PyTree[Array], Adam8bitState]:
    """What Adam moves each parameter by, over the learning rate, and the new state in 8 bits.

    `state` has, for each leaf of the gradients, the codes of both moments, with the shape of the
    leaf, and the largest magnitude of each block of them: [*n, blocks] for a leaf [*n, size], whose
    last dim is cut into blocks of size/blocks numbers. Where blocks have one number, the moment is
    that in place of the largest magnitude. The moves are of the new moments in float32, before
    these are rounded, and are float32 themselves. A leaf is decoded, updated and encoded slice by
    slice, so that only a slice of its moments is in float32 at a time.

    Math: m = b1*m + (1-b1)*grads; v = b2*v + (1-b2)*grads**2; t = count+1;
        y = (m/(1-b1**t)) / (sqrt(v/(1-b2**t)) + eps)
    Comm:
        forward: nothing
        backward: no derivative
    Memory: grads+state
    Source: Dettmers et al. 2022 (8-bit Optimizers via Block-wise Quantization), section 2
    """
    tree = jax.tree.structure(grads)
    count = state.count + 1
    rule = _Rule(b1, b2, eps, count.astype(jnp.float32))
    leaves = zip(*map(jax.tree.leaves, (grads, *state[1:])), strict=True)
    moved = [rule.of_leaf(*of_leaf) for of_leaf in leaves]
    moves, *held = (tree.unflatten(part) for part in zip(*moved, strict=True))
    return moves, Adam8bitState(count, *held)


def scale_by_adam8bit(
    b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> optax.GradientTransformation:
    """`optax.scale_by_adam` with a state in 8 bits, which `--zero` shards like any other.

    Weight decay and the learning rate follow it in `optax.chain`. The state is made of the whole
    leaves, or of shapes of them, not of shards, since their sizes say how long blocks are.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: state
    Source: Dettmers et al. 2022 (8-bit Optimizers via Block-wise Quantization), section 2
    """

    def init(params: PyTree[Array]) -> Adam8bitState:
        def codes() -> PyTree[Array]:
            return jax.tree.map(lambda leaf: jnp.zeros_like(leaf, jnp.uint8), params)

        def largest() -> PyTree[Array]:
            return jax.tree.map(_zero_blocks, params)

        return Adam8bitState(jnp.int32(0), codes(), largest(), codes(), largest())

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        del params
        return adam8bit_update(updates, state, b1=b1, b2=b2, eps=eps)

    return optax.GradientTransformation(init, update)


def _zero_blocks(leaf: Any) -> Float[Array, "..."]:
    shape = leaf.shape and (*leaf.shape[:-1], leaf.shape[-1] // block_of(leaf.shape))
    return jnp.zeros_like(leaf, jnp.float32, shape=shape)


class _Rule(NamedTuple):
    """Adam's step number t."""

    b1: float
    b2: float
    eps: float
    t: Float[Array, ""]

    def of_leaf(
        self, grad: Array, m_codes: Array, m_largest: Array, v_codes: Array, v_largest: Array
    ) -> tuple[Array, ...]:
        """The move of a leaf, and what is kept of its moments."""
        if m_largest.shape == grad.shape:
            move, m, v = self.of_numbers(grad.astype(jnp.float32), m_largest, v_largest)
            return move, m_codes, m, v_codes, v
        held = grad.astype(jnp.float32), m_codes, m_largest, v_codes, v_largest
        blocks = m_largest.size
        each = _divisor(blocks, SLICE * blocks // grad.size)  # blocks in a slice
        moved = _in_place(self.of_slice, [one.reshape(blocks // each, each, -1) for one in held])
        return tuple(new.reshape(old.shape) for new, old in zip(moved, held, strict=True))

    def of_slice(
        self, grad: Array, m_codes: Array, m_largest: Array, v_codes: Array, v_largest: Array
    ) -> tuple[Array, ...]:
        """The same for some blocks, which are rows."""
        block = grad.shape[-1]
        m = decode_blocks(m_codes, m_largest, SIGNED)
        v = decode_blocks(v_codes, v_largest, UNSIGNED)
        move, m, v = self.of_numbers(grad, m, v)
        return (
            move,
            *encode_blocks(m, SIGNED, block=block),
            *encode_blocks(v, UNSIGNED, block=block),
        )

    def of_numbers(self, grad: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """The move, and the new moments, in float32."""
        m = self.b1 * m + (1 - self.b1) * grad
        v = self.b2 * v + (1 - self.b2) * grad**2
        root = jnp.sqrt(v / (1 - self.b2**self.t))
        return m / (1 - self.b1**self.t) / (root + self.eps), m, v


def _in_place(
    function: Callable[..., tuple[Array, ...]], arrays: Sequence[Array]
) -> tuple[Array, ...]:
    """The results of a function of one row of each array at a time, in the memory of the arrays.

    The rows are taken in groups of several, each by a loop of its own. Without that loop, XLA would
    read a row again after it is overwritten, and so copy the whole arrays for each row.
    """
    rows = len(arrays[0])
    group = next((n for n in range(2, rows) if rows % n == 0), rows)

    def update(place: Array, whole: list[Array]) -> list[Array]:
        rows = [lax.dynamic_index_in_dim(one, place, keepdims=False) for one in whole]
        results = lax.map(lambda row: function(*row), rows)
        return [
            lax.dynamic_update_index_in_dim(old, new, place, axis=0)
            for old, new in zip(whole, results, strict=True)
        ]

    grouped = [one.reshape(rows // group, group, *one.shape[1:]) for one in vary_alike(*arrays)]
    return tuple(lax.fori_loop(0, rows // group, update, grouped))


def _divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is at most `most`, or 1."""
    return next((n for n in range(min(number, most), 0, -1) if number % n == 0), 1)
