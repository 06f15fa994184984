"""The explorer of collectives: an algorithm step by step, and how long it takes on a link."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jaxpar.cost import communication
from jaxpar.cost.communication import Cost, Link
from jaxpar.cost.hardware import find_cluster
from jaxpar.drawing.steps import Scene, StepPicture
from jaxpar.explore.clusters import CLUSTERS
from jaxpar.explore.controls import choice, number, read
from jaxpar.explore.frames import decode, runs

KILOBYTE = 1000
NODES = 2
"""Of an algorithm over two axes, the devices of the first."""
LINKS = {"inside": "inside a node", "between": "between nodes"}

OneLevel = Callable[[float, int], Cost]
ALGORITHMS: Mapping[str, Mapping[str, OneLevel]] = {
    "all-gather": {
        "ring_all_gather": communication.ring_all_gather,
        "two_way_ring_all_gather": communication.two_way_ring_all_gather,
        "recursive_doubling_all_gather": communication.recursive_doubling_all_gather,
    },
    "reduce-scatter": {"ring_reduce_scatter": communication.ring_reduce_scatter},
    "all-reduce": {
        "ring_all_reduce": communication.ring_all_reduce,
        "recursive_doubling_all_reduce": communication.recursive_doubling_all_reduce,
    },
    "broadcast": {"tree_broadcast": communication.tree_broadcast},
    "reduce": {"tree_reduce": communication.tree_reduce},
    "all-to-all": {"all_to_all_by_permutes": communication.pairwise_all_to_all},
}
"""The algorithms over one axis by what they do, each with its cost."""
HIERARCHICAL = "hierarchical_all_reduce"
NAMES = (*(name for group in ALGORITHMS.values() for name in group), HIERARCHICAL)

CONTROLS = (
    choice(
        "algorithm", "algorithm", "ring_reduce_scatter",
        [(name, name.replace("_", " ")) for name in NAMES], "What the devices run.",
    ),
    choice("n", "devices", "4", map(str, range(2, 9)), "How many devices take part."),
    number("frame", "step", 0, 0, 99, "Which step is drawn; 0 is the start."),
    number(
        "kilobytes", "kB on a device", 1000, 0.001, 1e9,
        "What each device gives, in kB of 1,000 bytes.", whole=False,
    ),
    choice("hardware", "hardware", "h100", CLUSTERS, "Whose links they send over."),
    choice("where", "link", "inside", LINKS.items(), "Which of its links; two axes take both."),
)  # fmt: skip


@dataclass(frozen=True)
class OneScene(StepPicture):
    """One of the scenes of a picture of steps.

    Attributes:
        number: which one, from 0.
    """

    number: int = 0

    @cached_property
    def scenes(self) -> list[Scene]:
        """The scene."""
        return [StepPicture(self.title, self.steps, self.axes).scenes[self.number]]


def answer(form: Mapping[str, Any]) -> dict[str, Any]:
    """A step of an algorithm, and the time of all its steps.

    Raises:
        ValueError: a field has a value that is not allowed, or so many devices cannot run it.
    """
    given = read("collectives", CONTROLS, form)
    name, sizes = given["algorithm"], runs()[given["algorithm"]]
    if given["n"] not in sizes:
        raise ValueError(
            f"collectives: {name} does not run on {given['n']} devices; use one of "
            f"{', '.join(sizes)}"
        )
    run = sizes[given["n"]]
    every = StepPicture(run["title"], decode(run), run["axes"])
    headings = [scene.heading for scene in every.scenes]
    frame = min(given["frame"], len(headings) - 1)
    return {
        "title": f"{every.title}, {headings[frame]}",
        "svg": OneScene(every.title, every.steps, every.axes, frame).to_svg(),
        "numbers": _numbers(given),
        "tables": [_comparison(given)],
        "notes": [
            "A letter stands for what one device gave; abc is the sum of three.",
            "A step takes the latency of the link, and its bytes over the bandwidth.",
        ],
        "frame": frame,
        "frames": len(headings),
        "headings": headings,
    }


def _costs(name: str, given: Mapping[str, Any]) -> list[tuple[Cost, Link]]:
    """What an algorithm asks of the busiest device, on each link that it goes over."""
    n, size = int(given["n"]), given["kilobytes"] * KILOBYTE
    cluster = find_cluster(given["hardware"])
    if name == HIERARCHICAL:
        inner, outer = communication.hierarchical_all_reduce(size, n // NODES, NODES)
        return [(inner, cluster.inside), (outer, cluster.between)]
    cost = next(group[name] for group in ALGORITHMS.values() if name in group)(size, n)
    return [(cost, getattr(cluster, given["where"]))]


def _numbers(given: Mapping[str, Any]) -> list[list[str]]:
    costs = _costs(given["algorithm"], given)
    latency = sum(cost.steps * link.latency_seconds for cost, link in costs)
    seconds = sum(cost.seconds(link) for cost, link in costs)
    return [
        ["steps", f"{sum(cost.steps for cost, _ in costs)}"],
        ["sent by the busiest device", _kilobytes(costs)],
        ["time", _microseconds(seconds)],
        ["of which latency", _microseconds(latency)],
        ["of which bytes", _microseconds(seconds - latency)],
    ]


def _comparison(given: Mapping[str, Any]) -> dict[str, Any]:
    """A row for each algorithm that runs on as many devices."""
    rows = []
    for name in NAMES:
        if given["n"] in runs()[name]:
            costs = _costs(name, given)
            rows.append([
                name,
                f"{sum(cost.steps for cost, _ in costs)}",
                _kilobytes(costs),
                _microseconds(sum(cost.seconds(link) for cost, link in costs)),
            ])  # fmt: skip
    return {
        "title": f"Algorithms on {given['n']} devices that give as much each",
        "headers": ["algorithm", "steps", "sent", "time"],
        "rows": rows,
        "numeric": [False, True, True, True],
    }


def _kilobytes(costs: list[tuple[Cost, Link]]) -> str:
    return f"{sum(cost.wire_bytes for cost, _ in costs) / KILOBYTE:,.6g} kB"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.4g} us"
