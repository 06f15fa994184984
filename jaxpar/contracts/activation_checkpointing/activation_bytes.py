"""The bytes of activations that one device keeps for the gradient of a GPT."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.cost.activations import activation_bytes
from jaxpar.cost.layout import REMATS

_MODELS = ((4, 2048, 6144, 64, 48), (1, 2048, 12288, 96, 96))  # 22B and 175B of the paper
_LARGER = ((1, 2048, 25600, 160, 128), (2, 2**20, 16384, 128, 126), (512, 8192, 65536, 512, 1000))


def _calls(rng: np.random.Generator) -> list[Call]:
    """A small model, the paper's in every way, random ones, then a remat that there is not."""

    def call(model: tuple[int, ...], tp: int, sequence_parallel: bool, remat: str) -> Call:
        return model, {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}

    ways = [(split, remat) for remat in REMATS for split in (False, True)]
    calls = [call((1, 4, 8, 2, 3), 2, split, remat) for split, remat in ways[:3]]
    calls += [call(model, 8, *way) for model in _MODELS for way in ways]
    calls += [call(model, 32, *way) for model in _LARGER for way in ways]
    # Sizes whose products do not fit into float32, whose 24 bits hold those of most models.
    calls += [call((7, 4001, 12_210, 33, 61), 11, *way) for way in ways]
    # One of everything; a device alone; one head for each device, one example, one token or layer.
    for way in ways:
        calls += [call((1, 1, 1, 1, 1), 1, *way), call((3, 6, 32, 4, 2), 1, *way)]
        calls += [call((3, 8, 16, 4, 2), 4, *way), call((1, 8, 16, 4, 2), 2, *way)]
        calls += [call((3, 1, 16, 4, 2), 2, *way), call((3, 512, 16, 4, 1), 2, *way)]
    for way in [*ways, *ways]:
        tp, heads, b, layers = (int(n) for n in rng.integers(2, 6, 4))
        s, h = tp * int(rng.integers(3, 50)), tp * heads * 8 * int(rng.integers(1, 9))
        calls.append(call((b, s, h, tp * heads, layers), tp, *way))
    odd = tuple(int(n) for n in rng.integers(2, 9, 5))
    refused = [call(odd, 1, False, "half")]
    for remat in ("", "Full", "no", "nonefull", "selective_full", "s"):
        refused += [call((3, 6, 32, 4, 2), 1 + split, split, remat) for split in (False, True)]
    return [*calls, call(odd, 1, False, "none"), *refused]


CONTRACT = Contract(
    kind="value",
    task="return the bytes of activations that one device keeps, as in table 2 of the paper",
    reference=activation_bytes,
    oracle=activation_bytes,
    values=_calls,
    hints=(
        "Without tensor parallelism and remat a layer keeps s*b*h*(34 + 5*heads*s/h) bytes; of the "
        "34, attention has 11, the MLP 19 and the norms 4.",
        "10 of the 34 are outside attention and MLP: the inputs of both norms and of both blocks, "
        "and the masks of both dropouts. tp divides the other 24, and the heads; it divides the 10 "
        "only if sequence_parallel.",
        "With selective, leave the 5*heads*s*s*b out. With full, count 2*s*b*h for each layer, and "
        "nothing else.",
    ),
    minimal="It is arithmetic on sizes: what is kept is known before anything runs.",
    harder="Add the stages of a pipeline: what does the first of p stages keep under 1F1B?",
)


@wrong("values")
def one_layer(b, s, h, heads, layers, **split):
    """This is what one layer keeps; multiply by the number of layers."""
    return activation_bytes(b, s, h, heads, 1, **split)


@wrong("values")
def all_split(*sizes, tp, sequence_parallel, remat):
    """You divide what is outside attention and MLP (10 bytes an element) by tp even without
    sequence parallelism; without it every device holds that whole."""
    return activation_bytes(*sizes, tp=tp, sequence_parallel=True, remat=remat)


@wrong("values")
def none_split_by_sequence(*sizes, tp, sequence_parallel, remat):
    """Sequence parallelism makes no difference in your answer; with it a device holds only 1/tp of
    what is outside attention and MLP, too."""
    return activation_bytes(*sizes, tp=tp, sequence_parallel=False, remat=remat)


