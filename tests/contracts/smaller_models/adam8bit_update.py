"""Answers to adam8bit_update: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from jaxpar.contracts.base import wrong
from jaxpar.parallel.adam8bit import Adam8bitState
from jaxpar.quantize import decode_blocks, dynamic_codebook, encode_blocks
from tests.contracts.answers import right

BOOKS = dynamic_codebook(signed=True), dynamic_codebook(signed=False)


def _step(grad, m, v, t, b1, b2, eps):
    grad = grad.astype(jnp.float32)
    m, v = b1 * m + (1 - b1) * grad, b2 * v + (1 - b2) * grad**2
    return m / (1 - b1**t) / (jnp.sqrt(v / (1 - b2**t)) + eps), m, v


def _mapped(grads, state, rule, slices, encode=encode_blocks):
    """Adam over each leaf, cut into at least so many slices."""
    count = state.count + 1
    t = count.astype(jnp.float32)

    def of_leaf(grad, *held):
        if held[0].shape == held[1].shape:
            move, m, v = _step(grad, held[1], held[3], t, *rule)
            return move, held[0], m, held[2], v

        def of_slice(given):
            grad, *held = given
            m, v = decode_blocks(*held[:2], BOOKS[0]), decode_blocks(*held[2:], BOOKS[1])
            move, m, v = _step(grad, m, v, t, *rule)
            block = grad.shape[-1]
            return move, *encode(m, BOOKS[0], block=block), *encode(v, BOOKS[1], block=block)

        blocks = held[1].size
        count = next(n for n in range(min(slices, blocks), blocks + 1) if blocks % n == 0)
        cut = [one.reshape(count, blocks // count, -1) for one in (grad, *held)]
        results = lax.map(of_slice, cut)
        return [new.reshape(old.shape) for new, old in zip(results, (grad, *held), strict=True)]

    leaves, tree = jax.tree.flatten(grads)
    parts = [jax.tree.leaves(part) for part in state[1:]]
    moved = [of_leaf(*leaf) for leaf in zip(leaves, *parts, strict=True)]
    moves, *held = (tree.unflatten(part) for part in zip(*moved, strict=True))
    return moves, Adam8bitState(count, *held)


@right
def slices_by_lax_map(grads, state, *, b1, b2, eps):
    return _mapped(grads, state, (b1, b2, eps), 16)


@right
def many_small_slices(grads, state, *, b1, b2, eps):
    return _mapped(grads, state, (b1, b2, eps), 128)


@right
def codes_by_a_search(grads, state, *, b1, b2, eps):
    def encode(x, book, *, block):
        largest = jnp.abs(x).max(axis=-1, keepdims=True)
        borders = jnp.asarray((book[:-1] + book[1:]) / 2)
        scaled = x / jnp.where(largest == 0, 1, largest)
        return jnp.searchsorted(borders, scaled).astype(jnp.uint8), largest

    return _mapped(grads, state, (b1, b2, eps), 32, encode)


@wrong("memory")
def two_halves(grads, state, *, b1, b2, eps):
    return _mapped(grads, state, (b1, b2, eps), 2)


@wrong("values")
def moments_in_bfloat16(grads, state, *, b1, b2, eps):
    def encode(x, book, *, block):
        return encode_blocks(x.astype(jnp.bfloat16).astype(jnp.float32), book, block=block)

    return _mapped(grads, state, (b1, b2, eps), 16, encode)


@wrong("values")
def rounded_up_and_down_in_turn(grads, state, *, b1, b2, eps):
    def encode(x, book, *, block):
        codes, largest = encode_blocks(x, book, block=block)
        odd = jnp.arange(x.shape[-1]) % 2
        return jnp.where(codes < 255, codes + odd.astype(jnp.uint8), codes), largest

    return _mapped(grads, state, (b1, b2, eps), 16, encode)


@wrong("values")
def blocks_of_256_always(grads, state, *, b1, b2, eps):
    def encode(x, book, *, block):
        flat = x.reshape(-1)
        pad = -flat.size % 256
        codes, largest = encode_blocks(jnp.pad(flat, (0, pad)), book, block=256)
        each = largest.repeat(256)[: flat.size].reshape(x.shape)[:, :1]
        return codes[: flat.size].reshape(x.shape), each

    return _mapped(grads, state, (b1, b2, eps), 16, encode)


@wrong("values")
def gradients_alone(grads, state, *, b1, b2, eps):
    zeros = jax.tree.map(jnp.zeros_like, state)
    moves, new = _mapped(grads, zeros, (b1, b2, eps), 16)
    return moves, new._replace(count=state.count + 1)


@wrong("values")
def state_returned_as_it_came(grads, state, *, b1, b2, eps):
    moves, _ = _mapped(grads, state, (b1, b2, eps), 16)
    return moves, state._replace(count=state.count + 1)
