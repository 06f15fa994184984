"""The report on a cluster: what its processes say, what was measured, and what looks wrong."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import jax

from jaxpar.cost.communication import Link
from jaxpar.cost.hardware import Accelerator, Cluster, Efficiency
from jaxpar.cost.hardware_file import hardware_text
from jaxpar.cost.link_fit import Fit, fit_small_and_large
from jaxpar.train.cluster_check import Pair, Rates, Timing
from jaxpar.train.cluster_facts import Facts, differences, unreachable, wrong_clocks

SLOW_PROCESS = 1.2
"""A process is slow whose product takes so many times the median of all."""
SLOW_LINK = 2
"""A link is slow on which a message takes so many times as long as on a good one."""
OVERLAP = 0.7  # not measured: as jaxpar/cost/hardware.toml has it
GB = 1e9


@dataclass(frozen=True)
class Meeting:
    """What the processes told each other before anything was measured.

    Attributes:
        processes: what each says of itself.
        clocks: by how many seconds the clock of each is ahead of that of process 0, and the error
            at most.
    """

    processes: Sequence[Facts]
    clocks: Sequence[tuple[float, float]]

    @property
    def findings(self) -> list[str]:
        """What looks wrong, a line for each."""
        found = [*differences(self.processes), *unreachable(self.processes)]
        return found + wrong_clocks(self.processes, self.clocks)

    @property
    def nodes(self) -> list[list[int]]:
        """The processes of each node: of a host, or each by itself where all share one host."""
        hosts = [facts.host for facts in self.processes]
        names = hosts if len(set(hosts)) > 1 else range(len(hosts))
        by_name: dict[Any, list[int]] = {}
        for rank, name in enumerate(names):
            by_name.setdefault(name, []).append(rank)
        return list(by_name.values())

    @property
    def per_node(self) -> int | None:
        """How many devices a node has; None if nodes differ."""
        counts = {sum(self.processes[rank].devices for rank in node) for node in self.nodes}
        return counts.pop() if len(counts) == 1 else None

    def lines(self) -> Iterator[str]:
        """A line for each process, and for each finding."""
        first = self.processes[0]
        versions = ", ".join(f"{name} {version}" for name, version in first.versions.items())
        hosts = {facts.host for facts in self.processes}
        yield f"Processes: {len(self.processes)}, hosts: {len(hosts)}"
        yield f"Process 0 has {versions}"
        yield ""
        rows = [
            [
                str(rank), facts.host, facts.address, facts.interface or "?", str(facts.mtu or "?"),
                f"{facts.devices} x {facts.kind}", f"{1e3 * offset:+.1f} +- {1e3 * error:.1f} ms",
            ]
            for rank, (facts, (offset, error)) in enumerate(
                zip(self.processes, self.clocks, strict=True)
            )
        ]  # fmt: skip
        heads = ["process", "host", "address", "interface", "MTU", "devices", "clock"]
        yield from table(heads, rows)
        for name, value in first.environment.items():
            yield f"{name}={value}"


@dataclass(frozen=True)
class ClusterReport:
    """What was measured.

    Attributes:
        meeting: what the processes told each other.
        rates: what a device of each process reaches.
        pairs: the link between each two processes.
        collectives: of each kind and size, over all devices.
        inside: permutes inside nodes, at each size; empty where a node has one device.
        between: permutes to the next node; empty where there is one node.
    """

    meeting: Meeting
    rates: Sequence[Rates]
    pairs: Sequence[Pair]
    collectives: Sequence[Timing]
    inside: Sequence[Timing]
    between: Sequence[Timing]

    @property
    def findings(self) -> list[str]:
        """What looks wrong, a line for each."""
        hosts = [facts.host for facts in self.meeting.processes]
        return [
            *self.meeting.findings,
            *slow_processes(self.rates, hosts),
            *slow_links(self.pairs, hosts),
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        collectives = [
            vars(timing)
            | {
                "algorithm_bytes_per_second": timing.algorithm_bytes_per_second,
                "bus_bytes_per_second": timing.bus_bytes_per_second,
            }
            for timing in self.collectives
        ]
        clocks = [
            {"offset_seconds": offset, "error_seconds": error}
            for offset, error in self.meeting.clocks
        ]
        return {
            "processes": [asdict(facts) for facts in self.meeting.processes],
            "clocks": clocks,
            "rates": [asdict(one) for one in self.rates],
            "pairs": [asdict(pair) for pair in self.pairs],
            "collectives": collectives,
            "fits": {name: _fits_dict(timings) for name, timings in self._fitted().items()},
            "links": {name: asdict(_link(timings)) for name, timings in self._fitted().items()},
            "findings": self.findings,
        }

    def lines(self) -> Iterator[str]:
        """All that was measured, and what looks wrong."""
        parts = (
            self._rate_lines(),
            self._pair_lines(),
            self._collective_lines(),
            self._fit_lines(),
        )
        for part in parts:
            yield from part
            yield ""
        yield from (f"found        {line}" for line in self.findings or ["nothing wrong"])

    def hardware(self, host_bytes: float, memory_bytes: float) -> str:
        """The text of a hardware file of this cluster, which `plan` and `memory` read.

        Args:
            host_bytes: a device's part of the memory of its host.
            memory_bytes: the memory of a device.

        Raises:
            ValueError: nodes have different numbers of devices, or there is no link.
        """
        per_node = self.meeting.per_node
        links = [_link(timings) for timings in (self.inside, self.between) if timings]
        if per_node is None or not links:
            counts = [facts.devices for facts in self.meeting.processes]
            raise ValueError(
                f"cluster_report: processes have {counts} devices; a hardware file is of nodes "
                "with equally many, and two devices at least; leave --write out"
            )
        # The median process: one that is slow is found, and mended.
        ordered = sorted(self.rates, key=lambda one: one.flops["bf16"])
        typical = ordered[(len(ordered) - 1) // 2]
        device = Accelerator(
            self.meeting.processes[0].kind,
            typical.flops,
            memory_bytes,
            typical.memory_bytes_per_second,
        )
        cluster = Cluster(
            name="measured",
            device=device,
            devices_per_node=per_node,
            inside=links[0],
            between=links[-1],
            host=Link(typical.host_latency_seconds, typical.host_bytes_per_second),
            host_bytes=host_bytes,
            efficiency=Efficiency(
                "measured", products=1.0, memory=1.0, links=1.0, network=1.0, overlap=OVERLAP
            ),
        )
        return hardware_text(cluster, self._comments())

    def _rate_lines(self) -> Iterator[str]:
        yield "What a device reaches while all are busy, in each process"
        heads = ["process", *(f"{name} GFLOP/s" for name in self.rates[0].flops), "memory GB/s"]
        rows = [
            [
                str(rank),
                *(f"{flops / GB:,.1f}" for flops in one.flops.values()),
                f"{one.memory_bytes_per_second / GB:,.2f}",
            ]
            for rank, one in enumerate(self.rates)
        ]
        yield from table(heads, rows)

    def _pair_lines(self) -> Iterator[str]:
        yield "Links between processes, with all devices of both, in both directions at once"
        heads = ["processes", "latency us", "largest message", "GB/s each way"]
        rows = [
            [
                "{} - {}".format(*pair.processes),
                f"{1e6 * pair.latency_seconds:,.0f}",
                f"{pair.num_bytes[-1]:,} B",
                f"{pair.bytes_per_second / GB:,.3f}",
            ]
            for pair in self.pairs
        ]
        yield from table(heads, rows) if rows else ["none: there is one process"]

    def _collective_lines(self) -> Iterator[str]:
        yield f"Collectives over all {self.collectives[0].devices} devices, float32"
        heads = ["collective", "bytes", "us", "algorithm GB/s", "bus GB/s"]
        rows = [
            [
                timing.kind,
                f"{timing.num_bytes:,}",
                f"{1e6 * timing.seconds:,.1f}",
                f"{timing.algorithm_bytes_per_second / GB:,.3f}",
                f"{timing.bus_bytes_per_second / GB:,.3f}",
            ]
            for timing in self.collectives
        ]
        yield from table(heads, rows)

    def _fit_lines(self) -> Iterator[str]:
        yield "Latency (alpha), bandwidth (1/beta): fitted to permutes up to 1 MiB and from there"
        heads = ["link", "messages", "alpha us", "1/beta GB/s", "worst error"]
        rows = [
            [
                name,
                part,
                f"{1e6 * fit.link.latency_seconds:,.1f}",
                f"{fit.link.bytes_per_second / GB:,.3f}",
                f"{fit.error:.0%}",
            ]
            for name, timings in self._fitted().items()
            for part, fit in zip(("small", "large"), fits(timings), strict=True)
            if fit
        ]
        yield from table(heads, rows)

    def _fitted(self) -> dict[str, Sequence[Timing]]:
        found = {"inside a node": self.inside, "between nodes": self.between}
        return {name: timings for name, timings in found.items() if timings}

    def _comments(self) -> dict[str, str]:
        hosts = {facts.host for facts in self.meeting.processes}
        alone = "" if self.between else "; one node: as inside"
        inside = "" if self.inside else "; one device on each node: as between"
        node = "host" if len(hosts) > 1 else "process, since all are on one host"
        return {
            "": (
                f"Measured by `jaxpar doctor --cluster`. Processes: {len(self.meeting.processes)}, "
                f"hosts: {len(hosts)}.\nA node is a {node}."
            ),
            "device.peak_flops": "of a square matrix product, while all devices are busy; no peak",
            "device.efficiency": (
                "1: what is above and below was reached; overlap is assumed, not measured"
            ),
            "inside": "latency of permutes up to 1 MiB, bandwidth of larger ones" + inside,
            "between": "latency of permutes up to 1 MiB, bandwidth of larger ones" + alone,
            "host": "copies from the host to a device, no faster than memory",
        }


def slow_processes(rates: Sequence[Rates], hosts: Sequence[str]) -> list[str]:
    """Processes whose matrix product takes much longer than the median, a line for each."""
    flops = [one.flops["fp32"] for one in rates]
    times = [statistics.median(flops) / each for each in flops]
    return [
        f"slow process: process {rank} ({hosts[rank]}) takes {ratio:.1f} times the median for a "
        "matrix product, and all others wait for it in every step; look for other programs, heat "
        "and power limits there"
        for rank, ratio in enumerate(times)
        if ratio > SLOW_PROCESS
    ]


def slow_links(pairs: Sequence[Pair], hosts: Sequence[str]) -> list[str]:
    """Links that are much slower than a good one of their kind, a line for each.

    Links inside a host are compared with each other, and so are those between hosts. The good one
    is the first quartile, since one bad network card makes all links of its host slow.
    """
    lines = []
    for alike in _by_kind(pairs, hosts):
        for index, message in ((0, "small"), (-1, "large")):
            ordered = sorted(alike, key=lambda pair: pair.seconds[index])
            good = ordered[len(ordered) // 4]
            for pair in alike:
                ratio = pair.seconds[index] / good.seconds[index]
                if ratio > SLOW_LINK:
                    lines.append(
                        f"slow link: between {_ends(pair, hosts)} a {message} message takes "
                        f"{ratio:.1f} times as long as between {_ends(good, hosts)}; check the "
                        "cable, port and route of these two"
                    )
    return lines


def _ends(pair: Pair, hosts: Sequence[str]) -> str:
    return "process " + " and ".join(f"{rank} ({hosts[rank]})" for rank in pair.processes)


def _by_kind(pairs: Sequence[Pair], hosts: Sequence[str]) -> Iterator[list[Pair]]:
    """The pairs on one host, and those of two hosts, where there are some."""
    for count in (1, 2):
        alike = [pair for pair in pairs if len({hosts[rank] for rank in pair.processes}) == count]
        if alike:
            yield alike


def sort_by_node(nodes: Sequence[Sequence[int]]) -> list[Any]:
    """All devices, in the order of their nodes."""
    order = [rank for node in nodes for rank in node]
    return sorted(jax.devices(), key=lambda one: (order.index(one.process_index), one.id))


def fits(timings: Sequence[Timing]) -> tuple[Fit | None, Fit | None]:
    """A fit to small messages and one to large ones."""
    sizes = [timing.num_bytes for timing in timings]
    return fit_small_and_large(sizes, [timing.seconds for timing in timings])


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows as lines with aligned columns: the first to the left, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        first, *others = zip(row, widths, strict=True)
        cells = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        yield "  ".join(cells)


def _link(timings: Sequence[Timing]) -> Link:
    """The latency of small messages, with the bandwidth of large ones."""
    small, large = fits(timings)
    assert small and large
    bandwidth = large.link.bytes_per_second
    largest = timings[-1].algorithm_bytes_per_second
    return Link(small.link.latency_seconds, bandwidth if isfinite(bandwidth) else largest)


def _fits_dict(timings: Sequence[Timing]) -> dict[str, Any]:
    return {
        part: {
            "latency_seconds": fit.link.latency_seconds,
            "seconds_per_byte": 1 / fit.link.bytes_per_second,
            "worst_error": fit.error,
        }
        for part, fit in zip(("small", "large"), fits(timings), strict=True)
        if fit
    }
