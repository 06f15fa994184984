"""What a device holds of a model adds up to the model."""

import numpy as np
import pytest

from jaxpar.cost.models import find_model
from jaxpar.cost.shards import layer_parameters, layers_on_stage, on_device, outer_parameters
from jaxpar.layout import Layout

NAMES = ("gpt2", "llama3-8b", "bloom-176b", "mixtral-8x7b", "deepseek-v3", "qwen3-30b-a3b")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("several", [False, True])
def test_what_is_split_comes_together(name: str, several: bool) -> None:
    model = find_model(name)
    ep, tp = 4 if several and model.experts else 1, 2 if several else 1
    held = on_device(model, Layout(ep=ep, tp=tp))
    whole = layer_parameters(model, Layout(), ("none",)) + outer_parameters(
        model, Layout(), ("none",)
    )
    split = held.layers + held.outer - whole
    assert ep * tp * held.experts + tp * split + whole == model.parameters


def test_a_device_has_one_head_of_keys_at_least() -> None:
    model = find_model("llama3-8b")  # 8 of them, of size 128
    keys = [layer_parameters(model, Layout(tp=tp), ("kv",)) for tp in (1, 8, 16)]
    assert keys == [32 * 2 * 4096 * 128 * heads for heads in (8, 1, 1)]


def test_the_ends_are_apart_in_a_pipeline() -> None:
    untied, tied = find_model("llama3-8b"), find_model("gpt2")
    table = 128_256 * 4096
    assert outer_parameters(untied, Layout()) == 2 * table + 4096
    assert outer_parameters(untied, Layout(pp=2)) == table + 4096  # the last stage
    # Both have the tied table; the first positions, the last the norm.
    assert outer_parameters(tied, Layout(pp=2)) == (50_257 + 1024) * 768
    assert outer_parameters(tied, Layout()) == (50_257 + 1024 + 2) * 768


def test_the_fullest_stage_counts() -> None:
    llama, deepseek = find_model("llama3-405b"), find_model("deepseek-v3")
    assert layers_on_stage(llama, Layout(pp=16)) == (0, 8)  # 126 layers
    assert layers_on_stage(llama, Layout(pp=16, chunks=4)) == (0, 8)
    assert layers_on_stage(llama, Layout(pp=16, chunks=5)) == (0, 10)
    assert layers_on_stage(deepseek, Layout()) == (58, 3)
    experts, dense = layers_on_stage(deepseek, Layout(pp=np.array([1, 2, 16])))
    assert list(experts) == [58, 31, 4]
    assert list(dense) == [3, 0, 0]
