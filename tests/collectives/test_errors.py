"""A root, an operation, chunks or a mesh that a collective cannot use are named in the error."""

from functools import partial

import jax
import numpy as np
import pytest

from jaxpar import collectives
from jaxpar.mesh import make_mesh
from tests.collectives.calls import on_devices

BOTH_AXES = {"inner": "device", "outer": "node"}
ONE_AXIS = {"axis": "device"}


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (
            collectives.scatter,
            ONE_AXIS | {"root": 0},
            r"scatter: x has shape \(5,\); dim 0 must be the size of mesh axis device \(6\); "
            r"reshape x to \[6, ...\], a chunk for each device",
        ),
        (collectives.all_to_all, ONE_AXIS, r"all_to_all: .*\(5,\).*\(6\)"),
        (collectives.all_to_all_by_permutes, ONE_AXIS, "all_to_all_by_permutes: x has"),
        (collectives.reduce_scatter, ONE_AXIS, r"reduce_scatter: .*\(5,\)"),
        (collectives.ring_reduce_scatter, ONE_AXIS, r"ring_reduce_scatter: x has shape \(5,\)"),
        (
            collectives.hierarchical_reduce_scatter,
            BOTH_AXES,
            r"hierarchical_reduce_scatter: x has shape \(5,\); .* axis node\*device \(12\)",
        ),
        (
            collectives.broadcast,
            ONE_AXIS | {"root": 6},
            r"broadcast: root 6 on mesh axis device \(size 6\); use a root from 0 to 5",
        ),
        (collectives.gather, ONE_AXIS | {"root": -1}, "gather: root -1 "),
        (collectives.reduce, ONE_AXIS | {"root": 9}, "reduce: root 9 "),
        (collectives.tree_broadcast, ONE_AXIS | {"root": 6}, "tree_broadcast: root 6 "),
        (collectives.tree_reduce, ONE_AXIS | {"root": -1}, "tree_reduce: root -1 "),
        (
            collectives.all_reduce,
            ONE_AXIS | {"op": "mean"},
            "all_reduce: op 'mean' is unknown; use one of sum, prod, min, max, and, or, xor",
        ),
        (collectives.reduce, ONE_AXIS | {"root": 0, "op": "avg"}, "reduce: op 'avg'"),
        (
            collectives.recursive_doubling_all_reduce,
            ONE_AXIS,
            "recursive_doubling_all_reduce: mesh axis device has size 6; the size must be a power "
            "of two; use 4 or 8 devices, or a ring",
        ),
        (
            collectives.recursive_doubling_all_gather,
            ONE_AXIS,
            "recursive_doubling_all_gather: mesh axis device has size 6",
        ),
    ],
)
def test_it_is_refused(function, arguments: dict, message: str) -> None:
    run = on_devices(partial(function, **arguments), make_mesh("node=2,device=6"))
    with pytest.raises(ValueError, match=f"^{message}"):
        jax.eval_shape(run, np.zeros((2, 6, 5)))


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (collectives.scatter, {"root": 6}, "scatter: root 6 "),
        (collectives.reduce_scatter, {"op": "avg"}, "reduce_scatter: op 'avg'"),
    ],
)
def test_it_is_refused_for_chunks_that_fit(function, arguments: dict, message: str) -> None:
    run = on_devices(partial(function, axis="device", **arguments), make_mesh("device=6"))
    with pytest.raises(ValueError, match=f"^{message}"):
        jax.eval_shape(run, np.zeros((6, 6)))
