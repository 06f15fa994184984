"""Counts of adapters are those that papers and programs print."""

from typing import Any

import pytest

from jaxpar.cost.adapters import adapter_of, adapter_parameters
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.models import find_model


@pytest.mark.parametrize(
    ("model", "rank", "parameters"),
    [
        ("llama3-8b", 16, 41_943_040),  # peft's print_trainable_parameters, all linear layers
        ("llama2-7b", 16, 39_976_960),  # the same
        ("mistral-7b", 16, 41_943_040),  # the same
        ("llama3-70b", 16, 207_093_760),
    ],
)
def test_lora_of_all_matrices(model: str, rank: int, parameters: int) -> None:
    assert adapter_of(find_model(model), method="lora", rank=rank) == parameters


def test_a_prefix_of_gpt2_medium_is_a_tenth_of_a_percent() -> None:
    """Li and Liang 2021, abstract: "learning only 0.1% of the parameters"."""
    gpt2 = find_model("gpt2-medium")
    prefix = adapter_of(gpt2, method="prefix", prefix=10)
    assert prefix == 2 * 24 * 10 * 1024
    assert round(100 * prefix / gpt2.parameters, 1) == 0.1
    assert adapter_of(gpt2, method="p_tuning_v2", prefix=10) == prefix


def test_prompts_of_t5_xxl() -> None:
    """Lester et al. 2021, section 1: 20,480 parameters, a prompt of 5 tokens for T5 XXL."""
    xxl = Architecture("t5-xxl", layers=24, hidden=4096, heads=64, vocab=32_128)
    assert adapter_of(xxl, method="prompt", prefix=5) == 20_480


@pytest.mark.parametrize(
    ("sizes", "percent", "parameters"),
    [((12, 768, 12, 12, 64, 3072), 0.09, 110e6), ((24, 1024, 16, 16, 64, 4096), 0.08, 340e6)],
    ids=["base", "large"],
)
def test_biases_of_bert(sizes: tuple[int, ...], percent: float, parameters: float) -> None:
    """Ben Zaken et al. 2022, section 4: 0.09% of BERT base, and 0.08% of BERT large.

    BERT has a norm after the embeddings, and none after the last layer: the same number.
    """
    how = {"gated": False, "biases": True, "rank": 1, "prefix": 1}
    biases = adapter_parameters(*sizes, method="bitfit", **how)
    assert round(100 * biases / parameters, 2) == percent


def test_biases_are_those_of_the_architecture() -> None:
    """A model with all its biases has as many parameters more than the same without."""
    for norm, gated in (("layer", False), ("layer", True)):
        sizes: dict[str, Any] = {"layers": 3, "hidden": 12, "heads": 4, "vocab": 7, "kv_heads": 2}
        how = sizes | {"ffn": 20, "gated": gated}
        biased = Architecture("biased", norm=norm, biases="all", **how)
        plain = Architecture("plain", norm="rms", biases="none", **how)
        found = adapter_of(biased, method="bitfit")
        assert found == biased.parameters - plain.parameters


def test_llama_has_no_biases() -> None:
    assert adapter_of(find_model("llama3-8b"), method="bitfit") == 0


@pytest.mark.parametrize("model", ["mixtral-8x7b", "deepseek-v3"])
def test_other_layers_are_refused(model: str) -> None:
    with pytest.raises(ValueError, match="has experts"):
        adapter_of(find_model(model), method="lora")


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method is 'ia3'; use one of lora, prefix"):
        adapter_of(find_model("gpt2"), method="ia3")
