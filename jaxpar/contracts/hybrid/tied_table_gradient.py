"""The gradient of a table that the first and the last stage of a pipeline use."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxpar.axes import parse_mesh
from jaxpar.contracts.base import Communication, Contract, Expected, Limit, wrong
from jaxpar.contracts.blocks import ring_bytes
from jaxpar.contracts.case import ArraySpec, Case, Sizes
from jaxpar.contracts.draws import all_axes, axis_names, mesh_of, pick
from jaxpar.contracts.steps import own_shard, scattered
from jaxpar.contracts.zero.common import SCATTERS
from jaxpar.parallel import hybrid


def _rows_of_the_sum(case: Case, embedding_grad: Array, head_grad: Array) -> list[Expected]:
    axes, sizes = list(case.sizes), tuple(case.sizes.values())
    stage, shard = (axes.index(case.kwargs[over]) for over in ("pipeline_axis", "shard_axis"))
    first = embedding_grad.reshape(*sizes, -1, embedding_grad.shape[-1])  # [*sizes, v, d]
    last = jnp.swapaxes(head_grad.reshape(*sizes, -1, head_grad.shape[-1]), -1, -2)
    own = first.take(jnp.array([0]), axis=stage) + last.take(jnp.array([-1]), axis=stage)
    total = own.sum(axis=shard, keepdims=True)
    rows = jnp.concatenate(jnp.split(total, sizes[shard], axis=len(sizes)), axis=shard)
    whole = None if sizes[shard] == 1 else jnp.broadcast_to(total, first.shape)
    return [Expected(jnp.broadcast_to(rows, (*sizes, *rows.shape[len(sizes) :])), whole)]


def _all_reduce_of_rows(sizes: Sizes) -> float:
    """Wire bytes of an all-reduce of this device's rows over `pipeline_axis`."""
    return ring_bytes(2, "embedding_grad", "pipeline_axis")(sizes) / sizes.n("shard_axis")


def _case(
    mesh: str, v: int, d: int, dtype: str = "float32", *, pipeline_axis: str, shard_axis: str
) -> Case:
    """Every device has its own gradients of both uses, of v rows and d columns."""
    every, devices = all_axes(mesh), math.prod(parse_mesh(mesh).values())
    args = {
        "embedding_grad": ArraySpec((devices * v, d), f"v_{every} d", dtype),
        "head_grad": ArraySpec((devices * d, v), f"d_{every} v", dtype),
    }
    return Case(mesh, args, {"pipeline_axis": pipeline_axis, "shard_axis": shard_axis})


def _drawn(rng: np.random.Generator) -> tuple[Case, ...]:
    """More stages, in low precision; one stage, beside an axis of no concern; one shard."""
    pipeline, shard, other = axis_names(rng, 3, besides=("pp", "dp", "fsdp"))
    axes = {"pipeline_axis": pipeline, "shard_axis": shard}
    d = pick(rng, (5, 9, 11))
    many = mesh_of(rng, **{pipeline: 4, shard: 3})
    alone = mesh_of(rng, **{pipeline: 1, shard: 3, other: 2})
    return (
        _case(many, 3 * pick(rng, (5, 7)), d, "bfloat16", **axes),
        _case(alone, 3 * pick(rng, (2, 3, 9)), d, **axes),
        _case(mesh_of(rng, **{pipeline: 5, shard: 1}), pick(rng, (13, 17)), d, **axes),
    )


def _spoil_other_stages(case: Case, inputs: list[np.ndarray]) -> None:
    """Puts NaN and infinity into gradients of stages that do not use the table so."""
    stage = list(case.sizes).index(case.kwargs["pipeline_axis"])
    for x, used in zip(inputs, (0, -1), strict=True):
        stages = np.moveaxis(x.reshape(*case.sizes.values(), -1, x.shape[-1]), stage, 0)
        others = np.arange(len(stages)) != np.arange(len(stages))[used]
        stages[others] = np.inf
        stages[others, ..., ::2] = np.nan


