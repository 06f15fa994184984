"""The bounds on what is sent: closed lists, upper bounds, every sensible route."""

from __future__ import annotations

from typing import Any

import pytest

from jaxpar.contracts.base import Communication, Limit
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.grading.communication import (
    backward_excess,
    charged,
    describe,
    forward_excess,
    wire_by_axis,
    wire_bytes,
)
from jaxpar.inspector.report import Collective

CASE = Case("dp=2,tp=4", {"x": ArraySpec((8, 16), "b_tp d")}, {"axis": "tp"})
SIZES = Sizes(CASE)
X_BYTES = 2 * 16 * 4
RING = tuple((i, (i + 1) % 4) for i in range(4))
BACK = tuple((b, a) for a, b in RING)


def sends(kind: str, operand: float, wire: float, **rest) -> Collective:
    fields = {"axes": ("tp",), "group_size": 4, "dtype": "float32"} | rest
    return Collective(kind=kind, operand_bytes=int(operand), wire_bytes=wire, **fields)


ALL_REDUCE = sends("all_reduce", X_BYTES, 1.5 * X_BYTES)
HOP = sends("permute", X_BYTES, X_BYTES, pairs=RING)


def only(words: str, *kinds: str, wire_bytes: float, **more: Any) -> Communication:
    """A rule that allows these kinds of collective up to a number of bytes, and nothing else."""
    return Communication(words, ((Limit(kinds, "axis", lambda s: wire_bytes, **more),),))


NOTHING = Communication("nothing is sent", ((),))
ONE_ALL_REDUCE = only("one all-reduce of x", "all_reduce", wire_bytes=1.5 * X_BYTES)
BUCKETS = only(
    "a bucket of 96 B, one of 32 B",
    "all_reduce",
    wire_bytes=192,
    exact=True,
    operand_bytes=lambda s: [32, 96],
)
IN_ALL = Communication(
    "any collective, at most 3 times x in all",
    ((Limit(("all_reduce", "permute"), None, lambda s: 3 * X_BYTES),),),
)
RING_ONLY = only("n-1 hops", "permute", wire_bytes=3 * X_BYTES, times=lambda s: 3, neighbours=True)
BOTH_WAYS = only(
    "two hops each way",
    "permute",
    wire_bytes=2 * X_BYTES,
    times=lambda s: 2,
    neighbours=True,
    each_way=True,
)


def test_bytes_are_of_one_device() -> None:
    assert SIZES.bytes("x") == X_BYTES
    assert SIZES.leaf_bytes("x") == [X_BYTES]
    assert SIZES.n() == 4


@pytest.mark.parametrize(
    ("rule", "collectives"),
    [
        (ONE_ALL_REDUCE, []),
        (ONE_ALL_REDUCE, [ALL_REDUCE]),
        (
            ONE_ALL_REDUCE,
            [
                sends("reduce_scatter", X_BYTES, 0.75 * X_BYTES),
                sends("all_gather", X_BYTES / 4, 0.75 * X_BYTES),
            ],
        ),
        (ONE_ALL_REDUCE, [sends("all_reduce", X_BYTES / 2, 0.75 * X_BYTES, times=2)]),
        (ONE_ALL_REDUCE, [ALL_REDUCE, sends("all_gather", 4, 12, times=5)]),
        (RING_ONLY, [sends("permute", X_BYTES, X_BYTES, pairs=BACK, times=3)]),
        (RING_ONLY, [HOP, HOP, HOP]),
        (BUCKETS, [sends("all_reduce", 96, 144), sends("all_reduce", 32, 48)]),
        (BUCKETS, [sends("all_reduce", 96, 144), sends("all_reduce", 4, 6)]),
        (BUCKETS, [sends("all_reduce", 32, 48, times=2)]),
        (BOTH_WAYS, [HOP, HOP, sends("permute", X_BYTES, X_BYTES, pairs=BACK, times=2)]),
    ],
)
def test_right_routes_pass(rule: Communication, collectives: list[Collective]) -> None:
    assert forward_excess(rule, SIZES, collectives) is None


@pytest.mark.parametrize(
    ("rule", "collectives", "says"),
    [
        (ONE_ALL_REDUCE, [ALL_REDUCE, ALL_REDUCE], "go over the wire; 192 bytes are enough"),
        (ONE_ALL_REDUCE, [sends("all_to_all", X_BYTES, 0.75 * X_BYTES)], "all_to_all"),
        (ONE_ALL_REDUCE, [sends("all_reduce", X_BYTES, X_BYTES, axes=("dp",))], "over dp"),
        (ONE_ALL_REDUCE, [sends("all_reduce", X_BYTES, 1, axes=("dp", "tp"))], "over dp"),
        (ONE_ALL_REDUCE, [sends("all_reduce", X_BYTES, 1, times=None)], "unknown length"),
        (ONE_ALL_REDUCE, [sends("all_reduce", 4, 6, times=None)], "unknown length"),
        (ONE_ALL_REDUCE, [ALL_REDUCE, sends("permute", 4, 4, times=9)], "permute"),
        (ONE_ALL_REDUCE, [ALL_REDUCE, sends("all_gather", 8, 24, times=3)], "are enough"),
        (BUCKETS, [ALL_REDUCE], "takes 128 bytes where 96 bytes are enough"),
        (BUCKETS, [sends("all_reduce", 64, 96, times=2)], "64 bytes where 32 bytes are enough"),
        (BUCKETS, [sends("all_reduce", 32, 48)] * 3, "3 collectives; 2 are enough"),
        (BUCKETS, [sends("all_reduce", 16, 0, times=10**12)], "collectives; 2 are enough"),
        (BUCKETS, [sends("reduce_scatter", 96, 72)], "not among"),
        (NOTHING, [sends("all_gather", 4, 12)], "not among"),
        (RING_ONLY, [HOP] * 4, "are enough"),
        (RING_ONLY, [sends("permute", 1 << 5, 1 << 5, pairs=RING, times=6)], "6 steps"),
        (RING_ONLY, [sends("permute", X_BYTES, X_BYTES, pairs=((0, 2),))], "beyond the next"),
        (RING_ONLY, [sends("permute", X_BYTES, X_BYTES, pairs=None)], "beyond the next"),
        (BOTH_WAYS, [HOP] * 3, "to the next device"),
        (BOTH_WAYS, [sends("permute", X_BYTES, X_BYTES, pairs=BACK)] * 3, "previous device"),
        (BOTH_WAYS, [sends("permute", X_BYTES, X_BYTES, pairs=RING + BACK)] * 3, "device"),
    ],
)
def test_more_than_the_rule_is_named(
    rule: Communication, collectives: list[Collective], says: str
) -> None:
    excess = forward_excess(rule, SIZES, collectives)
    assert excess is not None
    assert says in excess.message


