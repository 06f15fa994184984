"""The roster is read as spreadsheets write it, and what is wrong in it is named."""

import re
from pathlib import Path

import pytest

from jaxpar.classroom.roster import read_roster


def test_a_roster_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    rows = "Student;Name;Late Days;Shoe size;;\r\nanna;M\u00fcller, A;2;38\r\n;;;\r\n"
    rows += "e\u0301mile;;;\r\n"
    path.write_bytes(rows.encode("utf-8-sig"))
    roster = read_roster(path)
    anna = roster.row_of("anna")
    assert anna and (anna.name, anna.late_days) == ("M\u00fcller, A", 2)
    assert roster.row_of("\u00e9mile")  # the same letter, spelled in another way
    assert roster.absent(["anna"]) == ["e\u0301mile"]
    assert roster.unused == ("shoe_size",)


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_a_new_line_ends_a_row(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "roster.csv"
    for end in ("\n", "\r\n", "\r"):
        rows = ("student,name,section", f"anna,Anna{inside}A,1", 'bert,"Bert\nB",2', "")
        path.write_bytes(end.join(rows).encode())
        read = read_roster(path).rows
        assert [(p.name, p.section) for p in read.values()] == [
            (f"Anna{inside}A", "1"),
            ("Bert\nB", "2"),
        ]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"name,id\nA,1\n", "must have `student`"),
        (b"", "no columns"),
        (b"student\nanna\nbert\nanna\n", "row 4: 'anna' is there twice"),
        (b"student,late_days\nanna,two\n", "late_days of anna is 'two'; write a whole number"),
        (b"student,late_days\nanna,-1\n", "write a whole number"),
        (b"student,name\nanna,A,B\n", "row 2 has 3 cells, the first line 2"),
        (b"student,name\n,A\n", "must be the name of a folder"),
        (b"student\n../anna\n", "must be the name of a folder"),
        (b"student,id,id\nanna,1,2\n", "two columns are called id"),
        (b"student,name\nanna,M\xfcller\n", "byte 19 is not UTF-8; save it as CSV in UTF-8"),
        (b'student,name\nanna,"A\n', "roster"),
        (None, "No such file"),
    ],
)
def test_a_wrong_roster_is_named(tmp_path: Path, data: bytes | None, words: str) -> None:
    path = tmp_path / "roster.csv"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(ValueError, match=re.escape(words)):
        read_roster(path)
