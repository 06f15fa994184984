"""What a device reads of an array that was saved in other parts than it takes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jaxpar.contracts.base import Call, Contract, wrong
from jaxpar.long_run.checkpoint_layout import Ranges, block_range, chunks_to_read

Numbers = Sequence[int]
Read = tuple[tuple[int, ...], Ranges, Ranges]


def _reads(rng: np.random.Generator) -> list[Call]:
    """All parts of small arrays; arrays that nothing divides; large ones; then what is refused."""

    def all_parts(shape: Numbers, saved: Numbers, wanted: Numbers) -> list[Call]:
        parts = itertools.product(*map(range, wanted))
        return [((tuple(shape), tuple(saved), tuple(wanted), part), {}) for part in parts]

    calls = [
        *all_parts((8,), (4,), (2,)),
        *all_parts((8,), (2,), (4,)),
        *all_parts((6,), (2,), (3,)),
    ]
    calls += all_parts((4, 4), (2, 2), (1, 1))
    calls += [*all_parts((4, 6), (2, 1), (1, 3)), *all_parts((4, 6), (4, 1), (2, 2))]
    # Blocks that are smaller, or empty, at the end; one element, no element, no dim.
    calls += [
        *all_parts((7,), (3,), (2,)),
        *all_parts((5,), (4,), (3,)),
        *all_parts((2,), (4,), (5,)),
    ]
    calls += [
        *all_parts((0, 4), (2, 2), (1, 2)),
        *all_parts((), (), ()),
        *all_parts((1,), (1,), (1,)),
    ]
    calls += [*all_parts((5, 7), (3, 2), (2, 4)), *all_parts((4, 4), (2, 2), (2, 2))]
    for dims in (1, 2, 3, 4):
        for _ in range(4):
            shape, saved, wanted = (rng.integers(1, high, dims).tolist() for high in (40, 6, 6))
            part = [int(rng.integers(n)) for n in wanted]
            calls.append(((tuple(shape), tuple(saved), tuple(wanted), tuple(part)), {}))
    for _ in range(3):
        shape = [int(n) for n in rng.integers(2**26, 2**40, 2)]
        saved, wanted = (rng.integers(2, 24, 2).tolist() for _ in range(2))
        part = [int(rng.integers(n)) for n in wanted]
        calls.append(((tuple(shape), tuple(saved), tuple(wanted), tuple(part)), {}))
    refused = [((8, 8), (2,), (2, 2), (0, 0)), ((8,), (2,), (2, 2), (0, 0))]
    refused += [((8,), (2,), (2,), (0, 0)), ((8, 8), (2, 2), (2,), (0, 0)), ((8,), (), (2,), (0,))]
    refused += [((-8,), (2,), (2,), (0,)), ((8,), (0,), (2,), (0,)), ((8,), (2,), (0,), (0,))]
    refused += [((8,), (-2,), (2,), (0,)), ((8,), (2,), (2,), (2,)), ((8,), (2,), (2,), (-1,))]
    refused += [((8, 0), (2, 1), (2, 2), (0, 2)), ((8,), (2,), (-2,), (-1,))]
    return [*calls, *((one, {}) for one in refused)]


CONTRACT = Contract(
    kind="value",
    task="return each chunk that has elements of the part, with what to read of it, and where to",
    reference=chunks_to_read,
    oracle=chunks_to_read,
    values=_reads,
    hints=(
        "Begin with one dim. Both the chunk and the part are a range of the array: which range do "
        "they have in common, and when is it empty?",
        "A block of a dim goes from min(i * b, size) to min((i + 1) * b, size), where b is "
        "ceil(size / blocks). Two ranges have in common what is between the larger start and the "
        "smaller stop. In several dims, take each dim by itself.",
        "For each chunk of itertools.product(*map(range, saved)): leave it out if any of its dims "
        "has nothing in common; else subtract the chunk's start from the common range for the "
        "first result, and the part's start for the second.",
    ),
    minimal="Each element of the part is in one chunk, and nothing else is read.",
    harder="Each chunk has a checksum, so it must be read whole to be checked. How many bytes does "
    "a device then read at most, for one that it needs?",
)


def _range(size: int, blocks: int, index: int) -> tuple[int, int]:
    return block_range(size, blocks, index)


def _common(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), min(one[1], other[1])


def _moved(ranges: Sequence[tuple[int, int]], by: Sequence[tuple[int, int]]) -> Ranges:
    return tuple((a - start, b - start) for (a, b), (start, _) in zip(ranges, by, strict=True))


def _found(
    shape: Numbers, saved: Numbers, wanted: Numbers, part: Numbers, *, cut: Callable = _range
) -> list[tuple[tuple[int, ...], list, list, list]]:
    """The chunks with a common range: their indices, their ranges, the common ones, the part's."""
    chunks_to_read(shape, saved, wanted, part)  # raises where it must
    own = [cut(*along) for along in zip(shape, wanted, part, strict=True)]
    found = []
    for chunk in itertools.product(*map(range, saved)):
        blocks = [cut(*along) for along in zip(shape, saved, chunk, strict=True)]
        both = [_common(a, b) for a, b in zip(blocks, own, strict=True)]
        if all(start < stop for start, stop in both):
            found.append((chunk, blocks, both, own))
    return found


