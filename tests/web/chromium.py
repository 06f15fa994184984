"""The browser that tests drive, the Chromium of the system, and a server of files for it."""

import functools
import http.server
import importlib.util
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
NEEDS_CHROMIUM = pytest.mark.skipif(
    CHROMIUM is None or not importlib.util.find_spec("playwright"),
    reason="there is no Chromium, or no playwright: apt install chromium, pip install playwright",
)
START = 60_000
"""Milliseconds for Python to start in a page, on a busy machine."""
NODE_MODULES = Path(__file__).parents[2] / "web" / "node_modules"

TYPES = {
    "": "application/octet-stream",
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
}


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serves the files of a folder on this machine alone, and yields the address."""
    handler = functools.partial(_Files, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


class _Files(http.server.SimpleHTTPRequestHandler):
    """Serves files without a log, and with the types that modules must have."""

    extensions_map = TYPES

    def log_message(self, *_: Any) -> None:
        pass
