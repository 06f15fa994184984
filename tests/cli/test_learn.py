"""The verbs of a learner: what they print, and how they end."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxpar.course.catalog import EXERCISES, LESSONS, Lesson, exercise
from jaxpar.course.check import Verdicts
from jaxpar.course.folder import Course
from jaxpar.course.learner_record import LearnerRecord
from jaxpar.grading.imports import refused_text
from jaxpar.grading.submission import read_submission
from tests.course.fakes import RIGHT, WRONG, answer, stub_of, verdict, write

ROOT = Path(__file__).parents[2]
ROW, CHALLENGE = exercise("device_coordinates"), exercise("limited_schedule")
LIMITED = """
def limited_schedule(stages, microbatches, limit):
    if limit < 1:
        raise ValueError("no room")
    rows = []
    for rank in range(stages):
        first = min(limit - 1, stages - 1 - rank, microbatches)
        kinds = "F" * first + "{pair}" * (microbatches - first) + "{last}" * first
        counts = dict.fromkeys("FBIW", -1)
        cells = []
        for kind in kinds:
            counts[kind] += 1
            cells.append(f"{{rank}}{{kind}}{{counts[kind]}}")
        rows.append(cells)
    return rows
"""


def test_without_a_terminal_it_prints_the_list_and_what_to_type(course: Course, run: Any) -> None:
    ended = run()
    assert ended.code == 0
    lines = ended.out.splitlines()
    ids = [line.split()[1] for line in lines[1 : len(EXERCISES) + 1]]
    assert ids == [row.id for row in EXERCISES]
    assert lines[-1].split() == ["type", "jaxpar", "check", ROW.id]


def test_list_says_how_each_file_stands(course: Course, run: Any) -> None:
    write(course, ROW, RIGHT)
    write(course, EXERCISES[1], answer(EXERCISES[1], "wrong"))
    submission = read_submission(course.file(ROW))
    Verdicts(course.verdicts).put(ROW.where, submission, verdict(ROW, True))
    rows = run("list", "--json").json
    assert [row["id"] for row in rows] == [row.id for row in EXERCISES]
    assert [row["status"] for row in rows[:3]] == ["pass", "changed", "todo"]
    assert rows[0] == {
        "id": "device_coordinates",
        "lesson": "01",
        "title": ROW.title,
        "kind": "value",
        "points": 5,
        "status": "pass",
        "file": "exercises/01_devices_and_meshes/device_coordinates.py",
        "needs": [],
        "minutes": ROW.minutes,
        "seen": False,
        "best": None,
    }
    assert f"1 of {len(EXERCISES)} solved" in run("list").out


def test_next_and_from(course: Course, run: Any) -> None:
    assert run("next", "--json").json["id"] == ROW.id
    assert run("next", "--from", "3", "--json").json["id"] == "ring_reduce_scatter"
    assert "jaxpar check device_coordinates" in run("next").out


def test_check_passes_a_right_answer(course: Course, run: Any) -> None:
    write(course, ROW, RIGHT)
    ended = run("check", ROW.id, "--json")
    assert ended.code == 0
    data = ended.json
    assert data.pop("seconds") > 0
    assert [(row["name"], row["status"]) for row in data.pop("properties")] == [("values", "pass")]
    expected = {"exercise": ROW.id, "status": "pass", "score": 5, "max_score": 5, "diagnosis": ""}
    assert data == expected | {"measured": None, "best": None}
    assert run("list", "--json").json[0]["status"] == "pass"
    assert run("solution", ROW.id, "--json").json["file"] == "jaxpar/mesh.py"


def test_check_refuses_a_wrong_answer_and_repeats_a_seed(course: Course, run: Any) -> None:
    wrong = course.root / "elsewhere.py"
    wrong.write_text(WRONG)
    first, second = (run("check", ROW.id, "--file", str(wrong), "--seed", "3") for _ in range(2))
    assert first.code == second.code == 1
    assert "seed 3" in first.out
    assert first.out.splitlines()[1:] == second.out.splitlines()[1:]
    assert run("list", "--json").json[0]["status"] == "todo"  # their own file was not judged


def test_check_keeps_the_best_of_a_challenge(course: Course, run: Any) -> None:
    write(course, CHALLENGE, LIMITED.format(pair="FIW", last="IW"))
    data = run("check", CHALLENGE.id, "--json").json
    assert data["measured"] == {
        "quantity": "makespan",
        "case": "limited_schedule(4, 8, 3)",
        "value": 38,
        "library": 48,
        "challenge": True,
    }
    assert data["best"] == 38
    write(course, CHALLENGE, LIMITED.format(pair="FB", last="B"))  # right, but no better
    lines = run("check", CHALLENGE.id).out.splitlines()
    at = lines.index("the makespan of limited_schedule(4, 8, 3)")
    assert lines[at + 1 : at + 4] == ["  measured   48", "  library    48", "  your best  38"]
    (row,) = (row for row in run("list", "--json").json if row["id"] == CHALLENGE.id)
    assert (row["status"], row["best"]) == ("pass", 38)
    assert "pass (best 38)" in run("list").out


def test_check_refuses_a_stub_and_a_missing_file(course: Course, run: Any) -> None:
    ended = run("check", ROW.id)
    assert ended.code == 1
    assert "Nothing is written here yet" in ended.out
    assert ended.out.endswith(f"Next, type: jaxpar hint {ROW.id}\n")
    course.file(ROW).unlink()
    data = run("check", ROW.id, "--json").json
    assert data["status"] == "not-submitted"
    assert "no such file" in data["diagnosis"]


def test_hints_come_one_by_one_then_the_solution_may_be_seen(course: Course, run: Any) -> None:
    numbers = [run("hint", ROW.id, "--json").json["number"] for _ in range(4)]
    assert numbers == [1, 2, 3, 3]
    shown = run("hint").out
    assert all(f"Hint {number} of 3: " in shown for number in (1, 2, 3))
    assert f"no more hints. `jaxpar solution {ROW.id} --give-up`" in shown
    refused = run("solution", ROW.id)
    assert refused.code == 2
    assert "add --give-up" in refused.err
    assert "def device_coordinates" in run("solution", ROW.id, "--give-up").out
    row = run("list", "--json").json[0]
    assert (row["status"], row["seen"]) == ("todo", True)


def test_reset_keeps_a_backup(course: Course, run: Any) -> None:
    write(course, ROW, RIGHT)
    data = run("reset", ROW.id, "--json").json
    assert Path(data["backup"]).read_text() == RIGHT
    assert course.file(ROW).read_bytes() == stub_of(ROW)
    assert "is the stub again" in run("reset", ROW.id).out


def test_lesson_runs_the_script_and_ends_as_it_ends(course: Course, run: Any) -> None:
    row = LESSONS[1]
    path = course.file(row)
    path.parent.mkdir()
    path.write_text("# %% [markdown]\n# # The idea\n# %%\nprint(6 * 7)\n")
    data = run("lesson", "2", "--json").json
    assert data["exit_code"] == 0
    assert [line.strip() for line in data["output"].split("\n") if line.strip()][1:] == [
        "print(6 * 7)",
        "42",
    ]
    assert data["asks"] == [asked.id for asked in row.asks]
    path.write_text("# %%\nraise SystemExit(3)\n")
    assert run("lesson", "02").code == 1
    assert LearnerRecord(course.state).lesson_run("02")
    assert not LearnerRecord(course.state).lesson_run("01")


def test_a_lesson_that_was_left_is_no_failure_and_one_that_was_read_says_what_is_next(
    course: Course, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    LearnerRecord(course.state).remember_place("gather")
    asked = []

    def read_lesson(course: Course, row: Lesson, *, captured: bool, brief: bool) -> tuple[int, str]:
        asked.append(row.number)
        return codes.pop(), ""

    codes = [0, 130]
    monkeypatch.setattr("jaxpar.course.lesson_process.read_lesson", read_lesson)
    ended = run("lesson")
    assert (ended.code, ended.out, asked) == (0, "", ["02"])
    assert "It opens gather: " in run("lesson").out


def test_without_a_name_it_is_the_exercise_at_hand(course: Course, run: Any) -> None:
    LearnerRecord(course.state).remember_place("gather")
    assert run("hint", "--json").json["exercise"] == "gather"
    assert run("solution").err.startswith("solution: it is shown once `jaxpar check gather` passes")
    course.file(exercise("gather")).unlink()
    assert run("check", "--json").json["exercise"] == "gather"


def test_check_all_judges_what_is_written_and_sums_up(course: Course, run: Any) -> None:
    write(course, ROW, RIGHT)
    other = exercise("local_shape")
    write(course, other, "def local_shape(shape, layout, sizes):\n    return shape\n")
    ended = run("check", "--all")
    assert ended.code == 1
    first, second, summary = ended.out.splitlines()
    assert first.split() == ["pass", "5/5", ROW.id]
    assert second.split() == ["fail", "0/5", other.id]
    most = sum(row.points for row in EXERCISES)
    assert summary == f"1 pass, 1 fail, {len(EXERCISES) - 2} to do: 5 of {most} points"
    write(course, other, stub_of(other))
    data = run("check", "--all", "--json").json
    assert [verdict["exercise"] for verdict in data["verdicts"]] == [ROW.id]
    assert (data["score"], data["max_score"]) == (5, most)
    assert run("check", "--all", ROW.id).code == 2


def test_what_is_no_file_of_text_is_bad_use(course: Course, run: Any) -> None:
    (course.root / "latin.py").write_bytes(b"x = '\xff'")
    if sys.platform != "win32":
        os.mkfifo(course.root / "fifo")
    for name in ("exercises", "fifo", "/dev/zero", "latin.py", "absent.py"):
        ended = run("check", ROW.id, "--file", name)
        assert ended.code == 2, name
        assert ended.err.startswith(f"check: {name}: "), ended.err


def test_next_is_the_exercise_that_watch_mode_opens(course: Course, run: Any) -> None:
    LearnerRecord(course.state).remember_place("gather")
    assert run("next", "--json").json["id"] == "gather"
    assert run().out.splitlines()[-1].split() == ["type", "jaxpar", "check", "gather"]
    assert run("next", "--from", "1", "--json").json["id"] == ROW.id
    run("check", ROW.id)
    assert run("next", "--json").json["id"] == ROW.id


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("def f(:\n    pass\n", "line 1: SyntaxError: invalid syntax\n  def f(:\n        ^"),
        ("x = 1\n<<<<<<< HEAD\ny = 2\n=======\n>>>>>>> main\n", "line 2: <<<<<<< HEAD\nThis is a"),
    ],
)
def test_what_python_cannot_read_is_shown(source: str, line: str) -> None:
    assert refused_text(source, ()).startswith(line)


def test_a_page_of_a_lesson_that_cannot_be_written(course: Course, run: Any) -> None:
    ended = run("lesson", "02", "--html", "none/one.html")
    assert ended.code == 2
    assert "cannot write none/one.html; name a file in a folder that exists" in ended.err
