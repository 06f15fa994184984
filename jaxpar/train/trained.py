"""Which parameters a run trains: the adapters, if there are any, and otherwise all.

The others, the base, have no gradients, no optimizer state, and no weights in float32.
"""

from typing import Any

from jaxpar.model.leaf_names import ADAPTER


def trained(params: Any) -> Any:
    """The part that is trained of parameters, or of what there is for each of them."""
    return _adapters(params) or params


def frozen(params: Any) -> Any:
    """The other part of the parameters; empty if all are trained."""
    return _without_adapters(params) if _adapters(params) else {}


def replaced(params: Any, new: Any) -> Any:
    """The parameters with these in place of those of the same names, or beside them."""
    if not (isinstance(params, dict) and isinstance(new, dict)):
        return new
    return params | {name: replaced(params.get(name), part) for name, part in new.items()}


def _adapters(params: Any) -> dict[str, Any]:
    """The adapters in nested dicts, under the same names; empty if there are none."""
    if not isinstance(params, dict):
        return {}
    found = {
        name: part if name.endswith(ADAPTER) else _adapters(part) for name, part in params.items()
    }
    return {name: part for name, part in found.items() if part}


def _without_adapters(params: Any) -> Any:
    if not isinstance(params, dict):
        return params
    return {
        name: _without_adapters(part) for name, part in params.items() if not name.endswith(ADAPTER)
    }
