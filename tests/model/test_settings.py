import functools
import json
from dataclasses import asdict, replace
from typing import Any

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpar.model import Settings, init
from jaxpar.nn import RopeScaling


@settings(max_examples=15, deadline=None)
@given(
    st.builds(
        Settings,
        vocabulary=st.integers(1, 9),
        layers=st.integers(1, 3),
        d_model=st.sampled_from([8, 24]),
        heads=st.sampled_from([2, 4]),
        kv_heads=st.sampled_from([None, 1, 2]),
        d_ff=st.sampled_from([None, 5]),
        norm=st.sampled_from(["rms", "layer"]),
        positions=st.sampled_from(["rotary", "learned"]),
        mlp=st.sampled_from(["swiglu", "gelu"]),
        tied=st.booleans(),
        sequence=st.integers(1, 5),
        biases=st.sampled_from(["none", "qkv", "attention", "all"]),
    )
    | st.builds(
        Settings,
        d_model=st.just(8),
        heads=st.just(2),
        experts=st.integers(2, 5),
        shared_experts=st.integers(0, 2),
        balance=st.sampled_from(["loss", "bias", "none"]),
        biases=st.sampled_from(["none", "qkv", "attention"]),
    )
)
def test_parameters_are_counted_exactly(sizes: Settings) -> None:
    params = jax.eval_shape(functools.partial(init, sizes), jax.random.key(0))
    assert sizes.parameters == sum(leaf.size for leaf in jax.tree.leaves(params))


def test_the_default_has_three_million_parameters() -> None:
    assert 3.0e6 < Settings().parameters < 3.5e6


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layers": 0}, "Settings: layers is 0; use 1 or more"),
        ({"d_ff": 0}, "Settings: d_ff is 0; use 1 or more"),
        ({"norm": "batch"}, "Settings: norm is 'batch'; use 'rms' or 'layer'"),
        ({"balance": "luck"}, "balance is 'luck'; use 'loss' or 'bias' or 'none'"),
        ({"experts": -1}, "experts is -1; use 0 or more"),
        ({"experts": 4, "shared_experts": -1}, "shared_experts is -1; use 0 or more"),
        ({"shared_experts": 1}, "shared_experts is 1 without experts; use experts of 1 or more"),
        ({"balance": "bias"}, "balance is bias without experts; use experts of 1 or more, or leav"),
        ({"experts": 4, "mlp": "gelu"}, "experts with mlp 'gelu'; experts are gated; use 'swiglu'"),
        ({"experts": 4, "top_k": 5}, "top_k is 5 of 4 experts; use 1 to 4"),
        ({"experts": 4, "top_k": 0}, "top_k is 0 of 4 experts; use 1 to 4"),
        ({"experts": 4, "capacity_factor": 0.0}, "capacity_factor is 0.0; use a number above 0"),
        (
            {"experts": 4, "biases": "all"},
            "experts with biases 'all'; experts have none; use",
        ),
        ({"norm_epsilon": 0.0}, "norm_epsilon is 0.0; use a number above 0"),
        ({"rope_theta": -1.0}, "rope_theta is -1.0; use a number above 0"),
        ({"padding": 256}, "padding is 256; use 0 to 255, fewer than the tokens of the vocabulary"),
        ({"mlp": "relu"}, "Settings: mlp is 'relu'; use 'swiglu' or 'gelu'"),
        (
            {"d_model": 6, "heads": 4},
            r"heads is 4 and must divide d_model \(6\); use heads in \{1, 2, 3, 6\}",
        ),
        ({"kv_heads": 3}, r"kv_heads is 3 and must divide heads \(8\)"),
        (
            {"d_model": 24, "heads": 8},
            "head size d_model / heads is 3; rotary positions turn pairs, so it must be even; use "
            "a d_model that 16 divides",
        ),
        (
            {"d_model": 999_999_999},
            r"must divide d_model \(999999999\); use heads in \{1, 3, 9, 27, 37, 81, 111\}",
        ),
    ],
)
def test_settings_that_do_not_fit(wrong: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings(**wrong)


def of_any_type(plain: Settings, **fields: Any) -> Settings:
    """Settings with fields whose types are only checked where tests run."""
    made = replace(plain)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    made.__post_init__()
    return made


def test_settings_are_read_as_json_has_them() -> None:
    scaled = Settings(rope_scaling=RopeScaling(8.0, 1.0, 4.0, 8192), biases="qkv")
    read = of_any_type(Settings(), **json.loads(json.dumps(asdict(scaled))))
    assert read == scaled
    assert hash(read) == hash(scaled)


def test_other_biases_are_refused() -> None:
    line = "biases is 'some'; use 'none' or 'qkv' or 'attention' or 'all'"
    with pytest.raises(ValueError, match=line):
        of_any_type(Settings(), biases="some")


def test_learned_positions_take_odd_heads() -> None:
    assert Settings(d_model=24, heads=8, positions="learned").d_head == 3
