"""Documents: parquet, JSON Lines and saved datasets become one text, with an end after each."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxpar.train import documents, tokenizer
from jaxpar.train.text import hold_out, read_data

DOCUMENTS = ["one", "zwei \u00e9", "", None, "three\nlines\n"]
EXPECTED = "one|zwei \u00e9|three\nlines\n|".encode().replace(b"|", b"\xff")


def as_lines(path: Path, name: str = "text", **others: Any) -> Path:
    rows = [{**others, name: text} for text in DOCUMENTS]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def as_table(name: str = "text", **others: list) -> Any:
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table({**others, name: DOCUMENTS})


def as_parquet(path: Path, name: str = "text", **others: list) -> Path:
    table = as_table(name, **others)
    from pyarrow import parquet

    parquet.write_table(table, path, row_group_size=2)
    return path


def as_dataset(folder: Path) -> Path:
    """A folder as `datasets.Dataset.save_to_disk` of version 4 writes it, with two shards."""
    table = as_table()
    import pyarrow

    folder.mkdir(parents=True)
    names = [f"data-{number:05}-of-00002.arrow" for number in range(2)]
    for name, part in zip(names, (table[:2], table[2:]), strict=True):
        with pyarrow.ipc.new_stream(folder / name, table.schema) as stream:
            stream.write_table(part)
    state = {"_data_files": [{"filename": name} for name in names], "_fingerprint": "f"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


@pytest.mark.parametrize("form", [as_lines, as_parquet])
@pytest.mark.parametrize(
    ("name", "others"), [("text", {"url": ["u"] * 5}), ("content", {"score": [1] * 5})]
)
def test_the_column_is_named_text_or_is_the_only_one(
    form: Any, name: str, others: dict, tmp_path: Path
) -> None:
    others = {key: one[0] for key, one in others.items()} if form is as_lines else others
    suffix = ".jsonl" if form is as_lines else ".parquet"
    path = form(tmp_path / f"data{suffix}", name, **others)
    assert read_data(path).tobytes() == EXPECTED


@pytest.mark.parametrize("form", [as_lines, as_parquet])
def test_several_columns_with_text_are_listed(form: Any, tmp_path: Path) -> None:
    others = {"title": "t"} if form is as_lines else {"title": ["t"] * 5}
    path = form(tmp_path / ("a.jsonl" if form is as_lines else "a.parquet"), "body", **others)
    line = rf"text: {path} has the columns title, body, of which 2 have text and none is named text"
    with pytest.raises(ValueError, match=line):
        read_data(path)


def test_a_dataset_saved_on_disk_is_its_shards_in_order(tmp_path: Path) -> None:
    train = as_dataset(tmp_path / "all" / "train")
    assert read_data(train).tobytes() == EXPECTED
    (tmp_path / "all" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(ValueError, match=rf"has the datasets train, test; give one .*{train}"):
        read_data(tmp_path / "all")


def test_a_folder_joins_files_of_every_kind(tmp_path: Path) -> None:
    as_lines(tmp_path / "b.jsonl")
    as_parquet(tmp_path / "c.parquet")
    (tmp_path / "a.txt").write_text("plain")
    (tmp_path / "picture").write_bytes(b"PNG\0")
    assert read_data(tmp_path).tobytes() == b"plain\xff" + EXPECTED + EXPECTED
    (tmp_path / "a.txt").write_text("other")  # the cache knows it
    assert read_data(tmp_path).tobytes() == b"other\xff" + EXPECTED + EXPECTED


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = tmp_path / "a.jsonl"
    for text, reason in (
        ('{"text": "a"}\n{"text"', "line 2: Expecting ':'"),
        ("3\n", "line 1 is no object"),
        ('{"text": "a"}\n{"text": 3}', "line 2: text is 3, and no text"),
    ):
        lines.write_text(text)
        with pytest.raises(ValueError, match=rf"text: {lines}: {reason}"):
            read_data(lines)
    parquet = as_parquet(tmp_path / "a.parquet")
    parquet.write_bytes(parquet.read_bytes()[:-8])
    with pytest.raises(ValueError, match=rf"text: {parquet}: Parquet magic bytes not found.*; giv"):
        read_data(parquet)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "state.json").write_text('{"_data_files": [{"filename": "x.arrow"}]}')
    with pytest.raises(ValueError, match=r"none/x\.arrow: No such file"):
        read_data(tmp_path / "none")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match="pyarrow is not installed; run pip install pyarrow"):
        read_data(parquet)


def test_ends_are_found_wherever_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "PART_BYTES", 4)
    for place in range(9):
        text = np.zeros(9, np.uint8)
        assert not documents.has_ends(text)
        text[place] = 0xFF
        assert documents.has_ends(text)


def made_tokenizer(end: list[str]) -> tokenizer.Tokenizer:
    """A tokenizer of characters, which joins "a" to "b"."""
    tokenizers = pytest.importorskip("tokenizers")
    known = {word: number for number, word in enumerate(["a", "b", "c", "\u00e9", "ab"])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(known, [("a", "b")]))
    made.add_special_tokens(end)
    return tokenizer.Tokenizer(Path("made"), made.to_str().encode(), made)


def test_documents_become_tokens_with_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.frombuffer(b"ab\xffa\xffb\xff" * 9 + "ab\u00e9".encode()[:-1], np.uint8)
    with_end, without = made_tokenizer(["</s>"]), made_tokenizer([])
    monkeypatch.setattr(tokenizer, "PART_BYTES", 4)
    for made, expected in ((with_end, [4, 5, 0, 5, 1, 5]), (without, [4, 0, 1])):
        assert made.encode(text).tolist() == expected * 9 + [4]
    for part in hold_out(text, 0.5):
        assert 0 < len(with_end.encode(part)) < 6 * 9
    wrong = np.frombuffer(b"ab\xffa\xfe\xffb", np.uint8)
    with pytest.raises(ValueError, match="text: byte 4 is not UTF-8"):
        with_end.encode(wrong)


def test_tokens_are_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    text = np.frombuffer(b"abc\xffcab\xff", np.uint8)
    made = made_tokenizer(["<eos>"])
    tokens = made.encode(text)

    def fail(*_: Any) -> bytes:
        raise AssertionError("tokens are made again")

    monkeypatch.setattr(tokenizer.Tokenizer, "_encode", fail)
    assert made.encode(text.copy()).tolist() == tokens.tolist()
    with pytest.raises(AssertionError):
        made.encode(text[:-1])
    with pytest.raises(AssertionError):
        made_tokenizer(["</s>"]).encode(text)
