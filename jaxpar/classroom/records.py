"""What is kept of a judgement: what a person reads, and nothing that differs from run to run."""

from __future__ import annotations

import re
from typing import Any

from jaxpar.grading.verdict import Verdict

MOST_TEXT = 2000
_FRACTION = re.compile(r"(?<![\w.,])-?\d[\d,]*(?:\.\d+(?:e[+-]?\d+)?|e[+-]?\d+)(?!\w|\.\d)")
_PATH = re.compile(r"(?<![\w)\]])(?:/[\w.@+-]+){2,}/?")
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")


def to_record(verdict: Verdict) -> dict[str, Any]:
    """The verdict as `jaxpar check --json` prints it, without time, seed and raw fractions."""
    data = verdict.to_dict() | {"seconds": 0, "seed": 0}
    return cleaned(data)


def clean(text: str, most: int = MOST_TEXT) -> str:
    """A text of a stranger's as one may show it anywhere: printable, encodable, not too long."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
    return shown if len(shown) <= most else shown[:most] + " ..."


def cleaned(value: Any) -> Any:
    """Plain data with clean texts, in which no raw fraction, path or address is left."""
    if isinstance(value, str):
        text = _ADDRESS.sub("0x...", _PATH.sub(_last_name, clean(value)))
        return _FRACTION.sub(_one_digit, text)
    if isinstance(value, dict):
        return {key: cleaned(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(part) for part in value]
    return value


def _one_digit(number: re.Match[str]) -> str:
    return f"{float(number.group().replace(',', '')):.0e}"


def _last_name(path: re.Match[str]) -> str:
    return path.group().rstrip("/").rpartition("/")[2]


def missing(exercise: str, max_score: int, message: str) -> dict[str, Any]:
    """The record of a file that is not there, or cannot be judged."""
    return to_record(Verdict(exercise, "not-submitted", 0, max_score, (), message, 0, 0))


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two records say the same of the answer."""
    return all(one.get(key) == other.get(key) for key in ("status", "score", "properties"))


def moved(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether the verdict on the same file is another one."""
    file = now.get("submission_hash")
    return file is not None and file == before.get("submission_hash") and not same(before, now)
