"""Makes words such as `hint` and `next` from single keys and from typed lines.

`keyboard` delivers the keys and lines, and `session` acts on the words.
"""

from __future__ import annotations

from dataclasses import dataclass

WORDS = ("hint", "list", "next", "reset", "solution", "quit")
ERASE = ("\x7f", "\b")


@dataclass
class TypedWords:
    """What was typed and is not yet a word.

    Attributes:
        line: the characters of a line that has not ended.
    """

    line: str = ""
    _rest: str = ""  # the letters after the first one of the latest word

    def take(self, text: str, as_line: bool) -> str | None:
        """Returns the word that a key or a line makes, if any; if `as_line`, after Enter only."""
        text = text.lower()
        if as_line:
            return self._edit(text)
        if self._rest and text == self._rest[0]:
            self._rest = self._rest[1:]  # the learner types the word in full: this is no new key
            return None
        named = next((word for word in WORDS if word[0] == text), "")
        self._rest = f"{named[1:]}\n" if named else ""
        return text.strip()

    def _edit(self, text: str) -> str | None:
        for letter in text:  # there are several if they arrived in one piece
            self.line = self.line[:-1] if letter in ERASE else self.line + letter
        if not self.line.endswith("\n"):
            return None
        line, rest = self.line, self._rest
        self.line = self._rest = ""
        return None if line == rest else line.strip()
