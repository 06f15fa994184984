"""The mean of a pytree of gradients, several leaves in one all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import axis_first, on_every_device
from jaxpar.contracts.case import ArraySpec, Case, Function, Made, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.parallel import data


def _means(case: Case, gradients: Any) -> list[Expected]:
    leaves = jax.tree.leaves(gradients)
    return [Expected(on_every_device(case, axis_first(case, x).mean(axis=0))) for x in leaves]


def _bucket_bytes(sizes: Sizes) -> list[int]:
    """Bytes of each bucket."""
    buckets: list[int] = []
    for leaf in sizes.leaf_bytes("gradients"):
        if buckets and buckets[-1] + leaf <= sizes.case.kwargs["bucket_bytes"]:
            buckets[-1] += leaf
        else:
            buckets.append(leaf)
    return buckets


def _chunk_bytes(sizes: Sizes) -> list[int]:
    """Bytes of 1/n of each bucket, padded."""
    item_bytes = jnp.dtype(next(sizes.case.arrays())[1].dtype).itemsize
    return [-(-bucket // (sizes.n() * item_bytes)) * item_bytes for bucket in _bucket_bytes(sizes)]


def _half_round_bytes(sizes: Sizes) -> int:
    """Wire bytes of a reduce-scatter, or an all-gather, of all buckets."""
    return (sizes.n() - 1) * sum(_chunk_bytes(sizes))


# One all-reduce for each bucket, or a reduce-scatter of it (its chunks may also be exchanged, and
# added up after that) and an all-gather of what that leaves.
_BUCKETS = (
    (
        Limit(
            ("all_reduce",),
            "axis",
            lambda s: 2 * _half_round_bytes(s),
            exact=True,
            operand_bytes=_bucket_bytes,
        ),
    ),
    (
        Limit(
            ("reduce_scatter", "all_to_all"),
            "axis",
            _half_round_bytes,
            operand_bytes=lambda s: [s.n() * chunk for chunk in _chunk_bytes(s)],
        ),
        Limit(("all_gather",), "axis", _half_round_bytes, operand_bytes=_chunk_bytes),
    ),
)


def _linear(bias: int, rows: int, cols: int, axes: str, dtype: str = "float32") -> dict:
    """A bias and a matrix, of which each device has its own."""
    return {
        "b": ArraySpec((bias,), f"d_{axes}", dtype),
        "w": ArraySpec((rows, cols), f"d_{axes} f", dtype),
    }


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    axis, other = axis_names(rng, 2, besides=("dp", "fsdp", "tp"))
    n, others = pick(rng, ((5, 2), (4, 3), (2, 2)))
    mesh = mesh_of(rng, **{axis: n, other: others})
    axes, devices, k = all_axes(mesh), n * others, pick(rng, (7, 9, 11))

    def leaf(*shape: int) -> ArraySpec:
        first, *rest = shape
        layout = " ".join([f"a_{axes}", *"bcd"[: len(rest)]])
        return ArraySpec((devices * first, *rest), layout, "float16")

    # With room for 6k elements, and for a part of one more, the 13 leaves make eleven buckets.
    many = {
        "a": leaf(6 * k + 1),  # too large before any other
        "m": [
            {"one": leaf(2 * k), "two": (leaf(k, 2, 2), leaf(1))},  # full, then one element
            {"one": leaf(3 * k, 2, 1), "two": leaf(7 * k)},  # too large between others
        ],
        "n": Made(
            Function("optax:TraceState"),
            (({"z": leaf(k), "zz": leaf(2, k, 2)}, leaf(2 * k)),),
        ),
        "o": [leaf(8 * k), leaf(9 * k)],  # one too large after another
        "p": (leaf(k), leaf(6 * k)),
    }
    few = [ArraySpec((2 * pick(rng, (13, 14)),), f"a_{axis}_{other}")] * 2
    return (
        Case(mesh, {"gradients": many}, {"axis": axis, "bucket_bytes": 2 * 6 * k + 1}),
        Case(
            f"{axis}=1,{other}=2",
            {"gradients": (few, few)},
            {"axis": axis, "bucket_bytes": 4000},  # room for all
        ),
    )


CONTRACT = Contract(
    kind="program",
    task="return the mean of the gradients over `axis`, by one all-reduce for each bucket",
    reference=data.bucketed_all_reduce,
    oracle=_means,
    cases=(
        Case(
            "dp=8",
            {
                "gradients": {
                    "embedding": ArraySpec((8 * 6, 8), "v_dp d"),
                    "first": _linear(8 * 16, 8 * 5, 8, "dp"),
                    "last": _linear(8 * 8, 8 * 3, 8, "dp"),
                    "output": ArraySpec((8 * 10, 8), "d_dp v"),
                    "scale": ArraySpec((8 * 8,), "d_dp"),
                },
            },
            {"axis": "dp", "bucket_bytes": 4 * 64},
        ),
        Case(
            "fsdp=3,tp=2",
            {
                "gradients": (
                    ArraySpec((6 * 44,), "d_fsdp_tp", "bfloat16"),  # too large before any other
                    [_linear(6 * 12, 6 * 6, 5, "fsdp_tp", "bfloat16")] * 2,
                ),
            },
            {"axis": "fsdp", "bucket_bytes": 2 * 42},
        ),
    ),
    draw=_drawn,
    communication=Communication("one all-reduce for each bucket, of its bytes", forward=_BUCKETS),
    hints=(
        "jax.tree.flatten gives the leaves in order, and the structure that puts them together "
        "again. First decide which leaves go into the same bucket; sizes are known when the "
        "function is traced.",
        "A bucket is one array: concatenate its leaves, each made flat, and take lax.pmean of "
        "that. lax.pmean of a list sends each leaf by itself.",
        "Cut the mean where the leaves end, in the order in which you packed them, and give each "
        "its shape.",
    ),
    minimal="Every leaf must be reduced; a bucket saves the latency of a message for each leaf "
    "after its first, and its size decides how early the first message can go.",
    harder="Fill the buckets from the last leaf, whose gradient is ready first, as PyTorch does.",
)


Bucket = list[int]  # positions of its leaves


def _fits(held: int, more: int, capacity: int) -> bool:
    return held + more <= capacity


def _buckets(
    gradients: Any,
    bucket_bytes: int,
    *,
    fits: Callable[[int, int, int], bool] = _fits,
    last_first: bool = False,
) -> list[Bucket]:
    """Opens a bucket where a leaf does not fit: `fits(held, more, capacity)`, in elements."""
    leaves = jax.tree.leaves(gradients)
    capacity = bucket_bytes // leaves[0].dtype.itemsize
    buckets: list[Bucket] = [[]]
    for i in reversed(range(len(leaves))) if last_first else range(len(leaves)):
        held = sum(leaves[j].size for j in buckets[-1])
        if held and not fits(held, leaves[i].size, capacity):
            buckets.append([])
        buckets[-1].append(i)
    return buckets


def _reduce(
    gradients: Any,
    buckets: list[Bucket],
    axis: str,
    *,
    divisor: int | None = None,
    unpacked: Callable[[Bucket], Iterable[int]] = iter,
) -> Any:
    """One all-reduce for each bucket; leaves that are in none stay local."""
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in buckets:
        flat = jnp.concatenate([leaves[i].ravel() for i in bucket])
        flat = lax.psum(flat, axis) / jnp.asarray(divisor or lax.axis_size(axis), flat.dtype)
        for i in unpacked(bucket):
            size, shape = leaves[i].size, leaves[i].shape
            leaves[i], flat = flat[:size].reshape(shape), flat[size:]
    return structure.unflatten(leaves)


@wrong("values")
def sum_for_mean(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """The sum over the devices is not divided by their number."""
    return _reduce(gradients, _buckets(gradients, bucket_bytes), axis, divisor=1)


@wrong("values")
def constant_n(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """You divide by a constant, 8, or by the number of all devices; divide by lax.axis_size(axis),
    the size of the axis."""
    return _reduce(gradients, _buckets(gradients, bucket_bytes), axis, divisor=8)


@wrong("values")
def last_bucket_not_sent(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """The bucket that is open after the last leaf is never reduced."""
    return _reduce(gradients, _buckets(gradients, bucket_bytes)[:-1], axis)


@wrong("values")
def unpacks_in_reverse(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """A bucket is packed from its first leaf on and unpacked from its last; use one order."""
    return _reduce(gradients, _buckets(gradients, bucket_bytes), axis, unpacked=reversed)


@wrong("values")
def unpacks_from_start(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """Every leaf of a bucket is read from its start; begin where the leaf before it ended."""
    leaves, structure = jax.tree.flatten(gradients)
    for bucket in _buckets(gradients, bucket_bytes):
        flat = lax.pmean(jnp.concatenate([leaves[i].ravel() for i in bucket]), axis)
        for i in bucket:
            leaves[i] = flat[: leaves[i].size].reshape(leaves[i].shape)
    return structure.unflatten(leaves)


@wrong("communication")
def one_bucket(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """All leaves are in one bucket; open the next where a leaf does not fit."""
    return _reduce(gradients, [list(range(len(jax.tree.leaves(gradients))))], axis)


@wrong("communication")
def bucket_for_each_leaf(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """Each leaf is reduced by itself, as lax.pmean of a list does, too; concatenate the leaves of a
    bucket first."""
    return jax.tree.map(lambda leaf: lax.pmean(leaf, axis), gradients)


@wrong("communication")
def last_leaf_over(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """A bucket takes one leaf more than fits; check before you add the leaf."""

    def fits(held: int, more: int, capacity: int) -> bool:
        return held < capacity

    return _reduce(gradients, _buckets(gradients, bucket_bytes, fits=fits), axis)


@wrong("communication")
def never_quite_full(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """You turn away a leaf that would fill the bucket exactly; it fits."""

    def fits(held: int, more: int, capacity: int) -> bool:
        return held + more < capacity

    return _reduce(gradients, _buckets(gradients, bucket_bytes, fits=fits), axis)


@wrong("communication")
def bytes_as_elements(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """`bucket_bytes` is compared with a number of elements; multiply by the bytes of one."""
    item_bytes = jax.tree.leaves(gradients)[0].dtype.itemsize
    return _reduce(gradients, _buckets(gradients, bucket_bytes * item_bytes), axis)


@wrong("communication")
def last_leaf_first(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """The buckets are filled from the last leaf; go in the order of jax.tree.leaves."""
    return _reduce(gradients, _buckets(gradients, bucket_bytes, last_first=True), axis)


@wrong("communication")
def cuts_leaves(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """Leaves are cut where a bucket is full; a leaf that does not fit opens the next bucket."""
    leaves, structure = jax.tree.flatten(gradients)
    flat = jnp.concatenate([leaf.ravel() for leaf in leaves])
    step = bucket_bytes // flat.dtype.itemsize
    parts = [lax.pmean(flat[start : start + step], axis) for start in range(0, flat.size, step)]
    flat = jnp.concatenate(parts)
    for i, leaf in enumerate(leaves):
        leaves[i], flat = flat[: leaf.size].reshape(leaf.shape), flat[leaf.size :]
    return structure.unflatten(leaves)


@wrong("values")
def widens_buckets(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """The means come out in float32; each must have the dtype of its leaf, and a bucket is packed
    and sent in that dtype."""
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), gradients)
    return _reduce(wide, _buckets(gradients, bucket_bytes), axis)


@wrong("communication")
def sends_float32(gradients: Any, *, axis: str, bucket_bytes: int) -> Any:
    """The buckets are sent in float32, whatever the dtype of the leaves; send them in that
    dtype."""
    means = widens_buckets(gradients, axis=axis, bucket_bytes=bucket_bytes)
    return jax.tree.map(lambda mean, leaf: mean.astype(leaf.dtype), means, gradients)
