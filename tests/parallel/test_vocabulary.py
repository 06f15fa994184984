"""Vocabulary parallelism equals one device, and sends and holds what its docstrings say.

The contracts of `vocab_parallel_embedding` and `vocab_parallel_cross_entropy` prove their values
and gradients.
"""

from collections import Counter
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P, lax

from jaxpar import nn
from jaxpar.parallel import vocabulary
from tests.arrays import random
from tests.comm_lines import measured
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

B, T, D, V = 2, 10, 6, 24


IDS = np.random.default_rng(0).integers(-V // 2, V + V // 2, (B, T))
LABELS = np.random.default_rng(1).integers(0, V, (B, T))
TABLE, X, HEAD = random(V, D), random(B, T, D), random(D, V)
LOGITS = random(B, T, V) + np.array([200, -200], np.float32).reshape(B, 1, 1)
ROWS, LAST, EQUAL = P("tp"), P(None, None, "tp"), P()


def summed(table: Any, ids: Any) -> jax.Array:
    return lax.psum(vocabulary.partial_embedding(ids, table, axis="tp"), "tp")


def embedding(table: Any, ids: Any) -> jax.Array:
    known = (ids >= 0) & (ids < V)
    return jnp.where(known[..., None], table[jnp.where(known, ids, 0)], 0)


PARTIAL_EMBEDDING = Call(
    vocabulary.partial_embedding, summed, (TABLE, IDS), (ROWS, EQUAL), EQUAL, 1,
    sends=Counter({("all_reduce", "tp"): B * T * D}),
)  # fmt: skip
LOGITS_OF_X = Call(
    vocabulary.vocab_parallel_logits,
    partial(vocabulary.vocab_parallel_logits, axis="tp"),
    (X, HEAD), (EQUAL, P(None, "tp")), LAST,
)  # fmt: skip
EMBEDDING = Call(
    vocabulary.vocab_parallel_embedding,
    lambda table, ids: vocabulary.vocab_parallel_embedding(ids, table, axis="tp"),
    (TABLE, IDS), (ROWS, EQUAL), EQUAL, 1,
)  # fmt: skip
CROSS_ENTROPY = Call(
    vocabulary.vocab_parallel_cross_entropy,
    partial(vocabulary.vocab_parallel_cross_entropy, axis="tp"),
    (LOGITS, LABELS), (LAST, EQUAL), EQUAL, 1, names={"b": B, "t": T},
)  # fmt: skip
CALLS = PARTIAL_EMBEDDING, EMBEDDING, LOGITS_OF_X, CROSS_ENTROPY


@pytest.mark.parametrize("sizes", ["tp=4", "dp=2,tp=3"])
def test_values_and_gradient_equal_one_device(sizes: str) -> None:
    assert_equal_one_device(PARTIAL_EMBEDDING, embedding, sizes)
    assert_equal_one_device(LOGITS_OF_X, lambda x, head: x @ head, sizes)


@pytest.mark.parametrize("sizes", ["tp=4", "dp=2,tp=3"])
@pytest.mark.parametrize("call", CALLS, ids=str)
def test_they_send_and_hold_what_they_say(call: Call, sizes: str) -> None:
    assert_docstring_holds(call, sizes, axis="tp")


def test_logits_in_bfloat16_are_summed_in_float32() -> None:
    logits = jnp.asarray(LOGITS, jnp.bfloat16)
    y, (gradient,) = CROSS_ENTROPY.program("tp=4", differentiate=True)(logits, LABELS)
    right = nn.cross_entropy(logits.astype(jnp.float32), jnp.asarray(LABELS))
    assert (y.dtype, gradient.dtype) == (jnp.float32, jnp.bfloat16)
    np.testing.assert_allclose(y, right, rtol=1e-5)


def test_the_loss_holds_no_row_of_all_logits() -> None:
    """Its temporary memory is less than one more copy of this device's logits."""
    logits = jax.ShapeDtypeStruct((B, 512, V * 4), jnp.float32)
    labels = jax.ShapeDtypeStruct((B, 512), jnp.int32)
    loss = CROSS_ENTROPY.program("tp=4", differentiate=False)
    held = loss.lower(logits, labels).compile().memory_analysis()
    assert held
    assert held.temp_size_in_bytes < B * 512 * V * 4


def test_rows_in_bfloat16_are_sent_as_such() -> None:
    run = EMBEDDING.program("tp=4", differentiate=False)
    table = jnp.asarray(TABLE, jnp.bfloat16)
    sent = measured(run.lower(table, IDS))
    assert sent == {("all_reduce", "tp"): IDS.size * D / 2}  # counted in words of four bytes
    np.testing.assert_array_equal(run(table, IDS), embedding(table, IDS))
