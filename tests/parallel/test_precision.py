"""Mixed precision: policies, master weights, loss scaling, and steps that are skipped."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.inspector.stablehlo import read_products
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


def same_bits(one: Any, other: Any) -> bool:
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def size(tree: Any) -> int:
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


class TestPolicy:
    @pytest.mark.parametrize(
        ("name", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16"), ("fp16", "float16")]
    )
    def test_all_products_are_in_its_precision(self, name: str, dtype: str) -> None:
        both = jax.jit(jax.value_and_grad(precision.POLICIES[name].of(loss_fn)))
        module = both.lower(PARAMS, BATCH).compiler_ir("stablehlo")
        assert read_products(module).dtypes == (dtype,)
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

    def test_parameters_must_be_given(self) -> None:
        optimizer = precision.master_weights(optax.sgd(1.0))
        with pytest.raises(ValueError, match="was given no params"):
            optimizer.update(PARAMS, optimizer.init(PARAMS))


class TestLossScaling:
    @pytest.mark.parametrize(
        ("how", "flags", "scales"),
        [
            ({"growth_interval": 2}, ".....", [8, 8, 16, 16, 32, 32]),
            ({"growth_interval": 2}, ".x..", [8, 8, 4, 4, 8]),  # the interval begins anew
            ({"minimum": 3.0}, "xxx", [8, 4, 3, 3]),
            # Hysteresis forgives the first overflow until the scale grows.
            ({"growth_interval": 2, "hysteresis": 2}, "xx.x", [8, 8, 4, 4, 2]),
            ({"growth_interval": 2, "hysteresis": 2}, "x.x", [8, 8, 8, 4]),
            ({"growth_interval": 2, "hysteresis": 2}, "xx..xx", [8, 8, 4, 4, 8, 8, 4]),
            ({"growth_interval": 1, "factor": 4.0, "backoff": 0.5}, ".x", [8, 32, 16]),
            ({"growth_interval": 1, "factor": 1.0, "backoff": 1.0}, ".x.x", [8] * 5),
        ],
    )
    def test_the_scale_after_steps(self, how: dict, flags: str, scales: list[float]) -> None:
        """`.` is a good step, `x` an overflow."""
        scaling = LossScaling(**({"initial": 8.0, "hysteresis": 1} | how))
        state, update = scaling.init(), jax.jit(scaling.update)
        got = [state.scale]
        for flag in flags:
            state = update(state, jnp.array(flag == "."))
            got.append(state.scale)
        assert got == scales

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

    def test_the_scale_is_of_no_consequence(self) -> None:
        """Powers of two change only the exponent, as long as nothing overflows or underflows."""
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
        names = {"master": size(PARAMS), "opt_state": size(state)}
        assert size(lowered.out_info) == evaluate(memory(precision.mixed_precision_step), names)


def test_one_infinite_element_is_found() -> None:
    assert precision.all_finite({"a": jnp.ones(3), "b": [jnp.zeros((2, 2))]})
    assert precision.all_finite({})
    for value in (np.inf, -np.inf, np.nan):
        assert not precision.all_finite(
            {"a": jnp.ones(3), "b": [jnp.zeros((2, 2)).at[1, 0].set(value)]}
        )


def test_the_next_scale_sends_nothing_and_holds_two_numbers() -> None:
    """What it sends is in its contract."""
    assert comm(precision.update_loss_scale, "forward") == ()
    how = {"growth_interval": 2, "factor": 2.0, "minimum": 1.0}
    state = precision.update_loss_scale(jnp.float32(8), jnp.int32(1), jnp.array(True), **how)
    assert size(state) == evaluate(memory(precision.update_loss_scale), {})
