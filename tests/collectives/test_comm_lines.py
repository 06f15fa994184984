"""Every public collective sends and holds what its docstring says, measured by the inspector."""

from collections import Counter
from collections.abc import Callable

import jax
import jax.numpy as jnp
import pytest

from jaxpar.inspector.stablehlo import read_module
from tests.collectives.calls import AXES, Call, cases
from tests.comm_lines import comm, evaluate, memory

WIRE = {  # what crosses the wire for each element that goes in
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "all_gather": lambda n: n - 1,
    "permute": lambda n: 1,
}

Sent = Counter[tuple[str, str]]
"""Elements that go into the collectives of a kind over an axis."""


def lowered(call: Call, per_device: Callable, dtype: str = "float32") -> jax.stages.Lowered:
    function = call.on_devices(per_device, varying=True)
    return jax.jit(function).lower(jax.ShapeDtypeStruct(call.shape, dtype))


def stated(call: Call, direction: str) -> Sent:
    sent: Sent = Counter()
    for part in comm(call.function, direction, call.op) or ():
        sent[part.kind, AXES[part.axis]] += evaluate(part.size, call.names)
    return sent


def measured(lowered: jax.stages.Lowered) -> Sent:
    sent: Sent = Counter()
    for collective in read_module(lowered.compiler_ir("stablehlo")):
        (axis,) = collective.axes
        assert collective.times and not collective.conditional
        elements = collective.times * collective.operand_bytes / 4
        assert collective.wire_bytes * collective.times == pytest.approx(
            4 * elements * WIRE[collective.kind](collective.group_size)
        )
        sent[collective.kind, axis] += elements
    return sent


def wire(sent: Sent, mesh: jax.sharding.Mesh) -> Counter[str]:
    """Elements that cross the wire, by axis."""
    total: Counter[str] = Counter()
    for (kind, axis), elements in sent.items():
        total[axis] += elements * WIRE[kind](mesh.shape[axis])
    return total


@pytest.mark.parametrize(("function", "op", "sizes"), cases())
def test_docstring(function: Callable, op: str | None, sizes: str) -> None:
    call = Call(function, op, sizes)
    lowered = call.lower(call.per_device, "int32" if op in ("and", "or", "xor") else "float32")
    forward = measured(lowered)
    assert forward == pytest.approx(call.stated(function, "forward", op))
    results = jax.tree.leaves(lowered.out_info)
    held = sum(result.size for result in results) / call.mesh.size
    assert held == pytest.approx(evaluate(memory(function), call.names))

    if comm(function, "backward", op) is None:
        with pytest.raises((NotImplementedError, TypeError)):
            call.lower(call.forward_and_backward)
        return
    backward = measured(call.lower(call.forward_and_backward)) - forward
    assert backward == pytest.approx(call.stated(function, "backward", op))
    assert wire(backward, call.mesh) <= wire(forward, call.mesh)
