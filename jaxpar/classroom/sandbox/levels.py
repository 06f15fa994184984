"""The levels of isolation, the best that this machine allows, and how a process starts on one."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpar.classroom.sandbox import seccomp
from jaxpar.grading import landlock
from jaxpar.grading.processes import READER, WORKER

NAMESPACES, LANDLOCK, NONE = 1, 2, 3
NAMES = {
    NAMESPACES: "level 1: bubblewrap and seccomp",
    LANDLOCK: "level 2: Landlock and seccomp",
    NONE: "not isolated",
}
LIBRARY = Path(__file__).resolve().parents[2]
SYSTEM = (
    "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache",
    "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
# systemd gives users from this range to services for as long as these run.
FIRST_USER, USERS = 61_184, 4096
LIMITS = {
    "CORE": 0,
    "CPU": 300,
    "FSIZE": 16 << 20,
    "NOFILE": 128,
    "NPROC": 512,
    "AS": 16 << 30,
}
TMP_BYTES = 16 << 20
# Where memory runs out, the kernel ends this process, and what it starts, before the grader.
FIRST_TO_GO = ("/bin/sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh")
PROBE = "jaxpar.classroom.sandbox.probe"
PROBE_SECONDS = 30


class Unavailable(ValueError):
    """A level that this machine does not allow; the message says why."""


@dataclass(frozen=True)
class Sandbox:
    """How children are confined.

    Attributes:
        level: 1, namespaces; 2, Landlock; 3, not at all.
        user: the user that they run as; None: as this process.
        why_not: for each better level, why this machine does not allow it.
    """

    level: int
    user: int | None = None
    why_not: dict[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What a person is told."""
        library_is_open = self.level == NAMESPACES and not landlock.version()
        return NAMES[self.level] + (", no Landlock: answers can read jaxpar" * library_is_open)

    def start(self, module: str) -> subprocess.Popen[bytes]:
        """A process that runs a module, with pipes for its standard streams."""
        # The compiler writes what a reader looks at; a worker has nothing to write.
        folder = self._folder() if self.level == LANDLOCK and module == READER else None
        variables = environment() | ({"TMPDIR": folder} if folder else {})
        command = [sys.executable, "-P", "-m", module]
        if self.level != NONE:
            orders = self._orders(module, folder)
            command = [*command[:-1], "jaxpar.classroom.sandbox.enter", json.dumps(orders)]
        if self.level == NAMESPACES:
            command = [*_bubblewrap(variables), *command]
            variables = {}  # nothing of bubblewrap's own environment reaches what it starts
        return Process(
            [*FIRST_TO_GO, *command],
            folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=variables,
            cwd="/",
            start_new_session=True,
            user=self.user,
            group=self.user,
            extra_groups=None if self.user is None else [],
        )

    def _orders(self, module: str, folder: str | None) -> dict[str, Any]:
        paths = [*readable(), *DEVICES]
        arguments = []
        if module == WORKER and landlock.version():  # what it closes behind itself, once loaded
            arguments = [json.dumps({"closed": str(LIBRARY), "readable": paths})]
        return {
            "module": module,
            "arguments": arguments,
            "limits": LIMITS | {"NPROC": LIMITS["NPROC"] + _tasks(self.user)},
            "landlock": self.level == LANDLOCK,
            "readable": paths,
            "writable": ["/dev/null"],
            "folder": folder,
        }

    def _folder(self) -> str:
        folder = tempfile.mkdtemp(prefix="jaxpar-")
        if self.user is not None:
            os.chown(folder, self.user, self.user)
        return folder


class Process(subprocess.Popen):
    """A process whose folder goes when it has ended."""

    def __init__(self, command: list[str], folder: str | None, **how: Any) -> None:
        """Starts the command, as `subprocess.Popen` does."""
        self._folder = folder
        super().__init__(command, **how)

    def wait(self, timeout: float | None = None) -> int:
        """Waits for the end, and removes the folder."""
        code = super().wait(timeout)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        return code


def choose(*, unsafe: bool = False, slot: int = 0) -> Sandbox:
    """The best level that this machine allows.

    Args:
        unsafe: allows no isolation at all.
        slot: as root, children of different slots are different users.

    Raises:
        Unavailable: there is none, or the user of children cannot read the interpreter.
    """
    user = user_of(slot)
    check_readable(user)
    why_not: dict[int, str] = {}
    for level in (NAMESPACES, LANDLOCK):
        try:
            _check(Sandbox(level, user))
            return Sandbox(level, user, why_not)
        except Unavailable as reason:
            why_not[level] = str(reason)
    if unsafe:
        return Sandbox(NONE, user, why_not)
    reasons = "; ".join(f"{NAMES[level]}: {reason}" for level, reason in why_not.items())
    raise Unavailable(
        f"grade: this machine cannot isolate submissions ({reasons}); install bubblewrap, use a "
        "kernel with Landlock, or say --unsafe if you trust every submission"
    )


