"""Wrong answers to data parallel gradients, whole and accumulated, that people write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxpar.contracts.base import Mistake

Loss = Callable[[Any, Any], Array]
Result = tuple[Array, Any]


def _local(loss_fn: Loss, params: Any, batch: Any, axis: str) -> Result:
    """Loss and gradient of this device's part alone."""
    return jax.value_and_grad(loss_fn)(lax.pcast(params, axis, to="varying"), batch)


def _over(tree: Any, divisor: int) -> Any:
    return jax.tree.map(lambda leaf: leaf / divisor, tree)


def _mean_of_sums(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return lax.pmean(jax.value_and_grad(loss_fn)(params, batch), axis)


def _sum_of_sums(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
    return lax.pmean(loss, axis), lax.psum(lax.pcast(gradients, axis, to="varying"), axis)


def _summed_again(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return lax.psum(jax.value_and_grad(loss_fn)(params, batch), axis)


def _totals_not_divided(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return lax.psum(_local(loss_fn, params, batch, axis), axis)


def _nothing_averaged(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return jax.value_and_grad(loss_fn)(params, batch)


def _result_stays_local(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return _local(loss_fn, params, batch, axis)


def _gradients_not_divided(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    loss, gradients = _local(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), lax.psum(gradients, axis)


def _gradients_stay_local(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    loss, gradients = _local(loss_fn, params, batch, axis)
    return lax.pmean(loss, axis), gradients


def _loss_stays_local(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    loss, gradients = _local(loss_fn, params, batch, axis)
    return loss, lax.pmean(gradients, axis)


def _constant_n(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return _over(lax.psum(_local(loss_fn, params, batch, axis), axis), 8)


def _means_over_whole_mesh(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    axes = tuple(jax.sharding.get_abstract_mesh().axis_names)
    others = tuple(name for name in axes if name != axis)
    return lax.pmean(lax.pcast(_local(loss_fn, params, batch, axis), others, to="varying"), axes)


def _gathers_batch(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    return _local(loss_fn, params, lax.all_gather(batch, axis, tiled=True), axis)


def _gathers_gradients(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    gathered = lax.all_gather(_local(loss_fn, params, batch, axis), axis)
    return jax.tree.map(lambda leaf: leaf.mean(axis=0), gathered)


def _reduces_twice(loss_fn: Loss, params: Any, batch: Any, *, axis: str) -> Result:
    once = lax.pmean(_local(loss_fn, params, batch, axis), axis)
    return lax.pmean(lax.pcast(once, axis, to="varying"), axis)


DATA_PARALLEL_GRADIENTS = (
    Mistake("gradients_not_divided", _gradients_not_divided, "values"),
    Mistake("mean_of_sums", _mean_of_sums, "values"),
    Mistake("sum_of_sums", _sum_of_sums, "values"),
    Mistake("summed_again", _summed_again, "values"),
    Mistake("totals_not_divided", _totals_not_divided, "values"),
    Mistake("nothing_averaged", _nothing_averaged, "values"),
    Mistake("result_stays_local", _result_stays_local, "values"),
    Mistake("gradients_stay_local", _gradients_stay_local, "values"),
    Mistake("loss_stays_local", _loss_stays_local, "values"),
    Mistake("constant_n", _constant_n, "values"),
    Mistake("means_over_whole_mesh", _means_over_whole_mesh, "communication"),
    Mistake("gathers_batch", _gathers_batch, "communication"),
    Mistake("gathers_gradients", _gathers_gradients, "communication"),
    Mistake("reduces_twice", _reduces_twice, "communication"),
)


def _number(microbatches: Any) -> int:
    return len(jax.tree.leaves(microbatches)[0])


def _add_up(loss_fn: Loss, params: Any, microbatches: Any) -> Result:
    """Sums of loss and gradient over the microbatches; summed over the devices as params are."""

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(params, microbatch)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return losses.sum(), total


def _add_up_here(loss_fn: Loss, params: Any, microbatches: Any, axis: str) -> Result:
    return _add_up(loss_fn, lax.pcast(params, axis, to="varying"), microbatches)


def _mean_of_sums_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    totals = _add_up(loss_fn, params, microbatches)
    return lax.pmean(_over(totals, _number(microbatches)), axis)


def _sums_of_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    return lax.pmean(_add_up(loss_fn, params, microbatches), axis)


def _neither_cast_nor_divided(
    loss_fn: Loss, params: Any, microbatches: Any, *, axis: str
) -> Result:
    loss, gradients = _add_up(loss_fn, params, microbatches)
    return lax.pmean((loss / _number(microbatches), gradients), axis)


def _totals_of_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    return lax.pmean(_add_up_here(loss_fn, params, microbatches, axis), axis)


def _nothing_averaged_in_loop(
    loss_fn: Loss, params: Any, microbatches: Any, *, axis: str
) -> Result:
    return _over(_add_up(loss_fn, params, microbatches), _number(microbatches))


def _sum_stays_local(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    return _over(_add_up_here(loss_fn, params, microbatches, axis), _number(microbatches))


def _hidden_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    loss, gradients = _over(_add_up(loss_fn, params, microbatches), _number(microbatches))
    return lax.pmean(loss, axis), _over(gradients, lax.axis_size(axis))


def _microbatches_not_divided(
    loss_fn: Loss, params: Any, microbatches: Any, *, axis: str
) -> Result:
    loss, gradients = _add_up_here(loss_fn, params, microbatches, axis)
    return lax.pmean((loss / _number(microbatches), gradients), axis)


def _divides_by_microbatches_only(
    loss_fn: Loss, params: Any, microbatches: Any, *, axis: str
) -> Result:
    loss, gradients = _over(
        _add_up_here(loss_fn, params, microbatches, axis), _number(microbatches)
    )
    return lax.pmean(loss, axis), lax.psum(gradients, axis)


def _last_microbatch_only(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    last = jax.tree.map(lambda leaf: leaf[-1], microbatches)
    return lax.pmean(_local(loss_fn, params, last, axis), axis)


def _reduces_each_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    local = lax.pcast(params, axis, to="varying")

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = lax.pmean(jax.value_and_grad(loss_fn)(local, microbatch), axis)
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, params), microbatches)
    return losses.mean(), _over(total, len(losses))


def _loss_in_loop(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    local = lax.pcast(params, axis, to="varying")

    def add(total: Any, microbatch: Any) -> tuple[Any, Array]:
        loss, gradients = jax.value_and_grad(loss_fn)(local, microbatch)
        return jax.tree.map(jnp.add, total, gradients), lax.pmean(loss, axis)

    total, losses = lax.scan(add, jax.tree.map(jnp.zeros_like, local), microbatches)
    return losses.mean(), lax.pmean(_over(total, len(losses)), axis)


def _vmaps_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    each = jax.vmap(lambda microbatch: _local(loss_fn, params, microbatch, axis))(microbatches)
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


def _unrolls_microbatches(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    each = [
        _local(loss_fn, params, jax.tree.map(lambda leaf, i=i: leaf[i], microbatches), axis)
        for i in range(_number(microbatches))
    ]
    return lax.pmean(jax.tree.map(lambda *leaves: sum(leaves) / len(leaves), *each), axis)


def _stacks_gradients(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    each = lax.map(lambda microbatch: _local(loss_fn, params, microbatch, axis), microbatches)
    return lax.pmean(jax.tree.map(lambda leaf: leaf.mean(axis=0), each), axis)


def _keeps_every_microbatch(loss_fn: Loss, params: Any, microbatches: Any, *, axis: str) -> Result:
    def mean_loss(params: Any, microbatches: Any) -> Array:
        return lax.map(lambda microbatch: loss_fn(params, microbatch), microbatches).mean()

    return lax.pmean(_local(mean_loss, params, microbatches, axis), axis)


ACCUMULATE_GRADIENTS = (
    Mistake("gradients_not_divided", _divides_by_microbatches_only, "values"),
    Mistake("mean_of_sums", _mean_of_sums_in_loop, "values"),
    Mistake("microbatches_not_divided", _microbatches_not_divided, "values"),
    Mistake("totals_of_microbatches", _totals_of_microbatches, "values"),
    Mistake("sums_of_microbatches", _sums_of_microbatches, "values"),
    Mistake("neither_cast_nor_divided", _neither_cast_nor_divided, "values"),
    Mistake("nothing_averaged", _nothing_averaged_in_loop, "values"),
    Mistake("result_stays_local", _sum_stays_local, "values"),
    Mistake("last_microbatch_only", _last_microbatch_only, "values"),
    Mistake("hidden_in_loop", _hidden_in_loop, "communication"),
    Mistake("reduces_each_microbatch", _reduces_each_microbatch, "communication"),
    Mistake("loss_in_loop", _loss_in_loop, "communication"),
    Mistake("unrolls_microbatches", _unrolls_microbatches, "memory"),
    Mistake("vmaps_microbatches", _vmaps_microbatches, "memory"),
    Mistake("stacks_gradients", _stacks_gradients, "memory"),
    Mistake("keeps_every_microbatch", _keeps_every_microbatch, "memory"),
)
