"""What the estimators of other tools answer, so that a person can reproduce and compare them.

Answers are bytes on a device, unless said otherwise, before a tool rounds; what the tools print as
GB and MB is GiB and MiB. Each module says what its tool leaves out.
"""

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.estimators.accelerate import accelerate_loading, accelerate_memory, without_head
from jaxpar.cost.estimators.deepspeed import DeepSpeed, largest_matrix
from jaxpar.cost.estimators.eleuther import eleuther_memory
from jaxpar.cost.estimators.megatron import megatron_memory
from jaxpar.cost.planner.footprint import Footprint, Training
from jaxpar.cost.terms import Term

# What each tool counts, by its name.
ESTIMATORS = {
    "deepspeed": "the states of training, by its code",
    "deepspeed-docs": "the states of training, by its documentation",
    "megatron": "states, and activations of selective recomputation",
    "accelerate": "states alone, of one device, without the head",
    "eleuther": "states, activations and buffers",
}


def estimate(
    name: str,
    footprint: Footprint,
    *,
    devices_per_node: int,
    largest_layer: float | None = None,
    bits: int | None = None,
) -> tuple[list[Term], list[Term]]:
    """The terms of a device, and those of the host of a node.

    Args:
        name: one of `ESTIMATORS`.
        footprint: what is asked about.
        devices_per_node: how many share a host.
        largest_layer: for DeepSpeed, parameters of the largest module; None: the largest matrix.
        bits: of a parameter, where the tool lets one choose; None: what it takes by default.

    Raises:
        ValueError: the tool has no answer.
    """
    layout, model = footprint.layout, footprint.model
    if name.startswith("deepspeed") and name in ESTIMATORS:
        tool = _deepspeed(name, _trained(name, footprint), devices_per_node, largest_layer)
        return tool.memory(), tool.host_memory()
    if name == "megatron":
        batch = _trained(name, footprint).batch
        sizes = {
            "sequence": footprint.sequence,
            "microbatches": batch and layout.microbatches(batch),
        }
        return megatron_memory(_decoder(name, footprint), layout, **sizes), []
    if name == "accelerate":
        if layout.devices > 1:
            raise ValueError(f"{name}: it does not know mesh {layout.mesh}; use one device")
        parameters = without_head(model) if isinstance(model, Architecture) else model
        if isinstance(footprint, Training):
            return accelerate_memory(parameters, dtype=f"float{bits or 32}"), []
        return accelerate_loading(parameters, bits=bits or 16), []
    if name == "eleuther":
        inference = not isinstance(footprint, Training)
        sizes = {"sequence": footprint.sequence, "inference": inference, "bits": bits or 16}
        return eleuther_memory(_decoder(name, footprint), layout, **sizes), []
    raise ValueError(f"estimator {name!r} is unknown; use one of {', '.join(ESTIMATORS)}")


def _deepspeed(
    name: str, footprint: Training, devices_per_node: int, largest_layer: float | None
) -> DeepSpeed:
    layout, model = footprint.layout, footprint.model
    if layout.devices > layout.dp * layout.fsdp:
        raise ValueError(f"{name}: it does not know mesh {layout.mesh}; use dp or fsdp alone")
    if isinstance(model, Architecture):
        parameters, largest = model.parameters, largest_matrix(model)
    else:
        parameters, largest = model, 0
        if layout.zero == 3 and largest_layer is None:
            raise ValueError(f"{name}: stage 3 of a number of parameters; give --largest-layer")
    return DeepSpeed(
        parameters,
        layout.zero,
        layout.devices,
        min(layout.devices, devices_per_node),
        largest if largest_layer is None else largest_layer,
        layout.offload,
        formula="docs" if name == "deepspeed-docs" else "code",
    )


def _trained(name: str, footprint: Footprint) -> Training:
    if not isinstance(footprint, Training):
        raise ValueError(f"{name}: it has no estimate for inference; use --training")
    return footprint


def _decoder(name: str, footprint: Footprint) -> Architecture:
    if not isinstance(footprint.model, Architecture):
        raise ValueError(f"{name}: it does not know a number of parameters; give a model")
    return footprint.model
