"""Published schedules. Each function returns rows of cells such as "0F0", one row per device.

A device's work is first written without microbatches: F is its next forward, B its next backward,
I the first half of that, and W the second half of the first I that has none yet. With several
chunks F1, B1, I1 and W1 are those of chunk 1. `_cells` then counts off the microbatches.

Looped schedules put stage chunk*p + rank on device rank. V schedules put stage s on device
min(s, 2p-1-s), so that the first device also holds the last stage.
"""

from collections.abc import Sequence


def naive_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """One microbatch after the other: at any time one device works.

    Math: makespan = m * p * (F + B)
    Source: Huang et al. 2019 (GPipe), figure 2b
    """
    _check_sizes("naive_schedule", stages, microbatches)
    return [_cells(["F", "B"] * microbatches, [rank]) for rank in range(stages)]


def gpipe_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """GPipe: all microbatches forward, then all backward.

    A row per device, which holds one stage. A cell is a stage, F (forward) or B (backward), and a
    microbatch, all counted from 0: "2F0" is the forward of microbatch 0 on stage 2.

    Math: makespan = (m + p - 1) * (F + B); m microbatches in flight
    Source: Huang et al. 2019 (GPipe), section 2.3

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("gpipe_schedule", stages, microbatches)
    return [_cells(["F"] * microbatches + ["B"] * microbatches, [rank]) for rank in range(stages)]


def one_f_one_b_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """1F1B: after a few forwards, a backward follows each forward, so that fewer are in flight.

    A row per device, which holds one stage. Cells are as in GPipe's table: "2F0" is the forward of
    microbatch 0 on stage 2, "2B0" its backward.

    Math: makespan = (m + p - 1) * (F + B); min(m, p - rank) microbatches in flight
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("one_f_one_b_schedule", stages, microbatches)
    rows = []
    for rank in range(stages):
        ahead = min(microbatches, stages - 1 - rank)
        work = ["F"] * ahead + ["F", "B"] * (microbatches - ahead) + ["B"] * ahead
        rows.append(_cells(work, [rank]))
    return rows


def interleaved_schedule(stages: int, microbatches: int, chunks: int) -> list[list[str]]:
    """Interleaved 1F1B: each device holds several chunks of layers, so the bubble is shorter.

    `stages` is the number of devices. Chunk c of device rank is stage c*p + rank in the cells: with
    4 devices, "5F0" is the forward of microbatch 0 on chunk 1 of device 1. Forward, p microbatches
    go through chunk 0, the same p through chunk 1, and so on, then come the next p; backward, the
    last chunk is first.

    Math: bubble (p - 1) * (F + B), F and B of one chunk; in flight at most
        min(m*v, 2(p - rank - 1) + (v - 1)p + 1) chunks
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2

    Raises:
        ValueError: the microbatches are no multiple of the devices, or the chunks fewer than 2.
    """
    _check_sizes("interleaved_schedule", stages, microbatches)
    _check_chunks("interleaved_schedule", chunks, "one_f_one_b_schedule")
    if microbatches % stages:
        more = microbatches + stages - microbatches % stages
        raise ValueError(
            f"interleaved_schedule: microbatches is {microbatches}; it must be a multiple of the "
            f"{stages} devices; use {more}"
        )
    rounds = microbatches // stages
    forward = [f"F{c}" for _ in range(rounds) for c in range(chunks) for _ in range(stages)]
    backward = [f"B{chunks - 1 - int(work[1:])}" for work in forward]
    rows = []
    for rank in range(stages):
        ahead = min(len(forward), 2 * (stages - 1 - rank) + (chunks - 1) * stages)
        work = forward[:ahead]
        for pair in zip(forward[ahead:], backward, strict=False):
            work += pair
        work += backward[len(forward) - ahead :]
        rows.append(_cells(work, range(rank, chunks * stages, stages)))
    return rows


def breadth_first_schedule(stages: int, microbatches: int, chunks: int) -> list[list[str]]:
    """Looped breadth-first: all microbatches through one chunk, then all through the next.

    `stages` is the number of devices. Everything is in flight at once, as in GPipe; but a chunk's
    weights are used in one piece forward and one backward, which suits sharded weights.

    Math: bubble (p - 1) * (F + B), F and B of one chunk, if m >= p; m*v chunks in flight
    Source: Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism), arXiv 2211.05953

    Raises:
        ValueError: stages or microbatches are less than 1, or the chunks fewer than 2.
    """
    _check_sizes("breadth_first_schedule", stages, microbatches)
    _check_chunks("breadth_first_schedule", chunks, "gpipe_schedule")
    work = [f"F{c}" for c in range(chunks) for _ in range(microbatches)]
    work += [f"B{c}" for c in reversed(range(chunks)) for _ in range(microbatches)]
    return [_cells(work, range(rank, chunks * stages, stages)) for rank in range(stages)]


def zero_bubble_h1_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-H1: 1F1B with the backward in two, where weight gradients fill a part of the bubble.

    A row per device, which holds one stage. Cells are as in 1F1B's table, but "2I0" is the gradient
    of the input of stage 2, and "2W0" that of its weights: it may come any time after "2I0". No
    device keeps more in flight, from F to W, than the first device of 1F1B.

    Math: bubble (p - 1) * (F + I - W) if m >= p; at most min(m, p) microbatches in flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.1

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("zero_bubble_h1_schedule", stages, microbatches)
    return [_split(rank, microbatches, stages - 1 - rank, rank) for rank in range(stages)]


