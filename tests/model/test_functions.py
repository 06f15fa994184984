import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh, spec
from jaxpar.model import Settings, init, loss_fn

TINY = functools.partial(Settings, vocabulary=16, layers=2, d_model=8, heads=2, d_ff=16, sequence=8)


def shapes(settings: Settings) -> dict:
    return jax.eval_shape(functools.partial(init, settings), jax.random.key(0))


def test_parameters_are_plain_and_stacked() -> None:
    params = shapes(TINY())
    assert type(params) is type(params["layers"]["mlp"]) is dict
    assert params["layers"]["mlp"]["up"].shape == (2, 8, 16)


@pytest.mark.full
def test_an_untrained_model_guesses_evenly_and_its_layers_differ() -> None:
    settings = TINY(d_model=64, d_ff=64)

    @jax.jit
    def start(key):
        params = init(settings, key)
        return params["layers"]["mlp"]["up"], loss_fn(settings)(params, tokens)

    tokens = jax.random.randint(jax.random.key(1), (8, 9), 0, 16)
    (one, loss), (other, _) = start(jax.random.key(0)), start(jax.random.key(1))
    assert not jnp.any(one[0] == one[1])
    assert not jnp.any(one == other)
    np.testing.assert_allclose(loss, np.log(16), rtol=0.02)


@pytest.mark.full
def test_in_shard_map() -> None:
    """One device's gradient, and no more bytes than the gradient, however params are typed."""
    settings = TINY(norm="layer", positions="learned")
    params = init(settings, jax.random.key(0))
    tokens = jax.random.randint(jax.random.key(1), (4, 9), 0, 16)
    value_and_grad = jax.value_and_grad(loss_fn(settings))

    def varying(params, tokens):
        return lax.pmean(value_and_grad(lax.pcast(params, "dp", to="varying"), tokens), "dp")

    def invariant(params, tokens):
        loss, gradient = value_and_grad(params, tokens)  # JAX has summed the gradient
        return lax.pmean(loss, "dp"), jax.tree.map(lambda leaf: leaf / 4, gradient)

    both = jax.jit(
        jax.shard_map(
            lambda *args: (varying(*args), invariant(*args)),
            mesh=make_mesh("dp=4"),
            in_specs=(spec(""), spec("b_dp t")),
            out_specs=spec(""),
        )
    )
    one_device = jax.jit(value_and_grad)(params, tokens)
    for parallel in both(params, tokens):
        jax.tree.map(close, parallel, one_device)
    sent = read_module(both.lower(params, tokens).compiler_ir("stablehlo"))
    assert {one.kind for one in sent} == {"all_reduce"}
    assert sum(one.operand_bytes * one.times for one in sent) == 2 * 4 * (settings.parameters + 1)


def close(ours: jax.Array, theirs: jax.Array) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_the_program_does_not_grow_with_depth() -> None:
    def program(layers: int) -> str:
        settings = TINY(layers=layers)
        tokens = jax.ShapeDtypeStruct((1, 9), jnp.int32)
        return jax.jit(jax.grad(loss_fn(settings))).lower(shapes(settings), tokens).as_text()

    assert len(program(9).splitlines()) == len(program(2).splitlines())


def test_the_loss_is_float32_whatever_the_parameters() -> None:
    halves = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, jnp.bfloat16), shapes(TINY()))
    tokens = jax.ShapeDtypeStruct((1, 9), jnp.int32)
    assert jax.eval_shape(loss_fn(TINY()), halves, tokens).dtype == jnp.float32
