"""DeepSpeed's estimator of the states of training, stages 2 and 3 of ZeRO.

Source, as read in November 2026: deepspeedai/DeepSpeed, deepspeed/runtime/zero/stage3.py and
stage_1_and_2.py, and docs/code-docs/source/memory.rst.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.terms import Term, make_terms


@dataclass(frozen=True)
class DeepSpeed:
    """DeepSpeed's estimate_zero2_ and estimate_zero3_model_states_mem_needs: states alone.

    It leaves out activations and buckets, and knows neither tensor nor pipeline parallelism. In
    stage 3 the model is made in parts (zero.Init), never whole in the memory of a host.

    Attributes:
        parameters: of the model.
        zero: the stage, 2 or 3.
        devices: how many there are.
        devices_per_node: how many of them share the memory of a host.
        largest_layer: parameters of the largest module that has some of its own, as a matrix.
        offload: "none", "optimizer", or with stage 3 "all".
        formula: stage 2 differs between "code" and "docs".
    """

    parameters: float
    zero: int
    devices: int
    devices_per_node: int
    largest_layer: float = 0
    offload: str = "none"
    formula: Literal["code", "docs"] = "code"

    def __post_init__(self) -> None:
        """Checks that the tool has an answer."""
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
            return self._terms({"host": f"largest_layer * {made} * 1.5"})
        each = 16 if self.offload == "optimizer" else 18
        return self._terms({"host": f"parameters * {each} * (1 / nodes) * 1.5"})

    def _terms(self, formulas: Mapping[str, str]) -> list[Term]:
        numbers = vars(self) | {"nodes": self.devices // self.devices_per_node}
        return make_terms(formulas, numbers)


def largest_matrix(architecture: Architecture) -> int:
    """Elements of the largest table or matrix, if each of them is a module of its own."""
    a, d = architecture, architecture.hidden
    widths = [a.vocab, a.heads * a.d_head]
    if a.dense_layers:
        widths.append(a.d_ffn)
    if a.experts:
        widths += [a.experts.ffn, a.experts.shared]
    return d * max(widths)
