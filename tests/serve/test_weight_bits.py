"""A model whose matrices are in few bits writes what these bits stand for."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.model import Settings, init
from jaxpar.model.few_bits import decode
from jaxpar.serve.engine import Engine, Request, Sizes
from jaxpar.serve.text import Bytes
from jaxpar.serve.trained import TrainedModel, in_few_bits
from tests.serve.decoders import answers
from tests.serve.quickly import compile_all_quickly

SETTINGS = Settings(layers=2, d_model=128, heads=4, d_ff=128, sequence=16)
PROMPT = (5, 17, 3, 44, 9)


def model() -> TrainedModel:
    params = jax.tree.map(np.asarray, init(SETTINGS, jax.random.key(0)))
    return TrainedModel(SETTINGS, params, Bytes(), ())


def written(settings: Settings, params: Any, mesh: Any) -> list[int]:
    sizes = Sizes(slots=1, context=16, chunk=4, page_size=4)
    engine = Engine(settings, params, sizes, mesh=mesh)
    return answers(engine, [Request("one", PROMPT, 6)])["one"]


@pytest.mark.parametrize("bits", [8, 4])
def test_it_writes_what_the_bits_stand_for(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_all_quickly(monkeypatch)
    small = in_few_bits("x", model(), bits, None)
    before, after = (
        sum(leaf.nbytes for leaf in jax.tree.leaves(one.params["layers"]))
        for one in (model(), small)
    )
    assert after / before == pytest.approx(bits / 32 + 1 / 64, rel=0.02)
    numbers = small.params | {"layers": decode(small.params["layers"], bits)}
    expected = written(SETTINGS, numbers, None)
    assert written(small.settings, small.params, None) == expected
    assert written(small.settings, small.params, make_mesh("tp=2")) == expected
    jax.clear_caches()


def test_without_bits_nothing_changes() -> None:
    given = model()
    assert in_few_bits("x", given, None, None) is given


@pytest.mark.parametrize(
    ("mesh", "settings", "line"),
    [
        ("tp=4", SETTINGS, r"of the 128 columns of a matrix a device has 32 \(tp=4\)"),
        ("tp=4", replace(SETTINGS, kv_heads=2), "repeat 2 kv heads, and codes are not repeated"),
    ],
)
def test_blocks_and_heads_are_not_split(mesh: str, settings: Settings, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        in_few_bits("x", replace(model(), settings=settings), 4, make_mesh(mesh))
