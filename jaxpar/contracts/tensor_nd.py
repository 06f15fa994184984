"""Contracts of lesson 13: products of matrices that lie in blocks, in two and three dims."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import jax
import jax.numpy as jnp

from jaxpar.contracts import tensor_nd_3d_mistakes, tensor_nd_mistakes
from jaxpar.contracts.base import BadCall, Communication, Contract, Expected, Limit, MemoryLimit
from jaxpar.contracts.blocks import share
from jaxpar.contracts.case import Array, Case, Sizes
from jaxpar.parallel import tensor_nd

_GATHERS = ("all_gather", "permute", "all_to_all")
_SUMS = ("reduce_scatter", "permute", "all_to_all")
_GATHERS_AND_SUMS = ("reduce_scatter", *_GATHERS)
_ROUNDS = ("all_reduce", "permute")
_COLLECTIVES_OF_A_ROUND = 8


def _product(case: Case, x: jax.Array, w: jax.Array) -> jax.Array:
    """Of each device of dp, if there is that axis, its own product; [m, n]."""
    dp = case.sizes.get("dp", 1)
    blocks = jnp.einsum(
        "dmk,dkn->dmn", x.reshape(dp, -1, x.shape[1]), w.reshape(dp, -1, w.shape[1])
    )
    return blocks.reshape(-1, w.shape[1])


def _split(case: Case, y: jax.Array, rows: tuple[str, ...], columns: str) -> list[Expected]:
    """What each device holds of y: rows split over dp and these axes, columns over `columns`."""
    sizes = case.sizes
    dp = ["dp"] if "dp" in sizes else []
    row_axes = [*dp, *(case.kwargs[name] for name in rows)]
    column_axis = case.kwargs[columns]
    cut = y.reshape(
        *(sizes[axis] for axis in row_axes),
        -1,
        sizes[column_axis],
        y.shape[1] // sizes[column_axis],
    )
    dims = [*row_axes, "m", column_axis, "n"]
    blocks = cut.transpose(*(dims.index(name) for name in (*sizes, "m", "n")))
    groups = [n if axis == "dp" else 1 for axis, n in sizes.items()]
    whole = y.reshape(*groups, -1, y.shape[1])
    return [Expected(blocks, jnp.broadcast_to(whole, (*sizes.values(), *whole.shape[-2:])))]


def _in_2d(case: Case, x: jax.Array, w: jax.Array) -> list[Expected]:
    return _split(case, _product(case, x, w), ("rows",), "cols")


def _in_2_5d(case: Case, x: jax.Array, w: jax.Array) -> list[Expected]:
    return _split(case, _product(case, x, w), ("depth", "rows"), "cols")


def _in_3d(case: Case, x: jax.Array, w: jax.Array) -> list[Expected]:
    return _split(case, _product(case, x, w), ("x_axis", "z_axis"), "y_axis")


def _others(name: str, over: str, times: int = 1) -> Callable[[Sizes], float]:
    """Bytes of the blocks of all other devices on the axis."""
    return lambda sizes: times * (sizes.n(over) - 1) * sizes.bytes(name)


def _routes(name: str, over: str, *, passes: int = 1) -> tuple[Limit, Limit]:
    """A matrix goes over its axis by gathers, or in rounds of a block at a time at twice that."""

    def one_block_each(sizes: Sizes) -> list[int]:
        return [sizes.bytes(name)] * (_COLLECTIVES_OF_A_ROUND * sizes.n(over))

    kinds = _GATHERS if passes == 1 else _GATHERS_AND_SUMS
    return (
        Limit(kinds, over, _others(name, over, passes)),
        Limit(_ROUNDS, over, _others(name, over, 2 * passes), operand_bytes=one_block_each),
    )


def _of_y(sizes: Sizes) -> float:
    """Bytes of a reduce-scatter of x_i @ w_j."""
    rows = sizes.case.args["x"].shape[0] // sizes.n("x_axis")
    columns = sizes.case.args["w"].shape[1] // sizes.n("y_axis")
    n = sizes.n("z_axis")
    return (n - 1) / n * 4 * rows * columns / sizes.case.sizes.get("dp", 1)


def _square(mesh: str, m: int, k: int, n: int, **axes: str) -> Case:
    """A case of x [m, k] and w [k, n], cut over `rows` and `cols`; x over `depth`, too."""
    dp = "dp" * mesh.startswith("dp")
    over_m = _axes(dp, axes.get("depth", ""), axes["rows"])
    layouts = f"m{over_m} k_{axes['cols']}", f"k{_axes(dp, axes['rows'])} n_{axes['cols']}"
    return _operands(mesh, (m, k, n), layouts, axes)


def _cube(mesh: str, m: int, k: int, n: int, **axes: str) -> Case:
    """A case of x [m, k] and w [k, n], cut over `x_axis`, `y_axis` and `z_axis`."""
    dp = "dp" * mesh.startswith("dp")
    x, y, z = axes["x_axis"], axes["y_axis"], axes["z_axis"]
    layouts = f"m{_axes(dp, x, y)} k_{z}", f"k{_axes(dp, z)} n_{y}_{x}"
    return _operands(mesh, (m, k, n), layouts, axes)


def _operands(mesh: str, sizes: tuple[int, ...], layouts: tuple[str, str], axes: dict) -> Case:
    (m, k, n), (of_x, of_w) = sizes, layouts
    copies = int(mesh[3]) if mesh.startswith("dp") else 1  # each with a w of its own
    return Case(mesh, {"x": Array((m, k), of_x), "w": Array((copies * k, n), of_w)}, axes)


def _axes(*names: str) -> str:
    return "".join(f"_{name}" for name in names if name)


_FORWARD = tuple(product(_routes("x", "cols"), _routes("w", "rows")))
# Of the two products of the gradient each brings one matrix along and adds the other one up.
_BACKWARD = tuple(product(_routes("x", "cols", passes=2), _routes("w", "rows", passes=2)))
_OVER_DEPTH = Limit(("all_reduce",), "depth", share(2, "w", "depth"))

SUMMA_MATMUL = Contract(
    id="summa_matmul",
    kind="program",
    task="return block (i, j) of x @ w on device (i, j) of a square of devices",
    reference=tensor_nd.summa_matmul,
    oracle=_in_2d,
    cases=(
        _square("dp=2,tpx=2,tpy=2", 2 * 48, 80, 112, rows="tpx", cols="tpy"),
        _square("tpy=3,tpz=3", 78, 126, 102, rows="tpz", cols="tpy"),  # not in the mesh's order
    ),
    hidden=(_square("tpy=2,tpx=2", 40, 72, 88, rows="tpy", cols="tpx"),),
    errors=(
        BadCall(
            Case(
                "tpx=2,tpy=3",
                {"x": Array((8, 12), "m_tpx k_tpy"), "w": Array((8, 9), "k_tpx n_tpy")},
                {"rows": "tpx", "cols": "tpy"},
            ),
            "`rows` = 2, `cols` = 3",
        ),
    ),
    gradient=("x", "w"),
    communication=Communication(
        "forward the q-1 other blocks of x over `cols`, and of w over `rows`, by gathers; or twice "
        "that in rounds of a block at a time; backward at most twice what forward may send",
        forward=_FORWARD,
        backward=_BACKWARD,
    ),
    memory=MemoryLimit(
        "if you send more than gathers do, two blocks of x and of w at a time: at most twice the "
        "library's bytes of intermediate results",
        multiple=2,
        traded=(6, 1),
    ),
    sharding=True,
    mistakes=tensor_nd_mistakes.SUMMA_MATMUL,
    hints=(
        "y_ij is the sum over l of x_il @ w_lj. Device (i, j) has x_ij and w_ij: what else does it "
        "need, and along which axis of the mesh are they?",
        "The blocks x_il are on the devices of its row, which differ by their place on `cols`; the "
        "w_lj are in its column, along `rows`.",
        "Gather both with tiled=True: x along `cols` side by side (axis=1), w along `rows` one "
        "above the other, and multiply once. Or in round l, in lax.scan, lax.psum of x where "
        "lax.axis_index(cols) == l, else of zeros; of w alike.",
    ),
    minimal="A block of y needs a row of blocks of x and a column of blocks of w; a device has one "
    "of q of each. Rounds hold less, and gathers send less.",
    harder="Send as little as gathers, and hold as little as rounds: what if each round brings a "
    "part of every device's block?",
)

MATMUL_2_5D = Contract(
    id="matmul_2_5d",
    kind="program",
    task="return this device's block of x @ w; the squares along `depth` share the rows of x",
    reference=tensor_nd.matmul_2_5d,
    oracle=_in_2_5d,
    cases=(
        _square("dp=2,tpx=2,tpy=2,tpz=2", 2 * 24, 20, 16, rows="tpx", cols="tpy", depth="tpz"),
        _square("tpx=3,tpy=2,tpz=2", 30, 28, 24, rows="tpy", cols="tpz", depth="tpx"),
        _square("tpx=1,tpy=3,tpz=3", 15, 18, 12, rows="tpz", cols="tpy", depth="tpx"),
    ),
    hidden=(_square("tpy=2,tpz=2,tpx=2", 28, 24, 10, rows="tpz", cols="tpx", depth="tpy"),),
    errors=(
        BadCall(
            Case(
                "tpx=2,tpy=3,tpz=2",
                {"x": Array((8, 12), "m_tpz_tpx k_tpy"), "w": Array((8, 9), "k_tpx n_tpy")},
                {"rows": "tpx", "cols": "tpy", "depth": "tpz"},
            ),
            "`rows` = 2, `cols` = 3",
        ),
    ),
    gradient=("x", "w"),
    communication=Communication(
        "in each square as for summa_matmul; over `depth` nothing forward, and backward one "
        "all-reduce of the gradient of a block of w",
        forward=_FORWARD,
        backward=tuple((*option, _OVER_DEPTH) for option in _BACKWARD),
    ),
    sharding=True,
    mistakes=tensor_nd_mistakes.MATMUL_2_5D,
    hints=(
        "A square has its own rows of x, and all of w. So forward it needs nothing of the others.",
        "w is the same in all squares, and each uses it with other rows: its gradient is a sum "
        "over `depth`. JAX adds that sum where w first meets something that varies over `depth`.",
        'lax.pcast(w, depth, to="varying") says where: before you gather w its gradient is a '
        "block, afterwards q of them. Then go on as in summa_matmul.",
    ),
    minimal="Every square has all of w, so none waits for another; that all w stay equal takes one "
    "all-reduce of their gradients, as in data parallelism.",
    harder="Let the devices along `depth` share each block of w, and gather it before its use: "
    "FSDP over depth.",
)

MATMUL_3D = Contract(
    id="matmul_3d",
    kind="program",
    task="return this device's rows of a block of x @ w, summed over `z_axis`",
    reference=tensor_nd.matmul_3d,
    oracle=_in_3d,
    cases=(
        _cube("dp=2,tpx=2,tpy=2,tpz=2", 48, 20, 28, x_axis="tpx", y_axis="tpy", z_axis="tpz"),
        _cube("tpx=3,tpy=3,tpz=1", 36, 27, 15, x_axis="tpy", y_axis="tpz", z_axis="tpx"),
        # so that each of the three axes has more than two devices once
        _cube("tpx=3,tpy=1,tpz=2", 24, 8, 18, x_axis="tpz", y_axis="tpx", z_axis="tpy"),
    ),
    hidden=(_cube("tpz=2,tpy=2,tpx=2", 20, 14, 12, x_axis="tpy", y_axis="tpz", z_axis="tpx"),),
    gradient=("x", "w"),
    communication=Communication(
        "forward the other blocks of x over `y_axis`, and of w over `x_axis`, and one "
        "reduce-scatter over `z_axis`; backward as many bytes over each",
        forward=(
            (
                Limit(_GATHERS, "y_axis", _others("x", "y_axis")),
                Limit(_GATHERS, "x_axis", _others("w", "x_axis")),
                Limit(_SUMS, "z_axis", _of_y),
            ),
        ),
    ),
    sharding=True,
    mistakes=tensor_nd_3d_mistakes.MATMUL_3D,
    hints=(
        "Device (i, j, l) of the cube multiplies x_il by w_lj, once. Its part of x is some rows of "
        "x_il, its part of w some columns of w_lj: who has the others?",
        "The other rows of x_il are along `y_axis`, the other columns of w_lj along `x_axis`. The "
        "products of the devices along `z_axis` add up to y_ij, of which each keeps its rows.",
        "lax.all_gather(x, y_axis, tiled=True); for w axis=1, too, as columns stand side by side. "
        "Then lax.psum_scatter(..., z_axis, tiled=True).",
    ),
    minimal="In a cube each device multiplies once, one block of x by one of w. These are the "
    "three faces of its work, and of each face it has 1/q.",
    harder="Write an MLP with it, so that the result lies as x does: which axes change places?",
)

CONTRACTS = (SUMMA_MATMUL, MATMUL_2_5D, MATMUL_3D)
