"""Text to train on: what is read, and which batches come of it."""

import itertools
import os
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.sharding import NamedSharding

from jaxpar.mesh import make_mesh, spec
from jaxpar.train import text
from jaxpar.train.text import (
    batches,
    check_same,
    hold_out,
    read_data,
    read_library,
    spread_batches,
)

SENTENCE = np.arange(100, dtype=np.uint8)  # 9 examples of 11 bytes


def drawn(mesh: str, count: int, seed: int = 0) -> list[np.ndarray]:
    sharding = NamedSharding(make_mesh(mesh), spec("b_dp t"))
    taken = itertools.islice(batches(SENTENCE, sharding, batch=6, sequence=11, seed=seed), count)
    return [np.asarray(batch) for batch in taken]


def test_the_library_is_python_and_the_same_each_time() -> None:
    found = read_library()
    assert found.dtype == np.uint8
    assert 1_000_000 < len(found) <= text.LIBRARY_BYTES
    assert found[:100_000].tobytes().decode()
    assert np.array_equal(found, read_library())


def test_the_library_is_read_in_order_without_what_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("b.py", "a.py", "c.txt", "json/x.py", "ast/y.py", "site-packages/z.py", "test/t.py")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(path.stem)
    monkeypatch.setattr(text.sysconfig, "get_path", lambda _: str(tmp_path))
    assert read_library().tobytes() == b"abyx"
    monkeypatch.setattr(text, "LIBRARY_BYTES", 2)
    assert read_library().tobytes() == b"ab"
    monkeypatch.setattr(text.sysconfig, "get_path", lambda _: str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match=r"found 0 Python sources in .*nowhere.*--data PATH"):
        read_library()


def test_a_file_is_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("\u00e9\n".encode() + b"\xff\x00")
    assert read_data(path).tolist() == [0xC3, 0xA9, 0x0A, 0xFF, 0x00]


def test_a_folder_is_its_text_files_in_the_order_of_their_paths(tmp_path: Path) -> None:
    names = ("b.txt", "a/z.py", "a/B.md", "a-b", "a/c/.d/secret", ".hidden", "a/empty", "\u00e9")
    for name in names:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("" if path.name == "empty" else f"{name} ", encoding="utf-8")
    (tmp_path / "a" / "picture").write_bytes(b"\x89PNG\0\0")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    expected = "a-b a/B.md a/z.py b.txt \u00e9 "
    assert read_data(tmp_path).tobytes().decode() == expected
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("main")
    assert read_data(tmp_path / ".git").tobytes() == b"main"


def test_a_file_of_a_folder_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("text")

    def refuse(path: Path, _: str) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(ValueError, match=rf"text: {tmp_path}/a: Permission denied; give a file"):
        read_data(tmp_path)


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "binary").write_bytes(b"a\0b")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name, reason in (
        ("nowhere", "No such file"),
        ("folder", "of its 1 files that are not hidden, none has any text"),
        ("pipe", "device or a pipe"),
        ("loop", "symbolic links"),
    ):
        with pytest.raises(ValueError, match=rf"text: {tmp_path / name}: .*{reason}.*; give a"):
            read_data(tmp_path / name)


def test_processes_with_different_texts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    for others, same in (([1, 1], True), ([1, 2], False)):
        gathered = np.array(others, np.uint32)
        monkeypatch.setattr(text.multihost_utils, "process_allgather", lambda _, g=gathered: g)
        if same:
            check_same(SENTENCE)
        else:
            with pytest.raises(ValueError, match=r"2 different texts, by checksums \[1, 2\]"):
                check_same(SENTENCE)


def test_a_tokenizer_counts_as_a_part_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[int] = []
    monkeypatch.setattr(jax, "process_count", lambda: 2)
    monkeypatch.setattr(
        text.multihost_utils, "process_allgather", lambda one: sums.append(int(one)) or one[None]
    )
    for tokenizer in (b"", b"one", b"other", b"one"):
        check_same(SENTENCE, tokenizer)
    assert len(set(sums)) == 3
    assert sums[1] == sums[3]


