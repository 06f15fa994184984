"""A run on the screen: lines for each step, and on a terminal a bar under them."""

import time
from collections.abc import Iterator, Sequence
from datetime import timedelta

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from jaxpar.inspector import render
from jaxpar.train.loop import Trained
from jaxpar.train.profile import COMPUTING, PASSES, TRACED, Profile
from jaxpar.train.run import Run, StepResult
from jaxpar.train.validation import Validated


def show_start(run: Run, mesh: str, console: Console) -> None:
    """The size of the run, and what each device sends and holds."""
    each = f"a round of {run.round_steps} steps" if run.round_steps else "a step"
    part = "" if run.trained == run.parameters else f", of which {run.trained:,} are trained"
    size = f"{run.parameters:,} parameters{part}, {run.tokens:,} {run.unit} of text in {each}"
    console.print(f"{size}, on {mesh}\n")
    console.print(render(run.report), "")
    if run.sent:
        console.print(_sent_over_axes(run))
    for one in run.sent:
        if one.predicted_bytes != one.by_schedule_bytes:
            console.print(
                f"Over {', '.join(one.axes)} the formulas say {one.predicted_bytes:,.0f} B, and "
                f"the program sends {one.by_schedule_bytes:,.0f} B: they do not know this recipe.\n"
            )
    for note in (*run.notes, *(run.checkpoints.notes if run.checkpoints else ())):
        console.print(note)
    if run.validation:
        what = "the average of the parameters " if run.validation.averaged else ""
        console.print(
            f"validates {what}every {run.validation.every} steps, and after the last, on "
            f"{run.validation.examples:,} examples of the text that are held out\n"
        )
    if run.recorder:
        console.print(f"{run.recorder.tracking.words}\n", soft_wrap=True)
    if run.ramp:
        console.print(f"batches: {run.ramp}; the numbers above are those of the last size\n")
    if run.first_step:
        console.print(f"goes on after step {run.first_step}\n")
    if run.moved:
        megabytes = [f"{size / 1e6:,.2f} MB" for size in run.moved]
        console.print(
            f"Optimizer's state, for each device: {megabytes[0]} come to it in a step, "
            f"{megabytes[1]} go back, at most {megabytes[2]} at a time\n"
        )


def _sent_over_axes(run: Run) -> Table:
    """What is sent over each group of axes: predicted, measured, and with all branches counted."""
    each = "round" if run.round_steps else "step"
    table = Table(title=f"Wire bytes in a {each}", title_justify="left", box=box.SIMPLE_HEAD)
    branches = any(one.by_schedule_bytes < one.at_most_bytes for one in run.sent)
    columns = ["axes", "predicted", "measured", *["every branch counted"] * branches]
    for name in columns:
        table.add_column(name, justify="left" if name == "axes" else "right")
    for axes, *sizes in run.sent:
        shown = [f"{size:,.0f} B" for size in sizes]
        table.add_row(", ".join(axes), *shown[: len(columns) - 1])
    return table


def show_steps(run: Run, steps: int, console: Console) -> Iterator[Trained]:
    """The steps of a run up to so many, as they come, each with a line; or rounds of local steps.

    Raises:
        Terminated: the process was asked to end.
        ValueError: a step could not be saved.
    """
    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("steps  {task.fields[pace]}"))
    each = run.round_steps or 1
    width = len(str(steps))
    norm = "moved by" if run.round_steps else "gradient norm"
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("", total=steps, completed=run.first_step, pace="")
        first_ended = first = seconds = 0.0
        for number, step in enumerate(run.proceed(steps), 1):
            now, seconds = time.perf_counter(), seconds + step.seconds
            first_ended, first = first_ended or now, first or step.seconds
            bar.console.print(
                f"step {run.first_step + number * each:{width}}  loss {step.loss:.4f}  "
                f"{norm} {step.gradient_norm:.4f}  {_of_experts(step)}{step.seconds:6.3f} s"
            )
            if step.skipped:
                bar.console.print(
                    "  skipped: this norm is not finite, or too far above those before it"
                )
            if step.validated:
                bar.console.print(_of_validation(step.validated))
            left = (steps - run.first_step) // each - number
            speed = _speed(run, number, seconds, first)
            pace = "  ".join([*speed, *_left(now - first_ended, number - 1, left)])
            bar.update(task, advance=each, pace=pace)
            yield step


