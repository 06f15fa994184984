"""Several processes on this machine; most tests start small programs instead of JAX."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxpar.train.launch import SCRATCH, launch

ROOT = Path(__file__).parents[2]


def started(code: str) -> subprocess.Popen[str]:
    """A process that launches two processes, which run `code`."""
    program = (
        "import sys\nfrom jaxpar.train.launch import launch\n"
        f"sys.exit(launch([sys.executable, '-c', {code!r}], processes=2, devices=1))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_gloo_prints_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "print('[Gloo] Rank [Gloo] Rank 3 is connected to 3 peer ranks. Expected')\n"
        "print('2 is connected to 3 peer ranks. Expected')\n"
        "print('loss 5.5')"
    )
    assert launch([sys.executable, "-c", code], processes=2, devices=1) == 0
    assert sorted(capsys.readouterr().out.splitlines()) == ["[0] loss 5.5", "[1] loss 5.5"]


def test_output_has_the_rank_in_front(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import os, sys\n"
        "rank = os.environ['JAX_PROCESS_ID']\n"
        "print('of', os.environ['JAX_NUM_PROCESSES'], os.environ['JAX_NUM_CPU_DEVICES'])\n"
        "print('no newline at the end, rank', rank, end='', file=sys.stderr)"
    )
    assert launch([sys.executable, "-c", code], processes=2, devices=3) == 0
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ["[0] of 2 3", "[1] of 2 3"]
    assert sorted(printed.err.splitlines()) == [
        f"[{rank}] no newline at the end, rank {rank}" for rank in (0, 1)
    ]


def test_json_of_process_0_comes_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    code = (
        "import os, sys\n"
        "print('{}' if os.environ['JAX_PROCESS_ID'] == '0' else 'no JSON')\n"
        "print('trouble', file=sys.stderr)"
    )
    assert launch([sys.executable, "-c", code], processes=2, devices=1, as_json=True) == 0
    printed = capsys.readouterr()
    assert sorted(printed.out.splitlines()) == ["[1] no JSON", "{}"]
    assert sorted(printed.err.splitlines()) == ["[0] trouble", "[1] trouble"]


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        ("sys.exit('this went wrong')", 1, "exit code 1"),
        ("os.kill(os.getpid(), 6)", 134, "signal 6"),
    ],
)
def test_one_that_fails_ends_all(
    end: str, code: int, how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = f"import os, sys, time\nif os.environ['JAX_PROCESS_ID'] == '1': {end}\ntime.sleep(60)"
    assert launch([sys.executable, "-c", program], processes=2, devices=1) == code
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == f"launch: process 1 ended with {how}; the others were ended too"
    assert ("[1] this went wrong" in lines) == (code == 1)


def test_ctrl_c_lets_process_0_sum_up_and_ends_all() -> None:
    code = (
        "import os, time\n"
        "try:\n"
        "    print('up', os.getpid(), flush=True)\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt: print('summed up')"
    )
    launcher = started(code)
    assert launcher.stdout
    up = [launcher.stdout.readline() for _ in range(2)]
    launcher.send_signal(signal.SIGINT)
    out, err = launcher.communicate(timeout=30)
    assert (launcher.returncode, out, err) == (130, "[0] summed up\n", "")
    assert not any(alive(int(line.split()[-1])) for line in up)


def test_sigterm_is_passed_on_and_all_may_end_in_their_time() -> None:
    code = (
        "import signal, sys, time\n"
        "def end(*_):\n"
        "    time.sleep(0.5)\n"
        "    print('saved')\n"
        "    sys.exit(143)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    )
    launcher = started(code)
    assert launcher.stdout
    for _ in range(2):
        launcher.stdout.readline()
    launcher.send_signal(signal.SIGTERM)
    out, err = launcher.communicate(timeout=30)
    assert (launcher.returncode, sorted(out.splitlines()), err) == (
        143,
        ["[0] saved", "[1] saved"],
        "",
    )


def test_processes_end_with_a_launcher_that_was_killed() -> None:
    code = (
        "import os, time\n"
        "from jaxpar.train.launch import follow_launcher\n"
        "follow_launcher()\n"
        "print('up', os.getpid(), flush=True)\n"
        "time.sleep(60)"
    )
    launcher = started(code)
    assert launcher.stdout
    up = [int(launcher.stdout.readline().split()[-1]) for _ in range(2)]
    launcher.kill()
    launcher.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while any(alive(pid) for pid in up) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in up)


def alive(pid: int) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_what_children_leave_in_their_folder_goes_with_them(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    make = f"import os; os.mkdir(os.environ['{SCRATCH}']); os._exit(3)"
    assert launch([sys.executable, "-c", make], processes=1, devices=1) == 3
    assert not list(tmp_path.iterdir())
