"""A mixture of experts in place of a layer's MLP: a router, experts, and what balances their load.

What balances them goes beside the loss, so that no layer has to return it: `attach` gives the
auxiliary losses their gradient, and gives the bias of each expert, `load_bias`, its load in place
of a gradient: over the mean load, minus 1. The load of all tokens is then found as every gradient
is: over microbatches, stages and devices. With a capacity, so is the share of choices that are
dropped, in place of the gradient of `dropped`, a number that stays 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float, Int

from jaxpar.cost.experts import DROPPED, LOAD_BIAS, expert_capacity
from jaxpar.experts import Routing, apply_experts, dropless, route, usual_block, with_capacity
from jaxpar.mesh import vary_alike
from jaxpar.model.mlp import MLP, matrix
from jaxpar.model.settings import Settings
from jaxpar.model.split import Split
from jaxpar.parallel.expert import (
    load_balance_loss,
    moe_dropless,
    moe_token_choice,
    router_z_loss,
)

# Fedus, Zoph and Shazeer 2021, section 2.2; Zoph et al. 2022, section 3.3.
BALANCE_WEIGHT, Z_WEIGHT = 1e-2, 1e-3


def is_load(path: tuple[Any, ...]) -> bool:
    """Whether a path in the parameters, or in their gradients, leads to loads of experts."""
    return jax.tree_util.keystr(path[-1:], simple=True) == LOAD_BIAS


def is_dropped(path: tuple[Any, ...]) -> bool:
    """Whether such a path leads to shares of choices that are dropped."""
    return jax.tree_util.keystr(path[-1:], simple=True) == DROPPED


class Experts(nnx.Module):
    """Gated MLPs, stacked along dim e."""

    def __init__(self, settings: Settings, rngs: nnx.Rngs):
        d, f, e = settings.d_model, settings.d_hidden, settings.experts
        self.gate = matrix(rngs, d, f, count=e)
        self.up = matrix(rngs, d, f, count=e)
        self.down = matrix(rngs, f, d, settings.adding_layers, count=e)
        self.count, self.capacity_factor = e, settings.capacity_factor

    def __call__(
        self,
        x: Float[Array, "t d"],
        weights: Float[Array, "t k"],
        experts: Int[Array, "t k"],
        axis: str | None,
    ) -> Float[Array, "t d"]:
        """Sends each token to its experts, which the devices of the axis split, and back."""
        own = self.gate[...], self.up[...], self.down[...]
        capacity = self.capacity(experts)
        if capacity is not None:
            if axis is not None:
                return moe_token_choice(x, weights, experts, *own, capacity=capacity, axis=axis)
            return with_capacity(
                x,
                weights,
                experts,
                lambda rows: apply_experts(rows, *own),
                count=self.count,
                capacity=capacity,
            )
        block = usual_block(experts.size, self.count)
        if axis is None:
            return dropless(x, weights, experts, *own, block=block, skip=True)
        return moe_dropless(x, weights, experts, *own, block=block, axis=axis, skip=True)

    def capacity(self, experts: Int[Array, "t k"]) -> int | None:
        """The rows of each expert for these choices; None: as many as choose it."""
        if self.capacity_factor is None:
            return None
        t, k = experts.shape
        sizes = {"experts": self.count, "top_k": k, "capacity_factor": self.capacity_factor}
        return expert_capacity(t, **sizes)


class Mixture(nnx.Module):
    """A router, the experts that it chooses from, and those that every token goes to."""

    def __init__(self, settings: Settings, rngs: nnx.Rngs):
        self.router = matrix(rngs, settings.d_model, settings.experts)
        self.load_bias = nnx.Param(jnp.zeros(settings.experts))
        self.experts = Experts(settings, rngs)
        self.dropped = None if settings.capacity_factor is None else nnx.Param(jnp.zeros(()))
        shared = settings.shared_experts
        self.shared = MLP(settings, rngs, copies=shared) if shared else None
        self.top_k, self.by_bias = settings.top_k, settings.balance == "bias"
        self.by_loss = settings.balance == "loss"

    def __call__(self, x: Float[Array, "b t d"], split: Split) -> Float[Array, "b t d"]:
        """Adds up, for every activation, what its experts give."""
        whole = split.whole(checkpoint_name(x, "mlp_input"))
        tokens = whole.reshape(-1, whole.shape[2])
        bias, score = (self.load_bias[...], "sigmoid") if self.by_bias else (None, "softmax")
        routing = route(tokens, self.router[...], bias, top_k=self.top_k, score=score)
        tokens, weights, chosen = map(split.enter, (tokens, routing.weights, routing.experts))
        y = self.experts(tokens, weights, chosen, split.experts)
        if self.shared is not None:
            y = y + self.shared.part(tokens)
        return self._attached(split.total(y.reshape(whole.shape)), routing, split)

    def _attached(self, y: Array, routing: Routing, split: Split) -> Array:
        """The same y, in whose backward pass the loads and the auxiliary losses get gradients."""
        axes, count = split.routes, len(self.load_bias[...])
        parts = lax.axis_size(axes) * split.added
        tokens, choices = jnp.bincount(routing.experts.ravel(), length=count), routing.experts.size
        bias = self.load_bias[...]
        y = attach(y, bias, ((count * tokens / choices - 1) / parts).astype(bias.dtype))
        capacity = self.experts.capacity(routing.experts)
        if self.dropped is not None and capacity is not None:
            place = self.dropped[...]
            dropped = jnp.maximum(tokens - capacity, 0).sum() / choices
            y = attach(y, place, (dropped / parts).astype(place.dtype))
        if not self.by_loss:
            return y
        loss = BALANCE_WEIGHT * load_balance_loss(routing.scores, routing.experts, axis=axes)
        loss = loss + Z_WEIGHT * router_z_loss(routing.logits, axis=axes)
        return attach(y, loss, jnp.ones_like(loss) / split.added)


def attach(y: Array, x: Array, gradient: Array) -> Array:
    """Returns y; in the backward pass, x gets this gradient, whatever that of y is.

    Source: Shoeybi et al. 2019 (Megatron-LM), transformer/moe/moe_utils.py, MoEAuxLossAutoScaler
    """
    return _attach(y, *vary_alike(x, gradient))


@jax.custom_vjp
def _attach(y: Array, _x: Array, _gradient: Array) -> Array:
    return y


def _forward(y: Array, _x: Array, gradient: Array) -> tuple[Array, Array]:
    return y, gradient


def _backward(gradient: Array, dy: Array) -> tuple[Array, Array, None]:
    return dy, gradient, None


_attach.defvjp(_forward, _backward)
