"""`jaxpar train` and `jaxpar launch`: what they refuse, and how they end."""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jaxpar import cli
from jaxpar.inspector import Report
from jaxpar.train import launch, run
from jaxpar.train.loop import Trained


@pytest.fixture
def ended(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in this process: its code, and what it printed."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["jaxpar", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives in the third step."""

    def steps() -> Iterator[Trained]:
        yield Trained(5.5, 0.5, None, None)
        yield Trained(4.5, 0.5, None, None)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(run, "start", lambda *_, **__: run.Run(Report(()), 7, 100, steps()))


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", "--mesh", "dp=2,ep=2"], "axes ep; so far training splits the batch over dp"),
        (["train", "--mesh", "dp"], "write axis=size"),
        (["train", "--batch", "12"], "(size 12) must be divisible by mesh axis dp (size 8)"),
        (["train", "--data", "nowhere"], "text: nowhere: No such file or directory"),
        (["train", "--heads", "3"], "Settings: heads is 3 and must divide d_model (256)"),
        (["launch", "--", "check", "add_rank"], "'check' does not run in several processes"),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(ended: Any, arguments: list[str], line: str) -> None:
    code, out, err = ended(*arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_a_seed_that_jax_cannot_take_is_refused(ended: Any) -> None:
    code, _, err = ended("train", "--seed", str(2**31))
    assert code == 2
    assert "'--seed'" in err


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_leaves_what_was_done(ended: Any) -> None:
    code, out, err = ended("train", "--json")
    assert (code, err) == (130, "")
    assert json.loads(out)["losses"] == [5.5, 4.5]
    code, out, _ = ended("train")
    assert code == 130
    assert out.endswith("stopped after 2 of 50 steps\n\nloss 5.5000 -> 4.5000, 200 tokens/s\n")


def test_an_error_of_jax_keeps_its_traceback(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(run, "start", fail)
    code, out, err = ended("train", "--json")
    assert (code, out) == (1, "")
    assert err.startswith("Traceback") and err.endswith("RuntimeError: RESOURCE_EXHAUSTED\n")


def test_launch_passes_the_command_on(ended: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(launch, "launch", lambda *given, **sizes: asked.append((given, sizes)) or 5)
    code, _, _ = ended("launch", "--processes", "3", "--", "train", "--mesh", "dp=3", "--json")
    assert code == 5
    command = [sys.executable, "-m", "jaxpar.cli", "train", "--mesh", "dp=3", "--json"]
    assert asked == [((command,), {"processes": 3, "devices": 4, "as_json": True})]
