"""muP: the best learning rate stays where the width grows; without it, it moves."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.model import Settings, init, logits, loss_fn
from jaxpar.train.optimizer import Optimization, make_optimizer
from jaxpar.train.recipe import make_recipe
from jaxpar.train.text import read_library
from tests.train.runs import SETTINGS, assert_trains_as_one_device

EXPONENTS = np.arange(-10, -3)
STEPS, BATCH, SEQUENCE = 40, 16, 16
NARROW, WIDE = 16, 128


def best_rate(width: int, mup_base: int | None) -> int:
    """The exponent to 2 of the best of these rates, by the loss of the last ten steps."""
    settings = Settings(
        layers=1, d_model=width, heads=width // 16, d_ff=2 * width,
        sequence=SEQUENCE, mup_base=mup_base,
    )  # fmt: skip
    text = read_library()
    starts = np.random.default_rng(0).integers(0, len(text) - SEQUENCE - 1, (STEPS, BATCH, 1))
    batches = text[starts + np.arange(SEQUENCE + 1)].astype(np.int32)
    params, loss = init(settings, jax.random.key(0)), loss_fn(settings)

    def losses(rate: Any) -> Any:
        optimizer = make_optimizer(Optimization(peak=rate, width=settings.width))

        def step(carry: Any, batch: Any) -> Any:
            params, state = carry
            found, gradients = jax.value_and_grad(loss)(params, batch)
            moves, state = optimizer.update(gradients, state, params)
            return (optax.apply_updates(params, moves), state), found

        return jax.lax.scan(step, (params, optimizer.init(params)), batches)[1]

    found = jax.jit(jax.vmap(losses))(jnp.asarray(2.0**EXPONENTS))
    return int(EXPONENTS[np.argmin(found[:, -10:].mean(1))])


@pytest.mark.full
def test_the_best_rate_stays_with_mup_and_moves_without() -> None:
    assert abs(best_rate(WIDE, NARROW) - best_rate(NARROW, NARROW)) <= 1
    assert best_rate(NARROW, None) - best_rate(WIDE, None) >= 2


@pytest.mark.parametrize("experts", [0, 4])
def test_the_first_step_moves_matrices_less_and_all_else_as_much(experts: int) -> None:
    settings = replace(SETTINGS, experts=experts)
    params = init(settings, jax.random.key(0))
    gradients = jax.tree.map(jnp.ones_like, params)

    def moves(width: float) -> Any:
        optimizer = make_optimizer(Optimization(width=width, weight_decay=0.5))
        return optimizer.update(gradients, optimizer.init(params), params)[0]

    decay = jax.tree.map(lambda leaf: -1e-3 * 0.5 * leaf, params)
    parts = jax.tree.map(lambda one, two, add: (one - add) / (two - add), moves(1), moves(4), decay)
    less = {
        jax.tree_util.keystr(path[-1:], simple=True)
        for path, ratio in jax.tree.leaves_with_path(parts)
        if np.allclose(ratio, 4, rtol=1e-2)
    }
    mlp = {"gate", "up", "down"} | ({"router"} if experts else set())
    assert less == {"query", "key", "value", "output"} | mlp


def test_at_its_base_the_decoder_computes_the_same_at_first() -> None:
    tokens = jnp.asarray(read_library()[:32].reshape(2, 16), jnp.int32)

    def first(mup_base: int | None) -> Any:
        settings = replace(SETTINGS, mup_base=mup_base)
        return logits(settings, init(settings, jax.random.key(0)), tokens)

    plain = first(None)
    np.testing.assert_allclose(first(16), plain, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(first(4), plain / 4, rtol=1e-4, atol=1e-6)


@pytest.mark.full
@pytest.mark.parametrize(
    ("mesh", "options"),
    [("pp=2,dp=2,tp=2", {"microbatches": 2, "zero": 1}), ("fsdp=2,cp=2", {"offload": "host"})],
)
def test_every_mix_trains_as_one_device(mesh: str, options: dict[str, Any]) -> None:
    settings = replace(SETTINGS, mup_base=4)
    assert_trains_as_one_device(make_recipe(mesh, **options), settings, steps=3)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match=r"--mup-base 4 with --optimizer sgd: .* use adamw"):
        make_recipe("dp=1", optimizer="sgd").check(replace(SETTINGS, mup_base=4))
    with pytest.raises(ValueError, match="mup_base is 0; use 1 or more"):
        Settings(mup_base=0)
