"""The shortest schedule that keeps no more than a limit: an open challenge."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import Call, Contract, PipelineLimits, wrong
from jaxpar.contracts.pipeline_tables import (
    BACKWARD_TWICE,
    Rows,
    cells_of_stage,
    pipeline_sizes,
)
from jaxpar.schedules.generators import limited_schedule


def _sizes(rng: np.random.Generator) -> list[Call]:
    """That of the challenge first; then every size of a pipeline, with limits of all kinds."""
    calls: list[Call] = [
        ((4, 8, 3), {}),
        ((3, 2, 1), {}),
        ((3, 2, 5), {}),
        ((4, 8, 1), {}),
        ((4, 8, 0), {}),
    ]
    for (p, m), _ in pipeline_sizes(rng):
        calls.append(((p, m, int(rng.integers(max(p - 4, 1), p + 2))), {}))
    p = int(rng.integers(17, 20))  # limits of two digits
    return [*calls, ((p, 2 * p, p - int(rng.integers(3, 6))), {}), ((7, 7, 1), {})]


CONTRACT = Contract(
    kind="schedule",
    task="return a row of cells for each stage, with at most `limit` microbatches in flight",
    reference=limited_schedule,
    oracle=limited_schedule,
    values=_sizes,
    challenge="makespan",
    pipeline=PipelineLimits(
        bubble="makespan at most that of 1F1B with min(limit, p - rank) - 1 forwards first, where "
        "F, I and W take 1 each, and B takes 2",
        in_flight="at most `limit` microbatches on each device, from F to B or W",
        costs=(BACKWARD_TWICE,),
        most_in_flight=lambda stages, microbatches, limit: limit,
    ),
    hints=(
        "Begin with 1F1B in which device rank does min(limit, p - rank) - 1 forwards first. It "
        "passes. With a limit below p it waits often: what does the first device wait for?",
        "It waits for the backward of the stage behind it. Write I in place of B: the stage before "
        "waits for one cell in place of two, and W fills what is idle. But W frees the room.",
        "Write a program that goes tick by tick: each device does an I if one can run, else an F "
        "if there is room, else a W. Then try other orders of these three, device by device.",
    ),
    minimal="The least of the challenge is 31: `jaxpar schedule --search --stages 4 --microbatches "
    "8 --limit 3` finds such a table, and proves that none is shorter. For any sizes, the last "
    "device works for 3m and waits p - 1 for its first F, so nothing takes less than 3m + p - 1; "
    "and if limit < 2p - 1, the first device is idle for 2p - 1 - limit before its first I can "
    "run.",
    harder="Let each device hold two stages, in a V: `jaxpar schedule --from FILE` judges that "
    "table, and lesson 16 says what is known.",
)


def _rows(microbatches: int, aheads: list[int], both: str = "FB", last: str = "B") -> Rows:
    """1F1B with so many forwards first on each device; `both` are its pairs, `last` its end."""
    rows = []
    for rank, ahead in enumerate(aheads):
        first = min(ahead, microbatches)
        work = "F" * first + both * (microbatches - first) + last * first
        rows.append(cells_of_stage(rank, work))
    return rows


def limited_rows(stages: int, microbatches: int, limit: int, *how: str) -> Rows:
    """1F1B within the limit; `how` are the cells of a pair, and of the end."""
    if min(stages, microbatches, limit) < 1:
        raise ValueError("sizes and limits are 1 or more")
    return _rows(microbatches, [min(limit, stages - rank) - 1 for rank in range(stages)], *how)


@wrong("in_flight")
def limit_ignored(stages: int, microbatches: int, limit: int) -> Rows:
    """This is 1F1B, whose first device has p in flight, whatever the limit is; do no more than
    limit - 1 forwards first."""
    limited_rows(stages, microbatches, limit)
    return limited_rows(stages, microbatches, stages)


@wrong("in_flight")
def all_forwards_first_within_no_limit(stages: int, microbatches: int, limit: int) -> Rows:
    """This is GPipe: all microbatches are in flight at once; after `limit` forwards, a backward
    must come before the next one."""
    limited_rows(stages, microbatches, limit)
    return _rows(microbatches, [microbatches] * stages)


@wrong("in_flight")
def one_forward_beyond_the_limit(stages: int, microbatches: int, limit: int) -> Rows:
    """Up to `limit` forwards come before the pairs, and the first pair begins with one more; do
    limit - 1 of them first."""
    limited_rows(stages, microbatches, limit)
    return _rows(microbatches, [min(limit, stages - rank - 1) for rank in range(stages)])


@wrong("in_flight")
def limit_until_i(stages: int, microbatches: int, limit: int) -> Rows:
    """The W come at the end, so that all microbatches are in flight; I frees nothing, since W needs
    what was kept as well."""
    rows = limited_rows(stages, microbatches, limit, "FI", "I")
    return [row + cells_of_stage(rank, "W" * microbatches) for rank, row in enumerate(rows)]


@wrong("bubble")
def never_two_in_flight(stages: int, microbatches: int, limit: int) -> Rows:
    """Each microbatch goes forward and backward before the next one begins, whatever the limit is;
    use the room for `limit` of them."""
    limited_rows(stages, microbatches, limit)
    return limited_rows(stages, microbatches, 1)


@wrong("bubble")
def limit_in_place_of_stages(stages: int, microbatches: int, limit: int) -> Rows:
    """Device rank does limit - 1 - rank forwards first, so that the later devices have none in hand
    when the next one comes; do min(limit, p - rank) - 1 of them."""
    limited_rows(stages, microbatches, limit)
    return _rows(microbatches, [max(min(limit, stages) - 1 - rank, 0) for rank in range(stages)])


@wrong("order")
def weights_forgotten(stages: int, microbatches: int, limit: int) -> Rows:
    """There is an I for each microbatch, and no W; the gradient of the weights is the other half of
    the backward, so add a W for each I."""
    return limited_rows(stages, microbatches, limit, "FI", "I")


@wrong("order")
def warm_up_grows(stages: int, microbatches: int, limit: int) -> Rows:
    """The later the stage, the more forwards it does first, so the devices wait for one another
    forever; the first device needs the most."""
    limited_rows(stages, microbatches, limit)
    return _rows(microbatches, [min(limit - 1, rank) for rank in range(stages)])


@wrong("order")
def bad_sizes_accepted(stages: int, microbatches: int, limit: int) -> Rows:
    """A limit of 0 returns a table, though no forward fits into it; raise ValueError."""
    return limited_rows(stages, microbatches, max(limit, 1))
