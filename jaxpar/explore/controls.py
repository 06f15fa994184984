"""The fields of a form: what a page needs to make controls of them, and how they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Control = dict[str, Any]


def number(
    name: str,
    label: str,
    default: float,
    least: float,
    most: float,
    help: str,
    *,
    whole: bool = True,
) -> Control:
    """A field for a number between two others."""
    bounds = {"minimum": least, "maximum": most, "step": "1" if whole else "any"}
    return _control(name, label, "number", default, help) | bounds


def choice(
    name: str, label: str, default: str, choices: Iterable[str | tuple[str, str]], help: str
) -> Control:
    """A field for one of a few texts, each by itself or with words that stand for it."""
    pairs = [[each, each] if isinstance(each, str) else list(each) for each in choices]
    return _control(name, label, "choice", default, help) | {"choices": pairs}


def text(name: str, label: str, default: str, help: str) -> Control:
    """A field for any text."""
    return _control(name, label, "text", default, help)


def flag(name: str, label: str, default: bool, help: str) -> Control:
    """A field for yes or no."""
    return _control(name, label, "flag", default, help)


def defaults(controls: Sequence[Control]) -> dict[str, Any]:
    """The form in which every field has its default."""
    return {control["name"]: control["default"] for control in controls}


def read(where: str, controls: Sequence[Control], form: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all fields, where what is missing has its default.

    Args:
        where: What an error begins with.
        controls: The fields.
        form: Values by the names of fields; a number may be a text.

    Raises:
        ValueError: A value is not allowed, or there is no such field.
    """
    known = defaults(controls)
    for name in form:
        if name not in known:
            raise ValueError(f"{where}: there is no field {name!r}; use one of {', '.join(known)}")
    return {
        control["name"]: _value(where, control, form.get(control["name"], control["default"]))
        for control in controls
    }


def _control(name: str, label: str, kind: str, default: Any, help: str) -> Control:
    more = {"choices": None, "minimum": None, "maximum": None, "step": None}
    known = {"name": name, "label": label, "kind": kind, "default": default, "help": help}
    return known | more


def _value(where: str, control: Control, value: Any) -> Any:
    match control["kind"]:
        case "number":
            return _number(where, control, value)
        case "text":
            return str(value)
        case "flag":
            allowed = [False, True]
        case _:
            value, allowed = str(value), [pair[0] for pair in control["choices"]]
    if value not in allowed:
        words = ", ".join(repr(one) if one == "" else str(one) for one in allowed)
        raise ValueError(f"{where}: {control['label']} is {value!r}; use one of {words}")
    return value


def _number(where: str, control: Control, value: Any) -> int | float:
    """The number in a value, an integer if it has no fraction."""
    least, most, whole = control["minimum"], control["maximum"], control["step"] == "1"
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not least <= found <= most or (whole and not found.is_integer()):
        kind, shown = "whole number" if whole else "number", str(value).strip() or "empty"
        raise ValueError(
            f"{where}: {control['label']} is {shown}; use a {kind} from {least:,} to {most:,}"
        )
    return int(found) if found.is_integer() else found
