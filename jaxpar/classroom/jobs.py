"""How many files may be judged at the same time on this machine."""

from __future__ import annotations

import os

JOB_BYTES = 1_000_000_000  # of a worker and its reader, which compile one program at a time
MOST_PER_CORE = 4


def jobs_at_once(asked: int | None) -> int:
    """Returns how many files to judge at once: as many as asked, else one per core if memory does.

    Raises:
        ValueError: more are asked for than this machine can serve.
    """
    cores = len(os.sched_getaffinity(0))
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    room = max(1, memory_bytes // JOB_BYTES)
    if asked is None:
        return min(cores, room)
    most = min(MOST_PER_CORE * cores, room)
    if asked > most:
        raise ValueError(
            f"grade: --jobs {asked}; this machine has {cores} cores and {memory_bytes / 1e9:.0f} "
            f"GB, of which each job takes up to {JOB_BYTES / 1e9:.0f}: use at most --jobs {most}"
        )
    return asked
