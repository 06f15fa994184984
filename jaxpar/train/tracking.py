"""What a run tells a tracker: what it is, and what each step gave; process 0 alone does so."""

import os
import secrets
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxpar.checks import check_one_of
from jaxpar.train.checkpoint import Keeping
from jaxpar.train.loop import Trained
from jaxpar.train.record import RUN, Row, read_about, write_about
from jaxpar.train.restarts import RESTARTED
from jaxpar.train.trackers import TRACKERS, Tracker

DEFAULT_FOLDER = Path("runs")
# What tells one run from another where both were asked for by the same words; all else may change.
OF_A_RUN = ("layers", "d_model", "heads", "sequence", "experts", "seed", "optimizer", "precision")


@dataclass(frozen=True)
class Tracking:
    """What a run is asked to tell, and where.

    Attributes:
        tracker: one of `TRACKERS`.
        folder: the folder of the record.
        options: those of the run, by name.
        before: what the record in the folder says of the run that this one goes on with.
    """

    tracker: str
    folder: Path
    options: Mapping[str, Any]
    before: Mapping[str, Any] | None = None

    @property
    def words(self) -> str:
        """Where the record is, and the command that shows it."""
        return f"recorded in {self.folder}, which this shows: {self._kind.viewer(self.folder)}"

    @property
    def _kind(self) -> type[Tracker]:
        return TRACKERS[self.tracker]

    def begin(self, about: Mapping[str, Any], attempt: Mapping[str, Any]) -> Tracker:
        """Makes the record, or goes on with it after the step from which the attempt begins.

        `about` is what the run is, and `attempt` on what and when it goes on.

        Raises:
            ValueError: the record cannot be written, or the tracker fails.
        """
        before = self.before or {"id": secrets.token_hex(4), "attempts": []}
        whole = {
            "tracker": self.tracker,
            "id": before["id"],
            "options": dict(self.options),
            **about,
            "attempts": [*before["attempts"], attempt],
        }
        try:
            write_about(self.folder, whole)
            return self._kind(self.folder.absolute(), whole, attempt["after_step"])
        except Exception as error:  # of the tracker's library
            if not self.before:
                (self.folder / RUN).unlink(missing_ok=True)
            raise ValueError(
                f"train: --track {self.tracker}: {self.folder}: {_reason(error)}; give a folder "
                "that can be written, or leave --track out"
            ) from error


def make_tracking(
    tracker: str | None,
    folder: Path | None,
    keeping: Keeping | None,
    options: Mapping[str, Any],
    *,
    writes: bool = True,
) -> Tracking | None:
    """What the options of `jaxpar train` ask for; None: nothing is told, or not by this process.

    Args:
        tracker: one of `TRACKERS`.
        folder: that of the record; None: beside that of the checkpoints, or a new one.
        keeping: where checkpoints are, and whether the run goes on from one.
        options: those of the run, by name.
        writes: whether this process is the one that tells.

    Raises:
        ValueError: there is no such tracker, its library is not there, or the folder has a record
            that this run does not go on with, or something else.
    """
    if tracker is None:
        if folder is not None:
            raise ValueError(
                f"train: --track-to {folder} without --track: it says where the record of a run "
                "goes; add --track csv, or leave --track-to out"
            )
        return None
    check_one_of("train", "--track", tracker, tuple(TRACKERS))
    packages = TRACKERS[tracker].packages
    if missing := [pip for name, pip in packages.items() if find_spec(name) is None]:
        raise ValueError(
            f"train: --track {tracker}: not installed: {', '.join(missing)}; run pip install "
            f"{' '.join(missing)}, or use --track csv"
        )
    folder = folder or _default_folder(keeping)
    resumes = (keeping and keeping.resume) or int(os.environ.get(RESTARTED, "0")) > 0
    tracking = Tracking(tracker, folder, options, _before(tracker, folder, options, bool(resumes)))
    if not writes:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"train: --track-to {folder}: {error.strerror}; give a folder that can be written"
        ) from None
    return tracking


def _default_folder(keeping: Keeping | None) -> Path:
    if keeping:
        return keeping.folder.with_name(f"{keeping.folder.name}-record")
    return DEFAULT_FOLDER / f"{datetime.now():%Y-%m-%d-%H%M%S}"


