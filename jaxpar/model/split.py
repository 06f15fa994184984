"""How devices split the layers of a decoder: by heads and hidden size, and by positions."""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import PartitionSpec
from jax.tree_util import tree_map_with_path
from jaxtyping import Float, Int, PyTree

from jaxpar import nn
from jaxpar.cost.adapters import BLOCK
from jaxpar.layout import Layout
from jaxpar.mesh import divide, vary
from jaxpar.model.attention import CONTEXTS, Cached, on_one_device, over_devices
from jaxpar.model.leaf_names import split_as
from jaxpar.model.settings import Settings
from jaxpar.parallel import context, distill, tensor, vocabulary
from jaxpar.parallel.sequence import (
    GATHERED,
    Keep,
    gather_sequence,
    gathered_linear,
    scatter_sequence,
)


@dataclass(frozen=True)
class Split:
    """How the devices of an axis split every layer.

    Attributes:
        axis: the mesh axis; None if each device computes whole layers.
        sequence: whether each device has only its own positions between the products.
        context: the mesh axis that splits the positions everywhere; None if it is not split.
        by: how the devices of that axis attend to each other's positions, one of `CONTEXT_KINDS`.
        attention: without such an axis, "flash", "plain", or None for what is faster.
        keep: with `sequence`, whether gathered positions are kept for the backward pass
            ("gathered"), or only the device's own, which are then gathered again ("shard").
        experts: the mesh axis that splits the experts; None if each device has all of them.
        routes: the mesh axes whose devices have other tokens to route, or a part of their gradient.
        added: how many microbatches there are whose gradients are added up, and not averaged.
        documents: the numbers of the documents of all positions, [b, s], within which these attend;
            None: attention crosses from a document to the next.
        cached: how new tokens attend in inference; None: all tokens of a sequence are there.
    """

    axis: str | None = None
    sequence: bool = False
    keep: Keep = "shard"
    context: str | None = None
    by: str = "zigzag"
    attention: str | None = None
    experts: str | None = None
    routes: tuple[str, ...] = ()
    added: int = 1
    documents: Array | None = None
    cached: Cached | None = None

    @classmethod
    def of(cls, layout: Layout, attention: str | None = None) -> "Split":
        """How a layout splits layers over tp, positions over cp, and experts over ep."""
        whole = cls(
            context="cp" if layout.cp > 1 else None,
            by=layout.context,
            attention=attention,
            experts="ep" if layout.ep > 1 else None,
            routes=layout.token_axes,
        )
        if layout.tp == 1:
            return whole
        sequence = layout.sequence_parallel
        return replace(
            whole,
            axis="tp",
            sequence=sequence,
            # Recomputing products gathers their positions anyway, and once is enough.
            keep="gathered" if layout.recomputes_products else "shard",
            # With all positions, each device has a part of the gradient of what it routes alike.
            routes=(*whole.routes, "tp") if sequence else whole.routes,
        )

    def columns(
        self, x: Float[Array, "b t d"], *weights: Float[Array, "d _"], name: str
    ) -> tuple[Float[Array, "b s _"], ...]:
        """Multiplies x by this device's columns of each weight.

        Policies of `jax.checkpoint`, which choose what is kept, know x by this `name`.
        """
        if not (self.sequence and self.keep == "gathered"):
            x = checkpoint_name(x, name)
        if self.axis is None or self.cached:  # to join weights copies them, in each decode step
            return tuple(nn.matmul(self.enter(x), w) for w in weights)
        if self.sequence:
            return gathered_linear(x, *weights, axis=self.axis, keep=self.keep)
        return nn.matmuls(tensor.enter(x, axis=self.axis), *weights)

    def whole(self, x: Float[Array, "b t d"]) -> Float[Array, "b s d"]:
        """All positions of x, those of other devices of the axis too."""
        if self.axis is None or not self.sequence:
            return x
        return checkpoint_name(gather_sequence(x, axis=self.axis), GATHERED)

    def enter(self, x: Array) -> Array:
        """Casts x, which is equal on all devices of the axis, for what these do with it each."""
        return x if self.axis is None else vary(x, (self.axis,))

    def total(self, partial: Float[Array, "b s d"]) -> Float[Array, "b t d"]:
        """Sums the partial results of all devices; with `sequence`, each gets its own positions."""
        if self.axis is None:
            return partial
        if self.sequence:
            return scatter_sequence(partial, axis=self.axis)
        return lax.psum(partial, self.axis)

    def embed(self, table: Float[Array, "v d"], tokens: Int[Array, "b s"]) -> Array:
        """The row of each token, [b, t, d]."""
        if self.axis is None:
            return nn.embed(table, tokens)
        return self.total(vocabulary.partial_embedding(tokens, table, axis=self.axis))

    def cross_entropy(
        self, logits: Float[Array, "b s v"], targets: Int[Array, "b s"]
    ) -> Float[Array, "b s"]:
        """The loss of each token."""
        with jax.named_scope("cross_entropy"):
            return self._cross_entropy(logits, targets)

    def _cross_entropy(self, logits: Array, targets: Array) -> Array:
        if self.axis is None:
            return nn.cross_entropy(logits, targets)
        return vocabulary.vocab_parallel_cross_entropy(logits, targets, axis=self.axis)

    def distillation_loss(
        self, student: Float[Array, "b s v"], teacher: Float[Array, "b s v"], temperature: float
    ) -> Float[Array, "b s"]:
        """How far the student is from the teacher at each token."""
        with jax.named_scope("distillation_loss"):
            if self.axis is None:
                return nn.distillation_loss(student, teacher, temperature=temperature)
            return distill.vocab_parallel_distillation_loss(
                student, teacher, axis=self.axis, temperature=temperature
            )

    def own_positions(self, x: Float[Array, "s d"]) -> Float[Array, "t d"]:
        """The rows of the positions that this device has between the products."""
        if self.axis is None or not self.sequence:
            return x
        n = lax.axis_size(self.axis)
        t = divide("Split", "t", len(x), self.axis, n)
        return lax.dynamic_slice_in_dim(x, lax.axis_index(self.axis) * t, t)

    def own_tokens(self, tokens: Int[Array, "b s"]) -> Int[Array, "b t"]:
        """The tokens at this device's positions.

        Labels are shifted before: the token after the last one of a device is another device's.
        """
        t = divide("Split", "t", tokens.shape[1], self.context, self.contexts)
        return tokens if self.context is None else tokens[:, self.positions(t)]

    @property
    def contexts(self) -> int:
        """The number of parts that all positions are split into."""
        return 1 if self.context is None else lax.axis_size(self.context)

    def positions(self, t: int) -> Int[Array, "*b t"]:
        """The t positions of this device's context, or those of each row in inference."""
        if self.cached:
            return self.cached.positions
        if self.context is None:
            return jnp.arange(t)
        return context.positions(CONTEXTS[self.by].layout, t, axis=self.context)

    def attend(
        self, q: Float[Array, "b a t h"], k: Float[Array, "b k t h"], v: Float[Array, "b k t h"]
    ) -> Float[Array, "b a t h"]:
        """Causal attention of this device's positions to those of all devices, or in a cache."""
        if self.cached:
            return self.cached.attend(q, k, v)
        if self.context is None:
            return on_one_device(self.attention)(q, k, v, self.documents)
        return over_devices(self.by, self.context)(q, k, v, self.documents)

    def within_documents(self, tokens: Int[Array, "b s"], end: int | None) -> "Split":
        """This split with attention within the documents of all these tokens.

        `end` is the token that ends a document, and belongs to it; None: they are not told apart.
        """
        if end is None:
            return self
        ends = (tokens == end).astype(tokens.dtype)
        return replace(self, documents=jnp.cumsum(ends, axis=1) - ends)

    def own_kv_heads(self, w: Float[Array, "*d o"], kv_heads: int) -> Float[Array, "*d p"]:
        """The columns of this device's kv heads, of a matrix or a bias."""
        if self.axis is None:
            return w
        if w.ndim == 1:
            return tensor.own_kv_heads(w[None], kv_heads, axis=self.axis)[0]
        return tensor.own_kv_heads(w, kv_heads, axis=self.axis)

    def without_padding(self, logits: Float[Array, "b s v"], words: int) -> Array:
        """The logits, where tokens from `words` on, which only pad, have a probability of 0."""
        v = logits.shape[-1]
        first = 0 if self.axis is None else v * lax.axis_index(self.axis)
        real = nn.expand_to(logits, first + jnp.arange(v) < words)
        return jnp.where(real, logits, jnp.finfo(logits.dtype).min)

    def own_copies(self, params: PyTree[Array]) -> PyTree[Array]:
        """The layers' parameters, cast so that the gradients of replicated ones are summed once.

        Where devices have different positions, each computes a part of these gradients. Without
        the cast, JAX would sum them in each layer.
        """
        if self.axis is None or not self.sequence:
            return params
        return jax.tree.map(partial(vary, axes=(self.axis,)), params)


