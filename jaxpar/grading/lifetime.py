"""Keeps a child process from outliving its parent, and from using up the machine.

The worker and the reader, which the judge starts, call these functions before anything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

PR_SET_PDEATHSIG = 1
CPU_GRACE_SECONDS = 2
RELAYED_BYTES = 1 << 16
LOOK_SECONDS = 0.1
OUT_OF_MEMORY = 79
"""The exit code of a process that has ended itself because of its memory."""


def begin_child() -> tuple[IO[bytes], IO[bytes]]:
    """Ties this process to its parent, and returns the pipes of requests and of replies.

    They are what was standard input and output. What is printed from now on goes to standard error,
    and what is read from standard input has come to its end: nobody is there to type.
    """
    source = os.dup(0) if sys.platform == "linux" else _end_with_pipe(os.dup(0))
    if sys.platform == "linux":
        _die_with_parent()
    requests, replies = os.fdopen(source, "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def _die_with_parent() -> None:
    """Lets Linux end this process as soon as the thread that started it ends.

    If that has ended before this call, the pipe from it has no writer any more.
    """
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    pipe = select.poll()
    pipe.register(0, 0)
    if any(event & select.POLLHUP for _, event in pipe.poll(0)):
        os._exit(1)


def _end_with_pipe(source: int) -> int:
    """Lets this process end when a pipe from its parent ends; returns where to read from instead.

    The number of the parent says nothing: on Windows, the Python of a virtual environment starts
    the real one as its child and waits for it.
    """
    out, into = os.pipe()

    def relay() -> None:
        while chunk := os.read(source, RELAYED_BYTES):
            while chunk:
                chunk = chunk[os.write(into, chunk) :]
        os._exit(1)

    threading.Thread(target=relay, name="parent", daemon=True).start()
    return out


@contextlib.contextmanager
def importing() -> Iterator[None]:
    """Switches garbage collection off while the block imports modules.

    It would take a sixth of the time and free nothing, since what is imported stays.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def limit_process(memory_bytes: int, cpu_seconds: int) -> None:
    """Bounds memory, processor time and core dumps, where the platform can."""
    if sys.platform != "linux":
        watch_memory(memory_bytes)
    if sys.platform == "win32":
        return
    import resource

    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_CPU: cpu_seconds}
    if sys.platform == "linux":
        limits[resource.RLIMIT_AS] = memory_bytes
    for which, value in limits.items():
        _, hard = resource.getrlimit(which)
        hard = sys.maxsize if hard == resource.RLIM_INFINITY else hard
        # At the first limit of time the kernel sends a signal, at the second it kills.
        later = value + CPU_GRACE_SECONDS if which == resource.RLIMIT_CPU else value
        resource.setrlimit(which, (min(value, hard), min(later, hard)))


def watch_memory(most_bytes: int) -> None:
    """Ends this process once its memory exceeds a limit, where the system has none to set."""
    import psutil

    process = psutil.Process()

    def watch() -> None:
        while process.memory_info().rss <= most_bytes:
            time.sleep(LOOK_SECONDS)
        os._exit(OUT_OF_MEMORY)

    threading.Thread(target=watch, name="memory", daemon=True).start()
