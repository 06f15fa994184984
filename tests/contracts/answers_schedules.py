"""Answers to lesson 15's schedule and numbers, and to 1F1B: right ones, and clever wrong ones."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

import numpy as np


def _gpipe(stages, microbatches):
    return [[f"{s}{kind}{m}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]


def column_by_column(stages, microbatches):
    columns = []
    for tick in range(microbatches + stages - 1):
        columns.append([f"{s}F{tick - s}" if 0 <= tick - s < microbatches else None
                        for s in range(stages)])  # fmt: skip
    for tick in range(microbatches + stages - 1):
        m = [tick - (stages - 1 - s) for s in range(stages)]
        columns.append([f"{s}B{m[s]}" if 0 <= m[s] < microbatches else "" for s in range(stages)])
    return list(zip(*columns, strict=True))


def last_microbatch_back_first(stages, microbatches):
    f, b = range(microbatches), reversed(range(microbatches))
    order = [("F", m) for m in f] + [("B", m) for m in b]
    return tuple(tuple(f"{s}{kind}{m}" for kind, m in order) for s in range(stages))


def as_an_array(stages, microbatches):
    return np.array(_gpipe(stages, microbatches))


def backward_in_two(stages, microbatches):
    both = [("I", "W")] * microbatches
    return [
        [f"{s}F{m}" for m in range(microbatches)]
        + [f"{s}{kind}{m}" for m, pair in enumerate(both) for kind in pair]
        for s in range(stages)
    ]


def with_spaces(stages, microbatches):
    return [[f" {cell} " for cell in row] + [""] for row in _gpipe(stages, microbatches)]


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


def one_list(stages, microbatches):
    return [cell for row in _gpipe(stages, microbatches) for cell in row]


def one_text_each(stages, microbatches):
    return [" ".join(row) for row in _gpipe(stages, microbatches)]


def triples(stages, microbatches):
    return [[(s, "F", m) for m in range(microbatches)] for s in range(stages)]


def small_letters(stages, microbatches):
    return [[cell.lower() for cell in row] for row in _gpipe(stages, microbatches)]


def by_device(stages, microbatches):
    return dict(enumerate(_gpipe(stages, microbatches)))


def a_generator(stages, microbatches):
    yield from _gpipe(stages, microbatches)


def a_row_too_many(stages, microbatches):
    return [*_gpipe(stages, microbatches), []]


def ticks_as_rows(stages, microbatches):
    return [list(column) for column in zip(*_gpipe(stages, microbatches), strict=True)]


def two_chunks_each(stages, microbatches):
    """Half as much in each cell would make the bubble shorter."""
    order = [(c, m) for c in range(2) for m in range(microbatches)]
    return [
        [f"{c * stages + s}F{m}" for c, m in order]
        + [f"{(1 - c) * stages + s}B{m}" for c, m in order]
        for s in range(stages)
    ]


def fewer_larger_microbatches(stages, microbatches):
    return _gpipe(stages, max(microbatches // 2, 1))


def a_million_idle_cells(stages, microbatches):
    return [row + [None] * 1_000_000 for row in _gpipe(stages, microbatches)]


def deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(20):
        value = [value]
    return [[value] for _ in range(stages)]


def the_example(stages, microbatches):
    return [["0F0", "0B0"], ["1F0", "1B0"]]


def right_up_to_twelve_cells(stages, microbatches):
    rows = with_counters(stages, microbatches)
    return [row if len(row) <= 12 else row[:-1] for row in rows]


def asserts_its_sizes(stages, microbatches):
    if microbatches < stages:
        raise ValueError("too few microbatches")
    return with_counters(stages, microbatches)


_calls = 0


def counts_its_calls(stages, microbatches):
    global _calls
    _calls += 1
    rows = _gpipe(stages, microbatches)
    return rows if _calls % 2 else last_microbatch_back_first(stages, microbatches)


def backward_one_ahead(stages, microbatches):
    """The first device goes backward in another order than the rest."""
    rows = _gpipe(stages, microbatches)
    rows[0] = rows[0][:microbatches] + rows[0][microbatches + 1 :] + [rows[0][microbatches]]
    return rows


def two_of_each(stages, microbatches):
    work = [f"F{m}" for m in range(microbatches)], [f"B{m}" for m in range(microbatches)]
    pairs = range(0, microbatches, 2)
    return [
        [f"{s}{one}" for i in pairs for kind in work for one in kind[i : i + 2]]
        for s in range(stages)
    ]


def one_more_on_the_first_device(stages, microbatches):
    return _simulated(stages, microbatches, lambda s: stages - s + (s == 0))


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


def as_fractions(stages, microbatches, chunks):
    return float(Fraction(stages - 1, chunks * microbatches + stages - 1))


def by_counting_ticks(stages, microbatches, chunks):
    work, idle = 2 * microbatches * chunks, 2 * (stages - 1)
    return np.float64(idle) / (work + idle)


def one_minus_busy(stages, microbatches, chunks):
    return 1 - microbatches / (microbatches + (stages - 1) / chunks)


def in_percent(stages, microbatches, chunks):
    return 100 * as_fractions(stages, microbatches, chunks)


def rounded(stages, microbatches, chunks):
    return round(as_fractions(stages, microbatches, chunks), 4)


def as_text(stages, microbatches, chunks):
    return str(as_fractions(stages, microbatches, chunks))


def not_for_one_stage(stages, microbatches, chunks):
    return 1 / (1 + chunks * microbatches / (stages - 1))


RIGHT = {
    "gpipe_schedule": (
        column_by_column,
        last_microbatch_back_first,
        as_an_array,
        backward_in_two,
        with_spaces,
        with_counters,
    ),
    "bubble_fraction": (as_fractions, by_counting_ticks, one_minus_busy),
    "one_f_one_b_schedule": (
        with_counters,
        by_simulation,
        last_microbatch_first,
        one_f_one_i_one_w,
    ),
}
WRONG = {
    "gpipe_schedule": {
        one_list: "order",
        one_text_each: "order",
        triples: "order",
        small_letters: "order",
        by_device: "order",
        a_generator: "order",
        a_row_too_many: "order",
        ticks_as_rows: "order",
        two_chunks_each: "order",
        fewer_larger_microbatches: "order",
        a_million_idle_cells: "order",
        deeply_nested: "order",
        the_example: "order",
        counts_its_calls: "order",
        backward_one_ahead: "bubble",
        two_of_each: "bubble",
    },
    "bubble_fraction": {
        in_percent: "values",
        rounded: "values",
        as_text: "values",
        not_for_one_stage: "values",
    },
    "one_f_one_b_schedule": {
        right_up_to_twelve_cells: "order",
        asserts_its_sizes: "order",
        two_of_each: "bubble",
        one_less_on_the_first_device: "bubble",
        one_more_on_the_first_device: "in_flight",
        as_many_as_there_are_stages: "in_flight",
        last_microbatch_back_first: "in_flight",
        freed_late: "in_flight",
    },
}
