"""Strings of strangers, as each format may hold them: names, file names, errors, printed text.

All begin with `record.clean`: printable, encodable, no escape sequences, no turned direction.
"""

from __future__ import annotations

import html
import re

from jaxpar.classroom.records import clean

MOST_LINE = 200
MOST_TEXT = 2000
# A runner of GitHub's obeys a line that begins with ::, and one that holds ##[ or ##vso[.
_COMMAND = re.compile(r"^(\s*:)(?=:)", re.MULTILINE)
_OLD_COMMAND = re.compile(r"#(?=#\w*\[)")
# A spreadsheet computes a cell that begins so, also in the wide forms of East Asia. It may part
# the line elsewhere than we did: at another separator.
_FORMULA = re.compile(r'(^|[;,\t])(?=[\s"]*[=+\-@|\uff0b\uff0d\uff1d\uff20])')


def text(value: str, most: int = MOST_TEXT) -> str:
    """Lines that no terminal and no log obeys."""
    return _OLD_COMMAND.sub("# ", _COMMAND.sub(r"\1 ", clean(value, most)))


def line(value: str, most: int = MOST_LINE) -> str:
    """The same on one line."""
    return text(" ".join(value[: 4 * most].split()), most)


def cell(value: str) -> str:
    """One cell of a CSV file, never a formula."""
    return _FORMULA.sub(r"\1'", line(value))


def markup(value: str, most: int = MOST_TEXT) -> str:
    """Text between tags, or in an attribute with quotes, of HTML or XML."""
    return html.escape(text(value, most))
