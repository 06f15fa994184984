"""The losses that lesson 06 draws are those that its benchmark measures."""

from pathlib import Path

import pytest
from jax import Array

from benchmarks.losses_for_bytes import BLOCK, DEVICES, Trial, methods
from jaxpar.cost.compress import compressed_bytes
from jaxpar.course import losses
from jaxpar.course.losses import Losses, read_losses, to_toml
from jaxpar.model import Settings

TINY = Settings(layers=1, d_model=16, heads=2, sequence=8)


def test_the_file_holds_what_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Losses("one", 12.5, [8, 16], [2.0, 1.2345]), Losses("two", 0.5, [8], [3.0])]
    path = tmp_path / "losses.toml"
    path.write_text(to_toml(found), "utf-8")
    monkeypatch.setattr(losses, "FILE", path)
    assert read_losses() == {
        "one": Losses("one", 12.5, [8, 16], [2.0, 1.234]),
        "two": Losses("two", 0.5, [8], [3.0]),
    }


def test_the_steps_to_a_loss_are_between_two_that_were_taken() -> None:
    found = Losses("one", 1, [10, 20, 30], [3.0, 2.0, 1.5])
    assert found.steps_to(2.5) == pytest.approx(15)
    assert found.steps_to(1.6) == pytest.approx(28)
    assert found.steps_to(1.4) == float("inf")


def test_the_file_has_all_methods_and_no_other() -> None:
    def parts(w: Array) -> list[Array]:
        return [w]

    expected = {
        method.name: [*range(method.every, method.steps + 1, method.every)]
        for method in methods(parts)
    }
    assert {name: one.steps for name, one in read_losses().items()} == expected


@pytest.mark.parametrize(
    "name", ["signs, feedback", "local SGD, 8 steps", "one peer", "both neighbours"]
)
def test_a_method_learns_and_sends_what_the_formulas_say(name: str) -> None:
    """In one call of 24 steps, with a tiny decoder."""
    trial = Trial(TINY)
    (method,) = (one for one in methods(trial.parts) if one.name == name)
    result = trial.run(method._replace(steps=24, every=24))
    start = float(trial.whole_loss(trial.start, trial.held_out))
    assert result.steps == [24] and 1 < result.losses[0] < start - 0.1
    n, held = DEVICES, len(trial.start)
    assert trial.parameters == TINY.parameters
    each = {
        "signs, feedback": compressed_bytes(held, 1, n, scheme="sign", block=BLOCK, k=1, rank=1),
        "local SGD, 8 steps": 2 * (n - 1) / n * 4 * held / 8,
        "one peer": 4 * held,
        "both neighbours": 2 * 4 * held,
    }
    assert result.bytes_per_step == pytest.approx(each[name])