@wrong("values")
def every_chunk_read(*arguments: Numbers) -> list[Read]:
    """You read every chunk; leave out those that have no element of the part."""
    shape, saved, *_ = arguments
    needed = {chunk: (a, b) for chunk, a, b in chunks_to_read(*arguments)}
    nothing = tuple((0, 0) for _ in shape)
    chunks = itertools.product(*map(range, saved))
    return [(chunk, *needed.get(chunk, (nothing, nothing))) for chunk in chunks]


@wrong("values")
def whole_chunks_read(*arguments: Numbers) -> list[Read]:
    """You read whole chunks; of each, read only the range that it has in common with the part."""
    _shape, _saved, *_ = arguments
    found = []
    for chunk, blocks, both, own in _found(*arguments):
        found.append((chunk, _moved(blocks, blocks), _moved(both, own)))
    return found


@wrong("values")
def ranges_of_the_array(*arguments: Numbers) -> list[Read]:
    """Your ranges count from the start of the array; count the first from the start of the chunk,
    and the second from the start of the part."""
    return [(chunk, tuple(both), tuple(both)) for chunk, _, both, _ in _found(*arguments)]


@wrong("values")
def place_in_the_array(*arguments: Numbers) -> list[Read]:
    """Your second ranges count from the start of the array; count them from the start of the
    part."""
    return [(c, _moved(both, blocks), tuple(both)) for c, blocks, both, _ in _found(*arguments)]


@wrong("values")
def read_from_the_array(*arguments: Numbers) -> list[Read]:
    """Your first ranges count from the start of the array; count them from the start of the
    chunk."""
    return [(c, tuple(both), _moved(both, own)) for c, _, both, own in _found(*arguments)]


@wrong("values")
def ranges_swapped(*arguments: Numbers) -> list[Read]:
    """You have swapped the two ranges: first comes the one in the chunk, then the one in the
    part."""
    return [(chunk, b, a) for chunk, a, b in chunks_to_read(*arguments)]


@wrong("values")
def same_grids_assumed(*arguments: Numbers) -> list[Read]:
    """You read the chunk that has the index of the part; the array may have been saved in another
    grid, where the part is in several chunks."""
    _, _, _, part = arguments
    return [one for one in chunks_to_read(*arguments) if one[0] == tuple(part)]


