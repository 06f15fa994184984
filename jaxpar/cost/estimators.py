"""What the estimators of other tools answer, so that a person can reproduce and compare them.

In bytes on a device, unless said otherwise, before a tool rounds. What they print as GB and MB is
GiB and MiB. They are right about different things: each says what it leaves out.

Sources, as read in November 2026: deepspeedai/DeepSpeed, deepspeed/runtime/zero/stage3.py and
stage_1_and_2.py, and docs/code-docs/source/memory.rst; NVIDIA/Megatron-LM,
megatron/training/theoretical_memory_usage.py; huggingface/accelerate,
src/accelerate/commands/estimate.py; EleutherAI/cookbook, calc/calc_transformer_mem.py.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.layout import Layout
from jaxpar.cost.terms import Term, make_term


@dataclass(frozen=True)
class DeepSpeed:
    """DeepSpeed's estimate_zero2_ and estimate_zero3_model_states_mem_needs: states alone.

    Leaves out activations, buckets and what tensor and pipeline parallelism split.

    Attributes:
        parameters: of the model.
        zero: the stage, 2 or 3.
        devices: how many there are.
        devices_per_node: how many of them share the memory of a host.
        largest_layer: parameters of the largest module that has some of its own, as a matrix.
        offload: "none", "optimizer", or with stage 3 "all".
        zero_init: the model is made in parts (zero.Init), never whole in the memory of a host.
        formula: stage 2 differs between "code" and "docs".
    """

    parameters: float
    zero: int
    devices: int
    devices_per_node: int
    largest_layer: float = 0
    offload: str = "none"
    zero_init: bool = True
    formula: Literal["code", "docs"] = "code"

    def __post_init__(self) -> None:
        """Refuses what the tool does not answer."""
        allowed = {2: ("none", "optimizer"), 3: ("none", "optimizer", "all")}.get(self.zero)
        if allowed is None:
            raise ValueError(f"deepspeed: it has no estimate for stage {self.zero}; use 2 or 3")
        if self.offload not in allowed:
            raise ValueError(
                f"deepspeed: offload {self.offload!r} with stage {self.zero}; use one of "
                f"{', '.join(allowed)}"
            )
        if self.devices % self.devices_per_node:
            below = self.devices // self.devices_per_node * self.devices_per_node
            near = below or self.devices_per_node
            raise ValueError(
                f"deepspeed: {self.devices} devices, {self.devices_per_node} in a node; nodes "
                f"are full; use {near} devices"
            )

    def memory(self) -> list[Term]:
        """What a GPU holds."""
        if self.zero == 2:
            kept, split = (2, 18) if self.formula == "code" else (4, 16)
            formulas = {"parameters": f"{kept} * parameters"}
            if self.offload == "optimizer":
                formulas = {"parameters": "2 * parameters"}
            else:
                formulas["shared states"] = f"{split} * parameters / devices"
            return self._terms(formulas)
        formulas = {"gathered": "4 * largest_layer"}
        each = {"none": 18, "optimizer": 2, "all": 0}[self.offload]
        if each:
            formulas["shared states"] = f"{each} * parameters / devices"
        return self._terms(formulas)

    def host_memory(self) -> list[Term]:
        """What the host of a node needs, in bytes."""
        made = "4 * devices_per_node"  # every process makes the whole model, in float32
        if self.zero == 2:
            per_node = made if self.formula == "docs" else "4 * devices"
            each = f"max({per_node}, 16)" if self.offload == "optimizer" else made
            return self._terms({"host": f"parameters * {each} * 1.5"})
        if self.offload == "none":
            whole = "largest_layer" if self.zero_init else "parameters"
            return self._terms({"host": f"{whole} * {made} * 1.5"})
        held = f"{16 if self.offload == 'optimizer' else 18} * (1 / nodes)"
        each = held if self.zero_init else f"max({made}, {held})"
        return self._terms({"host": f"parameters * {each} * 1.5"})

    def _terms(self, formulas: Mapping[str, str]) -> list[Term]:
        numbers = vars(self) | {"nodes": self.devices // self.devices_per_node}
        return _terms(formulas, numbers)


def largest_matrix(architecture: Architecture) -> int:
    """Elements of the largest table or matrix, where every one is a module of its own."""
    a, d = architecture, architecture.hidden
    widths = [a.vocab, a.heads * a.d_head]
    if a.dense_layers:
        widths.append(a.d_ffn)
    if a.experts:
        widths += [a.experts.ffn, a.experts.shared]
    return d * max(widths)


def megatron_memory(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    microbatches: int | None = None,
) -> list[Term]:
    """Megatron-LM's report_theoretical_memory: the fullest stage, which is the first.

    The vocabulary is padded as there, to a multiple of 128 tp. The optimizer is distributed from
    stage 1 of ZeRO on. Activations are those of selective recomputation, with sequence parallelism
    or without; where the layout says anything else, those without. Leaves out context and expert
    parallelism, and biases.

    Args:
        architecture: the model.
        layout: how it is spread.
        sequence: positions of an example.
        microbatches: of each pipeline in a step; None: enough to fill it.
    """
    a = architecture
    table = "vocab * hidden"
    numbers = {
        "layers": a.layers,
        "hidden": a.hidden,
        "ffn": a.experts.ffn if a.experts and not a.dense_layers else a.d_ffn,
        "vocab": -(-a.vocab // (128 * layout.tp)) * 128 * layout.tp,
        "block": _megatron_block(a),
        "pp": layout.pp,
        "tp": layout.tp,
        "dp": layout.dp * layout.fsdp * layout.ep,
        "tokens": sequence * layout.microbatch,
        "in_flight": _megatron_in_flight(layout, microbatches),
    }
    tables = f"2 * {table}" if not a.tied and layout.pp == 1 else table
    optimizer = "12 / dp" if layout.zero else "12"
    formulas = {"states": f"(6 + {optimizer}) * (block / pp + {tables}) / tp"}
    if layout.sequence_parallel and layout.remat == "selective":
        layer = "tokens * (18 * hidden + 4 * ffn) / tp"
        outside, head = "tokens * (8 + hidden) * pp / tp", "4 * tokens * (hidden + vocab) / tp"
        overhead = ""
    else:
        layer = "tokens * hidden * (10 + 24 / tp)"
        outside, head = "tokens * (8 + hidden) * pp", "2 * tokens * (hidden + vocab / tp)"
        overhead = " * 1.05"
    formulas["activations"] = f"layers * {layer} * in_flight{overhead}"
    formulas["embedding"] = f"{outside} * in_flight{overhead}"
    if layout.pp == 1:
        formulas["logits"] = f"{head}{overhead}"
    return _terms(formulas, numbers)


def _megatron_block(architecture: Architecture) -> float:
    """Parameters of all layers and the last norm, as Megatron-LM counts them."""
    a, d, latent = architecture, architecture.hidden, architecture.latent
    norm = 1 if a.norm == "rms" else 2
    if latent:
        keys = a.heads * (a.d_head + latent.rotary)
        queries = latent.query_rank * (d + keys + norm) if latent.query_rank else d * keys
        pairs = latent.rank * (d + a.heads * (a.d_head + latent.value) + norm)
        attention = queries + pairs + d * latent.rotary + a.heads * latent.value * d
    else:
        attention = 2 * d * a.d_head * (a.heads + a.key_heads)
    gated = 3 / 2 if a.gated else 1
    layers = a.dense_layers * (2 * d * (a.d_ffn * gated + norm) + attention)
    if a.experts:
        ffn = a.experts.count * a.experts.ffn + a.experts.shared
        layers += a.expert_layers * (2 * d * (ffn * gated + norm) + attention)
    return layers + norm * d


def _megatron_in_flight(layout: Layout, microbatches: int | None) -> float:
    """Of the microbatches that fill the pipeline, the share whose activations are kept."""
    if layout.chunks > 1:
        return 1 + (layout.pp - 1) / (layout.pp * layout.chunks)
    return 1 if microbatches is None else min(1, microbatches / layout.pp)


def accelerate_memory(parameters: float, *, dtype: str = "float32") -> list[Term]:
    """Accelerate's estimate-memory, column "Training using Adam", for a batch of 1.

    `parameters` are those of the model without its head, as AutoModel makes it. Leaves out
    activations and buffers. For float16 it counts the largest of what it knows, the optimizer.

    Raises:
        ValueError: it has no estimate for training in this dtype.
    """
    numbers = {"parameters": parameters}
    if dtype == "float32":
        formulas = {
            "parameters": "4 * parameters",
            "gradients": "4 * parameters",
            "optimizer": "2 * 4 * parameters",
        }
    elif dtype == "float16":
        formulas = {"optimizer": "2 * 4 * parameters"}
    else:
        raise ValueError(f"accelerate: no training in {dtype}; use float32 or float16")
    return _terms(formulas, numbers)


def accelerate_loading(parameters: float, *, bits: int) -> list[Term]:
    """Accelerate's estimate-memory, column "Total Size"."""
    numbers = {"parameters": parameters, "bits": bits}
    return _terms({"parameters": "parameters * bits / 8"}, numbers)


