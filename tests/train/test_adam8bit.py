"""AdamW in 8 bits trains on every mesh as on one device, and is resumed on another mesh."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from jaxpar.parallel.adam8bit import Adam8bitState
from jaxpar.train.recipe import make_recipe
from tests.train.runs import SETTINGS, assert_trains_as_one_device, trained

# Matrices of 4,096 numbers and more, which are in blocks.
WIDER = replace(SETTINGS, layers=2, d_model=64)
EIGHT_BITS = {"optimizer": "adam8bit"}


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=4", {"zero": 1}),
        ("dp=2,tp=2", {"sequence_parallel": True}),
        ("fsdp=2,tp=2", {"microbatches": 2}),
        ("dp=4", {"zero": 2, "offload": "host"}),
        ("pp=2,fsdp=2", {"microbatches": 2}),
    ],
)
def test_it_trains_as_one_device(mesh: str, options: dict[str, Any]) -> None:
    # A code that is rounded to the other side moves what follows by less than this.
    run = assert_trains_as_one_device(
        make_recipe(mesh, **options, **EIGHT_BITS), WIDER, rel=1e-5, steps=4
    )
    assert run
