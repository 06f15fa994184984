"""`jaxpar train` and `jaxpar launch`: what they refuse, and how they end."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jaxpar.inspector import Report
from jaxpar.train import launch, restarts
from jaxpar.train import run as training
from jaxpar.train.loop import Trained


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C arrives in the third step."""

    def steps() -> Iterator[Trained]:
        yield Trained(5.5, 2.0, 0.5, None, None)
        yield Trained(4.5, 1.0, 0.5, None, None)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(
        training, "start", lambda *_, **__: training.Run(Report(()), 7, 7, 100, steps())
    )


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["train", "--mesh", "dp=2,tpx=2"], "has axes tpx; training splits the batch over dp, fs"),
        (["train", "--mesh", "ep=2"], "axis ep (size 2) without experts"),
        (["train", "--experts", "4", "--top-k", "5"], "top_k is 5 of 4 experts; use 1 to 4"),
        (["train", "--mesh", "dp"], "write axis=size"),
        (["train", "--batch", "12"], "(size 12) must be divisible by mesh axis dp (size 8)"),
        (["train", "--data", "nowhere"], "text: nowhere: No such file or directory"),
        (["train", "--heads", "3"], "train: heads is 3 and must divide d_model (256)"),
        (
            ["train", "--every", "5"],
            "train: --every without --checkpoint: it says how a run is sav",
        ),
        (["train", "--tokenizer", "nowhere"], "train: --tokenizer nowhere: "),
        (["train", "--document-masks"], "the text of the library has no documents, whose ends are"),
        (["train", "--validation", "0.1"], "train: --validation 0.1 without --validate-every: it"),
        (
            ["train", "--track-to", "a"],
            "train: --track-to a without --track: it says where the rec",
        ),
        (
            ["train", "--profile", "a", "--steps", "4"],
            "train: --profile a with --steps 4: 3 steps a",
        ),
        (["train", "--checkpoint", "none", "--resume"], "there is no checkpoint to resume; check"),
        (["train", "--checkpoint", "."], " more, which no training run has written; give an empty"),
        (["launch", "--", "check", "add_rank"], "'check' does not run in several processes"),
        (
            ["launch", "--max-restarts", "3", "--", "train", "--steps", "5"],
            "launch: --max-restarts 3 without --checkpoint: a run that is not saved cannot go on; ",
        ),
        (
            ["launch", "--min-processes", "1", "--", "train"],
            "launch: --min-processes 1 with --processes 2 and --max-restarts 0: a run that is sta",
        ),
        (
            ["launch", "--max-restarts", "1", "--min-processes", "1", "--", "doctor"],
            "launch: --max-restarts 1 without --checkpoint",
        ),
    ],
)
def test_bad_use_is_one_line_and_ends_with_2(run: Any, arguments: list[str], line: str) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert line in ended.err
    assert ended.err.count("\n") == 1


def test_a_seed_that_jax_cannot_take_is_refused(run: Any) -> None:
    ended = run("train", "--seed", str(2**31))
    assert ended.code == 2
    assert "'--seed'" in ended.err


@pytest.mark.usefixtures("interrupted")
def test_ctrl_c_leaves_what_was_done(run: Any) -> None:
    ended = run("train", "--json")
    assert (ended.code, ended.err) == (130, "")
    assert ended.json["losses"] == [5.5, 4.5]
    assert ended.json["gradient_norms"] == [2.0, 1.0]
    ended = run("train")
    assert ended.code == 130
    assert ended.out.endswith(
        "stopped after 2 of 50 steps\n\nloss 5.5000 -> 4.5000, 200 tokens/s\n"
    )


def test_sigterm_ends_with_143_after_the_running_step(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps() -> Iterator[Trained]:
        yield Trained(5.5, 2.0, 0.5, None, None)
        signal.raise_signal(signal.SIGTERM)
        yield Trained(4.5, 1.0, 0.5, None, None)

    made = training.Run(Report(()), 7, 7, 100, steps())
    monkeypatch.setattr(training, "start", lambda *_, **__: made)
    ended = run("train", "--json")
    assert (ended.code, ended.err) == (143, "")
    assert ended.json["losses"] == [5.5, 4.5]
    assert ended.json["checkpoint"] is None


def test_an_error_of_jax_keeps_its_traceback(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("RESOURCE_EXHAUSTED")

    monkeypatch.setattr(training, "start", fail)
    ended = run("train", "--json")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith("Traceback")
    assert ended.err.endswith("RuntimeError: RESOURCE_EXHAUSTED\n")


def test_launch_passes_the_command_on(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(launch, "launch", lambda *given, **sizes: asked.append((given, sizes)) or 5)
    ended = run("launch", "--processes", "3", "--", "train", "--mesh", "dp=3", "--json")
    assert ended.code == 5
    command = [sys.executable, "-m", "jaxpar.cli", "train", "--mesh", "dp=3", "--json"]
    assert asked == [((command,), {"processes": 3, "devices": 4, "as_json": True})]


@pytest.mark.parametrize("words", [["--checkpoint", "run1"], ["--checkpoint=run1", "--resume"]])
def test_launch_knows_where_a_run_is_saved(
    run: Any, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        restarts, "launch_again", lambda *given, **sizes: asked.append((given, sizes)) or 5
    )
    ended = run("launch", "--max-restarts", "2", "--", "train", "--mesh", "dp=8", *words)
    assert ended.code == 5
    command = [sys.executable, "-m", "jaxpar.cli", "train", "--mesh", "dp=8", *words]
    sizes = {"restarts": 2, "processes": 2, "devices": 4, "as_json": False, "shrinking": None}
    assert asked == [((command, Path("run1")), sizes)]


def test_launch_knows_how_a_run_may_shrink(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        restarts, "launch_again", lambda *_, shrinking, **__: asked.append(shrinking) or 0
    )
    words = ["--mesh", "dp=4,tp=2", "--batch", "24", "--microbatches", "3", "--checkpoint", "run1"]
    options = ["--max-restarts", "2", "--min-processes", "1"]
    assert run("launch", *options, "--", "train", *words).code == 0
    assert asked == [restarts.Shrinking(1, "dp=4,tp=2", 8)]