def without_head(architecture: Architecture) -> int:
    """Parameters of the model without its head."""
    heads = (part.count for part in architecture.outer_parts if part.name == "head")
    return architecture.parameters - sum(heads)


# Parameters in a bucket of ZeRO, and those that stage 3 keeps whole.
_BUFFERED = {"bucket": 500_000_000, "live": 1_000_000_000}


def eleuther_memory(
    architecture: Architecture,
    layout: Layout,
    *,
    sequence: int,
    inference: bool = False,
    bits: int = 16,
) -> list[Term]:
    """EleutherAI's calc_transformer_mem, per GPU.

    Any recomputation is its --checkpoint-activations, sequence parallelism its
    --partition-activations. Optimizer and gradients are not split over tp and pp, but over all
    devices from stages 1 and 2 of ZeRO on; the cache, of one token more, has no factor 2 for
    keys and values, and as many heads as queries have. Leaves out experts.

    Args:
        architecture: the model.
        layout: how it is spread; microbatch is the batch of a GPU.
        sequence: positions of an example.
        inference: whether the model is not trained.
        bits: of a parameter and an activation.
    """
    numbers = {
        "element_bytes": bits / 8,
        "parameters": _eleuther_parameters(architecture, sequence),
        "split": layout.tp * layout.pp * (layout.devices if layout.zero == 3 else 1),
        "devices": layout.devices,
        "examples": layout.microbatch,
        "sequence": sequence,
        "layers": architecture.layers,
        "hidden": architecture.hidden,
        "heads": architecture.heads,
        "partitions": layout.tp if layout.sequence_parallel else 1,
        **_BUFFERED,
    }
    x, kept = "examples * sequence * hidden", "16 * element_bytes + 2"
    formulas = {"parameters": "element_bytes * parameters / split"}
    if inference:
        formulas["kv_cache"] = "element_bytes * hidden * layers * (sequence + 1) * examples"
        formulas["activations"] = f"{x} * ({kept}) / partitions"
        return _terms(formulas, numbers)
    formulas["gradients"] = f"4 * parameters{' / devices' if layout.zero >= 2 else ''}"
    formulas["optimizer"] = f"12 * parameters{' / devices' if layout.zero else ''}"
    if layout.zero and layout.devices > 1:
        live = " + live" if layout.zero == 3 else ""
        formulas["buffers"] = f"element_bytes * (bucket{live})"
    if layout.remat == "none":
        kept += " + (2 * element_bytes + 1) * heads * sequence / hidden"
    formulas["activations"] = f"{x} * layers * ({kept}) / partitions"
    return _terms(formulas, numbers)


def _eleuther_parameters(architecture: Architecture, sequence: int) -> float:
    """Parameters as EleutherAI counts them: positions and a head always, all norms in pairs."""
    a, d = architecture, architecture.hidden
    mlp = (3 if a.gated else 2) * a.d_ffn * d
    attention = int(2 * (1 + a.key_heads / a.heads) * a.layers * d * d)
    return 2 * a.vocab * d + d * sequence + 8 * d * a.layers + 2 * d + attention + mlp * a.layers


def _terms(formulas: Mapping[str, str], numbers: Mapping[str, Any]) -> list[Term]:
    return [make_term(name, formula, numbers) for name, formula in formulas.items()]
