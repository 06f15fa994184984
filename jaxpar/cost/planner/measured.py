"""What the measured runs cover, and in what a plan goes beyond them."""

from collections.abc import Iterator
from functools import cache

from jaxpar.cost.hardware import Cluster
from jaxpar.cost.network import levels
from jaxpar.cost.planner.published import published_runs
from jaxpar.cost.planner.ranking import ranked_runs
from jaxpar.layout import AXES, Layout


def beyond(layout: Layout, cluster: Cluster) -> list[str]:
    """What in this layout no measured run on this kind of hardware has, a phrase for each.

    Runs for which the formulas do not hold do not count.
    """
    kind = _kind(cluster)
    seen, most = _measured().get(kind, (frozenset(), 0))
    if not most:
        return [f"this kind of hardware ({kind})"]
    news = [feature for feature in _features(layout, cluster) if feature not in seen]
    if layout.devices > most:
        news.append(f"more than {most:,} devices")
    return news


@cache
def _measured() -> dict[str, tuple[frozenset[str], int]]:
    """By kind of hardware: the features of its measured runs, and the most devices of one."""
    found: dict[str, tuple[frozenset[str], int]] = {}
    for run in (*published_runs(), *ranked_runs()):
        if not run.outside:
            kind = _kind(run.cluster)
            seen, most = found.get(kind, (frozenset(), 0))
            features = seen.union(_features(run.layout, run.cluster))
            found[kind] = features, max(most, run.layout.devices)
    return found


def _kind(cluster: Cluster) -> str:
    """The chip alone: that of "hopper-tuned" is "hopper"."""
    return cluster.efficiency.kind.partition("-")[0]


def _features(layout: Layout, cluster: Cluster) -> Iterator[str]:
    for axis in AXES:
        if getattr(layout, axis) > 1:
            yield axis
            if levels(layout, axis, cluster)[1] > 1:
                yield f"{axis} across nodes"
    if layout.cp > 1:
        yield f"cp by {layout.context}"
    if layout.offload != "none":
        yield "offload"
