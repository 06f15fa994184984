"""Experts over devices without a capacity: each token travels to its experts, however many choose.

How many rows a device has for each other one is known only when the program runs. On GPUs and TPUs
`lax.ragged_all_to_all` sends just these. CPUs do not have it: there every device sends as many rows
to each other one as it has choices, most of which are empty.

This is not what the trainer runs. On the CPUs that it simulates, empty rows make n * k rows of each
token, where `jaxpar.parallel.expert.moe_dropless` sends n - 1.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpar.experts import dropless
from jaxpar.mesh import vary_alike


def moe_exchange(
    x: Float[Array, "t d"],
    weights: Float[Array, "t k"],
    experts: Int[Array, "t k"],
    w_gate: Float[Array, "e_ep d f"],
    w_up: Float[Array, "e_ep d f"],
    w_down: Float[Array, "e_ep f d"],
    *,
    block: int,
    axis: str,
    skip: bool = False,
) -> Float[Array, "t d"]:
    """Each token goes to its k experts, however many choose the same one, and nowhere else.

    Device i has the i-th of n equal parts of the experts, which are gated MLPs. Each device sorts
    its choices, expert after expert, and sends every other device the rows that are for this one's
    experts. There they are multiplied by blocks (`jaxpar.experts.dropless`, which `block` and
    `skip` are for), and sent back. The result has the dtype of x.

    `Comm:` is that of CPUs. On GPUs and TPUs each all-to-all sends the rows that are chosen, t*k in
    all, to other devices only.

    Math: y = sum_i weights_i * mlp_{experts_i}(x) over the choices i
    Comm:
        forward: all_gather(axis) e + all_to_all(axis) 2*n*k*x
        backward: all_to_all(axis) 2*n*k*x
    Memory: x
    Source: Gale et al. 2022 (MegaBlocks), section 4; Rajbhandari et al. 2022 (DeepSpeed-MoE),
        section 5.1
    """
    t, k = experts.shape
    n, own = lax.axis_size(axis), len(w_gate)
    choices = experts.reshape(-1)
    counts = lax.all_gather(jnp.bincount(choices, length=n * own), axis)  # [n, e]
    traffic = Traffic.of(counts.reshape(n, n, own), axis)
    order = jnp.argsort(choices)
    arrived = _send(x[order // k], traffic, axis=axis)  # [n, t*k, d]
    ones = jnp.ones_like(weights, shape=(n * t * k, 1))
    own_weights = w_gate, w_up, w_down
    y = dropless(
        arrived.reshape(n * t * k, -1), ones, traffic.experts(t * k), *own_weights,
        block=block, skip=skip,
    )  # fmt: skip
    back = _send_back(y.reshape(arrived.shape), traffic, axis=axis)
    weighted = back * weights.reshape(-1)[order][:, None]
    return jnp.zeros_like(x, weighted.dtype).at[order // k].add(weighted).astype(x.dtype)


class Traffic(NamedTuple):
    """How many rows each device sends to each other one, as a device sees it.

    Attributes:
        sent: of this device to each, [n].
        received: of each to this device, for each of its experts, [n, e_ep].
        places: where each device has the rows for this one, among all that it sends, [n].
    """

    sent: Int[Array, " n"]
    received: Int[Array, "n e_ep"]
    places: Int[Array, " n"]

    @classmethod
    def of(cls, counts: Int[Array, "n n e_ep"], axis: str) -> "Traffic":
        """From the choices of each device for each expert of each device."""
        here = lax.axis_index(axis)
        sent = counts.sum(axis=2)
        before = jnp.cumsum(sent, axis=1) - sent
        return cls(sent[here], counts[:, here], before[:, here])

    def experts(self, rows: int) -> Int[Array, "rows_of_all 1"]:
        """The own expert of each row that has arrived, `rows` from each device; e_ep of none."""
        ends = jnp.cumsum(self.received, axis=1)  # [n, e_ep]
        places = jnp.arange(rows)[None, :, None]
        return (places >= ends[:, None]).sum(axis=2).reshape(-1, 1)


def _send(rows: Float[Array, "r d"], traffic: Traffic, *, axis: str) -> Float[Array, "n r d"]:
    """Sends the rows for device 0 there, then those for device 1, and so on; what has arrived.

    What came from device i is in part i, and after it are rows of 0.
    """
    way = _padded_send if _is_cpu() else _ragged_send
    return way(*vary_alike(rows, *traffic), axis=axis)


def _send_back(y: Float[Array, "n r d"], traffic: Traffic, *, axis: str) -> Float[Array, "r d"]:
    """What has become of the rows that `_send` has sent, in their order."""
    way = _padded_back if _is_cpu() else _ragged_back
    return way(*vary_alike(y, *traffic), axis=axis)


def _is_cpu() -> bool:
    """Whether the devices are CPUs, which cannot run `lax.ragged_all_to_all`."""
    return jax.devices()[0].platform == "cpu"


def _padded_send(rows: Array, sent: Array, _received: Array, _places: Array, *, axis: str) -> Array:
    """`_send` with as many rows to each device as there are rows in all."""
    first, places = jnp.cumsum(sent) - sent, jnp.arange(len(rows))[None]
    parts = rows.at[first[:, None] + places].get(mode="fill", fill_value=0)  # [n, r, d]
    parts = jnp.where((places < sent[:, None])[..., None], parts, 0)
    return lax.all_to_all(parts, axis, 0, 0, tiled=True)


def _padded_back(y: Array, sent: Array, _received: Array, _places: Array, *, axis: str) -> Array:
    """`_send_back` with empty rows, too."""
    parts = lax.all_to_all(y, axis, 0, 0, tiled=True)
    places, ends = jnp.arange(y.shape[1]), jnp.cumsum(sent)
    device = (places[:, None] >= ends[None]).sum(axis=1)
    return parts[device, places - (ends - sent)[device]]


def _ragged_send(rows: Array, sent: Array, received: Array, _places: Array, *, axis: str) -> Array:
    """`_send` with no row that is empty."""
    n, r = len(sent), len(rows)
    arrived = lax.ragged_all_to_all(
        rows,
        jnp.zeros_like(rows, shape=(n * r, *rows.shape[1:])),
        input_offsets=jnp.cumsum(sent) - sent,
        send_sizes=sent,
        output_offsets=jnp.broadcast_to(lax.axis_index(axis) * r, n).astype(sent.dtype),
        recv_sizes=received.sum(axis=1),
        axis_name=axis,
    )
    return arrived.reshape(n, r, -1)


def _ragged_back(y: Array, sent: Array, received: Array, places: Array, *, axis: str) -> Array:
    """`_send_back` with no row that is empty."""
    n, r, d = y.shape
    return lax.ragged_all_to_all(
        y.reshape(n * r, d),
        jnp.zeros_like(y, shape=(r, d)),
        input_offsets=jnp.arange(n, dtype=sent.dtype) * r,
        send_sizes=received.sum(axis=1),
        output_offsets=places,
        recv_sizes=sent,
        axis_name=axis,
    )
