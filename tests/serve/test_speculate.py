"""Drafts change how many steps a text takes, and nothing else."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from jaxpar.mesh import make_mesh
from jaxpar.serve.engine import Engine, Request, Sampling
from jaxpar.serve.speculate import Speculation, followed
from tests.serve.decoders import SETTINGS, SIZES, answers, greedy, params_of, requests

SMALLER = replace(SETTINGS, layers=1, d_model=16, heads=2, kv_heads=None)
DRAFTS = {
    "n-grams": Speculation(3),
    "itself": Speculation(3, SETTINGS, params_of(SETTINGS)),
    "smaller": Speculation(2, SMALLER, params_of(SMALLER, 1)),
}


def engine(**how: Any) -> Engine:
    how = {"sizes": SIZES} | how
    return Engine(SETTINGS, params_of(SETTINGS), how.pop("sizes"), **how)


@pytest.mark.parametrize("draft", DRAFTS)
def test_texts_are_the_same_with_any_draft(draft: str) -> None:
    """Greedy ones and others, also where pages run out."""
    asked = requests(6)
    warm = [
        replace(one, name=f"warm {one.name}", sampling=Sampling(0.7, seed=3)) for one in asked[:3]
    ]
    few = replace(SIZES, pages=14)
    serving = engine(sizes=few, speculation=DRAFTS[draft])
    got = answers(serving, [*asked, *warm])
    for one in asked:
        assert got[one.name] == greedy(SETTINGS, params_of(SETTINGS), one.prompt, one.tokens)
    without = answers(engine(), warm)
    assert {name: got[name] for name in without} == without
    stats = serving.stats
    assert 0 <= stats.accepted <= stats.drafted
    assert stats.pages_held == 0 and stats.preempted > 0
    assert stats.programs == (2 if draft == "n-grams" else 4)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0, top_k=9, seed=2)])
def test_the_model_itself_guesses_right(sampling: Sampling) -> None:
    """So each step but the last gives as many tokens as are guessed, and one."""
    serving = engine(speculation=DRAFTS["itself"])
    asked = Request("a", (1, 2, 3), 21, sampling)
    answers(serving, [asked])
    stats = serving.stats
    assert stats.accepted == stats.drafted == 15
    assert stats.steps == 1 + 5  # a chunk gives the first token, and then there are four a step


def test_on_two_devices() -> None:
    asked = requests(3)
    got = answers(engine(speculation=DRAFTS["itself"], mesh=make_mesh("tp=2")), asked)
    for one in asked:
        assert got[one.name] == greedy(SETTINGS, params_of(SETTINGS), one.prompt, one.tokens)


def test_what_followed_the_longest_end_is_guessed() -> None:
    assert followed([1, 2, 3, 9, 8, 1, 2, 3], 2) == [9, 8]
    assert followed([1, 2, 3, 9, 8, 1, 2, 3], 9) == [9, 8, 1, 2, 3]
    assert followed([5, 3, 7, 3, 9, 3], 2) == [9, 3]  # the last time counts
    assert followed([1, 2, 3, 7, 2, 3, 9, 1, 2, 3], 1) == [7]  # and more tokens before that
    assert followed([1, 2, 3], 4) == []
    assert followed([4], 4) == followed([], 4) == []
    assert followed([4, 4, 4], 2) == [4]
    assert followed([1, 2, 1, 2], 0) == []


def test_text_that_repeats_itself_needs_fewer_steps() -> None:
    """A head that makes the next of six numbers likely, so a text counts round and round."""
    params = params_of(SETTINGS)
    table = 4 * np.eye(32, dtype=np.float32)
    head = np.roll(table, 1, axis=1)
    head[5] = table[0]
    quiet = {name: dict(part) for name, part in params["layers"].items()}
    quiet["attention"]["output"] = 0 * quiet["attention"]["output"]
    quiet["mlp"]["down"] = 0 * quiet["mlp"]["down"]
    counting = params | {"embedding": table, "head": head, "layers": quiet}
    serving = Engine(SETTINGS, counting, SIZES, speculation=Speculation(3))
    got = answers(serving, [Request("a", (9, 0, 1, 2), 24)])["a"]
    assert got == [(2 + i) % 6 for i in range(1, 25)]
    # The chunk, six numbers that were not there before, and the other 17 of 4 in each step.
    assert serving.stats.steps <= 1 + 6 + 5
