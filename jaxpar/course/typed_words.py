"""Makes words of keys and typed lines."""

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
    _rest: str = ""  # what a word whose first letter was enough still lacks

    def take(self, text: str, as_line: bool) -> str | None:
        """The word that a key or a line makes, if it makes one; `as_line` waits for Enter."""
        text = text.lower()
        if as_line:
            return self._edit(text)
        if self._rest and text == self._rest[0]:
            self._rest = self._rest[1:]  # a word that is typed out: no new key
            return None
        named = next((word for word in WORDS if word[0] == text), "")
        self._rest = f"{named[1:]}\n" if named else ""
        return text.strip()

    def _edit(self, text: str) -> str | None:
        for letter in text:  # several, where they came in one piece
            self.line = self.line[:-1] if letter in ERASE else self.line + letter
        if not self.line.endswith("\n"):
            return None
        line, rest = self.line, self._rest
        self.line = self._rest = ""
        return None if line == rest else line.strip()
