"""Pipelines: each device holds some of the layers, and microbatches go from device to device.

`pipeline_gradients` runs any schedule that `jaxpar.schedules` accepts. The schedule is data: a loop
over ticks reads from arrays what its device does, and the program is as long for any schedule.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, PyTree

from jaxpar import backward
from jaxpar.mesh import vary, zeros
from jaxpar.schedules import ticks
from jaxpar.schedules.table import Table
from jaxpar.schedules.ticks import Ticks

LayerFn = Callable[[Any, Array], Array]


def layer_order(table: Table, layers: int) -> np.ndarray:
    """Which layer stands where in the order in which devices hold them: device after device.

    Comm:
        forward: nothing
        backward: no derivative
    Memory: layers
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2

    Raises:
        ValueError: the stages do not divide the layers, or devices have unequally many stages.
    """
    if layers % table.stages:
        raise ValueError(
            f"pipeline: {layers} layers in {table.stages} stages; every stage has as many; use a "
            f"multiple of {table.stages} layers"
        )
    devices = [table.device_of(stage) for stage in range(table.stages)]
    if len({devices.count(device) for device in devices}) > 1:
        raise ValueError(
            f"pipeline: the stages lie on devices {devices}; every device holds as many; give each "
            f"{table.stages // table.devices}"
        )
    per_stage = np.arange(layers).reshape(table.stages, -1)
    return per_stage[np.argsort(devices, kind="stable")].ravel()


def pipeline_gradients(
    first_fn: Callable[[Any, Any], Array],
    layer_fn: LayerFn,
    last_fn: Callable[[Any, Array, Any], Array],
    params: tuple[PyTree[Array], PyTree[Array]],
    microbatches: PyTree[Array],
    table: Table,
    *,
    keep_inputs: bool,
    axis: str,
) -> tuple[Float[Array, ""], tuple[PyTree[Array], PyTree[Array]]]:
    """The mean loss of m microbatches and its gradient, by a schedule.

    `first_fn(ends, microbatch)` is what enters the first layer, `layer_fn(layer, x)` what leaves
    one, `last_fn(ends, y, microbatch)` the mean loss of a microbatch. `params` are two pytrees:
    `ends`, equal on all devices and used on the first and the last stage, and the layers of this
    device, stacked in the order of `layer_order`. Leaves of `microbatches` are [m, ...], equal on
    all devices of the axis. The loss and the gradient of `ends` are equal on all devices.

    With `keep_inputs` a stage keeps its input for the backward, and computes all else again; else
    it keeps what `layer_fn` needs for its gradient, which `jax.checkpoint` may reduce.

    Math: y = (sum_k last_fn(ends, layers(first_fn(ends, mb_k)), mb_k)) / m, and its derivative
    Comm:
        forward: permute(axis) 2*ticks*x + all_reduce(axis) ends+1
        backward: no derivative
    Memory: ends+layers+1
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2; Qi et al. 2023 (Zero Bubble)

    Raises:
        ValueError: the table is not for so many devices and microbatches, or its neighbouring
            stages lie on devices that are no neighbours.
    """
    count = len(jax.tree.leaves(microbatches)[0])
    _check(table, count, axis)
    lowered = ticks.lower(table, keep_inputs=keep_inputs)
    own = partial(vary, axes=(axis,))
    pipeline = _Pipeline(
        first_fn,
        layer_fn,
        lambda ends, y, microbatch: last_fn(ends, y, microbatch) / count,
        jax.tree.map(own, params[0]),
        jax.tree.map(lambda leaf: leaf.reshape(table.chunks, -1, *leaf.shape[1:]), params[1]),
        jax.tree.map(own, microbatches),
        keep_inputs,
        frozenset(np.unique(lowered.ticks.kind).tolist()),
    )
    loss, *sums = _run(pipeline, lowered, axis)
    found = jax.tree.map(lambda g, p: g.reshape(p.shape).astype(p.dtype), tuple(sums), params)
    return lax.psum(loss, axis), (lax.psum(found[0], axis), found[1])


def _run(pipeline: "_Pipeline", lowered: ticks.Lowered, axis: str) -> tuple[Array, Any, Any]:
    """The loss, and the sums of gradients."""
    here = jax.tree.map(lambda field: jnp.asarray(field)[:, lax.axis_index(axis)], lowered.ticks)

    def tick(state: _State, now: Ticks) -> tuple[_State, None]:
        made, state = pipeline.act(state, now)
        return _exchange(made, state, now, axis), None

    state, _ = lax.scan(tick, pipeline.start(lowered), here)
    return state.loss, state.ends, state.layers


def _check(table: Table, count: int, axis: str) -> None:
    n = lax.axis_size(axis)
    if (table.devices, table.microbatches) != (n, count):
        raise ValueError(
            f"pipeline: a schedule of {table.microbatches} microbatches on {table.devices} devices "
            f"for {count} microbatches on mesh axis {axis} (size {n}); make it for these"
        )


class _State(NamedTuple):
    """What a device carries from tick to tick; the gradients are sums so far."""

    buffer: Array
    stash: PyTree[Array]
    halves: PyTree[Array]
    loss: Array
    ends: PyTree[Array]
    layers: PyTree[Array]


@dataclass(frozen=True)
class _Pipeline:
    """What a device does in a tick; `layers` are [chunks, l, ...]."""

    first_fn: Callable[[Any, Any], Array]
    layer_fn: LayerFn
    last_fn: Callable[[Any, Array, Any], Array]
    ends: PyTree[Array]
    layers: PyTree[Array]
    microbatches: PyTree[Array]
    keep_inputs: bool
    kinds: frozenset[int]

    def start(self, lowered: ticks.Lowered) -> _State:
        """Empty buffers, and zeros."""
        layers, microbatch = _at((self.layers, self.microbatches), 0)

        def one() -> tuple[Any, ...]:
            x = self.first_fn(self.ends, microbatch)
            y, kept = backward.forward(self.layer_fn, layers, x)
            _, halves = backward.input_gradient(self.layer_fn, layers, kept, y)
            return y, kept, halves, self.last_fn(self.ends, y, microbatch)

        x, kept, halves, loss = jax.eval_shape(one)
        sums = jax.eval_shape(lambda: (self.ends, self.layers))
        split = ticks.INPUT_GRADIENT in self.kinds
        return _State(
            _zeros(x, lowered.slots),
            () if self.keep_inputs else _zeros(kept, lowered.stash_slots),
            _zeros((halves, kept if self.keep_inputs else ()), lowered.half_slots) if split else (),
            _zeros(loss),
            *jax.tree.map(lambda like: zeros(like.update(dtype=jnp.float32)), sums),
        )

    def act(self, state: _State, now: Ticks) -> tuple[Array, _State]:
        """One action: what it makes for another device, and what it leaves here."""
        made = jnp.zeros_like(state.buffer[0])
        # A condition for each kind: of a switch over all XLA would copy what most of them pass on.
        for kind, do in (
            (ticks.FORWARD, self._forward),
            (ticks.BACKWARD, self._backward),
            (ticks.INPUT_GRADIENT, self._input_gradient),
            (ticks.WEIGHT_GRADIENT, self._weight_gradient),
        ):
            if kind in self.kinds:
                made, state = lax.cond(
                    now.kind == kind, do, lambda made, state, now: (made, state), made, state, now
                )
        return made, state

    def _forward(self, _: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        y, kept = backward.forward(self.layer_fn, *self._given(state, now))
        if self.keep_inputs:
            return y, state
        return y, state._replace(stash=_put(state.stash, kept, now.stash))

    def _backward(self, _: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        dy, state = self._output_gradient(state, now)
        layers, kept = self._kept(state, now)
        dx, found = backward.backward(self.layer_fn, layers, kept, dy)
        return dx, self._add_ends(dx, self._add_layers(found, state, now), now)

    def _input_gradient(self, _: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        dy, state = self._output_gradient(state, now)
        layers, kept = self._kept(state, now)
        dx, halves = backward.input_gradient(self.layer_fn, layers, kept, dy)
        found = (halves, kept if self.keep_inputs else ())
        state = state._replace(halves=_put(state.halves, found, now.halves))
        return dx, self._add_ends(dx, state, now)

    def _weight_gradient(self, made: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        halves, kept = _at(state.halves, now.halves)
        if not self.keep_inputs:
            kept = _at(state.stash, now.stash)
        layers = _at(self.layers, now.chunk)
        found = backward.weight_gradient(self.layer_fn, layers, kept, halves, made)
        return made, self._add_layers(found, state, now)

    def _given(self, state: _State, now: Ticks) -> tuple[PyTree[Array], Array]:
        """The layers of the stage, and what enters them."""
        microbatch = _at(self.microbatches, now.microbatch)
        x = lax.cond(
            now.first == 1,
            lambda: self.first_fn(self.ends, microbatch),
            lambda: _at(state.buffer, now.x),
        )
        return _at(self.layers, now.chunk), x

    def _kept(self, state: _State, now: Ticks) -> tuple[PyTree[Array], Any]:
        """The layers of the stage, and what their forward kept, or would have kept."""
        if not self.keep_inputs:
            return _at(self.layers, now.chunk), _at(state.stash, now.stash)
        layers, x = self._given(state, now)
        return layers, backward.forward(self.layer_fn, layers, x)[1]

    def _output_gradient(self, state: _State, now: Ticks) -> tuple[Array, _State]:
        """The gradient of what leaves the stage; from the last one that is the loss."""
        arrived, microbatch = _at(state.buffer, now.dy), _at(self.microbatches, now.microbatch)

        def last() -> tuple[Array, _State]:
            loss, pull = jax.vjp(
                lambda ends, y: self.last_fn(ends, y, microbatch), self.ends, arrived
            )
            found, dy = pull(jnp.ones_like(loss))
            return dy, state._replace(
                loss=state.loss + loss, ends=jax.tree.map(jnp.add, state.ends, found)
            )

        return lax.cond(now.last == 1, last, lambda: (arrived, state))

    def _add_ends(self, dx: Array, state: _State, now: Ticks) -> _State:
        """Adds the gradient of what made the input of the first stage."""
        microbatch = _at(self.microbatches, now.microbatch)

        def first() -> _State:
            _, pull = jax.vjp(lambda ends: self.first_fn(ends, microbatch), self.ends)
            return state._replace(ends=jax.tree.map(jnp.add, state.ends, *pull(dx)))

        return lax.cond(now.first == 1, first, lambda: state)

    def _add_layers(self, found: PyTree[Array], state: _State, now: Ticks) -> _State:
        return state._replace(
            layers=jax.tree.map(lambda sum, g: sum.at[now.chunk].add(g), state.layers, found)
        )


def _exchange(made: Array, state: _State, now: Ticks, axis: str) -> _State:
    """What a device made goes to both neighbours, and is put where it is needed."""
    n = lax.axis_size(axis)
    to_next = [(j, (j + 1) % n) for j in range(n)]
    to_previous = [(j, i) for i, j in to_next]
    buffer = _put(state.buffer, lax.ppermute(made, axis, to_next), now.from_previous)
    buffer = _put(buffer, lax.ppermute(made, axis, to_previous), now.from_next)
    return state._replace(buffer=_put(buffer, made, now.stays))


def _at(tree: PyTree[Array], index: Any) -> Any:
    """Of every leaf the one of its first dim."""
    return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, keepdims=False), tree)


def _put(tree: PyTree[Array], leaves: PyTree[Array], index: Any) -> Any:
    return jax.tree.map(
        lambda leaf, x: lax.dynamic_update_index_in_dim(leaf, x, index, 0), tree, leaves
    )


def _zeros(tree: PyTree[jax.ShapeDtypeStruct], slots: int | None = None) -> Any:
    """Zeros of these types, or as many of each as there are slots."""
    leading = () if slots is None else (slots,)
    return jax.tree.map(lambda like: zeros(like.update(shape=(*leading, *like.shape))), tree)
