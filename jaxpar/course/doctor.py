"""What this machine has, and what it lacks for the course."""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from jaxpar import __version__
from jaxpar.course.catalog import BadUseError
from jaxpar.course.command import command
from jaxpar.course.folder import find_course
from jaxpar.train.machine import memory_bytes

PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "jaxtyping", "rich", "typer", "watchfiles",
            "flatbuffers", "pytest", "jupytext")  # fmt: skip
SIMULATED = 8
GB = 10**9
LEAST_MEMORY_BYTES = 4 * GB
LEAST_DISK_BYTES = GB


@dataclass(frozen=True)
class Diagnosis:
    """Facts about the machine.

    Attributes:
        versions: the versions of Python, of this package, and of those that it needs.
        devices: what JAX computes on, one line each.
        memory_bytes: the memory of the machine; None if it is unknown.
        disk_free_bytes: the free space on the disk that the course is on.
        course: the course folder, if there is one.
        missing: what is missing, and what to do about it, one line each.
    """

    versions: dict[str, str]
    devices: tuple[str, ...]
    memory_bytes: int | None
    disk_free_bytes: int
    course: str | None
    missing: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def lines(self) -> list[str]:
        """Returns one fact in each line."""
        memory = f"{self.memory_bytes / GB:.1f} GB" if self.memory_bytes else "unknown"
        facts = [
            *self.versions.items(),
            *(("device", line) for line in self.devices),
            ("memory", memory),
            ("disk free", f"{self.disk_free_bytes / GB:.1f} GB"),
            ("course", self.course or f"none here; `{command()} init FOLDER` makes one"),
            *(("missing", line) for line in self.missing or ("nothing",)),
        ]
        return [f"{name:<12} {value}" for name, value in facts]


def diagnose(start: Path) -> Diagnosis:
    """Looks at the machine, from the folder `start`."""
    found = {name: _version(name) for name in PACKAGES}
    missing = [f"{name}: pip install {name}" for name, known in found.items() if known is None]
    devices, trouble = _devices()
    course, absent = _course(start)
    memory, disk = memory_bytes(), shutil.disk_usage(course or start).free
    missing += trouble + absent
    if memory and memory < LEAST_MEMORY_BYTES:
        missing.append(f"memory: 4 GB are needed, this machine has {memory / GB:.1f} GB")
    if disk < LEAST_DISK_BYTES:
        missing.append(f"disk: 1 GB must be free, {disk / GB:.1f} GB are")
    versions = {"jaxpar": __version__, "python": platform.python_version()}
    versions |= {name: known or "missing" for name, known in found.items()}
    return Diagnosis(
        versions, tuple(devices), memory, disk, str(course) if course else None, tuple(missing)
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _devices() -> tuple[list[str], list[str]]:
    """Returns the devices that JAX has, with several simulated on the CPU, and what is missing."""
    try:
        import jax

        jax.config.update("jax_num_cpu_devices", SIMULATED)
        simulated = len(jax.devices("cpu"))
        lines = [f"{simulated} simulated on {os.cpu_count()} CPU cores"]
        lines += [str(device) for device in jax.devices() if device.platform != "cpu"]
    except (ImportError, RuntimeError, ValueError) as error:
        return [], [f"devices: JAX does not start ({str(error).splitlines()[0]}); reinstall jax"]
    return lines, []


def _course(start: Path) -> tuple[Path | None, list[str]]:
    try:
        course = find_course(start)
    except BadUseError:
        return None, []
    named = (*course.lessons, *course.exercises)
    absent = [row.file for row in named if not course.file(row).is_file()]
    missing = [f"{file}: `{command()} init {course.root}` puts it back" for file in absent]
    if not os.access(course.root, os.W_OK):
        missing.append(f"{course.root}: cannot be written; progress will not be remembered")
    return course.root, missing
