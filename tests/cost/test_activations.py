"""The formula against the figures of Korthikanti et al. 2022."""

import pytest

from jaxpar.cost.activations import activation_bytes

GIB = 2**30
# Their table 3, each with microbatch and tensor parallel size; layers of the first stage, and
# 1 + (p - 1)/(p v) for the interleaved schedule.
M22B = (4, 2048, 6144, 64, 48)
M175B = (1, 2048, 12288, 96, 96)
INTERLEAVED = 1 + 7 / (8 * 3)


def test_figure_1() -> None:
    """In GiB, as digitised in calculon-ai/calculon, calculon/llm/validation.py."""
    for model, scale, tp_only, both in (
        (M22B, 1, 59.25, 9.5625),
        (M175B, INTERLEAVED, 66.84375, 12.3515625),
    ):
        split = activation_bytes(*model, tp=8, sequence_parallel=False, remat="none")
        least = activation_bytes(*model, tp=8, sequence_parallel=True, remat="selective")
        assert (scale * split / GIB, scale * least / GIB) == (tp_only, both)


@pytest.mark.parametrize(
    ("model", "percent"),
    [(M22B, (66.84, 49.42, 16.18, 7.64)), (M175B, (62.04, 56.53, 18.49, 8.71))],
)
def test_figure_7(model: tuple, percent: tuple) -> None:
    """Percent of tensor parallelism alone: sequence parallel, selective, both, full."""
    whole = activation_bytes(*model, tp=8, sequence_parallel=False, remat="none")
    ways = ((True, "none"), (False, "selective"), (True, "selective"), (False, "full"))
    for (sequence_parallel, remat), expected in zip(ways, percent, strict=True):
        kept = activation_bytes(*model, tp=8, sequence_parallel=sequence_parallel, remat=remat)
        assert 100 * kept / whole == pytest.approx(expected, abs=0.2)


def test_one_device_is_34_bytes_an_element_and_attention() -> None:
    b, s, h, heads, layers = 3, 10, 8, 2, 5
    kept = activation_bytes(b, s, h, heads, layers, tp=1, sequence_parallel=True, remat="none")
    assert kept == layers * (34 * s * b * h + 5 * heads * s * s * b)


def test_unknown_remat() -> None:
    with pytest.raises(ValueError, match="remat is 'half'; use one of none, selective, full"):
        activation_bytes(1, 1, 1, 1, 1, tp=1, sequence_parallel=False, remat="half")
