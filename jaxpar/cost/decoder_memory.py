"""What each device holds in a step of `jaxpar train`, where that grows with the model.

It differs from `training_memory`, which is for Megatron-LM, DeepSpeed and FSDP: every stage of a
pipeline holds all that is outside of the layers, stage 3 may gather all parameters once a step, JAX
has the gradients of all layers before it scatters any, and the arrays that layers keep are others.
Left out is what does not grow with the number of layers (logits, what one layer computes with), and
offload.
"""

from collections.abc import Sequence

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.kept import decoder_arrays, half_arrays
from jaxpar.cost.leaf import Leaf
from jaxpar.cost.terms import Term, make_terms, total
from jaxpar.cost.zero import ADAM_FP32, States
from jaxpar.layout import Layout
from jaxpar.schedules import Table
from jaxpar.schedules.ticks import lower


def decoder_memory(
    architecture: Architecture,
    layout: Layout,
    leaves: Sequence[Leaf],
    *,
    batch: int,
    sequence: int,
    each: States = ADAM_FP32,
    block_bytes: float = 0,
    table: Table | None = None,
    gathers_layers: bool = False,
    tiles: bool = False,
    adapter_rank: int = 0,
) -> list[Term]:
    """Bytes on a device: "parameters", "base" and "optimizer" are arguments of a step.

    "base" are the parameters that are not trained. The rest is temporary: "found" are the gradients
    of one microbatch, "summed" those of all, "gathered" the parameters that stage 3 gathers once a
    step, "kept" what layers keep of the microbatches in flight, and "halves" what the first halves
    of backward passes keep for the second.

    Args:
        architecture: the decoder.
        layout: how it is spread.
        leaves: its parameters.
        batch: examples in a step, over all devices.
        sequence: positions of an example.
        each: bytes of the states for each parameter.
        block_bytes: of the optimizer's state, for each block of a leaf.
        table: the schedule of the pipeline; None: there is none.
        gathers_layers: as in `decoder_traffic`.
        tiles: whether attention is by tiles on one device, too; over cp it always is.
        adapter_rank: of the adapters beside all matrices of layers; 0: there are none.

    Raises:
        ValueError: what is kept of experts is not known here.
    """
    trained = [leaf for leaf in leaves if leaf.trained]
    base = [leaf for leaf in leaves if not leaf.trained]

    def bytes_of(leaf: Leaf) -> float:
        return leaf.element_bytes or each.params

    sizes = {"sequence": sequence, "element_bytes": int(each.params), "tiles": tiles}
    numbers = {
        "used": sum(_used(leaf, layout) for leaf in trained),
        "owned": sum(_owned(leaf, layout) for leaf in trained),
        "base_used_bytes": sum(_used(leaf, layout) * bytes_of(leaf) for leaf in base),
        "base_owned_bytes": sum(_owned(leaf, layout) * bytes_of(leaf) for leaf in base),
        "used_in_layers": sum(_used(leaf, layout) for leaf in trained if leaf.layers),
        "owned_in_layers": sum(_owned(leaf, layout) for leaf in trained if leaf.layers),
        "parameter_bytes": each.params,
        "gradient_bytes": each.gradients,
        "optimizer_bytes": each.optimizer,
        "blocks": sum(_owned(leaf, layout) / leaf.block for leaf in trained),
        "block_bytes": block_bytes,
        "layers": architecture.layers / (table.stages if table else 1),
        "layer_bytes": total(
            decoder_arrays(architecture, layout, **sizes, adapter_rank=adapter_rank)
        ),
        "half_bytes": total(half_arrays(architecture, layout, **sizes)),
        **_slots(table, architecture, layout),
    }
    if architecture.experts and numbers["half_slots"]:
        raise ValueError(
            "decoder_memory: experts in a schedule whose backward passes have two halves: what the "
            "first keeps for the second is not known; use another schedule, such as 1f1b"
        )
    several, zero = layout.microbatches(batch) > 1, layout.zero
    # What is gathered layer by layer is scattered so; stage 2 scatters after each microbatch.
    found = "owned" if gathers_layers else "used"
    summed = "owned" if gathers_layers or zero == 2 else "used"
    gathered = int(zero == 3 and not gathers_layers)
    formulas = {
        "parameters": f"{'owned' if zero == 3 else 'used'}*parameter_bytes",
        "base": f"base_{'owned' if zero == 3 else 'used'}_bytes",
        "optimizer": "owned*optimizer_bytes" + " + blocks*block_bytes" * (block_bytes > 0),
        "found": f"{found}*gradient_bytes",
        "summed": f"{summed}*gradient_bytes" if several else "0",
        "gathered": f"{gathered}*(used*parameter_bytes + base_used_bytes)",
        "kept": "layers*slots*layer_bytes",
        "halves": "layers*half_slots*half_bytes",
    }
    if layout.remat == "segments" and not table:
        # In one segment the parameters and the gradients of its layers stand apart.
        of_one = f"(layers*layer_bytes + 2*{found}_in_layers*parameter_bytes)/segments"
        formulas["kept"] = f"segments*layer_bytes + {of_one}"
    return [term for term in make_terms(formulas, numbers) if term.value]


def _used(leaf: Leaf, layout: Layout) -> float:
    """Elements of a leaf that a device uses."""
    return leaf.elements / leaf.parts(layout)


def _owned(leaf: Leaf, layout: Layout) -> float:
    """Elements of a leaf whose gradient and optimizer state a device has."""
    return _used(leaf, layout) / leaf.shards(layout)


def _slots(table: Table | None, architecture: Architecture, layout: Layout) -> dict[str, int]:
    """How often a device holds what a layer keeps.

    Beside the slots of a schedule, the result of the current forward or backward is held. A
    pipeline whose stages keep only their inputs holds one stage's layers, in its backward pass.
    """
    if not table:
        layers = architecture.layers
        segments = next(k for k in range(1, layers + 1) if layers % k == 0 and k * k >= layers)
        return {"slots": 1, "half_slots": 0, "segments": segments}
    keeps_inputs = layout.remat == "segments"
    lowered = lower(table, keep_inputs=keeps_inputs)
    halves = lowered.half_slots + 1 if lowered.half_slots > 1 else 0
    return {"slots": lowered.stash_slots + (not keeps_inputs), "half_slots": halves, "segments": 1}
