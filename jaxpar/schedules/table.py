"""A pipeline schedule as a table: one row per device, one cell per action.

A cell names a stage, a kind and a microbatch: `2F0` is the forward of microbatch 0 on stage 2. The
kinds are F (forward), B (full backward), and its two halves I (gradient of the stage's input) and W
(gradient of its weights). Empty cells are idle, and a row may be shorter than another. It is the
grammar of the CSV files of PyTorch's pipelining, in their format "compute_only": transfers follow
from the table.

A row is an ORDER, not a clock: the device does its actions one after the other, each as soon as
what it needs is done. So idle cells may be left out, and whether a table can run depends on what
its actions need, not on the columns in which they stand. `rules.to_ticks` puts the idle cells in.

Devices, stages and microbatches count from 0. Errors count rows and cells from 1, as spreadsheets
and editors do: row 1 is device 0.

Source: PyTorch, torch/distributed/pipelining/schedules.py (the grammar)
"""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

KINDS = {"F": "forward", "B": "backward", "I": "input gradient", "W": "weight gradient"}
CELL = re.compile(r"([0-9]{1,9})([FBIW])([0-9]{1,9})")


class Action(NamedTuple):
    """What a device does in a cell: one kind of work on one microbatch of one stage."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


Place = tuple[int, int]  # the device and the cell, both counted from 0


def place_name(place: Place) -> str:
    """How errors name a place: rows and cells count from 1."""
    device, cell = place
    return f"row {device + 1} (device {device}), cell {cell + 1}"


@dataclass(frozen=True)
class Table:
    """A schedule: for each device the order of its actions, None where it is idle.

    Nothing is checked here. The properties below mean something once `rules.check` accepts it.
    """

    rows: tuple[tuple[Action | None, ...], ...]

    @classmethod
    def parse(cls, rows: Sequence[Sequence[str | None]]) -> "Table":
        """Read rows of cells such as "0F0"; an empty cell, or None, is idle.

        Raises:
            ValueError: a cell is not an action.
        """
        return cls(
            tuple(
                tuple(_parse_cell(text, (device, cell)) for cell, text in enumerate(row))
                for device, row in enumerate(rows)
            )
        )

    def to_rows(self) -> list[list[str]]:
        """Write the rows as cells such as "0F0", empty where the device is idle."""
        return [[str(action) if action else "" for action in row] for row in self.rows]

    @classmethod
    def from_csv(cls, text: str) -> "Table":
        """Read CSV text, one line per device, as PyTorch's pipelining writes it.

        Raises:
            ValueError: a cell is not an action.
        """
        lines = csv.reader(text.rstrip().splitlines())
        try:
            return cls.parse(list(lines))
        except csv.Error as error:
            raise ValueError(
                f"schedule: row {lines.line_num}, cell 1: {error}; a row is cells such as 0F0 with "
                "commas between them; write it so"
            ) from error

    def to_csv(self) -> str:
        """Write CSV text, one line per device, as PyTorch's pipelining reads it."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(self.to_rows())
        return text.getvalue()

    @cached_property
    def places(self) -> dict[Action, Place]:
        """Where each action stands."""
        return {
            action: (device, cell)
            for device, row in enumerate(self.rows)
            for cell, action in enumerate(row)
            if action
        }

    @cached_property
    def stage_devices(self) -> dict[int, int]:
        """The device of each stage."""
        return {action.stage: device for action, (device, _) in self.places.items()}

    def device_of(self, stage: int) -> int:
        """The device that holds a stage."""
        return self.stage_devices[stage]

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.rows)

    @cached_property
    def stages(self) -> int:
        """The number of stages, over all devices."""
        return 1 + max(self.stage_devices, default=-1)

    @cached_property
    def chunks(self) -> int:
        """The number of stages of the device that has most of them."""
        devices = list(self.stage_devices.values())
        return max((devices.count(device) for device in set(devices)), default=0)

    @cached_property
    def microbatches(self) -> int:
        """The number of microbatches."""
        return 1 + max((action.microbatch for action in self.places), default=-1)

    def needs(self, action: Action) -> Action | None:
        """The action whose result this one waits for; None for a forward of stage 0."""
        stage, kind, microbatch = action
        if kind == "F":
            return Action(stage - 1, "F", microbatch) if stage else None
        if kind == "W":
            return Action(stage, "I", microbatch)
        if stage == self.stages - 1:
            return Action(stage, "F", microbatch)
        same = Action(stage + 1, kind, microbatch)
        return same if same in self.places else Action(stage + 1, "BI"[kind == "B"], microbatch)


def _parse_cell(text: str | None, place: Place) -> Action | None:
    if text is None or (isinstance(text, str) and not text.strip()):
        return None
    match = CELL.fullmatch(text.strip()) if isinstance(text, str) else None
    if not match:
        raise ValueError(
            f"schedule: {place_name(place)}: {repr(text)[:40]} is not an action; a cell is a "
            "stage, one of F, B, I, W, and a microbatch; write it like 0F0, or leave it empty"
        )
    stage, kind, microbatch = match.groups()
    return Action(int(stage), kind, int(microbatch))
