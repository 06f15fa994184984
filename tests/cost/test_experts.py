"""What experts on different devices send is what the inspector counts."""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
import pytest
from jax import P

from jaxpar.cost.experts import dispatch_bytes, expert_capacity
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel.expert import moe_dropless, moe_token_choice

GIVEN = {
    "tokens": 12,
    "width": 6,
    "experts": 8,
    "top_k": 2,
    "capacity_factor": 1.25,
    "devices": 4,
    "element_bytes": 4,
}


def test_rows_are_rounded_up() -> None:
    of = partial(expert_capacity, experts=8, top_k=2)
    assert [of(tokens, capacity_factor=1) for tokens in (64, 65, 68)] == [16, 17, 17]
    assert of(64, capacity_factor=1.25) == 20
    assert of(64, capacity_factor=0.01) == 1


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_both_ways_send_what_is_counted(devices: int) -> None:
    given = GIVEN | {"devices": devices}
    t, d, e, k, f = 12, 6, 8, 2, 5
    n = devices
    capacity = expert_capacity(t, experts=e, top_k=k, capacity_factor=1.25)
    arrays = (
        np.ones((n * t, d), "f"),
        np.ones((n * t, k), "f"),
        np.zeros((n * t, k), "i"),
        *(np.ones(shape, "f") for shape in ((e, d, f), (e, d, f), (e, f, d))),
    )
    sent = []
    for function in (
        partial(moe_token_choice, capacity=capacity, axis="ep"),
        partial(moe_dropless, block=4, axis="ep"),
    ):
        mesh = make_mesh(f"ep={n}")
        specs = (P("ep"),) * len(arrays)
        program = jax.shard_map(function, mesh=mesh, in_specs=specs, out_specs=P("ep"))
        report = inspect(jax.jit(program), *arrays)
        sent.append(sum(one.total_wire_bytes or 0 for one in report.collectives))
    assert sent == list(dispatch_bytes(**given))


def test_all_to_alls_send_less_from_as_many_devices_as_choices_have_rows() -> None:
    """Without the weights and numbers of the choices, the border is top_k * capacity_factor."""
    ways = [
        dispatch_bytes(
            6400, 10**6, experts=64, top_k=2, capacity_factor=2, devices=n, element_bytes=2
        )
        for n in (2, 4, 8)
    ]
    ratios = [exchanged / gathered for exchanged, gathered in ways]
    np.testing.assert_allclose(ratios, [2, 1, 0.5], rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tokens": 0}, "tokens is 0; use a number above 0"),
        ({"capacity_factor": -1.0}, "capacity_factor is -1.0"),
        ({"top_k": 9}, "top_k is 9 of 8 experts; use 1 to 8"),
        ({"devices": 3}, "8 experts on 3 devices; use a number of devices that divides"),
    ],
)
def test_sizes_that_cannot_be(change: dict[str, float], says: str) -> None:
    with pytest.raises(ValueError, match=f"dispatch_bytes: {says}"):
        dispatch_bytes(**GIVEN | change)
