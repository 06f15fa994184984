"""Pipelines: each device holds some of the layers, and microbatches go from device to device.

`pipeline_gradients` runs any schedule that `jaxpar.schedules` accepts. The schedule is data: a loop
over ticks reads from arrays what the device does next, so the size of the program does not depend
on the schedule.
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
from jaxpar.backward import LayerFn
from jaxpar.mesh import vary, zeros
from jaxpar.schedules import ticks
from jaxpar.schedules.table import Table
from jaxpar.schedules.ticks import Ticks


def layer_order(table: Table, layers: int) -> np.ndarray:
    """The numbers of the layers in the order in which the devices hold them: device after device.

    Memory: layers
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2

    Raises:
        ValueError: the stages do not divide the layers, or the devices have different numbers of
            stages.
    """
    if layers % table.stages:
        raise ValueError(
            f"pipeline: {layers} layers in {table.stages} stages; every stage has equally many "
            f"layers; use a multiple of {table.stages} layers"
        )
    devices = [table.device_of(stage) for stage in range(table.stages)]
    if len({devices.count(device) for device in devices}) > 1:
        raise ValueError(
            f"pipeline: the stages are on devices {devices}; every device holds equally many "
            f"stages; give each {table.stages // table.devices}"
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
    scale: float | Float[Array, ""] = 1.0,
    frozen: tuple[PyTree[Array], ...] = (),
) -> tuple[Float[Array, ""], tuple[PyTree[Array], PyTree[Array]]]:
    """This device's parts of the mean loss of m microbatches, and of its gradient times `scale`.

    `first_fn(ends, microbatch)` is the input of the first layer, `layer_fn(layer, x)` the output of
    a layer, and `last_fn(ends, y, microbatch)` the mean loss of a microbatch. `params` are two
    pytrees: `ends`, which are equal on all devices and used by the first and the last stage, and
    the layers of this device, stacked in the order of `layer_order`. What is `frozen` is stacked
    likewise: `layer_fn` takes it after x, and it has no gradient. The leaves of `microbatches` are
    [m, ...], and equal on all devices of the axis. Everything is computed in the order of the
    schedule. The loss and the gradient with respect to `ends` are the sums of what the devices
    return; most return zeros. Gradients are added up in float32, or in float64.

    With `keep_inputs`, a stage keeps only its input for the backward pass, and computes everything
    else again. Otherwise it keeps the residuals of `layer_fn`, which `jax.checkpoint` may reduce.

    Math: y = (sum_k last_fn(ends, layers(first_fn(ends, mb_k)), mb_k)) / m, and its derivative
    Comm:
        forward: permute(axis) 2*ticks*x
        backward: no derivative
    Memory: ends+layers+1
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2; Qi et al. 2024 (Zero Bubble)

    Raises:
        ValueError: the table is for another number of devices or microbatches, or neighbouring
            stages are on devices that are not neighbours.
    """
    count = len(jax.tree.leaves(microbatches)[0])
    _check_table(table, count, axis)
    lowered = ticks.lower(table, keep_inputs=keep_inputs)
    local = partial(vary, axes=(axis,))
    layers, frozen = jax.tree.map(
        lambda leaf: leaf.reshape(table.chunks, -1, *leaf.shape[1:]), (params[1], frozen)
    )
    device = _Device(
        first_fn=first_fn,
        layer_fn=layer_fn,
        last_fn=lambda ends, y, microbatch: last_fn(ends, y, microbatch) / count,
        ends=jax.tree.map(local, params[0]),
        layers=layers,
        frozen=frozen,
        microbatches=jax.tree.map(local, microbatches),
        keep_inputs=keep_inputs,
        scale=scale,
        kinds=frozenset(np.unique(lowered.ticks.kind).tolist()),
    )
    state = _run(device, lowered, axis)
    ends, layers = jax.tree.map(
        lambda gradient, param: gradient.reshape(param.shape).astype(param.dtype),
        (state.ends_gradient, state.layers_gradient),
        params,
    )
    return state.loss, (ends, layers)


def _run(device: "_Device", lowered: ticks.Lowered, axis: str) -> "_State":
    """The state of this device after the last tick."""
    own_ticks = jax.tree.map(
        lambda field: jnp.asarray(field)[:, lax.axis_index(axis)], lowered.ticks
    )

    def tick(state: _State, now: Ticks) -> tuple[_State, None]:
        output, state = device.act(state, now)
        return _exchange(output, state, now, axis), None

    # Each device fills its slots at ticks of its own, with positions and indices, too.
    start = jax.tree.map(partial(vary, axes=(axis,)), device.start(lowered))
    return lax.scan(tick, start, own_ticks)[0]


def _check_table(table: Table, count: int, axis: str) -> None:
    n = lax.axis_size(axis)
    if (table.devices, table.microbatches) != (n, count):
        raise ValueError(
            f"pipeline: a schedule of {table.microbatches} microbatches on {table.devices} devices "
            f"for {count} microbatches on mesh axis {axis} (size {n}); make it for these"
        )


class _State(NamedTuple):
    """What a device carries from tick to tick.

    Attributes:
        buffer: activations and their gradients, in the slots that `Ticks` names.
        stash: the residuals of forwards, for their backwards.
        halves: the residuals of input gradients, for their weight gradients.
        loss: the sum of the losses so far.
        ends_gradient: the sum of the gradients with respect to the ends, so far.
        layers_gradient: the same for the layers.
    """

    buffer: Array
    stash: PyTree[Array]
    halves: PyTree[Array]
    loss: Array
    ends_gradient: PyTree[Array]
    layers_gradient: PyTree[Array]


@dataclass(frozen=True)
class _Device:
    """One device of the pipeline: its shards, and what it does in a tick.

    The arguments are those of `pipeline_gradients`, except that the leaves of `layers` and of
    `frozen` are [chunks, l, ...]. `kinds` are the kinds of actions that occur in the schedule.
    """

    first_fn: Callable[[Any, Any], Array]
    layer_fn: LayerFn
    last_fn: Callable[[Any, Array, Any], Array]
    ends: PyTree[Array]
    layers: PyTree[Array]
    frozen: tuple[PyTree[Array], ...]
    microbatches: PyTree[Array]
    keep_inputs: bool
    scale: float | Array
    kinds: frozenset[int]

    def start(self, lowered: ticks.Lowered) -> _State:
        """The state before the first tick: empty slots, and gradients of zero."""
        layers, frozen, microbatch = _at((self.layers, self.frozen, self.microbatches), 0)

        def one_of_each() -> tuple[Any, ...]:
            x = self.first_fn(self.ends, microbatch)
            y, residuals = backward.forward(self.layer_fn, layers, x, *frozen)
            _, halves = backward.input_gradient(self.layer_fn, layers, residuals, y, *frozen)
            return y, residuals, halves, self.last_fn(self.ends, y, microbatch)

        x, residuals, halves, loss = jax.eval_shape(one_of_each)
        if self.keep_inputs:
            stash, half = (), (halves, residuals)
        else:
            stash, half = _zeros(residuals, lowered.stash_slots), (halves, ())
        has_halves = ticks.INPUT_GRADIENT in self.kinds
        ends_gradient, layers_gradient = jax.tree.map(
            lambda like: zeros(like.update(dtype=jnp.promote_types(like.dtype, jnp.float32))),
            jax.eval_shape(lambda: (self.ends, self.layers)),
        )
        return _State(
            buffer=_zeros(x, lowered.slots),
            stash=stash,
            halves=_zeros(half, lowered.half_slots) if has_halves else (),
            loss=_zeros(loss),
            ends_gradient=ends_gradient,
            layers_gradient=layers_gradient,
        )

    def act(self, state: _State, now: Ticks) -> tuple[Array, _State]:
        """Does one action, and returns its output for another device, and the new state."""
        output = jnp.zeros_like(state.buffer[0])
        # One condition for each kind, because XLA would copy the whole state for each branch of a
        # single switch.
        for kind, action in (
            (ticks.FORWARD, self._forward),
            (ticks.BACKWARD, self._backward),
            (ticks.INPUT_GRADIENT, self._input_gradient),
            (ticks.WEIGHT_GRADIENT, self._weight_gradient),
        ):
            if kind in self.kinds:
                output, state = lax.cond(
                    now.kind == kind,
                    action,
                    lambda output, state, now: (output, state),
                    output,
                    state,
                    now,
                )
        return output, state

    def _forward(self, _: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        layers, x = self._layers_and_input(state, now)
        y, residuals = backward.forward(self.layer_fn, layers, x, *self._frozen(now))
        if self.keep_inputs:
            return y, state
        return y, state._replace(stash=_put(state.stash, residuals, now.stash))

    def _backward(self, _: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        dy, state = self._output_gradient(state, now)
        layers, residuals = self._layers_and_residuals(state, now)
        dx, gradient = backward.backward(self.layer_fn, layers, residuals, dy, *self._frozen(now))
        return dx, self._add_to_ends(dx, self._add_to_layers(gradient, state, now), now)

    def _input_gradient(self, _: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        dy, state = self._output_gradient(state, now)
        layers, residuals = self._layers_and_residuals(state, now)
        dx, halves = backward.input_gradient(
            self.layer_fn, layers, residuals, dy, *self._frozen(now)
        )
        half = (halves, residuals if self.keep_inputs else ())
        state = state._replace(halves=_put(state.halves, half, now.halves))
        return dx, self._add_to_ends(dx, state, now)

    def _weight_gradient(self, output: Array, state: _State, now: Ticks) -> tuple[Array, _State]:
        halves, residuals = _at(state.halves, now.halves)
        if not self.keep_inputs:
            residuals = _at(state.stash, now.stash)
        layers = _at(self.layers, now.chunk)
        gradient = backward.weight_gradient(
            self.layer_fn, layers, residuals, halves, output, *self._frozen(now)
        )
        return output, self._add_to_layers(gradient, state, now)

    def _layers_and_input(self, state: _State, now: Ticks) -> tuple[PyTree[Array], Array]:
        """The layers of the stage, and the input of its first layer."""
        microbatch = _at(self.microbatches, now.microbatch)
        x = lax.cond(
            now.first == 1,
            lambda: self.first_fn(self.ends, microbatch),
            lambda: _at(state.buffer, now.x),
        )
        return _at(self.layers, now.chunk), x

    def _layers_and_residuals(self, state: _State, now: Ticks) -> tuple[PyTree[Array], Any]:
        """The layers of the stage and their residuals, which are computed again if not kept."""
        if not self.keep_inputs:
            return _at(self.layers, now.chunk), _at(state.stash, now.stash)
        layers, x = self._layers_and_input(state, now)
        return layers, backward.forward(self.layer_fn, layers, x, *self._frozen(now))[1]

    def _frozen(self, now: Ticks) -> tuple[PyTree[Array], ...]:
        """The parameters of the stage that have no gradients."""
        return _at(self.frozen, now.chunk)

    def _output_gradient(self, state: _State, now: Ticks) -> tuple[Array, _State]:
        """The gradient with respect to the stage's output, which on the last stage is the loss's.

        On the last stage, the buffer has the output itself, and the state gets the loss.
        """
        received, microbatch = _at(state.buffer, now.dy), _at(self.microbatches, now.microbatch)

        def of_loss() -> tuple[Array, _State]:
            loss, vjp = jax.vjp(
                lambda ends, y: self.last_fn(ends, y, microbatch), self.ends, received
            )
            gradient, dy = vjp(jnp.ones_like(loss) * self.scale)
            return dy, state._replace(
                loss=state.loss + loss,
                ends_gradient=jax.tree.map(jnp.add, state.ends_gradient, gradient),
            )

        return lax.cond(now.last == 1, of_loss, lambda: (received, state))

    def _add_to_ends(self, dx: Array, state: _State, now: Ticks) -> _State:
        """On the first stage, adds the gradient that flows through `first_fn` into the ends."""
        microbatch = _at(self.microbatches, now.microbatch)

        def added() -> _State:
            _, vjp = jax.vjp(lambda ends: self.first_fn(ends, microbatch), self.ends)
            return state._replace(
                ends_gradient=jax.tree.map(jnp.add, state.ends_gradient, *vjp(dx))
            )

        return lax.cond(now.first == 1, added, lambda: state)

    def _add_to_layers(self, gradient: PyTree[Array], state: _State, now: Ticks) -> _State:
        total = jax.tree.map(
            lambda leaf, g: leaf.at[now.chunk].add(g), state.layers_gradient, gradient
        )
        return state._replace(layers_gradient=total)


def _exchange(output: Array, state: _State, now: Ticks, axis: str) -> _State:
    """Sends a device's output to both neighbours, and stores what the schedule needs."""
    n = lax.axis_size(axis)
    to_next = [(j, (j + 1) % n) for j in range(n)]
    to_previous = [(j, i) for i, j in to_next]
    buffer = _put(state.buffer, lax.ppermute(output, axis, to_next), now.from_previous)
    buffer = _put(buffer, lax.ppermute(output, axis, to_previous), now.from_next)
    return state._replace(buffer=_put(buffer, output, now.stays))


def _at(tree: PyTree[Array], index: Any) -> Any:
    """Indexes the first dim of every leaf."""
    return jax.tree.map(lambda leaf: lax.dynamic_index_in_dim(leaf, index, keepdims=False), tree)


def _put(tree: PyTree[Array], leaves: PyTree[Array], index: Any) -> Any:
    """Sets every leaf at an index of its first dim."""
    return jax.tree.map(
        lambda leaf, x: lax.dynamic_update_index_in_dim(leaf, x, index, 0), tree, leaves
    )


def _zeros(tree: PyTree[jax.ShapeDtypeStruct], slots: int | None = None) -> Any:
    """Zeros with these shapes and dtypes, or, if `slots` is given, with a leading dim of slots."""
    leading = () if slots is None else (slots,)
    return jax.tree.map(lambda like: zeros(like.update(shape=(*leading, *like.shape))), tree)
