"""Attention within documents: each is as if it stood alone in its sequence."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.layout import Layout
from jaxpar.model import Settings, Split, check_split, init
from jaxpar.model.functions import logits

END = 47
SETTINGS = Settings(
    vocabulary=48, layers=2, d_model=32, heads=8, kv_heads=4, d_ff=48, document_end=END
)
DOCUMENTS = [np.random.default_rng(t).integers(0, END, (2, t)) for t in (9, 1, 14)]
PACKED = np.concatenate(
    [np.append(document, np.full((2, 1), END), axis=1) for document in DOCUMENTS], axis=1
)


def predicted(tokens: np.ndarray, split: Split) -> jax.Array:
    params = init(SETTINGS, jax.random.key(0))
    return logits(SETTINGS, params, jnp.asarray(tokens), split=split)


@pytest.mark.parametrize("kind", ["plain", "flash"])
def test_each_document_is_as_if_alone(kind: str) -> None:
    split = Split(attention=kind)
    within = predicted(PACKED, split.within_documents(jnp.asarray(PACKED), END))
    across = predicted(PACKED, split)
    start = 0
    for document in DOCUMENTS:
        t = document.shape[1]
        alone = predicted(document, split)
        np.testing.assert_allclose(within[:, start : start + t], alone, atol=2e-6)
        assert (start == 0) == np.allclose(across[:, start : start + t], alone, atol=1e-3)
        start += t + 1


def test_an_end_belongs_to_the_document_before_it() -> None:
    tokens = jnp.array([[3, END, END, 5, 6], [END, 1, 2, 3, END]])
    documents = Split().within_documents(tokens, END).documents
    assert documents is not None
    assert documents.tolist() == [[0, 0, 1, 2, 2], [0, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(pp=2), "axis pp .size 2.: a stage receives activations"),
        (Layout(cp=2), "axis cp .size 2. with context zigzag: .* use --context gather"),
        (Layout(cp=2, context="ring"), "with context ring"),
        (Layout(cp=2, context="ulysses"), "with context ulysses"),
    ],
)
def test_what_cannot_see_the_ends_is_refused(layout: Layout, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        check_split(replace(SETTINGS, sequence=16), layout)
    check_split(replace(SETTINGS, document_end=None, sequence=16), layout)


def test_the_end_is_a_token_of_the_vocabulary() -> None:
    with pytest.raises(ValueError, match="document_end is 48; use a token of the vocabulary, 0 to"):
        Settings(vocabulary=48, document_end=48)
