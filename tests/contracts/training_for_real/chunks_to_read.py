"""Answers to chunks_to_read: right ones by other routes, and wrong ones."""

from __future__ import annotations

import itertools

from jaxpar.contracts.base import wrong
from jaxpar.long_run.checkpoint_layout import block_range
from tests.contracts.answers import right


def _check(shape, saved, wanted, part):
    if not len(shape) == len(saved) == len(wanted) == len(part):
        raise ValueError("different numbers of dims")
    if any(size < 0 for size in shape) or any(n < 1 for n in (*saved, *wanted)):
        raise ValueError("a size is out of range")
    if any(not 0 <= i < n for i, n in zip(part, wanted, strict=True)):
        raise ValueError("there is no such part")


@right
def dim_by_dim(shape, saved, wanted, part):
    """The chunks of each dim by itself, and then all combinations."""
    _check(shape, saved, wanted, part)
    along = []
    for size, chunks, parts, index in zip(shape, saved, wanted, part, strict=True):
        chunk_size, part_size = -(-size // chunks), -(-size // parts)
        first, last = min(index * part_size, size), min((index + 1) * part_size, size)
        pieces, place = [], first
        while place < last:
            chunk = place // chunk_size
            stop = min(last, (chunk + 1) * chunk_size)
            inside = place - chunk * chunk_size, stop - chunk * chunk_size
            pieces.append((chunk, inside, (place - first, stop - first)))
            place = stop
        along.append(pieces)
    found = []
    for pieces in itertools.product(*along):
        chunk, of_chunk, of_part = zip(*pieces, strict=True) if pieces else ((), (), ())
        found.append([list(chunk), list(of_chunk), list(of_part)])
    return found


def _of_dim(size, chunks, parts, index):
    own = block_range(size, parts, index)
    for chunk in range(chunks):
        start, stop = block_range(size, chunks, chunk)
        low, high = max(start, own[0]), min(stop, own[1])
        if low < high:
            yield chunk, (low - start, high - start), (low - own[0], high - own[0])


@right
def by_recursion(shape, saved, wanted, part):
    _check(shape, saved, wanted, part)
    if not shape:
        return [((), (), ())]
    rest = by_recursion(shape[1:], saved[1:], wanted[1:], part[1:])
    first = _of_dim(shape[0], saved[0], wanted[0], part[0])
    return [
        ((chunk, *chunks), (a, *as_), (b, *bs)) for chunk, a, b in first for chunks, as_, bs in rest
    ]


@wrong("values")
def first_row_apart(shape, saved, wanted, part):
    """Right, but the first row of a chunk is a piece of its own."""
    found = []
    for chunk, a, b in dim_by_dim(shape, saved, wanted, part):
        rows = a[0][1] - a[0][0] if shape else 1
        for cut in [(0, 1), (1, rows)] if rows > 1 else [(0, rows)]:
            found.append((chunk, _rows_of(a, cut), _rows_of(b, cut)))
    return found


def _rows_of(ranges, cut):
    """The ranges, but of the first dim only these of its rows."""
    if not ranges:
        return ranges
    first = ranges[0][0]
    return ((first + cut[0], first + cut[1]), *ranges[1:])


@wrong("values")
def last_dim_slowest(shape, saved, wanted, part):
    found = dim_by_dim(shape, saved, wanted, part)
    return sorted(found, key=lambda one: one[0][::-1])


@wrong("values")
def at_most_two_chunks_a_dim(shape, saved, wanted, part):
    """The first and the last chunk of each dim."""
    found = dim_by_dim(shape, saved, wanted, part)
    ends = [{c[0][k] for c in (found[0], found[-1])} for k in range(len(shape))] if found else []
    return [one for one in found if all(i in end for i, end in zip(one[0], ends, strict=True))]


@wrong("values")
def start_and_length(shape, saved, wanted, part):
    def lengths(ranges):
        return [(start, stop - start) for start, stop in ranges]

    found = dim_by_dim(shape, saved, wanted, part)
    return [[chunk, lengths(a), lengths(b)] for chunk, a, b in found]


@wrong("values")
def stop_included(shape, saved, wanted, part):
    def closed(ranges):
        return [(start, stop - 1) for start, stop in ranges]

    found = dim_by_dim(shape, saved, wanted, part)
    return [[chunk, closed(a), closed(b)] for chunk, a, b in found]


@wrong("values")
def number_for_indices(shape, saved, wanted, part):
    """The chunks by one number each, as files on a disk."""
    numbers = {c: i for i, c in enumerate(itertools.product(*map(range, saved)))}
    found = dim_by_dim(shape, saved, wanted, part)
    return [[numbers[tuple(chunk)], a, b] for chunk, a, b in found]
