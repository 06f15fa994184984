"""What a decoder is made of, in sizes, and how many parameters that is."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """Parameters of one kind, in one layer or outside of the layers.

    Attributes:
        name: as in "mlp".
        count: how many there are.
        split: what a device holds of them: "tp" 1/tp, "kv" 1/tp but one head at least, "ep" 1/ep
            of the experts and 1/tp of each, "none" all.
    """

    name: str
    count: int
    split: Literal["tp", "kv", "ep", "none"]


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the MLP.

    Attributes:
        count: routed experts in a layer.
        per_token: how many of them a token goes to.
        ffn: the size inside an expert.
        shared: the size inside the expert that every token goes to; 0 if there is none.
        dense_layers: the first layers, which have an MLP instead.
        router_bias: whether the router has a bias for each expert.
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0
    router_bias: bool = False


@dataclass(frozen=True)
class Latent:
    """Attention whose keys and values are made of one small vector per token (MLA).

    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1

    Attributes:
        query_rank: the size of the vector that queries are made of; 0: made of x.
        rank: the size of the vector that keys and values are made of.
        rotary: the size of the part of a key that is turned, which all heads share.
        value: the size of a head's value; `head_size` is that of a key without its turned part.
    """

    query_rank: int
    rank: int
    rotary: int
    value: int


@dataclass(frozen=True)
class Architecture:
    """The sizes and parts of a decoder.

    Attributes:
        name: what people call it.
        layers: how many layers.
        hidden: the size of an activation.
        heads: query heads.
        vocab: tokens, padded ones with them, if the tables have rows for these.
        kv_heads: heads of keys and values; None: as many as query heads.
        head_size: None: hidden / heads.
        ffn: the size inside the MLP; None: 4 hidden.
        gated: the MLP has three matrices, not two.
        tied: the head is the embedding, transposed.
        positions: rows of a table of learned positions; 0: there is none.
        norm: "rms", of one vector; "layer", of two; "plain", of none.
        biases: matrices with a bias: "none"; "qkv"; "all", but for the head.
        query_key_norm: queries and keys have a norm of one vector of the head's size.
        embedding_norm: a norm follows the embedding.
        norms: of a layer: 2; 1 where attention and MLP share one; 4 where each has
            one before and one after.
        dropout: it is trained with dropout, whose masks are kept.
        experts: a mixture of experts in place of the MLP, or None.
        latent: attention of latent vectors, or None.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    vocab: int
    kv_heads: int | None = None
    head_size: int | None = None
    ffn: int | None = None
    gated: bool = False
    tied: bool = False
    positions: int = 0
    norm: Literal["rms", "layer", "plain"] = "rms"
    biases: Literal["none", "qkv", "all"] = "none"
    query_key_norm: bool = False
    embedding_norm: bool = False
    norms: int = 2
    dropout: bool = False
    experts: Experts | None = None
    latent: Latent | None = None

    @property
    def key_heads(self) -> int:
        """How many heads keys and values have."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def d_head(self) -> int:
        """The size of a head."""
        return self.hidden // self.heads if self.head_size is None else self.head_size

    @property
    def d_ffn(self) -> int:
        """The size inside the MLP."""
        return 4 * self.hidden if self.ffn is None else self.ffn

    @property
    def expert_layers(self) -> int:
        """How many layers have experts."""
        return self.layers - self.experts.dense_layers if self.experts else 0

    @property
    def dense_layers(self) -> int:
        """How many layers have an MLP."""
        return self.layers - self.expert_layers

    def layer_parts(self, *, experts: bool) -> tuple[Part, ...]:
        """What a layer is made of, with a mixture of experts or with an MLP."""
        raise NotImplementedError

    @property
    def outer_parts(self) -> tuple[Part, ...]:
        """What is outside of the layers: the tables, learned positions, norms."""
        raise NotImplementedError

    @property
    def parameters(self) -> int:
        """How many parameters there are, exactly."""
        raise NotImplementedError

    @property
    def active_parameters(self) -> int:
        """How many a token meets: of the experts those it goes to."""
        raise NotImplementedError