def _speed(run: Run, steps: int, seconds: float, first: float) -> Iterator[str]:
    """Tokens in a second, and of the peak of the devices what that takes, where one is known."""
    speed = run.tokens_per_second(steps, seconds, first)
    yield f"{speed:,.0f} tokens/s"
    if mfu := run.mfu(speed):
        yield f"MFU {mfu:.1%}"


def _spent(profile: Profile) -> Table:
    """What a step is spent on, and how much of it nothing is computed beside."""
    title = f"Traced: {TRACED} steps, mean of each"
    table = Table("", title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in ("in all", "exposed"):
        table.add_column(name, justify="right")
    for kind, *seconds in profile.spent:
        shown = [f"{1000 * each:,.3f} ms" for each in seconds]
        table.add_row(kind, *shown[: 1 if kind == COMPUTING else 2])
    return table


def _parts(profile: Profile) -> Table:
    """What the parts of a step take, in each pass."""
    table = Table("", box=box.SIMPLE_HEAD)
    for name in (*PASSES, "in all"):
        table.add_column(name, justify="right")
    by_part: dict[str, dict[str | None, float]] = {}
    for part, of, seconds in profile.parts:
        by_part.setdefault(part, {})[of] = seconds
    for part, passes in by_part.items():
        taken = *map(passes.get, PASSES), sum(passes.values())
        table.add_row(part, *("" if one is None else f"{1000 * one:,.3f} ms" for one in taken))
    return table


def _left(seconds: float, steps: int, left: int) -> Iterator[str]:
    """How long the steps that are left take, if they take as long as those after the first did.

    That counts all that is done between steps: validations, and waiting for what is saved.
    """
    if steps:
        yield f"{timedelta(seconds=round(seconds / steps * left))} left"


def _of_validation(validated: Validated) -> str:
    return (
        f"validation  loss {validated.loss:.4f}  perplexity {validated.perplexity:.2f}  "
        f"{validated.bits_per_byte:.4f} bits per byte"
    )


def _of_experts(step: Trained) -> str:
    """What experts tell of a step; with what they dropped, a line still has 80 columns."""
    if step.largest_load is None:
        return ""
    if step.dropped is None:
        return f"largest load {step.largest_load:.2f}  "
    return f"load {step.largest_load:.2f}  dropped {step.dropped:.1%}  "


def show_end(run: Run, taken: Sequence[StepResult], steps: int, console: Console) -> None:
    """How the run ended: its steps, what it saved, the first and the last loss, and its speed."""
    done = run.first_step + len(taken) * (run.round_steps or 1)
    if done < steps:
        console.print(f"stopped after {done} of {steps} steps")
    elif not taken:
        console.print(f"there are {done} steps already, and {steps} were asked for")
    if run.checkpoints and run.checkpoints.saved:
        saved = ", ".join(map(str, run.checkpoints.saved[-run.checkpoints.keeping.keep :]))
        console.print(f"\nsaved in {run.checkpoints.keeping.folder} after step {saved}")
    if run.profile and run.profile.spent:
        console.print("", _spent(run.profile), _parts(run.profile))
        console.print(f"The trace is in {run.profile.folder}.", soft_wrap=True)
    if taken:
        seconds = [step.seconds for step in taken]
        speed = ", ".join(_speed(run, len(taken), sum(seconds), seconds[0]))
        console.print(f"\nloss {taken[0].loss:.4f} -> {taken[-1].loss:.4f}, {speed}")
