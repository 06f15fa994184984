"""What a layer keeps against Korthikanti et al. 2022, and for other kinds of layers by hand."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpar.cost.activations import activation_bytes
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.kept import decoder_arrays, layer_arrays, outer_arrays
from jaxpar.cost.models import find_model
from jaxpar.cost.terms import total
from jaxpar.layout import Layout

GPT = Architecture("GPT", 1, 64, 8, 51200, norm="layer", dropout=True)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 4), st.integers(1, 64), st.integers(1, 8), st.sampled_from([1, 2, 4, 8]))
def test_table_2(b: int, s: int, per_head: int, t: int) -> None:
    a = 8
    h = a * per_head
    rows = {
        ("none", False): s * b * h * (10 + 24 / t) + 5 * a * s * s * b / t,
        ("none", True): (34 * s * b * h + 5 * a * s * s * b) / t,
        ("selective", False): s * b * h * (10 + 24 / t),
        ("selective", True): 34 * s * b * h / t,
        ("full", False): 2 * s * b * h,
        # The paper has no such row; in Megatron-LM each device keeps its positions of the input.
        ("full", True): 2 * s * b * h / t,
    }
    for (remat, sequence_parallel), expected in rows.items():
        way: dict[str, Any] = {"remat": remat, "sequence_parallel": sequence_parallel}
        layout = Layout(tp=t, microbatch=b, **way)
        kept = total(
            layer_arrays(replace(GPT, hidden=h, heads=a), layout, sequence=s, experts=False)
        )
        assert kept == pytest.approx(expected, rel=1e-12)
        if (remat, sequence_parallel) != ("full", True):
            of_layers = activation_bytes(b, s, h, a, 3, tp=t, **way)
            assert of_layers == pytest.approx(3 * expected, rel=1e-12)


def test_unknown_remat() -> None:
    with pytest.raises(ValueError, match="remat is 'half'; use one of none, selective, full"):
        activation_bytes(1, 1, 1, 1, 1, tp=1, sequence_parallel=False, remat="half")


def test_parts_of_a_layer() -> None:
    """Section 4.1: attention 11sbh + 5as^2b, the MLP 19sbh, two norms 4sbh."""
    s, b, h, a = 32, 2, GPT.hidden, GPT.heads
    arrays = layer_arrays(GPT, Layout(microbatch=b), sequence=s, experts=False)
    kept = {array.name: array.value for array in arrays}
    mlp = total(
        array for array in arrays if array.name in ("mlp input", "up", "hidden", "mlp mask")
    )
    assert mlp == 19 * s * b * h
    norms = kept["layer input"] + kept["stream"]
    assert norms == 4 * s * b * h
    assert total(arrays) - mlp - norms == 11 * s * b * h + 5 * a * s * s * b
    assert len(kept) == len(arrays)


def per_token(model: Architecture, layout: Layout, *, experts: bool) -> float:
    """The number of 16-bit elements that a layer keeps of each token."""
    return total(layer_arrays(model, layout, sequence=1, experts=experts)) / 2


def test_other_layers_by_hand() -> None:
    selective = Layout(remat="selective")
    # Two inputs of norms, of attention and the MLP; queries, what is attended; keys and values of
    # 8 heads; gate, up and hidden.
    llama = per_token(find_model("llama3-8b"), selective, experts=False)
    assert llama == 4 * 4096 + 2 * 4096 + 2 * 8 * 128 + 3 * 14336
    # The same, but with two experts, what goes into them and comes of them, and probabilities of
    # eight in 32 bits.
    mixtral = per_token(find_model("mixtral-8x7b"), selective, experts=True)
    assert mixtral == 4 * 4096 + 2 * 4096 + 2 * 8 * 128 + 2 * (3 * 14336 + 2 * 4096) + 2 * 8
    # Queries and keys of 128 + 64 for each of 128 heads, values and what is attended of 128, made
    # of 1536 and 512, before and after norms; eight experts and one that is shared, of 2048.
    deepseek = per_token(find_model("deepseek-v3"), selective, experts=True)
    attention = 128 * (2 * 192 + 2 * 128) + 2 * (1536 + 512)
    experts = 8 * (3 * 2048 + 2 * 7168) + 3 * 2048 + 2 * 256
    assert deepseek == 4 * 7168 + attention + experts
    # A norm after each block, too, whose inputs are what the blocks give.
    gemma = find_model("gemma2-9b")
    fewer = per_token(replace(gemma, norms=2), selective, experts=False)
    assert per_token(gemma, selective, experts=False) == fewer + 2 * gemma.hidden
    # One norm before both blocks: no stream between them.
    parallel = per_token(replace(gemma, norms=1), selective, experts=False)
    assert parallel == fewer - 2 * gemma.hidden


def test_half_of_the_products_by_hand() -> None:
    # Inputs of two norms, queries, what is attended, values of 8 heads, the gate.
    kept = per_token(find_model("llama3-8b"), Layout(remat="alternate"), experts=False)
    assert kept == 4 * 4096 + 8 * 128 + 14336


def test_norms_of_several_kernels_keep_more() -> None:
    # Each keeps its input in float32 in place of 16 bits, and what its weight multiplies.
    for name, norms in (("llama3-8b", 2), ("gemma2-9b", 4)):
        model = find_model(name)
        apart = replace(model, fused_norms=False)
        for remat, more in (("selective", 2 * norms * model.hidden), ("full", 0)):
            layout = Layout(tp=4, remat=remat, sequence_parallel=True)
            kept = [per_token(each, layout, experts=False) for each in (apart, model)]
            assert kept[0] - kept[1] == more / 4


def test_what_each_device_keeps_of_a_split_layer() -> None:
    model = find_model("llama3-8b")
    one = per_token(model, Layout(remat="selective"), experts=False)
    way = Layout(tp=16, remat="selective", sequence_parallel=True)
    kv = 2 * 8 * 128  # of 8 heads, so that two of 16 devices have the same
    assert per_token(model, way, experts=False) == (one - kv) / 16 + kv / 8
    # Every device of tp gets what goes to an expert whole.
    mixtral = find_model("mixtral-8x7b")
    one = per_token(mixtral, Layout(remat="selective"), experts=True)
    input_of_experts = 2 * 4096
    way = replace(way, tp=8)
    assert per_token(mixtral, way, experts=True) == (one - input_of_experts) / 8 + input_of_experts
    # Context parallelism splits positions, also of queries, but each query meets every key.
    for cp in (1, 4):
        arrays = layer_arrays(GPT, Layout(cp=cp), sequence=64, experts=False)
        assert {a.name: a.value for a in arrays}["softmax"] == 2 * 8 * 64 * 64 / cp


@pytest.mark.parametrize("name", ["llama3-8b", "mixtral-8x7b", "deepseek-v3"])
def test_fused_attention_keeps_no_scores(name: str) -> None:
    """Models without dropout have it, so "none" and "selective" are the same for them."""
    model = find_model(name)
    experts = model.expert_layers > 0
    none, selective, full = (
        layer_arrays(model, Layout(remat=remat), sequence=64, experts=experts)
        for remat in ("none", "selective", "full")
    )
    assert none == selective and total(full) < total(none)
    older = layer_arrays(replace(model, dropout=True), Layout(), sequence=64, experts=experts)
    assert {a.name for a in older} > {a.name for a in none} | {"softmax", "softmax dropped"}


def test_dropout_inside_one_kernel_keeps_masks_of_the_stream_alone() -> None:
    layout = Layout(microbatch=2)
    sizes = {"sequence": 64, "experts": False}
    older = layer_arrays(GPT, layout, **sizes)
    kept = layer_arrays(replace(GPT, fused_dropout=True), layout, **sizes)
    scores = {"softmax", "softmax mask", "softmax dropped"}
    assert [array for array in older if array.name not in scores] == kept


def test_before_and_after_the_layers() -> None:
    first, last = outer_arrays(GPT, Layout(microbatch=2), sequence=8)
    assert (total(first), total(last)) == (2 * 8 * 64, 2 * 2 * 2 * 8 * 64)
    normed = replace(GPT, embedding_norm=True, dropout=False)
    first, _ = outer_arrays(normed, Layout(tp=4), sequence=8)
    assert total(first) == 2 * 8 * 64


def test_our_decoder_keeps_what_the_paper_says_but_for_dropout() -> None:
    """The other kinds are held against compiled steps."""
    b, s, h = 2, 16, 64
    model = replace(GPT, dropout=False)
    for remat, expected in (("selective", 2 * (34 - 2) * s * b * h), ("full", 4 * s * b * h)):
        kept = decoder_arrays(model, Layout(microbatch=b, remat=remat), sequence=s)
        assert total(kept) == expected
