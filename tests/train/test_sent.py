"""What a step sends is what was predicted, to the byte, for every mix that the trainer runs."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jaxpar.inspector.report import Report
from jaxpar.model import Settings
from jaxpar.schedules import make_table, to_ticks
from jaxpar.train.recipe import Recipe, make_recipe
from jaxpar.train.sent import Sent, sent_over_axes
from tests.train.lowered import written
from tests.train.runs import SETTINGS, assert_sends_what_was_predicted
from tests.train.test_mixes import DRAWN, MIXES, named

# An offloaded state has a second program, for the update; `test_mixes` compares what it runs.
LOWERED: list[tuple[Settings, str, dict[str, Any]]] = [
    mix for mix in MIXES if "offload" not in mix[2]
]
LOWERED += [(SETTINGS, mesh, options) for mesh, options in DRAWN]

COMPRESSIONS = [
    {"compress": words} for words in ("int8", "int4", "sign", "topk=0.05", "powersgd=1")
]
ROUNDS = [{"sync_every": 3, "outer": outer} for outer in ("average", "nesterov")]
BOTH = [{"sync_every": 3, "outer": "nesterov"} | options for options in COMPRESSIONS]


def sent(recipe: Recipe, settings: Settings) -> tuple[Sent, ...]:
    return sent_over_axes(Report(written(recipe, settings)), recipe, settings)


@pytest.mark.parametrize(
    ("settings", "mesh", "options"), LOWERED, ids=[named(*mix) for _, *mix in LOWERED]
)
def test_mixes_send_what_was_predicted(
    settings: Settings, mesh: str, options: dict[str, Any]
) -> None:
    assert_sends_what_was_predicted(sent(make_recipe(mesh, **options), settings))


@pytest.mark.parametrize("remat", ["products", "full", "selective", "segments"])
@pytest.mark.parametrize("model", ["llama", "gpt2"])
@pytest.mark.parametrize(
    ("mesh", "options"),
    [("fsdp=2,tp=4", {}), ("pp=2,fsdp=2,tp=2", {"microbatches": 2, "sequence_parallel": True})],
)
def test_so_do_biases(mesh: str, options: dict[str, Any], model: str, remat: str) -> None:
    """Some of them are not gathered again for the gradient; with few kv heads, some are shared."""
    gpt2 = {"norm": "layer", "positions": "learned", "mlp": "gelu", "tied": True}
    settings = replace(SETTINGS, biases="all", padding=6, **(gpt2 if model == "gpt2" else {}))
    recipe = make_recipe(mesh, batch=8, remat=remat, **options)
    assert_sends_what_was_predicted(sent(recipe, settings))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_so_do_steps_in_16_bits(precision: str) -> None:
    recipe = make_recipe(
        "pp=2,dp=2,fsdp=2,tp=2", precision=precision, microbatches=4, sequence_parallel=True
    )
    assert_sends_what_was_predicted(sent(recipe, SETTINGS))


def test_so_does_a_schedule_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "zero-bubble.csv"
    path.write_text(to_ticks(make_table("zb-h1", 2, 4)).to_csv())
    recipe = make_recipe("pp=2,dp=2,tp=2", schedule=str(path), microbatches=4)
    assert_sends_what_was_predicted(sent(recipe, SETTINGS))


@pytest.mark.parametrize("options", [*COMPRESSIONS, *ROUNDS, *BOTH], ids=str)
@pytest.mark.parametrize(
    ("mesh", "mix"),
    [
        ("dp=8", {}),
        ("dp=4,tp=2", {"sequence_parallel": True}),
        ("pp=2,dp=2,tp=2", {"microbatches": 2}),
        ("dp=2,fsdp=2", {"zero": 3, "microbatches": 2}),
        ("dp=2,cp=2", {"remat": "full"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_so_do_steps_that_send_less_over_dp(
    mesh: str, mix: dict[str, Any], options: dict[str, Any]
) -> None:
    recipe = make_recipe(mesh, **mix, **options)
    assert_sends_what_was_predicted(sent(recipe, SETTINGS))
