"""Generates the published schedules, as rows of cells such as "0F0", one row per device.

A device's work is first written without microbatches: F is its next forward, B is its next
backward, I is the first half of its next backward, and W is the second half of the earliest I that
has none yet. With several chunks, F1, B1, I1 and W1 are those of chunk 1. `_cells` then numbers the
microbatches.

Looped schedules put stage chunk*p + rank on device rank. V-shaped schedules put stage s on device
min(s, 2p-1-s), so that the first device also holds the last stage.
"""

from collections.abc import Callable, Sequence

from jaxpar.schedules.table import Table


def naive_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """The naive schedule: one microbatch after the other, so that only one device works at a time.

    Math: makespan = m * p * (F + B)
    Source: Huang et al. 2019 (GPipe), figure 2b
    """
    _check_sizes("naive_schedule", stages, microbatches)
    return [_cells(["F", "B"] * microbatches, [rank]) for rank in range(stages)]


def gpipe_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """GPipe: all microbatches forward, then all backward.

    There is a row for each device, and a device holds one stage. A cell is a stage, F (forward) or
    B (backward), and a microbatch, all counted from 0: "2F0" is the forward of microbatch 0 on
    stage 2.

    Math: makespan = (m + p - 1) * (F + B); m microbatches in flight
    Source: Huang et al. 2019 (GPipe), section 2.3

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("gpipe_schedule", stages, microbatches)
    return [_cells(["F"] * microbatches + ["B"] * microbatches, [rank]) for rank in range(stages)]


def one_f_one_b_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """1F1B: after a few forwards, a backward follows each forward, so that fewer are in flight.

    There is a row for each device, and a device holds one stage. Cells are as in GPipe's table:
    "2F0" is the forward of microbatch 0 on stage 2, and "2B0" is its backward.

    Math: makespan = (m + p - 1) * (F + B); min(m, p - rank) microbatches in flight
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("one_f_one_b_schedule", stages, microbatches)
    return [_one_f_one_b(rank, microbatches, stages - 1 - rank) for rank in range(stages)]


def limited_schedule(stages: int, microbatches: int, limit: int) -> list[list[str]]:
    """1F1B with fewer forwards first, so that no device has more than `limit` in flight.

    There is a row for each device, and a device holds one stage. Cells are as in 1F1B's table. A
    backward may also be in two halves: "2I0" is the gradient with respect to the input of stage 2,
    and "2W0", at any time after it, is that with respect to its weights. A microbatch is in flight
    on a device from its F to its B, or to its W.

    Math: min(m, limit, p - rank) microbatches in flight
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.1; for a given limit, Qi et al. 2024b
        (Pipeline Parallelism with Controllable Memory)

    Raises:
        ValueError: stages, microbatches or the limit are less than 1.
    """
    _check_sizes("limited_schedule", stages, microbatches)
    if limit < 1:
        raise ValueError(f"limited_schedule: limit is {limit}; it must be 1 or more; use {stages}")
    return [
        _one_f_one_b(rank, microbatches, min(limit, stages - rank) - 1) for rank in range(stages)
    ]


def interleaved_schedule(stages: int, microbatches: int, chunks: int) -> list[list[str]]:
    """Interleaved 1F1B: each device holds several chunks of layers, so the bubble is shorter.

    `stages` is the number p of devices. Chunk c of device `rank` is stage c*p + rank in the cells:
    with 4 devices, "5F0" is the forward of microbatch 0 on chunk 1 of device 1. In the forward
    pass, p microbatches go through chunk 0, then the same p through chunk 1, and so on; then come
    the next p. In the backward pass, the last chunk comes first.

    Math: bubble (p - 1) * (F + B), F and B of one chunk; in flight at most
        min(m*v, 2(p - rank - 1) + (v - 1)p + 1) chunks
    Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2

    Raises:
        ValueError: the number of microbatches is not a multiple of the number of devices, or there
            are fewer than 2 chunks.
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

    `stages` is the number of devices. All microbatches are in flight at once, as in GPipe. But a
    chunk's weights are needed only twice, once for all forwards and once for all backwards, which
    suits sharded weights.

    Math: bubble (p - 1) * (F + B), F and B of one chunk, if m >= p; m*v chunks in flight
    Source: Lamy-Poirier 2023 (Breadth-First Pipeline Parallelism), arXiv 2211.05953

    Raises:
        ValueError: stages or microbatches are less than 1, or there are fewer than 2 chunks.
    """
    _check_sizes("breadth_first_schedule", stages, microbatches)
    _check_chunks("breadth_first_schedule", chunks, "gpipe_schedule")
    work = [f"F{c}" for c in range(chunks) for _ in range(microbatches)]
    work += [f"B{c}" for c in reversed(range(chunks)) for _ in range(microbatches)]
    return [_cells(work, range(rank, chunks * stages, stages)) for rank in range(stages)]


def zero_bubble_h1_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-H1: 1F1B with each backward in two halves, where weight gradients fill part of the bubble.

    There is a row for each device, and a device holds one stage. Cells are as in 1F1B's table,
    except that "2I0" is the gradient with respect to the input of stage 2, and "2W0" is that with
    respect to its weights, which may come at any time after "2I0". No device has more microbatches
    in flight, from F to W, than the first device of 1F1B.

    Math: bubble (p - 1) * (F + I - W) if m >= p; at most min(m, p) microbatches in flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.1

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("zero_bubble_h1_schedule", stages, microbatches)
    return [_split_backward(rank, microbatches, stages - 1 - rank, rank) for rank in range(stages)]


