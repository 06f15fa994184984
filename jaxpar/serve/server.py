"""Runs a service on a port until it is asked to end: by SIGTERM, or by Ctrl-C."""

import asyncio
import logging
import signal
import socket
import sys
from types import FrameType

import uvicorn

from jaxpar.serve.http import Service

CONNECTIONS = 1000  # the most that are open at once; each may hold what its client does not read
SECONDS_TO_CLOSE = 5
# How long a thread of Python goes on while another waits: the event loop needs its turn many times
# for each token, and the threads of engines are always busy.
SWITCH_SECONDS = 5e-4
SIGNALS = (signal.SIGINT, signal.SIGTERM)


def listen(host: str, port: int) -> socket.socket:
    """A socket for a server; port 0 is any that is free.

    Raises:
        ValueError: the address cannot be had.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=CONNECTIONS)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ValueError(
            f"serve: --host {host} --port {port}: {reason}; use a port that is free, or 0 for any"
        ) from None


def run(service: Service, listener: socket.socket, *, grace_seconds: float) -> int:
    """Serves until a signal comes, and returns its number; 0 if there was none.

    Then no new request is taken. Those that were taken have `grace_seconds` to end; what is left
    is told that the server is shutting down. A second Ctrl-C does not wait.
    """
    config = uvicorn.Config(
        service.app,
        log_config=None,
        log_level=logging.ERROR,
        access_log=False,
        lifespan="on",
        ws="none",
        limit_concurrency=CONNECTIONS,
        timeout_graceful_shutdown=int(grace_seconds) + SECONDS_TO_CLOSE,
    )
    server = _Server(config, service, grace_seconds)
    # uvicorn raises the signals that it has taken again, once it has ended.
    before = {number: signal.signal(number, lambda *_: None) for number in SIGNALS}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        server.run([listener])
    finally:
        service.close()  # which a second Ctrl-C has left out
        sys.setswitchinterval(interval)
        for number, handler in before.items():
            signal.signal(number, handler)
    return server.asked


class _Server(uvicorn.Server):
    """A server that ends its service first.

    Attributes:
        asked: the first signal that asked it to end; 0: none has.
    """

    def __init__(self, config: uvicorn.Config, service: Service, grace_seconds: float) -> None:
        super().__init__(config)
        self._service, self._grace_seconds, self.asked = service, grace_seconds, 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Takes no more requests, and lets those that run end."""
        if not self.asked:
            self.asked = int(sig)
            self._service.take_no_more()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what runs after the time of grace."""
        loop = asyncio.get_running_loop()
        ends = loop.call_later(self._grace_seconds, self._service.end_all)
        try:
            await super().shutdown(sockets)
        finally:
            ends.cancel()
