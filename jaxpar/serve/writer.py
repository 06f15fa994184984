"""One text after a prompt, as it is written."""

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from jax.sharding import Mesh

from jaxpar.serve.engine import Engine, Request, Sampling, Sizes
from jaxpar.serve.speculate import Speculation
from jaxpar.serve.trained import TrainedModel

CHUNK, PAGE_SIZE = 128, 32
MOST_CONTEXT = 1 << 16


class Writer:
    """Goes on with a prompt; `parts` yields the text while it grows.

    Attributes:
        notes: what a user should know.

    Raises:
        ValueError: the prompt has no tokens or too many, or the options do not fit the model.
    """

    def __init__(
        self,
        where: str,
        model: TrainedModel,
        prompt: str,
        tokens: int,
        sampling: Sampling,
        *,
        mesh: Mesh | None = None,
        cache: str = "model",
        speculation: Speculation | None = None,
    ) -> None:
        alphabet, trained = model.alphabet, model.settings.sequence
        self._prompt, self._text = prompt, ""
        self._read = tuple(alphabet.encode(prompt))
        context = len(self._read) + tokens
        if not self._read or context > MOST_CONTEXT:
            raise ValueError(
                f"{where}: a prompt of {len(self._read)} tokens, and {tokens} to write; there is "
                f"at least one of each, and at most {MOST_CONTEXT} in all"
            )
        self.notes = list(model.notes)
        if context > trained:
            self.notes.append(
                f"the model was trained on {trained} tokens at once, and this text may have "
                f"{context}: it has never seen tokens so far apart"
            )
        chunk = min(CHUNK, len(self._read))
        sizes = Sizes(slots=1, context=context, chunk=chunk, page_size=PAGE_SIZE)
        self._engine = Engine(
            model.settings, model.params, sizes, mesh=mesh, cache=cache, speculation=speculation
        )
        self._stream = alphabet.stream(self._read)
        self._engine.submit(Request("text", self._read, tokens, sampling, alphabet.stop))
        self._written: list[int] = []
        self._ended: str | None = None
        self._seconds = 0.0

    def parts(self) -> Iterator[str]:
        """The text after the prompt, a part for each step; a character is never cut."""
        while self._engine.busy:
            start = time.perf_counter()
            (*_, event) = self._engine.step() or (None,)
            self._seconds += time.perf_counter() - start
            if event:
                self._written += event.tokens
                self._ended = event.ended
                yield self._told(self._stream.feed(event.tokens))
        yield self._told(self._stream.close())

    @property
    def tokens_per_second(self) -> float:
        """Tokens that were written, in a second of all steps."""
        return len(self._written) / self._seconds if self._seconds else 0.0

    def results(self) -> dict[str, Any]:
        """The text so far and how it came, as data for JSON."""
        return {
            "prompt": self._prompt,
            "text": self._text,
            "prompt_tokens": len(self._read),
            "tokens": self._written,
            "ended": self._ended,
            "tokens_per_second": self.tokens_per_second,
            "stats": asdict(self._engine.stats),
            "notes": self.notes,
        }

    def summary(self) -> str:
        """How much was written and how fast, in a line."""
        stats = self._engine.stats
        guessed = f", {stats.accepted} of {stats.drafted} guesses right" if stats.drafted else ""
        return f"{len(self._written)} tokens, {self.tokens_per_second:,.0f} in a second{guessed}"

    def _told(self, part: str) -> str:
        self._text += part
        return part
