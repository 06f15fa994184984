"""Attention over split positions equals one device, and sends, holds and computes what it says."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, P
from jax.extend.core import Jaxpr, jaxprs_in_params

from jaxpar import nn
from jaxpar.flash import attend
from jaxpar.inspector import inspect
from jaxpar.inspector.report import Report
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from jaxpar.parallel import context
from tests.arrays import random
from tests.parallel.calls import (
    Call,
    assert_close,
    assert_docstring_holds,
    assert_equal_one_device,
)

B, S, H = 2, 48, 4
HEADS = {"MHA": (12, 12), "GQA": (12, 4), "few": (12, 2), "MQA": (12, 1)}
SPLIT = P(None, None, "cp")
LAYOUT_OF = {
    context.ring_attention: "contiguous",
    context.zigzag_ring_attention: "zigzag",
    context.striped_ring_attention: "striped",
    context.ulysses_attention: "contiguous",
    context.gather_attention: "zigzag",
}
each = pytest.mark.parametrize("function", LAYOUT_OF, ids=lambda function: function.__name__)


def order(layout: str, n: int, s: int = S) -> np.ndarray:
    """The positions of a sequence, device after device."""
    place = np.arange(s)
    if layout == "striped":
        return np.concatenate([place[i::n] for i in range(n)])
    if layout == "zigzag":
        chunks = place.reshape(2 * n, -1)
        return np.concatenate([chunks[[i, 2 * n - 1 - i]].ravel() for i in range(n)])
    return place


def arguments(heads: tuple[int, int], s: int = S, h: int = H) -> tuple[np.ndarray, ...]:
    a, kv_heads = heads
    return random(B, a, s, h), random(B, kv_heads, s, h), 2 * random(B, kv_heads, s, h)[::-1]


def call(function: Callable, heads: tuple[int, int], *, s: int = S, h: int = H, **how: Any) -> Call:
    specs = (SPLIT,) * 3
    per_device = partial(function, axis="cp", **how)
    copies = {"copies": 1}
    return Call(function, per_device, arguments(heads, s, h), specs, SPLIT, names=copies)


def one_device(layout: str, n: int) -> Callable:
    """Causal attention of a sequence whose positions are in the order of a layout."""
    places = order(layout, n)
    back = np.argsort(places)

    def attention(q: Array, k: Array, v: Array) -> Array:
        return nn.attention(*(x[:, :, back] for x in (q, k, v)))[:, :, places]

    return attention


@each
@pytest.mark.parametrize(
    ("sizes", "heads"),
    [("cp=4", "GQA"), ("dp=2,cp=3", "MHA"), ("cp=4", "few"), ("cp=6", "MQA"), ("cp=1", "GQA")],
)
def test_it_equals_one_device(function: Callable, sizes: str, heads: str) -> None:
    """On several devices, on one; and with few kv heads, which Ulysses repeats."""
    n = make_mesh(sizes).shape["cp"]
    assert_equal_one_device(call(function, HEADS[heads]), one_device(LAYOUT_OF[function], n), sizes)


@pytest.mark.parametrize("layout", context.LAYOUTS)
def test_gathered_keys_in_every_layout(layout: str) -> None:
    gathered = call(context.gather_attention, HEADS["GQA"], layout=layout)
    assert_equal_one_device(gathered, one_device(layout, 3), "cp=3")


@pytest.mark.parametrize("layout", context.LAYOUTS)
@pytest.mark.parametrize("n", [1, 4])
def test_positions(layout: str, n: int) -> None:
    run = jax.shard_map(
        lambda: context.positions(layout, S // n, axis="cp"),
        mesh=make_mesh(f"cp={n}"), in_specs=(), out_specs=P("cp"),
    )  # fmt: skip
    got = jax.jit(run)()
    np.testing.assert_array_equal(got, order(layout, n))
    assert (np.diff(got.reshape(n, -1)) > 0).all()


@pytest.mark.parametrize("layout", ["contiguous", "zigzag"])
def test_documents(layout: str) -> None:
    """They end within a shard, and differ between examples."""
    places = order(layout, 3)
    documents = np.repeat([[0, 1, 2], [7, 3, 3]], [5, 26, 17], axis=1)
    same = documents[:, :, None] == documents[:, None]
    mask = jnp.asarray(same & np.tril(np.ones((S, S), bool)))
    q, k, v = map(jnp.asarray, arguments(HEADS["GQA"]))

    def gathered(q: Array, k: Array, v: Array, documents: Array) -> Array:
        return context.gather_attention(q, k, v, documents, axis="cp", layout=layout)

    specs = (SPLIT, SPLIT, SPLIT, P())
    run = jax.shard_map(gathered, mesh=make_mesh("cp=3"), in_specs=specs, out_specs=SPLIT)
    in_order = (x[:, :, places] for x in (q, k, v))
    assert_close(jax.jit(run)(*in_order, documents), attend(q, k, v, mask)[0][:, :, places])


SHARDS = Call(
    context.attention_over_shards,
    partial(context.attention_over_shards, axis="cp"),
    arguments(HEADS["GQA"]),
    (P(), SPLIT, SPLIT),
    P(),
)


def test_queries_of_all_devices_attend_to_split_keys() -> None:
    """Some scores are beyond what exp can take."""
    everything = lambda q, k, v: attend(q, k, v)[0]  # noqa: E731
    assert_equal_one_device(SHARDS, everything, "cp=4")
    large = replace(SHARDS, args=(40 * SHARDS.args[0][:, :, :5], *SHARDS.args[1:]))
    got = large.program("dp=2,cp=3", differentiate=False)(*large.args)
    assert_close(got, attend(*map(jnp.asarray, large.args))[0])


@pytest.mark.parametrize(("u", "heads"), [(2, "GQA"), (4, "few")])
def test_heads_on_one_axis_and_a_ring_on_another(u: int, heads: str) -> None:
    split = P(None, None, ("cp", "tp"))
    per_device = partial(context.hybrid_attention, ring_axis="cp", heads_axis="tp")
    copies = {"copies": max(1, u // HEADS[heads][1])}
    both = Call(
        context.hybrid_attention, per_device, arguments(HEADS[heads]), (split,) * 3, split,
        names=copies,
    )  # fmt: skip
    assert_equal_one_device(both, one_device("zigzag", 3), f"cp=3,tp={u}")
    assert_docstring_holds(both, f"cp=3,tp={u}", ring_axis="cp", heads_axis="tp")


@each
def test_it_sends_and_holds_what_it_says(function: Callable) -> None:
    assert_docstring_holds(call(function, HEADS["GQA"]), "cp=4", axis="cp")


def test_what_is_sent_where_kv_heads_are_few_and_queries_are_equal() -> None:
    ulysses = call(context.ulysses_attention, HEADS["few"])
    assert_docstring_holds(replace(ulysses, names={"copies": 3}), "cp=6", axis="cp")
    shards = replace(SHARDS, names={"h": H})
    assert_docstring_holds(shards, "cp=4", axis="cp")


RINGS = (context.ring_attention, context.zigzag_ring_attention, context.striped_ring_attention)


def reports(function: Callable, n: int, s: int, heads: str = "GQA") -> tuple[Report, Report]:
    """Of the forward pass, and of both."""
    one = call(function, HEADS[heads], s=s, h=8)
    forward, both = (
        inspect(one.program(f"cp={n}", differentiate=way), *one.args) for way in (False, True)
    )
    return forward, both


@pytest.mark.parametrize("function", RINGS, ids=lambda function: function.__name__)
def test_a_ring_sends_to_neighbours_and_never_under_a_condition(function: Callable) -> None:
    one = call(function, HEADS["GQA"])
    program = one.program("cp=6", differentiate=True).lower(*one.args)
    for collective in read_module(program.compiler_ir("stablehlo")):
        assert collective.pairs == tuple((j, (j + 1) % 6) for j in range(6))
        assert not collective.conditional


def bodies(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Of the loops of a program, also of those in one another."""
    for equation in jaxpr.eqns:
        for inner in jaxprs_in_params(equation.params):
            if equation.primitive.name in ("scan", "while"):
                yield inner
            yield from bodies(inner)


