"""What adapters change in memory, traffic and time of a model that is too large to train here."""

import pytest

from jaxpar.cost.adapters import BLOCK, adapter_of, adapter_states, read_adapter
from jaxpar.cost.hardware import find_cluster
from jaxpar.cost.memory import training_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.step import step_terms
from jaxpar.cost.traffic import step_traffic
from jaxpar.cost.zero import ADAM_MIXED
from jaxpar.layout import Layout

LLAMA = find_model("llama3-8b")
ADAPTERS = 32 * 81_920  # of each rank, on the 7 matrices of 32 layers
LORA = adapter_states(LLAMA, ADAM_MIXED, rank=16)
QLORA = adapter_states(LLAMA, ADAM_MIXED, rank=16, base_bits=4)


def held(each: object, **layout: object) -> dict[str, float]:
    terms = training_memory(LLAMA, Layout(**layout), sequence=2048, batch=64, each=each)
    return {term.name: float(term.value) for term in terms}


def test_only_adapters_have_gradients_and_moments() -> None:
    assert adapter_of(LLAMA, method="lora", rank=16) == 16 * ADAPTERS
    full, lora = held(ADAM_MIXED), held(LORA)
    assert lora["parameters"] == pytest.approx(full["parameters"] + 2 * 16 * ADAPTERS)
    assert lora["gradients"] == pytest.approx(2 * 16 * ADAPTERS)
    assert lora["optimizer"] == pytest.approx(12 * 16 * ADAPTERS)
    assert lora["activations"] == full["activations"]
    assert "decoded" not in lora


def test_a_base_in_4_bits_has_scales_and_one_layer_as_numbers() -> None:
    qlora = held(QLORA)
    matrices = 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14_336)
    others = LLAMA.parameters - matrices
    expected = matrices * (1 / 2 + 4 / BLOCK) + 2 * others + 2 * 16 * ADAPTERS
    assert qlora["parameters"] == pytest.approx(expected)
    assert qlora["decoded"] == pytest.approx(2 * (matrices / 32 + 2 * 4096))
    assert qlora["activations"] == held(LORA)["activations"]


def test_devices_send_gradients_of_adapters_alone() -> None:
    layout = Layout(dp=8)
    messages = step_traffic(LLAMA, layout, batch=64, sequence=2048, each=LORA)
    sent = sum(float(one.sent_bytes(layout)) for one in messages)
    assert sent == pytest.approx(2 * 7 / 8 * 2 * 16 * ADAPTERS)


def test_fsdp_gathers_twice_and_scatters_next_to_nothing() -> None:
    layout = Layout(fsdp=8, zero=3, remat="full")

    def sent(each: object) -> float:
        messages = step_traffic(LLAMA, layout, batch=8, sequence=2048, each=each)
        return float(sum(one.sent_bytes(layout) for one in messages))

    assert sent(LORA) / sent(ADAM_MIXED) == pytest.approx(2 / 3, rel=0.01)


def test_products_find_no_gradients_of_frozen_weights() -> None:
    def seconds(each: object) -> dict[str, float]:
        terms = step_terms(LLAMA, Layout(), find_cluster("h100"), batch=8, sequence=2048, each=each)
        return {term.name: float(term.value) for term in terms}

    full, lora = seconds(ADAM_MIXED), seconds(LORA)
    assert lora["products"] == pytest.approx(2 / 3 * full["products"])
    assert lora["attention"] == full["attention"]
    assert lora["optimizer"] < 0.01 * full["optimizer"]


@pytest.mark.parametrize("name", ["lora", "lora:0", "lora:-1", "lora:x", "dora:4", ""])
def test_other_adapters_are_refused(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"x: --adapter is .*; use lora and a rank, such as lora:1"
    ):
        read_adapter("x", name, None)


@pytest.mark.parametrize(
    ("name", "bits", "line"),
    [
        (None, 4, "--base-bits 4 without --adapter"),
        ("lora:4", 3, "--base-bits is 3; use 8 or 4"),
    ],
)
def test_other_bases_are_refused(name: str | None, bits: int, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        read_adapter("x", name, bits)


def test_the_name_has_the_rank() -> None:
    assert read_adapter("x", "lora:16", 4) == (16, 4)
    assert read_adapter("x", None, None) == (0, None)
