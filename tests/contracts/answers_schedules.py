"""Answers to lesson 15's schedule and its idle share: right ones, and clever wrong ones."""

from __future__ import annotations

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
    return [
        [f"{s}F{m}" for m in range(microbatches)]
        + [f"{s}{kind}{m}" for m in range(microbatches) for kind in "IW"]
        for s in range(stages)
    ]


def with_spaces(stages, microbatches):
    return [[f" {cell} " for cell in row] + [""] for row in _gpipe(stages, microbatches)]


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


def rows_of_generators(stages, microbatches):
    return [(cell for cell in row) for row in _gpipe(stages, microbatches)]


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


def very_many_idle_cells(stages, microbatches):
    return [row + [None] * 100_000 for row in _gpipe(stages, microbatches)]


def deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(20):
        value = [value]
    return [[value] for _ in range(stages)]


def too_deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(700):
        value = [value]
    return value


def the_example(stages, microbatches):
    return [["0F0", "0B0"], ["1F0", "1B0"]]


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
    ),
    "bubble_fraction": (
        as_fractions,
        by_counting_ticks,
        one_minus_busy,
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
        rows_of_generators: "order",
        a_row_too_many: "order",
        ticks_as_rows: "order",
        two_chunks_each: "order",
        fewer_larger_microbatches: "order",
        very_many_idle_cells: "order",
        deeply_nested: "order",
        too_deeply_nested: "order",
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
}
