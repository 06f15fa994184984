"""An HTTP response that begins with its first part: whole, a stream of events, or an error."""

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from starlette.types import Send

from jaxpar.serve.protocol import ApiError, event

JSON = "application/json"
SECONDS_TO_SAY_WHY = 1.0


class Answer:
    """One response."""

    def __init__(self, send: Send) -> None:
        self._send, self._begun, self._ended = send, False, False

    async def whole(
        self, data: Any, status: int = 200, headers: Sequence[tuple[str, str]] = ()
    ) -> None:
        """Sends all at once."""
        await self._begin(status, JSON, headers)
        await self._finish(json.dumps(data).encode())

    async def part(self, data: Any) -> None:
        """Sends an event of a stream; waits while the client does not read."""
        if not self._begun:
            await self._begin(200, "text/event-stream", [("cache-control", "no-cache")])
        await self._send({"type": "http.response.body", "body": event(data), "more_body": True})

    async def end(self, data: Any) -> None:
        """Sends the last event of a stream."""
        await self._finish(event(data))

    async def fail(self, error: ApiError) -> None:
        """Sends an error: as a response, or as the last event of a stream.

        If the client does not read it, the server closes the connection.
        """
        if self._ended:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(SECONDS_TO_SAY_WHY):
                if self._begun:
                    await self.end(error.body)
                else:
                    await self.whole(error.body, error.status, headers_of(error))

    async def _finish(self, body: bytes) -> None:
        self._ended = True
        await self._send({"type": "http.response.body", "body": body})

    async def _begin(self, status: int, kind: str, headers: Sequence[tuple[str, str]]) -> None:
        self._begun = True
        pairs = [("content-type", kind), *headers]
        encoded = [(name.encode(), value.encode()) for name, value in pairs]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})


def headers_of(error: ApiError) -> list[tuple[str, str]]:
    """The headers that an error brings along."""
    return [("retry-after", str(error.retry_seconds))] if error.retry_seconds else []