WHOLE = Split()


def split_specs(
    settings: Settings, tree: PyTree[Any], *, axis: str, n: int
) -> PyTree[PartitionSpec]:
    """The partition specs of a decoder whose layers, tables and head are split over n devices.

    `tree` has the names of the parameters: it is the parameters, their gradients, or the state of
    an optimizer.
    """
    special = {"embedding": PartitionSpec(axis), "head": PartitionSpec(None, axis)}
    if settings.key_heads < n:
        special |= {"key": PartitionSpec(), "value": PartitionSpec()}

    def spec_of(path: tuple[Any, ...], leaf: Any) -> PartitionSpec:
        name = split_as(path)
        if name in special:
            return special[name]
        return tensor.megatron_specs({name: leaf}, axis=axis)[name]

    return tree_map_with_path(spec_of, tree)


def used_specs(settings: Settings, layout: Layout, params: PyTree[Any]) -> PyTree[PartitionSpec]:
    """The partition specs of a decoder's parameters in use: split over pp, ep and tp."""
    specs = jax.tree.map(lambda _: PartitionSpec(), params)
    if layout.tp > 1:
        specs = split_specs(settings, params, axis="tp", n=layout.tp)
    if layout.ep > 1:
        specs = tree_map_with_path(_over_experts, specs)
    if layout.pp > 1:
        on_stages = jax.tree.map(lambda spec: PartitionSpec("pp", *spec[1:]), specs["layers"])
        specs = specs | {"layers": on_stages}
    return specs


