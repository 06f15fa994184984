"""Expert parallelism: the experts of a layer are split over the devices of an axis, and so is x.

Each device routes its own tokens (`jaxpar.experts.route`). What it then needs is on other devices:
either each token travels to its experts and its results travel back (`moe_token_choice`,
`expert_choice`), or all tokens come to all devices, which add up what their own experts give
(`moe_dropless`). The first sends k * c rows for each token, at a capacity of c times the average
load, and the second n - 1; so the second is for small groups of devices, or for few experts.

In the sizes of `Comm:`, e is the number of all experts.
"""

import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int

from jaxpar.experts import apply_experts, dropless, with_capacity
from jaxpar.mesh import Axis


def moe_token_choice(
    x: Float[Array, "t d"],
    weights: Float[Array, "t k"],
    experts: Int[Array, "t k"],
    w_gate: Float[Array, "e_ep d f"],
    w_up: Float[Array, "e_ep d f"],
    w_down: Float[Array, "e_ep f d"],
    *,
    capacity: int,
    axis: str,
) -> Float[Array, "t d"]:
    """Each token goes to its k experts, each of which takes `capacity` tokens of every device.

    Device i has the i-th of n equal parts of the experts, which are gated MLPs
    (`jaxpar.experts.apply_experts`). `experts` has the numbers of the experts that each of this
    device's own tokens has chosen, the first choice in column 0, and `weights` has the weights of
    their results. Of the tokens of a device that choose the same expert, first choices come before
    second ones, and then earlier tokens before later ones. What exceeds the capacity is dropped,
    and adds 0 to the result. One all-to-all brings the rows to their experts, empty ones too, and
    one brings the results back. Rows and results travel in the dtype of x, and the sum has this
    dtype, too.

    Math: y = sum_i weights_i * mlp_{experts_i}(x) over the choices i that are not dropped
    Comm:
        forward: all_to_all(axis) 2*e*capacity*x/t
        backward: all_to_all(axis) 2*e*capacity*x/t
    Memory: x
    Source: Lepikhin et al. 2020 (GShard), section 3; Fedus, Zoph and Shazeer 2021 (Switch),
        section 2.2

    Raises:
        ValueError: `capacity` is below 1.
    """
    if capacity < 1:
        raise ValueError(f"moe_token_choice: capacity is {capacity}; use 1 or more rows")
    count = len(w_gate) * lax.axis_size(axis)

    def on_their_devices(rows: Array) -> Array:
        return _on_their_devices(rows, w_gate, w_up, w_down, axis)

    return with_capacity(x, weights, experts, on_their_devices, count=count, capacity=capacity)


def expert_choice(
    x: Float[Array, "t d"],
    scores: Float[Array, "t e"],
    w_gate: Float[Array, "e_ep d f"],
    w_up: Float[Array, "e_ep d f"],
    w_down: Float[Array, "e_ep f d"],
    *,
    capacity: int,
    axis: str,
) -> Float[Array, "t d"]:
    """Each expert takes the `capacity` tokens of every device that score best for it.

    Device i has the i-th of n equal parts of the experts, and `scores` are those of this device's
    tokens for all experts. No expert has more to do than another, and a token may go to any number
    of them, or to none. Whether it does depends on the tokens after it: a decoder that generates
    token by token cannot know that.

    Math: y = sum_i scores_i * mlp_i(x) over the experts i that take the token
    Comm:
        forward: all_to_all(axis) 2*e*capacity*x/t
        backward: all_to_all(axis) 2*e*capacity*x/t
    Memory: x
    Source: Zhou et al. 2022 (Expert Choice), section 3

    Raises:
        ValueError: `capacity` is below 1, or above the number of tokens.
    """
    if not 1 <= capacity <= len(x):
        raise ValueError(
            f"expert_choice: capacity is {capacity} of {len(x)} tokens; use 1 to {len(x)}"
        )
    best, tokens = lax.top_k(scores.T, capacity)
    y = _on_their_devices(x[tokens], w_gate, w_up, w_down, axis) * best[..., None]
    return jnp.zeros_like(x, best.dtype).at[tokens].add(y).astype(x.dtype)


