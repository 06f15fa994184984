"""What a run needs at least, and which runs are refused before anything is made."""

import re

import pytest

from jaxpar.model import Settings
from jaxpar.train import machine
from jaxpar.train.machine import check_memory, least_bytes
from jaxpar.train.recipe import make_recipe

HUGE = Settings(layers=96, d_model=12288, heads=96, sequence=2048)


def refused(settings: Settings, mesh: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(machine, "memory_bytes", lambda: memory)
    with pytest.raises(ValueError, match=r"^train: needs at least .*, this machine has ") as error:
        check_memory(settings, make_recipe(mesh), 1)
    return str(error.value)


def test_states_are_counted_once_for_each_copy() -> None:
    settings = Settings(vocabulary=1, sequence=1)
    for mesh, zero, each in (("dp=4", 0, 4 * 16), ("dp=4", 1, 4 * 8 + 8), ("fsdp=4", 3, 16)):
        recipe = make_recipe(mesh, zero=zero, batch=4)
        assert least_bytes(settings, recipe) == settings.parameters * each + 4 * 4
    sgd = make_recipe("dp=4", optimizer="sgd", batch=4)
    assert least_bytes(settings, sgd) == settings.parameters * 4 * 8 + 4 * 4


def test_experts_are_counted_once_for_each_copy() -> None:
    settings = Settings(vocabulary=1, sequence=1, experts=4)
    of_experts = 4 * 4 * 3 * settings.d_model * settings.d_hidden  # of 4 layers
    rest = settings.parameters - of_experts
    found = least_bytes(settings, make_recipe("dp=2,ep=4", batch=8))
    assert found == 16 * (2 * of_experts + 8 * rest) + 8 * 4
    found = least_bytes(settings, make_recipe("fsdp=2,ep=4", batch=8))
    assert found == 16 * (of_experts + rest) + 8 * 4


def test_what_is_too_large_is_refused_with_the_largest_that_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = refused(HUGE, "dp=8", 25 * 10**9, monkeypatch)
    assert "this machine has 25 GB" in said
    found = re.search(r"largest that fits: --d-model (\d+)$", said)
    assert found
    fits, too_large = (int(found[1]) + more for more in (0, 2 * HUGE.heads))
    for size, over in ((fits, False), (too_large, True)):
        tried = Settings(layers=96, d_model=size, heads=96, sequence=2048)
        assert (least_bytes(tried, make_recipe("dp=8")) > 25 * 10**9) is over
    assert "--layers" in refused(Settings(layers=10**4, heads=32), "dp=8", 10**8, monkeypatch)
    assert "smaller --batch" in refused(HUGE, "dp=8", 1000, monkeypatch)
    with pytest.raises(ValueError, match="this machine has 1,000 bytes; use a smaller model, or a"):
        check_memory(HUGE, make_recipe("dp=8"), 1, fixed=True)


def test_what_fits_or_runs_elsewhere_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_memory(Settings(), make_recipe("dp=8"), 1)
    monkeypatch.setattr(machine, "memory_bytes", lambda: None)
    check_memory(HUGE, make_recipe("dp=8"), 1)
    monkeypatch.setattr(machine, "memory_bytes", lambda: 25 * 10**12)
    check_memory(HUGE, make_recipe("dp=8"), 1)
