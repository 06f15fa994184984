"""The decoder as flax nnx modules; the parameters of its layers are stacked along a leading dim l.

Every module takes a `Split`, which says how the layers are split over devices. In the signatures, s
is the number of all positions, and t the number of those that a device has between the products,
where sequence parallelism splits them.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Float, Int

from jaxpar import nn
from jaxpar.model.adapter import Factors, columns, make_adapter, rows
from jaxpar.model.mixture import Mixture
from jaxpar.model.mlp import MLP, matrix, plus
from jaxpar.model.settings import Settings
from jaxpar.model.split import WHOLE, Split
from jaxpar.parallel.decode import rotary_by_row


class Norm(nnx.Module):
    """RMS norm or layer norm, as the settings say."""

    def __init__(self, settings: Settings):
        self.scale = nnx.Param(jnp.ones(settings.d_model))
        self.bias = nnx.Param(jnp.zeros(settings.d_model)) if settings.norm == "layer" else None
        self.epsilon = settings.norm_epsilon

    def __call__(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        """Normalizes every activation."""
        if self.bias is None:
            return nn.rms_norm(x, self.scale[...], self.epsilon)
        return nn.layer_norm(x, self.scale[...], self.bias[...], self.epsilon)


class Attention(nnx.Module):
    """Causal self-attention."""

    def __init__(self, settings: Settings, rngs: nnx.Rngs):
        d, d_kv = settings.d_model, settings.key_heads * settings.d_head
        self.query = matrix(rngs, d, d)
        self.key = matrix(rngs, d, d_kv)
        self.value = matrix(rngs, d, d_kv)
        self.output = matrix(rngs, d, d, settings.adding_layers)
        into, out = settings.biases != "none", settings.biases in ("attention", "all")
        self.query_bias = nnx.Param(jnp.zeros(d)) if into else None
        self.key_bias = nnx.Param(jnp.zeros(d_kv)) if into else None
        self.value_bias = nnx.Param(jnp.zeros(d_kv)) if into else None
        self.output_bias = nnx.Param(jnp.zeros(d)) if out else None
        rank = settings.adapter_rank
        self.query_adapter = make_adapter(rngs, d, d, rank)
        self.key_adapter = make_adapter(rngs, d, d_kv, rank)
        self.value_adapter = make_adapter(rngs, d, d_kv, rank)
        self.output_adapter = make_adapter(rngs, d, d, rank)
        self.d_head, self.kv_heads = settings.d_head, settings.key_heads
        self.rotary = settings.positions == "rotary"
        self.turns = settings.rope_theta, settings.rope_scaling

    def __call__(self, x: Float[Array, "b t d"], split: Split) -> Float[Array, "b t d"]:
        """Lets each position attend to itself and to those before it."""
        own = partial(split.own_kv_heads, kv_heads=self.kv_heads)
        weights = self.query[...], own(self.key[...]), own(self.value[...])
        products = columns(split, x, weights, self._factors(own), name="attention_input")
        biases = (
            None if bias is None else own(bias[...]) for bias in (self.key_bias, self.value_bias)
        )
        q, k, v = map(self._heads, map(plus, products, (self.query_bias, *biases)))
        if self.rotary:
            positions = split.positions(q.shape[2])
            rotary = nn.rotary if positions.ndim == 1 else rotary_by_row
            q, k = rotary(q, positions, *self.turns), rotary(k, positions, *self.turns)
        q, k, v = map(checkpoint_name, (q, k, v), ("query", "key", "value"))
        heads = split.attend(q, k, v).swapaxes(1, 2)  # [b, s, a, h]
        joined = heads.reshape(*heads.shape[:2], -1)
        output = rows(joined, self.output[...], self.output_adapter)
        return plus(split.total(output), self.output_bias)

    def _factors(self, own: Callable[[Array], Array]) -> list[Factors]:
        """Those of the adapters of query, key and value, if there are any; `own` are kv heads."""
        if not (self.query_adapter and self.key_adapter and self.value_adapter):
            return []
        of_kv = (one.factors for one in (self.key_adapter, self.value_adapter))
        return [self.query_adapter.factors, *((a, own(b)) for a, b in of_kv)]

    def _heads(self, x: Float[Array, "b s o"]) -> Float[Array, "b heads s h"]:
        return x.reshape(*x.shape[:2], -1, self.d_head).swapaxes(1, 2)


class Layer(nnx.Module):
    """Attention, then the MLP or experts: each reads the normalized stream and adds to it."""

    def __init__(self, settings: Settings, rngs: nnx.Rngs):
        self.attention_norm = Norm(settings)
        self.attention = Attention(settings, rngs)
        self.mlp_norm = Norm(settings)
        self.mlp = Mixture(settings, rngs) if settings.experts else MLP(settings, rngs)
        self.branch_scale = settings.branch_scale

    def __call__(self, x: Float[Array, "b t d"], split: Split = WHOLE) -> Float[Array, "b t d"]:
        """The residual stream after this layer."""
        with jax.named_scope("attention"):
            x = x + self._scaled(self.attention(self.attention_norm(x), split))
        x = checkpoint_name(x, "stream")
        with jax.named_scope("experts" if isinstance(self.mlp, Mixture) else "mlp"):
            return x + self._scaled(self.mlp(self.mlp_norm(x), split))

    def _scaled(self, x: Float[Array, "b t d"]) -> Float[Array, "b t d"]:
        return x if self.branch_scale == 1 else self.branch_scale * x


class Decoder(nnx.Module):
    """A decoder-only transformer (Radford et al. 2019; Touvron et al. 2023, with the defaults)."""

    def __init__(self, settings: Settings, rngs: nnx.Rngs):
        v, d = settings.vocabulary, settings.d_model
        learned = settings.positions == "learned"
        self.embedding = _table(rngs, v, d)
        self.positions = _table(rngs, settings.sequence, d) if learned else None
        stacked = nnx.vmap(lambda rngs: Layer(settings, rngs))
        self.layers = nnx.split_rngs(splits=settings.layers)(stacked)(rngs)
        self.final_norm = Norm(settings)
        self.head = None if settings.tied else _table(rngs, d, v)
        self.width = settings.width
        self.words = settings.vocabulary - settings.padding
        self.padded = settings.padding > 0

    def enter(self, tokens: Int[Array, "b s"], split: Split) -> Float[Array, "b t d"]:
        """Embeds the tokens: the input of the first layer.

        Raises:
            ValueError: there are more tokens than learned positions.
        """
        x = split.embed(self.embedding[...], tokens)
        if self.positions is None:
            return x
        t = tokens.shape[1]
        self._check_positions(t * split.contexts)
        at = split.positions(t)
        here = self.positions[...][at]
        return x + (split.own_positions(here)[None] if at.ndim == 1 else here)

    def leave(self, x: Float[Array, "b t d"], split: Split) -> Float[Array, "b s v"]:
        """The logits of the token after each position, from the result of the last layer.

        Where devices split the layers, each has the logits of its own part of the vocabulary.
        """
        head = self.embedding[...].T if self.head is None else self.head[...]
        x = self.final_norm(x)
        x = x if self.width == 1 else x / self.width
        (logits,) = split.columns(x, head, name="final")
        return split.without_padding(logits, self.words) if self.padded else logits

    def _check_positions(self, s: int) -> None:
        if self.positions is not None and s > len(self.positions[...]):
            raise ValueError(
                f"Decoder: {s} tokens in a sequence; learned positions reach "
                f"{len(self.positions[...])}; cut the sequence, or use Settings(sequence={s})"
            )


def _table(rngs: nnx.Rngs, rows: int, columns: int) -> nnx.Param[Array]:
    return nnx.Param(0.02 * jax.random.normal(rngs.params(), (rows, columns)))
