"""How a run is spread: what a layout derives from its sizes, and which choices it refuses."""

import math
from itertools import pairwise
from typing import Any

import pytest

from jaxpar.cost.layout import KNOWN_REMATS, REMATS, check_formulas
from jaxpar.cost.models import find_model
from jaxpar.layout import OFFLOAD_KINDS, REMAT_KINDS, Layout, describe
from jaxpar.parallel import remat


@pytest.mark.parametrize(
    ("field", "line"),
    [
        (
            {"remat": "half"},
            "Layout: remat is 'half'; use one of none, selective, full, products, alternate",
        ),
        ({"zero": 4}, "Layout: zero is 4; use one of 0, 1, 2, 3"),
        ({"offload": "disk"}, "Layout: offload is 'disk'; use one of none, optimizer, all"),
        ({"store": "tape"}, "Layout: store is 'tape'; use one of host, disk"),
    ],
)
def test_a_choice_that_no_layout_has_is_refused(field: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        Layout(**field)


@pytest.mark.parametrize(
    ("layout", "mesh", "batch_axes", "state_axis", "shards"),
    [
        (Layout(), "dp=1", ("dp",), "dp", 1),
        (Layout(tp=8), "tp=8", (), "dp", 1),
        (Layout(pp=2, dp=4, zero=1), "pp=2,dp=4", ("dp",), "dp", 4),
        (Layout(dp=2, fsdp=4, zero=3), "dp=2,fsdp=4", ("dp", "fsdp"), "fsdp", 4),
        (Layout(fsdp=2, ep=2, cp=2), "fsdp=2,ep=2,cp=2", ("fsdp", "ep"), "fsdp", 8),
    ],
)
def test_the_axes_split_the_batch_and_the_states(
    layout: Layout, mesh: str, batch_axes: tuple[str, ...], state_axis: str, shards: int
) -> None:
    assert (layout.mesh, layout.batch_axes) == (mesh, batch_axes)
    assert (layout.state_axis, layout.state_shards) == (state_axis, shards)


@pytest.mark.parametrize(
    ("layout", "token_axes", "parts", "sharding_axes"),
    [
        (Layout(), ("dp",), 1, ("dp",)),
        (Layout(pp=2, tp=4), (), 1, ()),
        (Layout(dp=4, tp=2), ("dp",), 4, ("dp",)),
        (Layout(cp=4, tp=2), ("cp",), 4, ("cp",)),
        (Layout(dp=2, cp=3), ("dp", "cp"), 6, ("dp", "cp")),
        (Layout(dp=2, fsdp=4, cp=3), ("dp", "fsdp", "cp"), 24, ("fsdp", "cp")),
        (Layout(dp=2, ep=2), ("dp", "ep"), 4, ("dp", "ep")),
    ],
)
def test_the_axes_that_split_tokens_shard_states_unless_they_hold_copies(
    layout: Layout, token_axes: tuple[str, ...], parts: int, sharding_axes: tuple[str, ...]
) -> None:
    assert (layout.token_axes, layout.token_parts) == (token_axes, parts)
    assert layout.sharding_axes == sharding_axes
    sizes = layout.mesh_sizes
    assert math.prod(sizes[axis] for axis in sharding_axes) == layout.state_shards


def test_a_batch_is_taken_in_microbatches() -> None:
    assert Layout(dp=2, fsdp=2, microbatch=3).microbatches(48) == 4


def test_every_kind_of_remat_has_one_policy() -> None:
    assert set(remat.KINDS) == set(REMAT_KINDS)
    assert set(REMATS) < set(KNOWN_REMATS) < set(REMAT_KINDS)
    assert [kind for kind in REMAT_KINDS if Layout(remat=kind).recomputes_layers] == [
        "full",
        "segments",
    ]


def test_more_kinds_of_offload_move_more() -> None:
    moved = [set(states) for states in OFFLOAD_KINDS.values()]
    assert all(less < more for less, more in pairwise(moved))
    words = describe(Layout(offload="optimizer", store="disk"))
    assert words.endswith("offload optimizer to disk")


@pytest.mark.parametrize(
    ("layout", "line"),
    [
        (Layout(remat="products"), "remat is 'products'; use one of none, selective, alternate"),
        (Layout(offload="optimizer", store="disk"), "plan: store is 'disk'; use one of host"),
    ],
    ids=["remat", "disk"],
)
def test_the_formulas_refuse_what_they_do_not_know(layout: Layout, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        check_formulas("plan", find_model("llama3-8b"), layout)


@pytest.mark.parametrize(
    ("name", "kind"), [("mixtral-8x7b", "experts"), ("deepseek-v3", "experts")]
)
def test_half_of_the_products_is_known_of_dense_layers_alone(name: str, kind: str) -> None:
    with pytest.raises(ValueError, match=f"plan: {name}: remat 'alternate' of layers with {kind}"):
        check_formulas("plan", find_model(name), Layout(remat="alternate"))
