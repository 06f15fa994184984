"""What a layer keeps of its forward pass for its gradient, array by array.

As in Megatron-LM, a layer keeps every input of a product and of a norm, and what the gradients of
the nonlinearity and the softmax need, all in 16 bits, and the masks of dropout in one byte an
element. The list leaves out the one or two numbers that a norm or a softmax keeps for each token.

Source: Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models,
sections 4 and 5.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from jaxpar.cost.architecture import Architecture, Experts
from jaxpar.cost.terms import Term, make_term
from jaxpar.layout import Layout

# The results of products with weights, and the residual stream, which a layer adds to twice.
_PRODUCTS = ("layer input", "queries", "keys", "values", "stream", "gate", "up")

# What "alternate" keeps of these, and of attention.
_ALTERNATE = ("layer input", "queries", "values", "attended", "stream", "gate")

Split = Literal["tp", "kv", "positions", "whole"]


class _Array(NamedTuple):
    """An array that a layer keeps.

    Attributes:
        name: the name of the array.
        size: the formula of its elements for each token.
        split: what each of tp devices keeps: "tp", 1/tp of it; "kv", 1/tp, but at least one head;
            "positions", its own positions with sequence parallelism, and otherwise all; "whole",
            all of it.
        element_bytes: the bytes of an element; None means those of the model's dtype.
    """

    name: str
    size: str
    split: Split = "tp"
    element_bytes: int | None = None


def layer_arrays(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    experts: bool,
    element_bytes: int = 2,
) -> list[Term]:
    """Bytes that one device keeps of each array, of one layer and one microbatch.

    Remat "none" keeps everything, including the scores (s*s elements for each head) unless
    attention is fused. "selective" recomputes the scores. "alternate" keeps the layer's input,
    queries, values, what is attended, the stream and the gate. "full" keeps only the layer's input;
    with sequence parallelism each device keeps its own positions of it, whereas table 2 of the
    paper (`activation_bytes`) counts all positions.

    With `experts`, the layer has a mixture of experts. Their load is balanced: a device receives as
    many tokens as it sends. With tensor parallelism, each device receives full vectors for an
    expert. `element_bytes` is the size of the dtype that the model computes in.

    Source: Korthikanti et al. 2022, table 2; for experts the token dispatcher of Megatron-LM
    """
    scores = layout.remat == "none" and not architecture.fused_attention
    kept = _kept(architecture, layout, scores=scores, experts=experts)
    if layout.remat == "alternate":
        kept = _alternate(kept)
    return _terms(kept, architecture, layout, sequence, element_bytes)


def decoder_arrays(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    element_bytes: int = 4,
    tiles: bool = False,
    adapter_rank: int = 0,
) -> list[Term]:
    """Bytes of each array that a layer of jaxpar's own decoder keeps, for every kind of remat.

    With "none", JAX keeps more than Megatron-LM, and some arrays several times. With `tiles`,
    and over cp, attention is by tiles: it keeps its result and the log-sum-exp, and no scores.
    Beside every matrix there may be an adapter of a rank.

    Raises:
        ValueError: the layers have experts, of which everything is kept: what JAX keeps of sorted
            rows and of blocks is not known here.
    """
    experts = architecture.experts
    if experts and layout.remat == "none":
        raise ValueError(
            "decoder_arrays: experts with remat 'none': what is kept of their sorted rows is not "
            "known; use 'products', 'selective', 'full' or 'segments'"
        )
    everything, tiles = layout.remat == "none", _by_tiles(layout, tiles)
    arrays = list(_kept(architecture, layout, scores=everything and not tiles, experts=False))
    if everything:
        arrays = [_over_context(array, layout) for array in arrays]
        arrays += _kept_by_jax(architecture, layout, tiles=tiles)
    if layout.remat == "products":
        names = (*_PRODUCTS, *["attended"] * tiles)
        arrays = [array for array in arrays if array.name in names]
    if layout.remat == "alternate":
        arrays = _alternate(arrays)
    if experts and not layout.recomputes_layers:
        arrays = [*_without_mlp(arrays), *_of_mixture(experts, layout)]
    if tiles and not layout.recomputes_layers:
        arrays.append(_Array("log-sum-exp", "heads", "tp", 4))
    if adapter_rank and not layout.recomputes_layers:
        # What "selective" keeps has a name, and the outputs of attention and MLP have none.
        adapters = 6 + architecture.gated - 2 * (layout.remat == "selective")
        arrays.append(_Array("low rank", f"{adapters * adapter_rank}", "whole"))
    return _terms(arrays, architecture, layout, sequence, element_bytes)


def half_arrays(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    element_bytes: int = 4,
    tiles: bool = False,
) -> list[Term]:
    """Bytes of each array that the first half of a backward pass of our decoder keeps of a layer.

    The first half finds the gradient with respect to the layer's input, and the second half those
    with respect to its parameters. For these it needs the gradient of each result, and what the
    first half has recomputed.
    """
    *into_nonlinearity, _ = _inside("", "ffn", gated=architecture.gated)
    arrays = [*_projected(architecture), *into_nonlinearity]
    for of in ("attention", "mlp"):
        arrays += [_Array(f"{of} output", "hidden", "whole")]
        arrays += [_Array(f"{of} input", "hidden", "positions")]
    arrays = [array._replace(name=f"gradient of {array.name}") for array in arrays]
    if layout.remat in ("products", "full", "alternate"):
        arrays += [_Array("inside the nonlinearity", "ffn")] * 2
    if layout.remat == "products" and not _by_tiles(layout, tiles):
        arrays.append(_Array("softmax", "heads * sequence"))
        arrays.append(_Array("values in another order", "key_heads * d_value", "kv"))
    if layout.remat in ("full", "alternate"):
        arrays += [_Array(f"{of} input", "hidden", "whole") for of in ("attention", "mlp")]
        arrays += _inputs_again(architecture, layout)
    elif layout.remat != "none" and architecture.norm == "layer":
        arrays += _before_weights()
    if layout.remat == "full":
        arrays.append(_Array("attended", "heads * d_value"))
    return _terms(arrays, architecture, layout, sequence, element_bytes)


def outer_arrays(
    architecture: Architecture, layout: Layout, *, sequence: int, element_bytes: int = 2
) -> tuple[list[Term], list[Term]]:
    """Bytes of each array kept before the layers, and after them, without the logits.

    Source: Korthikanti et al. 2022, section 4.3
    """
    first = []
    if architecture.embedding_norm:
        first.append(_Array("embedded", "hidden", "positions"))
    if architecture.dropout:
        first.append(_Array("embedding mask", "hidden", "positions", 1))
    last = [
        _Array("final norm's input", "hidden", "positions"),
        _Array("head's input", "hidden", "positions"),
    ]
    first, last = (
        _terms(arrays, architecture, layout, sequence, element_bytes) for arrays in (first, last)
    )
    return first, last


def _alternate(arrays: Iterable[_Array]) -> list[_Array]:
    """Those of the arrays of a layer that are kept if about half of its products are recomputed."""
    return [array for array in arrays if array.name in _ALTERNATE]


def _without_mlp(arrays: Iterable[_Array]) -> list[_Array]:
    """The arrays of a layer but for those inside its MLP."""
    return [array for array in arrays if array.name not in ("gate", "up", "hidden")]


def _of_mixture(experts: Experts, layout: Layout) -> Iterator[_Array]:
    """What a layer of our decoder keeps of its router, and of experts that all tokens go to.

    What the others compute is computed again.
    """
    products, alternate = layout.remat == "products", layout.remat == "alternate"
    if products:
        yield _Array("router's logits", "experts", "whole", 4)
    if layout.sequence_parallel and not alternate:
        yield _Array("all positions", "hidden", "whole")
    if experts.shared:
        gate, up, hidden = _inside("shared ", "shared", gated=True)
        yield from [gate] if alternate else [gate, up] if products else [gate, up, hidden]


def _by_tiles(layout: Layout, tiles: bool) -> bool:
    """Whether attention is by tiles, as it always is over cp."""
    return tiles or bool(np.max(layout.cp) > 1)


def _kept_by_jax(architecture: Architecture, layout: Layout, *, tiles: bool) -> Iterator[_Array]:
    """The arrays that JAX keeps in addition if nothing is recomputed."""
    split, staged = np.max(layout.tp) > 1, np.max(layout.pp) > 1
    yield from _inputs_again(architecture, layout)
    if tiles:
        yield _Array("attended, position by position", "heads * d_value")
    else:
        yield _Array("softmax' exponentials", "heads * sequence")
        if staged:  # In one loop over all layers there is one mask for all of them.
            yield _Array("causal mask", "heads * sequence", "tp", 1)
            yield _Array("causal mask's other values", "heads * sequence")
    # SwiGLU keeps three, of which XLA may find two to be equal, and GELU keeps four.
    inside = (3 if split or staged else 2) if architecture.gated else 4
    yield from [_Array("inside the nonlinearity", "ffn")] * inside


def _over_context(array: _Array, layout: Layout) -> _Array:
    """Keys and values as attention over cp needs them; other arrays as they are."""
    times = {"gather": "cp", "ulysses": "copies"}.get(layout.context)
    if times is None or array.name not in ("keys", "values"):
        return array
    return array._replace(size=f"{times} * {array.size}")


def _before_weights() -> list[_Array]:
    """The results of norms before they are multiplied by their weights."""
    names = (f"{norm} norm's result before its weight" for norm in ("attention", "mlp"))
    return [_Array(name, "hidden", "positions") for name in names]


def _inputs_again(architecture: Architecture, layout: Layout) -> Iterator[_Array]:
    """The inputs of products, once more for each further use."""
    yield from _before_weights()
    if np.max(layout.tp) == 1:  # Else matrices with one input are put together.
        for name, matrices in (("attention", 3), ("mlp", 2 if architecture.gated else 1)):
            yield from [_Array(f"{name} input again", "hidden", "positions")] * (matrices - 1)


def _kept(
    architecture: Architecture, layout: Layout, *, scores: bool, experts: bool
) -> Iterator[_Array]:
    if layout.recomputes_layers:
        yield _Array("layer input", "hidden", "positions")
        return
    before_norm = _Array("layer input", "hidden", "positions")
    if not architecture.fused_norms:  # Each keeps its input in float32, and its result so far.
        before_norm = before_norm._replace(element_bytes=4)
        yield _Array(
            "norms' results before their weights", f"{architecture.norms} * hidden", "positions"
        )
    yield before_norm
    yield _Array("attention input", "hidden", "positions")
    yield from _projected(architecture)
    if scores:
        yield _Array("softmax", "heads * sequence")
        if architecture.dropout:
            yield _Array("softmax mask", "heads * sequence", "tp", 1)
            yield _Array("softmax dropped", "heads * sequence")
    yield _Array("attended", "heads * d_value")
    after = ["attention", "mlp"]
    if architecture.dropout:
        yield from (_Array(f"{name} mask", "hidden", "positions", 1) for name in after)
    if architecture.norms == 4:
        yield from (before_norm._replace(name=f"{name} output") for name in after)
    if architecture.norms > 1:
        yield before_norm._replace(name="stream")
        yield _Array("mlp input", "hidden", "positions")
    if experts:
        yield from _mixed(architecture)
    else:
        yield from _inside("", "ffn", gated=architecture.gated)


def _projected(architecture: Architecture) -> Iterator[_Array]:
    """Queries, keys and values, and the arrays that they are computed from."""
    if latent := architecture.latent:
        for name in (["queries"] if latent.query_rank else []) + ["keys"]:
            size = "query_rank" if name == "queries" else "rank"
            yield _Array(f"compressed {name}", size, "positions")
            yield _Array(f"compressed {name}, normed", size, "positions")
        yield _Array("queries", "heads * d_key")
        yield _Array("keys", "heads * d_key")
        yield _Array("values", "heads * d_value")
        return
    if architecture.query_key_norm:
        yield _Array("queries before their norm", "heads * d_key")
        yield _Array("keys before their norm", "key_heads * d_key", "kv")
    yield _Array("queries", "heads * d_key")
    yield _Array("keys", "key_heads * d_key", "kv")
    yield _Array("values", "key_heads * d_value", "kv")


def _mixed(architecture: Architecture) -> Iterator[_Array]:
    """The arrays that a mixture of experts keeps in addition to its input."""
    mixture = architecture.experts
    assert mixture, f"{architecture.name} has no experts"
    yield _Array("router's probabilities", "experts", "positions", 4)
    yield _Array("experts' input", "per_token * hidden", "whole")
    yield from _inside("experts' ", "per_token * expert_ffn", gated=architecture.gated)
    yield _Array("experts' output", "per_token * hidden", "positions")
    if mixture.shared:
        yield from _inside("shared ", "shared", gated=architecture.gated)
    if mixture.shared_gate:
        yield _Array("shared output", "hidden", "positions")


def _inside(of: str, size: str, *, gated: bool) -> Iterator[_Array]:
    """The arrays of an MLP that go into the nonlinearity, and into the last product."""
    for name in (["gate"] if gated else []) + ["up", "hidden"]:
        yield _Array(of + name, size)


def _numbers(architecture: Architecture, layout: Layout, sequence: int) -> Mapping[str, Any]:
    """The values of the names in the formulas of sizes."""
    latent, mixture = architecture.latent, architecture.experts
    numbers = {
        "tokens": layout.microbatch * sequence / layout.cp,
        "sequence": sequence,
        "cp": layout.cp,
        # Ulysses sends a head of keys to each device that computes heads of it.
        "copies": np.maximum(layout.cp / np.maximum(architecture.key_heads / layout.tp, 1), 1),
        "hidden": architecture.hidden,
        "heads": architecture.heads,
        "key_heads": architecture.key_heads,
        "d_key": architecture.d_key,
        "d_value": architecture.d_value,
        "ffn": architecture.d_ffn,
        "tp": layout.tp,
        "kv": np.minimum(layout.tp, architecture.key_heads),
        "positions": layout.tp if layout.sequence_parallel else 1,
        "whole": 1,
    }
    if latent:
        numbers |= {"query_rank": latent.query_rank, "rank": latent.rank}
    if mixture:
        numbers |= {"experts": mixture.count, "per_token": mixture.per_token}
        numbers |= {"expert_ffn": mixture.ffn, "shared": mixture.shared}
    return numbers


def _terms(
    arrays: Iterable[_Array],
    architecture: Architecture,
    layout: Layout,
    sequence: int,
    element_bytes: int,
) -> list[Term]:
    """The bytes of each array on one device."""
    numbers = _numbers(architecture, layout, sequence)
    return [
        make_term(
            array.name,
            f"element_bytes * tokens * {array.size} / split",
            {
                **numbers,
                "element_bytes": array.element_bytes or element_bytes,
                "split": numbers[array.split],
            },
        )
        for array in arrays
    ]
