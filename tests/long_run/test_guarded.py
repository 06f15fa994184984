"""A guarded step updates as the optimizer does, or changes nothing on any device."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from jaxpar.long_run.guarded import KEPT, guarded_update
from jaxpar.mesh import make_mesh

P = jax.P
OPTIMIZER = optax.adamw(1e-2)
PARAMS = {"w": np.arange(12.0, dtype=np.float32).reshape(4, 3), "b": np.ones(8, np.float16)}
GRADS = jax.tree.map(lambda leaf: np.full_like(leaf, 0.5), PARAMS)
NORM = np.sqrt(20 * 0.25)


def updated(grads, mean: float, *, factor: float = 2.0):
    """What all devices return, as global arrays."""
    state = OPTIMIZER.init(PARAMS), jnp.float32(mean)
    specs = jax.tree.map(lambda leaf: P("fsdp") if jnp.ndim(leaf) else P(), (PARAMS, state))
    step = partial(guarded_update, optimizer=OPTIMIZER, factor=factor, axis="fsdp")
    run = jax.shard_map(
        step,
        mesh=make_mesh("fsdp=4"),
        in_specs=(specs[0], *specs),
        out_specs=(*specs, P()),
    )
    return jax.jit(run)(grads, PARAMS, state), state


def dtypes(tree):
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


@pytest.mark.parametrize("mean", [0.0, 0.6 * NORM, 3 * NORM])
def test_a_good_step_is_that_of_the_optimizer(mean: float) -> None:
    (params, (inner, new_mean), good), (before, _) = updated(GRADS, mean)
    changes, expected = OPTIMIZER.update(GRADS, before, PARAMS)
    assert good
    assert new_mean == pytest.approx(KEPT * mean + (1 - KEPT) * NORM if mean else NORM)
    for got, right in (params, optax.apply_updates(PARAMS, changes)), (inner, expected):
        assert dtypes(got) == dtypes(right)
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3), got, right)


@pytest.mark.parametrize(
    ("worst", "mean"), [(jnp.nan, 0.0), (jnp.nan, 9.0), (-jnp.inf, 9.0), (0.5, 0.4 * NORM)]
)
def test_a_bad_step_changes_nothing(worst: float, mean: float) -> None:
    grads = GRADS | {"b": GRADS["b"].copy()}
    grads["b"][-1] = worst  # on the last device only
    (params, state, good), before = updated(grads, mean)
    assert not good
    jax.tree.map(np.testing.assert_array_equal, (params, state), (PARAMS, before))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan")])
def test_a_factor_that_cannot_be_is_refused(factor: float) -> None:
    with pytest.raises(ValueError, match=r"guarded_update: factor .*; give a number above 0"):
        updated(GRADS, 1.0, factor=factor)
