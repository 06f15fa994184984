"""Programs, folders and stubs from the command line."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jaxpar.course.catalog import EXERCISES, LESSONS
from jaxpar.course.folder import Course
from tests.course.fakes import stub_of, write

ROW = EXERCISES[0]


def test_inspect_prints_the_report(course: Course, run: Any) -> None:
    program = course.root / "program.py"
    program.write_text(
        "import jax, jax.numpy as jnp\n"
        "from jaxpar.mesh import make_mesh, spec\n"
        "def make():\n"
        "    mesh = make_mesh('dp=4')\n"
        "    total = lambda x: jax.lax.psum(x, 'dp')\n"
        "    f = jax.shard_map(total, mesh=mesh, in_specs=spec('b_dp'), out_specs=spec('b'))\n"
        "    return jax.jit(f), (jnp.ones(8),)\n"
    )
    data = run("inspect", "program.py:make", "--json").json
    (collective,) = data["collectives"]
    assert (collective["kind"], collective["operand_bytes"]) == ("all_reduce", 8)
    assert "all_reduce" in run("inspect", "program.py:make").out


def test_init_makes_a_course_from_a_checkout(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run("init", "mine", "--json")
    assert ended.code == 0
    assert len(ended.json["written"]) == len(EXERCISES) + len(LESSONS) + 1
    assert "cd mine && jaxpar" in run("init", "mine").out
    monkeypatch.chdir(tmp_path / "mine")
    assert run("next", "--json").json["id"] == ROW.id


def test_dev_build_names_the_stub_that_differs(course: Course, run: Any) -> None:
    assert run("dev", "build", "--check").code == 0
    write(course, ROW, stub_of(ROW).replace(b"Save it", b"Keep it"))
    ended = run("dev", "build", "--check")
    assert ended.code == 1
    assert ended.out.startswith(f"{ROW.file}: ")
    assert f"{ROW.file}: written" in run("dev", "build").out
    assert course.file(ROW).read_bytes() == stub_of(ROW)


def test_the_options_of_the_grading_doctor(run: Any, tmp_path: Path) -> None:
    for option in (("--only", "reading"), ("--copy-python", f"{tmp_path / 'python'}")):
        ended = run("doctor", *option)
        assert ended.code == 2
        assert "belong to --grading" in ended.err
    ended = run("doctor", "--grading", "--only", "raeding")
    assert ended.code == 2
    assert "'raeding': no group of attacks; there is reading, " in ended.err


def test_what_init_says_to_type_works_from_the_new_folder(
    tmp_path: Path, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / ".venv" / "bin" / "jaxpar"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("jaxpar.course.command.sys", SimpleNamespace(argv=[str(script)]))
    lines = run("init", "my/course").out.splitlines()
    assert lines[-1] == "Next, type: cd my/course && ../../.venv/bin/jaxpar"
    mode = (tmp_path / "my" / "course" / EXERCISES[0].file).stat().st_mode
    assert mode & 0o777 == 0o666 & ~os.umask(os.umask(0o022))
