"""How a run is spread: its mesh, and what its devices share, round, recompute and put away."""

import math
from dataclasses import dataclass

from jaxpar.mesh import divide, parse_mesh
from jaxpar.parallel.precision import POLICIES
from jaxpar.parallel.remat import KINDS

DATA_AXES = ("dp", "fsdp")
PLACES = ("host", "disk")


@dataclass(frozen=True)
class Plan:
    """How a run is spread.

    Attributes:
        mesh: its axes and their sizes: dp, fsdp, or both.
        zero: the stage of ZeRO: 0 shares nothing, 1 the optimizer's state, 2 the gradients too, 3
            the parameters too; None: 3 over an axis fsdp, 0 without one.
        precision: "fp32", "bf16" or "fp16": what is sent and multiplied; the optimizer's is fp32.
        remat: what a layer keeps for its gradient, as `jaxpar.parallel.remat` names it.
        microbatches: how many parts of its batch a device takes one after another.
        offload: "host" or "disk": where the optimizer's state waits between steps; None: it stays.
    """

    mesh: str = "dp=8"
    zero: int | None = None
    precision: str = "fp32"
    remat: str = "products"
    microbatches: int = 1
    offload: str | None = None

    def __post_init__(self) -> None:
        """Checks every field, and those that must fit together."""
        if others := [axis for axis in self.sizes if axis not in DATA_AXES]:
            raise ValueError(
                f"train: --mesh {self.mesh} has axes {', '.join(others)}; so far training splits "
                "the batch only, over dp and fsdp; use --mesh dp=N, fsdp=N or dp=N,fsdp=M"
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
    def axes(self) -> tuple[str, ...]:
        """The axes of the mesh, over which the batch is split."""
        return tuple(self.sizes)

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
        return "dp" if len(self.sizes) > 1 else None

    def check_batch(self, batch: int) -> None:
        """Whether the devices can share a batch of this size, and each its microbatches.

        Raises:
            ValueError: they cannot.
        """
        mine = divide("train", "b", batch, self.axes, self.devices)
        if mine % self.microbatches:
            raise ValueError(
                f"train: --microbatches {self.microbatches} and {mine} examples on a device; "
                f"microbatches have equal sizes; use a number that divides {mine}, or another "
                "--batch"
            )
