"""What the explorers show, as plain data: a form goes in, a picture, numbers and tables come out.

Nothing here imports JAX, so the same code runs in a web page, in a notebook and in tests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any

from jaxpar.explore.controls import defaults as defaults

Form = Mapping[str, Any]


def _ask(name: str, form: Form) -> dict[str, Any]:
    return import_module(f"{__name__}.{name}").answer(form)


# A page that asks for one form imports no other.
FORMS: Mapping[str, Callable[[Form], dict[str, Any]]] = {
    name: partial(_ask, name)
    for name in ("schedule", "memory", "layout", "collectives", "verdict", "progress")
}
"""The forms by name: each takes the fields of a form, and raises ValueError if one is bad."""


def answer(name: str, form: Form) -> dict[str, Any]:
    """The answer to a form, as values that JSON can hold; what is wrong with it is its "error"."""
    if name not in FORMS:
        return {"error": f"answer: there is no form {name!r}; use one of {', '.join(FORMS)}"}
    try:
        return FORMS[name](form)
    except ValueError as error:
        return {"error": str(error)}
