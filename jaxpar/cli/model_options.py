"""Options that `memory` and `plan` share: the sizes of a model, and the states of its training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxpar.cli.sizes import option, whole

if TYPE_CHECKING:
    from jaxpar.cost.architecture import Architecture

SIZES = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "gated")

Layers = Annotated[int | None, whole("Or its sizes: the number of layers.")]
Hidden = Annotated[int | None, whole("The size of an activation.")]
Heads = Annotated[int | None, whole("The number of query heads.")]
KvHeads = Annotated[int | None, whole("The number of key and value heads; as many unless given.")]
Ffn = Annotated[int | None, whole("The size inside the MLP; 4 times --hidden unless given.")]
Vocab = Annotated[int | None, whole("The number of tokens in the vocabulary; 50257 unless given.")]
Gated = Annotated[bool, typer.Option("--gated", help="Its MLP is gated, as in Llama.")]
Optimizer = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="What updates the parameters: adamw, adam8bit (moments in 8 bits) or sgd (without "
        "momentum); adamw unless given.",
    ),
]
GradientBytes = Annotated[
    int | None,
    typer.Option(
        metavar="2|4",
        help="Bytes of a gradient where gradients are added up and sent; 2 unless given, 4 as "
        "Megatron-LM does in bf16.",
    ),
]
Adapter = Annotated[
    str | None,
    typer.Option(
        metavar="lora:RANK",
        help="Train only two narrow matrices of this rank beside each matrix of a layer (LoRA).",
    ),
]
BaseBits = Annotated[
    int | None,
    typer.Option(metavar="8|4", help="Bits of the matrices beside adapters; 16 unless given."),
]


def of_sizes(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the sizes of a model among what is given."""
    return {name: given[name] for name in SIZES if given.get(name)}


def model_of(where: str, sizes: Mapping[str, Any]) -> Architecture:
    """Returns the decoder of these sizes.

    Raises:
        ValueError: one is missing, or no decoder has them.
    """
    from jaxpar.cost.models import from_sizes

    for name in ("layers", "hidden", "heads"):
        if name not in sizes:
            first = option(next(iter(sizes)))
            raise ValueError(f"{where}: {first} without {option(name)}; give it, too")
    return from_sizes(**sizes)


def check_states(where: str, optimizer: str, gradient_bytes: int) -> None:
    """Raises ValueError if there is no such optimizer, or no gradient has so many bytes."""
    from jaxpar.checks import check_one_of
    from jaxpar.cost.zero import MIXED

    check_one_of(where, "--optimizer", optimizer, tuple(MIXED))
    check_one_of(where, "--gradient-bytes", gradient_bytes, (2, 4))
