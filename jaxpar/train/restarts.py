"""Starts a group of processes again when one of them died: from the newest whole checkpoint."""

import sys
from collections.abc import Sequence
from pathlib import Path

from jaxpar.train.launch import Ended, run_group
from jaxpar.train.manifest import newest_whole

# Set where a group is started again if one of it dies, to how many times it was.
RESTARTED = "JAXPAR_RESTARTED"
RESUME = "--resume"


def launch_again(
    command: Sequence[str],
    folder: Path,
    *,
    restarts: int,
    processes: int,
    devices: int,
    as_json: bool = False,
) -> int:
    """Runs a command in a group of processes, and returns the exit code of the last attempt.

    When one of them dies, all are started again, at most `restarts` times, with --resume if there
    is a whole checkpoint in `folder`. Each time one line says which died of what, and what follows.
    Neither bad use nor what ends by Ctrl-C or SIGTERM is started again.
    """
    sizes = {"processes": processes, "devices": devices}
    done = 0
    while True:
        ended = run_group(command, **sizes, as_json=as_json, extra={RESTARTED: str(done)})
        if not ended.may_recover or done == restarts:
            break
        done += 1
        step = newest_whole(folder)
        goes_on = "it begins anew" if step is None else f"it goes on after step {step}"
        print(f"launch: {ended}; restart {done} of {restarts}: {goes_on}", file=sys.stderr)
        if step is not None and RESUME not in command:
            command = [*command, RESUME]
    if ended.failed:
        print(f"launch: {_the_end(ended, done)}", file=sys.stderr)
    return ended.code


def _the_end(ended: Ended, done: int) -> str:
    times = f", after {done} restart{'s' * (done > 1)}" if done else ""
    return f"{ended}{times}; the others were ended too"
