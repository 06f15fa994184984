"""Answers to one_f_one_b_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

from collections import deque

from jaxpar.contracts.base import wrong
from jaxpar.schedules.generators import one_f_one_b_schedule
from tests.contracts.answers import right
from tests.contracts.pipeline_tables import back_in_reverse, in_two


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


@right
def by_simulation(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s)


@right
def last_microbatch_first(stages, microbatches):
    rows = one_f_one_b_schedule(stages, microbatches)
    last = microbatches - 1
    return [
        [f"{s}{'F' if 'F' in cell else 'B'}{last - int(cell[len(f'{s}F') :])}" for cell in row]
        for s, row in enumerate(rows)
    ]


@right
def one_f_one_i_one_w(stages, microbatches):
    rows = one_f_one_b_schedule(stages, microbatches)
    return [in_two(row) for row in rows]


@wrong("order")
def right_up_to_twelve_cells(stages, microbatches):
    rows = one_f_one_b_schedule(stages, microbatches)
    return [row if len(row) <= 12 else row[:-1] for row in rows]


@wrong("order")
def right_for_few(stages, microbatches):
    return one_f_one_b_schedule(min(stages, 6), min(microbatches, 13))


@wrong("order")
def asserts_its_sizes(stages, microbatches):
    if microbatches < stages:
        raise ValueError("too few microbatches")
    return one_f_one_b_schedule(stages, microbatches)


@wrong("bubble")
def two_of_each(stages, microbatches):
    work = [f"F{m}" for m in range(microbatches)], [f"B{m}" for m in range(microbatches)]
    pairs = range(0, microbatches, 2)
    return [
        [f"{s}{one}" for i in pairs for kind in work for one in kind[i : i + 2]]
        for s in range(stages)
    ]


@wrong("bubble")
def one_less_on_the_first_device(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: max(stages - s - (s == 0), 1))


@wrong("in_flight")
def one_more_on_the_first_device(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s + (s == 0))


@wrong("in_flight")
def one_more_if_there_are_many(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s + (microbatches > 2 * stages + 1))


@wrong("in_flight")
def as_many_as_there_are_stages(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages)


@wrong("in_flight")
def last_microbatch_back_first(stages, microbatches):
    return back_in_reverse(stages, microbatches)


@wrong("in_flight")
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


@right
def kinds_by_place(stages, microbatches):
    """A backward at every place that the number of forwards before it allows."""
    rows = []
    for s in range(stages):
        row, forward, backward = [], 0, 0
        while backward < microbatches:
            if forward < microbatches and forward - backward < stages - s:
                row.append(f"{s}F{forward}")
                forward += 1
            else:
                row.append(f"{s}B{backward}")
                backward += 1
        rows.append(row)
    return rows


@right
def weights_with_the_next_backward(stages, microbatches):
    """At the end of a row, the gradients of the weights come last."""
    rows = []
    for row in one_f_one_i_one_w(stages, microbatches):
        last = max(i for i, cell in enumerate(row) if "F" in cell)
        rest = [cell for cell in row[last + 1 :] if "I" in cell]
        rows.append(row[: last + 1] + rest + [cell for cell in row[last + 1 :] if "W" in cell])
    return rows


def _gpipe(stages, microbatches):
    return [[f"{s}{kind}{m}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]


@wrong("in_flight")
def gpipe_if_there_are_few(stages, microbatches):
    """All forwards first where the pipeline is never full."""
    name = _gpipe if stages <= microbatches <= 2 * stages - 2 else one_f_one_b_schedule
    return name(stages, microbatches)


@wrong("bubble")
def short_warm_up_if_there_are_few(stages, microbatches):
    """One forward fewer first, where there are fewer microbatches than stages."""
    rows = one_f_one_b_schedule(stages, microbatches)
    if microbatches >= stages:
        return rows
    short = []
    for s in range(stages):
        ahead = max(min(microbatches, stages - 1 - s) - 1, 0)
        kinds = "F" * ahead + "FB" * (microbatches - ahead) + "B" * ahead
        counts = {"F": iter(range(microbatches)), "B": iter(range(microbatches))}
        short.append([f"{s}{kind}{next(counts[kind])}" for kind in kinds])
    return short


@wrong("bubble")
def short_warm_up_below_twice(stages, microbatches):
    """As many forwards first as half of the microbatches, where they do not fill the pipeline."""
    if microbatches >= 2 * stages:
        return one_f_one_b_schedule(stages, microbatches)
    half = max(microbatches // 2, 1)
    return _simulated(stages, microbatches, lambda s: min(stages - s, half))


@wrong("order")
def for_sixteen_stages_at_most(stages, microbatches):
    return one_f_one_b_schedule(min(stages, 16), microbatches)


@wrong("order")
def for_a_hundred_microbatches_at_most(stages, microbatches):
    return one_f_one_b_schedule(stages, min(microbatches, 100))


@wrong("bubble")
def one_at_a_time_for_one_digit_more(stages, microbatches):
    """Past nine stages, a microbatch after the other."""
    if stages < 10:
        return one_f_one_b_schedule(stages, microbatches)
    return [[f"{s}{kind}{m}" for m in range(microbatches) for kind in "FB"] for s in range(stages)]
