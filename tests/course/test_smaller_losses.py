"""The losses that lesson 22 shows are those that its benchmark measures."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.losses_when_smaller import CALL, Trial, described, ways
from jaxpar.course import smaller_losses
from jaxpar.course.smaller_losses import Smaller, read_smaller, to_toml
from jaxpar.model import Settings
from tests.arrays import random

TINY = Settings(layers=1, d_model=32, heads=2, d_ff=64, sequence=8)


def test_the_file_holds_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "smaller.toml"
    path.write_text(to_toml([Smaller("one", 4.5, 1.23456), Smaller("two", 9, 2)]), "utf-8")
    monkeypatch.setattr(smaller_losses, "FILE", path)
    assert read_smaller() == {"one": Smaller("one", 4.5, 1.2346), "two": Smaller("two", 9, 2)}


def test_the_file_has_all_ways_and_no_other() -> None:
    assert [*read_smaller()] == [way.name for way in ways()]


def test_rows_tell_the_rise() -> None:
    whole, one = described([Smaller("as trained", 32, 1.5), Smaller("int4", 4.5, 1.625)])
    assert (whole.measured, one.measured) == ("1.5000, 32", "0.1250, 4.50")


@pytest.mark.parametrize("way", [*ways()], ids=lambda way: way.name)
def test_a_matrix_changes_by_as_much_as_its_bits_allow(way: object) -> None:
    """Of normal numbers, 64 rows of 40: the relative error, within what the way can lose."""
    w = random(64, 40)
    change = jax.jit(way.change)(w)
    lost = float(jnp.linalg.norm(change - w) / np.linalg.norm(w))
    assert change.shape == w.shape and change.dtype == w.dtype
    low, high = EXPECTED[way.name]
    assert low <= lost <= high


EXPECTED = {
    "as trained": (0, 0),
    "int8, per tensor": (0.005, 0.012),
    "int8, per column": (0.004, 0.009),
    "int8, groups of 32": (0.003, 0.008),
    "int4, per tensor": (0.1, 0.2),
    "int4, per column": (0.08, 0.16),
    "int4, groups of 32": (0.06, 0.13),
    "int3, per tensor": (0.2, 0.5),
    "int3, per column": (0.2, 0.4),
    "int3, groups of 32": (0.15, 0.3),
    "NF4, blocks of 64": (0.07, 0.11),
    "fp8 e4m3": (0.02, 0.03),
    "fp8 e5m2": (0.04, 0.06),
    "MXFP8": (0.02, 0.04),
    "MXFP4": (0.1, 0.16),
    "30% pruned": (0.08, 0.16),
    "50% pruned": (0.2, 0.3),
    "70% pruned": (0.4, 0.55),
    "2:4 pruned": (0.25, 0.45),
}


def test_a_decoder_is_trained_and_made_smaller() -> None:
    """A tiny one, in one call of the compiled program."""
    trial = Trial(TINY, steps=CALL)
    of_way = {way.name: way for way in ways()}
    trained, eight, four, few = (
        trial.loss_of(of_way[name])
        for name in ("as trained", "int8, per column", "int4, per column", "70% pruned")
    )
    assert 1 < trained.loss < np.log(256) - 0.5
    rises = [abs(one.loss - trained.loss) for one in (eight, four, few)]
    assert 10 * rises[0] < rises[1] < rises[2]
    assert trained.bits == 32 and few.bits == pytest.approx(5.8)
    # Six matrices of 32 rows and one of 64, all but two with 32 columns: a scale for each.
    assert eight.bits == pytest.approx(8 + 32 * (4 * 32 + 2 * 64 + 32) / (4 * 1024 + 3 * 2048))
