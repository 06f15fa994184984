"""The settings of a decoder: its sizes and its parts."""

from dataclasses import dataclass
from typing import Literal

from jaxpar.cost.adapters import BITS, adapter_of
from jaxpar.cost.architecture import Architecture, Experts
from jaxpar.mesh import few_divisors
from jaxpar.nn import RopeScaling

KINDS = {
    "norm": ("rms", "layer"),
    "positions": ("rotary", "learned"),
    "mlp": ("swiglu", "gelu"),
    "balance": ("loss", "bias", "none"),
    "biases": ("none", "qkv", "attention", "all"),
}


@dataclass(frozen=True)
class Settings:
    """The sizes and parts of a decoder; the default has 3 M parameters and reads bytes.

    Attributes:
        vocabulary: the number of tokens in the vocabulary.
        layers: the number of layers.
        d_model: the size of an activation.
        heads: the number of query heads, whose size is d_model / heads.
        kv_heads: the number of key and value heads, each for heads / kv_heads query heads; None
            means as many as query heads.
        d_ff: the hidden size of the MLP; None means 4 d_model, or for the three matrices of swiglu
            8/3 d_model rounded down to a multiple of 64, but at least 64.
        norm: "rms" is the RMS norm, and "layer" is the layer norm with a bias.
        positions: "rotary" rotates queries and keys, and "learned" adds a vector to the embedding.
        mlp: "swiglu" is gated and has three matrices, and "gelu" is plain and has two.
        tied: whether the head is the transposed embedding.
        sequence: the longest sequence with learned positions; with rotary ones there is no limit.
        experts: the number of experts in each layer, which are MLPs; 0 means one MLP, no router.
        top_k: how many of them each token goes to.
        capacity_factor: each expert has rows for so many times its part of a device's tokens, and
            what finds no row is dropped; None means that nothing is dropped.
        shared_experts: how many further experts every token goes to.
        balance: what balances the load: "loss", an auxiliary loss, and one of the router's logits;
            "bias", a bias of each expert, by which sigmoids are ranked; or "none".
        mup_base: the width at which muP changes nothing, so that what is found there, such as the
            learning rate, stays right where d_model is larger and the size of a head the same: the
            logits are divided by d_model / mup_base, as the optimizer divides the rate of matrices.
            It also scales what a layer adds to the residual stream by 1/sqrt(2 layers), in place
            of its first parameters. None: no muP.
        adapter_rank: the rank of what is trained beside each matrix of a layer, which stays as it
            is (LoRA); 0: there is no such adapter, and everything is trained.
        base_bits: in how many bits the matrices of layers are kept, 8 or 4, which are not trained;
            None: as they are.
        document_end: the token that ends a document; no position attends to one of a document
            before its own. None: the documents that a sequence has are not told apart.
        biases: which matrices have a bias: "none"; "qkv", those of queries, keys and values;
            "attention", these and the output of attention; "all", all except the head.
        norm_epsilon: what a norm adds to the mean square before it takes the root.
        rope_theta: rotary positions turn by angles from 1 down to about 1/rope_theta.
        rope_scaling: how these angles shrink for longer sequences, or None.
        padding: how many of the last tokens of the vocabulary only make it divide over devices:
            their probability is 0.

    Raises:
        ValueError: a size is below 1, a size does not divide another, or a part is unknown.
    """

    vocabulary: int = 256
    layers: int = 4
    d_model: int = 256
    heads: int = 8
    kv_heads: int | None = None
    d_ff: int | None = None
    norm: str = "rms"
    positions: str = "rotary"
    mlp: str = "swiglu"
    tied: bool = False
    sequence: int = 128
    experts: int = 0
    top_k: int = 2
    capacity_factor: float | None = None
    shared_experts: int = 0
    balance: str = "loss"
    mup_base: int | None = None
    adapter_rank: int = 0
    base_bits: int | None = None
    document_end: int | None = None
    biases: Literal["none", "qkv", "attention", "all"] = "none"
    norm_epsilon: float = 1e-6
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    padding: int = 0

    def __post_init__(self) -> None:
        """Checks every field, and the sizes that must divide one another."""
        sizes = ("vocabulary", "layers", "d_model", "heads", "kv_heads", "d_ff", "sequence")
        for name in sizes:
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"Settings: {name} is {size}; use 1 or more")
        for name, kinds in KINDS.items():
            if getattr(self, name) not in kinds:
                allowed = " or ".join(map(repr, kinds))
                raise ValueError(f"Settings: {name} is {getattr(self, name)!r}; use {allowed}")
        if self.mup_base is not None and self.mup_base < 1:
            raise ValueError(f"Settings: mup_base is {self.mup_base}; use 1 or more")
        if self.document_end is not None and not 0 <= self.document_end < self.vocabulary:
            raise ValueError(
                f"Settings: document_end is {self.document_end}; use a token of the vocabulary, 0 "
                f"to {self.vocabulary - 1}"
            )
        for name in ("norm_epsilon", "rope_theta"):
            if not getattr(self, name) > 0:
                raise ValueError(f"Settings: {name} is {getattr(self, name)}; use a number above 0")
        if not 0 <= self.padding < self.vocabulary:
            raise ValueError(
                f"Settings: padding is {self.padding}; use 0 to {self.vocabulary - 1}, fewer than "
                "the tokens of the vocabulary"
            )
        if isinstance(self.rope_scaling, dict):  # as a manifest has it
            object.__setattr__(self, "rope_scaling", RopeScaling(**self.rope_scaling))
        self._check_experts()
        self._check_adapters()
        self._check_divides("heads", self.heads, "d_model", self.d_model)
        self._check_divides("kv_heads", self.key_heads, "heads", self.heads)
        if self.positions == "rotary" and self.d_head % 2:
            raise ValueError(
                f"Settings: the head size d_model / heads is {self.d_head}; rotary positions turn "
                f"pairs, so it must be even; use a d_model that {2 * self.heads} divides, other "
                "heads, or learned positions"
            )

    @property
    def d_head(self) -> int:
        """The size of a head."""
        return self.d_model // self.heads

    @property
    def width(self) -> float:
        """How many times as wide as the base of muP this decoder is; 1 without muP."""
        return self.d_model / self.mup_base if self.mup_base else 1.0

    @property
    def branch_scale(self) -> float:
        """What attention and MLP are multiplied by before a layer adds them to its input."""
        return (2 * self.layers) ** -0.5 if self.mup_base else 1.0

    @property
    def adding_layers(self) -> int:
        """The layers for which the first parameters of outputs are scaled down; 0: for none."""
        return 0 if self.mup_base else self.layers

    @property
    def key_heads(self) -> int:
        """The number of key and value heads."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def d_hidden(self) -> int:
        """The hidden size of the MLP."""
        if self.d_ff is not None:
            return self.d_ff
        return 4 * self.d_model if self.mlp == "gelu" else max(1, self.d_model // 24) * 64

    @property
    def parameters(self) -> int:
        """The exact number of parameters, without those that stay 0 for what experts drop."""
        return int(self.architecture.parameters) + self.adapter_parameters

    @property
    def adapter_parameters(self) -> int:
        """The number of parameters of all adapters."""
        rank = self.adapter_rank
        return adapter_of(self.architecture, method="lora", rank=rank) if rank else 0

    @property
    def _mixture(self) -> Experts:
        f = self.d_hidden
        shared = self.shared_experts * f
        return Experts(self.experts, self.top_k, f, shared=shared, router_bias=True)

    @property
    def architecture(self) -> Architecture:
        """The decoder as the formulas of costs know it."""
        return Architecture(
            name="decoder",
            layers=self.layers,
            hidden=self.d_model,
            heads=self.heads,
            vocab=self.vocabulary,
            kv_heads=self.kv_heads,
            ffn=self.d_hidden,
            gated=self.mlp == "swiglu",
            tied=self.tied,
            positions=self.sequence if self.positions == "learned" else 0,
            norm="rms" if self.norm == "rms" else "layer",
            biases=self.biases,
            experts=self._mixture if self.experts else None,
        )

    def _check_experts(self) -> None:
        if self.experts < 0 or self.shared_experts < 0:
            name = "experts" if self.experts < 0 else "shared_experts"
            raise ValueError(f"Settings: {name} is {getattr(self, name)}; use 0 or more")
        if not self.experts:
            for name in ("top_k", "capacity_factor", "shared_experts", "balance"):
                value, unset = getattr(self, name), getattr(Settings, name)
                if value != unset:
                    raise ValueError(
                        f"Settings: {name} is {value} without experts; use experts of 1 or more, "
                        "or leave it out"
                    )
            return
        if self.mlp != "swiglu":
            raise ValueError(
                f"Settings: experts with mlp {self.mlp!r}; experts are gated; use 'swiglu'"
            )
        if self.biases == "all":
            raise ValueError(
                "Settings: experts with biases 'all'; experts have none; use 'none', 'qkv' or "
                "'attention'"
            )
        if not 1 <= self.top_k <= self.experts:
            raise ValueError(
                f"Settings: top_k is {self.top_k} of {self.experts} experts; use 1 to "
                f"{self.experts}"
            )
        if self.capacity_factor is not None and not self.capacity_factor > 0:
            raise ValueError(
                f"Settings: capacity_factor is {self.capacity_factor}; use a number above 0, or "
                "None, which drops nothing"
            )

    def _check_adapters(self) -> None:
        if self.adapter_rank < 0:
            raise ValueError(f"Settings: adapter_rank is {self.adapter_rank}; use 0 or more")
        if self.adapter_rank and self.experts:
            raise ValueError(
                f"Settings: adapter_rank is {self.adapter_rank} with {self.experts} experts; "
                "adapters stand beside the matrices of attention and of one MLP; use experts 0"
            )
        if self.base_bits not in (None, *BITS):
            raise ValueError(f"Settings: base_bits is {self.base_bits}; use 8 or 4")

    def _check_divides(self, name: str, size: int, multiple_name: str, multiple: int) -> None:
        if multiple % size:
            raise ValueError(
                f"Settings: {name} is {size} and must divide {multiple_name} ({multiple}); "
                f"use {name} in {{{few_divisors(multiple)}}}"
            )
