"""Which layout trains a model fastest on a cluster: all are tried, and those that fit are sorted.

Memory and time of many layouts are computed at once, as arrays, by the formulas that `--explain`
prints of one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from jaxpar.cost.goodput import DEVICE_MTBF_HOURS, failures
from jaxpar.cost.planner.advice import advice, too_little_memory
from jaxpar.cost.planner.candidates import Job, layouts, names_mesh, offloads
from jaxpar.cost.planner.plan import RESERVE, Plan, fits_host, memory_terms, pick, time_terms
from jaxpar.cost.terms import total
from jaxpar.layout import AXES, Layout

FIELDS = tuple(field.name for field in fields(Layout))
MOST_LARGER = 3  # plans that are shown though they do not fit
# A strategy's number is its place here; `_strategies` assigns it to a layout.
STRATEGIES = (
    "data parallel",
    "ZeRO-1 or 2",
    "ZeRO-3, FSDP",
    "tensor",
    "pipeline",
    "3D",
    "context",
    "experts",
)


@dataclass(frozen=True)
class Strategy:
    """A well-known way to train, and its best plan for a job.

    Attributes:
        name: one of `STRATEGIES`, by the axes of its mesh: "3D" has pp and tp, "tensor" tp without
            pp, "pipeline" pp without tp, "context" cp without these, "experts" ep without these;
            the others have no axes but dp and fsdp.
        plan: the fastest plan of this kind; if none fits, the one with least memory.
        fits: whether this plan fits.
    """

    name: str
    plan: Plan
    fits: bool


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        plans: the best plan of each mesh, the fastest first; all plans if there is only one mesh.
        strategies: the best plan of each known strategy.
        tried: how many layouts there are.
    """

    plans: list[Plan]
    strategies: list[Strategy]
    tried: int


def explore(
    job: Job,
    fixed: Mapping[str, Any],
    *,
    overlap: bool = False,
    top: int = 10,
    mtbf_hours: float = DEVICE_MTBF_HOURS,
) -> Found:
    """The fastest plans that fit, and the best plan of each known strategy.

    Of plans that take the same time, the one with least memory is first. A plan fits if it leaves a
    tenth of the device's memory free; if no plan does, or if the mesh is fixed, it may use all of
    it. The optimizer's states, and then all states, are offloaded to the host only if nothing fits
    without that and the mesh is not fixed. Where the mesh is fixed, the last plans are those that
    would be faster than all others with up to a tenth more memory than there is. Where `remat` is
    fixed, too, and nothing fits, the plans are those within a tenth of the least memory.

    Args:
        job: what is trained, and where.
        fixed: fields of `Layout` that are not searched, with their values.
        overlap: whether communication that can run beside computation is hidden by it.
        top: the most plans to return.
        mtbf_hours: the mean time between failures of one device.

    Raises:
        ValueError: nothing fits; the message names the nearest that does.
    """
    if 0 < job.architecture.positions < job.sequence:
        raise ValueError(
            f"plan: sequence {job.sequence:,}; {job.architecture.name} has positions for "
            f"{job.architecture.positions:,} tokens; use {job.architecture.positions:,} or fewer"
        )
    # A checkpoint has the parameters, and what the optimizer keeps.
    states_bytes = (job.each.params + job.each.optimizer) * job.architecture.parameters
    failing = failures(states_bytes, job.devices, mtbf_hours)
    tables = (_evaluate(job, fixed, offload, overlap) for offload in offloads(job, fixed))
    table, wanted = next((table for table in tables if table.seconds.size), None), ""
    if table is None:
        if not (names_mesh(job, fixed) and "remat" in fixed):
            raise ValueError(too_little_memory(job, fixed))
        (offload,), wanted = offloads(job, fixed), advice(job, fixed)
        table = _evaluate(job, fixed, offload, overlap, anyway=True)

    def plan(layout: Layout) -> Plan:
        return Plan(job, layout, failing, overlap, wanted)

    plans = [plan(table.layout(row)) for row in table.best(top)]
    strategies = []
    for number, name in enumerate(STRATEGIES):
        (rows,) = (table.columns["strategy"] == number).nonzero()
        if rows.size:
            best = plan(table.layout(table.fastest(rows)[0]))
            strategies.append(Strategy(name, best, best.fits))
        elif number in table.leanest:
            strategies.append(Strategy(name, plan(table.leanest[number][1]), False))
    return Found(plans, strategies, table.tried)


