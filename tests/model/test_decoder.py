"""Every setting against the numpy decoder: logits, loss, and gradient by finite differences."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import P

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, Split, init, is_dropped, is_load, logits, loss_fn
from jaxpar.nn import RopeScaling
from tests.model import numpy_decoder

TINY = functools.partial(Settings, vocabulary=11, layers=2, d_model=8, heads=4, d_ff=6, sequence=5)
EVERY = [
    TINY(kv_heads=2),
    TINY(norm="layer", positions="learned", mlp="gelu", tied=True),
    TINY(kv_heads=1, positions="learned", tied=True),
    TINY(experts=4, balance="none"),
    TINY(experts=4, top_k=1, shared_experts=1, balance="bias", capacity_factor=4.0),
    TINY(kv_heads=2, biases="qkv", rope_theta=500.0, norm_epsilon=1e-2),
    TINY(
        heads=1, biases="attention", rope_theta=100.0, rope_scaling=RopeScaling(4.0, 0.6, 2.0, 20)
    ),
    TINY(biases="all", padding=3),
    TINY(norm="layer", positions="learned", mlp="gelu", tied=True, biases="all", padding=1),
]
STEP = 1e-5


def shapes(settings: Settings) -> dict:
    return jax.eval_shape(functools.partial(init, settings), jax.random.key(0))


@pytest.mark.parametrize("settings", EVERY)
def test_equals_numpy(settings: Settings) -> None:
    """The gradient of each leaf along a random direction: the slope of the numpy loss."""
    random = np.random.default_rng(1)
    tokens = random.integers(0, 11 - settings.padding, (2, 6), np.int32)
    leaves, structure = jax.tree.flatten(shapes(settings))
    leaves = [random.normal(0, 0.5, leaf.shape) for leaf in leaves]

    @jax.jit
    def ours(params: dict) -> tuple:
        both = jax.value_and_grad(loss_fn(settings))(params, jnp.asarray(tokens))
        return logits(settings, params, jnp.asarray(tokens)[:, :-1]), *both

    def theirs(leaves: list[np.ndarray]) -> float:
        return numpy_decoder.loss(settings, structure.unflatten(leaves), tokens)

    params = structure.unflatten(leaves)
    predicted, loss, gradient = ours(jax.tree.map(np.float32, params))
    expected = [numpy_decoder.logits(settings, params, one[:-1]) for one in tokens]
    np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(loss, theirs(leaves), rtol=1e-5)
    for at, (path, part) in enumerate(jax.tree.leaves_with_path(gradient)):
        if is_load(path) or is_dropped(path):
            continue
        direction = random.standard_normal(part.shape)
        before, after = (
            theirs([*leaves[:at], leaves[at] + step * direction, *leaves[at + 1 :]])
            for step in (-STEP, STEP)
        )
        slope = (after - before) / (2 * STEP)
        np.testing.assert_allclose(np.vdot(part, direction), slope, rtol=1e-3, atol=1e-6)


def test_more_tokens_than_learned_positions() -> None:
    settings = TINY(positions="learned")
    tokens = jax.ShapeDtypeStruct((1, 6), jnp.int32)
    with pytest.raises(ValueError, match=r"6 tokens .* reach 5; .* Settings\(sequence=6\)"):
        jax.eval_shape(functools.partial(logits, settings), shapes(settings), tokens)


def test_the_tokens_of_all_devices_are_counted() -> None:
    """Each of two devices has three tokens, which is fewer than there are learned positions."""
    settings = TINY(positions="learned")
    loss = jax.shard_map(
        lambda params, tokens: loss_fn(settings, split=Split(context="cp", by="ring"))(
            params, tokens
        )[None],
        mesh=make_mesh("cp=2"),
        in_specs=P(),
        out_specs=P("cp"),
    )
    tokens = jax.ShapeDtypeStruct((1, 7), jnp.int32)
    with pytest.raises(ValueError, match=r"6 tokens .* reach 5"):
        jax.eval_shape(loss, shapes(settings), tokens)
    fewer = jax.ShapeDtypeStruct((1, 5), jnp.int32)
    assert jax.eval_shape(loss, shapes(settings), fewer).shape == (2,)
