"""A claim: a passage of a lesson, and the formula or the source of its numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass

NUMBER = r"\d[\d,]*(?:\.\d+)?"


@dataclass(frozen=True)
class Claim:
    """A passage of a lesson whose numbers have a formula or a source.

    Attributes:
        text: the passage, word by word.
        computed: pairs of a number in it, as printed, and what the formula gives.
        source: where its other numbers are published.
        asserted: its numbers that an assert of the lesson holds.
    """

    text: str
    computed: tuple[tuple[str, float], ...] = ()
    source: str = ""
    asserted: tuple[str, ...] = ()

    def wrong(self) -> list[str]:
        """Says which numbers are not those of their formulas."""
        return [
            f"{printed} is {value:,.6g}"
            for printed, value in self.computed
            if not is_rounded(printed, value)
        ]


def computed(text: str, *values: float, source: str = "") -> Claim:
    """A claim whose numbers in braces are computed, one value for each.

    `computed("it takes {2.5} ms, {40%} of the step", 1e3 * seconds, 100 * part)`
    """
    printed = _in_braces(text)
    if len(printed) != len(values):
        raise ValueError(f"{len(printed)} numbers in braces and {len(values)} values: {text}")
    return Claim(_without_braces(text), tuple(zip(printed, values, strict=True)), source)


def published(text: str, source: str) -> Claim:
    """A claim whose numbers are published in the source, or follow from its sentence."""
    return Claim(text, source=source)


def asserted(text: str) -> Claim:
    """A claim whose numbers in braces stand in an assert of the lesson itself."""
    return Claim(_without_braces(text), asserted=tuple(_in_braces(text)))


def is_rounded(printed: str, value: float) -> bool:
    """Whether a number is printed as the value rounds to its digits.

    Zeros at the end of an integer are digits only as far as there are no two others: 4,000 may
    stand for 3,960, and 1,923 for 1,923 only.
    """
    number = printed.replace(",", "")
    if "." in number:
        step = 10.0 ** -len(number.partition(".")[2])
    else:
        step = 10.0 ** min(len(number) - len(number.rstrip("0")), max(0, len(number) - 2))
    return abs(float(number) - value) <= step / 2 * (1 + 1e-9)


def _in_braces(text: str) -> list[str]:
    return [re.findall(NUMBER, part)[0] for part in re.findall(r"\{(.*?)\}", text)]


def _without_braces(text: str) -> str:
    return text.replace("{", "").replace("}", "")
