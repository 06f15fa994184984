"""Runs that are killed, or asked to end, while they save: the next one goes on, bit for bit."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from jaxpar.train.manifest import steps_in

ROOT = Path(__file__).parents[2]
SIZES = "--layers 1 --d-model 8 --heads 2 --sequence 16 --batch 8 --seed 3 --json"


def command(processes: int, *options: str) -> list[str]:
    """`jaxpar train` in so many processes, over 8 devices if there are several."""
    launch = f"launch --processes {processes} --devices 4 --" if processes > 1 else ""
    mesh = f"train --mesh dp={4 * processes}"
    words = f"{launch} {mesh} {SIZES}".split()
    return [sys.executable, "-m", "jaxpar.cli", *words, *options]


def newest(folder: Path) -> int:
    """The step of the newest checkpoint, or 0."""
    return max(steps_in(folder), default=0)


def is_newer(folder: Path, step: int) -> bool:
    """Whether there is a checkpoint newer than that of a step."""
    return newest(folder) > step


class Life:
    """A training run in processes of its own, until it ends or is killed."""

    def __init__(self, processes: int, folder: Path, *options: str) -> None:
        resume = ["--resume"] if steps_in(folder) else []
        keeps = ["--checkpoint", str(folder), "--every", "2", *resume, *options]
        cache = folder.with_name("compiled")
        self.process = subprocess.Popen(
            command(processes, *keeps),
            cwd=ROOT,
            env=os.environ
            | {
                "XLA_FLAGS": "--xla_backend_optimization_level=0",
                "JAX_NUM_CPU_DEVICES": "4",
                "JAX_COMPILATION_CACHE_DIR": str(cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self) -> tuple[int, dict, str]:
        """The exit code, the results and the errors of a run that ends by itself."""
        out, err = self.process.communicate(timeout=200)
        return self.process.returncode, json.loads(out) if out.strip() else {}, err

    def kill(self) -> None:
        """Kills the run, and with a launcher its processes, which end with it."""
        self.process.kill()
        self.process.communicate(timeout=60)


def wait_until(is_true: Callable[[], bool], life: Life) -> None:
    """Waits for something that a run is to do."""
    while not is_true():
        assert life.process.poll() is None, life.end()
        time.sleep(0.005)


@pytest.mark.parametrize(
    ("processes", "kills"), [(1, 2), pytest.param(2, 20, marks=pytest.mark.full)]
)
@pytest.mark.timeout(1200)
def test_a_run_killed_at_any_moment_goes_on_with_the_same_bits(
    processes: int, kills: int, tmp_path: Path
) -> None:
    folder, moments = tmp_path / "killed", random.Random(processes)
    life = Life(processes, folder, "--steps", "100000")
    wait_until(lambda: any(folder.glob("step-*")), life)
    life.kill()
    for _ in range(kills - 1):
        life = Life(processes, folder, "--steps", "100000")
        wait_until(partial(is_newer, folder, newest(folder)), life)
        time.sleep(moments.uniform(0, 0.3))
        life.kill()
    done = newest(folder)
    code, last, err = Life(processes, folder, "--steps", str(done + 5)).end()
    assert code == 0, err
    assert last["checkpoint"]["restored_step"] == done
    assert last["checkpoint"]["notes"] == []
    code, whole, err = Life(processes, tmp_path / "whole", "--steps", str(done + 5)).end()
    assert code == 0, err
    assert last["losses"] == whole["losses"][done:]
    assert last["gradient_norms"] == whole["gradient_norms"][done:]


@pytest.mark.full
def test_sigterm_to_one_process_saves_the_same_step_on_all(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    life = Life(2, folder, "--steps", "100000", "--keep", "1")
    wait_until(partial(is_newer, folder, 0), life)
    children = Path(f"/proc/{life.process.pid}/task/{life.process.pid}/children").read_text()
    os.kill(int(children.split()[1]), signal.SIGTERM)
    code, results, err = life.end()
    assert code == 128 + signal.SIGTERM, err
    done = len(results["losses"])
    assert results["checkpoint"]["saved_steps"][-1] == done
    assert steps_in(folder) == [done]
    code, results, err = Life(1, folder, "--steps", str(done + 2)).end()
    assert (code, len(results["losses"])) == (0, 2), err


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of others need Linux")
def test_a_full_disk_is_told_and_harms_no_earlier_checkpoint(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk."""
    folder = tmp_path / "run"
    life = Life(1, folder, "--steps", "100000")
    wait_until(partial(is_newer, folder, 0), life)
    resource.prlimit(life.process.pid, resource.RLIMIT_FSIZE, (10_000, 10_000))
    code, results, _ = life.end()
    done = newest(folder)
    assert code == 2
    assert (
        "could not be saved: File too large; the newest checkpoint is that of" in results["error"]
    )
    code, results, err = Life(1, folder, "--steps", str(done + 2)).end()
    assert code == 0, err
    assert results["checkpoint"]["restored_step"] == done
    assert results["checkpoint"]["notes"] == []
