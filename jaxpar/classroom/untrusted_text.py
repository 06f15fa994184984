"""Strings of strangers (names, file names, errors, printed text), made safe to show.

Every writer of reports passes the strings of a record through this file. Every function here
returns text that can be printed and encoded, without escape sequences and without characters that
reverse the direction of writing.
"""

from __future__ import annotations

import re

MOST_LINE = 200
MOST_TEXT = 2000
# GitHub's runner obeys a line that begins with ::, and one that holds ##[ or ##vso[.
_COMMAND = re.compile(r"^(\s*:)(?=:)", re.MULTILINE)
_OLD_COMMAND = re.compile(r"#(?=#\w*\[)")
# A spreadsheet computes a cell that begins with one of these, also in the wide forms of East
# Asia. It may split the line at another separator than the one that we wrote.
_FORMULA = re.compile(r'(^|[;,\t])(?=[\s"]*[=+\-@|\uff0b\uff0d\uff1d\uff20])')


def printable(text: str, most: int = MOST_TEXT) -> str:
    """Returns the text with `?` for what cannot be printed, and cut after `most` characters."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
    return shown if len(shown) <= most else shown[:most] + " ..."


def safe_text(text: str, most: int = MOST_TEXT) -> str:
    """Returns lines that neither a terminal nor the log of a build obeys."""
    return _OLD_COMMAND.sub("# ", _COMMAND.sub(r"\1 ", printable(text, most)))


def safe_line(text: str, most: int = MOST_LINE) -> str:
    """Returns the same on a single line."""
    return safe_text(" ".join(text[: 4 * most].split()), most)


def csv_cell(text: str) -> str:
    """Returns the text of a CSV cell that no spreadsheet takes for a formula."""
    return _FORMULA.sub(r"\1'", safe_line(text))
