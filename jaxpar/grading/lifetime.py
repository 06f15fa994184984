"""Keeps a child process from outliving its parent, and from using up the machine.

The worker and the reader, which the judge starts, call these functions before anything else.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import IO

PR_SET_PDEATHSIG = 1
CPU_GRACE_SECONDS = 2


def begin_child() -> tuple[IO[bytes], IO[bytes]]:
    """Ties this process to its parent, and returns the pipes of requests and of replies.

    They are what was standard input and output. What is printed from now on goes to standard error,
    and what is read from standard input has come to its end: nobody is there to type.
    """
    die_with_parent()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return requests, replies


def die_with_parent() -> None:
    """Lets this process end when its parent ends.

    On Linux, the kernel ends it as soon as the thread that started it ends; elsewhere, this process
    looks once a second whether its parent is still there.
    """
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()
    if os.environ.get("JAXPAR_PARENT", str(parent)) != str(os.getppid()):
        os._exit(1)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


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
    """Bounds address space, processor time and core dumps, where the platform can."""
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