def moe_dropless(
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
    """Each token goes to its k experts, however many choose the same one.

    Device i has the i-th of n equal parts of the experts, which are gated MLPs. All tokens are
    gathered, with their `weights` and `experts` (as in `moe_token_choice`). Each device sorts the
    choices that fall on its own experts to the front, expert after expert, and multiplies these
    groups of rows by blocks (`grouped_matmul`, which `block` and `skip` are for). It adds up its
    experts' results, by weight, for each token of all devices. Then a reduce-scatter adds up these
    sums over the devices, and returns to each device those of its own tokens, in the dtype of x.

    Math: y = sum_i weights_i * mlp_{experts_i}(x) over the choices i
    Comm:
        forward: all_gather(axis) x+weights+experts + reduce_scatter(axis) n*x
        backward: all_gather(axis) x + reduce_scatter(axis) n*x+n*weights
    Memory: x
    Source: Gale et al. 2022 (MegaBlocks), sections 4 and 5
    """
    x, weights, experts = (
        lax.all_gather(given, axis, tiled=True) for given in (x, weights, experts)
    )
    first = lax.axis_index(axis) * len(w_gate)
    total = dropless(x, weights, experts, w_gate, w_up, w_down, first=first, block=block, skip=skip)
    return lax.psum_scatter(total, axis, tiled=True)


def load_balance_loss(
    scores: Float[Array, "t e"], experts: Int[Array, "t k"], *, axis: Axis
) -> Float[Array, ""]:
    """How unevenly the tokens of all devices choose their experts; 1 if they do so evenly.

    f_i is the fraction of all choices that fall on expert i, and is a constant for the gradient;
    p_i is the mean score of expert i. Both are taken over the tokens of all devices of `axis`. If
    each device took the loss of its own tokens, the mean of these losses would be another number,
    which asks every device for balance by itself.

    Math: loss = e * sum_i f_i * p_i
    Comm:
        forward: all_reduce(axis) 2*e
        backward: nothing
    Memory: 1
    Source: Fedus, Zoph and Shazeer 2021 (Switch), section 2.2; Qiu et al. 2025 (Demons in the
        Detail), section 3
    """
    load = _load(experts, scores.shape[1]).astype(scores.dtype) / experts.size
    load, score = lax.pmean(jnp.stack([load, scores.mean(axis=0)]), axis)
    return len(load) * (lax.stop_gradient(load) * score).sum()


def router_z_loss(logits: Float[Array, "t e"], *, axis: Axis) -> Float[Array, ""]:
    """How large the logits of a router are: large ones are rounded coarsely in 16 bits.

    Math: loss = mean over all tokens of log(sum_i exp(logits_i))**2
    Comm:
        forward: all_reduce(axis) 1
        backward: nothing
    Memory: 1
    Source: Zoph et al. 2022 (ST-MoE), section 3.3
    """
    return lax.pmean((jax.nn.logsumexp(logits, axis=1) ** 2).mean(), axis)


def update_expert_bias(
    bias: Float[Array, " e"], experts: Int[Array, "t k"], *, rate: float, axis: Axis
) -> Float[Array, " e"]:
    """Raises the bias of experts below the mean load, and lowers that of experts above it.

    The load of an expert is the number of choices that fall on it, of the tokens of all devices of
    `axis` in a step. Each bias moves by `rate`, or stays if its expert has just the mean load.
    `route` adds the bias to the scores where it chooses. So the load is balanced without a loss,
    whose gradient would disturb the model.

    Math: bias_i + rate * sign(mean load - load_i)
    Comm:
        forward: all_reduce(axis) e
        backward: no derivative
    Memory: bias
    Source: Wang et al. 2024 (Auxiliary-loss-free load balancing), algorithm 1
    """
    load = lax.psum(_load(experts, len(bias)), axis)
    return bias + rate * jnp.sign(load.mean() - load).astype(bias.dtype)


def _on_their_devices(
    rows: Float[Array, "e c d"], w_gate: Array, w_up: Array, w_down: Array, axis: str
) -> Float[Array, "e c d"]:
    """Sends each expert's rows to its device, and brings the results back."""
    arrived = lax.all_to_all(rows, axis, 0, 1, tiled=True)  # [e/n, n*c, d]
    return lax.all_to_all(apply_experts(arrived, w_gate, w_up, w_down), axis, 1, 0, tiled=True)


def _load(experts: Int[Array, "t k"], count: int) -> Int[Array, " e"]:
    """How many choices fall on each expert."""
    return jnp.bincount(experts.reshape(-1), length=count)
