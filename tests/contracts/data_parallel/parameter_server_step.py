"""Answers to parameter_server_step: right ones by other routes, and wrong ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from jaxpar.collectives import gather, tree_broadcast
from jaxpar.contracts.base import wrong
from jaxpar.contracts.steps import enter
from tests.contracts.answers import right


def _local(loss_fn, params, batch, axis):
    return jax.grad(loss_fn)(enter(params, axis), batch)


def _from_server(tree, axis, server):
    return jax.tree.map(lambda leaf: tree_broadcast(leaf, axis=axis, root=server), tree)


@right
def by_imports(loss_fn, params, batch, update_fn, *, axis, server):
    def mean(leaf):
        return jnp.mean(gather(leaf, axis=axis, root=server), axis=0)

    mean_gradients = jax.tree.map(mean, _local(loss_fn, params, batch, axis))
    return _from_server(update_fn(params, mean_gradients), axis, server)


def _mean_by_gather(tree, axis):
    return jax.tree.map(lambda leaf: leaf.mean(0), lax.all_gather(tree, axis))


@right
def by_two_gathers(loss_fn, params, batch, update_fn, *, axis, server):
    new = update_fn(params, _mean_by_gather(_local(loss_fn, params, batch, axis), axis))
    return jax.tree.map(lambda leaf: leaf[server], lax.all_gather(new, axis))


@right
def by_chain(loss_fn, params, batch, update_fn, *, axis, server):
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    params = enter(params, axis)
    total, unravel = ravel_pytree(jax.grad(loss_fn)(params, batch))
    chain = [(server + k) % n for k in range(n)]
    links = list(zip(chain[1:], chain, strict=False))
    for link in reversed(links):
        total = total + lax.ppermute(total, axis, [link])
    mean = unravel(total / n)
    new = lax.cond(i == server, update_fn, lambda params, _: params, params, mean)
    for target, source in links:
        arrived = lax.ppermute(new, axis, [(source, target)])
        new = jax.tree.map(lambda a, b, to=target: jnp.where(i == to, a, b), arrived, new)
    return new


@right
def by_tree(loss_fn, params, batch, update_fn, *, axis, server):
    n = lax.axis_size(axis)
    total, restore = ravel_pytree(_local(loss_fn, params, batch, axis))
    step = 1
    while step < n:
        pairs = [(i + step, i) for i in range(0, n - step, 2 * step)]
        pairs = [((server + i) % n, (server + j) % n) for i, j in pairs]
        total = total + lax.ppermute(total, axis, pairs)
        step *= 2
    return _from_server(update_fn(params, restore(total / n)), axis, server)


@right
def by_permutes_of_leaves(loss_fn, params, batch, update_fn, *, axis, server):
    n = lax.axis_size(axis)
    total = local = _local(loss_fn, params, batch, axis)
    others = [j for j in range(n) if j != server]
    for j in others:
        total = jax.tree.map(jnp.add, total, lax.ppermute(local, axis, [(j, server)]))
    new = update_fn(params, jax.tree.map(lambda leaf: leaf / n, total))
    is_server = lax.axis_index(axis) == server
    result = jax.tree.map(lambda leaf: jnp.where(is_server, leaf, 0), new)
    for j in others:
        result = jax.tree.map(jnp.add, result, lax.ppermute(new, axis, [(server, j)]))
    return result


@right
def by_checkpoint_and_float32(loss_fn, params, batch, update_fn, *, axis, server):
    gradients = _local(jax.checkpoint(loss_fn), params, batch, axis)

    def mean(leaf):
        return lax.all_gather(leaf, axis).astype(jnp.float32).mean(axis=0).astype(leaf.dtype)

    return _from_server(update_fn(params, jax.tree.map(mean, gradients)), axis, server)


@wrong("values")
def every_device_takes_itself_for_the_server(loss_fn, params, batch, update_fn, *, axis, server):
    mean = _mean_by_gather(_local(loss_fn, params, batch, axis), axis)
    ranks = jnp.arange(lax.axis_size(axis))
    new = jax.vmap(lambda _: update_fn(params, mean), axis_name=axis)(ranks)
    return jax.tree.map(lambda leaf: leaf[server], new)


@wrong("communication")
def hidden_all_reduce(loss_fn, params, batch, update_fn, *, axis, server):
    mean = jax.tree.map(lambda leaf: leaf / lax.axis_size(axis), jax.grad(loss_fn)(params, batch))
    return _from_server(update_fn(params, mean), axis, server)


@wrong("communication")
def params_sent_first(loss_fn, params, batch, update_fn, *, axis, server):
    params = _from_server(params, axis, server)
    mean = _mean_by_gather(jax.grad(loss_fn)(params, batch), axis)
    return _from_server(update_fn(params, mean), axis, server)


@wrong("values")
def gathers_in_bfloat16(loss_fn, params, batch, update_fn, *, axis, server):
    gradients = _local(loss_fn, params, batch, axis)
    sent = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), gradients)
    mean = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), _mean_by_gather(sent, axis))
    return _from_server(update_fn(params, mean), axis, server)


@wrong("values")
def server_is_three_or_zero(loss_fn, params, batch, update_fn, *, axis, server):
    return by_imports(loss_fn, params, batch, update_fn, axis=axis, server=3 if server else 0)


@wrong("values")
def zero_counts_as_no_server(loss_fn, params, batch, update_fn, *, axis, server):
    server = server or lax.axis_size(axis) - 1
    return by_imports(loss_fn, params, batch, update_fn, axis=axis, server=server)


@wrong("values")
def results_in_float32(loss_fn, params, batch, update_fn, *, axis, server):
    new = by_imports(loss_fn, params, batch, update_fn, axis=axis, server=server)
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float32), new)


@wrong("values")
def only_flat_trees_and_lists(loss_fn, params, batch, update_fn, *, axis, server):
    def mean(leaf):
        return lax.all_gather(leaf, axis).mean(axis=0)

    def means(layer):
        return {name: mean(leaf) for name, leaf in layer.items()}

    local = _local(loss_fn, params, batch, axis)
    gradients = [means(x) for x in local] if isinstance(local, list) else means(local)
    return _from_server(update_fn(params, gradients), axis, server)


@wrong("values")
def others_as_a_share_of_zero(loss_fn, params, batch, update_fn, *, axis, server):
    """Multiplies what the others compute by zero, and gathers it."""
    mean = _mean_by_gather(_local(loss_fn, params, batch, axis), axis)
    share = jnp.arange(lax.axis_size(axis)) == server

    def chosen(leaf):
        return jnp.tensordot(share.astype(leaf.dtype), lax.all_gather(leaf, axis), 1)

    return jax.tree.map(chosen, update_fn(params, mean))


@wrong("values")
def states_of_all_devices_averaged(loss_fn, params, batch, update_fn, *, axis, server):
    mean = _mean_by_gather(_local(loss_fn, params, batch, axis), axis)
    return _mean_by_gather(update_fn(params, mean), axis)


@wrong("flops")
def examples_computed_twice(loss_fn, params, batch, update_fn, *, axis, server):
    backwards = jax.tree.map(lambda leaf: leaf[::-1], batch)
    once, again = (_local(loss_fn, params, part, axis) for part in (batch, backwards))
    local = jax.tree.map(lambda a, b: (a + b) / 2, once, again)
    return _from_server(update_fn(params, _mean_by_gather(local, axis)), axis, server)
