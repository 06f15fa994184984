"""The explorer of layouts, whose blocks are those that JAX gives to devices."""

from itertools import permutations
from typing import Any

import pytest
from jax.sharding import NamedSharding, PartitionSpec

from jaxpar.explore import answer
from jaxpar.explore.blocks import blocks
from jaxpar.mesh import make_mesh

SHAPE = {"b": 24, "t": 24, "d": 48}
MESHES = ({"dp": 2, "tp": 4}, {"tp": 4, "dp": 2}, {"dp": 3, "fsdp": 2, "tp": 2}, {"dp": 1})


def layouts(axes: list[str]) -> list[dict[str, list[str]]]:
    """All layouts of three dims that use some of the axes."""
    found = [{"b": [], "t": [], "d": []}]
    for axis in axes:
        more = [{**one, dim: [*one[dim], axis]} for one in found for dim in SHAPE]
        found += more
    reordered = [{**one, "b": list(order)} for one in found for order in permutations(one["b"])]
    return found + reordered


@pytest.mark.parametrize("mesh", MESHES, ids=str)
def test_blocks_are_those_of_jax(mesh: dict[str, int]) -> None:
    devices = make_mesh(mesh)
    for layout in layouts(list(mesh)):
        spec = PartitionSpec(*(tuple(axes) for axes in layout.values()))
        indices = NamedSharding(devices, spec).devices_indices_map(tuple(SHAPE.values()))
        expected = [
            tuple(
                slice(*part.indices(size)[:2])
                for part, size in zip(index, SHAPE.values(), strict=True)
            )
            for index in (indices[device] for device in devices.devices.flat)
        ]
        assert blocks(SHAPE, layout, mesh) == expected, layout


def test_a_gather_gives_the_shape_without_the_axis_and_sends_all_but_its_own() -> None:
    answered = answer("layout", {"mesh": "dp=2,tp=4", "b_axes": "dp", "d_axes": "tp"})
    assert answered["layout"] == "b_dp t d_tp"
    assert answered["local_shape"] == [4, 4, 4]
    assert answered["local_bytes"] == 4 * 4 * 4 * 4
    assert [
        (one["axis"], one["wire_bytes"], one["local_shape"]) for one in answered["gathers"]
    ] == [
        ("dp", 256, [8, 4, 4]),
        ("tp", 768, [4, 4, 16]),
    ]
    assert dict(answered["numbers"])["copies of each block"] == "1"


def test_devices_of_an_axis_that_splits_nothing_hold_copies() -> None:
    answered = answer("layout", {"mesh": "dp=2,tp=4", "b_axes": "dp", "d_axes": ""})
    assert dict(answered["numbers"])["copies of each block"] == "4"
    assert {str(one["block"]) for one in answered["devices"][:4]} == {"[[0, 4], [0, 4], [0, 16]]"}
    assert [axis["dim"] for axis in answered["axes"]] == ["b", None]


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"b": 7}, "dim b (size 7) must be divisible by the 2 devices"),
        ({"t_axes": "dp"}, "axis dp splits dim b and dim t; use it once"),
        ({"t_axes": "fsdp"}, "which the mesh does not have; use one of dp, tp"),
        ({"mesh": "x=2"}, "mesh axis 'x' is unknown"),
        ({"mesh": "dp=32", "d_axes": ""}, "at most 16 can be drawn"),
    ],
)
def test_bad_forms_are_explained(form: dict[str, Any], words: str) -> None:
    assert words in answer("layout", form)["error"]
