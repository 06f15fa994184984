"""The levels of isolation: which is the best here, and how a process is started on one.

`best_sandbox` finds the level, and the grader's pools start their workers and readers by calling
`Sandbox.start`. What a child gives up for good, it gives up itself in `enter`.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jaxpar.classroom.sandbox import seccomp
from jaxpar.grading import landlock
from jaxpar.grading.processes import READER, WORKER

NAMESPACES, LANDLOCK, NOT_ISOLATED = 1, 2, 3
LEVEL_NAMES = {
    NAMESPACES: "level 1: bubblewrap and seccomp",
    LANDLOCK: "level 2: Landlock and seccomp",
    NOT_ISOLATED: "not isolated",
}
LIBRARY = Path(__file__).resolve().parents[2]
SYSTEM = (
    "/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache",
    "/etc/localtime", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/urandom", "/dev/zero")
# systemd gives users from this range to services for as long as they run.
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
FIRST_KILLED = ("/bin/sh", "-c", 'echo 1000 2>/dev/null >/proc/self/oom_score_adj; exec "$@"', "sh")
PROBE = "jaxpar.classroom.sandbox.probe"
PROBE_SECONDS = 30
COPY = "/opt/jaxpar"  # where a copy of Python is suggested


class LevelUnavailable(ValueError):
    """This machine does not allow a level; the message says why."""


@dataclass(frozen=True)
class Sandbox:
    """How child processes are confined.

    Attributes:
        level: `NAMESPACES`, `LANDLOCK` or `NOT_ISOLATED`.
        user: the user that they run as; None is the user of this process.
        why_not: why this machine does not allow a better level, for each of these.
    """

    level: int
    user: int | None = None
    why_not: dict[int, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The level in words."""
        library_is_open = self.level == NAMESPACES and not landlock.version()
        return LEVEL_NAMES[self.level] + (
            ", no Landlock: answers can read jaxpar" * library_is_open
        )

    def start(self, module: str) -> subprocess.Popen[bytes]:
        """Starts a process that runs a module, with pipes for its standard streams."""
        # The compiler of a reader writes files; a worker has nothing to write.
        folder = self._folder() if self.level == LANDLOCK and module == READER else None
        variables = environment() | ({"TMPDIR": folder} if folder else {})
        command = [sys.executable, "-P", "-m", module]
        if self.level != NOT_ISOLATED:
            confinement = self._confinement(module, folder)
            command = [*command[:-1], "jaxpar.classroom.sandbox.enter", json.dumps(confinement)]
        if self.level == NAMESPACES:
            command = [*_bubblewrap(variables), *command]
            variables = {}  # Nothing of bubblewrap's own environment reaches what it starts.
        return SandboxedProcess(
            [*FIRST_KILLED, *command],
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

    def _confinement(self, module: str, folder: str | None) -> dict[str, Any]:
        """Returns what `enter` does before it runs the module."""
        paths = [*readable(), *DEVICES]
        arguments = []
        if module == WORKER and landlock.version():  # What the worker closes once it has loaded.
            arguments = [json.dumps({"closed": str(LIBRARY), "readable": paths})]
        return {
            "module": module,
            "arguments": arguments,
            "limits": LIMITS | {"NPROC": LIMITS["NPROC"] + _threads_of(self.user)},
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


class SandboxedProcess(subprocess.Popen):
    """A process whose folder is removed when it has ended."""

    def __init__(self, command: list[str], folder: str | None, **how: Any) -> None:
        """Starts the command, as `subprocess.Popen` does."""
        self._folder = folder
        super().__init__(command, **how)

    def wait(self, timeout: float | None = None) -> int:
        """Waits until the process has ended, and removes its folder."""
        code = super().wait(timeout)
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
        return code


def best_sandbox(*, unsafe: bool = False) -> Sandbox:
    """Returns a sandbox on the best level that this machine allows.

    Args:
        unsafe: whether no isolation at all will do.

    Raises:
        LevelUnavailable: there is none, or the user of child processes cannot read the interpreter.
    """
    user = user_of(0)
    check_readable(user, needed_paths())
    refused: dict[int, str] = {}
    for level in (NAMESPACES, LANDLOCK):
        reason = why_not(level)
        if not reason:
            return Sandbox(level, user, refused)
        refused[level] = reason
    if unsafe:
        return Sandbox(NOT_ISOLATED, user, refused)
    reasons = "; ".join(f"{LEVEL_NAMES[level]}: {reason}" for level, reason in refused.items())
    raise LevelUnavailable(
        f"grade: this machine cannot isolate submissions ({reasons}); install bubblewrap, use a "
        "kernel with Landlock, or say --unsafe if you trust every submission"
    )


def user_of(slot: int) -> int | None:
    """Returns the number of a slot's user if this process is root, else None for its own user."""
    return None if os.geteuid() else FIRST_USER + slot % USERS


def why_not(level: int) -> str:
    """Returns why this machine does not allow a level, or an empty string if it does.

    The probe runs in a sandbox, where it must be able to do nothing that is forbidden.
    """
    if not sys.platform.startswith("linux"):
        return "only Linux has it"
    if not seccomp.available():
        return "there is no filter of system calls for this processor"
    if level == NAMESPACES and not shutil.which("bwrap"):
        return "bubblewrap is not installed"
    if level == LANDLOCK and not landlock.version():
        return "the kernel has no Landlock"
    process = Sandbox(level, user_of(0)).start(PROBE)
    try:
        out, trouble = process.communicate(timeout=PROBE_SECONDS)
        possible = json.loads(out)
    except subprocess.TimeoutExpired:
        process.kill()
        return f"a first process does not end within {PROBE_SECONDS} seconds"
    except ValueError:
        lines = trouble.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        return lines[-1][:200]
    return f"inside, a process can {', '.join(possible)}" if possible else ""


def environment() -> dict[str, str]:
    """Returns all variables that a child gets; they fix what its results depend on."""
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
    """Returns what a child may read: the interpreter, its packages, and this library."""
    packages = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    folders = map(os.path.realpath, [sys.base_prefix, sys.prefix, *packages, str(LIBRARY)])
    return [*SYSTEM, *dict.fromkeys(path for path in folders if path not in ("/", "/usr"))]


def _threads_of(user: int | None) -> int:
    """Counts the threads that a user runs already, which the limit counts, too."""
    count, user = 0, os.getuid() if user is None else user
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{name}").st_uid == user:
                count += len(os.listdir(f"/proc/{name}/task"))
        except OSError:
            continue  # It has ended.
    return count


def _bubblewrap(variables: dict[str, str]) -> list[str]:
    """Returns bubblewrap's command: read-only folders, a small /tmp of its own, nothing else."""
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


def needed_paths() -> list[str]:
    """Returns what whoever runs a submission must be able to read: interpreter and library."""
    return [sys.executable, os.path.realpath(sys.executable), sys.prefix, str(LIBRARY)]


def check_readable(user: int | None, paths: Iterable[str]) -> None:
    """Raises LevelUnavailable if this user cannot read one of the paths."""
    if user is None:
        return
    for path in paths:
        way = [*reversed(Path(path).parents), Path(path)]
        closed = next((p for p in way if not _open_to_all(p, path)), None)
        if closed is not None:
            owner = pwd.getpwuid(closed.stat().st_uid).pw_name
            someone = "a user who is not root" if owner == "root" else owner
            raise LevelUnavailable(
                f"grade: run as root, submissions run as user {user}, who cannot read {path}: "
                f"{closed} is closed to others; copy it with `jaxpar doctor --grading "
                f"--copy-python {COPY}` and use {COPY}/bin/jaxpar, run as {someone}, or make it "
                f"readable (chmod o+x {closed})"
            )


def _open_to_all(path: Path, end: str) -> bool:
    """Tells whether anybody may go through a folder on the way, or read what is at the end."""
    needed = (0o1 if path.is_dir() else 0) | (0o4 if str(path) == end else 0)
    return path.stat().st_mode & needed == needed
