"""Child processes of the judge: started ahead, bounded, and never left behind.

The judge runs one worker and one reader for each answer. They are the only processes that touch
what a stranger has written, so that limits, a clock and this file decide when they end.
"""

from __future__ import annotations

import contextlib
import math
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from jaxpar.grading.channel import (
    END_OF_OUTPUT,
    MAX_BLOB_BYTES,
    MAX_JSON_BYTES,
    MAX_MODULE_BYTES,
    ProtocolError,
    printable,
    receive,
    send_blob,
    send_json,
)
from jaxpar.grading.deadline import PAUSE_SECONDS, Deadline, processor_seconds
from jaxpar.grading.lifetime import OUT_OF_MEMORY
from jaxpar.grading.verdict import Cause

if TYPE_CHECKING:
    from jaxpar.contracts.base import Kind

WORKER = "jaxpar.grading.worker"
READER = "jaxpar.grading.reader"
CHILDREN: dict[Kind, tuple[str, str]] = {
    "program": (WORKER, READER),
    "specs": (WORKER, READER),
    "value": (WORKER, WORKER),
    "schedule": (WORKER, WORKER),
}
"""What a judgement takes; plain data is asked for in two processes."""
KEPT_OUTPUT_BYTES = 4096
LATE_OUTPUT_SECONDS = 1.0
OUT_OF_CPU = "processor time"
SEND_SECONDS = 60
XCPU = 24  # the signal to a process that has used up its processor time
ENVIRONMENT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "TEMP", "TMP", "SYSTEMROOT",
               "LD_LIBRARY_PATH", "VIRTUAL_ENV", "USERPROFILE", "APPDATA", "SYSTEMDRIVE", "PATHEXT",
               "PYTHONUTF8")  # fmt: skip