@dataclass(frozen=True)
class _Table:
    """The layouts that fit, or those that need least memory, with a row for each.

    Attributes:
        columns: the fields of `Layout`, and the number of the strategy.
        seconds: the seconds of a step.
        memory: the bytes on the fullest device.
        device_bytes: those that a device has.
        leanest: by the number of a strategy, the layout that needs least memory, fitting or not.
        tried: how many layouts there are.
    """

    columns: Mapping[str, np.ndarray]
    seconds: np.ndarray
    memory: np.ndarray
    device_bytes: float
    leanest: Mapping[int, tuple[float, Layout]]
    tried: int

    def layout(self, row: int) -> Layout:
        """The layout in a row."""
        return Layout(**{name: self.columns[name][row].item() for name in FIELDS})

    def fastest(self, rows: np.ndarray) -> np.ndarray:
        """The rows sorted by whether they fit, then by time, then by memory."""
        memory = self.memory[rows]
        return rows[np.lexsort((memory, self.seconds[rows], memory > self.device_bytes))]

    def best(self, count: int) -> list[int]:
        """The fastest row of each mesh; all rows if there is only one mesh.

        Behind them are the fastest of those rows that do not fit and would be the first.
        """
        order = self.fastest(np.arange(self.seconds.size))
        meshes = np.zeros_like(order)  # one number for each mesh, as rows are slow to compare
        for axis in AXES:
            sizes, place = np.unique(self.columns[axis][order], return_inverse=True)
            meshes = meshes * sizes.size + place
        _, first = np.unique(meshes, return_index=True)
        chosen = order if first.size == 1 else order[np.sort(first)]
        over = self.memory[chosen] > self.device_bytes
        if over.all():
            return chosen[:count].tolist()
        fitting, larger = chosen[~over], chosen[over]
        faster = larger[self.seconds[larger] < self.seconds[fitting[0]]][:MOST_LARGER]
        return [*fitting[: max(count - len(faster), 1)].tolist(), *faster.tolist()][:count]


def _evaluate(
    job: Job,
    fixed: Mapping[str, Any],
    offload: str,
    overlap: bool,
    *,
    anyway: bool = False,
) -> _Table:
    """Memory of all layouts, and time of those that fit; or `anyway`, of those that need least.

    Where some fit a mesh that is fixed, those that need a little more memory are there, too.
    """
    blocks, leanest, tried = [], {}, 0
    device_bytes, named = job.cluster.device.memory_bytes, names_mesh(job, fixed)
    most = (1 + RESERVE) * device_bytes if named else device_bytes
    for layout in layouts(job, fixed, offload):
        needed = np.broadcast_to(total(memory_terms(job, layout)), layout.pp.shape)
        tried += needed.size
        kinds = _strategies(layout)
        for kind in np.bincount(kinds).nonzero()[0].tolist():
            (rows,) = (kinds == kind).nonzero()
            row = rows[needed[rows].argmin()]
            if needed[row] < leanest.get(kind, (np.inf,))[0]:
                leanest[kind] = float(needed[row]), pick(layout, int(row))
        (rows,) = (((needed <= most) & fits_host(job, layout)) | anyway).nonzero()
        if rows.size:
            fitting = pick(layout, rows)
            columns = {name: np.broadcast_to(getattr(fitting, name), rows.shape) for name in FIELDS}
            seconds = np.broadcast_to(total(time_terms(job, fitting, overlap)), rows.shape)
            more = {"strategy": kinds[rows], "seconds": seconds, "memory": needed[rows]}
            blocks.append(columns | more)
    names = (*FIELDS, "strategy", "seconds", "memory")
    columns = {name: np.concatenate([block[name] for block in blocks] or [[]]) for name in names}
    memory = columns["memory"]
    kept = memory <= (1 - RESERVE) * device_bytes
    if anyway:
        kept = memory <= (1 + RESERVE) * memory.min()
    elif named:
        kept = np.full_like(memory, np.any(memory <= device_bytes), dtype=bool)
    elif not kept.any():
        kept = memory <= device_bytes
    columns = {name: column[kept] for name, column in columns.items()}
    seconds, memory = columns.pop("seconds"), columns.pop("memory")
    return _Table(columns, seconds, memory, device_bytes, leanest, tried)


def _strategies(layout: Layout) -> np.ndarray:
    """The number of each layout's strategy."""
    states = 0 if layout.zero == 0 else 1 if layout.zero < 3 else 2
    number = np.where(layout.ep > 1, 7, np.where(layout.cp > 1, 6, states))
    number = np.where(layout.tp > 1, 3, number)
    return np.where(layout.pp > 1, np.where(layout.tp > 1, 5, 4), number)
