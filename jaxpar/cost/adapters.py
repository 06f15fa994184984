"""How many parameters an adapter has, and what they and their base hold.

Sources: Hu et al. 2021 (LoRA); Li and Liang 2021 (Prefix-Tuning); Liu et al. 2022 (P-Tuning v2);
Ben Zaken et al. 2022 (BitFit); Lester et al. 2021 (Prompt Tuning).
"""

import re

from jaxpar.checks import check_one_of, check_positive
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.zero import States

BITS = (8, 4)
BLOCK = 64  # the numbers of a frozen matrix that share a scale: QLoRA, section 3
METHODS = ("lora", "prefix", "p_tuning_v2", "bitfit", "prompt")


def adapter_parameters(
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    ffn: int,
    *,
    gated: bool,
    biases: bool,
    method: str,
    rank: int,
    prefix: int,
) -> int:
    """How many parameters of a decoder are trained by a method that freezes all others.

    The methods are:

        lora         two factors of rank `rank` beside each matrix of each layer: those of queries,
                     keys, values and the output of attention, and those of the MLP
        prefix       `prefix` learned keys and values for each kv head of each layer
        p_tuning_v2  the same as prefix
        bitfit       all bias vectors
        prompt       `prefix` learned vectors before the embeddings of the input

    The MLP has two matrices between `hidden` and `ffn`, or three where it is `gated`. With
    `biases`, each matrix of a layer has a bias for each of its outputs, and the two norms of a
    layer, and the one after the last layer, have a bias as well. Without, there is no bias. `rank`
    and `prefix` matter only for the methods that name them.

    Source: Hu et al. 2021 (LoRA), section 4.1; Li and Liang 2021 (Prefix-Tuning), section 4.2; Liu
        et al. 2022 (P-Tuning v2), section 3.2; Ben Zaken et al. 2022 (BitFit), section 3; Lester et
        al. 2021 (Prompt Tuning), section 2

    Raises:
        ValueError: the method is unknown, or a number is not above 0.
    """
    check_one_of("adapter_parameters", "method", method, METHODS)
    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": kv_heads}
    numbers = {"head_size": head_size, "ffn": ffn, "rank": rank, "prefix": prefix}
    check_positive("adapter_parameters", sizes | numbers)
    queries, keys = heads * head_size, kv_heads * head_size
    into_ffn = 2 if gated else 1
    if method == "prompt":
        return prefix * hidden
    if method in ("prefix", "p_tuning_v2"):
        return layers * 2 * prefix * keys
    if method == "lora":
        attention = (hidden + queries) + 2 * (hidden + keys) + (queries + hidden)
        return layers * rank * (attention + (into_ffn + 1) * (hidden + ffn))
    of_layer = queries + 2 * keys + hidden + into_ffn * ffn + hidden + 2 * hidden
    return (layers * of_layer + hidden) * biases


def adapter_states(
    architecture: Architecture, each: States, *, rank: int, base_bits: int | None = None
) -> States:
    """The states of a model beside whose matrices adapters are trained, over all its parameters.

    `each` are those of a parameter that is trained. With `base_bits`, the matrices of the layers
    have so many bits, and for every `BLOCK` of them a scale in float32.

    Source: Hu et al. 2021 (LoRA), section 4.2; Dettmers et al. 2023 (QLoRA), section 3

    Raises:
        ValueError: the model has experts or latent attention.
    """
    adapters = adapter_of(architecture, method="lora", rank=rank)
    fraction = adapters / architecture.parameters
    of_layer = architecture.layer_parts(experts=False)
    coded = architecture.layers * sum(part.count for part in of_layer if part.split != "none")
    coded_bytes = each.params if base_bits is None else base_bits / 8 + 4 / BLOCK
    base = each.params + coded / architecture.parameters * (coded_bytes - each.params)
    return States(
        base + fraction * each.params,
        fraction * each.gradients,
        fraction * each.optimizer,
        computed=each.params,
        trained=fraction,
    )


def read_adapter(where: str, name: str | None, base_bits: int | None) -> tuple[int, int | None]:
    """The rank in an adapter's name, "lora:16", or 0 without one; and the bits of its base.

    Raises:
        ValueError: the name has another form, nobody has so many bits, or bits stand alone.
    """
    found = re.fullmatch(r"lora:([1-9]\d{0,4})", name) if name is not None else None
    if name is not None and not found:
        raise ValueError(f"{where}: --adapter is {name!r}; use lora and a rank, such as lora:16")
    if base_bits is not None and not found:
        raise ValueError(
            f"{where}: --base-bits {base_bits} without --adapter: numbers in few bits cannot be "
            "trained; give an adapter, such as --adapter lora:16"
        )
    if base_bits not in (None, *BITS):
        raise ValueError(f"{where}: --base-bits is {base_bits}; use 8 or 4, or leave it out")
    return int(found[1]) if found else 0, base_bits


def adapter_of(architecture: Architecture, *, method: str, rank: int = 1, prefix: int = 1) -> int:
    """The parameters that a method trains of a model, as `adapter_parameters` counts them.

    Raises:
        ValueError: the method is unknown, or the model has experts or latent attention.
    """
    if architecture.experts or architecture.latent:
        kind = "experts" if architecture.experts else "latent attention"
        raise ValueError(
            f"adapter_of: {architecture.name} has {kind}; adapters are counted for grouped "
            "attention and an MLP; use such a model"
        )
    return adapter_parameters(
        architecture.layers,
        architecture.hidden,
        architecture.heads,
        architecture.key_heads,
        architecture.d_head,
        architecture.d_ffn,
        gated=architecture.gated,
        biases=architecture.biases == "all",
        method=method,
        rank=rank,
        prefix=prefix,
    )
