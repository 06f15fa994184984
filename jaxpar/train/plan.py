"""How a run is spread: its mesh, and what its devices share, round, recompute and put away."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jaxpar.mesh import divide, parse_mesh
from jaxpar.model import Settings, Split, check_split
from jaxpar.parallel.pipeline import layer_order
from jaxpar.parallel.precision import POLICIES
from jaxpar.parallel.remat import KINDS
from jaxpar.schedules import Table, make_table
from jaxpar.schedules.files import read_table

PIPELINE_AXIS, DATA_AXES, TENSOR_AXIS = "pp", ("dp", "fsdp"), "tp"
DEFAULT = "1f1b"  # the schedule
PLACES = ("host", "disk")


@dataclass(frozen=True)
class Plan:
    """How a run is spread.

    Attributes:
        mesh: its axes and their sizes: dp, fsdp, or both; or any of pp, dp and tp.
        zero: the stage of ZeRO: 0 shares nothing, 1 the optimizer's state, 2 the gradients too, 3
            the parameters too; None: 3 over an axis fsdp, 0 without one.
        precision: "fp32", "bf16" or "fp16": what is sent and multiplied; the optimizer's is fp32.
        remat: what a layer keeps for its gradient, as `jaxpar.parallel.remat` names it.
        microbatches: how many parts of its batch a device takes one after another; over pp, those
            of the schedule.
        offload: "host" or "disk": where the optimizer's state waits between steps; None: it stays.
        sequence_parallel: the devices of tp share the positions, where they do not share a layer.
        schedule: over pp, the name of a schedule, or a CSV file with a table; None: 1f1b.
    """

    mesh: str = "dp=8"
    zero: int | None = None
    precision: str = "fp32"
    remat: str = "products"
    microbatches: int = 1
    offload: str | None = None
    sequence_parallel: bool = False
    schedule: str | None = None

    def __post_init__(self) -> None:
        """Checks every field, and those that must fit together."""
        known = (PIPELINE_AXIS, *DATA_AXES, TENSOR_AXIS)
        if others := [axis for axis in self.sizes if axis not in known]:
            raise ValueError(
                f"train: --mesh {self.mesh} has axes {', '.join(others)}; so far training splits "
                "the batch over dp and fsdp, each layer over tp, and the layers over pp; use these"
            )
        for name, value, allowed in (
            ("zero", self.stage, (0, 1, 2, 3)),
            ("precision", self.precision, tuple(POLICIES)),
            ("remat", self.remat, tuple(KINDS)),
            ("offload", self.offload, (None, *PLACES)),
        ):
            if value not in allowed:
                words = ", ".join(str(choice) for choice in allowed if choice is not None)
                raise ValueError(f"train: --{name} is {value!r}; use one of {words}")
        if self.microbatches < 1:
            raise ValueError(f"train: --microbatches is {self.microbatches}; use 1 or more")
        self._check_layers()
        self._check_states()

    def _check_layers(self) -> None:
        """Whether what is said of layers fits the axes that share them."""
        if self.schedule and PIPELINE_AXIS not in self.sizes:
            raise ValueError(
                f"train: --schedule {self.schedule} with --mesh {self.mesh}: a schedule is for "
                "devices that hold different layers; use --mesh pp=N or pp=N,dp=M"
            )
        if self.precision == "fp16" and PIPELINE_AXIS in self.sizes:
            raise ValueError(
                f"train: --precision fp16 with --mesh {self.mesh}: a pipeline takes its gradients "
                "by itself, of a loss that is not scaled; use bf16 or fp32"
            )
        if self.sequence_parallel and TENSOR_AXIS not in self.sizes:
            raise ValueError(
                f"train: --sequence-parallel with --mesh {self.mesh}: positions are shared by the "
                "devices that share a layer; use --mesh tp=N or dp=N,tp=M"
            )

    def _check_states(self) -> None:
        """Whether what is said of states fits the axes that share them."""
        if self.stage and {PIPELINE_AXIS, TENSOR_AXIS} & self.sizes.keys():
            raise ValueError(
                f"train: stage {self.stage} of ZeRO with --mesh {self.mesh}: so far devices share "
                "states over dp and fsdp, or layers over pp and tp, not both; use dp with pp and "
                "tp, or --mesh without them"
            )
        if "fsdp" in self.sizes and self.stage == 0:
            raise ValueError(
                f"train: --zero 0 with --mesh {self.mesh}: the devices of axis fsdp share the "
                "states of training, and stage 0 shares nothing; use --zero 1, 2 or 3, or axis dp"
            )
        if self.stage and self.sizes[self.shard_axis] == 1:
            raise ValueError(
                f"train: stage {self.stage} of ZeRO with --mesh {self.mesh}: axis "
                f"{self.shard_axis} has one device, and nobody to share with; use more devices, or "
                "--zero 0 on dp"
            )
        if self.stage == 3 and self.remat == "none":
            raise ValueError(
                "train: --remat none with --zero 3: every layer's parameters, once gathered, would "
                "be kept for the gradient; use --remat products, full, selective or segments, or "
                "--zero 2"
            )

    @property
    def sizes(self) -> dict[str, int]:
        """The devices on each axis."""
        return parse_mesh(self.mesh)

    @property
    def devices(self) -> int:
        """How many there are."""
        return math.prod(self.sizes.values())

    @property
    def data_axes(self) -> tuple[str, ...]:
        """The axes over which the batch is split."""
        return tuple(axis for axis in self.sizes if axis in DATA_AXES)

    @property
    def batch_parts(self) -> int:
        """How many parts the batch is split into."""
        return math.prod(self.sizes[axis] for axis in self.data_axes)

    @property
    def split(self) -> Split:
        """How the devices share each layer."""
        if TENSOR_AXIS not in self.sizes:
            return Split()
        # What a layer computes again in any case need not be gathered once more.
        again = self.remat in ("full", "segments")
        return Split(TENSOR_AXIS, self.sequence_parallel, "gathered" if again else "shard")

    @cached_property
    def table(self) -> Table | None:
        """The schedule, where devices hold different layers."""
        if PIPELINE_AXIS not in self.sizes:
            return None
        name, stages = self.schedule or DEFAULT, self.sizes[PIPELINE_AXIS]
        if name.endswith(".csv"):
            return _table_for(Path(name), stages, self.microbatches)
        return make_table(name, stages, self.microbatches)

    @property
    def stage(self) -> int:
        """The stage of ZeRO."""
        return (3 if "fsdp" in self.sizes else 0) if self.zero is None else self.zero

    @property
    def shard_axis(self) -> str:
        """The axis whose devices share what the stage names."""
        return "fsdp" if "fsdp" in self.sizes else "dp"

    @property
    def replica_axis(self) -> str | None:
        """The axis whose devices hold the same shards, if there is one."""
        return "dp" if len(self.data_axes) > 1 else None

    def check(self, settings: Settings, batch: int) -> None:
        """Whether the devices can share such layers, and a batch of this size in microbatches.

        Raises:
            ValueError: they cannot.
        """
        check_split(settings, self.split, self.sizes.get(TENSOR_AXIS, 1))
        if self.table:
            layer_order(self.table, settings.layers)
        mine = divide("train", "b", batch, self.data_axes, self.batch_parts)
        if mine % self.microbatches:
            raise ValueError(
                f"train: --microbatches {self.microbatches} and {mine} examples on a device; "
                f"microbatches have equal sizes; use a number that divides {mine}, or another "
                "--batch"
            )


def _table_for(path: Path, stages: int, microbatches: int) -> Table:
    """A schedule from a CSV file, checked.

    Raises:
        ValueError: the file cannot be read, is no schedule, or one for other devices or
            microbatches.
    """
    try:
        table = read_table(path)
    except ValueError as error:
        raise ValueError(f"train: --schedule {error}") from None
    if (table.devices, table.microbatches) != (stages, microbatches):
        raise ValueError(
            f"train: --schedule {path} is for {table.devices} devices and {table.microbatches} "
            f"microbatches; the mesh has pp={stages}, with --microbatches {microbatches}; make "
            "them equal"
        )
    return table
