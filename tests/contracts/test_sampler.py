"""What is said of samplers that deal out wrong, whatever they return."""

import re
from typing import Any

import numpy as np
import pytest

from jaxpar.contracts.base import load
from jaxpar.contracts.data_parallel.shard_indices import CONTRACT
from jaxpar.grading.in_process import InProcessPool, judged
from tests.contracts.data_parallel.shard_indices import everything_everywhere, in_blocks

WHERE = "jaxpar.contracts.data_parallel.shard_indices"
CALLS = [((4,), {"world_size": 2, "rank": r, "epoch": 3, "seed": 9}) for r in range(2)]
HEAD = "4 examples on 2 devices, epoch 3, seed 9: "


@pytest.mark.parametrize(
    ("results", "complaint"),
    [
        ([[0, 1], [2, 3]], None),
        ([[0, 1], "raises KeyError"], "rank 1: raises KeyError; a list of integers is expected"),
        ([None, [0, 1]], "rank 0: None; a list"),
        ([[0, 1.0], [2, 3]], r"rank 0: \[0, 1.0\]; a list"),
        ([[True, False], [2, 3]], "rank 0: .True, False.; a list"),
        ([[[0], [1]], [2, 3]], "rank 0: .*; a list"),
        ([[0, 1], [2]], "rank 1 takes 1 examples; every rank must take 2"),
        ([[0, 1], [2, 4]], r"rank 1 takes \[2, 4\]; examples are 0 to 3"),
        ([[0, 1], [2, -1]], r"rank 1 takes \[2, -1\]"),
        ([[0, 1], [2, 2]], "example 2 appears 2 times, where 1 is right"),
    ],
)
def test_the_first_thing_wrong_is_named(results: list[Any], complaint: str | None) -> None:
    assert CONTRACT.complaint
    found = CONTRACT.complaint(CALLS, results)
    assert (found is None) == (complaint is None)
    if found is not None:
        assert re.match(HEAD + complaint, found)


def test_every_draw_of_calls_has_what_is_judged() -> None:
    """Sizes that divide, that do not, and that need going round more than once."""
    for seed in range(20):
        calls = load(WHERE).values(np.random.default_rng(seed))
        sizes = {(n, how["world_size"]) for (n,), how in calls}
        assert any(n % w == 0 for n, w in sizes)
        assert any(n % w and n > w for n, w in sizes)
        assert any(2 * n < w for n, w in sizes)
        assert CONTRACT.complaint(calls, [in_blocks(*a, **k).tolist() for a, k in calls]) is None


def test_the_verdict_shows_the_complaint() -> None:
    verdict = judged(everything_everywhere, InProcessPool(WHERE))
    message = verdict.properties[0].message
    assert message.startswith("10 examples on 4 devices, epoch ")
    assert message.endswith(": rank 0 takes 10 examples; every rank must take 3")
