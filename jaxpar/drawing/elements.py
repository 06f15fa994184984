"""What the pictures share: colours, letters, round numbers, and the elements of an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from html import escape

LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Okabe and Ito's palette for every kind of colour vision, with grey in place of black.
COLOURS = (
    "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#999999",
)  # fmt: skip
INK, GREY = "#222222", "#666666"
FONT_SIZE = 13
CHARACTER = 8
"""How wide a character of an SVG text is at most, in pixels."""
HEADING = {"font_size": 18, "font_weight": "bold"}

# Bars of rising height in one line of text; even the highest leaves a gap to the line above.
HEIGHTS = " \u2581\u2582\u2583\u2584\u2585\u2586\u2587"
# What replaces these bars, boxes and arrows in a terminal that has only ASCII.
ASCII = str.maketrans(
    HEIGHTS + "\u250c\u2510\u2514\u2518\u2500\u2502\u2524\u252c\u25cf\u25c0\u25b6",
    " .:-=+*#" + "++++-|++o<>",
)


def printable(text: str, encoding: str) -> str:
    """The text, with ASCII in place of bars, boxes and arrows where the encoding has none."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return text.translate(ASCII)
    return text


def letter(number: int) -> str:
    """The letter that stands for the device, the term or the curve of this number."""
    return LETTERS[number % len(LETTERS)]


def colour(number: int) -> str:
    """The colour of the device or the term of this number."""
    return COLOURS[number % len(COLOURS)]


def round_numbers(low: float, high: float, least_step: float) -> Iterator[float]:
    """The multiples of 1, 2 or 5 times a power of ten between `low` and `high`.

    They are at least `least_step` apart.
    """
    power = 10.0 ** math.floor(math.log10(least_step))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= least_step)
    for number in range(math.ceil(low / step), math.floor(high / step) + 1):
        yield number * step


def titled(title: str) -> list[str]:
    """The title of a text picture, underlined, and a blank line."""
    return [title, "=" * len(title), ""]


def element(tag: str, *content: str, **attributes: object) -> str:
    """An SVG element; an underscore in the name of an attribute stands for a hyphen."""
    written = "".join(
        f' {name.replace("_", "-")}="{escape(_shown(value))}"' for name, value in attributes.items()
    )
    inner = "".join(content)
    return f"<{tag}{written}>{inner}</{tag}>" if inner else f"<{tag}{written}/>"


def text(x: float, y: float, words: str, **attributes: object) -> str:
    """Words in an SVG file; `y` is their base line."""
    return element("text", escape(words), x=x, y=y, **attributes)


def box(
    x: float, y: float, width: float, height: float, *content: str, **attributes: object
) -> str:
    """A rectangle in an SVG file."""
    return element("rect", *content, x=x, y=y, width=width, height=height, **attributes)


def part(number: int, x: float, y: float, width: float, height: float, *content: str) -> str:
    """A rectangle in the colour of the term or the kind of this number, in an SVG file."""
    style = {"fill": colour(number), "fill_opacity": 0.55, "stroke": INK, "stroke_width": 0.8}
    return box(x, y, width, height, *content, **style)


def document(width: float, height: float, parts: Iterable[str]) -> str:
    """An SVG file of these elements; it loads nothing."""
    width, height = round(width), round(height)
    body = "\n".join([element("rect", width="100%", height="100%", fill="#FFFFFF"), *parts])
    return element(
        "svg",
        f"\n{body}\n",
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        font_family="Helvetica, Arial, sans-serif",
        font_size=FONT_SIZE,
    )


def _shown(value: object) -> str:
    return f"{round(value, 2):g}" if isinstance(value, float) else str(value)