def test_the_nearest_alternative_is_named() -> None:
    rule = Communication("either", (*RING_ONLY.forward, *ONE_ALL_REDUCE.forward))
    assert forward_excess(rule, SIZES, [ALL_REDUCE]) is None
    assert forward_excess(rule, SIZES, [HOP] * 3) is None
    excess = forward_excess(rule, SIZES, [HOP, HOP, HOP, ALL_REDUCE])
    assert excess is not None
    assert "all_reduce" in excess.message


def test_backward_is_the_gradient_program_less_the_forward_one() -> None:
    reference = {"tp": 192.0}
    twice = [ALL_REDUCE, ALL_REDUCE]
    assert backward_excess(ONE_ALL_REDUCE, SIZES, [ALL_REDUCE], twice, reference) is None
    assert backward_excess(ONE_ALL_REDUCE, SIZES, [ALL_REDUCE], twice, {}) is not None
    excess = backward_excess(ONE_ALL_REDUCE, SIZES, [ALL_REDUCE], [*twice, ALL_REDUCE], reference)
    assert excess is not None
    assert "384 bytes" in excess.message


def test_backward_as_forward_allows_the_forward_bytes() -> None:
    rule = Communication("", ONE_ALL_REDUCE.forward, backward="forward")
    assert backward_excess(rule, SIZES, [ALL_REDUCE], [ALL_REDUCE, ALL_REDUCE], {}) is None


def test_a_stated_backward_rule_is_held() -> None:
    rule = Communication("", ONE_ALL_REDUCE.forward, backward=RING_ONLY.forward)
    assert backward_excess(rule, SIZES, [ALL_REDUCE], [ALL_REDUCE, HOP], {}) is None
    assert backward_excess(rule, SIZES, [ALL_REDUCE], [ALL_REDUCE, ALL_REDUCE], {}) is not None


def test_totals_and_words() -> None:
    over_both = sends("all_reduce", X_BYTES, 10, axes=("dp", "tp"))
    assert wire_by_axis([ALL_REDUCE, over_both]) == {"tp": 202, "dp": 10}
    assert charged(ONE_ALL_REDUCE, [ALL_REDUCE, sends("permute", 8, 8)]) == [ALL_REDUCE]
    assert describe([HOP, HOP]) == "2 x permute over tp of 128 bytes (128 bytes on the wire)"
    assert describe([]) == "nothing"


OVER_BOTH = sends("permute", X_BYTES, X_BYTES, axes=("dp", "tp"), pairs=((0, 1), (1, 2)))


def test_what_goes_over_two_axes_counts_once() -> None:
    assert sum(wire_by_axis([OVER_BOTH]).values()) == 2 * X_BYTES
    assert wire_bytes([OVER_BOTH]) == X_BYTES
    assert wire_bytes([OVER_BOTH, ALL_REDUCE]) == 2.5 * X_BYTES


def test_permutes_of_other_devices_are_not_added() -> None:
    other = sends("permute", X_BYTES, X_BYTES, axes=("dp", "tp"), pairs=((4, 5),))
    same = sends("permute", X_BYTES, X_BYTES, axes=("dp", "tp"), pairs=((0, 3),))
    assert wire_bytes([OVER_BOTH, other]) == X_BYTES
    assert wire_bytes([OVER_BOTH, same]) == 2 * X_BYTES


@pytest.mark.parametrize(
    ("collectives", "says"),
    [
        ([OVER_BOTH, ALL_REDUCE], None),
        ([OVER_BOTH, ALL_REDUCE, HOP], "448 bytes go over the wire over all axes; 384 bytes are"),
        ([sends("all_gather", X_BYTES, X_BYTES)], None),
        ([sends("all_to_all", X_BYTES, X_BYTES)], "is not among what this exercise may send"),
        ([sends("permute", X_BYTES, X_BYTES, times=None, pairs=RING)], "a loop of unknown length"),
    ],
)
def test_a_bound_on_all_axes_together(collectives: list[Collective], says: str | None) -> None:
    excess = forward_excess(IN_ALL, SIZES, collectives)
    assert (excess is None) if says is None else (excess and says in excess.message)
