"""Parameters of decoders: counted by hand, and against every published count."""

from dataclasses import replace

import pytest

from jaxpar.cost.architecture import Architecture, Experts, Latent, Part
from jaxpar.cost.models import ALIASES, MODELS, find_model, from_sizes

LATENT = Latent(query_rank=24, rank=16, rotary=8, value=20)


def test_the_parts_of_a_gpt_by_hand() -> None:
    gpt = Architecture("gpt", 2, 12, 3, 50, positions=7, tied=True, norm="layer", biases="all")
    assert gpt.layer_parts(experts=False) == (
        Part("queries", 12 * 12 + 12, "tp"),
        Part("keys and values", 2 * (12 * 12 + 12), "kv"),
        Part("attention output", 12 * 12, "tp"),
        Part("attention output bias", 12, "none"),
        Part("mlp", 2 * 12 * 48 + 48, "tp"),
        Part("mlp output bias", 12, "none"),
        Part("norms", 2 * 2 * 12, "none"),
    )
    assert gpt.outer_parts == (
        Part("embedding", 50 * 12, "tp"),
        Part("positions", 7 * 12, "none"),
        Part("final norm", 2 * 12, "none"),
    )
    assert gpt.parameters == gpt.active_parameters == 2 * (12 * 12**2 + 13 * 12) + 59 * 12


def test_the_parts_of_latent_attention_and_of_experts_by_hand() -> None:
    experts = Experts(
        5, per_token=2, ffn=6, shared=9, shared_gate=True, dense_layers=1, router_bias=True
    )
    moe = Architecture(
        "moe", 3, 12, 2, 50, head_size=10, ffn=30, gated=True, experts=experts, latent=LATENT
    )
    attention = (
        Part("query compression", 12 * 24 + 24, "none"),
        Part("queries", 24 * 2 * (10 + 8), "tp"),
        Part("key compression", 12 * (16 + 8) + 16, "none"),
        Part("keys and values", 16 * 2 * (10 + 20), "tp"),
        Part("attention output", 2 * 20 * 12, "tp"),
    )
    assert moe.layer_parts(experts=True) == (
        *attention,
        Part("router", (12 + 1) * 5, "none"),
        Part("experts", 5 * 3 * 12 * 6, "ep"),
        Part("shared expert", 3 * 12 * 9, "tp"),
        Part("shared expert gate", 12, "none"),
        Part("norms", 2 * 12, "none"),
    )
    mlp = (Part("mlp", 3 * 12 * 30, "tp"), Part("norms", 24, "none"))
    assert moe.layer_parts(experts=False) == (*attention, *mlp)
    assert (moe.dense_layers, moe.expert_layers) == (1, 2)
    assert moe.parameters - moe.active_parameters == 2 * (5 - 2) * 3 * 12 * 6
    whole = replace(moe, latent=replace(LATENT, query_rank=0)).layer_parts(experts=True)
    assert whole[0] == Part("queries", 12 * 2 * (10 + 8), "tp")


@pytest.mark.parametrize("name", MODELS)
def test_a_preset_has_as_many_parameters_as_published(name: str) -> None:
    model = MODELS[name]
    assert model.source
    if isinstance(model.count, int):
        assert model.architecture.parameters == model.count
        return
    number, unit = float(model.count[:-1]), {"M": 1e6, "B": 1e9, "T": 1e12}[model.count[-1]]
    last_digit = 10.0 ** -len(model.count[:-1].partition(".")[2])
    if model.family == "gpt3" and number > 1000:
        last_digit = 10  # millions, in table D.1
    # Some papers cut digits off.
    assert abs(model.architecture.parameters / unit - number) < last_digit


def test_active_parameters_are_those_that_papers_print() -> None:
    """Billions: Mixtral, DeepSeek-V2 and V3, Qwen2 and 3; embeddings count, but for V3's 37."""
    printed = {
        "mixtral-8x7b": (13, 0.5),
        "mixtral-8x22b": (39, 0.5),
        "deepseek-v2": (21, 0.5),
        "deepseek-v3": (37, 0.6),
        "qwen2-57b-a14b": (14, 0.5),
        "qwen3-30b-a3b": (3.3, 0.06),
        "qwen3-235b-a22b": (22, 0.5),
        "kimi-k2": (32, 0.9),
    }
    for name, (billions, within) in printed.items():
        assert abs(find_model(name).active_parameters / 1e9 - billions) < within


def test_spellings_and_other_names() -> None:
    for spelling in ("Llama-3-8B", "meta-llama/Llama-3-8B", "LLAMA3_8B", "llama 3.1 8b"):
        assert find_model(spelling).name == "llama3-8b"
    assert (find_model("opt-13b").layers, find_model("opt-1.3b").layers) == (40, 24)
    for name in MODELS:
        assert find_model(name.upper()).name == name
    for alias, name in ALIASES.items():
        assert find_model(alias) is MODELS[name].architecture


def test_an_unknown_model_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ValueError, match=r"model 'lama3-8b' is unknown; nearest: llama3-8b, .*gpt2"
    ):
        find_model("lama3-8b")
    with pytest.raises(ValueError, match="model 'bert' is unknown; the name of a family lists"):
        find_model("bert")
    with pytest.raises(ValueError, match="several sizes; use one of llama3-8b, llama3-70b, "):
        find_model("llama-3")


def test_sizes_of_ones_own_are_a_gpt_or_a_llama() -> None:
    gpt2 = find_model("gpt2")
    own = from_sizes(layers=12, hidden=768, heads=12)
    assert own.parameters == gpt2.parameters - 1024 * 768  # no table of positions
    llama = from_sizes(
        layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256, gated=True
    )
    assert replace(llama, name="llama3-8b") == find_model("llama3-8b")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"layers": 0}, "small: layers is 0; use a whole number from 1 to 10,000"),
        ({"layers": 10_001}, "small: layers is 10001; use a whole number from 1 to 10,000"),
        ({"hidden": 12.0}, "small: hidden is 12.0; use a whole number"),
        ({"heads": 5}, "heads is 5, which does not divide hidden, 12; the nearest that does is 4"),
        ({"kv_heads": 4}, "kv_heads is 4, which does not divide heads, 6; the nearest .* is 3"),
        ({"ffn": -1}, "ffn is -1"),
        ({"norms": 3}, "norms is 3; use 1, 2 or 4"),
        ({"norm": "layer", "fused_norms": False}, "norm is 'layer'; only an 'rms' norm is known"),
        ({"latent": LATENT}, "latent attention without a head_size"),
        ({"latent": LATENT, "head_size": 2, "biases": "qkv"}, "latent attention with biases 'qkv'"),
        ({"experts": Experts(4, 2, 8), "biases": "all"}, "experts with biases 'all'"),
        ({"experts": Experts(4, 2, 8, dense_layers=3)}, "3 dense_layers; there are 2 layers"),
    ],
)
def test_sizes_that_no_decoder_has_are_refused(fields: dict, message: str) -> None:
    sizes = {"layers": 2, "hidden": 12, "heads": 6, "vocab": 50} | fields
    with pytest.raises(ValueError, match=message):
        Architecture("small", **sizes)


def test_parts_that_none_has_are_refused() -> None:
    with pytest.raises(ValueError, match="per_token is 5; there are 4 experts; use 4 at most"):
        Experts(4, per_token=5, ffn=8)
    with pytest.raises(ValueError, match="experts: count is 0"):
        Experts(0, per_token=1, ffn=8)
    with pytest.raises(ValueError, match="latent: rank is 0"):
        Latent(query_rank=0, rank=0, rotary=8, value=8)
