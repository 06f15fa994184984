"""A group of processes that is started again; most tests start small programs instead of JAX."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jaxpar.train.manifest import ARRAYS, folder_of, newest_whole, steps_in, write_manifest
from jaxpar.train.restarts import Shrinking, launch_again

ROOT = Path(__file__).parents[2]
HEAD = (
    "import os, sys, time\n"
    "rank, attempt = os.environ['JAX_PROCESS_ID'], int(os.environ['JAXPAR_RESTARTED'])\n"
)
SIZES = "--layers 1 --d-model 8 --heads 2 --sequence 16 --batch 8 --seed 3 --json --steps 10"


def again(code: str, folder: Path, *arguments: str, restarts: int = 2, **options: Any) -> int:
    """Launches two processes that run `code`."""
    command = [sys.executable, "-c", HEAD + code, *arguments]
    return launch_again(command, folder, restarts=restarts, processes=2, devices=1, **options)


def save(folder: Path, step: int) -> None:
    """Writes a checkpoint of one file."""
    arrays = folder_of(folder, step) / ARRAYS
    arrays.mkdir(parents=True)
    (arrays / "data").write_text("1")
    write_manifest(folder, step, {})


def test_all_start_again_from_the_newest_whole_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 2)
    save(tmp_path, 4)
    (folder_of(tmp_path, 4) / ARRAYS / "data").write_text("2")
    code = (
        "if attempt == 0 and rank == '1': os.kill(os.getpid(), 9)\n"
        "if attempt == 0: time.sleep(60)\n"
        "print(*sys.argv[1:])"
    )
    assert again(code, tmp_path, "--seed=3") == 0
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ["[0] --seed=3 --resume", "[1] --seed=3 --resume"]
    assert printed.err == (
        "launch: process 1 ended with signal 9; restart 1 of 2: it goes on after step 2\n"
    )


def test_what_was_resumed_is_resumed_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 2)
    code = "print(*sys.argv[1:]); sys.exit(attempt == 0)"
    assert again(code, tmp_path, "--resume") == 0
    assert set(capsys.readouterr().out.splitlines()) == {"[0] --resume", "[1] --resume"}


def test_without_a_checkpoint_it_begins_anew_so_many_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "print(*sys.argv[1:])\nif rank == '1': sys.exit(3)\ntime.sleep(60)"
    assert again(code, tmp_path / "none", "--seed=3") == 3
    printed = capsys.readouterr()
    assert "--resume" not in printed.out
    assert printed.err.splitlines() == [
        "launch: process 1 ended with exit code 3; restart 1 of 2: it begins anew",
        "launch: process 1 ended with exit code 3; restart 2 of 2: it begins anew",
        "launch: process 1 ended with exit code 3, after 2 restarts; the others were ended too",
    ]


def test_without_one_that_does_not_come_back_it_goes_on_with_fewer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 4)
    code = "print(*sys.argv[1:])\nif rank == '1': sys.exit(3)\nif attempt < 2: time.sleep(60)"
    shrinking = Shrinking(1, "dp=4,tp=2", 8)
    assert again(code, tmp_path, "--mesh=dp=4", restarts=5, shrinking=shrinking) == 0
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1] == "[0] --mesh=dp=4 --resume --mesh dp=2,tp=2"
    assert printed.err.splitlines() == [
        "launch: process 1 ended with exit code 3; restart 1 of 5: it goes on after step 4",
        "launch: process 1 ended with exit code 3; restart 2 of 5: it goes on after step 4 with 1 "
        "process, --mesh dp=2,tp=2",
    ]


@pytest.mark.parametrize(
    ("mesh", "examples", "processes", "expected"),
    [
        ("dp=8", 16, 4, (2, "dp=4")),  # 6 parts would not divide the batch
        ("dp=8", 48, 4, (3, "dp=6")),
        ("dp=8", 16, 2, (1, "dp=2")),  # after the first has shrunk
        ("fsdp=8,tp=2", 16, 4, (2, "fsdp=4,tp=2")),
        ("dp=2,fsdp=4", 16, 4, (2, "dp=1,fsdp=4")),
        ("dp=3,fsdp=4", 36, 4, (3, "dp=3,fsdp=3")),
        ("pp=2,tp=4", 16, 4, None),
        ("dp=8", 16, 1, None),
    ],
)
def test_the_mesh_of_fewer(
    mesh: str, examples: int, processes: int, expected: tuple[int, str] | None
) -> None:
    assert Shrinking(1, mesh, examples).after(processes, first=4) == expected


def test_there_are_never_fewer_than_are_enough() -> None:
    assert Shrinking(2, "dp=8", 16).after(2, first=4) is None


@pytest.mark.parametrize("code", [2, 130, 143])
def test_who_was_used_badly_or_asked_to_end_stays_ended(
    code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again(f"print(attempt); sys.exit({code})", tmp_path) == code
    assert "1" not in {line.split()[1] for line in capsys.readouterr().out.splitlines()}


def test_one_that_dies_after_sigterm_stays_dead(tmp_path: Path) -> None:
    code = HEAD + (
        "import signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(1))\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    )
    program = (
        "import sys\nfrom pathlib import Path\nfrom jaxpar.train.restarts import launch_again\n"
        f"command = [sys.executable, '-c', {code!r}]\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "sys.exit(launch_again(command, folder, restarts=3, processes=2, devices=1))"
    )
    launcher = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert launcher.stdout
    for _ in range(2):
        launcher.stdout.readline()
    launcher.send_signal(signal.SIGTERM)
    out, err = launcher.communicate(timeout=60)
    assert (launcher.returncode, out) == (1, "")
    assert "restart" not in err


def test_no_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert newest_whole(tmp_path / "none") is None


def trained(
    fault: str | None, folder: Path, *, devices: int, options: str, shrinks: bool = False
) -> tuple[int, dict, list[str]]:
    """The exit code, the results and the errors of a run on 2 processes, with a fault or none."""
    program = ["-m", "tests.train.faulty", fault] if fault else ["-m", "jaxpar.cli"]
    mesh = f"--mesh dp={2 * devices} --checkpoint {folder} {options}"
    command = [sys.executable, *program, "train", *f"{mesh} {SIZES}".split()]
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from jaxpar.train.restarts import Shrinking, launch_again\n"
        f"shrinking = Shrinking(1, 'dp={2 * devices}', 8) if {shrinks} else None\n"
        f"sizes = dict(processes=2, devices={devices}, as_json=True)\n"
        "sizes |= dict(restarts=3, shrinking=shrinking) if shrinking else dict(restarts=2)\n"
        f"sys.exit(launch_again({command!r}, Path({str(folder)!r}), **sizes))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ
        | {
            "XLA_FLAGS": "--xla_backend_optimization_level=0",
            "JAX_COMPILATION_CACHE_DIR": str(folder.with_name(f"compiled{devices}")),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        },
        capture_output=True,
        text=True,
        timeout=280,
    )
    results = json.loads(ended.stdout) if ended.stdout.strip() else {}
    return ended.returncode, results, ended.stderr.splitlines()


def assert_goes_on_alike(results: dict, undisturbed: dict) -> None:
    """Compares the steps after a restart with those of a run without one: the bits are equal."""
    restored = results["checkpoint"]["restored_step"]
    assert restored in (2, 4, 6)
    assert results["losses"] == undisturbed["losses"][restored:]
    assert results["gradient_norms"] == undisturbed["gradient_norms"][restored:]


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("devices", [1, 2])
def test_a_run_of_which_a_process_dies_goes_on_with_the_same_bits(
    devices: int, tmp_path: Path
) -> None:
    code, whole, errors = trained(None, tmp_path / "whole", devices=devices, options="--every 2")
    assert code == 0, errors
    code, results, errors = trained(
        "die", tmp_path / "killed", devices=devices, options="--every 2"
    )
    assert code == 0, errors
    assert_goes_on_alike(results, whole)
    assert steps_in(tmp_path / "killed") == [6, 8, 10]
    restored = results["checkpoint"]["restored_step"]
    said = [line for line in errors if line.startswith("launch:")]
    assert said == [
        f"launch: process 1 ended with signal 9; restart 1 of 2: it goes on after step {restored}"
    ]


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_run_of_which_a_process_is_gone_goes_on_with_the_others(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"devices": 2, "options": "--every 2"}
    code, whole, errors = trained(None, tmp_path / "whole", **sizes)
    assert code == 0, errors
    code, results, errors = trained("gone", tmp_path / "fewer", **sizes, shrinks=True)
    assert code == 0, errors
    restored = results["checkpoint"]["restored_step"]
    assert results["losses"] == pytest.approx(whole["losses"][restored:], rel=1e-5)
    said = [line for line in errors if line.startswith("launch:")]
    assert [line.partition(": it goes on ")[2] for line in said] == [
        f"after step {restored}",
        f"after step {restored}",
        f"after step {restored} with 1 process, --mesh dp=2",
    ]


@pytest.mark.full
def test_a_run_that_dies_before_it_was_saved_begins_anew(tmp_path: Path) -> None:
    code, results, errors = trained("die", tmp_path / "run", devices=1, options="--every 50")
    assert code == 0, errors
    assert len(results["losses"]) == 10
    assert any(line.endswith("restart 1 of 2: it begins anew") for line in errors)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_a_run_that_is_stuck_says_where_and_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    options = "--every 2 --watchdog 20"
    code, whole, errors = trained(None, tmp_path / "whole", devices=1, options=options)
    assert code == 0, errors
    code, results, errors = trained("hang", tmp_path / "hung", devices=1, options=options)
    assert code == 0, errors
    assert_goes_on_alike(results, whole)
    text = "\n".join(errors)
    no_step = "has completed no step for 20 s, and --watchdog allows no more; it"
    assert f"[0] train: process 0 of 2 {no_step} waits in JAX" in text
    assert f"[1] train: process 1 of 2 {no_step} stands outside of JAX" in text
    stands = [line for line in errors if line.startswith("[1]  ")]
    assert stands[-1].endswith(" in hang")
    assert "launch: process 1 ended with exit code 75, since no step was completed in time" in text

    code, results, errors = trained("stop", tmp_path / "stopped", devices=1, options=options)
    assert code == 0, errors
    assert_goes_on_alike(results, whole)
    text = "\n".join(errors)
    assert f"[0] train: process 0 of 2 {no_step} waits in JAX" in text
    assert "[1] train" not in text
