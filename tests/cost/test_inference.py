"""What inference holds: published caches, weights by bits, and how devices split them."""

from typing import Any

import pytest

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.inference import inference_memory, kv_cache_bytes, rule_of_thumb
from jaxpar.cost.models import find_model
from jaxpar.cost.terms import total

# Bytes for each token in 16 bits. Published, as reported by others: DeepSeek-V3, Qwen2.5 and Llama
# 3.1 405B in Zhao et al. 2025, Insights into DeepSeek-V3, table 1 (70.272, 327.680, 516.096 KB);
# OPT in Kwon et al. 2023, PagedAttention, section 3 (800 KB, of 1,024 bytes).
PER_TOKEN = {
    "llama3-8b": 131_072,
    "llama3-70b": 327_680,
    "llama3-405b": 516_096,
    "qwen2.5-72b": 327_680,
    "deepseek-v3": 70_272,
    "opt-13b": 800 * 1024,
    "mixtral-8x7b": 131_072,
    "palm-540b": 2 * 118 * 256 * 2,  # one head for all queries
}
# 3 layers, 4 heads of 8, 2 of keys, an MLP of 80
TINY = Architecture("tiny", 3, 32, 4, 100, kv_heads=2, ffn=80, gated=True)


def held(architecture: Architecture, **given: Any) -> dict[str, float]:
    terms = inference_memory(architecture, **({"batch": 1, "sequence": 1} | given))
    return {term.name: float(term.value) for term in terms}


@pytest.mark.parametrize("name", PER_TOKEN)
def test_a_cached_token_takes_what_is_published(name: str) -> None:
    assert held(find_model(name))["kv_cache"] == PER_TOKEN[name]


def test_the_cache_grows_with_examples_and_tokens() -> None:
    llama = find_model("llama3-8b")
    assert held(llama, batch=4, sequence=8192)["kv_cache"] == 4 * 2**30
    assert held(llama, batch=4, sequence=8192, cache_bits=8)["kv_cache"] == 2 * 2**30
    assert kv_cache_bytes(4, 8192, 32, 8, 128, element_bytes=2) == 4 * 2**30
    assert kv_cache_bytes(1, 1, 32, 8, 128, element_bytes=0.5) == 131_072 / 4


def test_heads_of_keys_are_split_until_each_device_has_one() -> None:
    llama = find_model("llama3-70b")
    fractions = [held(llama, tp=tp)["kv_cache"] * tp / 327_680 for tp in (1, 2, 8, 16, 64)]
    assert fractions == [1, 1, 1, 2, 8]
    assert [held(find_model("deepseek-v3"), tp=tp)["kv_cache"] for tp in (1, 8)] == [70_272] * 2


def test_the_fullest_stage_counts() -> None:
    llama = find_model("llama3-405b")  # 126 layers: at most 32 on one of 4 stages
    assert held(llama, pp=4)["kv_cache"] == 516_096 * 32 / 126
    ends = [held(llama, pp=126)["parameters"], held(llama, pp=2)["parameters"]]
    layer = 16_384 * (2 * 16_384 + 2 * 1024 + 3 * 53_248 + 2)
    outside = 128_256 * 16_384 + 16_384  # the head, and the norm before it
    assert ends == [2 * (layer + outside), 2 * (63 * layer + outside)]


@pytest.mark.parametrize(("bits", "each"), [(16, 2), (8, 1), (4, 0.5)])
def test_weights_take_their_bits(bits: int, each: float) -> None:
    llama = find_model("llama3-8b")
    assert held(llama, weight_bits=bits)["parameters"] == each * 8_030_261_248
    experts = find_model("deepseek-v3")
    assert held(experts, weight_bits=bits)["parameters"] == each * experts.parameters


def test_scales_make_the_blocks_of_llama_cpp() -> None:
    """ggml-common.h: of 32 weights, block_q4_0 has 18 bytes, block_q8_0 34."""
    for bits, block_bytes in ((4, 18), (8, 34)):
        got = held(TINY, weight_bits=bits, group=32)
        assert got["parameters"] + got["scales"] == TINY.parameters * block_bytes / 32
    assert "scales" not in held(TINY, weight_bits=4)


def test_activations_are_those_of_a_prompt_or_of_a_token_of_each_example() -> None:
    mlp, token = 3 * 80, 2 * 2 * 32
    assert held(TINY, batch=2, sequence=50)["activations"] == 50 * (token + 2 * mlp)
    assert held(TINY, batch=70, sequence=50)["activations"] == 70 * (token + 2 * mlp)
    assert held(TINY, sequence=50, tp=2)["activations"] == 50 * (token + mlp)
    wide = Architecture("wide", 1, 32, 4, 100, ffn=8)
    assert held(wide, sequence=50)["activations"] == 50 * (token + 2 * 4 * 32)
    assert held(TINY, batch=7)["logits"] == 7 * 100 * 4


def test_experts_take_copies_of_their_tokens() -> None:
    mixtral = find_model("mixtral-8x7b")
    inside = 2 * 4096 + 2 * 3 * 14_336
    assert held(mixtral, sequence=10)["activations"] == 10 * 2 * (2 * 4096 + inside)
    deepseek = find_model("deepseek-v3")
    inside = 8 * 7168 + 3 * (8 * 2048 + 2048)
    attention = 128 * (2 * 192 + 2 * 128)
    widest = max(inside, attention, 3 * 18_432)
    assert held(deepseek, sequence=10)["activations"] == 10 * 2 * (2 * 7168 + widest)


def test_the_rule_of_thumb_is_a_fifth_more_than_the_weights() -> None:
    terms = rule_of_thumb(7e9)
    assert [term.name for term in terms] == ["parameters", "overhead"]
    assert total(terms) == pytest.approx(1.2 * 14e9, rel=1e-15)
    assert total(rule_of_thumb(7e9, weight_bits=4)) == pytest.approx(1.2 * 3.5e9, rel=1e-15)


def test_wrong_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="kv_heads is 0; use a number above 0"):
        kv_cache_bytes(1, 1, 1, 0, 1, element_bytes=2)
    with pytest.raises(ValueError, match="element_bytes is -2"):
        kv_cache_bytes(1, 1, 1, 1, 1, element_bytes=-2)
