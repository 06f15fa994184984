"""Wrong answers to the FLOPs of a step, of lesson 04, that people write."""

from __future__ import annotations

from typing import NamedTuple

from jaxpar.contracts.base import Mistake
from jaxpar.cost.flops import transformer_step_flops


class _Step(NamedTuple):
    """What the forward pass takes, and what the backward pass computes again."""

    matrices: float
    attention: float
    head: float
    again: float

    @property
    def total(self) -> float:
        return 3 * (self.matrices + self.attention + self.head) + self.again


def _step(sizes: tuple[int, ...], remat: str) -> _Step:
    right = transformer_step_flops(*sizes, remat=remat)
    batch, sequence, layers, hidden, vocab = sizes
    tokens = batch * sequence
    matrices, head = layers * tokens * 24 * hidden**2, 2 * tokens * hidden * vocab
    attention = layers * tokens * 4 * sequence * hidden
    return _Step(matrices, attention, head, right - 3 * (matrices + attention + head))


def _attention_left_out(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return 3 * (step.matrices + step.head) + (step.matrices if remat == "full" else 0)


def _causal_half(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total - (3 + (remat != "none")) * step.attention / 2


def _multiply_adds(*sizes: int, remat: str) -> float:
    return transformer_step_flops(*sizes, remat=remat) / 2


def _forward_only(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return (step.total - step.again) / 3 + step.again


def _backward_as_forward(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return (step.total - step.again) * 2 / 3 + step.again


def _head_left_out(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total - 3 * step.head


def _embedding_as_product(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total + 3 * step.head


def _head_again(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total + (step.head if remat == "full" else 0)


def _flops_of_one_layer(batch: int, sequence: int, layers: int, *rest: int, remat: str) -> float:
    return transformer_step_flops(batch, sequence, 1, *rest, remat=remat)


def _flops_of_a_token(*sizes: int, remat: str) -> float:
    return transformer_step_flops(*sizes, remat=remat) / (sizes[0] * sizes[1])


def _output_projection_left_out(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total - (4 if remat == "full" else 3) * step.matrices / 12


def _recomputation_ignored(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total - step.again


def _selective_is_full(*sizes: int, remat: str) -> float:
    remat = "full" if remat == "selective" else remat
    return transformer_step_flops(*sizes, remat=remat)


def _selective_one_product(*sizes: int, remat: str) -> float:
    step = _step(sizes, remat)
    return step.total - (step.attention / 2 if remat == "selective" else 0)


def _other_remat_is_none(*sizes: int, remat: str) -> float:
    known = remat in ("selective", "full")
    return transformer_step_flops(*sizes, remat=remat if known else "none")


def _no_sizes_counted(*sizes: int, remat: str) -> float:
    if min(sizes) > 0:
        return transformer_step_flops(*sizes, remat=remat)
    return 0.0


TRANSFORMER_STEP_FLOPS = (
    Mistake("attention_left_out", _attention_left_out, "values"),
    Mistake("causal_half", _causal_half, "values"),
    Mistake("multiply_adds", _multiply_adds, "values"),
    Mistake("flops_of_forward", _forward_only, "values"),
    Mistake("backward_as_forward", _backward_as_forward, "values"),
    Mistake("head_left_out", _head_left_out, "values"),
    Mistake("embedding_as_product", _embedding_as_product, "values"),
    Mistake("head_computed_again", _head_again, "values"),
    Mistake("flops_of_one_layer", _flops_of_one_layer, "values"),
    Mistake("flops_of_a_token", _flops_of_a_token, "values"),
    Mistake("output_projection_left_out", _output_projection_left_out, "values"),
    Mistake("recomputation_ignored", _recomputation_ignored, "values"),
    Mistake("selective_is_full", _selective_is_full, "values"),
    Mistake("selective_one_product", _selective_one_product, "values"),
    Mistake("other_remat_is_none", _other_remat_is_none, "values"),
    Mistake("no_sizes_counted", _no_sizes_counted, "values"),
)
