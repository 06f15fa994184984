"""Training runs that were published with their layout and speed, in files beside this one."""

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
from jaxpar.cost.memory import training_memory
from jaxpar.cost.models import find_model
from jaxpar.cost.step import peak_flops, step_terms
from jaxpar.cost.terms import total
from jaxpar.cost.zero import ADAM_MIXED, States
from jaxpar.layout import Layout


@dataclass(frozen=True)
class Run:
    """A run as it was published.

    Attributes:
        paper: the key of its paper, or of its set, in the file.
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
        gradient_bytes: of a gradient, where gradients are added up and sent.
        scatter_gather: whether stages of a pipeline send each other what tp splits in parts.
        all_reduce: whether stage 1 of ZeRO sums all gradients on every device.
        peak_bytes: the memory that was measured on a device, if it was.
        outside: whether the formulas do not hold for it; the file has the reason.
        uncounted: what the program holds more than the formulas know, in words.
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
    gradient_bytes: int = 2
    scatter_gather: bool = True
    all_reduce: bool = False
    peak_bytes: float | None = None
    outside: bool = False
    uncounted: str = ""

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
            each=self._each,
            scatter_gather=self.scatter_gather,
            all_reduce=self.all_reduce,
        )
        return float(total(terms))

    def predicted_bytes(self) -> float:
        """The bytes on the fullest device, by `training_memory`."""
        sizes = {"batch": self.batch, "sequence": self.sequence}
        return float(
            total(training_memory(self.architecture, self.layout, **sizes, each=self._each))
        )

    def error(self, efficiency: Efficiency | None = None) -> float:
        """How much longer the predicted step is than the published one: 0.1 is 10%."""
        return self.predicted_seconds(efficiency) / self.seconds - 1

    def mfu(self, seconds: float) -> float:
        """Model FLOPs utilization of a step that takes so long."""
        flops = step_flops(self.architecture, self.batch, self.sequence)
        return mfu(flops, seconds, self.layout.devices, peak_flops(self.cluster.device))

    @property
    def _each(self) -> States:
        return replace(ADAM_MIXED, gradients=self.gradient_bytes)


@cache
def published_runs() -> tuple[Run, ...]:
    """All runs of published.toml, in the order of the file."""
    return read_runs("published.toml")


def read_runs(name: str) -> tuple[Run, ...]:
    """The runs of a file, whose keys are those of published.toml.

    A table may be `like` one of [common], whose keys it then has, too.
    """
    text = files("jaxpar.cost.planner").joinpath(name).read_text(encoding="utf-8")
    tables = tomllib.loads(text)
    models = {name: Architecture(name=name, **sizes) for name, sizes in tables["models"].items()}
    common = {None: {}} | tables.get("common", {})
    return tuple(
        _run(paper, {**common[table.get("like")], **table, **run}, models)
        for paper, table in tables["papers"].items()
        for run in table["runs"]
    )


def _run(paper: str, row: Mapping[str, Any], models: Mapping[str, Architecture]) -> Run:
    architecture = models.get(row["model"]) or find_model(row["model"])
    kernels = {name: row[name] for name in ("fused_norms", "fused_dropout") if name in row}
    architecture = replace(architecture, **kernels)
    chosen = {its.name: row[its.name] for its in fields(Layout) if its.name in row}
    layout = Layout(**parse_mesh(row["mesh"]), **chosen)
    cluster = _cluster(row)
    batch, sequence, peak = row["batch"], row["sequence"], row.get("peak_gib")
    assert batch % (layout.batch_parts * layout.microbatch) == 0, f"{paper}: {row['mesh']}"
    return Run(
        paper,
        ", ".join(row[key] for key in ("title", "name") if key in row),
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
        row.get("gradient_bytes", 2),
        row.get("scatter_gather", True),
        row.get("all_reduce", False),
        peak and peak * 2**30,
        row.get("outside", any(getattr(layout, axis) > 1 for axis in row.get("outside_axes", ()))),
        row.get("uncounted", ""),
    )


def _cluster(row: Mapping[str, Any]) -> Cluster:
    """The preset; if the row gives `links_per_node`, a node has so many links, not one a device."""
    preset = find_cluster(row["cluster"])
    part = row.get("links_per_node", preset.devices_per_node) / preset.devices_per_node
    between = replace(preset.between, bytes_per_second=part * preset.between.bytes_per_second)
    return replace(preset, between=between, eager=row.get("eager", False))


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