@pytest.mark.parametrize("function", RINGS, ids=lambda function: function.__name__)
def test_no_hop_waits_for_what_its_round_computes(function: Callable) -> None:
    """What a round sends is what it began with, so both can run at once."""
    one = call(function, HEADS["GQA"])
    program = jax.make_jaxpr(one.program("cp=6", differentiate=True))(*one.args).jaxpr
    rounds = 0
    for body in bodies(program):
        hops = [equation for equation in body.eqns if equation.primitive.name == "ppermute"]
        assert all(set(hop.invars) <= set(body.invars) for hop in hops)
        rounds += bool(hops)
    assert rounds == 2  # forward and backward


@pytest.mark.parametrize("n", [4, 8])
def test_under_a_zigzag_only_scores_that_count_are_computed(n: int) -> None:
    """Of all scores (2n+1)/4n on every device; a ring without it computes all blocks."""
    s = 16 * n
    products = 2 * B * 12 * s * s // n * 8  # of one product of all scores of a device
    zigzag = reports(context.zigzag_ring_attention, n, s)
    gather = reports(context.gather_attention, n, s)
    for forward, both in (zigzag, gather):
        assert forward.flops == 2 * products * (2 * n + 1) / (4 * n)
        assert both.flops == 7 * products * (2 * n + 1) / (4 * n)
    assert reports(context.ring_attention, n, s)[0].flops == 2 * products


