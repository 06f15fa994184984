"""`jaxpar inspect --diff`: what differs between two reports."""

import json
from pathlib import Path
from typing import Any

import pytest

from jaxpar.inspector import Collective, Memory, Report


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def sent(kind: Any = "all_reduce", axes: tuple[str, ...] = ("dp",), **rest: Any) -> Collective:
    given = {"group_size": 8, "dtype": "float32", "operand_bytes": 4096, "wire_bytes": 7168}
    return Collective(kind=kind, axes=axes, **given | rest)


def write(name: str, *collectives: Collective, flops: int | None = 0, **memory: int) -> None:
    held = {f"{part}_bytes": 0 for part in ("arguments", "outputs", "aliases", "temp", "constants")}
    report = Report(collectives, flops, Memory(**held | memory))
    Path(name).write_text(json.dumps(report.to_dict()))


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_what_rose_what_fell_and_what_stayed(run: Any) -> None:
    tp = sent("all_gather", ("dp", "tp"), wire_bytes=2.5)
    write("a.json", sent(times=2), sent(), tp, flops=10, temp_bytes=200, outputs_bytes=8)
    write("b.json", sent(times=4), tp, sent("permute"), flops=10, temp_bytes=100, outputs_bytes=8)
    ended = run("inspect", "--diff", "a.json", "b.json")
    head, rule, *rows, _, summary = ended.out.splitlines()
    assert cells(head) == ["", "before", "after", "change"]
    assert set(rule) <= set("|-: ")
    assert [cells(row) for row in rows] == [
        ["temp: bytes", "200", "100", "-50.0%"],
        ["total: bytes", "208", "108", "-48.1%"],
        ["all_reduce over dp: times", "3", "4", "+33.3%"],
        ["all_reduce over dp: bytes", "21,504", "28,672", "+33.3%"],
        ["permute over dp: times", "0", "1", "new"],
        ["permute over dp: bytes", "0", "7,168", "new"],
    ]
    assert summary == "Rose: 4. Fell: 2."
    assert ended.code == 1


def test_a_program_that_sends_less_ends_with_0(run: Any) -> None:
    write("a.json", sent(), sent("permute"), temp_bytes=4, aliases_bytes=0)
    write("b.json", sent(), temp_bytes=4, aliases_bytes=2)
    ended = run("inspect", "--diff", "a.json", "b.json")
    assert ended.out.splitlines()[-1] == "Rose: 0. Fell: 3."
    assert "gone" in ended.out
    assert ended.code == 0
    assert run("inspect", "--diff", "b.json", "a.json").code == 1
    same = run("inspect", "--diff", "b.json", "b.json")
    assert (same.code, same.out) == (0, "Nothing changed.\n")
    assert run("inspect", "--diff", "b.json", "b.json", "--json").json == []


def test_what_is_not_known_before_the_program_runs_is_more_than_any_number(run: Any) -> None:
    write("a.json", sent(), flops=5)
    write("b.json", sent(times=None), flops=None)
    ended = run("inspect", "--diff", "a.json", "b.json")
    assert ["flops", "5", "?", "?"] in map(cells, ended.out.splitlines())
    assert ended.code == 1
    ended = run("inspect", "--diff", "b.json", "a.json", "--json")
    flops = {"figure": "flops", "before": None, "after": 5, "rose": False}
    assert flops in ended.json
    assert ended.code == 0


def test_large_numbers_fit_into_80_columns(run: Any) -> None:
    large = {"flops": 10**15, "temp_bytes": 79 * 10**9}
    axes = ("fsdp", "ep", "tp")
    write("a.json")
    write("b.json", sent("reduce_scatter", axes, wire_bytes=10**12 + 1), **large)
    out = run("inspect", "--diff", "a.json", "b.json").out
    assert max(map(len, out.splitlines())) <= 80
    assert ["temp: bytes", "0", "79.0 G", "new"] in map(cells, out.splitlines())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file or directory; give the file of a report"),
        ("", "holds no report; write one with `jaxpar inspect FILE:FUNCTION --json"),
        ("[]", "holds no report"),
        ('{"error": "inspect: it failed"}', "holds no report"),
        ('{"collectives": [{}], "flops": 0, "memory": null}', "holds no report"),
        ('{"collectives": [], "flops": "many", "memory": null}', "holds no report"),
    ],
)
def test_a_file_that_is_no_report(text: str | None, reason: str, run: Any) -> None:
    write("a.json")
    if text is not None:
        Path("b.json").write_text(text)
    for files in (("a.json", "b.json"), ("b.json", "a.json")):
        ended = run("inspect", "--diff", *files)
        assert ended.code == 2
        assert ended.err.startswith("inspect: b.json")
        assert reason in ended.err
        assert len(ended.err.splitlines()) == 1


def test_either_a_program_or_two_reports(run: Any) -> None:
    write("a.json")
    for arguments in ((), ("program.py:make", "--diff", "a.json", "a.json")):
        ended = run("inspect", *arguments)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith("inspect: give FILE:FUNCTION, or --diff and the files of two")
