"""Local steps: devices train by themselves for a while, and average now and then.

The parameters are equal on all devices of the axis after each round, and typed so. Between rounds
each device's parameters move on by its own batches alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax
from jaxtyping import Bool, Float, PyTree

from jaxpar.mesh import check_power_of_two, vary


def local_steps(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    state: PyTree[Array],
    batches: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    axis: str,
) -> tuple[Float[Array, " h"], PyTree[Array], PyTree[Array]]:
    """The loss before each of h steps, the parameters and the state after; nothing is sent.

    `batches` are this device's own, a pytree whose leaves are [h, ...]. What comes out differs
    between the devices of the axis.

    Math: params = params - optimizer(d loss_fn(params, batch) / d params), h times
    Comm:
        forward: nothing
        backward: no derivative
    Memory: h+params+state
    Source: Stich 2019 (Local SGD), algorithm 1
    """
    # Without the cast, JAX would insert an all-reduce of the gradients into every step.
    own = jax.tree.map(lambda leaf: vary(leaf, [axis]), (params, state))

    def step(carry: tuple[Any, Any], batch: Any) -> tuple[tuple[Any, Any], Array]:
        params, state = carry
        loss, gradients = jax.value_and_grad(loss_fn)(params, batch)
        updates, state = optimizer.update(gradients, state, params)
        return (optax.apply_updates(params, updates), state), loss

    (params, state), losses = lax.scan(step, own, batches)
    return losses, params, state


def local_sgd_round(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    state: PyTree[Array],
    batches: PyTree[Array],
    optimizer: optax.GradientTransformation,
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array], PyTree[Array]]:
    """Each device makes h local steps; then all take the mean of their parameters.

    `batches` are this device's own, a pytree whose leaves are [h, ...]. `params` are equal on all
    devices; each device has its own optimizer state, which is not averaged. Returns the loss, the
    parameters and the state; the loss is the mean over all steps and devices, each taken before its
    step.

    Math: params_j = params after h steps on batches_j; params = (sum_j params_j)/n
    Comm:
        forward: all_reduce(axis) params+1
        backward: no derivative
    Memory: 1+params+state
    Source: Stich 2019 (Local SGD), algorithm 1; Lin et al. 2020 (post-local SGD)
    """
    losses, params, state = local_steps(loss_fn, params, state, batches, optimizer, axis=axis)
    return *lax.pmean((losses.mean(), params), axis), state


def diloco_round(
    loss_fn: Callable[[Any, Any], Array],
    params: PyTree[Array],
    inner_state: PyTree[Array],
    outer_state: PyTree[Array],
    batches: PyTree[Array],
    inner: optax.GradientTransformation,
    outer: optax.GradientTransformation,
    *,
    axis: str,
) -> tuple[Float[Array, ""], PyTree[Array], PyTree[Array], PyTree[Array]]:
    """Each device makes h local steps; how far they went on average is a gradient for `outer`.

    `batches` are this device's own, a pytree whose leaves are [h, ...]. `params` and the state of
    `outer` are equal on all devices; each device has its own state of `inner`, which is not
    averaged. `outer` is usually SGD with Nesterov momentum; its update is added to `params`, as
    optax does it. Returns the loss, and the new params, inner_state and outer_state. The loss is
    the mean over all steps and devices, each taken before its step.

    Math: delta = params - (sum_j params_j)/n, where params_j is params after h steps of `inner`;
        params = params + the update that `outer` makes of delta
    Comm:
        forward: all_reduce(axis) params+1
        backward: no derivative
    Memory: 1+params+inner_state+outer_state
    Source: Douillard et al. 2023 (DiLoCo), algorithm 1
    """
    losses, own, inner_state = local_steps(loss_fn, params, inner_state, batches, inner, axis=axis)
    loss, mean = lax.pmean((losses.mean(), own), axis)
    params, outer_state = _outer_step(params, mean, outer_state, outer)
    return loss, params, inner_state, outer_state


def streaming_round(
    params: PyTree[Array],
    anchors: PyTree[Array],
    outer_states: Sequence[PyTree[Array]],
    outer: optax.GradientTransformation,
    step: int,
    *,
    fragments: Sequence[Sequence[int]],
    every: int,
    axis: str,
) -> tuple[PyTree[Array], PyTree[Array], tuple[PyTree[Array], ...]]:
    """DiLoCo that synchronises a fragment of the parameters at a time, each once in `every` steps.

    `params` are this device's own after `step` local steps. `anchors` are the parameters as they
    were when their fragment was last synchronised; they are equal on all devices. A fragment is a
    list of positions in `jax.tree.leaves(params)`, and each leaf is in exactly one fragment.
    Fragment f of F is due after each step for which `step % every == f*every//F`. What is not due
    stays as it is, bit for bit. `outer` has one state for each fragment, which is that of the list
    of its leaves. Returns the new params, anchors and outer_states.

    Math: delta = anchors - (sum_j params_j)/n; anchors = anchors + the update that `outer` makes of
        delta; params = anchors, for the leaves of the fragments that are due
    Comm:
        forward: all_reduce(axis) due
        backward: no derivative
    Memory: 2*params+outer_states
    Source: Douillard et al. 2025 (Streaming DiLoCo), section 2.2

    Raises:
        ValueError: there are more fragments than steps in which they can be due, or a leaf is in
            none or in several of them.
    """
    count = len(fragments)
    leaves, structure = jax.tree.flatten(params)
    if count > every:
        raise ValueError(
            f"streaming_round: {count} fragments, each due once in {every} steps; only one may be "
            f"due at a time; use at most {every} fragments, or an `every` of {count} or more"
        )
    if sorted(place for fragment in fragments for place in fragment) != [*range(len(leaves))]:
        raise ValueError(
            f"streaming_round: fragments {[[*one] for one in fragments]} of {len(leaves)} leaves; "
            f"each place from 0 to {len(leaves) - 1} must be in one fragment; add or drop places"
        )
    kept, states = jax.tree.leaves(anchors), list(outer_states)
    for number, fragment in enumerate(fragments):
        if step % every == number * every // count:
            mean = lax.pmean([leaves[place] for place in fragment], axis)
            old = [kept[place] for place in fragment]
            new, states[number] = _outer_step(old, mean, states[number], outer)
            for place, leaf in zip(fragment, new, strict=True):
                kept[place], leaves[place] = leaf, vary(leaf, [axis])
    return structure.unflatten(leaves), structure.unflatten(kept), tuple(states)


def one_peer_average(params: PyTree[Array], *, axis: str, step: int) -> PyTree[Array]:
    """The mean of the parameters of this device and of one other, another one in each step.

    Device i receives from device i - d (modulo n), where d = 2**(step mod log2(n)). After log2(n)
    such averages in a row, every device has the mean of all, if nothing else has changed the
    parameters.

    Math: y_i = (params_i + params_(i-d))/2
    Comm:
        forward: permute(axis) params
        backward: permute(axis) params
    Memory: params
    Source: Ying et al. 2021 (Exponential Graph is Provably Efficient), section 4; Assran et al.
        2019 (Stochastic Gradient Push)

    Raises:
        ValueError: the number of devices is not a power of two.
    """
    n = check_power_of_two("one_peer_average", axis)
    if n == 1:
        return params
    distance = 2 ** (step % (n.bit_length() - 1))
    pairs = [(i, (i + distance) % n) for i in range(n)]
    return jax.tree.map(lambda leaf: (leaf + lax.ppermute(leaf, axis, pairs)) / 2, params)


def mean_of_arrived(
    gradients: PyTree[Array], arrived: Bool[Array, ""], *, axis: str
) -> PyTree[Array]:
    """The mean of the gradients of those devices that finished in time; zeros if none did.

    `arrived` says whether this device finished in time. The gradients of a late device do not
    matter, even if they are NaN or infinite. Each gradient keeps its dtype.

    Math: y = (sum_j arrived_j*gradients_j) / max(1, sum_j arrived_j)
    Comm:
        forward: all_reduce(axis) gradients+1
        backward: no derivative
    Memory: gradients
    Source: Chen et al. 2016 (Revisiting Distributed Synchronous SGD)
    """
    count = lax.psum(arrived.astype(jnp.int32), axis)
    in_time = jax.tree.map(lambda leaf: jnp.where(arrived, leaf, 0), gradients)
    total = lax.psum(in_time, axis)
    return jax.tree.map(lambda leaf: leaf / jnp.maximum(count, 1).astype(leaf.dtype), total)


def _outer_step(
    params: PyTree[Array], mean: PyTree[Array], state: PyTree[Array], outer: Any
) -> tuple[PyTree[Array], PyTree[Array]]:
    """Moves from the old parameters towards the mean of all devices, as `outer` does it."""
    delta = jax.tree.map(jnp.subtract, params, mean)
    updates, state = outer.update(delta, state, params)
    return optax.apply_updates(params, updates), state
