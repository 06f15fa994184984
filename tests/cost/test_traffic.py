"""What strategies send, as papers count it."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.models import find_model
from jaxpar.cost.traffic import Message, step_traffic
from jaxpar.cost.zero import ADAM_MIXED, States, step_wire_bytes
from jaxpar.layout import Layout

GPT3 = find_model("gpt3-175b")
LLAMA = find_model("llama3-8b")
MIXTRAL = find_model("mixtral-8x7b")
S, H = 2048, 12288


def named(messages: Iterable[Message], *names: str) -> list[Message]:
    found = [one for one in messages if one.name in names]
    assert {one.name for one in found} == set(names)
    return found


def sent(messages: Iterable[Message], layout: Layout) -> float:
    return sum(one.sent_bytes(layout) for one in messages)


def test_one_device_sends_nothing() -> None:
    for model in (GPT3, MIXTRAL):
        for zero in (0, 3):
            assert step_traffic(model, Layout(zero=zero), batch=8, sequence=S) == []


@pytest.mark.parametrize("axis", ["dp", "fsdp"])
@pytest.mark.parametrize("microbatches", [1, 4])
@pytest.mark.parametrize("n", [2, 64])
def test_zero_sends_two_or_three_times_the_parameters(axis: str, microbatches: int, n: int) -> None:
    # Rajbhandari et al. 2020, section 7: 2P, 2P, 2P and 3P elements, of 2 bytes.
    for zero, times in enumerate((2, 2, 1 + microbatches, 3 * microbatches)):
        layout = Layout(**{axis: n}, zero=zero)
        messages = step_traffic(GPT3, layout, batch=n * microbatches, sequence=S)
        total = sent(messages, layout)
        assert total == pytest.approx(times * 2 * GPT3.parameters * (n - 1) / n)
        assert total == pytest.approx(step_wire_bytes(2 * GPT3.parameters, n, zero, microbatches))


def test_gradients_may_be_sent_in_other_bytes_than_parameters() -> None:
    layout, each = Layout(dp=4, zero=1), States(2, 4, 12)
    messages = step_traffic(LLAMA, layout, batch=4, sequence=S, each=each)
    assert sent(messages, layout) == pytest.approx((2 + 4) * LLAMA.parameters * 3 / 4)


def test_stage_1_of_zero_may_sum_all_gradients_on_every_device() -> None:
    layout, each = Layout(dp=4, zero=1), States(2, 4, 12)
    messages = step_traffic(LLAMA, layout, batch=4, sequence=S, each=each, all_reduce=True)
    assert sent(messages, layout) == pytest.approx((2 + 2 * 4) * LLAMA.parameters * 3 / 4)
    of_stage_2 = step_traffic(LLAMA, Layout(dp=4, zero=2), batch=4, sequence=S, all_reduce=True)
    assert of_stage_2 == step_traffic(LLAMA, Layout(dp=4, zero=2), batch=4, sequence=S)


def test_hybrid_sharding_sums_shards_over_the_other_axis() -> None:
    # Zhao et al. 2023, section 3.2.2: within a node as FSDP does, between nodes shards only.
    layout = Layout(dp=8, fsdp=4, zero=3)
    messages = step_traffic(LLAMA, layout, batch=64, sequence=S)
    inside = [one for one in messages if one.axes == ("fsdp",)]
    between = [one for one in messages if one.axes == ("dp",)]
    assert len(inside) + len(between) == len(messages)
    assert sent(inside, layout) == pytest.approx(2 * 3 * 2 * LLAMA.parameters * 3 / 4)
    assert sent(between, layout) == pytest.approx(2 * 2 * LLAMA.parameters / 4 * 7 / 8)


def test_a_block_of_megatron_sends_12_seq_hidden_with_checkpoints() -> None:
    # Rajbhandari et al. 2020, section 8, in elements, where (n-1)/n is 1.
    layout = Layout(tp=16, remat="full")
    messages = step_traffic(GPT3, layout, batch=1, sequence=1024)
    blocks = named(messages, "layer outputs", "gradients of layer inputs")
    assert [one.times for one in blocks] == [4 * 96, 2 * 96]  # 6 all-reduces
    assert sent(blocks, layout) / 96 / 2 * 16 / 15 == 12 * 1024 * H


@pytest.mark.parametrize("t", [2, 4, 8])
@pytest.mark.parametrize("b", [1, 4])
def test_a_layer_of_ptd_p(t: int, b: int) -> None:
    # Narayanan et al. 2021, section 3.2: 8bsh(t-1)/t elements for each layer and microbatch.
    layout = Layout(tp=t, microbatch=b)
    messages = step_traffic(GPT3, layout, batch=3 * b, sequence=S)
    blocks = named(messages, "layer outputs", "gradients of layer inputs")
    assert sent(blocks, layout) / 2 == pytest.approx(3 * 96 * 8 * b * S * H * (t - 1) / t)


def test_sequence_parallelism_sends_as_much_and_gathers_once_more() -> None:
    # Korthikanti et al. 2022, section 4.2.2.
    one, other = (Layout(tp=8, sequence_parallel=on) for on in (False, True))
    plain, shared = (step_traffic(GPT3, layout, batch=1, sequence=S) for layout in (one, other))
    again = named(shared, "layer inputs again")
    blocks = named(
        shared, "layer inputs", "layer outputs", "gradients of layer outputs",
        "gradients of layer inputs",
    )  # fmt: skip
    all_reduces = named(plain, "layer outputs", "gradients of layer inputs")
    assert sent(blocks, other) == sent(all_reduces, one)
    assert sent(again, other) == sent(blocks, other) / 4
    (whole,) = named(shared, "gradients of whole parameters")
    # Norms of two vectors, the bias after attention and after the MLP; positions, the last norm.
    assert whole.operand_bytes == 2 * ((4 + 2) * 96 * H + S * H + 2 * H)


def test_what_is_recomputed_of_a_split_layer_is_gathered_again() -> None:
    times = {}
    for remat in ("none", "alternate", "full"):
        layout = Layout(tp=8, sequence_parallel=True, remat=remat)
        messages = step_traffic(LLAMA, layout, batch=1, sequence=S)
        inputs, outputs = named(messages, "layer inputs", "layer outputs")
        times[remat] = inputs.times, outputs.times
    assert times == {"none": (64, 64), "alternate": (128, 64), "full": (128, 128)}


@pytest.mark.parametrize(("chunks", "parts"), [(1, True), (1, False), (3, True)])
def test_stages_send_what_enters_the_next(chunks: int, parts: bool) -> None:
    # Narayanan et al. 2021, sections 2.2.2, 3.2 and 4.1: bsh elements, or bsh/t, chunks times.
    layout = Layout(pp=8, tp=8, chunks=chunks, microbatch=2)
    messages = step_traffic(GPT3, layout, batch=32, sequence=S, scatter_gather=parts)
    for one in named(messages, "stage outputs", "gradients of stage inputs"):
        assert one.axes == ("pp",)
        assert one.times == 16 * chunks
        assert one.operand_bytes / 2 == 2 * S * H / (8 if parts else 1)
    gathered = [one for one in messages if one.name == "what stages get"]
    assert [one.times for one in gathered] == [2 * 16 * chunks] * parts


def test_a_tied_table_is_summed_over_the_ends_of_a_pipeline() -> None:
    layout = Layout(pp=4, tp=8)
    (table,) = named(step_traffic(GPT3, layout, batch=8, sequence=S), "gradient of tied table")
    # What an all-reduce of two devices sends.
    assert sent([table], layout) == 2 * GPT3.vocab * H / 8
    untied = step_traffic(LLAMA, layout, batch=8, sequence=S)
    assert not [one for one in untied if one.name == table.name]


@pytest.mark.parametrize("context", ["zigzag", "ring", "gather"])
def test_keys_and_values_go_round(context: str) -> None:
    # MaxText, sharding guide: 4 b s kv_heads head_dim bytes in the forward pass, for all shards.
    layout = Layout(cp=16, microbatch=2, context=context)
    messages = step_traffic(LLAMA, layout, batch=2, sequence=131_072)
    keys = [one for one in messages if "keys" in one.name]
    forward = 4 * 2 * 131_072 * 8 * 128 * 15 / 16 * 32
    assert sent(keys, layout) == pytest.approx(3 * forward)  # and backward twice as much


def test_keys_that_are_made_of_a_vector_go_round_as_keys() -> None:
    # DeepSeek-V3: 128 heads; a key of 128 + 64, a value of 128.
    model = find_model("deepseek-v3")
    messages = step_traffic(model, Layout(cp=2, tp=4), batch=1, sequence=4096)
    (hop,) = named(messages, "keys and values")
    assert hop.operand_bytes == 2 * 2048 * 128 / 4 * (128 + 64 + 128)
    # Of 8 heads on 16 devices each has one.
    messages = step_traffic(LLAMA, Layout(cp=2, tp=16), batch=1, sequence=4096)
    (hop,) = named(messages, "keys and values")
    assert hop.operand_bytes == 2 * 2048 * 2 * 128


def test_recomputation_sends_again_what_the_forward_pass_does() -> None:
    def times(context: str, remat: str) -> list[float]:
        layout = Layout(cp=4, remat=remat, context=context)
        messages = step_traffic(LLAMA, layout, batch=1, sequence=S)
        return [one.times / 32 for one in messages if one.axes == ("cp",) and one.times > 1]

    assert times("ring", "none") == times("ring", "selective") == [3, 3]
    assert times("ring", "full") == [6, 3]
    assert times("ulysses", "none") == [2, 2]
    assert times("ulysses", "full") == [3, 3]
    assert times("gather", "none") == times("gather", "full") == [2, 1]


def test_a_head_of_keys_that_several_devices_need_goes_to_each() -> None:
    """LLaMA has 32 heads of 128 and 8 of keys."""
    for cp, heads in ((4, 8), (8, 8), (32, 32)):
        layout = Layout(cp=cp, context="ulysses")
        messages = step_traffic(LLAMA, layout, batch=1, sequence=S)
        (entering,) = named(messages, "queries, keys and values")
        assert entering.operand_bytes == 2 * S / cp * (32 + 2 * heads) * 128


@pytest.mark.parametrize("n", [2, 8])
def test_ulysses_sends_four_times_the_stream(n: int) -> None:
    # Jacobs et al. 2023, section 3.2: 4Nh/P elements for each layer; without its own part (P-1)/P.
    layout = Layout(cp=n, context="ulysses")
    messages = step_traffic(GPT3, layout, batch=1, sequence=65_536)
    both = named(messages, "queries, keys and values", "attended values")
    forward = sent(both, layout) / 96 / 2
    assert forward / 2 == pytest.approx(4 * 65_536 * H / n * (n - 1) / n)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_every_token_goes_to_its_experts_and_back(sequence_parallel: bool) -> None:
    model = find_model("deepseek-v3")
    layout = Layout(ep=8, tp=2, sequence_parallel=sequence_parallel)
    messages = step_traffic(model, layout, batch=16, sequence=4096)
    there, back = named(messages, "tokens to experts and back", "their gradients")
    copies = 4096 * 8 / (2 if sequence_parallel else 1)
    assert there.operand_bytes == back.operand_bytes == copies * 7168 * 2
    assert there.times == back.times == 2 * 2 * 58
    gradients, outer = named(messages, "gradients", "outer gradients")
    assert gradients.axes == outer.axes == ("ep",)
    assert not [one for one in messages if one.name == "expert gradients"]  # nobody has the same


@pytest.mark.parametrize(("name", "blocks"), [("mixtral-8x7b", 1), ("qwen3-30b-a3b", 1),
                                              ("deepseek-v3", 2)])  # fmt: skip
def test_tokens_of_an_expert_come_together_over_tp(name: str, blocks: int) -> None:
    # Megatron-LM, MoEAlltoAllTokenDispatcher: all-to-all over ep, then all-gather over tp; a shared
    # expert gathers its input as an MLP does.
    model, layout = find_model(name), Layout(ep=8, tp=4, sequence_parallel=True)
    assert model.experts
    messages = step_traffic(model, layout, batch=8, sequence=S)
    (stream,) = named(messages, "layer inputs")
    assert stream.times == blocks * model.expert_layers + 2 * model.dense_layers
    there, back = named(messages, "expert inputs", "gradients of expert outputs")
    out, gradients = named(messages, "expert outputs", "gradients of expert inputs")
    for one in (there, back, out, gradients):
        assert one.times == model.expert_layers
    assert (
        there.operand_bytes
        == back.operand_bytes
        == model.experts.per_token * (stream.operand_bytes)
    )
    assert out.operand_bytes == gradients.operand_bytes == 4 * there.operand_bytes


def test_experts_are_summed_over_fewer_devices() -> None:
    layout = Layout(dp=4, ep=8, cp=2, zero=1)
    messages = step_traffic(MIXTRAL, layout, batch=32, sequence=S)
    dense, experts = named(messages, "gradients", "expert gradients")
    assert dense.axes == ("dp", "ep", "cp")
    assert experts.axes == ("dp", "cp")
    assert experts.operand_bytes == 2 * 32 * 3 * 4096 * 14336
    (new,) = named(messages, "new expert parameters")
    assert new.operand_bytes == experts.operand_bytes / 8


def test_blocks_that_share_a_norm_share_a_sum() -> None:
    # Chowdhery et al. 2022 (PaLM), section 2: attention and MLP beside each other.
    layout = Layout(tp=4)
    for name, sums in (("palm-540b", 1), ("gpt-neox-20b", 2)):
        model = find_model(name)
        (outputs,) = named(step_traffic(model, layout, batch=1, sequence=S), "layer outputs")
        assert outputs.times == sums * model.layers, name


def test_few_heads_of_keys_are_held_by_several() -> None:
    (shared,) = named(
        step_traffic(LLAMA, Layout(tp=16), batch=1, sequence=S), "gradients of shared heads"
    )
    assert shared.operand_bytes == 2 * 32 * 2 * 4096 * 128
    assert not [one for one in step_traffic(LLAMA, Layout(tp=8), batch=1, sequence=S)
                if one.name == shared.name]  # fmt: skip


def test_formulas_are_what_is_computed() -> None:
    layout = Layout(pp=2, dp=2, tp=4, microbatch=2)
    (outputs,) = named(step_traffic(LLAMA, layout, batch=16, sequence=8192), "layer outputs")
    assert outputs.operand.filled == "2*8,192/1*4,096*2"
    assert outputs.count.filled == "4*32*1"
    assert outputs.hides is None


@given(
    st.lists(st.tuples(*[st.sampled_from([1, 2, 4])] * 8), min_size=2, max_size=4),
    st.sampled_from([0, 1, 2, 3]),
    st.booleans(),
    st.sampled_from(["none", "full"]),
    st.sampled_from([GPT3, MIXTRAL, find_model("deepseek-v3")]),
)
@settings(max_examples=40, deadline=None)
def test_many_layouts_at_once_send_what_each_does(
    rows: list[tuple[int, ...]], zero: int, shared: bool, remat: str, model: Architecture
) -> None:
    names = ("pp", "dp", "fsdp", "ep", "cp", "tp", "chunks", "microbatch")
    if any(row[2] > 1 for row in rows):
        rows = [(*row[:2], max(row[2], 2), *row[3:]) for row in rows]  # an axis that all have
    plain = {"zero": zero, "remat": remat, "sequence_parallel": shared}
    columns = {name: np.array([row[i] for row in rows]) for i, name in enumerate(names)}
    many = Layout(**columns, **plain)
    together = step_traffic(model, many, batch=256, sequence=4096)
    sums = sum(np.broadcast_to(one.sent_bytes(many), len(rows)) for one in together)
    for i, row in enumerate(rows):
        layout = Layout(**dict(zip(names, row, strict=True)), **plain)
        alone = step_traffic(model, layout, batch=256, sequence=4096, each=ADAM_MIXED)
        assert np.broadcast_to(sums, len(rows))[i] == pytest.approx(sent(alone, layout))