def zero_bubble_h2_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-H2: about twice as many forwards first as ZB-H1, and no device idles once it has begun.

    Devices end one after the other: the next step must not wait for the last of them.

    Math: bubble (p - 1) * (F + I - 2W) within a device's own span, if m >= 2p - 1; min(m, 2p - 1)
        microbatches in flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.2

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("zero_bubble_h2_schedule", stages, microbatches)
    return [_split(rank, microbatches, 2 * (stages - 1 - rank), 2 * rank) for rank in range(stages)]


def zero_bubble_v_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-V: two chunks a device in the shape of a V, no bubble, and no more in flight than 1F1B.

    `stages` is the number of devices.

    Math: no bubble within a device's own span if F = I = W and m >= 2p - 1; at most 2p chunks in
        flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 6

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("zero_bubble_v_schedule", stages, microbatches)
    full = max(microbatches, 2 * stages - 1)  # what fills the pipeline; the surplus is left out
    rows = []
    for rank in range(stages):
        rest = stages - rank
        work = ["F0"] * (2 * rest - 1) + ["F1", "F0"] * rank + ["F1", "I1", "W1"] * rest
        work += ["F0", "I0", "W0", "F1", "I1", "W1"] * (full - 2 * stages + rank + 1)
        work += ["I0", "W0", "F1", "I1", "W1"] * (rest - 1)
        work += ["I0", "I1"] * rank + ["I0", "W0"] * rest + ["W1"] * rank + ["W0"] * rank
        rows.append(_cells(work, [rank, 2 * stages - 1 - rank], microbatches))
    return rows


def dual_pipe_v_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """DualPipeV: in the shape of a V; forwards and backwards of two chunks alternate.

    `stages` is the number of devices. As published, a forward and the backward of the other chunk
    that follows it run as one (F&B), so that one sends while the other computes. Here they are two
    cells, and the forward's result goes on as soon as it is there.

    Math: bubble (p - 1) * (F + I - W) if F = I, and (p - 1) * (F&B + B - 3W) where two cells are
        one; 2p + 1 chunks in flight
    Source: DeepSeek-AI 2024 (DeepSeek-V3), section 3.2.1; deepseek-ai/DualPipe, dualpipev.py

    Raises:
        ValueError: there are fewer than 2 microbatches for each device.
    """
    _check_sizes("dual_pipe_v_schedule", stages, microbatches)
    if microbatches < 2 * stages:
        raise ValueError(
            f"dual_pipe_v_schedule: microbatches is {microbatches}; it needs 2 or more for each "
            f"of the {stages} devices; use {2 * stages}"
        )
    rows = []
    for rank in range(stages):
        rest = stages - 1 - rank
        work = ["F0"] * (2 * rest) + ["F0", "F1"] * (rank + 1) + ["I1", "W", "F1"] * rest
        work += ["F0", "B1", "F1", "B0"] * (microbatches - 2 * stages + rank + 1)
        work += ["B1", "F1", "B0"] * rest
        # From the middle on, weight gradients wait, to fill the time between the last backwards.
        last = ["1", "0"] * (rank + 1)
        work += [f"B{c}" for c in last[: rank + 1]] + [f"I{c}" for c in last[rank + 1 :]]
        work += ["W", "I0"] * rest + ["W"] * (rank + 1)
        rows.append(_cells(work, [rank, 2 * stages - 1 - rank]))
    return rows


def _split(rank: int, microbatches: int, ahead: int, late: int) -> list[str]:
    """1F1B with `ahead` forwards first, where W is `late` microbatches behind I."""
    ahead = min(ahead, microbatches)
    both = microbatches - ahead
    late = min(late, both)
    work = ["F"] * ahead + ["F", "I"] * late + ["F", "I", "W"] * (both - late)
    return _cells(work + ["I", "W"] * ahead + ["W"] * late, [rank])


def _cells(
    work: Sequence[str], stages: Sequence[int], microbatches: int | None = None
) -> list[str]:
    """Count off the microbatches of a device's work.

    Args:
        work: what it does, one after the other, as this module's docstring says.
        stages: the stage of each chunk.
        microbatches: leave out those from here on.
    """
    counts = {kind: [0] * len(stages) for kind in "FB"}
    halves: list[tuple[int, int]] = []  # chunk and microbatch of I without W
    cells = []
    for name in work:
        kind, chunk = name[0], int(name[1:] or 0)
        if kind == "W":
            which = next(i for i, half in enumerate(halves) if name == "W" or half[0] == chunk)
            chunk, microbatch = halves.pop(which)
        else:
            count = counts["F" if kind == "F" else "B"]
            microbatch = count[chunk]
            count[chunk] += 1
            if kind == "I":
                halves.append((chunk, microbatch))
        if microbatches is None or microbatch < microbatches:
            cells.append(f"{stages[chunk]}{kind}{microbatch}")
    return cells


def _check_sizes(where: str, stages: int, microbatches: int) -> None:
    for name, size in (("stages", stages), ("microbatches", microbatches)):
        if size < 1:
            raise ValueError(f"{where}: {name} is {size}; it must be 1 or more; use for example 4")


def _check_chunks(where: str, chunks: int, instead: str) -> None:
    if chunks < 2:
        raise ValueError(
            f"{where}: chunks is {chunks}; it must be 2 or more; with one chunk use {instead}"
        )
