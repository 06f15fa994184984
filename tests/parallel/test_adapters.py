"""Adapters give what one device computes with whole matrices, and send what they say."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpar import nn
from jaxpar.inspector import inspect
from jaxpar.mesh import make_mesh
from jaxpar.parallel import adapters
from jaxpar.quantize import nf4_dequantize, nf4_quantize
from tests.arrays import random
from tests.parallel.calls import Call, assert_docstring_holds, assert_equal_one_device

P = jax.P
MESHES = pytest.mark.parametrize("sizes", ["dp=2,tp=4", "dp=4,tp=2"])
D, F, R, BLOCK = 24, 32, 4, 8
X, W, A, B = random(16, D), random(D, F), random(D, R), random(R, F)
CODES = tuple(map(np.asarray, nf4_quantize(jnp.asarray(W), block=BLOCK)))
LAYERS = 3
BASE = {"w": random(LAYERS, D, D) / 5, "bias": random(LAYERS, D)}
ADAPTERS = {"a": random(LAYERS, D, R) / 5, "b": random(LAYERS, R, D) / 5}


def lora(x: jax.Array, w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
    return adapters.lora_linear(x, w, a, b, scale=0.5)


def layer(base: dict, adapter: dict, x: jax.Array) -> jax.Array:
    y = lora(x, base["w"], adapter["a"], adapter["b"]) + base["bias"][None]
    return x + jnp.tanh(y) @ adapter["b"].T @ adapter["a"].T  # each adapter is used twice


def loss_fn(base: dict, trained: dict, x: jax.Array) -> jax.Array:
    for i in range(LAYERS):
        x = layer(*jax.tree.map(lambda leaf, i=i: leaf[i], (base, trained)), x)
    return jnp.mean(x**2)


def nf4(x: jax.Array, packed: jax.Array, largest: jax.Array) -> jax.Array:
    return adapters.nf4_linear(x, packed, largest, block=BLOCK)


COLUMNS = Call(
    adapters.lora_linear, lora, (X, W, A, B),
    (P("dp"), P(None, "tp"), P(), P(None, "tp")), P("dp", "tp"),
)  # fmt: skip
ROWS = Call(
    adapters.lora_row_linear,
    lambda x, w, a, b: adapters.lora_row_linear(x, w, a, b, axis="tp", scale=0.5),
    (X, W, A, B), (P(None, "tp"), P("tp"), P("tp"), P()), P(),
)  # fmt: skip
FSDP = Call(
    adapters.fsdp_lora_apply,
    lambda base_shards, adapters_, x: adapters.fsdp_lora_apply(
        layer, base_shards, adapters_, x, axis="tp"
    ),
    (BASE, ADAPTERS, X), (P(None, "tp"), P(), P("tp")), P("tp"),
    names={"adapters": sum(leaf.size for leaf in ADAPTERS.values())},
)  # fmt: skip


@MESHES
@pytest.mark.parametrize("call", [COLUMNS, ROWS], ids=["columns", "rows"])
def test_shards_give_the_whole_product(sizes: str, call: Call) -> None:
    assert_equal_one_device(call, lora, sizes)


@MESHES
def test_layers_with_a_frozen_base(sizes: str) -> None:
    def one_device(base: dict, trained: dict, x: jax.Array) -> jax.Array:
        base = jax.lax.stop_gradient(base)
        for i in range(LAYERS):
            x = layer(*jax.tree.map(lambda leaf, i=i: leaf[i], (base, trained)), x)
        return x

    assert_equal_one_device(FSDP, one_device, sizes)


def test_a_frozen_base_sends_two_thirds() -> None:
    """Twice gathered; a base that is trained is reduce-scattered as well."""
    mesh = make_mesh("fsdp=8")

    def sent(frozen: bool) -> float:
        def loss(base: dict, trained: dict, x: jax.Array) -> jax.Array:
            y = adapters.fsdp_lora_apply(layer, base, trained, x, axis="fsdp")
            return (y**2).sum()

        def trained_base(base: dict, trained: dict, x: jax.Array) -> jax.Array:
            def body(x: jax.Array, parts: tuple) -> tuple:
                return layer(jax.lax.all_gather(parts[0], "fsdp", tiled=True), parts[1], x), None

            body = jax.checkpoint(body, prevent_cse=False)
            return (
                jax.lax.scan(body, x, (base, jax.lax.pcast(trained, "fsdp", to="varying")))[0] ** 2
            ).sum()

        specs = (P(None, "fsdp"), P(), P("fsdp"))
        step = jax.shard_map(
            jax.grad(loss if frozen else trained_base, argnums=(0, 1)),
            mesh=mesh, in_specs=specs, out_specs=specs[:2],
        )  # fmt: skip
        by_kind = {"all_gather": 0.0, "reduce_scatter": 0.0}
        for one in inspect(step, BASE, ADAPTERS, X).collectives:
            if one.kind in by_kind:
                by_kind[one.kind] += one.total_wire_bytes or 0
        return sum(by_kind.values())

    base_bytes = 4 * sum(leaf.size for leaf in BASE.values())
    assert sent(frozen=True) == 2 * 7 / 8 * base_bytes
    assert sent(frozen=False) == 3 * 7 / 8 * base_bytes


@MESHES
@pytest.mark.parametrize("of", ["columns", "rows"])
def test_merged_shards_are_shards_of_the_merged_matrix(sizes: str, of: str) -> None:
    specs = {
        "columns": (P(None, "tp"), P(), P(None, "tp")),
        "rows": (P("tp"), P("tp"), P()),
    }[of]

    def merge(w: jax.Array, a: jax.Array, b: jax.Array) -> jax.Array:
        return adapters.merge(w, a, b, scale=0.5)

    merged = jax.jit(
        jax.shard_map(merge, mesh=make_mesh(sizes), in_specs=specs, out_specs=specs[0])
    )(W, A, B)
    np.testing.assert_allclose(merged, W + 0.5 * A @ B, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(X @ merged, jax.jit(lora)(X, W, A, B), rtol=1e-4, atol=1e-4)


def test_an_adapter_whose_b_is_zero_changes_nothing() -> None:
    np.testing.assert_array_equal(jax.jit(lora)(X, W, A, 0 * B), jax.jit(nn.matmul)(X, W))


@MESHES
def test_a_product_with_codes_is_that_with_their_numbers(sizes: str) -> None:
    call = Call(
        adapters.nf4_linear, nf4, (X, *CODES),
        (P("dp"), P(None, "tp"), P(None, "tp")), P("dp", "tp"), 1,
    )  # fmt: skip
    assert_equal_one_device(call, lambda x, *codes: x @ nf4_dequantize(*codes), sizes)


def test_codes_have_no_gradient() -> None:
    gradient = jax.jit(jax.grad(lambda *args: nf4(*args).sum(), argnums=2))(X, *CODES)
    assert not gradient.any()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_product_has_the_dtype_of_x(dtype: str) -> None:
    y = jax.jit(nf4)(jnp.asarray(X, dtype).reshape(2, 8, D), *CODES)
    assert (y.dtype, y.shape) == (dtype, (2, 8, F))


def test_a_matrix_of_codes_is_never_whole() -> None:
    d, f = 256, 1024
    x, packed, largest = jnp.ones((4, d)), jnp.ones((d, f // 2), "uint8"), jnp.ones((d, f // 64))
    g = jnp.ones((4, f))

    def temp_bytes(product: Callable) -> tuple[int, int]:
        forward = jax.jit(product)
        both = jax.jit(lambda x, *codes: jax.vjp(lambda x: product(x, *codes), x)[1](g))
        return tuple(
            program.lower(x, packed, largest).compile().memory_analysis().temp_size_in_bytes
            for program in (forward, both)
        )

    whole = temp_bytes(lambda x, *codes: x @ nf4_dequantize(*codes))
    sliced = temp_bytes(lambda x, *codes: adapters.nf4_linear(x, *codes, block=64))
    assert all(4 * one < other for one, other in zip(sliced, whole, strict=True))


@pytest.mark.parametrize(
    ("block", "message"), [(7, "block is 7"), (0, "block is 0"), (16, "32 codes in blocks of 16")]
)
def test_blocks_that_do_not_fit_are_refused(block: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        jax.jit(partial(adapters.nf4_linear, block=block))(X, *CODES)


GRADIENTS = Call(
    adapters.adapter_gradients,
    lambda base, adapters_, batch: adapters.adapter_gradients(
        loss_fn, base, adapters_, batch, axis="dp"
    ),
    (BASE, ADAPTERS, X), (P(), P(), P("dp")), (P(), P()), 0,
    names={"adapters": sum(leaf.size for leaf in ADAPTERS.values())},
)  # fmt: skip


@MESHES
def test_gradients_of_adapters_are_those_of_the_whole_batch(sizes: str) -> None:
    loss, gradients = GRADIENTS.program(sizes, differentiate=False)(*GRADIENTS.args)
    expected = jax.jit(jax.value_and_grad(loss_fn, argnums=1))(*GRADIENTS.args)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-5)
    for name, one in gradients.items():
        np.testing.assert_allclose(one, expected[1][name], rtol=1e-3, atol=1e-5)


Q, K, V = random(4, 8, 6, 4), random(4, 4, 6, 4), random(4, 4, 6, 4)
PREFIX = random(4, 5, 4), random(4, 5, 4)
PREFIXED = Call(
    adapters.prefix_attention, adapters.prefix_attention, (Q, K, V, *PREFIX),
    (P("dp", "tp"), P("dp", "tp"), P("dp", "tp"), P("tp"), P("tp")), P("dp", "tp"),
)  # fmt: skip


def attention_without_the_first(*arrays: jax.Array) -> jax.Array:
    """The results of the later positions of a sequence that begins with the prefix."""
    q, k, v, prefix_k, prefix_v = arrays
    (b, a, _, h), p = q.shape, prefix_k.shape[1]
    q = jnp.concatenate([jnp.zeros((b, a, p, h)), q], axis=2)
    repeated = (jnp.broadcast_to(x[None], (b, *x.shape)) for x in (prefix_k, prefix_v))
    k, v = (jnp.concatenate(both, axis=2) for both in zip(repeated, (k, v), strict=True))
    return nn.attention(q, k, v)[:, :, p:]


@MESHES
def test_a_prefix_is_the_beginning_of_the_sequence(sizes: str) -> None:
    assert_equal_one_device(PREFIXED, attention_without_the_first, sizes)


def test_no_prefix_changes_nothing() -> None:
    nothing = [x[:, :0] for x in PREFIX]
    got = jax.jit(adapters.prefix_attention)(Q, K, V, *nothing)
    np.testing.assert_allclose(got, jax.jit(nn.attention)(Q, K, V), rtol=1e-5, atol=1e-6)


CALLS = [
    Call(adapters.lora_linear, lora, (X, W, A, B), (P(),) * 4, P()),
    Call(
        adapters.merge, lambda w, a, b: adapters.merge(w, a, b, scale=0.5), (W, A, B), (P(),) * 3,
        P(),
    ),
    Call(adapters.nf4_linear, nf4, (X, *CODES), (P(),) * 3, P(), 1),
    ROWS,
    FSDP,
    Call(
        adapters.prefix_attention, adapters.prefix_attention, (Q, K, V, *PREFIX),
        (P(None, "tp"),) * 3 + (P("tp"),) * 2, P(None, "tp"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS, ids=str)
def test_it_sends_and_holds_what_it_says(call: Call) -> None:
    assert_docstring_holds(call, "dp=2,tp=4", axis="tp")


def test_gradients_send_and_hold_what_they_say() -> None:
    assert_docstring_holds(GRADIENTS, "dp=4,tp=2", axis="dp")