def test_an_epoch_takes_each_example_once_and_epochs_differ() -> None:
    rows = np.concatenate(drawn("dp=1", 6))  # 4 epochs
    starts = (rows[:, 0] // 11).reshape(4, 9)
    assert all(sorted(epoch) == list(range(9)) for epoch in starts.tolist())
    assert len({tuple(epoch) for epoch in starts.tolist()}) == 4
    assert np.array_equal(rows, rows[:, :1] + np.arange(12)[None])


def test_every_mesh_sees_the_same_batches_and_every_seed_others() -> None:
    one, three = drawn("dp=1", 4), drawn("dp=3", 4)
    assert np.array_equal(one, three)
    assert not np.array_equal(one, drawn("dp=1", 4, seed=1))


@pytest.mark.parametrize("consumed", [6, 9, 18, 24])
def test_what_was_consumed_is_not_drawn_again(consumed: int) -> None:
    sharding = NamedSharding(make_mesh("dp=1"), spec("b_dp t"))
    rest = batches(SENTENCE, sharding, batch=3, sequence=11, seed=0, consumed=consumed)
    whole = batches(SENTENCE, sharding, batch=3, sequence=11, seed=0)
    skipped = itertools.islice(whole, consumed // 3, consumed // 3 + 5)
    assert np.array_equal(list(itertools.islice(rest, 5)), list(skipped))


def test_batches_of_several_sizes_take_the_same_examples_in_order() -> None:
    sharding = NamedSharding(make_mesh("dp=2"), spec("b_dp t"))
    grown = batches(SENTENCE, sharding, batch=4, sequence=11, seed=0, sizes=iter([2, 2, 4, 4]))
    found = [np.asarray(batch) for batch in grown]
    assert [len(batch) for batch in found] == [2, 2, 4, 4]
    assert np.array_equal(np.concatenate(found), np.concatenate(drawn("dp=1", 2)))


def test_a_device_holds_its_rows_only() -> None:
    sharding = NamedSharding(make_mesh("dp=3"), spec("b_dp t"))
    batch = next(batches(SENTENCE, sharding, batch=6, sequence=11, seed=0))
    assert batch.dtype == "int32"
    assert {shard.data.shape for shard in batch.addressable_shards} == {(2, 12)}
    assert len({shard.device for shard in batch.addressable_shards}) == 3


def test_the_end_of_a_text_is_held_out() -> None:
    for fraction, held in ((0.05, 5), (0.999, 100), (0.0, 0)):
        training, held_out = hold_out(SENTENCE, fraction)
        assert len(held_out) == held
        assert np.array_equal(np.concatenate([training, held_out]), SENTENCE)


def test_a_character_is_not_cut() -> None:
    characters = np.frombuffer(("\u20ac" * 10).encode(), np.uint8)  # 3 bytes each
    assert [len(hold_out(characters, n / 30)[1]) for n in range(7)] == [0, 0, 0, 3, 3, 3, 6]
    following = np.full(10, 0x80, np.uint8)  # no text at all
    assert len(hold_out(following, 0.5)[1]) == 2


@pytest.mark.parametrize(
    ("batch", "most", "numbers"),
    [(2, 2, [0, 2, 4, 6]), (2, 9, range(8)), (4, 9, range(8)), (9, 1, range(9)), (3, 1, [0, 3, 6])],
)
def test_batches_are_spread_evenly(batch: int, most: int, numbers: list[int]) -> None:
    sharding = NamedSharding(make_mesh("dp=1"), spec("b_dp t"))
    found = spread_batches(SENTENCE, sharding, batch=batch, sequence=11, most=most)
    assert {one.shape for one in found} == {(batch, 12)}
    rows = np.concatenate(found)
    assert (rows[:, 0] // 11).tolist() == list(numbers)
    assert np.array_equal(rows, rows[:, :1] + np.arange(12)[None])


@pytest.mark.parametrize(("length", "examples"), [(0, 0), (1, 0), (66, 5)])
def test_a_text_too_short_for_a_batch_is_refused_at_once(length: int, examples: int) -> None:
    sharding = NamedSharding(make_mesh("dp=1"), spec("b_dp t"))
    with pytest.raises(ValueError, match=rf"{length} bytes make {examples} .* of 67 bytes or more"):
        batches(SENTENCE[:length], sharding, batch=6, sequence=11, seed=0)
    assert next(batches(SENTENCE[:67], sharding, batch=6, sequence=11, seed=0)).shape == (6, 12)
