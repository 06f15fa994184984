"""`jaxpar schedule --search`: what it prints, writes and refuses."""

from pathlib import Path
from typing import Any

import pytest

from jaxpar.schedules.search import ONE_STAGE

SIZES = ["--stages", "3", "--microbatches", "5"]


def test_the_searched_schedule_is_drawn_and_compared(run: Any) -> None:
    ended = run("schedule", "--search", "--limit", "3")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("searched: 4 devices, 8 microbatches; F=1 I=1 W=1\n")
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    assert ["searched", "31", "24", "7", "22.6%", "7", "3", "on", "each"] in rows
    assert {row[0] for row in rows} >= set(ONE_STAGE)
    assert ended.out.endswith(
        "Limit: 3 in flight; over it: gpipe, 1f1b, zb-h1, zb-h2.\n"
        "Makespan found: 31.\n"
        "No schedule of one stage per device within the limit is shorter.\n"
    )
    assert all(len(line.rstrip()) <= 80 for line in ended.out.splitlines())


def test_the_limit_is_that_of_1f1b_unless_given(run: Any) -> None:
    ended = run("schedule", "--search", *SIZES, "--json").json
    assert (ended["limit"], max(ended["peak_in_flight"])) == (3, 3)
    assert ended["length"] == ended["least"] == ended["makespan"] == 3 * 5 + 2
    assert list(ended["named"]) == list(ONE_STAGE)
    assert ended["named"]["naive"]["makespan"] == 3 * 5 * 3


def test_a_lower_bound_is_shown_where_no_more_is_known(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jaxpar.schedules.search.EFFORT", 1000)
    ended = run("schedule", "--search", "--cost", "F=18,I=18,W=9,P=1")
    assert "Lower bound: 447; what was found is 1.3% above it." in ended.out


def test_the_longest_span_is_shortened(run: Any) -> None:
    ended = run("schedule", "--search", "--limit", "7", "--span")
    assert "Longest span found: 24." in ended.out
    assert run("schedule", "--search", "--limit", "7", "--span", "--json").json["span"]


@pytest.mark.parametrize(
    ("costs", "whole", "halves"), [("I=3,W=2", 5, 5), ("B=5", 5, 5), ("I=3,W=2,B=4", 4, 5)]
)
def test_a_whole_backward_takes_as_long_as_its_halves(
    run: Any, costs: str, whole: int, halves: int
) -> None:
    named = run("schedule", "--search", *SIZES, "--cost", costs, "--json").json["named"]
    assert named["1f1b"]["ideal"] == 5 * (1 + whole)
    assert named["zb-h1"]["ideal"] == 5 * (1 + halves)


def test_a_searched_schedule_is_written_and_read(run: Any, tmp_path: Path) -> None:
    table, picture = tmp_path / "found.csv", tmp_path / "found.svg"
    made = run("schedule", "--search", *SIZES, "--csv", str(table), "--svg", str(picture), "--json")
    read = run("schedule", "--from", str(table), "--json").json
    assert read.items() <= made.json.items()
    assert "searched: 3 devices, 5 microbatches" in picture.read_text()


def test_another_schedule_is_drawn_beneath(run: Any) -> None:
    ended = run("schedule", "--search", *SIZES, "--beside", "zb-h1")
    assert ended.out.count("\n zb-h1 ") == 1
    looped = ["--beside", "breadth-first", "--chunks", "3", "--json"]
    assert run("schedule", "--search", *SIZES, *looped).json["beside"]["ideal"] == pytest.approx(15)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--search", "1f1b"], "schedule: both --search and NAME; what is searched has one stage"),
        (["--search", "--from", "mine.csv"], "schedule: both --search and --from;"),
        (["--search", "--chunks", "2"], "schedule: both --search and --chunks;"),
        (["--search", "--limit", "0"], "--limit"),
        (["--search", "--microbatches", "9999"], "more than 10,000 forwards; use fewer"),
        (["1f1b", "--limit", "3"], "schedule: --limit without --search;"),
        (["1f1b", "--span"], "schedule: --span without --search;"),
    ],
)
def test_bad_use_is_told_and_ends_with_2(run: Any, arguments: list[str], line: str) -> None:
    ended = run("schedule", *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
