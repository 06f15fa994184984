"""Answers to gpipe_schedule: right ones by other routes, and wrong ones."""

from __future__ import annotations

import numpy as np

from jaxpar.contracts.base import wrong
from tests.contracts.answers import right


@right
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


@right
def column_by_column(stages, microbatches):
    columns = []
    for tick in range(microbatches + stages - 1):
        columns.append([f"{s}F{tick - s}" if 0 <= tick - s < microbatches else None
                        for s in range(stages)])  # fmt: skip
    for tick in range(microbatches + stages - 1):
        m = [tick - (stages - 1 - s) for s in range(stages)]
        columns.append([f"{s}B{m[s]}" if 0 <= m[s] < microbatches else "" for s in range(stages)])
    return list(zip(*columns, strict=True))


@right
def last_microbatch_back_first(stages, microbatches):
    f, b = range(microbatches), reversed(range(microbatches))
    order = [("F", m) for m in f] + [("B", m) for m in b]
    return tuple(tuple(f"{s}{kind}{m}" for kind, m in order) for s in range(stages))


def _gpipe(stages, microbatches):
    return [[f"{s}{kind}{m}" for kind in "FB" for m in range(microbatches)] for s in range(stages)]


@right
def as_an_array(stages, microbatches):
    return np.array(_gpipe(stages, microbatches))


@right
def backward_in_two(stages, microbatches):
    return [
        [f"{s}F{m}" for m in range(microbatches)]
        + [f"{s}{kind}{m}" for m in range(microbatches) for kind in "IW"]
        for s in range(stages)
    ]


@right
def with_spaces(stages, microbatches):
    return [[f" {cell} " for cell in row] + [""] for row in _gpipe(stages, microbatches)]


@wrong("order")
def one_list(stages, microbatches):
    return [cell for row in _gpipe(stages, microbatches) for cell in row]


@wrong("order")
def one_text_each(stages, microbatches):
    return [" ".join(row) for row in _gpipe(stages, microbatches)]


@wrong("order")
def triples(stages, microbatches):
    return [[(s, "F", m) for m in range(microbatches)] for s in range(stages)]


@wrong("order")
def small_letters(stages, microbatches):
    return [[cell.lower() for cell in row] for row in _gpipe(stages, microbatches)]


@wrong("order")
def by_device(stages, microbatches):
    return dict(enumerate(_gpipe(stages, microbatches)))


@wrong("order")
def a_generator(stages, microbatches):
    yield from _gpipe(stages, microbatches)


@wrong("order")
def rows_of_generators(stages, microbatches):
    return [(cell for cell in row) for row in _gpipe(stages, microbatches)]


@wrong("order")
def a_row_too_many(stages, microbatches):
    return [*_gpipe(stages, microbatches), []]


@wrong("order")
def ticks_as_rows(stages, microbatches):
    return [list(column) for column in zip(*_gpipe(stages, microbatches), strict=True)]


@wrong("order")
def two_chunks_each(stages, microbatches):
    """Half as much in each cell would make the bubble shorter."""
    order = [(c, m) for c in range(2) for m in range(microbatches)]
    return [
        [f"{c * stages + s}F{m}" for c, m in order]
        + [f"{(1 - c) * stages + s}B{m}" for c, m in order]
        for s in range(stages)
    ]


@wrong("order")
def fewer_larger_microbatches(stages, microbatches):
    return _gpipe(stages, max(microbatches // 2, 1))


@wrong("order")
def very_many_idle_cells(stages, microbatches):
    return [row + [None] * 100_000 for row in _gpipe(stages, microbatches)]


@wrong("order")
def deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(20):
        value = [value]
    return [[value] for _ in range(stages)]


@wrong("order")
def too_deeply_nested(stages, microbatches):
    value = "0F0"
    for _ in range(700):
        value = [value]
    return value


@wrong("order")
def the_example(stages, microbatches):
    return [["0F0", "0B0"], ["1F0", "1B0"]]


_calls = 0


@wrong("order")
def counts_its_calls(stages, microbatches):
    global _calls
    _calls += 1
    rows = _gpipe(stages, microbatches)
    return rows if _calls % 2 else last_microbatch_back_first(stages, microbatches)


@wrong("bubble")
def backward_one_ahead(stages, microbatches):
    """The first device goes backward in another order than the rest."""
    rows = _gpipe(stages, microbatches)
    rows[0] = rows[0][:microbatches] + rows[0][microbatches + 1 :] + [rows[0][microbatches]]
    return rows


@wrong("bubble")
def two_of_each(stages, microbatches):
    work = [f"F{m}" for m in range(microbatches)], [f"B{m}" for m in range(microbatches)]
    pairs = range(0, microbatches, 2)
    return [
        [f"{s}{one}" for i in pairs for kind in work for one in kind[i : i + 2]]
        for s in range(stages)
    ]