CONTRACT = Contract(
    kind="program",
    task="return this device's rows of the sum of both gradients, over both axes",
    reference=hybrid.tied_table_gradient,
    oracle=_rows_of_the_sum,
    cases=(
        _case("pp=2,dp=4", 24, 6, pipeline_axis="pp", shard_axis="dp"),
        _case("fsdp=2,pp=3", 10, 7, pipeline_axis="pp", shard_axis="fsdp"),
    ),
    draw=_drawn,
    poison=_spoil_other_stages,
    sharding=True,
    communication=Communication(
        "a reduce-scatter of one gradient over `shard_axis`, and an all-reduce of this device's "
        "rows over `pipeline_axis`",
        forward=(
            (
                Limit(SCATTERS, "shard_axis", ring_bytes(1, "embedding_grad", "shard_axis")),
                Limit(
                    ("all_reduce", "all_to_all", "permute"), "pipeline_axis", _all_reduce_of_rows
                ),
            ),
        ),
    ),
    hints=(
        "Each stage has one gradient that counts, both, or none. Choose by lax.axis_index of the "
        "pipeline axis, so that of the others nothing is left, not even a nan.",
        "jnp.where(stage == 0, embedding_grad, 0) is zero on other stages, whatever they hold. Add "
        "the same of the last stage, transposed: a stage that is both has both.",
        "lax.psum_scatter(..., tiled=True) over the shard axis leaves a device v/n rows; then "
        "lax.psum over the pipeline axis sends only these.",
    ),
    minimal="Each device must get its rows from all others on the shard axis, (n-1)/n of the "
    "table, and the two stages' sums of these rows must meet and reach all stages.",
    harder="Let n not divide v: pad the table, and return nothing of the padding.",
)


def _stage(axis: str) -> tuple[Array, int]:
    """The number of this device's stage, and that of the last one."""
    return lax.axis_index(axis), lax.axis_size(axis) - 1


def _chosen(embedding_grad: Array, head_grad: Array, axis: str) -> Array:
    """What this stage adds to the gradient of the table."""
    stage, last = _stage(axis)
    return jnp.where(stage == 0, embedding_grad, 0) + jnp.where(stage == last, head_grad.T, 0)


def _rows_of_all(own: Array, pipeline_axis: str, shard_axis: str) -> Array:
    """This device's rows of the sum over both axes."""
    return lax.psum(scattered(own, shard_axis), pipeline_axis)


