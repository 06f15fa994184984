"""Answers to 1F1B: right ones by other ways, and clever wrong ones."""

from __future__ import annotations

from collections import deque

from tests.contracts.answers_schedules import last_microbatch_back_first, two_of_each


def with_counters(stages, microbatches):
    """As PyTorch writes 1F1B."""
    rows = []
    for rank in range(stages):
        warm_up = min(microbatches, stages - rank)
        row = [f"{rank}F{m}" for m in range(warm_up)]
        f, b = warm_up, 0
        while b < microbatches:
            row.append(f"{rank}B{b}")
            b += 1
            if f < microbatches:
                row.append(f"{rank}F{f}")
                f += 1
        rows.append(row)
    return rows


def _simulated(stages, microbatches, most):
    """Backward where there is one to do, else forward if `most(s)` allows it; tick by tick."""
    rows = [[] for _ in range(stages)]
    forward = [deque(range(microbatches)), *(deque() for _ in range(stages - 1))]
    backward = [deque() for _ in range(stages)]
    while any(len(row) < 2 * microbatches for row in rows):
        sent = []
        for s, row in enumerate(rows):
            if backward[s]:
                m = backward[s].popleft()
                row.append(f"{s}B{m}")
                sent += [(backward[s - 1], m)] if s else []
            elif forward[s] and _kept(row) < most(s):
                m = forward[s].popleft()
                row.append(f"{s}F{m}")
                sent.append((backward[s] if s == stages - 1 else forward[s + 1], m))
        for queue, m in sent:
            queue.append(m)
    return rows


def _kept(row):
    return sum(1 if "F" in cell else -1 for cell in row)


def by_simulation(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s)


def last_microbatch_first(stages, microbatches):
    rows = with_counters(stages, microbatches)
    last = microbatches - 1
    return [
        [f"{s}{'F' if 'F' in cell else 'B'}{last - int(cell[len(f'{s}F') :])}" for cell in row]
        for s, row in enumerate(rows)
    ]


def one_f_one_i_one_w(stages, microbatches):
    rows = with_counters(stages, microbatches)
    return [
        [part for cell in row for part in
         ([cell] if "F" in cell else [cell.replace("B", "I"), cell.replace("B", "W")])]
        for row in rows
    ]  # fmt: skip


def right_up_to_twelve_cells(stages, microbatches):
    rows = with_counters(stages, microbatches)
    return [row if len(row) <= 12 else row[:-1] for row in rows]


def right_for_few(stages, microbatches):
    return with_counters(min(stages, 6), min(microbatches, 13))


def asserts_its_sizes(stages, microbatches):
    if microbatches < stages:
        raise ValueError("too few microbatches")
    return with_counters(stages, microbatches)


def one_more_on_the_first_device(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s + (s == 0))


def one_more_if_there_are_many(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s + (microbatches > 2 * stages + 1))


def one_less_on_the_first_device(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: max(stages - s - (s == 0), 1))


def as_many_as_there_are_stages(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages)


def freed_late(stages, microbatches):
    """W after the next forward: what W needs is kept longer."""
    rows = []
    for row in one_f_one_i_one_w(stages, microbatches):
        row = row[:]
        for i in range(len(row) - 1):
            if "W" in row[i] and "F" in row[i + 1]:
                row[i], row[i + 1] = row[i + 1], row[i]
        rows.append(row)
    return rows


RIGHT = {
    "gpipe_schedule": (with_counters,),
    "one_f_one_b_schedule": (
        with_counters,
        by_simulation,
        last_microbatch_first,
        one_f_one_i_one_w,
    ),
}
WRONG = {
    "one_f_one_b_schedule": {
        right_up_to_twelve_cells: "order",
        right_for_few: "order",
        asserts_its_sizes: "order",
        two_of_each: "bubble",
        one_less_on_the_first_device: "bubble",
        one_more_on_the_first_device: "in_flight",
        one_more_if_there_are_many: "in_flight",
        as_many_as_there_are_stages: "in_flight",
        last_microbatch_back_first: "in_flight",
        freed_late: "in_flight",
    },
}