@wrong("values")
def grids_swapped(shape: Numbers, saved: Numbers, wanted: Numbers, part: Numbers) -> list[Read]:
    """You have swapped the grids: `saved` is that of the chunks, `wanted` that of the parts."""
    chunks_to_read(shape, saved, wanted, part)
    inside = tuple(min(i, n - 1) for i, n in zip(part, saved, strict=True))
    return chunks_to_read(shape, wanted, saved, inside)


@wrong("values")
def first_dim_fastest(shape: Numbers, saved: Numbers, wanted: Numbers, part: Numbers) -> list[Read]:
    """Your chunks are in another order; the last of their indices must change fastest."""
    found = chunks_to_read(shape, saved, wanted, part)
    return sorted(found, key=lambda read: read[0][::-1])


@wrong("values")
def dims_reversed(shape: Numbers, saved: Numbers, wanted: Numbers, part: Numbers) -> list[Read]:
    """The dims are in the wrong order; dim 0 comes first."""
    found = chunks_to_read(shape, saved, wanted, part)
    return [(chunk[::-1], a[::-1], b[::-1]) for chunk, a, b in found]


@wrong("values")
def first_dim_only(*arguments: Numbers) -> list[Read]:
    """You cut along dim 0 only; an array may be cut along any of its dims."""
    found = []
    for chunk, blocks, both, own in _found(*arguments):
        rest = tuple((0, size) for size in arguments[0][1:])
        found.append((
            chunk,
            _moved(both[:1], blocks[:1]) + rest,
            _moved(both[:1], own[:1]) + rest,
        ))  # fmt: skip
    return found


def _rounded_down(size: int, blocks: int, index: int) -> tuple[int, int]:
    block = size // blocks
    return index * block, (index + 1) * block


@wrong("values")
def remainder_lost(*arguments: Numbers) -> list[Read]:
    """Where the blocks do not divide a dim, its last elements are never read; a block has
    ceil(size / blocks) elements."""
    found = _found(*arguments, cut=_rounded_down)
    return [(c, _moved(both, blocks), _moved(both, own)) for c, blocks, both, own in found]


def _balanced(size: int, blocks: int, index: int) -> tuple[int, int]:
    return index * size // blocks, (index + 1) * size // blocks


@wrong("values")
def blocks_balanced(*arguments: Numbers) -> list[Read]:
    """Your blocks differ by one element at most, as those of np.array_split; here every block has
    ceil(size / blocks) elements, as far as there are any."""
    found = _found(*arguments, cut=_balanced)
    return [(c, _moved(both, blocks), _moved(both, own)) for c, blocks, both, own in found]


def _beyond(size: int, blocks: int, index: int) -> tuple[int, int]:
    block = -(-size // blocks)
    return index * block, (index + 1) * block


@wrong("values")
def beyond_the_end(*arguments: Numbers) -> list[Read]:
    """Your last block goes beyond the end of the array; it stops at its size, and so may be smaller
    or empty."""
    found = _found(*arguments, cut=_beyond)
    return [(c, _moved(both, blocks), _moved(both, own)) for c, blocks, both, own in found]


@wrong("values")
def empty_ranges_kept(*arguments: Numbers) -> list[Read]:
    """You keep chunks that only touch the part; where start and stop are equal, there is nothing
    to read."""
    chunks_to_read(*arguments)
    shape, saved, wanted, part = arguments
    own = [_range(*along) for along in zip(shape, wanted, part, strict=True)]
    found = []
    for chunk in itertools.product(*map(range, saved)):
        blocks = [_range(*along) for along in zip(shape, saved, chunk, strict=True)]
        both = [_common(a, b) for a, b in zip(blocks, own, strict=True)]
        if all(start <= stop for start, stop in both):
            found.append((chunk, _moved(both, blocks), _moved(both, own)))
    return found


@wrong("values")
def grids_not_checked(*arguments: Numbers) -> Any:
    """Raise ValueError where the arguments have different numbers of dims, a size is negative,
    there is less than 1 chunk or part, or there is no such part."""
    try:
        return chunks_to_read(*arguments)
    except ValueError:
        return []
