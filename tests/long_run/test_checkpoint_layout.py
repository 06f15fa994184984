"""Damage to a checkpoint is seen, and each device reads its part of an array, each byte once."""

import zlib
from itertools import product, starmap

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpar.long_run.checkpoint_layout import (
    block_range,
    chunks_to_read,
    fingerprint,
    newest_whole,
)

BYTES = b"parameters"
WRITTEN = {"a": fingerprint(BYTES)}
DIM = st.tuples(st.integers(0, 9), st.integers(1, 5), st.integers(1, 5))


def test_a_fingerprint_is_the_size_and_the_crc32() -> None:
    assert fingerprint(BYTES) == (10, zlib.crc32(BYTES))


@pytest.mark.parametrize("changed", [b"parameterz", b"parameter", b"", BYTES + b"s"])
def test_a_damaged_checkpoint_is_passed_over(changed: bytes) -> None:
    found = {"step_9": WRITTEN, "step_10": {"a": fingerprint(changed)}}
    manifests = {"step_9": WRITTEN, "step_10": WRITTEN}
    assert newest_whole(found, manifests) == 9
    assert newest_whole(found | {"step_10": WRITTEN}, manifests) == 10
    assert newest_whole(found | {"step_10": WRITTEN}, {"step_10": WRITTEN}) == 10


@pytest.mark.parametrize("folder", ["step_10.tmp", "step_010", "old_step_10", "step_", "step_1_0"])
def test_folders_of_other_names_are_no_checkpoints(folder: str) -> None:
    assert newest_whole({folder: WRITTEN}, {folder: WRITTEN}) is None


def test_what_is_incomplete_is_not_taken() -> None:
    assert newest_whole({"step_1": WRITTEN}, {}) is None
    assert newest_whole({"step_1": {}}, {"step_1": WRITTEN}) is None
    assert newest_whole({"step_1": WRITTEN | {"more": (1, 2)}}, {"step_1": WRITTEN}) == 1


@given(st.lists(DIM, max_size=3), st.data())
def test_a_part_is_put_together_from_its_chunks(dims: list, data: st.DataObject) -> None:
    shape, saved, wanted = (tuple(dim[k] for dim in dims) for k in range(3))
    part = tuple(data.draw(st.integers(0, parts - 1)) for parts in wanted)
    whole = np.arange(np.prod(shape, dtype=int)).reshape(shape)
    chunks = {chunk: whole[block(shape, saved, chunk)] for chunk in product(*map(range, saved))}
    right = whole[block(shape, wanted, part)]
    filled, times = np.full(right.shape, -1), np.zeros(right.shape, int)
    for chunk, inside, here in chunks_to_read(shape, saved, wanted, part):
        filled[slices(here)] = chunks[chunk][slices(inside)]
        times[slices(here)] += 1
    np.testing.assert_array_equal(filled, right)
    assert (times == 1).all()


def block(shape, blocks, index):
    return slices(block_range(*along) for along in zip(shape, blocks, index, strict=True))


def slices(ranges):
    return tuple(starmap(slice, ranges))


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (((4, 4), (2,), (2, 2), (0, 0)), "give one number for each dim"),
        (((-4,), (2,), (2,), (0,)), "give sizes from 0"),
        (((4,), (0,), (2,), (0,)), "1 chunk or more"),
        (((4,), (2,), (2,), (2,)), "part 2 must be from 0 to 1"),
    ],
)
def test_numbers_that_cannot_be_are_refused(args: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=f"chunks_to_read: .*{message}"):
        chunks_to_read(*args)
