"""The roster, what was before a run, and how both reach what is written of a class."""

import re
from pathlib import Path

import pytest

from jaxpar.classroom.before import Before
from jaxpar.classroom.handins import Handin
from jaxpar.classroom.reports.write_all import write_all
from jaxpar.classroom.results import Results
from jaxpar.classroom.roster import read_roster
from tests.classroom.made_up_class import entries, made, rows_of, write


def test_difference_and_moved_survive_a_killed_run(tmp_path: Path) -> None:
    results, before = Results(tmp_path), Before(tmp_path)
    write(results, "anna", [made("scatter", "fail", "no")])
    write(results, "bert", [made("scatter", "fail", "no")])
    before.keep()
    write(results, "anna", [made("scatter")])
    before.keep()  # the run was killed, and begins again
    write(results, "bert", [made("scatter") | {"submission_hash": "another"}])
    write(results, "carl", [made("scatter")])
    seen = {entry.name: (entry.difference, entry.moved) for entry in entries(tmp_path)}
    assert seen == {"anna": (3, ("scatter",)), "bert": (3, ()), "carl": (None, ())}
    before.forget()
    assert {entry.difference for entry in entries(tmp_path)} == {None}


def test_the_difference_is_of_what_was_graded_both_times(tmp_path: Path) -> None:
    results = Results(tmp_path)
    results.write(Handin("anna"), [made("scatter", "fail", "no")], level=1)
    Before(tmp_path).keep()
    results.write(Handin("anna"), [made("scatter"), made("mean_over_devices")], level=1)
    assert [entry.difference for entry in entries(tmp_path)] == [3]


def test_a_roster_as_spreadsheets_write_it(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    rows = "Student;Name;Late Days;Shoe size;;\r\nanna;M\u00fcller, A;2;38\r\n;;;\r\n"
    rows += "e\u0301mile;;;\r\n"
    path.write_bytes(rows.encode("utf-8-sig"))
    roster = read_roster(path)
    anna = roster.person("anna")
    assert anna and (anna.name, anna.late_days) == ("M\u00fcller, A", 2)
    assert roster.person("\u00e9mile")  # the same letter, spelled in another way
    assert roster.absent(["anna"]) == ["e\u0301mile"]
    assert roster.unused == ("shoe_size",)


@pytest.mark.parametrize("inside", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_only_a_new_line_ends_a_row(tmp_path: Path, inside: str) -> None:
    path = tmp_path / "roster.csv"
    for end in ("\n", "\r\n", "\r"):
        rows = ("student,name,section", f"anna,Anna{inside}A,1", 'bert,"Bert\nB",2', "")
        path.write_bytes(end.join(rows).encode())
        people = read_roster(path).people
        assert [(p.name, p.section) for p in people.values()] == [
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


def test_students_beside_the_roster(tmp_path: Path) -> None:
    path = tmp_path / "roster.csv"
    path.write_text("student,name,id,section\nanna,Anna A,17,=B\n")
    for student in ("anna", "eve"):
        write(Results(tmp_path), student, [made("scatter")])
    found = write_all(entries(tmp_path, read_roster(path)))
    assert found.attention["not in the roster"].names == ["eve"]
    lines = rows_of(tmp_path / "canvas.csv")
    assert lines[2:] == [["Anna A", "", "17", "", "'=B", "10"]]


def test_who_has_no_result_any_more_has_no_page(tmp_path: Path) -> None:
    for student in ("anna", "eve"):
        write(Results(tmp_path), student, [made("scatter")])
    write_all(entries(tmp_path))
    assert len(list(tmp_path.rglob("*eve*"))) == 4
    mine = tmp_path / "gradescope" / "eve" / "mine.txt"
    mine.touch()
    (tmp_path / "students" / "eve.json").unlink()
    write_all(entries(tmp_path))
    assert [path for path in tmp_path.rglob("*") if "eve" in str(path)] == [mine.parent, mine]
    assert len(list(tmp_path.rglob("*anna*"))) == 4


def test_two_students_never_share_a_file(tmp_path: Path) -> None:
    names = ["\u00e9" * 40 + end for end in "ab"]
    for name in names:
        write(Results(tmp_path), name, [])
    assert len(list(tmp_path.glob("students/*.json"))) == 2
    assert Results(tmp_path).others(names[:1]) == [names[1]]
