"""Front end 1 counts collectives by their names, and refuses what it does not know."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

from jaxpar.inspector.mlir import parse
from jaxpar.inspector.stablehlo import count_flops, read_module, read_products
from tests.inspector.corpus import stablehlo
from tests.inspector.modules import CHANNEL, all_reduce, module, permute, plain_module
from tests.inspector.programs import ring, shift

TP = "dense<[[0, 1, 2, 3], [4, 5, 6, 7]]> : tensor<2x4xi64>"
DP = "dense<[[0, 4], [1, 5], [2, 6], [3, 7]]> : tensor<4x2xi64>"
NAMED = "#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [{}]>"
HALF = '#stablehlo.axis_ref<name = "tp", sub_axis_info = {}>'
AXIS = '#stablehlo.axis_ref<name = "{}">'


@pytest.mark.parametrize(
    ("groups", "axes", "size"),
    [
        (TP, ("tp",), 4),
        (DP, ("dp",), 2),
        ("dense<[[7, 5, 4, 6], [3, 2, 0, 1]]> : tensor<2x4xi64>", ("tp",), 4),
        ("dense<[[0, 1, 2, 3, 4, 5, 6, 7]]> : tensor<1x8xi64>", ("dp", "tp"), 8),
        ("dense<[[0, 1], [2, 3], [4, 5], [6, 7]]> : tensor<4x2xi64>", ("tp",), 2),
        ("dense<[[0, 1, 2], [3, -1, -1]]> : tensor<2x3xi64>", ("tp",), 3),
        (NAMED.format(AXIS.format("tp")), ("tp",), 4),
        (NAMED.format(HALF.format("(1)2")), ("tp",), 2),
        (NAMED.format(HALF.format("(2)2")), ("tp",), 2),
        (NAMED.format(", ".join(map(AXIS.format, ("tp", "dp")))), ("dp", "tp"), 8),
    ],
)
def test_spellings_of_groups(groups: str, axes: tuple[str, ...], size: int) -> None:
    (one,) = read_module(module(all_reduce(groups)))
    assert (one.axes, one.group_size, one.operand_bytes) == (axes, size, 8)


def test_groups_of_one_move_nothing() -> None:
    assert read_module(module(all_reduce("dense<[[0], [1]]> : tensor<2x1xi64>"))) == ()
    still = permute().replace("dense<[[0, 1]]> : tensor<1x2xi64>", "dense<0> : tensor<1x2xi64>")
    assert read_module(module(still)) == ()


def test_names_come_from_positions_in_the_mesh_that_is_given() -> None:
    given = {"node": 2, "device": 2, "cp": 2}
    (one,) = read_module(module(all_reduce(TP)), given)
    assert one.axes == ("device", "cp")
    with pytest.raises(ValueError, match=r"position 4, but the mesh a=4 has positions 0 to 3"):
        read_module(module(all_reduce(TP)), {"a": 4})


def test_positions_are_not_device_ids() -> None:
    devices = np.array(jax.devices()[:8])[::-1].reshape(2, 4)
    mesh = jax.sharding.Mesh(devices, ("dp", "tp"))
    program = jax.shard_map(
        lambda x: lax.psum(x, "tp"), mesh=mesh, in_specs=P("dp", "tp"), out_specs=P("dp")
    )
    lowered = jax.jit(program).lower(jax.ShapeDtypeStruct((8, 16), "float32"))
    (one,) = read_module(lowered.compiler_ir("stablehlo"))
    assert (one.axes, one.group_size) == (("tp",), 4)


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (all_reduce(TP, CHANNEL), "groups replicas"),
        (permute(attributes=CHANNEL.replace("handle = 1", "handle = 0")), "has no channel"),
        (all_reduce(NAMED.format(AXIS.format("up"))), "spells its groups"),
        (
            "stablehlo.custom_call @ragged_all_to_all(%x) : (tensor<2xf32>) -> tensor<2xf32>",
            "'ragged_all_to_all', which may communicate",
        ),
        (
            "%t = stablehlo.create_token : !stablehlo.token\n"
            '"stablehlo.send"(%x, %t) <{channel_handle = #stablehlo.channel_handle<handle = 1, '
            "type = 1>}> : (tensor<2xf32>, !stablehlo.token) -> !stablehlo.token",
            "stablehlo.send at .* is not known",
        ),
        (
            '%r = "stablehlo.cross-replica-sum"(%x) <{replica_groups = dense<0> : '
            "tensor<1x1xi64>}> : (tensor<2xf32>) -> tensor<2xf32>",
            "cross-replica-sum at .* is not known",
        ),
        (
            '%s = sdy.all_reduce {"tp"} %x out_sharding=<@mesh, [{}]> : tensor<2xf32>',
            "sdy.all_reduce at .* is not known",
        ),
    ],
)
def test_what_is_not_understood_is_refused(body: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_module(module(body))


def test_a_mesh_with_its_own_order_is_refused() -> None:
    ordered = '"dp"=2, "tp"=4], device_ids=[7, 6, 5, 4, 3, 2, 1, 0'
    with pytest.raises(ValueError, match="lists device ids"):
        read_module(module("", mesh=ordered))


def test_a_collective_outside_shard_map_is_refused() -> None:
    with pytest.raises(ValueError, match=r"position 1, but the mesh of no axes"):
        read_module(plain_module(all_reduce(TP)))


def test_bytes_that_are_no_program(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"5 bytes are not a serialized program"):
        parse(b"hello")


def test_pairs_of_a_permute_along_its_axes() -> None:
    def program(x):
        x = lax.ppermute(x, "dp", [(0, 1)])
        x = lax.ppermute(x, ("dp", "tp"), ring(8))
        x = lax.ppermute(x, ("dp", "tp"), [(0, 1)])
        return lax.ppermute(x, "tp", [(3, 2), (2, 1)])

    found = read_module(stablehlo(program))
    assert [one.axes for one in found] == [("dp",), ("dp", "tp"), ("tp",), ("tp",)]
    assert [one.group_size for one in found] == [2, 8, 4, 4]
    pairs = [one.pairs for one in found]
    assert pairs == [((0, 1),), tuple(sorted(ring(8))), None, ((2, 1), (3, 2))]


def test_the_line_is_the_innermost_of_ours() -> None:
    (one,) = read_module(stablehlo(lambda x: shift(x)[0]))
    path, line = one.source.rsplit(":", 1)
    assert path.endswith("tests/inspector/programs.py")
    assert int(line) == shift.__code__.co_firstlineno + 1


def test_dtypes_have_their_own_size() -> None:
    for dtype, operand_bytes in (("int4", 8), ("uint8", 16), ("float16", 32), ("complex64", 128)):
        arrays = (((8, 16), dtype, "b_dp t_tp"),)
        (one,) = read_module(stablehlo(lambda x: shift(x)[0], arrays=arrays))
        assert (one.dtype, one.operand_bytes) == (dtype, operand_bytes)


def test_flops_multiply_through_loops_and_calls() -> None:
    @jax.jit
    def product(x, w):  # [4, 4] each on a device: 128 flops
        return x @ w

    def program(x):
        x = lax.scan(lambda x, _: (product(x, x), None), x, None, length=3)[0]
        return product(x, x)

    assert count_flops(stablehlo(program)) == 4 * 128
    assert read_products(stablehlo(program)).number == 4


def test_flops_of_products_in_batches_and_of_convolutions() -> None:
    def program(x):  # [4, 4] a device
        y = jnp.einsum("bij,bjk->bik", x.reshape(2, 2, 4), x.reshape(2, 4, 2))
        kernel = jnp.ones((3, 2, 4))  # width, features in a group, features out
        z = lax.conv_general_dilated(
            x[None],
            kernel,
            (1,),
            "SAME",
            dimension_numbers=("NWC", "WIO", "NWC"),
            feature_group_count=2,
        )
        return x + y.sum() + z.sum()

    assert count_flops(stablehlo(program)) == 2 * (2 * 2 * 2) * 4 + 2 * (4 * 4) * (3 * 2)
    assert read_products(stablehlo(program)).number == 2


def multiplied_and_summed(x, w):
    return (x[:, :, None] * w[None]).sum(1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("gradient", [False, True])
def test_a_product_that_is_multiplied_and_summed_counts_as_one(dtype: str, gradient: bool) -> None:
    def flops(product):
        function = product
        if gradient:
            function = jax.grad(lambda x, w: (product(x, w) ** 2).sum(), (0, 1))
        shapes = (jax.ShapeDtypeStruct(shape, dtype) for shape in ((6, 8), (8, 10)))
        return count_flops(jax.jit(function).lower(*shapes).compiler_ir("stablehlo"))

    assert flops(multiplied_and_summed) == flops(jnp.matmul) == 2 * 6 * 8 * 10 * (1 + 2 * gradient)


def added_one_by_one(x, w):
    return sum(x[:, k, None] * w[None, k] for k in range(len(w)))


def added_in_a_loop(x, w):
    def add(k, y):
        return y + x[:, k, None] * w[None, k]

    return lax.fori_loop(0, len(w), add, jnp.zeros((len(x), w.shape[1]), x.dtype))


def added_by_the_caller(x, w):
    outer = jax.jit(lambda a, b: a[:, None] * b[None])
    return sum(outer(x[:, k], w[k]) for k in range(len(w)))


def multiplied_chosen_and_summed(x, w):
    product = x[:, :, None] * w[None]
    return jnp.where(product > -100, product, 0).sum(1)


def multiplied_and_summed_on_and_on(x, w):
    return jnp.cumsum(x[:, :, None] * w[None], axis=1)[:, -1]


def outer_products_stacked_and_summed(x, w):
    return lax.map(lambda pair: pair[0][:, None] * pair[1][None], (x.T, w)).sum(0)


def outer_products_moved_and_summed(x, w):
    return jnp.moveaxis(x[:, :, None] * w[None], 1, 0).reshape(len(w), -1).sum(0)


def vector_by_vector(x, w):
    return lax.map(lambda row: (row[:, None] * w).sum(0), x)


def element_by_element(x, w):
    return lax.map(lambda row: lax.map(lambda column: (row * column).sum(), w.T), x)


def pairs_of_rows(x, w):
    rows, columns = jnp.repeat(x, w.shape[1], axis=0), jnp.tile(w.T, (len(x), 1))
    return (rows * columns).sum(1).reshape(len(x), w.shape[1])


@pytest.mark.parametrize(
    "product",
    [
        outer_products_stacked_and_summed,
        outer_products_moved_and_summed,
        vector_by_vector,
        element_by_element,
        pairs_of_rows,
        added_one_by_one,
        added_in_a_loop,
        added_by_the_caller,
        multiplied_chosen_and_summed,
        multiplied_and_summed_on_and_on,
    ],
)
def test_a_product_by_other_sums_counts_as_one(product) -> None:
    shapes = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((6, 8), (8, 10)))
    lowered = jax.jit(product).lower(*shapes).compiler_ir("stablehlo")
    assert count_flops(lowered) == 2 * 6 * 8 * 10


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x * x[:1]).sum(0),  # adds along the dim that is repeated
        lambda x: (x * jnp.tanh(x)).sum(1),
        lambda x: (lambda row: (row * row).sum())(x[0]),
        lambda x: (x[:, :, None] * jnp.ones((4, 4, 3))).sum(1),
        lambda x: (x[:, :, None] * x[None]).max(1),
        lambda x: (x[:, :, None] + x[None]).sum(1),
        lambda x: (x[:, :, None, None] * x[None, None]).sum((0, 2)),  # adds along neither
        lambda x: jnp.var(x, axis=1),
        lambda x: jnp.cos(x[0, :, None] * x[1, None]).sum(1),  # angles of rotary positions
    ],
)
def test_other_sums_are_no_products(function) -> None:
    shape = jax.ShapeDtypeStruct((4, 4), "float32")
    assert count_flops(jax.jit(function).lower(shape).compiler_ir("stablehlo")) == 0


def test_flops_in_a_loop_of_unknown_length_are_not_known() -> None:
    def program(x):
        return lax.while_loop(lambda x: x.sum() < 9, lambda x: x @ x, x)

    assert count_flops(stablehlo(program)) is None
    assert read_products(stablehlo(program)).number is None


def test_dtypes_of_what_is_multiplied() -> None:
    def program(x):
        low = x.astype("float16")
        wide = jnp.matmul(low, low, preferred_element_type="float32")
        return lax.scan(lambda x, _: (x @ x, None), wide.astype("bfloat16"), None, length=2)

    assert read_products(stablehlo(program)).dtypes == ("bfloat16", "float16")
    assert read_products(stablehlo(lambda x: x + x)).dtypes == ()
