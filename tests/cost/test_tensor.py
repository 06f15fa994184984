"""The volumes of split products are what the inspector counts, and Colossal-AI's, explained."""

from collections.abc import Callable
from functools import partial

import jax
import pytest

from jaxpar.cost import tensor as cost
from jaxpar.cost.tensor import DeviceCost, Product
from jaxpar.inspector.stablehlo import read_module
from jaxpar.parallel import tensor, tensor_nd
from tests.parallel.test_tensor_nd import (
    BLOCKS,
    CUBE,
    CUBE_BLOCKS,
    DEEP,
    DEEP_BLOCKS,
    SQUARE,
    Split,
)

M, K, N = 48, 96, 144
WHOLE = Product(x=4 * M * K, w=4 * K * N, y=4 * M * N)
UNIT = Product(1, 1, 1)
COLUMNS = ("m k", "k n_tp", "m n_tp")
ROWS = ("m k_tp", "k_tp n", "m n")
TP = {"axis": "tp"}


def summa(sizes: str) -> Split:
    return Split(tensor_nd.summa_matmul, sizes, SQUARE, BLOCKS)


CASES = [
    (Split(tensor.column_linear, "tp=6", TP, COLUMNS), cost.split_columns(WHOLE, 6)),
    (Split(tensor.row_linear, "tp=8", TP, ROWS), cost.split_rows(WHOLE, 8)),
    (summa("tpx=2,tpy=2"), cost.split_2d(WHOLE, 2)),
    (summa("tpx=4,tpy=4"), cost.split_2d(WHOLE, 4)),
    (
        Split(tensor_nd.cannon_matmul, "tpx=3,tpy=3", SQUARE, BLOCKS),
        cost.split_cannon(WHOLE, 3),
    ),
    (
        Split(tensor_nd.matmul_2_5d, "tpx=2,tpy=2,tpz=4", DEEP, DEEP_BLOCKS),
        cost.split_2_5d(WHOLE, 2, 4),
    ),
    (
        Split(tensor_nd.matmul_3d, "tpx=2,tpy=2,tpz=2", CUBE, CUBE_BLOCKS),
        cost.split_3d(WHOLE, 2),
    ),
]


each_split = pytest.mark.parametrize(("split", "on_device"), CASES, ids=str)
SHAPES = [jax.ShapeDtypeStruct(shape, "float32") for shape in ((M, K), (K, N), (M, N))]


@each_split
def test_bytes_are_what_the_inspector_counts(split: Split, on_device: DeviceCost) -> None:
    def sent(program: Callable, *args: jax.ShapeDtypeStruct) -> float:
        module = program.lower(*args).compiler_ir("stablehlo")
        return sum(c.total_wire_bytes or 0 for c in read_module(module))

    forward = sent(split.program(differentiate=False), *SHAPES[:2])
    both = sent(split.program(differentiate=True), *SHAPES)
    assert (forward, both) == (on_device.forward, on_device.sent)


@each_split
def test_what_is_kept_is_what_the_gradient_takes(split: Split, on_device: DeviceCost) -> None:
    kept = 0

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        nonlocal kept
        y, pull = jax.vjp(partial(split.function, **split.axes), x, w)
        kept = sum(leaf.size * 4 for leaf in jax.tree.leaves(pull) if leaf.ndim)
        return y

    Split(product, split.sizes, {}, split.layouts).program(differentiate=False).lower(*SHAPES[:2])
    assert kept == on_device.kept


def test_a_device_holds_its_blocks() -> None:
    x, w, y = WHOLE.x, WHOLE.w, WHOLE.y
    held = {
        cost.split_columns(WHOLE, 8): (8, x, w / 8, y / 8, x + w / 8),
        cost.split_rows(WHOLE, 8): (8, x / 8, w / 8, y, (x + w) / 8),
        cost.split_2d(WHOLE, 4): (16, x / 16, w / 16, y / 16, (x + w) / 16),
        cost.split_cannon(WHOLE, 4): (16, x / 16, w / 16, y / 16, (x + w) / 4),
        cost.split_2_5d(WHOLE, 2, 3): (12, x / 12, w / 4, y / 12, x / 12 + w / 4),
        cost.split_3d(WHOLE, 2): (8, x / 8, w / 8, y / 8, (x + w) / 4),
    }
    for on_device, expected in held.items():
        assert (
            on_device.devices,
            on_device.x,
            on_device.w,
            on_device.y,
            on_device.kept,
        ) == expected


@pytest.mark.parametrize("q", [2, 3, 8])
def test_beside_the_published_figures(q: int) -> None:
    """Those for 2D and 2.5D are of the q devices of a row together, without the sum over depth."""
    assert cost.split_columns(UNIT, q).sent == pytest.approx(2 * (q - 1) / q)
    assert cost.split_rows(UNIT, q).sent == pytest.approx(2 * (q - 1) / q)
    assert q * cost.split_2d(UNIT, q).sent == pytest.approx(6 * (q - 1) / q)
    for depth in (1, 2, q):
        over_depth = 2 * (depth - 1) / depth / q**2
        published = 3 * (q - 1) * (depth + 1) / (depth * q)
        sent = cost.split_2_5d(UNIT, q, depth).sent - over_depth
        assert q * sent == pytest.approx(published)
    assert cost.split_3d(UNIT, q).sent == pytest.approx(6 * (q - 1) / q**3)
    assert cost.split_2_5d(UNIT, q, 1) == cost.split_2d(UNIT, q)


def test_bytes_are_whole_numbers_where_they_can_be() -> None:
    on_device = cost.split_3d(WHOLE, 2)
    assert all(isinstance(number, int) for number in vars(on_device).values())
