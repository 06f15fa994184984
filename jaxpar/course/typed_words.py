"""Makes words such as `hint` and `next` from single keys and from typed lines.

`keyboard` delivers the keys and lines, and `session` acts on the words.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxpar.course.keyboard import ERASE

WORDS = ("hint", "list", "next", "values", "check", "reset", "solution", "quit")


@dataclass
class TypedWords:
    """What was typed and is not yet a word.

    Attributes:
        line: the characters of a line that has not ended.
    """

    line: str = ""
    _rest: str = ""  # the letters after the first one of the latest word

    def continues(self, text: str) -> bool:
        """Whether a key is only the next letter of a word that has acted already."""
        goes_on = bool(self._rest) and text.lower() == self._rest[0]
        self._rest = self._rest[1:] if goes_on else ""
        return goes_on

    def take(self, text: str, as_line: bool) -> str | None:
        """Returns the word that a key or a line makes, if any; if `as_line`, after Enter only."""
        text = text.lower()
        if as_line:
            return self._edit(text)
        named = next((word for word in WORDS if word[0] == text), "")
        self._rest = f"{named[1:]}\n" if named else ""
        return text.strip()

    def _edit(self, text: str) -> str | None:
        for letter in text:  # there are several if they arrived in one piece
            self.line = self.line[:-1] if letter in ERASE else self.line + letter
        if not self.line.endswith("\n"):
            return None
        line, self.line = self.line, ""
        return line.strip()
