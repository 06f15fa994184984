"""What the papers say about their schedules: idle time and activations in flight, as formulas.

In the formulas, p is the number of devices, m is that of microbatches, v is that of chunks on a
device, and r is the device. F, B, I and W are the costs of a cell; transfers cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from jaxpar.schedules.simulator import Costs, Number
from jaxpar.schedules.table import Table


class Sizes(NamedTuple):
    """The arguments of the formulas: devices, microbatches, chunks on a device, and costs."""

    p: int
    m: int
    v: int
    costs: Costs


@dataclass(frozen=True)
class Published:
    """What a paper says about its schedule: formulas as text, and functions that compute them.

    Attributes:
        idle: The idle time of device 0.
        in_flight: The most activations in flight on device r, in chunks.
        source: The paper and the section.
        idle_time: Computes `idle`; None where the formula is about something not simulated.
        kept: Computes `in_flight`.
        only_if: The sizes and costs for which the formulas hold, if not for all.
        holds: Whether the formulas hold for these sizes.
        own_span: Whether idle time counts only between a device's own first and last cell.
    """

    idle: str
    in_flight: str
    source: str
    idle_time: Callable[[Sizes], Number] | None
    kept: Callable[[Sizes, int], int]
    only_if: str = ""
    holds: Callable[[Sizes], bool] = lambda _: True
    own_span: bool = False

    def figures(self, table: Table, costs: Costs) -> Figures | None:
        """The values for a table; None where the formulas do not hold for it."""
        sizes = Sizes(table.devices, table.microbatches, table.chunks, costs)
        if costs.P or not self.holds(sizes):
            return None
        idle = self.idle_time(sizes) if self.idle_time else None
        return Figures(idle, [self.kept(sizes, r) for r in range(sizes.p)])

    def __str__(self) -> str:
        span = " within its own span" if self.own_span else ""
        only_if = f", if {self.only_if}" if self.only_if else ""
        return f"idle {self.idle}{span}, in flight {self.in_flight}{only_if} ({self.source})"


class Figures(NamedTuple):
    """The values of the formulas: the idle time, and each device's activations in flight."""

    idle: Number | None
    in_flight: list[int]


def _bubble(sizes: Sizes) -> Number:
    return (sizes.p - 1) * (sizes.costs.F + sizes.costs.B)


def _split_bubble(sizes: Sizes, filled: int) -> Number:
    return (sizes.p - 1) * (sizes.costs.F + sizes.costs.I - filled * sizes.costs.W)


def _interleaved_in_flight(sizes: Sizes, r: int) -> int:
    return min(sizes.m * sizes.v, 2 * (sizes.p - r - 1) + (sizes.v - 1) * sizes.p + 1)


def _w_fits(sizes: Sizes) -> bool:
    return min(sizes.costs.F, sizes.costs.I) >= sizes.costs.W


def _all_equal(sizes: Sizes) -> bool:
    return sizes.costs.F == sizes.costs.I == sizes.costs.W


PUBLISHED = {
    "naive": Published(
        idle="m(p-1)(F+B)",
        in_flight="1",
        source="GPipe, arXiv 1811.06965, figure 2b",
        idle_time=lambda sizes: sizes.m * _bubble(sizes),
        kept=lambda sizes, r: 1,
    ),
    "gpipe": Published(
        idle="(p-1)(F+B)",
        in_flight="m",
        source="GPipe, arXiv 1811.06965, section 2.3",
        idle_time=_bubble,
        kept=lambda sizes, r: sizes.m,
    ),
    "1f1b": Published(
        idle="(p-1)(F+B)",
        in_flight="min(m, p-r)",
        source="Megatron-LM, arXiv 2104.04473, section 2.2.1",
        idle_time=_bubble,
        kept=lambda sizes, r: min(sizes.m, sizes.p - r),
    ),
    "interleaved": Published(
        idle="(p-1)(F+B)",
        in_flight="min(mv, 2(p-r-1)+(v-1)p+1)",
        source="Megatron-LM, arXiv 2104.04473, section 2.2.2",
        idle_time=_bubble,
        kept=_interleaved_in_flight,
    ),
    "breadth-first": Published(
        idle="(p-1)(F+B)",
        in_flight="mv",
        source="Breadth-First Pipeline Parallelism, arXiv 2211.05953",
        idle_time=_bubble,
        kept=lambda sizes, r: sizes.m * sizes.v,
        only_if="m >= p",
        holds=lambda sizes: sizes.m >= sizes.p,
    ),
    "zb-h1": Published(
        idle="(p-1)(F+I-W)",
        in_flight="p",
        source="Zero Bubble, arXiv 2401.10241, table 2",
        idle_time=lambda sizes: _split_bubble(sizes, 1),
        kept=lambda sizes, r: sizes.p,
        only_if="W <= F, W <= I, m >= p",
        holds=lambda sizes: _w_fits(sizes) and sizes.m >= sizes.p,
    ),
    "zb-h2": Published(
        idle="(p-1)(F+I-2W)",
        in_flight="2p-1",
        source="Zero Bubble, arXiv 2401.10241, table 2",
        idle_time=lambda sizes: _split_bubble(sizes, 2),
        kept=lambda sizes, r: 2 * sizes.p - 1,
        only_if="W <= F, W <= I, m >= 2p-1",
        holds=lambda sizes: _w_fits(sizes) and sizes.m >= 2 * sizes.p - 1,
        own_span=True,
    ),
    "zb-v": Published(
        idle="0",
        in_flight="2p",
        source="Zero Bubble, arXiv 2401.10241, section 6",
        idle_time=lambda sizes: 0,
        kept=lambda sizes, r: 2 * sizes.p,
        only_if="F = I = W, m >= 2p-1",
        holds=lambda sizes: _all_equal(sizes) and sizes.m >= 2 * sizes.p - 1,
        own_span=True,
    ),
    "dualpipe-v": Published(
        idle="(p-1)(F&B+B-3W), where F&B is one forward and one backward in one",
        in_flight="2p+1",
        source="DeepSeek-V3, arXiv 2412.19437, table 2",
        idle_time=None,
        kept=lambda sizes, r: 2 * sizes.p + 1,
    ),
}
