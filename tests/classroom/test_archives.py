"""Zip files are read in memory: they reach nothing, fill nothing, and hide nothing."""

import io
import stat
import struct
import zipfile
from pathlib import Path

import pytest

from jaxpar.classroom import archives, handin_entries
from jaxpar.classroom.downloads import submissions_in
from jaxpar.classroom.handins import MISSING, Handin, read_handin

WANTED = ["gather", "scatter"]


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def linked(name: str, target: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        link = zipfile.ZipInfo(name)
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, target)
    return buffer.getvalue()


def encrypted(data: bytes) -> bytes:
    """Says of the first member that it is encrypted, in both of its headers."""
    made = bytearray(data)
    for signature, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
        at = made.index(signature) + place
        made[at : at + 2] = struct.pack("<H", 1)
    return bytes(made)


@pytest.fixture
def hand_in(tmp_path: Path):
    """Reads a zip file that anna handed in, in a folder that nothing else is written to."""

    def read(data: bytes) -> Handin:
        folder = tmp_path / "class" / "anna"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "handin.zip").write_bytes(data)
        before = sorted(tmp_path.rglob("*"))
        with submissions_in(tmp_path / "class") as found:
            handin = read_handin(found.works[0], WANTED)
        assert sorted(tmp_path.rglob("*")) == before
        return handin

    return read


@pytest.mark.parametrize(
    "name",
    [
        "scatter.py", "exercises/02_collectives/scatter.py", "/scatter.py", "../../scatter.py",
        "C:\\lab\\scatter.py", "./a/../scatter.py",
    ],
)  # fmt: skip
def test_an_answer_is_found_under_any_path_and_leads_nowhere(hand_in, name: str) -> None:
    assert hand_in(zipped({name: b"x = 1\n"})).files["scatter"].source == b"x = 1\n"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"no zip", "a zip file that cannot be opened"),
        (zipped({"scatter.py": b"x"})[:-30], "a zip file that cannot be opened"),
        (linked("scatter.py", "/etc/passwd"), "handin.zip/scatter.py (a link)"),
        (linked("exercises", "/etc"), "handin.zip/exercises (a link)"),
        (encrypted(zipped({"scatter.py": b"x"})), "encrypted in its zip file"),
        (zipped({"scatter.py": b"x" * 99}, zipfile.ZIP_LZMA), "another method than deflate"),
        (zipped({"scatter.py": b"0" * 10**8}), "larger than 256000 bytes"),
        (zipped({"scatter.py": b"1 + 1"}, 0).replace(b"1 + 1", b"1 + 2", 1), "broken"),
        (zipped({"1/2/3/4/5/scatter.py": b"x"}), "more than 4 folders deep"),
        (zipped({"lab.7z": b"x"}), "only zip files are opened"),
        (zipped({"a/scatter.py": b"1", "b/scatter.py": b"2"}), "handed in twice"),
    ],
    ids=[  # the data has the time in it, which two processes do not share
        "no zip", "cut", "link", "linked folder", "encrypted", "lzma", "bomb", "broken", "deep",
        "7z", "twice",
    ],
)  # fmt: skip
def test_whatever_is_wrong_with_a_zip_file_is_told(hand_in, data: bytes, words: str) -> None:
    handin = hand_in(data)
    assert not handin.files
    assert words in handin.refused["scatter"]


def test_zip_files_in_zip_files_are_opened_twice_over(hand_in) -> None:
    data = zipped({"scatter.py": b"x = 1\n"})
    for name in ("one.zip", "two.zip"):
        data = zipped({name: data})
        handin = hand_in(data)
        if name == "one.zip":
            assert list(handin.files) == ["scatter"]
    assert "handin.zip/two.zip/one.zip (a zip file within 2 others)" in handin.refused["scatter"]


def test_what_computers_add_is_no_answer(hand_in) -> None:
    handin = hand_in(zipped({"scatter.py": b"x = 1\n", "__MACOSX/gather.py": b"x"}))
    assert list(handin.files) == ["scatter"]
    assert handin.refused == {"gather": MISSING}


def test_a_flood_of_members_ends(hand_in, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handin_entries, "MOST_ENTRIES", 30)
    handin = hand_in(zipped({f"{i:03}.txt": b"" for i in range(40)} | {"scatter.py": b"x"}))
    assert "more than 30 files" in handin.refused["scatter"]


def test_a_large_zip_file_is_not_read(hand_in, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MOST_BYTES", 100)
    handin = hand_in(zipped({"scatter.py": bytes(range(256))}, 0))
    assert "handin.zip (larger than 100 bytes)" in handin.refused["scatter"]


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_no_broken_zip_file_breaks_the_reader(hand_in, cut: int) -> None:
    data = bytearray(zipped({"scatter.py": b"x = 1\n", "lab/gather.py": b"y = 2\n" * 20}))
    cut %= len(data)
    data[cut : cut + 4] = b"\xff\xfe\xff\x7f"
    handin = hand_in(bytes(data))
    assert set(handin.files) | set(handin.refused) == set(WANTED)
