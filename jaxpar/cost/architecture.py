"""The sizes of a decoder, and how many parameters each of its parts has."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Part:
    """Parameters of one kind, in one layer or outside of the layers.

    Attributes:
        name: the name of the part, such as "mlp".
        count: the number of parameters.
        split: how many of them a device holds: "tp", 1/tp; "kv", 1/tp, but at least one head;
            "ep", 1/ep of the experts and 1/tp of each; "none", all.
    """

    name: str
    count: int
    split: Literal["tp", "kv", "ep", "none"]


@dataclass(frozen=True)
class Experts:
    """A mixture of experts in place of the MLP.

    Attributes:
        count: the number of routed experts in a layer.
        per_token: how many of them a token goes to.
        ffn: the hidden size of an expert.
        shared: the hidden size of the expert that every token goes to; 0 if there is none.
        shared_gate: whether the output of that expert is weighted by a gate, which has a vector.
        dense_layers: how many of the first layers have an MLP instead.
        router_bias: whether the router has a bias for each expert.
    """

    count: int
    per_token: int
    ffn: int
    shared: int = 0
    shared_gate: bool = False
    dense_layers: int = 0
    router_bias: bool = False

    def __post_init__(self) -> None:
        """Checks that the sizes are possible."""
        at_least_1 = dict.fromkeys(("count", "per_token", "ffn"), 1)
        _check("experts", self, at_least_1 | {"shared": 0, "dense_layers": 0})
        if self.per_token > self.count:
            raise ValueError(
                f"experts: per_token is {self.per_token}; there are {self.count} experts; "
                f"use {self.count} at most"
            )


@dataclass(frozen=True)
class Latent:
    """Attention whose keys and values are made of one small vector per token (MLA).

    Source: DeepSeek-AI 2024, DeepSeek-V2, section 2.1

    Attributes:
        query_rank: the size of the vector that queries are made of; 0 if they are made of x.
        rank: the size of the vector that keys and values are made of.
        rotary: the size of the part of a key that is rotated by its position; all heads share it.
        value: the size of a head's value; `head_size` is that of a key without the rotated part.
    """

    query_rank: int
    rank: int
    rotary: int
    value: int

    def __post_init__(self) -> None:
        """Checks that the sizes are possible."""
        _check("latent", self, {"query_rank": 0, "rank": 1, "rotary": 0, "value": 1})


@dataclass(frozen=True)
class Architecture:
    """The sizes and parts of a decoder.

    Attributes:
        name: the common name of the model.
        layers: the number of layers.
        hidden: the size of an activation.
        heads: the number of query heads.
        vocab: the number of rows of the embedding table, with those that pad it.
        kv_heads: the number of heads of keys and values; None means as many as query heads.
        head_size: the size of a head; None means hidden / heads.
        ffn: the hidden size of the MLP; None means 4 hidden.
        gated: whether the MLP has three matrices instead of two.
        tied: whether the head is the transposed embedding.
        positions: the rows of the table of learned positions; 0 if there is no table.
        norm: the kind of norm: "rms" has one vector of parameters, "layer" two, "plain" none.
        fused_norms: whether a norm is one kernel; else it is several, which compute in float32, as
            in LLaMA's own code.
        biases: which matrices have a bias: "none"; "qkv", those of queries, keys and values;
            "attention", these and the output of attention; "all", all except the head.
        query_key_norm: whether queries and keys have a norm, of one vector of the head's size.
        embedding_norm: whether a norm follows the embedding.
        norms: the number of norms in a layer: 2; 1 if attention and MLP share one; 4 if each has
            one before and one after it.
        dropout: whether it is trained with dropout, whose masks are kept.
        fused_dropout: whether attention is one kernel with dropout, too.
        experts: the mixture of experts in place of the MLP, or None.
        latent: the sizes of latent attention, or None.
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
    fused_norms: bool = True
    biases: Literal["none", "qkv", "attention", "all"] = "none"
    query_key_norm: bool = False
    embedding_norm: bool = False
    norms: int = 2
    dropout: bool = False
    fused_dropout: bool = False
    experts: Experts | None = None
    latent: Latent | None = None

    def __post_init__(self) -> None:
        """Checks that the sizes are possible and divide one another."""
        least = dict.fromkeys(("layers", "hidden", "heads", "vocab"), 1) | {"positions": 0}
        given = [
            name for name in ("kv_heads", "head_size", "ffn") if getattr(self, name) is not None
        ]
        _check(self.name, self, least | dict.fromkeys(given, 1))
        if self.latent and self.head_size is None:
            raise ValueError(f"{self.name}: latent attention without a head_size; give one")
        if self.head_size is None:
            _check_divides(self.name, ("heads", self.heads), ("hidden", self.hidden))
        _check_divides(self.name, ("kv_heads", self.key_heads), ("heads", self.heads))
        if not (self.fused_norms or self.norm == "rms"):
            raise ValueError(
                f"{self.name}: norm is {self.norm!r}; only an 'rms' norm is known as several "
                "kernels: leave fused_norms out"
            )
        if self.norms not in (1, 2, 4):
            raise ValueError(f"{self.name}: norms is {self.norms!r}; use 1, 2 or 4")
        if self.expert_layers < 0:
            raise ValueError(
                f"{self.name}: {self.layers - self.expert_layers} dense_layers; "
                f"there are {self.layers} layers; use that many at most"
            )
        if self.biases != "none" and (self.latent or (self.experts and self.biases == "all")):
            kind = "latent attention" if self.latent else "experts"
            raise ValueError(f"{self.name}: {kind} with biases {self.biases!r}; use 'none'")

    @property
    def key_heads(self) -> int:
        """How many heads keys and values have."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def fused_attention(self) -> bool:
        """Whether attention is a single kernel that recomputes the scores and does not keep them.

        FlashAttention is one (Dao et al. 2022). Models with dropout are assumed to be older, unless
        they have `fused_dropout`.
        """
        return not self.dropout or self.fused_dropout

    @property
    def d_head(self) -> int:
        """The size of a head."""
        return self.hidden // self.heads if self.head_size is None else self.head_size

    @property
    def d_key(self) -> int:
        """The size of a head's query and key, with the part that latent attention rotates."""
        return self.d_head + (self.latent.rotary if self.latent else 0)

    @property
    def d_value(self) -> int:
        """The size of a head's value."""
        return self.latent.value if self.latent else self.d_head

    @property
    def d_ffn(self) -> int:
        """The hidden size of the MLP."""
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
        """The parts of a layer, with a mixture of experts or with an MLP.

        A bias counts with its matrix, but the bias of a matrix that is split by rows is a part of
        its own.
        """
        norms = Part("norms", self.norms * self._norm(self.hidden), "none")
        mlp = self._expert_parts() if experts else self._mlp_parts()
        return _present(*self._attention_parts(), *mlp, norms)

    @property
    def outer_parts(self) -> tuple[Part, ...]:
        """The parts outside of the layers; "final norm" and "head" come after them."""
        d, table = self.hidden, self.vocab * self.hidden
        return _present(
            Part("embedding", table, "tp"),
            Part("positions", self.positions * d, "none"),
            Part("embedding norm", self._norm(d) if self.embedding_norm else 0, "none"),
            Part("final norm", self._norm(d), "none"),
            Part("head", 0 if self.tied else table, "tp"),
        )

    @property
    def parameters(self) -> int:
        """How many parameters there are, exactly."""
        parts = [(1, self.outer_parts), (self.dense_layers, self.layer_parts(experts=False))]
        if self.experts:
            parts.append((self.expert_layers, self.layer_parts(experts=True)))
        return sum(times * part.count for times, of in parts for part in of)

    @property
    def expert_parameters(self) -> int:
        """How many parameters the routed experts have."""
        each = self._matrices(self.experts.ffn) * self.experts.count if self.experts else 0
        return self.expert_layers * each

    @property
    def active_parameters(self) -> int:
        """How many parameters a token uses: of the experts, only those that it goes to."""
        if not self.experts:
            return self.parameters
        idle = self.experts.count - self.experts.per_token
        return self.parameters - self.expert_layers * idle * self._matrices(self.experts.ffn)

    def _attention_parts(self) -> tuple[Part, ...]:
        if self.latent:
            return self._latent_parts(self.latent)
        d, queries, keys = self.hidden, self.heads * self.d_head, self.key_heads * self.d_head
        biased = self.biases != "none"
        return (
            Part("queries", (d + biased) * queries, "tp"),
            Part("keys and values", 2 * (d + biased) * keys, "kv"),
            Part("query and key norms", self.query_key_norm * 2 * self._norm(self.d_head), "none"),
            Part("attention output", queries * d, "tp"),
            Part("attention output bias", d if self.biases in ("attention", "all") else 0, "none"),
        )

    def _latent_parts(self, latent: Latent) -> tuple[Part, ...]:
        d, rank, query_rank = self.hidden, latent.rank, latent.query_rank
        queries = self.heads * self.d_key
        keys_and_values = self.heads * (self.d_head + latent.value)
        return (
            Part("query compression", d * query_rank + self._norm(query_rank), "none"),
            Part("queries", (query_rank or d) * queries, "tp"),
            Part("key compression", d * (rank + latent.rotary) + self._norm(rank), "none"),
            Part("keys and values", rank * keys_and_values, "tp"),
            Part("attention output", self.heads * latent.value * d, "tp"),
        )

    def _mlp_parts(self) -> tuple[Part, ...]:
        biased = self.biases == "all"
        inner = (2 if self.gated else 1) * self.d_ffn * biased
        return (
            Part("mlp", self._matrices(self.d_ffn) + inner, "tp"),
            Part("mlp output bias", self.hidden * biased, "none"),
        )

    def _expert_parts(self) -> tuple[Part, ...]:
        assert self.experts, f"{self.name} has no experts"
        d, count = self.hidden, self.experts.count
        return (
            Part("router", (d + self.experts.router_bias) * count, "none"),
            Part("experts", count * self._matrices(self.experts.ffn), "ep"),
            Part("shared expert", self._matrices(self.experts.shared), "tp"),
            Part("shared expert gate", d * self.experts.shared_gate, "none"),
        )

    def _matrices(self, ffn: int) -> int:
        return (3 if self.gated else 2) * self.hidden * ffn

    def _norm(self, size: int) -> int:
        return {"rms": 1, "layer": 2, "plain": 0}[self.norm] * size


def _present(*parts: Part) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.count)


# More than any model has. The limits keep arithmetic fast, and searches over numbers of layers.
_LARGEST, _MOST_LAYERS = 10_000_000, 10_000


def _check(where: str, sizes: object, least: Mapping[str, int]) -> None:
    for name, smallest in least.items():
        size, largest = getattr(sizes, name), _MOST_LAYERS if name == "layers" else _LARGEST
        if not isinstance(size, int) or not smallest <= size <= largest:
            raise ValueError(
                f"{where}: {name} is {size!r}; use a whole number from {smallest} to {largest:,}"
            )


def _check_divides(where: str, part: tuple[str, int], whole: tuple[str, int]) -> None:
    (name, k), (of, n) = part, whole
    if n % k:
        divisors = [i for i in range(1, n + 1) if n % i == 0]
        nearest = min(divisors, key=lambda divisor: abs(divisor - k))
        raise ValueError(
            f"{where}: {name} is {k}, which does not divide {of}, {n}; the nearest that does "
            f"is {nearest}"
        )
