"""Products in two and three dims equal one device, and send and hold what they say.

The contracts of `summa_matmul`, `matmul_2_5d` and `matmul_3d` compare these with one device.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import nn
from jaxpar.mesh import make_mesh, spec
from jaxpar.parallel import tensor_nd
from tests.arrays import random
from tests.comm_lines import evaluate, measured, memory, stated

SQUARE = {"rows": "tpx", "cols": "tpy"}
DEEP = SQUARE | {"depth": "tpz"}
CUBE = {"x_axis": "tpx", "y_axis": "tpy", "z_axis": "tpz"}
BLOCKS = ("m_tpx k_tpy", "k_tpx n_tpy", "m_tpx n_tpy")
TURNED_BLOCKS = ("m_tpy k_tpx", "k_tpy n_tpx", "m_tpy n_tpx")
DEEP_BLOCKS = ("m_tpz_tpx k_tpy", "k_tpx n_tpy", "m_tpz_tpx n_tpy")
CUBE_BLOCKS = ("m_tpx_tpy k_tpz", "k_tpz n_tpy_tpx", "m_tpx_tpz n_tpy")


def mlp_layouts(up: tuple[str, ...], down: tuple[str, ...]) -> tuple[str, ...]:
    return up[0], up[1], down[1], down[2]


@dataclass(frozen=True)
class Split:
    """A function of the module on a mesh: the layouts of its arguments, and last of its result."""

    function: Callable
    sizes: str
    axes: dict[str, str]
    layouts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.function.__name__}-{self.sizes}-{next(iter(self.axes.values()))}"

    @property
    def is_mlp(self) -> bool:
        return len(self.layouts) == 4

    def program(self, *, differentiate: bool) -> Callable:
        """The function on global arrays; or also on a cotangent, with its gradients."""
        function = partial(self.function, **self.axes)
        specs = tuple(map(spec, self.layouts))

        def both(*args: Any) -> Any:
            y, pull = jax.vjp(function, *args[:-1])
            return (y, *pull(args[-1]))

        takes, gives = (
            (specs, (specs[-1], *specs[:-1])) if differentiate else (specs[:-1], specs[-1])
        )
        run = both if differentiate else function
        return jax.jit(
            jax.shard_map(run, mesh=make_mesh(self.sizes), in_specs=takes, out_specs=gives)
        )


CUBE_BACK = ("m_tpx_tpz k_tpy", "k_tpy n_tpz_tpx", "m_tpx_tpy n_tpz")
SPLITS = [
    *(
        Split(getattr(tensor_nd, name), sizes, SQUARE, BLOCKS)
        for name in ("summa_matmul", "cannon_matmul")
        for sizes in ("tpx=2,tpy=2", "tpx=3,tpy=3", "tpx=4,tpy=4")
    ),
    *(
        Split(function, "tpx=3,tpy=3", {"rows": "tpy", "cols": "tpx"}, TURNED_BLOCKS)
        for function in (tensor_nd.summa_matmul, tensor_nd.cannon_matmul)
    ),
    Split(tensor_nd.matmul_2_5d, "tpx=2,tpy=2,tpz=3", DEEP, DEEP_BLOCKS),
    Split(tensor_nd.matmul_2_5d, "tpx=3,tpy=3,tpz=1", DEEP, DEEP_BLOCKS),
    Split(tensor_nd.matmul_3d, "tpx=2,tpy=2,tpz=2", CUBE, CUBE_BLOCKS),
    Split(tensor_nd.matmul_3d, "tpx=3,tpy=2,tpz=2", CUBE, CUBE_BLOCKS),
    Split(tensor_nd.mlp_2d, "tpx=2,tpy=2", SQUARE, mlp_layouts(BLOCKS, BLOCKS)),
    Split(tensor_nd.mlp_2_5d, "tpx=2,tpy=2,tpz=2", DEEP, mlp_layouts(DEEP_BLOCKS, DEEP_BLOCKS)),
    Split(tensor_nd.mlp_3d, "tpx=2,tpy=2,tpz=2", CUBE, mlp_layouts(CUBE_BLOCKS, CUBE_BACK)),
    Split(tensor_nd.mlp_3d, "tpx=2,tpy=2,tpz=3", CUBE, mlp_layouts(CUBE_BLOCKS, CUBE_BACK)),
]
IN_CONTRACTS = tensor_nd.summa_matmul, tensor_nd.matmul_2_5d, tensor_nd.matmul_3d
M, K, N = 24, 144, 72


def arguments(split: Split) -> list[np.ndarray]:
    """x, the matrices, and a cotangent of the result."""
    if split.is_mlp:
        return [random(M, K), random(K, N) / 8, random(N, K) / 8, random(M, K) + 1]
    return [random(M, K), random(K, N), random(M, N)]


def one_device(x: jax.Array, *matrices: jax.Array) -> jax.Array:
    if len(matrices) == 1:
        return x @ matrices[0]
    return nn.gelu(x @ matrices[0]) @ matrices[1]


@pytest.mark.parametrize("split", [s for s in SPLITS if s.function not in IN_CONTRACTS], ids=str)
def test_values_and_gradients_equal_one_device(split: Split) -> None:
    *args, cotangent = arguments(split)
    got = split.program(differentiate=True)(*args, cotangent)
    y, pull = jax.vjp(one_device, *args)
    for one, other in zip(got, (y, *pull(jnp.asarray(cotangent))), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


def names_of(split: Split) -> dict[str, int]:
    """What sizes name: elements of each block, and sizes of axes."""
    mesh = make_mesh(split.sizes)

    def block(layout: str, shape: tuple[int, ...]) -> int:
        return math.prod(jax.NamedSharding(mesh, spec(layout)).shard_shape(shape))

    blocks = [block(one, a.shape) for one, a in zip(split.layouts, arguments(split), strict=True)]
    names = dict(zip(("x", "w_up", "w_down", "y") if split.is_mlp else "xwy", blocks, strict=True))
    names |= {f"n_{name[0]}": mesh.shape[axis] for name, axis in split.axes.items()}
    return names | {"q": mesh.shape["tpx"], "h": M * N // mesh.size}


@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_they_send_and_hold_what_they_say(split: Split) -> None:
    args = arguments(split)
    forward = split.program(differentiate=False).lower(*args[:-1])
    both = split.program(differentiate=True).lower(*args)
    names, axes = names_of(split), split.axes
    # A collective over an axis of size 1 sends nothing, and the inspector does not report it.
    mesh = make_mesh(split.sizes)
    sent = {"forward": measured(forward), "backward": measured(both) - measured(forward)}
    for direction, counted in sent.items():
        says = stated(split.function, direction, axes, names)
        assert counted == {key: size for key, size in says.items() if mesh.shape[key[1]] > 1}
    held = forward.out_info.size / make_mesh(split.sizes).size
    assert held == evaluate(memory(split.function), names)


@pytest.mark.parametrize("name", ["summa_matmul", "cannon_matmul", "matmul_2_5d"])
def test_a_mesh_that_is_no_square_is_refused(name: str) -> None:
    function = getattr(tensor_nd, name)
    axes, blocks = (DEEP, DEEP_BLOCKS) if name == "matmul_2_5d" else (SQUARE, BLOCKS)
    split = Split(function, "tpx=2,tpy=3,tpz=2", axes, blocks)
    says = f"{name}: mesh axis tpx has size 2, tpy has size 3; .* use 2 of each"
    with pytest.raises(ValueError, match=says):
        split.program(differentiate=False).lower(random(24, 9), random(6, 12))


def test_rows_that_do_not_divide_are_refused() -> None:
    split = Split(tensor_nd.matmul_3d, "tpx=2,tpy=2,tpz=4", CUBE, CUBE_BLOCKS)
    says = r"matmul_3d: dim m \(size 6\) must be divisible by mesh axis tpz \(size 4\); pad m to 8"
    with pytest.raises(ValueError, match=says):
        split.program(differentiate=False).lower(random(12, 8), random(8, 8))


def test_inner_sizes_need_not_divide_into_rounds() -> None:
    split = Split(tensor_nd.summa_matmul, "tpx=3,tpy=3", SQUARE, BLOCKS)
    x, w = random(6, 3 * 4), random(3 * 4, 6)
    np.testing.assert_allclose(split.program(differentiate=False)(x, w), x @ w, rtol=1e-4)