@pytest.mark.parametrize("function", RINGS, ids=lambda function: function.__name__)
def test_a_ring_never_holds_all_keys(function: Callable) -> None:
    """With twice the devices and positions, a device holds as much; with gathered keys, more."""
    (few, _), (many, _) = (reports(function, n, 32 * n, heads="MHA") for n in (4, 8))
    assert few.memory and many.memory
    assert many.memory.temp_bytes <= 1.1 * few.memory.temp_bytes
    _, gathered = reports(context.gather_attention, 8, 256, heads="MHA")
    _, both = reports(function, 8, 256, heads="MHA")
    assert gathered.memory and both.memory
    assert both.memory.temp_bytes < gathered.memory.temp_bytes


@each
def test_16_bits_travel_and_gradients_are_summed_in_32(function: Callable) -> None:
    one = call(function, HEADS["GQA"])
    args = [jnp.asarray(x, jnp.bfloat16) for x in one.args]
    program = one.program("cp=4", differentiate=True)
    got = program(*args)
    right = program(*(x.astype(jnp.float32) for x in args))
    for x, wide in zip(jax.tree.leaves(got), jax.tree.leaves(right), strict=True):
        assert x.dtype == jnp.bfloat16
        np.testing.assert_allclose(x.astype(jnp.float32), wide, atol=0.03 * np.abs(wide).max())
    forward = one.program("cp=4", differentiate=False).lower(*args).compiler_ir("stablehlo")
    assert {c.dtype for c in read_module(forward)} <= {"bfloat16", "int32"}


def test_sizes_that_do_not_fit() -> None:
    for function, heads, sizes, s, says in (
        (context.zigzag_ring_attention, (2, 2), "cp=4", 12, "3 positions on a device; .* has 4"),
        (context.gather_attention, (2, 2), "cp=4", 12, "3 positions on a device"),
        (context.ulysses_attention, (6, 6), "cp=4", 48, r"dim a \(size 6\) must be divisible by"),
        (
            context.ulysses_attention,
            (12, 6),
            "cp=4",
            48,
            "6 kv heads on mesh axis cp .* use 2 or 6",
        ),
        (context.ring_attention, (3, 2), "cp=4", 48, "3 heads and 2 kv heads"),
    ):
        one = call(function, heads, s=s)
        with pytest.raises(ValueError, match=says):
            one.program(sizes, differentiate=False).lower(*one.args)
    with pytest.raises(ValueError, match="layout is 'round'; use one of contiguous, zigzag, str"):
        one = call(context.gather_attention, (2, 2), layout="round")
        one.program("cp=4", differentiate=False).lower(*one.args)
