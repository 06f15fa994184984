"""What a person sees of a run."""

import io
import itertools
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from rich.console import Console

from jaxpar.inspector import Memory, Report
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.loop import Trained
from jaxpar.train.run import Run, StepResult
from jaxpar.train.screen import show_end, show_start, show_steps
from jaxpar.train.sent import Sent
from jaxpar.train.validation import Validated, Validation

RUN = Run(Report((), 7, Memory(1, 2, 0, 4, 5)), 1234, 1234, 2048, iter(()))
TAKEN = [StepResult(5.5, 2.0, 0.5), StepResult(4.25, 1.5, 0.25)]


def shown(show, *arguments, terminal: bool = False) -> str:
    file = io.StringIO()
    console = Console(file=file, width=80, highlight=False, force_terminal=terminal)
    list(show(*arguments, console) or ())
    return file.getvalue()


def test_the_start_tells_sizes_and_the_report() -> None:
    text = shown(show_start, RUN, "dp=8")
    assert text.startswith("1,234 parameters, 2,048 bytes of text in a step, on dp=8\n")
    assert "Sends nothing." in text
    assert "Bytes held" in text
    assert "schedule" not in text


def test_what_is_sent_stands_beside_what_was_predicted() -> None:
    sent = Sent(("dp",), 8, 8.0, 8), Sent(("fsdp", "tp"), 37_632, 37_632.0, 104_320)
    text = shown(show_start, replace(RUN, sent=sent[:1]), "dp=2")
    assert [line.split() for line in text.splitlines()].count(["dp", "8", "B", "8", "B"]) == 1
    text = shown(show_start, replace(RUN, sent=sent), "pp=2,fsdp=2,tp=2")
    (last,) = (line for line in text.splitlines() if "fsdp, tp" in line)
    assert last.split() == ["fsdp,", "tp", "37,632", "B", "37,632", "B", "104,320", "B"]
    assert "every branch counted" in text
    assert "formulas" not in text


def test_a_wrong_prediction_is_told() -> None:
    text = shown(show_start, replace(RUN, sent=(Sent(("dp",), 8, 12.0, 12),)), "dp=2")
    line = "Over dp the formulas say 8 B, and the program sends 12 B: they do not know this recipe."
    assert line in " ".join(text.split())


@pytest.mark.parametrize("terminal", [False, True])
def test_each_step_has_a_line_and_a_terminal_a_bar(terminal: bool) -> None:
    endless = (Trained(*step[:3], None, None) for step in itertools.cycle(TAKEN))
    text = shown(show_steps, replace(RUN, steps=endless), 10, terminal=terminal)
    assert "step  1  loss 5.5000  gradient norm 2.0000   0.500 s" in text
    assert "step 10  loss 4.2500  gradient norm 1.5000   0.250 s" in text
    assert text.count("step ") == 10
    assert ("/10" in text) == terminal


def test_what_is_left_is_computed_from_the_steps_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 seconds pass from each step to the next, most of them between the steps."""
    monkeypatch.setattr("jaxpar.train.screen.time.perf_counter", itertools.count(500, 10).__next__)
    endless = (Trained(*step[:3], None, None) for step in itertools.cycle(TAKEN))
    run = replace(RUN, steps=endless, seconds_at_peak=0.15)
    text = shown(lambda *given: itertools.islice(show_steps(*given), 2), run, 5, terminal=True)
    assert "8,192 tokens/s  MFU 60.0%  0:00:30 left" in text
    assert "MFU 60.0%" in shown(show_end, run, TAKEN, 2)


def test_a_step_with_experts_tells_their_largest_load() -> None:
    steps = (Trained(*step[:3], None, None, 1.756) for step in TAKEN)
    text = shown(show_steps, replace(RUN, steps=steps), 1)
    assert "gradient norm 2.0000  largest load 1.76   0.500 s" in text


def test_a_step_with_a_capacity_tells_what_was_dropped() -> None:
    steps = (Trained(*step[:3], None, None, 1.756, 0.1234) for step in TAKEN)
    text = shown(show_steps, replace(RUN, steps=steps), 1)
    assert "gradient norm 2.0000  load 1.76  dropped 12.3%   0.500 s" in text


def test_a_validation_has_a_line_of_its_own() -> None:
    validation = Validation(10, lambda *_: 0.0, [[0] * 16] * 3)
    start = shown(show_start, replace(RUN, validation=validation), "dp=8")
    line = "validates every 10 steps, and after the last, on 48 examples of the text that are held"
    assert line in " ".join(start.split())
    steps = iter([Trained(*TAKEN[0][:3], None, None)])
    validated = Validated(1, 5.25, 190.566, 7.574)
    with patch.object(Validation, "after", return_value=validated):
        text = shown(show_steps, replace(RUN, steps=steps, validation=validation), 1)
    assert text.splitlines()[1] == (
        "validation  loss 5.2500  perplexity 190.57  7.5740 bits per byte"
    )


def test_a_round_counts_its_steps() -> None:
    steps = (Trained(*step[:3], None, None) for step in TAKEN)
    run = replace(RUN, steps=steps, round_steps=20, sent=(Sent(("dp",), 56.0, 56.0, 56.0),))
    start = shown(show_start, run, "dp=8")
    assert "2,048 bytes of text in a round of 20 steps" in start
    assert "Wire bytes in a round" in start
    text = shown(show_steps, run, 40)
    assert "step 20  loss 5.5000  moved by 2.0000   0.500 s" in text
    assert "step 40  loss 4.2500  moved by 1.5000   0.250 s" in text
    assert "stopped after 40 of 60 steps" in shown(show_end, run, TAKEN, 60)


def test_a_resumed_run_counts_from_where_it_began() -> None:
    keeping = Keeping(Path("/runs/a"), keep=2)
    resumed = SimpleNamespace(step=40, saved=[41, 42, 43], keeping=keeping, notes=["a note"])
    steps = (Trained(*step[:3], None, None) for step in TAKEN)
    told: Any = {"steps": steps, "checkpoints": resumed}
    run = replace(RUN, **told)
    start = shown(show_start, run, "dp=8")
    assert "a note\ngoes on after step 40\n" in start
    end = shown(show_end, run, TAKEN, 42)
    assert end.startswith("\nsaved in /runs/a after step 42, 43\n\nloss 5.5000 -> 4.2500")
    assert "there are 40 steps already, and 40 were asked for" in shown(show_end, run, [], 40)


def test_the_end_tells_the_speed_and_what_is_missing() -> None:
    assert shown(show_end, RUN, TAKEN, 2) == "\nloss 5.5000 -> 4.2500, 8,192 tokens/s\n"
    assert "stopped after 2 of 50 steps" in shown(show_end, RUN, TAKEN, 50)
    assert shown(show_end, RUN, [], 50) == "stopped after 0 of 50 steps\n"
