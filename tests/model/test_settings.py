import functools

import jax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpar.model import Settings, init


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


def test_learned_positions_take_odd_heads() -> None:
    assert Settings(d_model=24, heads=8, positions="learned").d_head == 3
