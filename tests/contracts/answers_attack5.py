"""Answers to lessons 12 and 13 by people who had not written the contracts."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tests.contracts.answers_tensor_nd import gathered, square


def _hop(x, axis, by=1):
    n = lax.axis_size(axis)
    return lax.ppermute(x, axis, [(j, (j + by) % n) for j in range(n)])


def _rows(ids, v, axis):
    here = ids - lax.axis_index(axis) * v
    mine = (here >= 0) & (here < v)
    return jnp.where(mine, here, 0), mine


def _part(ids, table, axis):
    here, mine = _rows(ids, len(table), axis)
    return jnp.where(mine[..., None], table[here], 0)


def embedding_of_unsigned_rows(ids, table, *, axis):
    here = (ids - lax.axis_index(axis) * len(table)).astype(jnp.uint32)
    return lax.psum(table.at[here].get(mode="fill", fill_value=0), axis)


def _with_gradient(ids, table, axis, total, into):
    """The sum by `total`, and `into(zeros, rows, gradient of each row)` as its derivative."""
    here, mine = _rows(ids, len(table), axis)

    def backward(_, gradient):
        gradient = lax.pcast(gradient, axis, to="varying")
        return (into(jnp.zeros_like(table), jnp.where(mine, here, len(table)), gradient),)

    embed = jax.custom_vjp(lambda table: total(_part(ids, table, axis), axis))
    embed.defvjp(lambda table: (total(_part(ids, table, axis), axis), None), backward)
    return embed(table)


def _scattered_and_gathered(y, axis):
    flat = jnp.pad(y.ravel(), (0, -y.size % lax.axis_size(axis)))
    own = lax.psum_scatter(flat, axis, tiled=True)
    return lax.all_gather(own, axis, tiled=True, to="invarying")[: y.size].reshape(y.shape)


def embedding_with_own_gradient(ids, table, *, axis):
    def into(zeros, rows, gradient):
        return zeros.at[rows].add(gradient, mode="drop")

    return _with_gradient(ids, table, axis, _scattered_and_gathered, into)


def embedding_gradient_of_last_use(ids, table, *, axis):
    def into(zeros, rows, gradient):
        return zeros.at[rows].set(gradient, mode="drop")

    return _with_gradient(ids, table, axis, lax.psum, into)


def embedding_of_travelling_table(ids, table, *, axis):
    n, i, v = lax.axis_size(axis), lax.axis_index(axis), len(table)
    y = _part(ids, table, axis)
    for k in range(1, n):
        table = _hop(table, axis)
        here = ids - (i - k) % n * v
        mine = (here >= 0) & (here < v)
        y += jnp.where(mine[..., None], table[jnp.where(mine, here, 0)], 0)
    return y


def _label(logits, labels, axis):
    here, mine = _rows(labels, logits.shape[-1], axis)
    return jnp.where(mine, jnp.take_along_axis(logits, here[..., None], axis=-1)[..., 0], 0)


def _loss_less(logits, labels, shift, axis):
    total = lax.psum(jnp.exp(logits - shift[..., None]).sum(axis=-1), axis)
    return jnp.log(total) + shift - lax.psum(_label(logits, labels, axis), axis)


def loss_token_by_token(logits_shard, labels, *, axis):
    def one(logits, label):
        largest = lax.pmax(lax.stop_gradient(logits.max()), axis)
        return _loss_less(logits, label, largest, axis)

    return jax.vmap(jax.vmap(one))(logits_shard.astype(jnp.float32), labels)


def loss_computed_again(logits_shard, labels, *, axis):
    largest = lax.pmax(lax.stop_gradient(logits_shard).max(axis=-1), axis).astype(jnp.float32)

    @jax.checkpoint
    def sums(logits):
        shifted = logits.astype(jnp.float32) - largest[..., None]
        return jnp.exp(shifted).sum(axis=-1), _label(shifted, labels, axis)

    total, label = lax.psum(sums(logits_shard), axis)
    return jnp.log(total) - label


def loss_less_maximum_of_device_0(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    first = jnp.where(lax.axis_index(axis) == 0, lax.stop_gradient(logits.max(axis=-1)), 0)
    return _loss_less(logits, labels, lax.psum(first, axis), axis)


def loss_less_the_labels_logit(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    label = lax.psum(_label(lax.stop_gradient(logits), labels, axis), axis)
    return _loss_less(logits, labels, label, axis)


def loss_of_the_labels_chance(logits_shard, labels, *, axis):
    logits = logits_shard.astype(jnp.float32)
    largest = lax.pmax(lax.stop_gradient(logits.max(axis=-1)), axis)
    exps = jnp.exp(logits - largest[..., None])
    total = lax.psum(exps.sum(axis=-1), axis)
    return jnp.log(total) - jnp.log(lax.psum(_label(exps, labels, axis), axis))


def mlp_untiled_by_blocks(x, w_up, w_down, *, axis):
    """The gathered dim of devices is one more dim of the batch, and is scattered again."""
    return lax.psum_scatter(jax.nn.gelu(lax.all_gather(x, axis) @ w_up) @ w_down, axis)


def mlp_with_own_derivative(x, w_up, w_down, *, axis):
    def gather(x):
        return lax.all_gather(x, axis, axis=1, tiled=True)

    def scatter(y):
        return lax.psum_scatter(y, axis, scatter_dimension=1, tiled=True)

    def backward(kept, c):
        x, w_up, w_down = kept
        whole, c = gather(x), gather(c)
        hidden, pull = jax.vjp(jax.nn.gelu, whole @ w_up)
        (of_up,) = pull(c @ w_down.T)
        of_w_up = jnp.einsum("btd,btf->df", whole, of_up)
        return scatter(of_up @ w_up.T), of_w_up, jnp.einsum("btf,btd->fd", hidden, c)

    def forward(x, w_up, w_down):
        return scatter(jax.nn.gelu(gather(x) @ w_up) @ w_down)

    mlp = jax.custom_vjp(forward)
    mlp.defvjp(lambda *args: (forward(*args), args), backward)
    return mlp(x, w_up, w_down)


def mlp_of_travelling_weights(x, w_up, w_down, *, axis):
    y = jax.nn.gelu(x @ w_up) @ w_down
    for _ in range(lax.axis_size(axis) - 1):
        w_up, w_down = _hop(w_up, axis), _hop(w_down, axis)
        y += jax.nn.gelu(x @ w_up) @ w_down
    return y


def mlp_of_rows_placed_by_n(x, w_up, w_down, *, axis):
    """Right where each device has n positions."""
    n, i = lax.axis_size(axis), lax.axis_index(axis)
    whole = jnp.concatenate([x] * n, axis=1)
    for k in range(1, n):
        x = _hop(x, axis)
        whole = lax.dynamic_update_slice_in_dim(whole, x, (i - k) % n * n, 1)
    y = jax.nn.gelu(whole @ w_up) @ w_down
    return lax.psum_scatter(y, axis, scatter_dimension=1, tiled=True)


def ring_of_columns(x, w, *, axis):
    """Everything transposed, and the blocks turned round."""
    x, blocks = x.T, [(w.T @ x.T).T]
    for _ in range(lax.axis_size(axis) - 1):
        x = _hop(x, axis)
        blocks.append((w.T @ x).T)
    return jnp.concatenate(list(jnp.roll(jnp.stack(blocks)[::-1], lax.axis_index(axis) + 1, 0)))


def ring_with_rings_backward(x, w, *, axis):
    n, i, t = lax.axis_size(axis), lax.axis_index(axis), len(x)

    def forward(x, w):
        blocks = [x @ w]
        for _ in range(n - 1):
            x = _hop(x, axis)
            blocks.append(x @ w)
        return jnp.concatenate(list(jnp.stack(blocks)[(i - jnp.arange(n)) % n]))

    def backward(kept, c):
        x, w = kept
        rows = [lax.dynamic_slice_in_dim(c, (i - k) % n * t, t) for k in range(n)]
        of_w, of_x = x.T @ rows[0], rows[1 % n] @ w.T
        for k in range(1, n):
            x = _hop(x, axis)
            of_w += x.T @ rows[k]
            of_x = _hop(of_x, axis) + rows[(k + 1) % n] @ w.T
        return of_x, of_w

    product = jax.custom_vjp(forward)
    product.defvjp(lambda x, w: (forward(x, w), (x, w)), backward)
    return product(x, w)


def ring_by_doubling(x, w, *, axis):
    n, i, t, k = lax.axis_size(axis), lax.axis_index(axis), len(x), 1
    while k < n:
        x, k = jnp.concatenate([x, _hop(x, axis, k)[: (n - k) * t]]), 2 * k
    blocks = (x @ w).reshape(n, t, -1)
    return jnp.concatenate(list(blocks[(i - jnp.arange(n)) % n]))


def summa_with_x_travelling(x, w, *, rows, cols):
    q, j, size = square(rows, cols), lax.axis_index(cols), x.shape[1]
    column = gathered(w, rows, 0)
    y = x @ lax.dynamic_slice_in_dim(column, j * size, size)
    for k in range(1, q):
        x = _hop(x, cols)
        y += x @ lax.dynamic_slice_in_dim(column, (j - k) % q * size, size)
    return y


def summa_by_cannon_in_order_of_names(x, w, *, rows, cols):
    """Right where `rows` comes before `cols` in the mesh; since 0.12 JAX refuses the others."""
    q = square(rows, cols)
    places = [(i, j, (i + j) % q) for i in range(q) for j in range(q)]
    x = lax.ppermute(x, (rows, cols), [(i * q + inner, i * q + j) for i, j, inner in places])
    w = lax.ppermute(w, (rows, cols), [(inner * q + j, i * q + j) for i, j, inner in places])
    y = x @ w
    for _ in range(q - 1):
        x, w = _hop(x, cols, -1), _hop(w, rows, -1)
        y += x @ w
    return y


def deep_by_adding_zero(x, w, *, rows, cols, depth):
    square(rows, cols)
    return gathered(x, cols, 1) @ gathered(w + 0 * lax.axis_index(depth), rows, 0)


def deep_with_w_shared(x, w, *, rows, cols, depth):
    """FSDP over depth: the forward gather is more than needed, for w is there already."""
    size = w.shape[1] // lax.axis_size(depth)
    own = lax.pcast(w, depth, to="varying")
    own = lax.dynamic_slice_in_dim(own, lax.axis_index(depth) * size, size, 1)
    square(rows, cols)
    return gathered(x, cols, 1) @ gathered(gathered(own, depth, 1), rows, 0)


def cube_with_w_travelling(x, w, *, x_axis, y_axis, z_axis):
    x, n = gathered(x, y_axis, 0), lax.axis_size(x_axis)
    blocks = [lax.psum_scatter(x @ w, z_axis, tiled=True)]
    for _ in range(n - 1):
        w = _hop(w, x_axis)
        blocks.append(lax.psum_scatter(x @ w, z_axis, tiled=True))
    in_order = jnp.stack(blocks)[(lax.axis_index(x_axis) - jnp.arange(n)) % n]
    return jnp.concatenate(list(in_order), axis=1)


def cube_of_mirrored_rows(x, w, *, x_axis, y_axis, z_axis):
    """Right where `y_axis` has two devices or one."""
    n, blocks = lax.axis_size(y_axis), [x]
    for _ in range(n - 1):
        blocks.append(_hop(blocks[-1], y_axis))
    mirrored = jnp.stack(blocks)[(lax.axis_index(y_axis) + jnp.arange(n)) % n]
    products = mirrored.reshape(-1, x.shape[1]) @ gathered(w, x_axis, 1)
    return lax.psum_scatter(products, z_axis, tiled=True)


RIGHT = {
    "vocab_parallel_embedding": (embedding_of_unsigned_rows, embedding_with_own_gradient),
    "vocab_parallel_cross_entropy": (loss_token_by_token, loss_computed_again),
    "sequence_parallel_mlp": (mlp_untiled_by_blocks, mlp_with_own_derivative),
    "ring_matmul": (ring_of_columns, ring_with_rings_backward),
    "summa_matmul": (summa_with_x_travelling,),
    "matmul_2_5d": (deep_by_adding_zero,),
    "matmul_3d": (cube_with_w_travelling,),
}
WRONG = {
    "vocab_parallel_embedding": {
        embedding_gradient_of_last_use: "gradient",
        embedding_of_travelling_table: "communication",
    },
    "vocab_parallel_cross_entropy": {
        loss_less_maximum_of_device_0: "values",
        loss_less_the_labels_logit: "values",
        loss_of_the_labels_chance: "values",
    },
    "sequence_parallel_mlp": {
        mlp_of_rows_placed_by_n: "values",
        mlp_of_travelling_weights: "communication",
    },
    "ring_matmul": {ring_by_doubling: "communication"},
    "summa_matmul": {summa_by_cannon_in_order_of_names: "values"},
    "matmul_2_5d": {deep_with_w_shared: "communication"},
    "matmul_3d": {cube_of_mirrored_rows: "values"},
}