def _over_experts(path: tuple[Any, ...], spec: PartitionSpec) -> PartitionSpec:
    """The spec of a leaf, of which ep splits dim 1 if it is of experts: these are [l, e, ...]."""
    names = [getattr(key, "key", None) for key in path]
    return PartitionSpec(None, "ep", *spec[2:]) if "experts" in names else spec


def check_split(settings: Settings, layout: Layout) -> None:
    """Checks that the axes of a layout divide what they split of a decoder.

    That is for tp the heads, the MLP and the vocabulary, for tp and cp the positions, and for ep
    the experts.
    """
    sizes = {}
    if layout.ep > 1:
        _check_experts(settings, layout)
    if layout.tp > 1:
        tensor.check_heads("Split: heads", settings.heads, settings.key_heads, "tp", layout.tp)
        sizes = {"f": settings.d_hidden, "v": settings.vocabulary}
    for dim, size in sizes.items():
        divide("Split", dim, size, "tp", layout.tp)
    over = {"cp": layout.cp} | ({"tp": layout.tp} if layout.sequence_parallel else {})
    axes = tuple(axis for axis, n in over.items() if n > 1)
    divide("Split", "t", settings.sequence, axes, math.prod(over.values()))
    if layout.cp > 1:
        _check_context(settings, layout)
    if settings.document_end is not None:
        _check_documents(layout)


def check_blocks(where: str, settings: Settings, tp: int) -> None:
    """Checks that the rows that a device has of each matrix in few bits are of full blocks.

    Raises:
        ValueError: they are not; the message begins with `where`.
    """
    kv_parts = tp if settings.key_heads >= tp else 1
    for dim, size, parts in (
        ("d", settings.d_model, tp),
        ("f", settings.d_hidden, tp),
        ("kv", settings.key_heads * settings.d_head, kv_parts),
    ):
        local = divide(where, dim, size, "tp", parts)
        if local % BLOCK:
            raise ValueError(
                f"{where}: of the {size} columns of a matrix a device has {local} (tp={tp}), and a "
                f"block has {BLOCK}; use a smaller tp, or sizes that are multiples of {BLOCK}"
            )


def _check_documents(layout: Layout) -> None:
    """Checks that attention can be kept within documents."""
    if layout.pp > 1:
        raise ValueError(
            f"Split: attention within documents over mesh axis pp (size {layout.pp}): a stage "
            "receives activations, and not the tokens that end documents; leave axis pp, or the "
            "document masks, out"
        )
    if layout.cp > 1 and not CONTEXTS[layout.context].takes_documents:
        raise ValueError(
            f"Split: attention within documents over mesh axis cp (size {layout.cp}) with context "
            f"{layout.context}: only where all keys are gathered is their document known; "
            "use --context gather"
        )


def _check_context(settings: Settings, layout: Layout) -> None:
    """Checks that cp divides chunks of a zigzag, or the heads that Ulysses exchanges."""
    if layout.context == "ulysses":
        heads, kv_heads = (-(-heads // layout.tp) for heads in (settings.heads, settings.key_heads))
        context.check_exchange("Split", heads, kv_heads, "cp", layout.cp)
    elif CONTEXTS[layout.context].layout == "zigzag" and settings.sequence % (2 * layout.cp):
        chunks = 2 * layout.cp
        raise ValueError(
            f"Split: dim t (size {settings.sequence}) over mesh axis cp (size {layout.cp}): a "
            f"zigzag has two chunks on each device, so {chunks} must divide t; use a sequence of "
            f"{-(-settings.sequence // chunks) * chunks}, or --context ring"
        )


def _check_experts(settings: Settings, layout: Layout) -> None:
    """Checks that there are experts, and that ep divides them."""
    if not settings.experts:
        raise ValueError(
            f"Split: mesh axis ep (size {layout.ep}) without experts: its devices split the "
            "experts of each layer; use --experts N, or axis dp"
        )
    divide("Split", "e", settings.experts, "ep", layout.ep)
