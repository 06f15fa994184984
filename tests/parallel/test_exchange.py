"""Rows that travel to their experts equal every expert on every token, padded or ragged."""

from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array, P, lax

from jaxpar.mesh import make_mesh
from jaxpar.parallel import exchange
from tests.parallel.calls import assert_docstring_holds, assert_equal_one_device
from tests.parallel.test_expert import (
    MESHES,
    E,
    K,
    T,
    by_every_expert,
    call,
    routed,
    with_fixed_choices,
)


@MESHES
@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("skew", [0, 5])
def test_it_equals_every_expert_on_every_token(sizes: str, skip: bool, skew: float) -> None:
    """With a load as it comes, and with all tokens on the same two experts."""
    chosen = call(exchange.moe_exchange, skew, block=4, skip=skip)
    one_device = with_fixed_choices(partial(by_every_expert, 1, None), chosen)
    assert_equal_one_device(chosen, one_device, sizes)


def test_what_it_sends_and_holds() -> None:
    chosen = call(exchange.moe_exchange, block=4)
    assert_docstring_holds(replace(chosen, names={"e": E, "k": K}), "ep=4", axis="ep")


def ragged_all_to_all(
    operand: Array,
    output: Array,
    input_offsets: Array,
    send_sizes: Array,
    output_offsets: Array,
    recv_sizes: Array,
    *,
    axis_name: str,
) -> Array:
    """What its documentation says, by all-gathers, since CPUs do not have it."""
    gather = partial(lax.all_gather, axis_name=axis_name)
    here, n = lax.axis_index(axis_name), lax.axis_size(axis_name)
    sent, first, to = (gather(x)[:, here] for x in (send_sizes, input_offsets, output_offsets))
    given, row = gather(operand), jnp.arange(len(output))
    for i in range(n):
        arrived = (row >= to[i]) & (row < to[i] + sent[i])
        part = given[i].at[first[i] + row - to[i]].get(mode="clip")
        output = jnp.where(arrived[:, None], part, output)
    told = recv_sizes == sent
    return jnp.where(told.all(), output, jnp.nan)


@pytest.mark.parametrize("skew", [0, 5])
def test_padded_and_ragged_rows_are_the_same(skew: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lax, "ragged_all_to_all", ragged_all_to_all)
    x, _, experts = routed(skew=skew)

    def both(x: Array, experts: Array) -> tuple[Any, Any]:
        choices = experts.reshape(-1)
        counts = lax.all_gather(jnp.bincount(choices, length=E), "ep")
        traffic = exchange.Traffic.of(counts.reshape(4, 4, E // 4), "ep")
        rows = x[jnp.argsort(choices) // K]
        sends = exchange._padded_send, exchange._ragged_send
        there = [send(rows, *traffic, axis="ep") for send in sends]
        backs = exchange._padded_back, exchange._ragged_back
        return there, [rows, *(back(3 * there[0], *traffic, axis="ep") for back in backs)]

    rows = P("ep")
    mapped = jax.shard_map(both, mesh=make_mesh("ep=4"), in_specs=(rows, rows), out_specs=rows)
    (padded, ragged), (given, *back) = jax.jit(mapped)(x, experts)
    np.testing.assert_array_equal(padded, ragged)
    assert (np.abs(padded).sum(axis=2) > 0).sum() == T * K
    for rows in back:
        np.testing.assert_allclose(rows, 3 * given, rtol=1e-6)


@pytest.mark.parametrize(
    ("platform", "kind"), [("cpu", "stablehlo.all_to_all"), ("tpu", "@ragged_all_to_all")]
)
def test_other_devices_than_cpus_send_no_empty_row(
    platform: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_is_cpu", lambda: platform == "cpu")
    chosen = call(exchange.moe_exchange, block=4)
    traced = chosen.program("ep=4", differentiate=True).trace(*chosen.args)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert text.count(kind) == 4
    assert ("ragged_all_to_all" in text) == (platform == "tpu")


def test_the_result_does_not_depend_on_rows_that_are_empty() -> None:
    """A device that nobody chooses receives only empty rows, and its gradients are 0."""
    chosen = call(exchange.moe_exchange, 5, block=4)
    assert set(np.unique(chosen.args[-1])) == {0, 1}
    _, (_, _, *matrices) = chosen.program("ep=4", differentiate=True)(*chosen.args)
    for gradient in matrices:
        assert np.abs(gradient[:2]).min(axis=(1, 2)).min() > 0
        assert not np.any(gradient[2:])
