"""Adam in 8 bits follows Adam, holds few bytes beside its state, and is alike on any mesh."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.collectives.leaves import leaf_layouts
from jaxpar.cost.eight_bits import block_of
from jaxpar.mesh import make_mesh
from jaxpar.parallel.adam8bit import (
    SIGNED,
    UNSIGNED,
    Adam8bitState,
    adam8bit_update,
    scale_by_adam8bit,
)
from jaxpar.parallel.zero import state_specs
from jaxpar.quantize import decode_blocks
from tests.parallel.calls import Call, assert_docstring_holds

P = jax.P
LEAVES = {"w": (64, 96), "layers": (2, 64, 64), "gain": (40,), "scalar": ()}
OPTIMIZER: Any = scale_by_adam8bit(b2=0.99)


def gradients(step: int) -> Any:
    """Numbers of several magnitudes, which differ from step to step."""
    rng = np.random.default_rng(step)
    return {
        name: jnp.asarray(10.0 ** (place - 1) * rng.normal(size=shape), jnp.float32)
        for place, (name, shape) in enumerate(LEAVES.items())
    }


def moments(state: Adam8bitState, name: str) -> tuple[Any, Any]:
    """The moments that a state stands for."""
    codes, largest = state.m_codes[name], state.m_largest[name]
    if codes.shape == largest.shape:
        return largest, state.v_largest[name]
    return (
        decode_blocks(codes, largest, SIGNED),
        decode_blocks(state.v_codes[name], state.v_largest[name], UNSIGNED),
    )


@pytest.mark.parametrize(
    ("shape", "block"),
    [((), 1), ((300,), 1), ((64, 64), 8), ((4096, 4096), 256), ((4096, 11008), 172),
     ((4, 50257), 29), ((4, 32003), 1), ((8192,), 256), ((3, 640, 256), 32)],
)  # fmt: skip
def test_blocks_divide_what_eight_devices_have_of_a_row(shape: tuple, block: int) -> None:
    assert block_of(shape) == block


def test_moves_are_those_of_adam_on_what_the_state_stands_for() -> None:
    state = OPTIMIZER.init(gradients(0))
    for step in range(3):
        before = {name: moments(state, name) for name in LEAVES}
        moves, state = jax.jit(OPTIMIZER.update)(gradients(step), state)
        for name, g in gradients(step).items():
            m, v, g = (np.asarray(one, np.float64) for one in (*before[name], g))
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g**2
            t = step + 1
            expected = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.99**t)) + 1e-8)
            np.testing.assert_allclose(moves[name], expected, rtol=1e-4, atol=1e-5)
            for found, whole, book in zip(
                moments(state, name), (m, v), (SIGNED, UNSIGNED), strict=True
            ):
                gap = np.diff(book).max() / 2 + 1e-6
                assert (np.abs(found - whole) <= gap * np.abs(whole).max()).all()


def test_small_leaves_are_those_of_adam() -> None:
    ours, theirs = OPTIMIZER, optax.scale_by_adam(b2=0.99)
    states = [one.init(gradients(0)) for one in (ours, theirs)]
    for step in range(4):
        (one, states[0]), (other, states[1]) = (
            optimizer.update(gradients(step), state)
            for optimizer, state in zip((ours, theirs), states, strict=True)
        )
        for name in ("gain", "scalar"):
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5)


def test_little_is_held_beside_what_goes_in_and_out() -> None:
    leaf = jax.ShapeDtypeStruct((1024, 2048), jnp.float32)
    state = jax.eval_shape(OPTIMIZER.init, leaf)
    compiled = jax.jit(OPTIMIZER.update).lower(leaf, state).compile()
    held: Any = compiled.memory_analysis()
    assert held.temp_size_in_bytes < leaf.size
    in_state = held.output_size_in_bytes - 4 * leaf.size
    assert 2 < in_state / leaf.size < 2.05


@pytest.mark.parametrize(("sizes", "stage"), [("dp=4", 1), ("fsdp=2,tp=2", 3), ("dp=8", 2)])
def test_shards_have_the_state_of_the_whole(sizes: str, stage: int) -> None:
    mesh = make_mesh(sizes)
    axis = next(iter(mesh.shape))
    used = jax.tree.map(lambda _: P(), gradients(0))
    if "tp" in mesh.shape:
        used |= {"w": P(None, "tp"), "layers": P(None, None, "tp")}
    layouts = leaf_layouts(gradients(0), used, sizes=mesh.shape, axes=(axis,), stage=stage)
    owned = jax.tree.map(lambda layout: layout.owned, layouts)
    specs = state_specs(OPTIMIZER, layouts)
    update = jax.shard_map(
        OPTIMIZER.update, mesh=mesh, in_specs=(owned, specs), out_specs=(owned, specs)
    )
    one = many = OPTIMIZER.init(gradients(0))
    for step in range(3):
        whole, one = jax.jit(OPTIMIZER.update)(gradients(step), one)
        shards, many = jax.jit(update)(gradients(step), many)
        for a, b in zip(*map(jax.tree.leaves, ((shards, many), (whole, one))), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    sharded = many.m_codes["layers"].sharding.shard_shape((2, 64, 64))
    assert np.prod(sharded) == 2 * 64 * 64 // mesh.size


def test_a_step_without_gradients_keeps_zeros() -> None:
    zeros = jax.tree.map(jnp.zeros_like, gradients(0))
    moves, state = OPTIMIZER.update(zeros, OPTIMIZER.init(zeros))
    assert not any(np.any(leaf) for leaf in jax.tree.leaves((moves, state.m_largest)))


def test_the_docstring_holds() -> None:
    state = OPTIMIZER.init(gradients(0))

    def per_device(grads: Any, state: Any) -> Any:
        return adam8bit_update(grads, state, b1=0.9, b2=0.99, eps=1e-8)

    call = Call(adam8bit_update, per_device, (gradients(0), state), (P(), P()), P(), 0)
    assert_docstring_holds(call, "dp=2", axis="dp")