def user_of(slot: int) -> int | None:
    """The user that children of a slot run as; None, as this process, unless that is root."""
    return None if os.geteuid() else FIRST_USER + slot % USERS


def why_not(level: int) -> str:
    """Why this machine does not allow a level; empty if it does."""
    try:
        _check(Sandbox(level, user_of(0)))
    except Unavailable as reason:
        return str(reason)
    return ""


def _check(sandbox: Sandbox) -> None:
    """Runs the probe inside, which must be able to do nothing that is forbidden."""
    if not sys.platform.startswith("linux"):
        raise Unavailable("only Linux has it")
    if not seccomp.available():
        raise Unavailable("there is no filter of system calls for this processor")
    if sandbox.level == NAMESPACES and not shutil.which("bwrap"):
        raise Unavailable("bubblewrap is not installed")
    if sandbox.level == LANDLOCK and not landlock.version():
        raise Unavailable("the kernel has no Landlock")
    process = sandbox.start(PROBE)
    try:
        out, trouble = process.communicate(timeout=PROBE_SECONDS)
        possible = json.loads(out)
    except subprocess.TimeoutExpired:
        process.kill()
        raise Unavailable(f"a first process does not end within {PROBE_SECONDS} seconds") from None
    except ValueError:
        lines = trouble.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        raise Unavailable(lines[-1][:200]) from None
    if possible:
        raise Unavailable(f"inside, a process can {', '.join(possible)}")


def environment() -> dict[str, str]:
    """All that a child gets: what its results depend on is fixed."""
    return {
        "JAX_PLATFORMS": "cpu",
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "PYTHONPATH": str(LIBRARY.parent),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "XLA_FLAGS": "--xla_cpu_max_isa=AVX2 --xla_cpu_multi_thread_eigen=false",
    }


def readable() -> list[str]:
    """What a child may read: the interpreter, its packages, and this library."""
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    folders = map(os.path.realpath, [sys.base_prefix, sys.prefix, *packages, str(LIBRARY)])
    return [*SYSTEM, *dict.fromkeys(path for path in folders if path not in ("/", "/usr"))]


def _tasks(user: int | None) -> int:
    """Threads that a user runs already, as the limit counts them too."""
    count, user = 0, os.getuid() if user is None else user
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # it has ended
    return count


def _bubblewrap(variables: dict[str, str]) -> list[str]:
    """Bubblewrap's command: read-only folders, a small /tmp of its own, nothing else."""
    binds = [word for path in readable() for word in ("--ro-bind-try", path, path)]
    if sys.base_prefix == "/usr":
        binds += ["--ro-bind", "/usr/bin", "/usr/bin"]
    settings = [word for pair in variables.items() for word in ("--setenv", *pair)]
    return [
        shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session",
        "--cap-drop", "ALL", "--clearenv", *settings,
        "--dev", "/dev", "--remount-ro", "/dev",  # and no /proc: bubblewrap itself is in it
        "--size", str(TMP_BYTES), "--tmpfs", "/tmp",
        *binds, "--remount-ro", "/", "--chdir", "/tmp",
    ]  # fmt: skip


def check_readable(user: int | None) -> None:
    """Raises Unavailable if the user of children cannot read the interpreter or the library."""
    if user is None:
        return
    for path in (sys.executable, os.path.realpath(sys.executable), sys.prefix, str(LIBRARY)):
        closed = next((p for p in _with_parents(Path(path)) if not _open_to_all(p, path)), None)
        if closed is not None:
            owner = pwd.getpwuid(closed.stat().st_uid).pw_name
            raise Unavailable(
                f"grade: run as root, submissions run as user {user}, who cannot read {path}: "
                f"{closed} is closed to others; run as {_someone(owner)}, make it readable "
                f"(chmod o+x {closed}), or install Python and jaxpar in a folder that all can read"
            )


def _someone(owner: str) -> str:
    return "a user who is not root" if owner == "root" else owner


def _with_parents(path: Path) -> list[Path]:
    return [*reversed(path.parents), path]


def _open_to_all(path: Path, end: str) -> bool:
    """Whether anybody may go through a folder on the way, or read what is at the end."""
    way = 0o1 if path.is_dir() else 0
    needed = way | (0o4 if str(path) == end else 0)
    return path.stat().st_mode & needed == needed
