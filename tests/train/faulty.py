"""`jaxpar` with a fault: in the first attempt, process 1 dies or hangs when it makes batch 8.

That is while the devices take step 7. The first argument says how: die, hang, stop, or gone, which
dies in later attempts, too, when it makes its first batch. All others are those of `jaxpar`.
"""

import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from jaxpar.cli import main
from jaxpar.train import run
from jaxpar.train.launch import RANK
from jaxpar.train.restarts import RESTARTED

BATCHES = 7


def hang() -> None:
    """Stands still in Python."""
    while True:
        time.sleep(0.1)


def die() -> None:
    """Ends this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


FAULTS = {
    "die": die,
    "gone": die,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "hang": hang,
}


def with_fault(batches: Any, fault: Any, after: int) -> Any:
    """Batches, with a fault after so many of them."""

    def made(*args: Any, **options: Any) -> Iterator[Any]:
        for number, batch in enumerate(batches(*args, **options)):
            if number == after:
                fault()
            yield batch

    return made


if __name__ == "__main__":
    how = sys.argv.pop(1)
    first = os.environ[RESTARTED] == "0"
    if os.environ[RANK] == "1" and (first or how == "gone"):
        run.batches = with_fault(run.batches, FAULTS[how], BATCHES if first else 0)
    main()
