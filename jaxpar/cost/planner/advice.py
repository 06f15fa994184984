"""Advice where no layout fits: how much memory is missing, and what would help."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from jaxpar.cost.planner.candidates import Job, layouts, offloads
from jaxpar.cost.planner.plan import fits_host, memory_terms, pick, show_gb
from jaxpar.cost.terms import total
from jaxpar.layout import AXES, OFFLOAD_KINDS, Layout, describe

MOST_DEVICES = 1 << 20


def too_little_memory(job: Job, fixed: Mapping[str, Any]) -> str:
    """The message: what the layout with least memory needs, and the nearest change that helps."""
    needed, layout = _leanest(job, fixed)
    device_bytes = job.cluster.device.memory_bytes
    return (
        f"plan: {job.architecture.name} on {job.devices:,} x {job.cluster.name}: the layout that "
        f"needs least ({describe(layout)}) takes {show_gb(needed)} of a device's "
        f"{show_gb(device_bytes)}, {show_gb(needed - device_bytes)} short; {advice(job, fixed)}"
    )


def advice(job: Job, fixed: Mapping[str, Any]) -> str:
    """The nearest change that helps, and the memory that is needed then."""
    for change, other_job, other_fixed in _changes(job, fixed):
        try:
            needed, layout = _leanest(other_job, other_fixed)
        except ValueError:
            continue
        if needed <= job.cluster.device.memory_bytes:
            return f"use {change}: {describe(layout)} takes {show_gb(needed)}"
    return "use a smaller model, or devices with more memory"


def _changes(job: Job, fixed: Mapping[str, Any]) -> Iterator[tuple[str, Job, Mapping[str, Any]]]:
    """Other choices to try, beginning with those that change least."""
    for name in fixed:
        if name not in AXES:
            words = f"another {name.replace('_', ' ')} than {fixed[name]}"
            yield words, job, {key: fixed[key] for key in fixed if key != name}
    if "offload" not in fixed:
        for offload in tuple(OFFLOAD_KINDS)[1:]:
            yield f"--offload {offload}", job, {**fixed, "offload": offload}
    if any(axis in fixed for axis in AXES):
        words = "another mesh (leave --mesh out, and it is searched)"
        yield words, job, {name: fixed[name] for name in fixed if name not in AXES}
    if fixed:
        yield "no fixed choices: what is left out is searched", job, {}
    devices = 2 * job.devices
    while devices <= MOST_DEVICES:
        words = f"--devices {devices}, with all else left open"
        yield words, replace(job, devices=devices), {}
        devices *= 2
    shorter = job.sequence // 2
    while shorter:
        yield f"--sequence {shorter}", replace(job, sequence=shorter), {}
        shorter //= 2


def _leanest(job: Job, fixed: Mapping[str, Any]) -> tuple[float, Layout]:
    """The layout that needs least of a device's memory, of those that fit their hosts."""
    best: tuple[float, Layout] | None = None
    for offload in offloads(job, fixed):
        for many in layouts(job, fixed, offload):
            needed = np.broadcast_to(total(memory_terms(job, many)), many.pp.shape)
            needed = np.where(fits_host(job, many), needed, np.inf)
            row = int(needed.argmin())
            if best is None or needed[row] < best[0]:
                best = float(needed[row]), pick(many, row)
    assert best, "layouts raises where there are none"
    return best