def _before(
    tracker: str, folder: Path, options: Mapping[str, Any], resumes: bool
) -> dict[str, Any] | None:
    """What the record says that this run goes on with; None: there is none."""
    where = f"train: --track-to {folder}"
    try:
        about = read_about(folder)
        others = sorted(folder.iterdir()) if folder.exists() and about is None else []
    except (OSError, ValueError) as error:
        raise ValueError(f"{where}: {_reason(error)}; give an empty folder, or a new one") from None
    if others := [path.name for path in others if not path.name.startswith(f".{RUN}.")]:
        raise ValueError(
            f"{where} holds {others[0]}, and no record of a run; give an empty folder, or a new one"
        )
    if about is None:
        return None
    if not resumes:
        raise ValueError(
            f"{where} holds the record of a run; go on with it by --checkpoint and --resume, give "
            "another folder, or remove it"
        )
    there = {"track": about["tracker"]} | about["options"]
    here: Mapping[str, Any] = {"track": tracker, **options}
    differ = [
        f"{name} {there.get(name)} there, {here.get(name)} here"
        for name in ("track", *OF_A_RUN)
        if there.get(name) != here.get(name)
    ]
    if differ:
        raise ValueError(
            f"{where} holds another record: {'; '.join(differ)}; give the folder of this run's "
            "record, or a new one"
        )
    return about


class Recorder:
    """Tells a tracker the steps of a run, until the tracker fails: the run goes on without it.

    Attributes:
        tracking: where it tells them.
    """

    def __init__(
        self,
        tracking: Tracking,
        tracker: Tracker,
        *,
        tokens: int,
        share: Callable[[int], float],
        rate: float | Callable[[int], Any],
        seconds_at_peak: float | None,
    ) -> None:
        self.tracking = tracking
        self._tracker: Tracker | None = tracker
        self._tokens, self._share, self._rate = tokens, share, rate
        self._seconds_at_peak = seconds_at_peak

    def after(self, step: int, trained: Trained) -> None:
        """Tells what this step gave."""
        if self._tracker is None:
            return
        try:
            self._tracker.log(step, self._row(step, trained))
        except Exception as error:  # of the tracker's library, or of the system
            print(
                f"train: --track {self.tracking.tracker}: step {step} could not be recorded: "
                f"{_reason(error)}; the run goes on, and its record ends here",
                file=sys.stderr,
            )
            self._give_up()

    def close(self) -> None:
        """Completes the record."""
        tracker, self._tracker = self._tracker, None
        if tracker is None:
            return
        try:
            tracker.close()
        except Exception as error:  # of the tracker's library, or of the system
            name = self.tracking.tracker
            print(f"train: --track {name}: {_reason(error)}", file=sys.stderr)

    def _give_up(self) -> None:
        tracker, self._tracker = self._tracker, None
        with suppress(Exception):
            assert tracker
            tracker.close()

    def _row(self, step: int, trained: Trained) -> Row:
        validated, share = trained.validated, self._share(step)
        at_peak = self._seconds_at_peak
        row = {
            "loss": trained.loss,
            "gradient_norm": trained.gradient_norm,
            "learning_rate": self._learning_rate(step, trained),
            "seconds": trained.seconds,
            "tokens_per_second": share * self._tokens / trained.seconds,
            "mfu": at_peak and share * at_peak / trained.seconds,
            "largest_load": trained.largest_load,
            "dropped": trained.dropped,
            "skipped": trained.skipped,
            "validation_loss": validated and validated.loss,
            "perplexity": validated and validated.perplexity,
            "bits_per_byte": validated and validated.bits_per_byte,
        }
        return {name: value for name, value in row.items() if value is not None}

    def _learning_rate(self, step: int, trained: Trained) -> float:
        """The rate of this step: by the optimizer's own count, which skipped steps do not raise."""
        if not callable(self._rate):
            return self._rate
        counts = [
            leaf
            for path, leaf in jax.tree.leaves_with_path(trained.state)
            if getattr(path[-1], "name", None) == "count"
        ]
        count = int(np.max(counts[0].addressable_data(0))) if counts else step
        return float(self._rate(max(0, count - (not trained.skipped))))


def _reason(error: Exception) -> str:
    """Why something failed, in one line."""
    words = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return words.split("\n")[0]