# Ctrl-C in the terminal does not reach a child.
OWN_GROUP: dict[str, Any]
if sys.platform == "win32":
    OWN_GROUP = {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
else:
    OWN_GROUP = {"start_new_session": True}


@dataclass(frozen=True)
class Limits:
    """Bounds on one judgement.

    Attributes:
        wall_seconds: the time for exporting the answer. Reading and running its programs may take
            a third of it, and all of it in a second attempt.
        memory_bytes: address space of a child.
        cpu_seconds: processor time of a child; the default is so much that the wall clock usually
            ends a child first.
    """

    wall_seconds: float = 30.0
    memory_bytes: int = 8 << 30
    cpu_seconds: int = 130

    def job(self) -> dict[str, int]:
        """Returns the limits that a child sets for itself, as fields of its job."""
        return {"memory_bytes": self.memory_bytes, "cpu_seconds": self.cpu_seconds}


Start = Callable[[str], "subprocess.Popen[bytes]"]
"""Starts a module as a process with pipes for its standard streams."""


class Store(Protocol):
    """Where evidence is kept, by the job that it answers."""

    def get(self, job: dict[str, Any]) -> Any:
        """What was kept for this job, or None."""

    def put(self, job: dict[str, Any], evidence: Any) -> None:
        """Keeps the evidence for this job; raises OSError if it cannot be written."""


class ChildPool(Protocol):
    """What provides the judge with workers and readers: processes, or stand-ins within this one.

    Attributes:
        limits: bounds on one judgement.
        store: keeps evidence for later judgements; None if none is kept.
        cancelled: whether the running judgement was cancelled.
    """

    limits: Limits
    store: Store | None
    cancelled: bool

    def begin(self) -> None:
        """Prepares for a new judgement."""

    def take(self, module: str) -> Any:
        """Returns a fresh child, which has the methods of `Child`."""

    def end(self, child: Any) -> None:
        """Ends a child that was taken."""


class Cancelled(Exception):
    """The judgement was cancelled from another thread."""


class ChildEnded(Exception):
    """The child died, broke the protocol, or did not answer in time."""

    def __init__(self, cause: Cause, detail: str = "") -> None:
        super().__init__(detail or cause)
        self.cause: Cause = cause


def start_plainly(module: str) -> subprocess.Popen[bytes]:
    """Starts `python -m module` with few environment variables, and without a sandbox."""
    environment = {k: v for k, v in os.environ.items() if k in ENVIRONMENT}
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    return subprocess.Popen[bytes](
        [sys.executable, "-P", "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        **OWN_GROUP,
    )


class Child:
    """A child process, with which frames are exchanged; up to 4 kB of what it prints are kept."""

    def __init__(self, module: str, start: Start) -> None:
        """Starts a module by calling `start`, and two threads that read from it."""
        self.module = module
        self._process = start(module)
        self._max_blob_bytes = MAX_BLOB_BYTES if module == READER else MAX_MODULE_BYTES
        self._json_bytes_left = MAX_JSON_BYTES if module == WORKER else math.inf
        self._frames: queue.Queue[Any] = queue.Queue(maxsize=64)
        self._printed: deque[bytes] = deque()
        self._over, self._ending = False, threading.Lock()
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._stdin = self._process.stdin
        for target, pipe in (
            (self._read_frames, self._process.stdout),
            (self._read_output, self._process.stderr),
        ):
            threading.Thread(target=target, args=(pipe,), daemon=True).start()

    def send(self, value: dict, blobs: list[bytes] | None = None) -> None:
        """Sends a JSON frame, then blobs; kills a child that does not read them in time."""
        patience = threading.Timer(SEND_SECONDS, self._process.kill)
        patience.start()
        try:
            send_json(self._stdin, value)
            for blob in blobs or []:
                send_blob(self._stdin, blob)
        except OSError:
            raise ChildEnded("killed", self.printed()) from None
        finally:
            patience.cancel()

    def receive(self, deadline: Deadline) -> Any:
        """The next frame.

        Raises:
            ChildEnded: it died, broke the protocol, or did not answer in time.
        """
        frame = self._next_frame(deadline)
        if isinstance(frame, ProtocolError):
            raise ChildEnded("protocol", str(frame))
        if frame is None:
            raise self._death()
        return frame

    def _next_frame(self, deadline: Deadline) -> Any:
        wait, before = deadline.seconds_left(), None
        while True:
            with contextlib.suppress(queue.Empty):
                return self._frames.get(timeout=wait)
            used = processor_seconds(self._process.pid)
            if not deadline.may_go_on(before, used):
                raise ChildEnded("timeout")
            wait, before = PAUSE_SECONDS, used

    def _death(self) -> ChildEnded:
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(timeout=1)
            if code in (-XCPU, 128 + XCPU):  # a shell adds 128
                return ChildEnded("timeout", OUT_OF_CPU)
            if code == OUT_OF_MEMORY:
                return ChildEnded("memory", self.printed())
        return ChildEnded("killed", self.printed())

    def printed(self) -> str:
        """Returns what the child has printed, up to its mark `END_OF_OUTPUT` if there is one."""
        return printable(self._output().partition(END_OF_OUTPUT)[0].decode(errors="replace"))

    def printed_to_its_end(self) -> str:
        """Waits for the mark `END_OF_OUTPUT`, then returns what the child printed before it.

        This is for a child that goes on running. If no mark arrives, the wait ends after a while.
        """
        deadline = time.monotonic() + LATE_OUTPUT_SECONDS
        while time.monotonic() < deadline:
            output = self._output()
            if END_OF_OUTPUT in output or len(output) >= KEPT_OUTPUT_BYTES:
                break
            time.sleep(0.001)
        return self.printed()

    def _output(self) -> bytes:
        return b"".join(list(self._printed))

    def kill(self) -> None:
        """Ends the child and everything in its session, once: its number may be another's later."""
        with self._ending:
            if self._over:
                return
            self._over = True  # a child may have left more frames than the queue can hold
            with contextlib.suppress(ProcessLookupError, PermissionError):
                if sys.platform == "win32":
                    self._process.kill()
                else:
                    os.killpg(self._process.pid, 9)
            self._process.wait()
        with contextlib.suppress(queue.Empty):  # lets a blocked reading thread end
            while True:
                self._frames.get_nowait()
        self._frames.put(None)
        with contextlib.suppress(OSError):
            self._stdin.close()

    @property
    def alive(self) -> bool:
        """Whether it is still running."""
        return self._process.poll() is None

    def _read_frames(self, pipe: IO[bytes]) -> None:
        with pipe:
            try:
                limits = self._max_blob_bytes, self._spend
                while (frame := receive(pipe, *limits)) is not None and not self._over:
                    self._frames.put(frame)
            except (ProtocolError, OSError) as error:
                self._frames.put(ProtocolError(str(error)))
            self._frames.put(None)

    def _spend(self, length: int) -> None:
        """Bounds the JSON of a worker in all, since parsed JSON takes twenty times its length."""
        self._json_bytes_left -= length
        if self._json_bytes_left < 0:
            raise ProtocolError(f"more than {MAX_JSON_BYTES} bytes of JSON in all")

    def _read_output(self, pipe: IO[bytes]) -> None:
        kept = 0
        with pipe:
            while chunk := os.read(pipe.fileno(), 1 << 16):
                if kept < KEPT_OUTPUT_BYTES:
                    self._printed.append(chunk[: KEPT_OUTPUT_BYTES - kept])
                    kept += len(chunk)


@dataclass
class Pool:
    """Spare children, started ahead so that a judgement need not wait for imports.

    Children die with the thread that started them: use one long-lived thread for `warm` and
    `judge`. `cancel` may be called from any thread.
    """

    limits: Limits = field(default_factory=Limits)
    start: Start = start_plainly
    store: Store | None = None
    cancelled: bool = field(default=False, init=False)
    _spares: list[Child] = field(default_factory=list)
    _busy: set[Child] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __enter__(self) -> Pool:
        """Starts nothing; children start when they are needed."""
        return self

    def __exit__(self, *_: object) -> None:
        for child in (*self._spares, *self._busy):
            child.kill()

    def warm(self, kind: Kind = "program") -> None:
        """Starts the spares that are missing for judging an exercise of this kind."""
        self._spares = [child for child in self._spares if child.alive]
        missing = Counter(CHILDREN[kind]) - Counter(child.module for child in self._spares)
        self._spares += [Child(module, self.start) for module in missing.elements()]

    def take(self, module: str) -> Child:
        """Returns a fresh child: a spare one, or a new one."""
        spares = (child for child in self._spares if child.module == module and child.alive)
        child = next(spares, None)
        if child:
            self._spares.remove(child)
        else:
            child = Child(module, self.start)
        with self._lock:
            self._busy.add(child)
            if self.cancelled:
                child.kill()
        return child

    def end(self, child: Child) -> None:
        """Ends a child that was taken."""
        child.kill()
        with self._lock:
            self._busy.discard(child)

    def cancel(self) -> None:
        """Kills the children of the running judgement, which then raises `Cancelled`."""
        with self._lock:
            self.cancelled = True
            for child in self._busy:
                child.kill()

    def begin(self) -> None:
        """Prepares for a new judgement: an earlier cancellation no longer counts."""
        with self._lock:
            self.cancelled = False
