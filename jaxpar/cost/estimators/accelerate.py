"""Accelerate's estimators of a model that is loaded, or trained, on one device.

Source, as read in November 2026: huggingface/accelerate, src/accelerate/commands/estimate.py.
"""

from jaxpar.cost.architecture import Architecture
from jaxpar.cost.terms import Term, make_terms


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
    return make_terms(formulas, numbers)


def accelerate_loading(parameters: float, *, bits: int) -> list[Term]:
    """Accelerate's estimate-memory, column "Total Size"."""
    numbers = {"parameters": parameters, "bits": bits}
    return make_terms({"parameters": "parameters * bits / 8"}, numbers)


def without_head(architecture: Architecture) -> int:
    """Parameters of the model without its head."""
    heads = (part.count for part in architecture.outer_parts if part.name == "head")
    return architecture.parameters - sum(heads)
