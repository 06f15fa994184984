"""Contracts of lessons 15 and 16: schedules of pipelines."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts import (
    schedules_looped_mistakes,
    schedules_mistakes,
    schedules_split_mistakes,
    schedules_value_mistakes,
)
from jaxpar.contracts.base import Contract, PipelineLimits
from jaxpar.schedules import Costs, Table, bubble_fraction, make_table, stash_size, to_ticks
from jaxpar.schedules.generators import (
    gpipe_schedule,
    interleaved_schedule,
    one_f_one_b_schedule,
    zero_bubble_h1_schedule,
)

Call = tuple[tuple, dict]

_EQUAL, _TWICE = Costs(F=2, B=2, I=1, W=1), Costs(F=1, B=2, I=1, W=1)
_BOTH = "with B = F and with B = 2F"


def _sizes(rng: np.random.Generator) -> list[Call]:
    """Few, fewer microbatches than stages, one stage; then more, enough to fill the pipeline."""
    sizes = [(2, 1), (4, 2), (1, 3)]
    for p in (3, *(int(n) for n in rng.integers(4, 7, 2))):
        sizes.append((p, 2 * p - 1 + int(rng.integers(3))))
    p = int(rng.integers(7, 10))
    sizes.append((p, 3 * p + int(rng.integers(p))))  # numbers of two digits
    return [(pair, {}) for pair in sizes]


def _looped_sizes(rng: np.random.Generator) -> list[Call]:
    """One device, one round of microbatches, several; random ones, many; then what is refused."""
    p = int(rng.integers(3, 5))
    sizes = [(1, 1, 2), (2, 2, 2), (3, 6, 3), (2, 2 * int(rng.integers(2, 5)), 2)]
    sizes += [(p, p * int(rng.integers(2, 4)), int(rng.integers(2, 4)))]
    sizes += [(5, 5 * int(rng.integers(3, 5)), 4)]
    sizes += [(p, p + int(rng.integers(1, p)), 2), (p, 2 * p, 1)]
    return [(size, {}) for size in sizes]


GPIPE = Contract(
    id="gpipe_schedule",
    kind="schedule",
    task="return a row of cells for each stage: all microbatches forward, then all backward",
    reference=gpipe_schedule,
    oracle=gpipe_schedule,
    values=_sizes,
    pipeline=PipelineLimits(
        bubble=f"makespan at most (m + p - 1)(F + B) for p stages and m microbatches, {_BOTH}",
        in_flight="at most m microbatches on each device",
        costs=(_EQUAL, _TWICE),
    ),
    mistakes=schedules_mistakes.GPIPE,
    hints=(
        "Each device has one stage, so the row of device s has cells of stage s only: forwards, "
        "then backwards. Nothing in it says when; a cell waits for what it needs.",
        "Stage s can start a microbatch when stage s - 1 has done it. So which order of "
        "microbatches must all stages have in common?",
        'A row is [f"{s}F{m}" for each m], then [f"{s}B{m}" for each m].',
    ),
    minimal="The last stage starts after p - 1 forwards of the others, and the first ends p - 1 "
    "backwards after it; between them are m of both.",
    harder="The backwards may come in any order that all stages share. Which order keeps fewer "
    "activations at the end, and which stages gain by it?",
)

BUBBLE_FRACTION = Contract(
    id="bubble_fraction",
    kind="value",
    task="return the idle share of the makespan, where all chunks take equally long",
    reference=bubble_fraction,
    oracle=bubble_fraction,
    values=lambda rng: [
        (size, {})
        for size in [
            (4, 8, 1),
            (4, 8, 2),
            (1, 5, 1),
            (8, 2, 1),
            *(tuple(int(n) for n in rng.integers((2, 1, 1), (65, 129, 9))) for _ in range(6)),
        ]
    ],
    mistakes=schedules_value_mistakes.BUBBLE_FRACTION,
    hints=(
        "The share is idle time by makespan. The makespan is idle time and work, so count both of "
        "one device, in chunks.",
        "A device works on m microbatches in each of its v chunks, forward and backward alike. It "
        "idles while the first microbatch comes to it and while the last one leaves: p - 1 chunks.",
        "(p - 1) / (v * m + p - 1)",
    ),
    minimal="No device has work before the first chunks are done before it, whatever the order.",
    harder="Write it for ZB-H1, where weight gradients fill a part of the idle time.",
)

ONE_F_ONE_B = Contract(
    id="one_f_one_b_schedule",
    kind="schedule",
    task="return a row of cells for each stage: some forwards, then forward and backward in turn",
    reference=one_f_one_b_schedule,
    oracle=one_f_one_b_schedule,
    values=_sizes,
    pipeline=PipelineLimits(
        bubble=f"makespan at most (m + p - 1)(F + B), as GPipe's, {_BOTH}",
        in_flight="at most p - rank microbatches on device rank",
        costs=(_EQUAL, _TWICE),
    ),
    mistakes=schedules_mistakes.ONE_F_ONE_B,
    hints=(
        "The last stage can do a backward right after its first forward, and then one of each in "
        "turn. How many forwards must the stage before it do, so as not to wait?",
        "Device rank does p - 1 - rank forwards first, but not more than there are microbatches. "
        "Then comes a forward, a backward, and so on, and in the end the backwards that are left.",
        "The k-th backward of a row is that of microbatch k, as is the k-th forward: two counters, "
        "or two loops, write them all.",
    ),
    minimal="The first microbatch needs p - rank stages to the end, and as many forwards of this "
    "device go by until its backward can be there.",
    harder="Let each device do twice as many forwards first, and write the table to a CSV file. "
    "What does it keep, and what does it gain: jaxpar schedule --from FILE --cost P=0.5?",
)

INTERLEAVED = Contract(
    id="interleaved_schedule",
    kind="schedule",
    task="return a row of cells for each device, which holds every p-th stage: 1F1B over chunks",
    reference=interleaved_schedule,
    oracle=interleaved_schedule,
    values=_looped_sizes,
    pipeline=PipelineLimits(
        bubble=f"idle at most (p - 1)(F + B), F and B of one chunk: 1/chunks of 1F1B's, {_BOTH}",
        in_flight="at most 2(p - rank - 1) + (chunks - 1)p + 1 chunks on device rank",
        costs=(_EQUAL, _TWICE),
    ),
    mistakes=schedules_looped_mistakes.INTERLEAVED,
    hints=(
        "Write two lists that are alike for all devices: the forwards in their order, as chunk and "
        "microbatch, and the backwards. p microbatches go through chunk 0, then the same p through "
        "chunk 1; backward the last chunk comes first.",
        "Device rank does 2(p - rank - 1) + (chunks - 1)p forwards first (or all, if they are "
        "fewer). Then a forward and a backward in turn, then the backwards that are left.",
        "With k a place in the list of forwards, chunk is k // p % chunks and microbatch is "
        'k // (p * chunks) * p + k % p; the cell is f"{chunk * p + rank}F{microbatch}".',
    ),
    minimal="The last device idles until the first chunk of the others is done: p - 1 chunks, "
    "where it was p - 1 stages.",
    harder="Do only p - rank - 1 + (chunks - 1)p forwards first: the bubble is the same, and less "
    "is kept. What becomes longer, if transfers take time (jaxpar schedule --cost P=0.5)?",
)

ZERO_BUBBLE_H1 = Contract(
    id="zero_bubble_h1_schedule",
    kind="schedule",
    task="return a row of cells for each stage: 1F1B with I and W, W late enough to fill the end",
    reference=zero_bubble_h1_schedule,
    oracle=zero_bubble_h1_schedule,
    values=_sizes,
    pipeline=PipelineLimits(
        bubble="idle at most (p - 1)(F + I - W) where F, I and W take equally long and m >= p; "
        "with fewer microbatches, no more than the library's",
        in_flight="at most p microbatches on each device, from F to W",
        costs=(_TWICE,),
    ),
    mistakes=schedules_split_mistakes.ZERO_BUBBLE_H1,
    hints=(
        "Stage s - 1 waits for I of stage s, and nobody waits for W. So write 1F1B with I in "
        "place of B: where do the devices idle now, and which W can fill that?",
        "As many forwards first as in 1F1B. Device rank keeps rank weight gradients for later: "
        "its first rank I have no W behind them. After that each I is followed by the oldest W.",
        "The rank W that are left come at the end of the row. If there are fewer microbatches "
        "than that, all W do.",
    ),
    minimal="More late W would keep more activations than the first device of 1F1B does; fewer "
    "would leave idle time at the end.",
    harder="Allow 2p - 1 in flight (ZB-H2): no device idles between its first cell and its last.",
)


# Each device keeps most after its first backward, device 0 in cells beyond the row of device 1.
_UNEVEN = [
    ["0F0", "", "", "0B0", "", "", "0F1", "0F2", "", "0B2", "0B1"],
    ["1F0", "1B0", "1F1", "1F2", "1B2", "1B1"],
]


def _tables(rng: np.random.Generator) -> list[Call]:
    """Tables of all forms, some with their idle cells, the smallest first; then random ones."""
    m = int(rng.integers(5, 8))
    made = [
        make_table("gpipe", 1, 2),
        make_table("zb-h1", 1, 2),
        Table.parse([["0F0", "", "0B0"], ["", "1F0", "1B0"]]),
        Table.parse(_UNEVEN),
        make_table("interleaved", 2, 2, 2),
        to_ticks(make_table("1f1b", 3, m + 6)),
        make_table("zb-h2", 3, m),
        make_table("zb-v", 2, m),
        make_table("dualpipe-v", 2, m),
        to_ticks(make_table("interleaved", 2, 4, int(rng.integers(2, 4)))),
        _random_table(rng, m),
        make_table("breadth-first", 2, 11, 6),  # numbers of two digits
    ]
    return [((table.to_rows(),), {}) for table in made]


def _random_table(rng: np.random.Generator, microbatches: int) -> Table:
    """One device, some backwards in two: forwards, backwards and idle cells by chance."""
    left = [f"F{'B' if rng.integers(2) else 'IW'}" for _ in range(microbatches)]
    row = []
    while any(left):
        m = int(rng.integers(microbatches))
        row.append(f"0{left[m][0]}{m}" if left[m] else "")
        left[m] = left[m][1:]
    return Table.parse([row])


STASH_SIZE = Contract(
    id="stash_size",
    kind="value",
    task="return how many activations each device must have room for: for each row, the peak",
    reference=stash_size,
    oracle=stash_size,
    values=_tables,
    mistakes=schedules_value_mistakes.STASH_SIZE,
    hints=(
        "Go through a row from left to right with one number: what the device keeps now. It is the "
        "greatest value of it that counts.",
        "F adds one. B takes one away, and so does W; I does not, as its W still needs what the "
        "forward kept. Empty cells change nothing.",
        "The kind is the one letter in the cell: next(c for c in cell if c.isalpha()).",
    ),
    minimal="A device does one cell after the other, so its order alone tells what it keeps: no "
    "costs, and no other device, are needed.",
    harder="Count what W needs apart from what I needs: after I, only the inputs of the products "
    "and the gradients of their outputs are kept.",
)

CONTRACTS = (
    GPIPE,
    BUBBLE_FRACTION,
    ONE_F_ONE_B,
    INTERLEAVED,
    ZERO_BUBBLE_H1,
    STASH_SIZE,
)
