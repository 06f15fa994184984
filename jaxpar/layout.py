"""How a run is spread over devices: the one definition that training, costs and lessons share.

Nothing here imports JAX.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxpar.axes import show_mesh
from jaxpar.checks import check_one_of

AXES = ("pp", "dp", "fsdp", "ep", "cp", "tp")
ZERO_STAGES = (0, 1, 2, 3)
# What a layer keeps of its forward pass for the backward pass; the rest is recomputed.
REMAT_KINDS = {
    "none": "everything that its gradient needs",
    "selective": "all but what has s*s elements for each head: attention is computed again",
    "full": "its input only: the whole layer is computed again",
    "products": "the results of its products with weights",
    "alternate": "every other product with weights: queries, values, the gate; and attention",
    "segments": "nothing, but for the inputs of about sqrt(layers) segments of layers",
}
# How positions attend to those of other devices, where the devices of an axis cp split them.
CONTEXT_KINDS = {
    "zigzag": "keys and values go round a ring, and all devices have equal work",
    "ring": "keys and values go round a ring, and the last device has the most work",
    "gather": "every device gathers the keys and values of all positions",
    "ulysses": "every device gets some of the heads, at all positions",
}
# Which states of training wait outside of the devices, until a step needs them.
OFFLOAD_KINDS = {
    "none": (),
    "optimizer": ("optimizer",),
    "all": ("parameters", "gradients", "optimizer"),
}
STORES = ("host", "disk")


@dataclass(frozen=True)
class Layout:
    """How a run is spread over devices.

    In the formulas of `jaxpar.cost` a size may be a numpy array: then a layout stands for many,
    one for each element.

    Attributes:
        pp: the stages of a pipeline, each of which has some of the layers.
        dp: devices that split the batch and hold the same parameters (but see `zero`).
        fsdp: devices that split the batch, and over which ZeRO shards the states of training.
        ep: devices that split the batch, and the experts of each layer.
        cp: devices that split the positions of an example.
        tp: devices that split the matrices of each layer.
        chunks: parts of the model on each stage; with more than one the schedule is interleaved.
        microbatch: examples that go through a device at once.
        zero: the stage of ZeRO: 0 shards nothing, 1 the states of the optimizer, 2 the gradients
            as well, 3 the parameters too; over fsdp if that has more than one device, else dp.
        remat: what a layer keeps for its gradient, one of `REMAT_KINDS`.
        sequence_parallel: whether the devices of tp also split the positions, in the norms,
            dropout and sums between the products that they split.
        context: over cp, how attention is computed, one of `CONTEXT_KINDS`.
        offload: which states wait outside of the devices, one of `OFFLOAD_KINDS`. With "all"
            these include the parameters, which are fetched layer by layer.
        store: where they wait: in the memory of the host, or on disk.
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
    context: str = "zigzag"
    offload: str = "none"
    store: str = "host"

    def __post_init__(self) -> None:
        """Checks each choice by itself; whether they go together is checked where they are used."""
        for name, allowed in (
            ("zero", ZERO_STAGES),
            ("remat", tuple(REMAT_KINDS)),
            ("context", tuple(CONTEXT_KINDS)),
            ("offload", tuple(OFFLOAD_KINDS)),
            ("store", STORES),
        ):
            check_one_of("Layout", name, getattr(self, name), allowed)

    @property
    def sizes(self) -> Mapping[str, Any]:
        """The size of each axis, outermost first."""
        return {axis: getattr(self, axis) for axis in AXES}

    @property
    def mesh_sizes(self) -> dict[str, int]:
        """The axes with more than one device; a single device is alone on axis dp."""
        return {axis: n for axis, n in self.sizes.items() if n > 1} or {"dp": 1}

    @property
    def mesh(self) -> str:
        """These axes as `parse_mesh` reads them: "pp=8,tp=8"."""
        return show_mesh(self.mesh_sizes)

    @property
    def devices(self) -> Any:
        """The number of devices."""
        return self.pp * self.dp * self.fsdp * self.ep * self.cp * self.tp

    @property
    def batch_axes(self) -> tuple[str, ...]:
        """The axes of the mesh that split the batch."""
        return tuple(axis for axis in self.mesh_sizes if axis in ("dp", "fsdp", "ep"))

    @property
    def batch_parts(self) -> Any:
        """The number of parts that the batch is split into."""
        return self.dp * self.fsdp * self.ep

    def microbatches(self, batch: Any) -> Any:
        """How many microbatches each device, or each pipeline, takes of a batch of all devices."""
        return batch // (self.batch_parts * self.microbatch)

    @property
    def state_axis(self) -> str:
        """The axis over which ZeRO shards: fsdp if there is one, and then dp holds copies."""
        return "fsdp" if _several(self.fsdp) else "dp"

    @property
    def token_axes(self) -> tuple[str, ...]:
        """The axes of the mesh whose devices compute with the same parameters on other tokens."""
        return tuple(axis for axis in self.mesh_sizes if axis in ("dp", "fsdp", "ep", "cp"))

    @property
    def token_parts(self) -> Any:
        """The number of parts that the tokens of a batch are split into."""
        return self.batch_parts * self.cp

    @property
    def sharding_axes(self) -> tuple[str, ...]:
        """The axes over which ZeRO shards what the devices of an axis hold alike."""
        return tuple(axis for axis in self.token_axes if axis in (self.state_axis, "ep", "cp"))

    @property
    def state_shards(self) -> Any:
        """The number of devices over which ZeRO shards the states of parameters outside of experts.

        These are the devices of `state_axis`, with those of ep and cp, which hold the same
        parameters.
        """
        return self.expert_shards * self.ep

    @property
    def expert_shards(self) -> Any:
        """The number of devices over which ZeRO shards the states of an expert."""
        return getattr(self, self.state_axis) * self.cp

    @property
    def recomputes_layers(self) -> bool:
        """Whether the backward pass computes whole layers again."""
        return self.remat in ("full", "segments")

    @property
    def recomputes_products(self) -> bool:
        """Whether the backward pass computes products with the weights of layers again."""
        return self.recomputes_layers or self.remat == "alternate"


def describe(layout: Layout) -> str:
    """The layout in words."""
    words = [f"mesh {layout.mesh}", f"ZeRO {layout.zero}", f"remat {layout.remat}"]
    words.append(f"microbatch {layout.microbatch}")
    if layout.chunks > 1:
        words.append(f"{layout.chunks} chunks")
    if layout.sequence_parallel:
        words.append("sequence parallel")
    if layout.cp > 1:
        words.append(f"context {layout.context}")
    if layout.offload != "none":
        to_disk = " to disk" if layout.store == "disk" else ""
        words.append(f"offload {layout.offload}{to_disk}")
    return ", ".join(words)


def _several(n: Any) -> bool:
    """Whether an axis has several devices; in an array of layouts, all have several or none."""
    return bool((n > 1) if isinstance(n, int) else (n > 1).any())
