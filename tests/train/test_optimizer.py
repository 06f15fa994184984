"""The learning rate over a run, which leaves decay, and that every mix takes the same rate."""

import itertools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar.model import init
from jaxpar.train.optimizer import Optimization, by_width, decaying_leaves
from jaxpar.train.recipe import make_recipe
from jaxpar.train.saved import named
from tests.train.runs import SETTINGS, trained

DECAYS = {"warmup": 2, "decay": "cosine", "steps": 5, "learning_rate": 0.02}


def rates(**given: Any) -> list[float]:
    rate = Optimization(**given).rate
    assert callable(rate)
    return [float(rate(np.int32(step))) for step in range(given.get("steps", 8) + 2)]


def test_a_rate_that_stays_is_a_number() -> None:
    assert Optimization("adamw").rate == 1e-3
    assert Optimization("sgd").rate == 0.1
    assert Optimization("sgd", 0.3).rate == 0.3


def test_the_first_step_of_a_warmup_already_learns() -> None:
    assert rates(peak=1.0, warmup=4) == pytest.approx([0.25, 0.5, 0.75, *[1.0] * 7])


def test_cosine_falls_to_a_tenth_after_the_warmup() -> None:
    found = rates(peak=1.0, warmup=2, decay="cosine", steps=10)
    assert found[:2] == pytest.approx([0.5, 1.0])
    assert found[1 + 4] == pytest.approx(0.1 + 0.9 / 2)
    assert found[9:] == pytest.approx([0.1] * 3)
    assert all(a > b for a, b in itertools.pairwise(found[1:10]))


def test_wsd_stays_until_the_last_tenth() -> None:
    found = rates(peak=1.0, warmup=5, decay="wsd", steps=40)
    assert found[4:36] == pytest.approx([1.0] * 32)
    assert found[36:] == pytest.approx([0.775, 0.55, 0.325, 0.1, 0.1, 0.1])


def test_wsd_that_is_mostly_warmup_decays_in_what_is_left() -> None:
    assert rates(peak=1.0, warmup=39, decay="wsd", steps=40)[38:] == pytest.approx(
        [1, 0.1, 0.1, 0.1]
    )


@pytest.mark.parametrize(("norm", "parts"), [("rms", ("scale",)), ("layer", ("bias", "scale"))])
def test_norms_do_not_decay(norm: str, parts: tuple[str, ...]) -> None:
    settings = replace(SETTINGS, norm=norm)
    params = jax.eval_shape(lambda: init(settings, jax.random.key(0)))
    stay = {
        jax.tree_util.keystr(path)
        for path, decays in jax.tree_util.tree_leaves_with_path(decaying_leaves(params))
        if not decays
    }
    norms = ("['final_norm']", "['layers']['attention_norm']", "['layers']['mlp_norm']")
    assert stay == {f"{one}['{part}']" for one in norms for part in parts}


def test_biases_do_not_decay_and_keep_their_rate_with_mup() -> None:
    settings = replace(SETTINGS, biases="all")
    params = jax.tree.map(jnp.ones_like, init(settings, jax.random.key(0)))
    biases = {name for name in named(params) if name.endswith("_bias")}
    assert len(biases) == 7
    decays = named(decaying_leaves(params))
    assert not any(decays[name] for name in biases)
    moved = named(by_width(4.0).update(params, by_width(4.0).init(params))[0])
    assert {name for name in biases if (moved[name] == 1).all()} == biases
    assert (moved["layers.mlp.up"] == 0.25).all()


@pytest.mark.parametrize(
    ("mesh", "options"),
    [
        ("dp=2,fsdp=2,tp=2", {}),
        ("dp=4", {"zero": 1, "offload": "host"}),
        ("pp=2,dp=2", {"microbatches": 2, "precision": "bf16"}),
        ("dp=4", {"compress": "int8"}),
    ],
)
def test_mixes_follow_the_rate_of_one_device(mesh: str, options: dict) -> None:
    found = trained(make_recipe(mesh, **options, **DECAYS), steps=5)
    expected = trained(make_recipe("dp=1", **DECAYS), steps=5)
    constant = trained(make_recipe("dp=1", learning_rate=0.02), steps=5)
    exact = not options.keys() & {"precision", "compress"}
    near = 1e-5 if exact else 1e-2
    assert found.losses == pytest.approx(expected.losses, rel=near)
    assert abs(constant.losses[-1] / expected.losses[-1] - 1) > 2 * near


def test_local_steps_follow_the_rate() -> None:
    given = {"sync_every": 1, "optimizer": "sgd", **DECAYS}
    found = trained(make_recipe("dp=2", **given), steps=5)
    expected = trained(make_recipe("dp=1", **{**given, "sync_every": None}), steps=5)
    assert found.losses == pytest.approx(expected.losses, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rate": 0.0}, "--learning-rate is 0.0; use a number above 0"),
        ({"weight_decay": -1.0}, "--weight-decay is -1.0; use 0 or more"),
        ({"weight_decay": 0.1, "optimizer": "sgd"}, "only adamw and adam8bit decay weights"),
        ({"decay": "linear"}, "--decay"),
        ({"decay": "wsd", "warmup": 8, "steps": 8}, "falls after its warm-up"),
    ],
)
def test_what_cannot_be_is_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match="train: ") as error:
        make_recipe("dp=2", **options)
    assert message in str(error.value)
