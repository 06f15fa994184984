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
