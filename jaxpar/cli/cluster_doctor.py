"""What `doctor --cluster` does: looks at the processes of a run and at the links between them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from jaxpar.cli.base import print_json, print_lines, tell, write_text

if TYPE_CHECKING:
    from jaxpar.train.cluster_report import ClusterReport, Meeting
    from jaxpar.train.key_value import KeyValueStore

SECONDS_TO_JOIN = 60


def examine_cluster(file: Path | None, as_json: bool) -> None:
    """Joins the other processes, prints what was found in process 0, and ends this process.

    Args:
        file: where a hardware file of the cluster is written.
        as_json: whether to print JSON.
    """
    from jaxpar.train.cluster import find_place, join, leave
    from jaxpar.train.launch import follow_launcher

    follow_launcher()
    place, code = None, 0
    try:
        place = find_place(os.environ)
        join(place, SECONDS_TO_JOIN)
        _examine(file, as_json)
    except (KeyboardInterrupt, Exception) as error:
        code = tell(error, alone=place is None)
    leave(code, place)


def _examine(file: Path | None, as_json: bool) -> None:
    import jax

    from jaxpar.train.cluster_facts import Facts, clock_offset, look
    from jaxpar.train.cluster_report import Meeting
    from jaxpar.train.key_value import KeyValueStore

    if jax.device_count() == 1:
        raise ValueError(
            "doctor: --cluster in one process with one device, which has no link to measure; start "
            "it in every process of the cluster, or here by jaxpar launch -- doctor --cluster"
        )
    store = KeyValueStore()
    processes = [Facts(**one) for one in store.gather("facts", vars(look()))]
    clocks = store.gather("clock", clock_offset(store))
    meeting = Meeting(processes, [(offset, error) for offset, error in clocks])
    shown = store.rank == 0 and not as_json
    # What differs is told at once, since it may be why a collective never ends.
    _print(shown, [*meeting.lines(), *(f"found        {line}" for line in meeting.findings), ""])
    report = _measured(store, meeting)
    _print(shown, report.lines())
    if store.rank == 0 and as_json:
        print_json(report.to_dict())
    store.gather("end", None)
    if store.rank == 0 and file:
        write_text("doctor", file, _hardware(report))


def _measured(store: KeyValueStore, meeting: Meeting) -> ClusterReport:
    from jaxpar.train import cluster_check
    from jaxpar.train.cluster_report import ClusterReport, sort_by_node

    devices = sort_by_node(meeting.nodes)
    pairs = cluster_check.measure_pairs(store)
    per_node = meeting.per_node
    permutes = cluster_check.measure_permutes(store, devices, per_node) if per_node else ([], [])
    collectives = list(cluster_check.measure_collectives(store, devices))
    return ClusterReport(meeting, cluster_check.measure_rates(store), pairs, collectives, *permutes)


def _hardware(report: ClusterReport) -> str:
    """The hardware file; the memory of a simulated device is its part of the host's."""
    import jax

    from jaxpar.train.machine import memory_bytes

    host = report.meeting.processes[0].host
    beside = sum(facts.devices for facts in report.meeting.processes if facts.host == host)
    part = (memory_bytes() or 0) / beside
    own = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit", part)
    return report.hardware(host_bytes=part, memory_bytes=own)


def _print(shown: bool, lines: Iterable[str]) -> None:
    if shown:
        print_lines(lines)
        sys.stdout.flush()
