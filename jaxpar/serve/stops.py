"""Strings that end a text while it comes. No JAX."""

from collections.abc import Sequence


class Stops:
    """Ends a text before the first of some strings, which come in pieces.

    That is the string whose end comes first, so the result does not depend on where pieces end.

    Attributes:
        found: whether one has come.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops, self._held, self.found = stops, "", False

    def feed(self, piece: str) -> str:
        """What is certainly part of the text: all but what may be the beginning of a string."""
        text = self._held + piece
        starts = [(text.find(stop), stop) for stop in self._stops]
        ends = [(start + len(stop), start) for start, stop in starts if start >= 0]
        if ends:
            self.found, self._held = True, ""
            return text[: min(ends)[1]]
        kept = len(text) - max((_begun(text, stop) for stop in self._stops), default=0)
        self._held = text[kept:]
        return text[:kept]

    def end(self) -> str:
        """What was held back, as no string came of it."""
        held, self._held = self._held, ""
        return held


def _begun(text: str, stop: str) -> int:
    """How many of the last characters of a text are the first of a string."""
    most = min(len(stop) - 1, len(text))
    return next((n for n in range(most, 0, -1) if text.endswith(stop[:n])), 0)
