"""Every public collective sends and holds what its docstring says, measured by the inspector."""

import math
from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from tests.collectives.calls import AXES, BITS, Call, calls, on_devices
from tests.comm_lines import WIRE, Sent, comm, evaluate, measured, memory, stated


def said(call: Call, direction: str) -> Sent:
    return stated(call.function, direction, AXES, names(call), call.op)


def names(call: Call) -> dict[str, int]:
    """The values of the names that a size may contain."""
    groups = {"n" if axis == "axis" else f"n_{axis}": n for axis, n in call.groups.items()}
    return {"x": math.prod(call.shape), **groups}


def on_the_wire(sent: Sent, call: Call) -> Counter[str]:
    """Elements that cross the wire, by axis."""
    total: Counter[str] = Counter()
    for (kind, axis), elements in sent.items():
        total[axis] += elements * WIRE[kind](call.mesh.shape[axis])
    return total


def lower(call: Call, per_device: Callable) -> jax.stages.Lowered:
    dtype = "int32" if call.op in BITS else "float32"
    x = jax.ShapeDtypeStruct((*call.mesh.axis_sizes, *call.shape), dtype)
    return jax.jit(on_devices(per_device, call.mesh)).lower(x)


@pytest.mark.parametrize("call", calls(), ids=str)
def test_forward_and_memory(call: Call) -> None:
    program = lower(call, call.per_device)
    assert measured(program) == pytest.approx(said(call, "forward"))
    results = jax.tree.leaves(program.out_info)
    held = sum(result.size for result in results) / call.mesh.size
    assert held == pytest.approx(evaluate(memory(call.function), names(call)))


@pytest.mark.parametrize("call", [call for call in calls() if call.op not in BITS], ids=str)
def test_backward(call: Call) -> None:
    """Differentiated inside `shard_map`, as a training step is."""

    def forward_and_backward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, pull = jax.vjp(call.per_device, x)
        return y, pull(jnp.ones_like(y))[0]

    if comm(call.function, "backward", call.op) is None:
        with pytest.raises(NotImplementedError):
            lower(call, forward_and_backward)
    else:
        forward = measured(lower(call, call.per_device))
        backward = measured(lower(call, forward_and_backward)) - forward
        assert backward == pytest.approx(said(call, "backward"))
        assert on_the_wire(backward, call) <= on_the_wire(forward, call)


@pytest.mark.parametrize("op", BITS)
def test_bits_have_no_derivative(op: str) -> None:
    for call in calls():
        if call.op == op:
            assert comm(call.function, "backward", op) is None