def zero_bubble_h2_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-H2: begins with about twice as many forwards as ZB-H1, so that no device idles later.

    The devices end one after the other, so the next step must not wait for the last of them.

    Math: bubble (p - 1) * (F + I - 2W) within a device's own span, if m >= 2p - 1; min(m, 2p - 1)
        microbatches in flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 2.2

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("zero_bubble_h2_schedule", stages, microbatches)
    return [
        _split_backward(rank, microbatches, 2 * (stages - 1 - rank), 2 * rank)
        for rank in range(stages)
    ]


def zero_bubble_v_schedule(stages: int, microbatches: int) -> list[list[str]]:
    """ZB-V: two chunks per device in the shape of a V, no bubble, and no more in flight than 1F1B.

    `stages` is the number of devices.

    Math: no bubble within a device's own span if F = I = W and m >= 2p - 1; at most 2p chunks in
        flight until W
    Source: Qi et al. 2024 (Zero Bubble Pipeline Parallelism), section 6

    Raises:
        ValueError: stages or microbatches are less than 1.
    """
    _check_sizes("zero_bubble_v_schedule", stages, microbatches)
    full = max(microbatches, 2 * stages - 1)  # enough to fill the pipeline; `_cells` drops the rest
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
    """DualPipeV: in the shape of a V, where forwards and backwards of two chunks alternate.

    `stages` is the number of devices. As published, a forward and the following backward of the
    other chunk run as one (F&B), so that one sends while the other computes. Here they are two
    cells, and the forward's result is sent as soon as it is computed.

    Math: bubble (p - 1) * (F + I - W) if F = I; as published, with F and B in one,
        (p - 1) * (F&B + B - 3W); 2p + 1 chunks in flight
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
        # From the middle on, weight gradients are delayed, to fill the gaps of the last backwards.
        last = ["1", "0"] * (rank + 1)
        work += [f"B{c}" for c in last[: rank + 1]] + [f"I{c}" for c in last[rank + 1 :]]
        work += ["W", "I0"] * rest + ["W"] * (rank + 1)
        rows.append(_cells(work, [rank, 2 * stages - 1 - rank]))
    return rows


# The names of the command line.
NAMES: dict[str, Callable[..., list[list[str]]]] = {
    "naive": naive_schedule,
    "gpipe": gpipe_schedule,
    "1f1b": one_f_one_b_schedule,
    "interleaved": interleaved_schedule,
    "breadth-first": breadth_first_schedule,
    "zb-h1": zero_bubble_h1_schedule,
    "zb-h2": zero_bubble_h2_schedule,
    "zb-v": zero_bubble_v_schedule,
    "dualpipe-v": dual_pipe_v_schedule,
}
LOOPED = ("interleaved", "breadth-first")
V_SHAPED = ("zb-v", "dualpipe-v")


def make_table(name: str, stages: int, microbatches: int, chunks: int | None = None) -> Table:
    """Makes the table of a published schedule; `stages` is the number of devices.

    `chunks` is the number of stages that a device holds. For looped schedules it is 2 by default;
    for V-shaped schedules it is always 2, and for all others always 1.

    Raises:
        ValueError: there is no such schedule, or it cannot have these sizes.
    """
    if name not in NAMES:
        raise ValueError(f"schedule: {name} is unknown; use one of {', '.join(NAMES)}")
    if name in LOOPED:
        return Table.parse(NAMES[name](stages, microbatches, 2 if chunks is None else chunks))
    fixed = 2 if name in V_SHAPED else 1
    if chunks not in (None, fixed):
        raise ValueError(
            f"schedule: chunks is {chunks}; {name} has {fixed} on each device; leave chunks out, "
            f"or use one of {', '.join(LOOPED)}"
        )
    return Table.parse(NAMES[name](stages, microbatches))


def _one_f_one_b(rank: int, microbatches: int, ahead: int) -> list[str]:
    """A row of 1F1B with `ahead` forwards first, or all if there are fewer."""
    ahead = min(ahead, microbatches)
    return _cells(["F"] * ahead + ["F", "B"] * (microbatches - ahead) + ["B"] * ahead, [rank])


def _split_backward(rank: int, microbatches: int, ahead: int, late: int) -> list[str]:
    """A row of 1F1B with `ahead` forwards first, in which W comes `late` microbatches after I."""
    ahead = min(ahead, microbatches)
    both = microbatches - ahead
    late = min(late, both)
    work = ["F"] * ahead + ["F", "I"] * late + ["F", "I", "W"] * (both - late)
    return _cells(work + ["I", "W"] * ahead + ["W"] * late, [rank])


def _cells(
    work: Sequence[str], stages: Sequence[int], microbatches: int | None = None
) -> list[str]:
    """Numbers the microbatches of a device's work.

    Args:
        work: the device's work, in order, as this module's docstring describes it.
        stages: the stage of each chunk.
        microbatches: drop the cells of microbatches from this number on.
    """
    counts = {kind: [0] * len(stages) for kind in "FB"}
    halves: list[tuple[int, int]] = []  # chunk and microbatch of each I that has no W yet
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
