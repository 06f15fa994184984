"""Several processes on this machine, as one command: they talk over loopback."""

import os
import queue
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO, NamedTuple

# The launcher sets these, and `jaxpar.train.cluster` reads them. JAX documents the first one.
ADDRESS, COUNT, RANK = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
FOLLOWS = "JAXPAR_FOLLOWS"
SCRATCH = "JAXPAR_SCRATCH"  # a folder for what need not outlive a run; the launcher removes it
SECONDS_TO_SUM_UP = 10
GLOO = re.compile(r"\[Gloo\] |is connected to \d+ peer ranks")
"""What the transport between processes prints whenever it connects: several threads at once."""
BAD_USE, HUNG, INTERRUPTED, TERMINATED = 2, 75, 130, 128 + signal.SIGTERM


class Ended(NamedTuple):
    """How a group of processes has ended: as the first of them that did not end well.

    Attributes:
        rank: the number of that process; 0 if all ended well.
        returned: its exit code, or minus the number of the signal that ended it.
        asked: whether SIGTERM had asked the group to end.
    """

    rank: int
    returned: int
    asked: bool = False

    @property
    def code(self) -> int:
        """The exit code, as a shell has it."""
        return 128 - self.returned if self.returned < 0 else self.returned

    @property
    def failed(self) -> bool:
        """Whether it neither ended well, nor because somebody wanted it to end."""
        return self.code not in (0, INTERRUPTED, TERMINATED)

    @property
    def may_recover(self) -> bool:
        """Whether another attempt may end well."""
        return self.failed and self.code != BAD_USE and not self.asked

    def __str__(self) -> str:
        how = f"signal {-self.returned}" if self.returned < 0 else f"exit code {self.returned}"
        why = ", since no step was completed in time" if self.returned == HUNG else ""
        return f"process {self.rank} ended with {how}{why}"


def launch(command: Sequence[str], *, processes: int, devices: int, as_json: bool = False) -> int:
    """Runs a command in a group of processes, says which has failed, and returns the exit code."""
    ended = run_group(command, processes=processes, devices=devices, as_json=as_json)
    if ended.failed:
        print(f"launch: {ended}; the others were ended too", file=sys.stderr)
    return ended.code


def run_group(
    command: Sequence[str],
    *,
    processes: int,
    devices: int,
    as_json: bool = False,
    extra: Mapping[str, str] | None = None,
) -> Ended:
    """Runs a command in processes that find each other.

    Each process simulates `devices` devices, and finds `extra` in its environment. Each line that
    it prints is prefixed with its rank, except for the JSON of process 0. When a process fails,
    all the others are ended. Ctrl-C ends them too, but gives process 0 time to sum up. SIGTERM is
    passed on to all, which have all the time that they need to end.
    """
    address = f"127.0.0.1:{_free_port()}"
    ended: queue.Queue[tuple[int, int]] = queue.Queue()
    children: list[subprocess.Popen[str]] = []
    watchers: list[threading.Thread] = []
    interrupted = threading.Event()
    scratch = f"jaxpar-launch-{os.getpid()}"
    environment = {ADDRESS: address, COUNT: str(processes), SCRATCH: scratch, **(extra or {})}
    try:
        for rank in range(processes):
            children.append(_start(command, environment | {RANK: str(rank)}, devices))
            bare = as_json and rank == 0
            watchers.append(
                threading.Thread(target=_watch, args=(rank, children[-1], ended, interrupted, bare))
            )
            watchers[-1].start()
        with _passed_on(signal.SIGTERM, children) as asked:
            for _ in children:
                rank, returned = ended.get()
                if returned in (TERMINATED, -signal.SIGTERM):
                    _wait(children)
                if returned:
                    return Ended(rank, returned, asked.is_set())
        return Ended(0, 0)
    except KeyboardInterrupt:
        interrupted.set()
        children[0].send_signal(signal.SIGINT)
        with suppress(KeyboardInterrupt):
            _wait(children[:1])
        return Ended(0, INTERRUPTED)
    finally:
        for child in children:
            child.kill()
            assert child.stdin
            child.stdin.close()
        for watcher in watchers:
            watcher.join()
        shutil.rmtree(scratch, ignore_errors=True)


@contextmanager
def _passed_on(number: int, children: Sequence[subprocess.Popen[str]]) -> Iterator[threading.Event]:
    """Sends a signal on to the children instead of ending by it; yields whether one has come."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        yield asked
        return

    def send(*_: object) -> None:
        asked.set()
        for child in children:
            child.send_signal(number)

    before = signal.signal(number, send)
    try:
        yield asked
    finally:
        signal.signal(number, before)


def _wait(children: Sequence[subprocess.Popen[str]]) -> None:
    """Gives children that are about to end some seconds to sum up."""
    with suppress(subprocess.TimeoutExpired):
        for child in children:
            child.wait(SECONDS_TO_SUM_UP)


def follow_launcher() -> None:
    """Makes this process end as soon as its launcher has ended, if a launcher started it."""
    if FOLLOWS in os.environ:
        threading.Thread(target=_end_with_standard_input, daemon=True).start()


def _end_with_standard_input() -> None:
    os.read(0, 1)  # the launcher writes nothing, so this returns only when the launcher has ended
    os._exit(1)


def _start(command: Sequence[str], place: Mapping[str, str], devices: int) -> subprocess.Popen[str]:
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {
        **os.environ,
        **place,
        FOLLOWS: "1",
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "XLA_FLAGS": re.sub(r"--xla_force_host_platform_device_count=\S*", "", flags),
        "PYTHONUNBUFFERED": "1",  # so that lines come when they are printed
    }
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        env=environment,
        start_new_session=True,  # Ctrl-C reaches the launcher only
    )


def _watch(
    rank: int,
    child: subprocess.Popen[str],
    ended: queue.Queue[tuple[int, int]],
    interrupted: threading.Event,
    bare: bool,
) -> None:
    """Copies what a child prints, and then puts its rank and exit code into `ended`."""
    assert child.stdout and child.stderr
    errors = threading.Thread(target=_copy, args=(rank, child.stderr, sys.stderr, interrupted))
    errors.start()
    try:
        _copy(rank, child.stdout, sys.stdout, interrupted, bare)
        errors.join()
    finally:  # otherwise the launcher would wait forever
        ended.put((rank, child.wait()))


def _copy(
    rank: int,
    source: IO[str],
    target: IO[str],
    interrupted: threading.Event,
    bare: bool = False,
) -> None:
    front = "" if bare else f"[{rank}] "
    with source, suppress(BrokenPipeError):  # the reader of our output may have ended
        for line in source:
            if rank and interrupted.is_set():
                continue  # the others now only complain that process 0 has left
            if GLOO.search(line):
                continue
            target.write(f"{front}{line.rstrip()}\n")  # one call, so that lines stay whole
            target.flush()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
