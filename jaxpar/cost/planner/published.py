"""Training runs that were published with their layout and speed: published.toml, read once."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from importlib.resources import files
from typing import Any

from jaxpar.axes import parse_mesh
from jaxpar.cost.architecture import Architecture
from jaxpar.cost.flops import hardware_flops, mfu, step_flops
from jaxpar.cost.hardware import Cluster, Efficiency, find_cluster
from jaxpar.cost.models import find_model
from jaxpar.cost.step import peak_flops, step_terms
from jaxpar.cost.terms import total
from jaxpar.layout import Layout


@dataclass(frozen=True)
class Run:
    """A run as it was published.

    Attributes:
        paper: its key in published.toml.
        title: the short title of the paper.
        source: where layout and speed are printed.
        architecture: the model.
        layout: how it was spread.
        cluster: the devices that it ran on.
        batch: examples in a step.
        sequence: positions of an example.
        overlap: whether communication between replicas ran beside computation.
        must: whether a test bounds the error of its prediction.
        seconds: the time of a step, as published.
        fitted: whether the efficiency of its kind of hardware is fitted to it, too.
    """

    paper: str
    title: str
    source: str
    architecture: Architecture
    layout: Layout
    cluster: Cluster
    batch: int
    sequence: int
    overlap: bool
    must: bool
    seconds: float
    fitted: bool = True

    def predicted_seconds(self, efficiency: Efficiency | None = None) -> float:
        """The step's time by `step_terms`, with the cluster's efficiency or with another."""
        reached = replace(self.cluster, efficiency=efficiency or self.cluster.efficiency)
        terms = step_terms(
            self.architecture,
            self.layout,
            reached,
            batch=self.batch,
            sequence=self.sequence,
            overlap=self.overlap,
        )
        return float(total(terms))

    def error(self, efficiency: Efficiency | None = None) -> float:
        """How much longer the predicted step is than the published one: 0.1 is 10%."""
        return self.predicted_seconds(efficiency) / self.seconds - 1

    def mfu(self, seconds: float) -> float:
        """Model FLOPs utilization of a step that takes so long."""
        flops = step_flops(self.architecture, self.batch, self.sequence)
        return mfu(flops, seconds, self.layout.devices, peak_flops(self.cluster.device))


@cache
def published_runs() -> tuple[Run, ...]:
    """All published runs, in the order of the file."""
    text = files("jaxpar.cost.planner").joinpath("published.toml").read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    models = {name: Architecture(name=name, **sizes) for name, sizes in tables["models"].items()}
    return tuple(
        _run(paper, {**table, **run}, models)
        for paper, table in tables["papers"].items()
        for run in table["runs"]
    )


def _run(paper: str, row: Mapping[str, Any], models: Mapping[str, Architecture]) -> Run:
    architecture = models.get(row["model"]) or find_model(row["model"])
    chosen = {its.name: row[its.name] for its in fields(Layout) if its.name in row}
    layout = Layout(**parse_mesh(row["mesh"]), **chosen)
    cluster = find_cluster(row["cluster"])
    batch, sequence = row["batch"], row["sequence"]
    assert batch % (layout.batch_parts * layout.microbatch) == 0, f"{paper}: {row['mesh']}"
    return Run(
        paper,
        row["title"],
        row["source"],
        architecture,
        layout,
        cluster,
        batch,
        sequence,
        row.get("overlap", False),
        row.get("must", False),
        _seconds(row, architecture, layout),
        row.get("fitted", True),
    )


def _seconds(row: Mapping[str, Any], architecture: Architecture, layout: Layout) -> float:
    """The step's time, from the figures that were printed."""
    batch, sequence = row["batch"], row["sequence"]
    if "seconds" in row:
        return row["seconds"]
    if "tokens_per_second" in row:
        return batch * sequence / row["tokens_per_second"]
    if "hardware_tflops" in row:
        flops = hardware_flops(architecture, batch, sequence, remat=layout.remat)
        return total(flops) / (row["hardware_tflops"] * 1e12 * layout.devices)
    flops = step_flops(architecture, batch, sequence)
    return total(flops) / (row["tflops"] * 1e12 * layout.devices)
