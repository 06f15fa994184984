"""Which parameters a run trains: the adapters, if there are any, and otherwise all.

The others, the base, have no gradients, no optimizer state, and no weights in float32.
"""

import re
from typing import Any

from jaxpar.model.leaf_names import ADAPTER


def parse_adapter(text: str) -> int:
    """The rank in an adapter's name, "lora:16".

    Raises:
        ValueError: it is not of this form.
    """
    found = re.fullmatch(r"lora:([1-9]\d{0,4})", text)
    if not found:
        raise ValueError(f"train: --adapter is {text!r}; use lora and a rank, such as lora:16")
    return int(found[1])


def trained(params: Any) -> Any:
    """The part that is trained of parameters, or of what there is for each of them."""
    return _adapters(params) or params


def replaced(params: Any, new: Any) -> Any:
    """The parameters with these in place of those of the same names."""
    if not (isinstance(params, dict) and isinstance(new, dict)):
        return new
    return params | {name: replaced(params[name], part) for name, part in new.items()}


def _adapters(params: Any) -> dict[str, Any]:
    """The adapters in nested dicts, under the same names; empty if there are none."""
    if not isinstance(params, dict):
        return {}
    found = {
        name: part if name.endswith(ADAPTER) else _adapters(part) for name, part in params.items()
    }
    return {name: part for name, part in found.items() if part}
