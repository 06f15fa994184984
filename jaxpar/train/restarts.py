"""Starts a group of processes again when one of them died: from the newest whole checkpoint."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxpar.axes import parse_mesh, show_mesh
from jaxpar.layout import Layout
from jaxpar.train.launch import Ended, run_group
from jaxpar.train.manifest import newest_whole

# Set where a group is started again if one of it dies, to how many times it was.
RESTARTED = "JAXPAR_RESTARTED"
RESUME = "--resume"


@dataclass(frozen=True)
class Shrinking:
    """How a run may go on with fewer processes, each of which keeps its number of devices.

    Attributes:
        least: the smallest number of processes.
        mesh: of the first attempt, as `--mesh` has it.
        examples: those of a microbatch over all devices, which must stay equally many on each.
    """

    least: int
    mesh: str
    examples: int

    def after(self, processes: int, first: int) -> tuple[int, str] | None:
        """The most processes below this number that can go on, and their mesh; None: none can.

        Axis dp becomes smaller, or fsdp where that cannot. `first` processes had the first mesh.
        """
        for fewer in range(processes - 1, self.least - 1, -1):
            for axis in ("dp", "fsdp"):
                sizes = parse_mesh(self.mesh)
                size, rest = divmod(sizes.get(axis, 0) * fewer, first)
                smaller: dict[str, Any] = sizes | {axis: size}
                if size and not rest and self.examples % Layout(**smaller).batch_parts == 0:
                    return fewer, show_mesh(smaller)
        return None


def launch_again(
    command: Sequence[str],
    folder: Path,
    *,
    restarts: int,
    processes: int,
    devices: int,
    as_json: bool = False,
    shrinking: Shrinking | None = None,
) -> int:
    """Runs a command in a group of processes, and returns the exit code of the last attempt.

    When one of them dies, all are started again, at most `restarts` times, with --resume if there
    is a whole checkpoint in `folder`. With `shrinking`, and after two attempts in a row that saved
    nothing, there are fewer of them. Each time one line says which died of what, and what follows.
    Neither bad use nor what ends by Ctrl-C or SIGTERM is started again.
    """
    first, done, before = processes, 0, newest_whole(folder)
    in_vain = 0  # attempts in a row that have saved nothing
    while True:
        group = {"processes": processes, "devices": devices, "as_json": as_json}
        ended = run_group(command, **group, extra={RESTARTED: str(done)})
        if not ended.may_recover or done == restarts:
            break
        done += 1
        step = newest_whole(folder)
        in_vain = in_vain + 1 if step == before else 0
        before = step
        goes_on = "it begins anew" if step is None else f"it goes on after step {step}"
        if in_vain > 1 and shrinking and (fewer := shrinking.after(processes, first)):
            (processes, mesh), in_vain = fewer, 0
            command = [*command, "--mesh", mesh]
            goes_on += f" with {processes} process{'es' * (processes > 1)}, --mesh {mesh}"
        print(f"launch: {ended}; restart {done} of {restarts}: {goes_on}", file=sys.stderr)
        if step is not None and RESUME not in command:
            command = [*command, RESUME]
    if ended.failed:
        print(f"launch: {_the_end(ended, done)}", file=sys.stderr)
    return ended.code


def _the_end(ended: Ended, done: int) -> str:
    times = f", after {done} restart{'s' * (done > 1)}" if done else ""
    return f"{ended}{times}; the others were ended too"
