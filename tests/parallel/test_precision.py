"""Mixed precision: policies, master weights, loss scaling, and steps that are skipped."""

import inspect
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.inspector.stablehlo import product_dtypes
from jaxpar.mesh import make_mesh
from jaxpar.parallel import precision
from jaxpar.parallel.precision import LossScale, LossScaling
from tests.arrays import random
from tests.comm_lines import comm, evaluate, measured, memory

P = jax.P


def loss_fn(params: dict, batch: np.ndarray) -> jax.Array:
    out = batch.astype(params["w"].dtype) @ params["w"] + params["b"][None]
    return jnp.mean(out.astype(jnp.float32) ** 2)


PARAMS = {"w": jnp.asarray(random(8, 4)), "b": jnp.asarray(random(4))}
BATCH = random(16, 8)
MESHES = {"dp=4": P("dp"), "dp=2,tp=3": P("dp")}


def same_bits(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


class TestPolicy:
    @pytest.mark.parametrize(
        ("name", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
    )
    def test_all_products_are_in_its_precision(self, name: str, dtype: str) -> None:
        both = jax.jit(jax.value_and_grad(precision.POLICIES[name].of(loss_fn)))
        module = both.lower(PARAMS, BATCH).compiler_ir("stablehlo")
        assert product_dtypes(module) == (dtype,)
        loss, gradients = both(PARAMS, BATCH)
        assert loss.dtype == jnp.float32
        np.testing.assert_allclose(loss, loss_fn(PARAMS, BATCH), rtol=1e-2)
        assert jax.tree.map(jnp.shape, gradients) == jax.tree.map(jnp.shape, PARAMS)

    def test_a_cast_leaves_integers_alone(self) -> None:
        tree = {"tokens": jnp.arange(3), "mask": jnp.array([True]), "x": jnp.ones(2)}
        low = precision.cast(tree, jnp.bfloat16)
        assert [leaf.dtype.name for leaf in jax.tree.leaves(low)] == ["bool", "int32", "bfloat16"]


class TestMasterWeights:
    @pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
    @pytest.mark.parametrize("optimizer", [optax.adamw(1e-3), optax.sgd(1e-3, 0.9)])
    def test_parameters_are_the_rounded_weights(self, dtype: Any, optimizer: Any) -> None:
        low_optimizer = precision.master_weights(optimizer)
        low, state = precision.cast(PARAMS, dtype), low_optimizer.init(PARAMS)
        plain, plain_state = PARAMS, optimizer.init(PARAMS)
        for step in range(20):
            gradients = jax.tree.map(lambda leaf, step=step: leaf * (step % 3 - 1), PARAMS)
            updates, state = low_optimizer.update(gradients, state, low)
            low = optax.apply_updates(low, updates)
            updates, plain_state = optimizer.update(gradients, plain_state, plain)
            plain = optax.apply_updates(plain, updates)
            assert same_bits(low, precision.cast(state.master, dtype))
        assert same_bits((state.master, state.inner), (plain, plain_state))

    def test_small_updates_are_not_lost(self) -> None:
        params = {"w": jnp.ones(3)}
        ones = jax.tree.map(jnp.ones_like, params)
        for optimizer, end in ((optax.sgd(1e-3), 1.0), (None, 0.9)):
            chosen = optimizer or precision.master_weights(optax.sgd(1e-3))
            low, state = precision.cast(params, jnp.bfloat16), chosen.init(params)
            for _ in range(100):
                updates, state = chosen.update(precision.cast(ones, jnp.bfloat16), state, low)
                low = optax.apply_updates(low, updates)
            np.testing.assert_allclose(low["w"].astype(np.float32), end, rtol=4e-3)

    def test_parameters_must_be_given(self) -> None:
        optimizer = precision.master_weights(optax.sgd(1.0))
        with pytest.raises(ValueError, match="was given no params"):
            optimizer.update(PARAMS, optimizer.init(PARAMS))

    @pytest.mark.parametrize("sizes", MESHES)
    def test_shards_are_updated_as_a_whole_is(self, sizes: str) -> None:
        optimizer = precision.master_weights(optax.adamw(1e-2))
        low, gradients = precision.cast((PARAMS, PARAMS), jnp.bfloat16)

        def update(gradients: Any, params: Any, low: Any) -> Any:
            updates, state = optimizer.update(gradients, optimizer.init(params), low)
            return optax.apply_updates(low, updates), state.master

        on_shards = jax.shard_map(
            update, mesh=make_mesh(sizes), in_specs=P("dp"), out_specs=P("dp")
        )
        new, master = jax.jit(on_shards)(gradients, PARAMS, low)
        assert same_bits(new, precision.cast(master, jnp.bfloat16))
        _, right = jax.jit(update)(gradients, PARAMS, low)
        for one, other in zip(jax.tree.leaves(master), jax.tree.leaves(right), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-6)


class TestLossScaling:
    def run(self, scaling: LossScaling, flags: str) -> list[float]:
        """The scale before each step and at the end; `.` is a good step, `x` an overflow."""
        state, update = scaling.init(), jax.jit(scaling.update)
        scales = [float(state.scale)]
        for flag in flags:
            state = update(state, jnp.array(flag == "."))
            scales.append(float(state.scale))
        return scales

    def test_it_grows_after_the_interval(self) -> None:
        scaling = LossScaling(initial=8.0, growth_interval=2, hysteresis=1)
        assert self.run(scaling, ".....") == [8, 8, 16, 16, 32, 32]

    def test_an_overflow_begins_the_interval_anew(self) -> None:
        scaling = LossScaling(initial=8.0, growth_interval=2, hysteresis=1)
        assert self.run(scaling, ".x..") == [8, 8, 4, 4, 8]

    def test_it_stays_at_the_minimum(self) -> None:
        scaling = LossScaling(initial=8.0, minimum=3.0, hysteresis=1)
        assert self.run(scaling, "xxx") == [8, 4, 3, 3]

    def test_hysteresis_forgives_the_first_until_it_grows(self) -> None:
        scaling = LossScaling(initial=8.0, growth_interval=2, hysteresis=2)
        assert self.run(scaling, "xx.x") == [8, 8, 4, 4, 2]
        assert self.run(scaling, "x.x") == [8, 8, 8, 4]
        assert self.run(scaling, "xx..xx") == [8, 8, 4, 4, 8, 8, 4]

    def test_backoff_is_not_the_inverse_of_the_factor(self) -> None:
        scaling = LossScaling(initial=8.0, growth_interval=1, factor=4.0, backoff=0.5, hysteresis=1)
        assert self.run(scaling, ".x") == [8, 32, 16]

    def test_it_is_static_with_factors_of_1(self) -> None:
        scaling = LossScaling(initial=8.0, growth_interval=1, factor=1.0, backoff=1.0, hysteresis=1)
        assert self.run(scaling, ".x.x") == [8] * 5

    def test_its_state_keeps_its_types(self) -> None:
        scaling = LossScaling()
        shapes = jax.eval_shape(scaling.update, scaling.init(), jnp.array(True))
        assert shapes == jax.eval_shape(scaling.init)
        assert isinstance(shapes, LossScale)

    @pytest.mark.parametrize(
        "wrong",
        [
            {"growth_interval": 0}, {"factor": 0.5}, {"backoff": 2.0}, {"hysteresis": 0},
            {"minimum": 0.0}, {"initial": 0.5},
        ],
    )  # fmt: skip
    def test_what_cannot_work_is_refused(self, wrong: dict[str, float]) -> None:
        with pytest.raises(ValueError, match=rf"LossScaling: {next(iter(wrong))} is .*; use"):
            LossScaling(**wrong)  # pyright: ignore[reportArgumentType]


class TestStep:
    optimizer = optax.adamw(1e-2)
    step = staticmethod(jax.jit(partial(precision.mixed_precision_step, loss_fn), static_argnums=3))

    def test_it_is_nearly_a_step_in_float32(self) -> None:
        state = self.optimizer.init(PARAMS)
        new, _, finite = self.step(PARAMS, state, BATCH, self.optimizer, scale=2.0**8)
        updates, _ = self.optimizer.update(jax.grad(loss_fn)(PARAMS, BATCH), state, PARAMS)
        right = optax.apply_updates(PARAMS, updates)
        assert finite
        for one, other in zip(jax.tree.leaves(new), jax.tree.leaves(right), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)

    def test_the_scale_is_of_no_consequence(self) -> None:
        """Powers of two change no bit but the exponent, as long as nothing is lost."""
        state = self.optimizer.init(PARAMS)
        one, other = (
            self.step(PARAMS, state, BATCH, self.optimizer, scale=scale) for scale in (16.0, 64.0)
        )
        assert same_bits(one, other)

    @pytest.mark.parametrize("scale", [2.0**24, np.inf, np.nan])
    def test_an_overflow_changes_no_bit(self, scale: float) -> None:
        _, state = self.optimizer.update(PARAMS, self.optimizer.init(PARAMS), PARAMS)
        *got, finite = self.step(PARAMS, state, BATCH, self.optimizer, scale=scale)
        assert not finite
        assert same_bits(got, (PARAMS, state))

    def test_it_sends_and_holds_what_it_says(self) -> None:
        state = self.optimizer.init(PARAMS)

        def on_device(params: Any, state: Any, batch: Any) -> Any:
            return precision.mixed_precision_step(
                loss_fn, params, state, batch, self.optimizer, scale=2.0
            )

        mesh = make_mesh("dp=2")
        program = jax.shard_map(on_device, mesh=mesh, in_specs=P(), out_specs=P())
        lowered = jax.jit(program).lower(PARAMS, state, BATCH)
        assert not measured(lowered)
        assert comm(precision.mixed_precision_step, "forward") == ()
        names = {
            name: sum(leaf.size for leaf in jax.tree.leaves(tree))
            for name, tree in (("master", PARAMS), ("opt_state", state))
        }
        held = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(lowered.out_info))
        assert held == evaluate(memory(precision.mixed_precision_step), names)


def test_one_infinite_element_is_found() -> None:
    assert precision.all_finite({"a": jnp.ones(3), "b": [jnp.zeros((2, 2))]})
    assert precision.all_finite({})
    for value in (np.inf, -np.inf, np.nan):
        assert not precision.all_finite(
            {"a": jnp.ones(3), "b": [jnp.zeros((2, 2)).at[1, 0].set(value)]}
        )


def test_the_next_scale_sends_nothing() -> None:
    how = {"growth_interval": 2, "factor": 2.0, "minimum": 1.0}
    assert comm(precision.update_loss_scale, "forward") == ()
    assert memory(precision.update_loss_scale) == "2"
    parameters = inspect.signature(precision.update_loss_scale).parameters
    assert set(how) < set(parameters)
    scale, good_steps = precision.update_loss_scale(
        jnp.float32(8), jnp.int32(1), jnp.array(True), **how
    )
    assert (scale, good_steps) == (16, 0)
