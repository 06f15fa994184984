"""The corpus: programs whose collectives were counted by hand.

Unless a program says otherwise, its x is [8, 16] float32 over dp=2 and tp=4: a device's part is
[4, 4], 64 bytes.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from jaxpar.mesh import make_mesh, spec
from tests.inspector.corpus import Program


def ring(n: int) -> list[tuple[int, int]]:
    return [(i, (i + 1) % n) for i in range(n)]


def shift(x, _=None):
    return lax.ppermute(x, "tp", ring(4)), None


def in_scan(x):
    return lax.scan(shift, x, None, length=5)[0]


def in_nested_scan(x):
    def outer(x, _):
        return lax.scan(shift, lax.all_to_all(x, "tp", 0, 0, tiled=True), None, length=2)

    return lax.scan(outer, x, None, length=3, reverse=True)[0]


def in_fori(x):
    return lax.fori_loop(2, 9, lambda i, x: lax.ppermute(x, "dp", ring(2)) + i, x)


def in_cond(x, flag):  # flag is 1 to 4 on every device: all take the second branch
    def other(x):
        return lax.all_to_all(x, "tp", 0, 0, tiled=True)

    return lax.cond(flag[0] > 100, lambda x: shift(x)[0], other, x)


def in_remat(w):  # w [6, 4, 4] of 6 layers, h [4]: forward, again, and for the gradient of h
    def layer(h, w):
        return jnp.sin(lax.psum(w @ h, "tp")), None

    def loss(w):
        return lax.scan(jax.checkpoint(layer), jnp.ones(4), w)[0].sum()

    return jax.grad(loss)(w)


@jax.custom_vjp
def mean_gradient(x):
    return x


mean_gradient.defvjp(
    lambda x: (x, None),
    lambda _, ct: (lax.pcast(lax.pmean(ct, "dp"), "dp", to="varying"),),
)


def in_custom_vjp(x):
    return jax.grad(lambda x: (mean_gradient(x) ** 2).sum())(x)


@jax.jit
def doubled_shift(x):
    return shift(2 * x)[0]


def data_parallel(w, x):  # w [4, 8] whole, x [16, 4] split: the gradient of w is summed, 128 bytes
    return jax.grad(lambda w: ((x @ w) ** 2).sum())(w)


def fully_sharded(w, x):
    """Gathers w [16, 4] from 2 rows a device; on CPU its gradient is all-reduced, then sliced."""
    gradient = jax.grad(lambda w: ((x @ w) ** 2).sum())(w)
    return lax.with_sharding_constraint(gradient, NamedSharding(make_mesh("dp=8"), spec("d_dp f")))


PER_SHARD = [
    Program(
        "psum",
        lambda x: lax.psum(x, "tp"),
        (("all_reduce", "tp", "float32", 64, 96, 1),),
        out="b_dp t",
    ),
    Program(
        "psum_over_both_axes",
        lambda x: lax.psum(x, ("dp", "tp")),
        (("all_reduce", "dp+tp", "float32", 64, 112, 1),),
        out="b t",
    ),
    Program(
        "pmax_of_outer_and_inner_axis",  # x [4, 8] float32 a device
        lambda x: lax.pmax(x, ("dp", "tp")),
        (("all_reduce", "dp+tp", "float32", 128, 192, 1),),
        mesh="dp=2,cp=2,tp=2",
        out="b t",
    ),
    Program(
        "psum_of_one_device",  # XLA runs it, and moves nothing
        lambda x: lax.psum(x, "dp"),
        (),
        mesh="dp=1,tp=4",
        out="b t_tp",
        run={"all_reduce": 1},
    ),
    Program(
        "psum_of_a_tuple",  # XLA makes one all_reduce of the two
        lambda x: sum(lax.psum((x, x[:1]), "tp")),
        (
            ("all_reduce", "tp", "float32", 16, 24, 1),
            ("all_reduce", "tp", "float32", 64, 96, 1),
        ),
        out="b_dp t",
        run={"all_reduce": 1},
    ),
    Program(
        "psum_of_bfloat16",
        lambda x: lax.psum(x, "tp"),
        (("all_reduce", "tp", "bfloat16", 32, 48, 1),),
        out="b_dp t",
        arrays=(((8, 16), "bfloat16", "b_dp t_tp"),),
    ),
    Program(
        "all_gather",
        lambda x: lax.all_gather(x, "tp", tiled=True),
        (("all_gather", "tp", "float32", 64, 192, 1),),
    ),
    Program(
        "all_gather_to_a_result_equal_on_all",
        lambda x: lax.all_gather(x, "tp", tiled=True, to="invarying"),
        (("all_gather", "tp", "float32", 64, 192, 1),),
        out="b_dp t",
    ),
    Program(
        "all_gather_of_int8",
        lambda x: lax.all_gather(x, "dp", tiled=True),
        (("all_gather", "dp", "int8", 16, 16, 1),),
        arrays=(((8, 16), "int8", "b_dp t_tp"),),
    ),
    Program(
        "psum_scatter",
        lambda x: lax.psum_scatter(x, "dp", tiled=True),
        (("reduce_scatter", "dp", "float32", 64, 32, 1),),
    ),
    Program(
        "all_to_all",
        lambda x: lax.all_to_all(x, "tp", 0, 1, tiled=True),
        (("all_to_all", "tp", "float32", 64, 48, 1),),
    ),
    Program(
        "ppermute",
        lambda x: shift(x)[0],
        (("permute", "tp", "float32", 64, 64, 1),),
    ),
    Program(
        "ppermute_on_three",  # x [8, 16] a device
        lambda x: lax.ppermute(x, "device", ring(3)),
        (("permute", "device", "float32", 512, 512, 1),),
        mesh="device=3",
        out="b_device t",
        arrays=(((24, 16), "float32", "b_device t"),),
    ),
    Program(
        "psum_on_six",  # x [4, 4] a device
        lambda x: lax.psum(x, "tp"),
        (("all_reduce", "tp", "float32", 64, 4 / 3 * 64, 1),),
        mesh="dp=2,tp=3",
        out="b_dp t",
        arrays=(((8, 12), "float32", "b_dp t_tp"),),
    ),
    Program("in_scan", in_scan, (("permute", "tp", "float32", 64, 64, 5),)),
    Program(
        "in_nested_scan",
        in_nested_scan,
        (
            ("all_to_all", "tp", "float32", 64, 48, 3),
            ("permute", "tp", "float32", 64, 64, 6),
        ),
    ),
    Program("in_fori", in_fori, (("permute", "dp", "float32", 64, 64, 7),)),
    Program(
        "in_cond",
        in_cond,
        (
            ("?all_to_all", "tp", "float32", 64, 48, 1),
            ("?permute", "tp", "float32", 64, 64, 1),
        ),
        arrays=(((8, 16), "float32", "b_dp t_tp"), ((1,), "int32", "n")),
        run={"permute": 0},
    ),
    Program(
        "in_remat",
        in_remat,
        (("all_reduce", "tp", "float32", 16, 24, 6),) * 3,
        mesh="tp=4",
        out="l b t_tp",
        arrays=(((6, 4, 16), "float32", "l b t_tp"),),
    ),
    Program("in_custom_vjp", in_custom_vjp, (("all_reduce", "dp", "float32", 64, 64, 1),)),
    Program(
        "in_called_functions",
        lambda x: doubled_shift(doubled_shift(x)),
        (("permute", "tp", "float32", 64, 64, 1),) * 2,
    ),
]

BY_THE_COMPILER = [
    Program(
        "compiled_data_parallel",
        data_parallel,
        (("all_reduce", "dp", "float32", 128, 224, 1),),
        mesh="dp=8",
        out=None,
        arrays=(((4, 8), "float32", "d f"), ((16, 4), "float32", "b_dp d")),
    ),
    Program(
        "compiled_fully_sharded",
        fully_sharded,
        (
            ("all_gather", "dp", "float32", 32, 224, 1),
            ("all_reduce", "dp", "float32", 256, 448, 1),
        ),
        mesh="dp=8",
        out=None,
        arrays=(((16, 4), "float32", "d_dp f"), ((16, 16), "float32", "b_dp d")),
    ),
]
