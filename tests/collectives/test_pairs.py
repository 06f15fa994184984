"""Which device sends to which other: the number of bytes does not show that."""

from collections import Counter
from collections.abc import Callable

import jax
import pytest

from jaxpar import collectives
from jaxpar.inspector.stablehlo import read_module
from jaxpar.mesh import make_mesh
from tests.collectives.calls import on_devices

Pairs = tuple[tuple[int, int], ...]


def permutes(function: Callable, n: int, **arguments: int) -> list[Pairs]:
    """The pairs of each permute, in program order."""
    on_mesh = on_devices(
        lambda x: function(x, axis="device", **arguments), make_mesh(f"device={n}")
    )
    program = jax.jit(on_mesh).lower(jax.ShapeDtypeStruct((n, n, 3), "float32"))
    found = read_module(program.compiler_ir("stablehlo"))
    assert {(collective.kind, collective.times) for collective in found} == {("permute", 1)}
    return [collective.pairs or () for collective in found]


def hops(pairs: Pairs, n: int) -> set[int]:
    return {(target - source) % n for source, target in pairs}


@pytest.mark.parametrize("n", [5, 8])
class TestRings:
    @pytest.mark.parametrize(
        "function", [collectives.ring_all_gather, collectives.ring_reduce_scatter]
    )
    def test_all_send_to_the_next(self, function: Callable, n: int) -> None:
        assert [hops(pairs, n) for pairs in permutes(function, n)] == [{1}] * (n - 1)

    def test_two_ways_are_half_each(self, n: int) -> None:
        found = permutes(collectives.two_way_ring_all_gather, n)
        steps = Counter(hop for pairs in found for hop in hops(pairs, n))
        assert steps == {1: n // 2, n - 1: (n - 1) // 2}


@pytest.mark.parametrize(("n", "steps"), [(6, 3), (8, 3), (9, 4)])
def test_a_tree_reaches_each_device_once(n: int, steps: int) -> None:
    down = permutes(collectives.tree_broadcast, n, root=2)
    up = permutes(collectives.tree_reduce, n, root=2)
    assert len(down) == len(up) == steps
    others = sorted(set(range(n)) - {2})
    assert sorted(target for pairs in down for _, target in pairs) == others
    assert sorted(source for pairs in up for source, _ in pairs) == others


def test_doubling_distances() -> None:
    for function in (
        collectives.recursive_doubling_all_gather,
        collectives.recursive_doubling_all_reduce,
    ):
        partners = [{a ^ b for a, b in pairs} for pairs in permutes(function, 8)]
        assert partners == [{1}, {2}, {4}]
