"""The settings of a decoder: its sizes, and the kinds of its parts."""

from dataclasses import dataclass

from jaxpar.mesh import few_divisors

KINDS = {"norm": ("rms", "layer"), "positions": ("rotary", "learned"), "mlp": ("swiglu", "gelu")}


@dataclass(frozen=True)
class Settings:
    """The sizes and parts of a decoder; the default has 3 M parameters and reads bytes.

    Attributes:
        vocabulary: how many tokens there are.
        layers: how many layers.
        d_model: the size of an activation.
        heads: query heads; their size is d_model / heads.
        kv_heads: heads of keys and values, each for heads / kv_heads query heads; None: as many.
        d_ff: the size inside the MLP; None: 4 d_model, or for the three matrices of swiglu the
            multiple of 64 from 8/3 d_model down, 64 at least.
        norm: "rms" or "layer": the root mean square, or mean and variance with a bias.
        positions: "rotary" or "learned": queries and keys turned, or a vector added at the start.
        mlp: "swiglu" or "gelu": gated, of three matrices, or plain, of two.
        tied: the head is the embedding, transposed.
        sequence: the longest that learned positions reach; rotary ones have no end.

    Raises:
        ValueError: a size is below 1, sizes do not divide, or a part is unknown.
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

    def __post_init__(self) -> None:
        """Checks every field, and those that must fit together."""
        sizes = ("vocabulary", "layers", "d_model", "heads", "kv_heads", "d_ff", "sequence")
        for name in sizes:
            size = getattr(self, name)
            if size is not None and size < 1:
                raise ValueError(f"Settings: {name} is {size}; use 1 or more")
        for name, kinds in KINDS.items():
            if getattr(self, name) not in kinds:
                allowed = " or ".join(map(repr, kinds))
                raise ValueError(f"Settings: {name} is {getattr(self, name)!r}; use {allowed}")
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
    def key_heads(self) -> int:
        """How many heads keys and values have."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def d_hidden(self) -> int:
        """The size inside the MLP."""
        if self.d_ff is not None:
            return self.d_ff
        return 4 * self.d_model if self.mlp == "gelu" else max(1, self.d_model // 24) * 64

    @property
    def parameters(self) -> int:
        """How many parameters there are, exactly."""
        d = self.d_model
        norm = d if self.norm == "rms" else 2 * d
        attention = 2 * d * d + 2 * d * self.key_heads * self.d_head
        mlp = (3 if self.mlp == "swiglu" else 2) * d * self.d_hidden
        positions = self.sequence * d if self.positions == "learned" else 0
        tables = (1 if self.tied else 2) * self.vocabulary * d
        return tables + positions + self.layers * (attention + mlp + 2 * norm) + norm

    def _check_divides(self, part: str, size: int, whole: str, of: int) -> None:
        if of % size:
            raise ValueError(
                f"Settings: {part} is {size} and must divide {whole} ({of}); "
                f"use {part} in {{{few_divisors(of)}}}"
            )