@wrong("values")
def attention_whole(*sizes, tp, sequence_parallel, remat):
    """You do not divide the 5*heads*s*s*b bytes of softmax and dropout by tp; each device has heads
    / tp of the heads."""
    split = {"tp": tp, "sequence_parallel": sequence_parallel}
    kept = activation_bytes(*sizes, remat=remat, **split)
    if remat != "none":
        return kept
    without = activation_bytes(*sizes, remat="selective", **split)
    return without + tp * (kept - without)


@wrong("values")
def selective_keeps_attention(*sizes, remat, **split):
    """Under selective you keep the 5*heads*s*s*b bytes of softmax and dropout, too; they are what
    it computes again."""
    remat = "none" if remat == "selective" else remat
    return activation_bytes(*sizes, remat=remat, **split)


@wrong("values")
def full_split(*sizes, tp, sequence_parallel, remat):
    """Under full you divide the layer's input by tp with sequence parallelism; here each device
    keeps it whole, as in the paper's table."""
    kept = activation_bytes(*sizes, tp=tp, sequence_parallel=sequence_parallel, remat=remat)
    return kept / tp if remat == "full" and sequence_parallel else kept


@wrong("values")
def full_keeps_nothing(*sizes, remat, **split):
    """Under full you keep nothing; without the input of each layer, nothing can be computed
    again."""
    return 0.0 if remat == "full" else activation_bytes(*sizes, remat=remat, **split)


@wrong("values")
def masks_left_out(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    """You leave the dropout masks out; they take a byte for each element of the two outside and of
    the one in attention."""
    sizes = (b, s, h, heads, layers)
    kept = activation_bytes(*sizes, tp=tp, sequence_parallel=sequence_parallel, remat=remat)
    if remat == "full":
        return kept
    outside = 2 * layers * s * b * h / (tp if sequence_parallel else 1)
    mask = layers * heads * s * s * b / tp if remat == "none" else 0
    return kept - outside - mask


@wrong("values")
def activations_as_elements(*sizes, **split):
    """The result is half as large as it should be; an element takes 2 bytes."""
    return activation_bytes(*sizes, **split) / 2


@wrong("values")
def activations_in_32_bits(*sizes, **split):
    """The result is twice as large as it should be; an element takes 2 bytes, not 4."""
    return activation_bytes(*sizes, **split) * 2


@wrong("values")
def scores_kept_once(*sizes, remat, **split):
    """You keep 3*heads*s*s*b bytes in attention; the softmax, its mask, and the softmax after
    dropout take 5: 2, 1 and 2."""
    kept = activation_bytes(*sizes, remat=remat, **split)
    if remat != "none":
        return kept
    return kept - 0.4 * (kept - activation_bytes(*sizes, remat="selective", **split))


@wrong("values")
def queries_keys_values_inputs(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    """You keep the input of queries, keys and values three times; it is one array, and is kept
    once."""
    split = {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}
    kept = activation_bytes(b, s, h, heads, layers, **split)
    again = 4 * layers * s * b * h / (tp if sequence_parallel else 1)
    return kept if remat == "full" else kept + again


@wrong("values")
def mlp_as_wide_as_the_model(b, s, h, heads, layers, *, tp, sequence_parallel, remat):
    """You count h elements for a token inside the MLP; it is 4h wide, before GELU and after."""
    split = {"tp": tp, "sequence_parallel": sequence_parallel, "remat": remat}
    kept = activation_bytes(b, s, h, heads, layers, **split)
    return kept if remat == "full" else kept - 12 * layers * s * b * h / tp


@wrong("values")
def remat_by_its_letters(*sizes, remat: str, **split):
    """Raise ValueError where `remat` is not written exactly as one of the three."""
    known: dict[str, str] = {"n": "none", "s": "selective", "f": "full"}
    meant = known.get((remat.lower() or "?")[0], remat)
    return activation_bytes(*sizes, remat=meant, **split)


@wrong("values")
def unknown_remat_is_none(*sizes, remat, **split):
    """Raise ValueError where `remat` is none of the three: none, selective and full."""
    remat = remat if remat in ("selective", "full") else "none"
    return activation_bytes(*sizes, remat=remat, **split)