@wrong("values")
def reshaped_not_transposed(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The head's gradient is reshaped to [v, d], which mixes up its elements; transpose it."""
    table_like = head_grad.reshape(embedding_grad.shape)
    own = _chosen(embedding_grad, table_like.T, pipeline_axis)
    return _rows_of_all(own, pipeline_axis, shard_axis)


@wrong("values")
def embedding_only(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The gradient of the last stage, which uses the table as its head, is missing."""
    own = jnp.where(_stage(pipeline_axis)[0] == 0, embedding_grad, 0)
    return _rows_of_all(own, pipeline_axis, shard_axis)


@wrong("values")
def head_only(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The gradient of the first stage, which embeds tokens with the table, is missing."""
    stage, last = _stage(pipeline_axis)
    own = jnp.where(stage == last, head_grad.T, 0)
    return _rows_of_all(own, pipeline_axis, shard_axis)


@wrong("values")
def one_of_both(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """A stage gives one gradient or the other, and a pipeline of one stage has both: it is the
    first and the last one."""
    stage, last = _stage(pipeline_axis)
    head = jnp.where(stage == last, head_grad.T, 0)
    own = jnp.where(stage == 0, embedding_grad, head)
    return _rows_of_all(own, pipeline_axis, shard_axis)


@wrong("values")
def other_stages_added(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Every stage adds what it is given; only the first stage's `embedding_grad` and the last one's
    `head_grad` are gradients of the table."""
    return _rows_of_all(embedding_grad + head_grad.T, pipeline_axis, shard_axis)


@wrong("values")
def other_stages_multiplied(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """What other stages hold is multiplied by 0, which NaN and infinity survive; choose with
    jnp.where."""
    stage, last = _stage(pipeline_axis)
    first, final = (jnp.where(stage == s, 1, 0).astype(head_grad.dtype) for s in (0, last))
    own = embedding_grad * first + head_grad.T * final
    return _rows_of_all(own, pipeline_axis, shard_axis)


@wrong("values")
def stages_swapped(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """First and last stage are swapped: stage 0 embeds tokens, and the last stage has the head."""
    stage, last = _stage(pipeline_axis)
    own = jnp.where(stage == last, embedding_grad, 0) + jnp.where(stage == 0, head_grad.T, 0)
    return _rows_of_all(own, pipeline_axis, shard_axis)


@wrong("values")
def mean_over_stages(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """You take the mean over the pipeline's stages; the two uses of the table add up."""
    own = _chosen(embedding_grad, head_grad, pipeline_axis)
    return lax.pmean(scattered(own, shard_axis), pipeline_axis)


@wrong("values")
def mean_of_both_uses(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """You take the mean of the table's two uses; they add up, as all uses of a parameter do."""
    own = _chosen(embedding_grad, head_grad, pipeline_axis)
    return _rows_of_all(own, pipeline_axis, shard_axis) / 2


@wrong("values")
def mean_over_shards(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """You take the mean over the devices of the shard axis; their gradients are parts of a sum."""
    own = _chosen(embedding_grad, head_grad, pipeline_axis)
    return _rows_of_all(own, pipeline_axis, shard_axis) / lax.axis_size(shard_axis)


@wrong("values")
def stages_not_summed(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Each stage returns the gradient of its own use, so that the copies of the table drift apart;
    sum over the pipeline axis."""
    return scattered(_chosen(embedding_grad, head_grad, pipeline_axis), shard_axis)


@wrong("values")
def shards_not_summed(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Each device cuts its rows out of its own gradient; reduce-scatter over the shard axis."""
    own = _chosen(embedding_grad, head_grad, pipeline_axis)
    return lax.psum(own_shard(own, shard_axis), pipeline_axis)


@wrong("values")
def sum_on_the_first_stage_only(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Only the first stage has the sum; all stages need it, since the last one has a copy of the
    table that must stay the same."""
    rows = scattered(_chosen(embedding_grad, head_grad, pipeline_axis), shard_axis)
    stage, last = _stage(pipeline_axis)
    arrived = lax.ppermute(rows, pipeline_axis, [(last, 0)]) if last else 0
    return jnp.where(stage == 0, rows + arrived, rows)


@wrong("values")
def sum_on_both_ends_only(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The first and the last stage exchange their rows, and those between are left out; all stages
    return the sum."""
    rows = scattered(_chosen(embedding_grad, head_grad, pipeline_axis), shard_axis)
    _, last = _stage(pipeline_axis)
    ends = [(0, last), (last, 0)]
    return rows + lax.ppermute(rows, pipeline_axis, ends) if last else rows


@wrong("values")
def rows_of_the_stage(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Device i takes its rows by the index of its stage; the rows go by the index on the shard
    axis."""
    own = lax.psum(_chosen(embedding_grad, head_grad, pipeline_axis), (pipeline_axis, shard_axis))
    size = len(own) // lax.axis_size(shard_axis)
    return lax.dynamic_slice_in_dim(own, lax.axis_index(pipeline_axis) * size, size, 0)


@wrong("sharding")
def returns_whole_table(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Every device returns the gradient of the whole table; return this device's rows."""
    return lax.psum(_chosen(embedding_grad, head_grad, pipeline_axis), (pipeline_axis, shard_axis))


@wrong("communication")
def stages_summed_first(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The whole table goes over the pipeline axis, since you sum over it first; after the
    reduce-scatter it is v/n rows."""
    own = lax.psum(_chosen(embedding_grad, head_grad, pipeline_axis), pipeline_axis)
    return scattered(own, shard_axis)


@wrong("communication")
def all_reduced_then_cut(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """An all-reduce over both axes sends the whole table to all, and each device keeps v/n rows;
    reduce-scatter over the shard axis first."""
    own = _chosen(embedding_grad, head_grad, pipeline_axis)
    return own_shard(lax.psum(own, (pipeline_axis, shard_axis)), shard_axis)


@wrong("communication")
def shards_all_reduced(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """An all-reduce over the shard axis sends twice what a reduce-scatter does, and the device
    keeps v/n rows of it."""
    own = lax.psum(_chosen(embedding_grad, head_grad, pipeline_axis), shard_axis)
    return lax.psum(own_shard(own, shard_axis), pipeline_axis)


@wrong("communication")
def each_use_scattered(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """Both gradients are reduced over the shard axis, twice the bytes; add them up on the device
    first, since a stage has one of them, or both."""
    stage, last = _stage(pipeline_axis)
    first = scattered(jnp.where(stage == 0, embedding_grad, 0), shard_axis)
    final = scattered(jnp.where(stage == last, head_grad.T, 0), shard_axis)
    return lax.psum(first + final, pipeline_axis)


@wrong("communication")
def gathers_shards(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The gradients of all devices on the shard axis are gathered and added: n times the bytes of
    a reduce-scatter."""
    own = lax.all_gather(_chosen(embedding_grad, head_grad, pipeline_axis), shard_axis).sum(axis=0)
    return lax.psum(own_shard(own, shard_axis), pipeline_axis)


@wrong("communication")
def sends_float32(
    embedding_grad: Array, head_grad: Array, *, pipeline_axis: str, shard_axis: str
) -> Array:
    """The gradients are sent as float32, whatever they are; send them in their own dtype, of which
    bfloat16 takes half the bytes."""
    own = _chosen(embedding_grad, head_grad, pipeline_axis).astype(jnp.float32)
    return _rows_of_all(own, pipeline_axis, shard_axis).astype(embedding_grad.dtype)
