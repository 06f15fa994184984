"""`jaxpar schedule`: what it draws, reads, writes and refuses."""

from pathlib import Path
from typing import Any

import pytest

from jaxpar.cli import schedule
from jaxpar.schedules import NAMES

TABLE = "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(TABLE)
    return path


def test_help_names_every_schedule():
    assert schedule.NAMES.split(", ") == list(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_schedule_is_drawn(run: Any, name: str) -> None:
    ended = run("schedule", name, "--stages", "3", "--microbatches", "6")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith(f"{name}: 3 devices, ")
    assert f"{name}, published: idle " in ended.out


def test_json(run: Any) -> None:
    ended = run("schedule", "1f1b", "--stages", "4", "--microbatches", "8", "--json")
    assert ended.json == {
        "makespan": 33,
        "ideal": 24,
        "bubble": pytest.approx(9 / 33),
        "bubble_per_device": [pytest.approx(9 / 33)] * 4,
        "peak_in_flight": [4, 3, 2, 1],
        "valid": True,
    }


def test_costs_are_per_cell(run: Any) -> None:
    arguments = ["--stages", "2", "--microbatches", "2", "--cost", "B=1.5, P=0.25", "--json"]
    assert run("schedule", "gpipe", *arguments).json["makespan"] == 3 * 2.5 + 2 * 0.25
    assert run("schedule", "interleaved", "--chunks", "3", "--json").json["ideal"] == 3 * 8 * 3


def test_a_table_travels_through_a_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    made = run("schedule", "zb-h1", "--csv", str(path), "--json")
    assert path.read_text().startswith("0F0,0F1,0F2,0F3,,,,0I0,0W0,")
    assert run("schedule", "--from", str(path), "--json").json == made.json
    assert "out.csv: 4 devices, 8 microbatches" in run("schedule", "--from", str(path)).out


def test_a_table_is_compared_with_the_paper_that_is_named(run: Any, table: Path) -> None:
    assert "published" not in run("schedule", "--from", str(table)).out
    assert "1f1b, published:" in run("schedule", "1f1b", "--from", str(table)).out


def test_a_drawing_goes_to_a_file(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "out.svg"
    assert run("schedule", "1f1b", "--beside", "interleaved", "--svg", str(path)).code == 0
    assert "interleaved: 4 devices, 2 chunks, 8 microbatches; F=0.5 B=1" in path.read_text()


def test_one_beneath_the_other(run: Any) -> None:
    ended = run("schedule", "1f1b", "--beside", "interleaved", "--chunks", "4", "--json")
    assert ended.json["makespan"] == 33
    assert ended.json["beside"]["makespan"] == 24 + 9 / 4
    drawn = run("schedule", "gpipe", "--beside", "1f1b").out
    assert drawn.index("\ndevice 0  F0F1F2F3F4") < drawn.index("\ndevice 0  F0F1F2F3...")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ([], "schedule: no NAME and no --from FILE; give one of naive, "),
        (["2f2b"], "schedule: 2f2b is unknown; use one of naive, "),
        (["2f2b", "--from", "mine.csv"], "schedule: 2f2b is unknown"),
        (["gpipe", "--beside", "2f2b"], "schedule: 2f2b is unknown"),
        (["interleaved", "--microbatches", "6"], "microbatches is 6; it must be a multiple of"),
        (["1f1b", "--chunks", "2"], "1f1b has 1 on each device; leave chunks out"),
        (["1f1b", "--stages", "600", "--microbatches", "600"], "more than 300,000 forwards"),
        (["1f1b", "--cost", "F=1,X=2"], "'X=2' is no cost"),
        (["1f1b", "--cost", "F=1,F=2"], "'F=2' is no cost"),
        (["1f1b", "--cost", "F=two"], "'F=two' is no cost"),
        (["1f1b", "--cost", "F=-1"], "schedule: F is -1"),
        (["1f1b", "--cost", "F=inf"], "schedule: F is inf"),
        (["1f1b", "--cost", "F=0,B=0"], "the cells of 1f1b take no time"),
        (["--from", "nowhere.csv"], "nowhere.csv: No such file or directory"),
        (["--from", "binary.csv"], "binary.csv: it is not text"),
        (["--from", "mine.csv", "--csv", "out.csv"], "both --from and --csv"),
        (["--from", "mine.csv", "--stages", "4"], "has 2 devices, and --stages says 4"),
        (["--from", "mine.csv", "--microbatches", "3"], "and --microbatches says 3"),
        (["1f1b", "--csv", "mine.csv/out.csv"], "schedule: mine.csv/out.csv: "),
        (["1f1b", "--svg", "."], "give a file that can be written"),
    ],
)
@pytest.mark.usefixtures("table")
def test_bad_use_is_one_line_and_ends_with_2(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("binary.csv").write_bytes(b"\xff\x00")
    ended = run("schedule", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["binary.csv", "mine.csv"]


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("1F1", "1G1", "row 2 (device 1), cell 3: '1G1' is not an action"),
        ("1F1", "1F0", "row 2 (device 1), cell 3 (1F0)"),
        ("1B0,1F1", "1F1,1B1,1B0", "row 2 (device 1), cell "),
        ("0F0,0F1", "0F0", "row 1 (device 0), cell "),
        ("0F0,0F1,0B0", "0F0,0B0,0F1", ""),
        ("1F0,1B0,1F1", "1F1,1F0,1B0", ""),
        ("0B0", "0I0", "row 1 (device 0), cell 3 (0I0): 0W0 is missing"),
    ],
)
def test_a_broken_table_is_one_line_with_row_and_cell(
    run: Any, table: Path, old: str, new: str, place: str
) -> None:
    table.write_text(TABLE.replace(old, new))
    ended = run("schedule", "--from", str(table))
    if not place:  # another order that can run
        assert ended.code == 0
        return
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"{table}: {place}")
    assert ended.err.count("\n") == 1
    as_json = run("schedule", "--from", str(table), "--json")
    assert as_json.code == 2
    assert as_json.json == {"valid": False, "error": ended.err.strip()}


def test_an_order_that_cannot_run_is_shown(run: Any, table: Path) -> None:
    table.write_text("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1\n")
    ended = run("schedule", "--from", str(table))
    assert ended.code == 2
    assert "can never run" in ended.err and "waits at cell" in ended.err


def test_a_file_of_a_spreadsheet_is_read(run: Any, table: Path) -> None:
    table.write_bytes(b"\xef\xbb\xbf" + TABLE.replace("\n", "\r\n").encode())
    assert run("schedule", "--from", str(table), "--json").json["valid"]


def test_a_large_table_is_summed_up_quickly(run: Any) -> None:
    ended = run("schedule", "1f1b", "--stages", "16", "--microbatches", "64", "--json")
    assert ended.json["makespan"] == (64 + 15) * 3
    assert ended.json["peak_in_flight"] == list(range(16, 0, -1))
