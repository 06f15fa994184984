"""How a model is spread over devices: the size of each mesh axis, and what else is chosen."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxpar.axes import show_mesh
from jaxpar.cost.checks import check_one_of
from jaxpar.cost.zero import STAGES

AXES = ("pp", "dp", "fsdp", "ep", "cp", "tp")
REMATS = ("none", "selective", "full")
OFFLOADS = ("none", "optimizer", "all")


@dataclass(frozen=True)
class Layout:
    """How a model is spread.

    A size may be a numpy array: then this stands for many layouts, one for each element.

    Attributes:
        pp: stages of a pipeline.
        dp: devices that share the batch, and hold the same parameters (but see `zero`).
        fsdp: devices that share the batch and the states of training, by stage 3 of ZeRO.
        ep: devices that share the batch and each layer's experts.
        cp: devices that share the positions of an example.
        tp: devices that share each layer's matrices.
        chunks: parts of the model on each stage; with more than one the schedule is interleaved.
        microbatch: examples that go through a device at once.
        zero: the stage of ZeRO over dp, or over fsdp if that has more than one device.
        remat: what is computed again: "none"; "selective", what has s*s elements for each head,
            which fused attention never keeps, whatever this says; "full", all but each layer's
            input.
        sequence_parallel: the devices of tp share the positions, where they do not share a layer.
        offload: what waits in the memory of the host: "none", "optimizer", or "all" (the
            parameters too, which come layer by layer).
    """

    pp: Any = 1
    dp: Any = 1
    fsdp: Any = 1
    ep: Any = 1
    cp: Any = 1
    tp: Any = 1
    chunks: Any = 1
    microbatch: Any = 1
    zero: int = 0
    remat: str = "none"
    sequence_parallel: bool = False
    offload: str = "none"

    def __post_init__(self) -> None:
        """Refuses what is not one of few."""
        for name, allowed in (("zero", STAGES), ("remat", REMATS), ("offload", OFFLOADS)):
            check_one_of("Layout", name, getattr(self, name), allowed)

    @property
    def devices(self) -> Any:
        """How many there are."""
        return self.pp * self.dp * self.fsdp * self.ep * self.cp * self.tp

    @property
    def batch_parts(self) -> Any:
        """How many parts the batch is split into."""
        return self.dp * self.fsdp * self.ep

    @property
    def state_shards(self) -> Any:
        """Devices that ZeRO shares the states of training between, for what is not of experts.

        Over fsdp if there is such an axis, else over dp; with those of ep and cp, which hold the
        same parameters. An axis dp beside fsdp holds copies.
        """
        return self.expert_shards * self.ep

    @property
    def expert_shards(self) -> Any:
        """Devices that ZeRO shares the states of training of an expert between."""
        return (self.fsdp if _more(self.fsdp) else self.dp) * self.cp

    @property
    def sizes(self) -> Mapping[str, int]:
        """The size of each axis, outermost first."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def mesh(self) -> str:
        """The axes with more than one device, as `parse_mesh` reads them: "pp=8,tp=8"."""
        return show_mesh({axis: n for axis, n in self.sizes.items() if n > 1}) or "dp=1"


def describe(layout: Layout) -> str:
    """The layout as a person says it."""
    words = [f"mesh {layout.mesh}", f"ZeRO {layout.zero}", f"remat {layout.remat}"]
    words.append(f"microbatch {layout.microbatch}")
    if layout.chunks > 1:
        words.append(f"{layout.chunks} chunks")
    if layout.sequence_parallel:
        words.append("sequence parallel")
    if layout.offload != "none":
        words.append(f"offload {layout.offload}")
    return ", ".join(words)


def _more(n: Any) -> bool:
    """Whether an axis has several devices; many layouts at once either all have it or none."""
    return bool((n > 1) if isinstance(n, int) else (n > 1).any())
