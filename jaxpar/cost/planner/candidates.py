"""Every way to spread a model over a number of devices, as arrays with an element for each way."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from jaxpar.axes import show_mesh
from jaxpar.checks import check_one_of
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.hardware import Cluster
from jaxpar.cost.layout import KNOWN_REMATS, check_axis, remats, unfit
from jaxpar.cost.zero import ADAM_MIXED, States
from jaxpar.layout import AXES, CONTEXT_KINDS, OFFLOAD_KINDS, ZERO_STAGES, Layout

BLOCK = 1 << 15  # layouts at once; the numbers of their terms take a hundred MB
Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Job:
    """What is trained, and where.

    Attributes:
        architecture: the model.
        cluster: what devices there are.
        devices: how many of them.
        batch: examples in a step, over all devices.
        sequence: positions in an example.
        each: the states of training.
    """

    architecture: Architecture
    cluster: Cluster
    devices: int
    batch: int
    sequence: int
    each: States = ADAM_MIXED

    @property
    def gradient_bytes(self) -> int:
        """The bytes of a gradient, of what is trained."""
        return round(self.each.gradients / self.each.trained)


def layouts(job: Job, fixed: Mapping[str, Any], offload: str) -> Iterator[Layout]:
    """All layouts of a job, in blocks: each is a `Layout` whose sizes are arrays.

    ZeRO's stages 1 and 2 go over dp, and stage 3 over fsdp, unless `fixed` says otherwise: over
    the other axis they are the same. Two things are tried only if they are fixed: stage 2 beside a
    pipeline, and remat "selective" where attention is fused. Over cp, every kind of context is
    tried that the positions and the heads allow; but a ring with unequal work only where positions
    do not divide into a zigzag, which sends and holds as much.

    Raises:
        ValueError: there is no layout; the message says why, and what is near.
    """
    _check_choices(fixed)
    columns = _columns(job, fixed)
    again = _chosen(fixed, "remat", remats(job.architecture))
    split = _chosen(fixed, "sequence_parallel", (False, True))
    stages, contexts = _chosen(fixed, "zero", ZERO_STAGES), _contexts(job, columns, fixed)
    for zero, sequence_parallel, context in product(stages, split, contexts):
        plain = {"zero": zero, "sequence_parallel": sequence_parallel, "offload": offload}
        plain["context"] = context
        kept = _stage(columns, zero, fixed) & contexts[context]
        if sequence_parallel:
            splits = (columns["tp"] > 1) & (job.sequence % (columns["cp"] * columns["tp"]) == 0)
            if splits.any() or "sequence_parallel" not in fixed:
                kept &= splits
        # In one array of layouts, all must have an axis fsdp or none: see Layout.state_shards.
        for group in (kept & (columns["fsdp"] == 1), kept & (columns["fsdp"] > 1)):
            (rows,) = group.nonzero()
            for start in range(0, len(rows), BLOCK):
                block = rows[start : start + BLOCK]
                layout = Layout(
                    **{name: column[block] for name, column in columns.items()}, **plain
                )
                yield from (replace(layout, remat=remat) for remat in again)


def offloads(job: Job, fixed: Mapping[str, Any]) -> tuple[str, ...]:
    """The kinds of offload to try: more states go to the host only if nothing fits with less.

    With a fixed mesh, nothing is offloaded unless `fixed` asks for it.
    """
    every = tuple(OFFLOAD_KINDS)
    return _chosen(fixed, "offload", every[:1] if names_mesh(job, fixed) else every)


def names_mesh(job: Job, fixed: Mapping[str, Any]) -> bool:
    """Whether axes are fixed, and leave no other mesh."""
    named = [fixed[axis] for axis in AXES if axis in fixed]
    return bool(named) and math.prod(named) == job.devices


def _chosen(fixed: Mapping[str, Any], name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    return (fixed[name],) if name in fixed else values


def _stage(columns: Columns, zero: int, fixed: Mapping[str, Any]) -> np.ndarray:
    """A mask of the meshes on which this stage of ZeRO is tried: those that can shard states."""
    over_fsdp = columns["fsdp"] > 1
    shardable = _parts(columns) * columns["cp"] > 1
    named = "dp" in fixed or "fsdp" in fixed
    kept = over_fsdp if zero == 3 else ~over_fsdp
    if "zero" in fixed:
        kept = kept | named | ~shardable
        return kept & shardable if zero and (kept & shardable).any() else kept
    # Beside a pipeline dp shards no more than the optimizer's states, as in Megatron-LM and
    # DeepSpeed: gradients would be sent for every microbatch.
    over_dp = (kept | (named & (zero == 3))) & ((zero < 2) | (columns["pp"] == 1))
    return ((kept & over_fsdp) | over_dp) & (shardable | (zero == 0))


def _contexts(job: Job, columns: Columns, fixed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """For each kind of context a mask of the sizes with which it is tried, the best kind first.

    Where positions are not split, all kinds are the same, and the first stands for them.
    """
    cp = columns["cp"]
    chunks = job.sequence % (2 * cp) == 0
    fits = {"zigzag": chunks, "gather": chunks, "ulysses": _exchanges(job, columns)}
    if "context" in fixed:
        kind = fixed["context"]
        mask = (cp == 1) | fits.get(kind, cp > 1)
        if not mask.any():
            raise ValueError(
                f"plan: context {kind} with cp in {{{_few(cp.tolist())}}}: over cp, a zigzag needs "
                "2 * cp to divide the sequence, and ulysses needs cp to divide the heads of a "
                "device; use another cp, or context ring"
            )
        return {kind: mask}
    fits["ring"] = ~chunks
    masks = {kind: (cp > 1) & mask for kind, mask in fits.items()}
    return masks | {"zigzag": masks["zigzag"] | (cp == 1)}


def _exchanges(job: Job, columns: Columns) -> np.ndarray:
    """A mask of the sizes with which every device of cp can get heads at all positions."""
    a, cp = job.architecture, columns["cp"]
    heads = a.heads // columns["tp"]
    key_heads = heads if a.latent else np.maximum(a.key_heads // columns["tp"], 1)
    return (heads % cp == 0) & ((key_heads % cp == 0) | (cp % key_heads == 0))


def _check_choices(fixed: Mapping[str, Any]) -> None:
    choices = {"zero": ZERO_STAGES, "remat": KNOWN_REMATS, "offload": tuple(OFFLOAD_KINDS)}
    choices["context"] = tuple(CONTEXT_KINDS)
    for name, values in choices.items():
        check_one_of("plan", name, fixed.get(name, values[0]), values)
    for name in (*AXES, "chunks", "microbatch"):
        if fixed.get(name, 1) < 1:
            raise ValueError(f"plan: {name} is {fixed[name]}; use 1 or more")


def _columns(job: Job, fixed: Mapping[str, Any]) -> Columns:
    """The sizes of all layouts: axes, microbatch and chunks."""
    for axis in AXES:
        if axis in fixed:
            check_axis("plan", job.architecture, job.sequence, axis, fixed[axis])
    columns = _meshes(job, fixed)
    columns = _with(columns, "microbatch", _chosen(fixed, "microbatch", divisors(job.batch)))
    local = job.batch // _parts(columns)
    kept = local % columns["microbatch"] == 0
    if not kept.any():
        allowed = {n for part in local.tolist() for n in divisors(part)}
        raise ValueError(
            f"plan: microbatch {fixed['microbatch']}, of the {_few(local.tolist())} examples that "
            f"a device gets; it must divide them; use one of {_few(allowed)}"
        )
    return _with_chunks(job, _take(columns, kept), fixed)


def _with_chunks(job: Job, columns: Columns, fixed: Mapping[str, Any]) -> Columns:
    """The sizes with every number of chunks that adds no layer to the fullest stage.

    If a number is fixed, it is the only one. Interleaved stages take microbatches in groups of pp.
    """
    layers = job.architecture.layers
    every = _chosen(fixed, "chunks", _useful_chunks(layers, columns["pp"]))
    columns = _with(columns, "chunks", every)
    pp, chunks = columns["pp"], columns["chunks"]
    groups = job.batch // (_parts(columns) * columns["microbatch"]) % pp == 0
    kept = (chunks == 1) | ((pp > 1) & (pp * (chunks - 1) < layers) & groups)
    if "chunks" not in fixed:
        kept &= _fullest_stage(layers, pp, chunks) == _fullest_stage(layers, pp, 1)
    if not kept.any():
        raise ValueError(
            f"plan: chunks {fixed['chunks']}, for {layers} layers and a batch of {job.batch}; "
            "pp is more than 1, pp * (chunks - 1) less than the layers, and the microbatches of "
            "each pipeline a multiple of pp; use chunks 1, or let them be searched"
        )
    return _take(columns, kept)


def _fullest_stage(layers: int, pp: Any, chunks: Any) -> Any:
    """The number of layers on the stage that has most of them."""
    return chunks * -(-layers // (pp * chunks))


def _useful_chunks(layers: int, pp: np.ndarray) -> tuple[int, ...]:
    sizes = set(pp.tolist())
    return tuple(
        chunks
        for chunks in range(1, layers + 1)
        if chunks == 1
        or any(
            n > 1 and _fullest_stage(layers, n, chunks) == _fullest_stage(layers, n, 1)
            for n in sizes
        )
    )


def _meshes(job: Job, fixed: Mapping[str, Any]) -> Columns:
    """Sizes of axes whose product is the number of devices, and that divide the batch."""
    rows = _factors(job, fixed, job.batch)
    if not rows:
        rows = _factors(job, fixed, 0)  # every number divides a batch of 0
        if rows:
            raise ValueError(_bad_batch(job, fixed, min(math.prod(row[1:4]) for row in rows)))
        named = {axis: fixed[axis] for axis in AXES if axis in fixed}
        size = math.prod(named.values())
        raise ValueError(
            f"plan: mesh {show_mesh(named)} ({size:,} devices) on {job.devices:,} devices; the "
            "axes, and those that are searched, must multiply to the number of devices; use "
            f"{max(job.devices // size, 1) * size:,} devices, or name fewer axes"
        )
    return dict(zip(AXES, np.array(rows, dtype=np.int64).T, strict=True))


def _factors(job: Job, fixed: Mapping[str, Any], batch: int) -> list[tuple[int, ...]]:
    """The sizes of each mesh, in the order of `AXES`."""
    found: list[tuple[tuple[int, ...], int, int]] = [((), job.devices, batch)]
    for axis in AXES:
        splits = axis in ("dp", "fsdp", "ep")
        found = [
            ((*row, n), left // n, local // n if splits else local)
            for row, left, local in found
            for n in _chosen(fixed, axis, divisors(left))
            if left % n == 0
            and not (splits and local % n)
            and (axis in fixed or _tried(job, axis, n))
        ]
    return [row for row, left, _ in found if left == 1]


def _tried(job: Job, axis: str, n: int) -> bool:
    """Whether a search tries this size: not tensor parallelism over the links between nodes."""
    fits = not unfit(job.architecture, job.sequence, axis, n)
    return fits and (axis != "tp" or job.cluster.devices_per_node % n == 0)


def _bad_batch(job: Job, fixed: Mapping[str, Any], parts: int) -> str:
    """The error message if no mesh divides the batch."""
    below = job.batch // parts * parts
    near = f"{below:,} or {below + parts:,}" if below else f"{parts:,}"
    fewer = ""
    if not set(AXES) & set(fixed):
        fewer = f", or {_works(job):,} devices"
    return (
        f"plan: batch {job.batch:,} over {job.devices:,} devices; dp * fsdp * ep, at least "
        f"{parts:,} here, must divide it; use a batch of {near}{fewer}"
    )


def _works(job: Job) -> int:
    """The largest number of devices, up to the job's, on which some mesh divides the batch."""
    tps = [n for n in divisors(job.cluster.devices_per_node) if _tried(job, "tp", n)]
    many = product(tps, range(1, job.architecture.layers + 1), divisors(job.batch))
    return max(n for tp, pp, parts in many if (n := tp * pp * parts) <= job.devices)


def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, smallest first."""
    small = [k for k in range(1, math.isqrt(n) + 1) if n % k == 0]
    return tuple(sorted({*small, *(n // k for k in small)}))


def _few(numbers: Iterable[int]) -> str:
    first = sorted(set(numbers))
    return ", ".join(map(str, first[:8])) + (" ..." if len(first) > 8 else "")


def _parts(columns: Columns) -> np.ndarray:
    return columns["dp"] * columns["fsdp"] * columns["ep"]


def _take(columns: Columns, kept: np.ndarray) -> Columns:
    return {name: column[kept] for name, column in columns.items()}


def _with(columns: Columns, name: str, values: tuple[int, ...]) -> Columns:
    """The table with one more column: every row, with every value of it."""
    rows = {key: np.repeat(column, len(values)) for key, column in columns.items()}
    return rows | {name: np.tile(np.array(values), len(next(iter(columns.values()))))}
